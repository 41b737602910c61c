// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a write means. The grammar stands in `table.rs`.

use std::collections::BTreeSet;

use reserv_model::{
    AccessChange, Class, DeleteMode, Error, ErrorKind, Listen, Name, NewKind, NodeId, NodePath,
    NodeRef, Policy, Request, Share, ThreadParams, Verb, Weight, parse_cap, parse_tune, quoted,
};

use crate::ino::{FileKind, Resource};
use crate::table::{TABLE, Write};
use crate::text::{line, lines, number, single, surplus};

/// Largest process and thread id (Linux `PID_MAX_LIMIT`).
pub const PID_MAX: u32 = 1 << 22;

/// Whom a write to `members` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// All threads of a process.
    Process(u32),
    /// One thread; with a pid, only if it is that process's (ids are used again).
    Thread {
        /// The thread.
        tid: u32,
        /// Its process, if it was named.
        pid: Option<u32>,
    },
    /// The writer's process.
    CallerProcess,
    /// The writing thread.
    CallerThread,
}

/// What the daemon has to do for a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Change the tree, all at once.
    Edit(Vec<Request>),
    /// Change a node's access list.
    Access {
        /// The node.
        node: NodeId,
        /// As it was written.
        change: AccessChange,
        /// Whether threads and lists that have lost the use of their queue by it go to q0 at once;
        /// else they stay.
        fall: bool,
    },
    /// Tag threads with this queue.
    Tag {
        /// The queue whose `members` was written.
        queue: NodeId,
        /// Which threads.
        who: Who,
        /// What the thread asks of the queue's class from now on; `None`: what it did.
        params: Option<ThreadParams>,
    },
}

/// A write to a file of `node`. Only the text is checked here; whether the tree allows it is
/// `Tree::plan`'s. `NotPermitted` (`EACCES`) for files that are not written, or not through this
/// function.
pub fn parse_write(file: FileKind, node: NodeId, bytes: &[u8]) -> Result<Command, Error> {
    let row = TABLE.iter().find(|e| e.file == file);
    match row.map(|e| (e.name, e.write)) {
        Some((name, Write::Node(parse))) => {
            line(bytes).and_then(|text| parse(node, text)).map_err(|e| e.at(name))
        }
        Some((name, Write::Lines(parse))) => {
            lines(bytes).and_then(|texts| parse(node, &texts)).map_err(|e| e.at(name))
        }
        Some((name, _)) => {
            Err(Error::new(ErrorKind::NotPermitted, format!("{name} is not written")))
        }
        None => Err(Error::new(ErrorKind::NotPermitted, "a directory is not written")),
    }
}

/// A running resource, and the node that is at a path in its tree; `None`: no resource is called
/// so.
pub type Named = Option<(Resource, Result<NodeId, Error>)>;

/// A write to a process's `default` or `cdefault`: at most one queue per resource; resources that
/// are not named keep theirs. `mount` is where `/reserv` is mounted; `find` gives a running
/// resource by its name, and the node that is there by this path. Its own refusals are answered as
/// they are.
pub fn parse_defaults<E: From<Error>>(
    bytes: &[u8],
    mount: &str,
    mut find: impl FnMut(&str, &NodePath) -> Result<Named, E>,
) -> Result<Vec<(Resource, NodeId)>, E> {
    let hint = "queues, one per resource: /reserv/cpu/q2";
    let mut tags: Vec<(Resource, NodeId)> = Vec::new();
    for word in line(bytes)?.split_ascii_whitespace() {
        let below = match word.strip_prefix(mount) {
            Some(rest) => rest.strip_prefix('/'),
            None if word.starts_with('/') => None,
            None => Some(word),
        };
        let Some(below) = below else {
            let why = format!("{} is not below {mount}", quoted(word));
            return Err(Error::new(ErrorKind::Invalid, why).hint(hint).into());
        };
        let (name, path) = below.split_once('/').unwrap_or((below, ""));
        let path: NodePath = path.parse().map_err(|e: Error| e.at(quoted(word)))?;
        let (resource, node) = find(name, &path)?.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("{} names no resource", quoted(word)))
                .hint(hint)
        })?;
        if tags.iter().any(|(r, _)| *r == resource) {
            let why = format!("{} is a second queue of {name}", quoted(word));
            return Err(Error::new(ErrorKind::Invalid, why).hint(hint).into());
        }
        tags.push((resource, node.map_err(|e| e.at(quoted(word)))?));
    }
    Ok(tags)
}

