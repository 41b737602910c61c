// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tags' plane by hand, for tests: reads one command per line, answers one line each,
//! `error: …` when it was refused. Ends with its input and leaves the programs in the kernel unless
//! `close` was said.
//!
//! ```text
//! open [stock] | adopt | close | lost | mechanism   mount DEV
//! files R DEV [count]   iface R INDEX [count] detach R
//! disk R DEV                                  above R [DEV…]
//! node R INDEX GEN queue|scheduler [dying]    drop R INDEX GEN
//! use R INDEX GEN open | [RULE…]              RULE: allow|deny[,uid=N][,gid=N][,pid=N:START]
//! refs R INDEX GEN   counted R INDEX GEN      reset R INDEX GEN     sweep R INDEX GEN
//! lists PID          default PID R INDEX GEN  cdefault PID R INDEX GEN
//! fds PID                                     tag R INDEX GEN PID FD
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, BufRead as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};

use reserv_model::{NodeId, UseRule};
use reserv_plane::List;
use reserv_plane::tag::{self, Mechanism, NodeInfo, Object, Tags};

type Answer = Result<String, Box<dyn Error>>;

fn main() -> Result<(), Box<dyn Error>> {
    let mut tags = None;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match answer(&mut tags, &words) {
            Ok(answer) => answer,
            Err(error) => format!("error: {}", error.to_string().replace('\n', " | ")),
        };
        println!("{answer}");
        io::stdout().flush()?;
    }
    Ok(())
}

fn rule(text: &str) -> Result<UseRule, Box<dyn Error>> {
    let mut rule = UseRule { uid: None, gid: None, process: None, allow: false };
    for word in text.split(',') {
        match word.split_once('=') {
            None => rule.allow = word == "allow",
            Some(("uid", n)) => rule.uid = Some(n.parse()?),
            Some(("gid", n)) => rule.gid = Some(n.parse()?),
            Some(("pid", n)) => {
                let (pid, start) = n.split_once(':').ok_or("pid=N:START")?;
                rule.process = Some((pid.parse()?, start.parse()?));
            }
            Some((other, _)) => return Err(format!("what is {other}?").into()),
        }
    }
    Ok(rule)
}

/// A copy of a process's descriptor.
fn borrowed(pid: u64, fd: u64) -> io::Result<OwnedFd> {
    let owned = |got: libc::c_long| {
        let fd =
            i32::try_from(got).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the kernel has just given us this descriptor.
        Ok::<_, io::Error>(unsafe { OwnedFd::from_raw_fd(fd) })
    };
    // SAFETY: numbers by value.
    let process = owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: the same.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0) })
}

fn list(entries: &[(u8, NodeId)]) -> String {
    let words = entries.iter().map(|(r, id)| format!(" {r}:{}:{}", id.index, id.generation));
    words.collect::<Vec<_>>().concat()
}

fn answer(held: &mut Option<Tags>, words: &[&str]) -> Answer {
    let number = |at: usize| -> Result<u64, Box<dyn Error>> {
        let word = words.get(at).ok_or("a number is missing")?;
        Ok(word
            .strip_prefix("0x")
            .map_or_else(|| word.parse(), |hex| u64::from_str_radix(hex, 16))?)
    };
    let node = |at: usize| -> Result<NodeId, Box<dyn Error>> {
        Ok(NodeId {
            index: u32::try_from(number(at)?)?,
            generation: u32::try_from(number(at + 1)?)?,
        })
    };
    let verb = *words.first().ok_or("say something")?;
    match verb {
        "open" if words.get(1) == Some(&"stock") => *held = Some(tag::open_as(Mechanism::Stock)?),
        "open" => *held = Some(tag::open()?),
        "adopt" => *held = tag::adopt()?,
        "close" => held.take().ok_or("nothing is open")?.release()?,
        _ => {}
    }
    if matches!(verb, "open" | "adopt" | "close") {
        return Ok(if held.is_some() { "held" } else { "none" }.into());
    }
    let tags = held.as_ref().ok_or("nothing is open")?;
    let pid = || -> Result<i32, Box<dyn Error>> { Ok(i32::try_from(number(1)?)?) };
    let resource = |at: usize| -> Result<u8, Box<dyn Error>> { Ok(u8::try_from(number(at)?)?) };
    let counts = words.last() == Some(&"count");
    match verb {
        "mechanism" => return Ok(format!("{:?}", tags.mechanism()).to_lowercase()),
        "mount" => tags.set_mount(number(1)?)?,
        "files" => tags.attach_resource(resource(1)?, Object::Files { dev: number(2)? }, counts)?,
        "iface" => {
            let object = Object::Interface {
                index: u32::try_from(number(2)?)?,
                netns: tag::netns_cookie()?,
            };
            tags.attach_resource(resource(1)?, object, counts)?;
        }
        "disk" => drop(tags.attach_disk(resource(1)?, number(2)?)?),
        "above" => {
            let devices: Result<BTreeMap<u64, bool>, Box<dyn Error>> =
                (2..words.len()).map(|at| Ok((number(at)?, false))).collect();
            tags.set_above(resource(1)?, &devices?)?;
        }
        "detach" => tags.detach_resource(resource(1)?)?,
        "node" => {
            let info =
                NodeInfo { queue: words.get(4) == Some(&"queue"), dying: words.get(5).is_some() };
            tags.set_node(resource(1)?, node(2)?, info)?;
        }
        "drop" => tags.drop_node(resource(1)?, node(2)?)?,
        "use" if words.get(4) == Some(&"open") => tags.set_use(resource(1)?, node(2)?, None)?,
        "use" => {
            let rules: Vec<UseRule> =
                words.get(4..).unwrap_or(&[]).iter().map(|w| rule(w)).collect::<Result<_, _>>()?;
            tags.set_use(resource(1)?, node(2)?, Some(&rules))?;
        }
        "refs" => {
            let refs = tags.refs(resource(1)?, node(2)?)?;
            return Ok(format!("{} {} {}", refs.descriptors, refs.defaults, refs.child_defaults));
        }
        "counted" => {
            let counted = tags.counted(resource(1)?, node(2)?)?;
            return Ok(format!("{} {}", counted.operations, counted.bytes));
        }
        "reset" => tags.reset_counted(resource(1)?, node(2)?)?,
        "sweep" => return Ok(tags.sweep(resource(1)?, node(2)?)?.to_string()),
        "lists" => {
            let lists = tags.defaults(pid()?)?;
            return Ok(format!("default{} child{}", list(&lists.default), list(&lists.child)));
        }
        "default" => tags.set_default(pid()?, List::Default, resource(2)?, node(3)?)?,
        "cdefault" => tags.set_default(pid()?, List::Child, resource(2)?, node(3)?)?,
        "fds" => {
            let of = |t: &tag::TaggedFd| {
                let id = NodeId::unpack(t.queue);
                format!("{}:{}:{}:{}", t.fd, t.resource, id.index, id.generation)
            };
            return Ok(tags.tagged(pid()?)?.iter().map(of).collect::<Vec<_>>().join(" "));
        }
        "tag" => {
            tags.tag_descriptor(borrowed(number(4)?, number(5)?)?.as_fd(), resource(1)?, node(2)?)?;
        }
        "lost" => return Ok(tags.lost()?.to_string()),
        other => return Err(format!("what is {other}?").into()),
    }
    Ok("done".into())
}