/// The number of a descriptor, and what follows it.
fn descriptor_and_rest<'t>(bytes: &'t [u8], hint: &str) -> Result<(u32, &'t str), Error> {
    let text = line(bytes)?.trim_ascii();
    let (fd, rest) = text.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((text, ""));
    let number =
        || Error::new(ErrorKind::Invalid, format!("{} is no descriptor", quoted(fd))).hint(hint);
    let fd =
        fd.parse::<u32>().ok().filter(|fd| *fd <= i32::MAX.cast_unsigned()).ok_or_else(number)?;
    Ok((fd, rest))
}

/// A write to a process's `listen`: one descriptor, and for whom its socket is.
pub fn parse_listen(bytes: &[u8]) -> Result<(u32, Listen), Error> {
    let (fd, clients) = descriptor_and_rest(bytes, "a descriptor and clients: 7 10.1.0.0/16")?;
    Ok((fd, clients.parse()?))
}

/// A write to a process's `fds`: one descriptor and its queue.
pub fn parse_descriptor<E: From<Error>>(
    bytes: &[u8],
    mount: &str,
    find: impl FnMut(&str, &NodePath) -> Result<Named, E>,
) -> Result<(u32, Resource, NodeId), E> {
    let hint = "a descriptor and a queue: 7 /reserv/disk/web";
    let (fd, queue) = descriptor_and_rest(bytes, hint)?;
    if let [(resource, id)] = parse_defaults(queue.as_bytes(), mount, find)?[..] {
        return Ok((fd, resource, id));
    }
    let why = format!("{} is not one queue", quoted(queue));
    Err(Error::new(ErrorKind::Invalid, why).hint(hint).into())
}

fn edit(request: Request) -> Command {
    Command::Edit(vec![request])
}

pub(crate) fn share(node: NodeId, text: &str) -> Result<Command, Error> {
    Ok(edit(Request::SetShare { node: node.into(), share: text.parse()? }))
}

/// Shares of several children, at once: weights that fit in no order one by one.
pub(crate) fn shares(parent: NodeId, lines: &[&str]) -> Result<Command, Error> {
    let hint = "lines of a child's name, weight and minimum: site1 50 250ms/s";
    let mut requests = Vec::new();
    let mut names = BTreeSet::new();
    for line in lines {
        let Some((name, share)) = line.split_once([' ', '\t']) else {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("{} without a share", quoted(line)),
            )
            .hint(hint));
        };
        let name = Name::new(name)?;
        let share = share.parse().map_err(|e: Error| e.at(&name))?;
        if !names.insert(name.clone()) {
            let why = format!("{} stands there twice", quoted(name.as_str()));
            return Err(Error::new(ErrorKind::Invalid, why).hint(hint));
        }
        requests.push(Request::SetShare { node: NodeRef::Child(parent, name), share });
    }
    Ok(Command::Edit(requests))
}

pub(crate) fn cap(node: NodeId, text: &str) -> Result<Command, Error> {
    Ok(edit(Request::SetCap { node: node.into(), cap: parse_cap(text)? }))
}

pub(crate) fn policy(node: NodeId, text: &str) -> Result<Command, Error> {
    let policy = single(text, "a policy", Policy::WORDS)?.parse()?;
    Ok(edit(Request::SetPolicy { node: node.into(), policy }))
}

pub(crate) fn class(node: NodeId, text: &str) -> Result<Command, Error> {
    let class = single(text, "a class", Class::WORDS)?.parse()?;
    Ok(edit(Request::SetClass { node: node.into(), class }))
}

pub(crate) fn tune(node: NodeId, text: &str) -> Result<Command, Error> {
    Ok(edit(Request::SetTune { node: node.into(), change: parse_tune(text)? }))
}

pub(crate) fn gc(node: NodeId, text: &str) -> Result<Command, Error> {
    let hint = "1: collect when unreferenced, 0: keep";
    let gc = match single(text, "0 or 1", hint)? {
        "0" => false,
        "1" => true,
        word => {
            return Err(Error::new(ErrorKind::Invalid, format!("{} is not 0 or 1", quoted(word)))
                .hint(hint));
        }
    };
    Ok(edit(Request::SetGc { node: node.into(), gc }))
}

/// A change of a list, and whether what has lost the right to its queue goes to q0.
pub(crate) fn access_words(text: &str) -> Result<(AccessChange, bool), Error> {
    let hint = "tags stay, or tags fall: what has lost the right to its queue goes to q0";
    let (text, fall) = match text.split_once(" tags ") {
        None => (text, false),
        Some((text, word)) => match word.trim_matches([' ', '\t']) {
            "stay" => (text, false),
            "fall" => (text, true),
            word => {
                let why = format!("{} is neither stay nor fall", quoted(word));
                return Err(Error::new(ErrorKind::Invalid, why).hint(hint));
            }
        },
    };
    let change: AccessChange = text.parse()?;
    if fall && change.verb == Verb::Allow {
        return Err(Error::new(
            ErrorKind::Invalid,
            "'tags fall' and 'tags stay' are of deny and remove, not of allow",
        )
        .hint(hint));
    }
    Ok((change, fall))
}

pub(crate) fn access(node: NodeId, text: &str) -> Result<Command, Error> {
    access_words(text).map(|(change, fall)| Command::Access { node, change, fall })
}

pub(crate) fn backlog(node: NodeId, text: &str) -> Result<Command, Error> {
    let hint = "most members and most service enqueued (of a link: packets and bytes), 0 for no limit: 16 0";
    let mut words = text.split_ascii_whitespace().peekable();
    words.next_if_eq(&"limit");
    let Some(members) = words.next() else {
        return Err(Error::new(ErrorKind::Invalid, "nothing where limits should be").hint(hint));
    };
    let members_max =
        number(members, 0, PID_MAX, "a limit of members").map_err(|e| e.hint(hint))?;
    let bytes_max = match words.next() {
        None => 0,
        Some(word) => reserv_model::parse_bytes(word)?,
    };
    if let Some(word) = words.next() {
        return Err(surplus(word, "limits", hint));
    }
    Ok(Command::Edit(vec![
        Request::SetLimit { node: node.into(), members_max, bytes_max },
        Request::ResetCounters { node: node.into() },
    ]))
}

pub(crate) fn state(node: NodeId, text: &str) -> Result<Command, Error> {
    let hint = "drain: accept no new member, and go when the last one has left; flush: move all to q0, and go now";
    let node = node.into();
    Ok(edit(match single(text, "a state", hint)? {
        "drain" | "draining" => Request::Delete { node, mode: DeleteMode::Drain },
        "flush" => Request::Delete { node, mode: DeleteMode::Flush },
        "active" => Request::Active { node },
        word => {
            return Err(Error::new(ErrorKind::Invalid, format!("{} is not a state", quoted(word)))
                .hint(hint));
        }
    }))
}

pub(crate) fn members(queue: NodeId, text: &str) -> Result<Command, Error> {
    let hint = "1234 (a process), tid 1234 (a thread), self or tid self; a thread may be followed by parameters";
    let pid = |word: &str, what: &str| number(word, 1, PID_MAX, what).map_err(|e| e.hint(hint));
    let mut words = text.split_ascii_whitespace().peekable();
    let who = match words.next().unwrap_or_default() {
        "self" => Who::CallerProcess,
        "tid" => match words.next() {
            Some("self") => Who::CallerThread,
            Some(tid) => {
                let tid = pid(tid, "a thread")?;
                let owner = if words.next_if_eq(&"pid").is_none() {
                    None
                } else {
                    let owner = words.next().ok_or_else(|| {
                        Error::new(ErrorKind::Invalid, "\"pid\" without a process").hint(hint)
                    })?;
                    Some(pid(owner, "a process")?)
                };
                Who::Thread { tid, pid: owner }
            }
            None => {
                return Err(Error::new(ErrorKind::Invalid, "\"tid\" without a thread").hint(hint));
            }
        },
        word => Who::Process(pid(word, "a process")?),
    };
    let one = matches!(who, Who::Thread { .. } | Who::CallerThread);
    let params = match words.peek() {
        None => None,
        Some(word) if !one => {
            return Err(surplus(
                word,
                "a process",
                "only one thread at a time has parameters: tid 1234 weight 2",
            ));
        }
        Some(&"default") => {
            words.next();
            if let Some(word) = words.next() {
                return Err(surplus(word, "\"default\"", hint));
            }
            Some(ThreadParams::default())
        }
        Some(_) => Some(ThreadParams::parse(words)?),
    };
    Ok(Command::Tag { queue, who, params })
}

pub(crate) fn mk(parent: NodeId, text: &str) -> Result<Command, Error> {
    let hint = "queue or scheduler, a name, and perhaps a share: queue site1 50";
    let (kind, rest) = text.split_once([' ', '\t']).unwrap_or((text, ""));
    let kind = match kind {
        "queue" => NewKind::Queue(None),
        "scheduler" => NewKind::Scheduler(None),
        word => {
            let why = format!("{} is neither queue nor scheduler", quoted(word));
            return Err(Error::new(ErrorKind::Invalid, why).hint(hint));
        }
    };
    let rest = rest.trim_matches([' ', '\t']);
    let (name, share) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
    let name = Name::new(name)?;
    let share = share.trim_matches([' ', '\t']);
    let share = if share.is_empty() { Share::of(Weight::DEFAULT) } else { share.parse()? };
    Ok(edit(Request::Create { parent: parent.into(), name: Some(name), kind, share: Some(share) }))
}
