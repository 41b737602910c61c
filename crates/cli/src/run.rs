// SPDX-License-Identifier: MIT OR Apache-2.0
//! `run` and `tag`: programs and threads under reservations.
//!
//! `run` sets both lists of its own process and its own tag, then executes the program in its
//! place. Nothing of `reserv` stays: exit status, signals, terminal and process id are the
//! program's own.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;

use nix::errno::Errno;

use crate::args::{Run, Tag};
use crate::error::{Error, Kind};
use crate::fs::{Files, explain, missing, writing};
use crate::path::NodePath;
use crate::signals;

/// Tag the calling process with a queue and execute the program. Returns only when that failed.
pub(crate) fn run(args: &Run) -> Error {
    let command = &args.command;
    let reservation = crate::fs::open().and_then(|files| {
        if let Some(container) = &args.container {
            return crate::container::enter(&*files, container);
        }
        let queues = queues(&*files, args)?;
        queues.iter().try_for_each(|queue| tag_self(&*files, queue))
    });
    match reservation {
        Err(error) if args.anyway && error.kind == Kind::NotRunning => {
            crate::note(Some(format!("without a reservation: {}", error.message)));
        }
        Err(error) => return error.of_kind(Kind::RunReservation),
        Ok(()) => {}
    }
    let Ok(arguments) =
        command.iter().map(|word| CString::new(word.as_bytes())).collect::<Result<Vec<_>, _>>()
    else {
        return Error::new(Kind::RunExec, "a word of the command contains a zero byte");
    };
    signals::as_inherited();
    let Err(errno) = nix::unistd::execvp(&arguments[0], &arguments);
    let program = command[0].to_string_lossy();
    let kind = if errno == Errno::ENOENT { Kind::RunNotFound } else { Kind::RunExec };
    let mut error = Error::new(kind, format!("cannot execute '{program}': {}", errno.desc()));
    error.errno = Some(errno as i32);
    error
}

/// The queues that are named, one per resource. All are looked at before the first is used.
fn queues(files: &dyn Files, args: &Run) -> Result<Vec<NodePath>, Error> {
    let mut found: Vec<NodePath> = Vec::new();
    let others = [("--net", &args.net), ("--disk", &args.disk), ("--on", &args.on)];
    let others =
        others.into_iter().flat_map(|(option, paths)| paths.iter().map(move |path| (option, path)));
    for (option, path) in args.cpu.iter().map(|path| ("--cpu", path)).chain(others) {
        let queue = queue(files, path)?;
        let (cpu, resource) = (queue.resource() == "cpu", queue.resource());
        if option != "--on" && cpu != (option == "--cpu") {
            return Err(Error::usage(format!("{option} {path}: that is a queue of {resource}")).hint(
                if cpu {
                    "write the resource's name before it: eth0/web; 'reserv tree' shows what there is"
                } else {
                    "--net and --disk take it"
                },
            ));
        }
        let wanted = match option {
            "--net" => "link",
            "--disk" => "disk",
            _ => "",
        };
        if let Some(kind) =
            kind(files, resource).filter(|kind| !wanted.is_empty() && kind != wanted)
        {
            return Err(Error::usage(format!(
                "{option} {path}: {resource} is a {kind}, no {wanted}"
            ))
            .hint(if kind == "disk" { "--disk takes it" } else { "--net takes it" }));
        }
        if let Some(other) = found.iter().find(|other| other.resource() == queue.resource()) {
            return Err(Error::usage(format!("'{other}' and '{queue}' are of one resource")));
        }
        found.push(queue);
    }
    Ok(found)
}

/// What a resource is, where the daemon says so.
fn kind(files: &dyn Files, resource: &str) -> Option<String> {
    let status = files.read("status").ok()?;
    let key = format!("{resource}.kind ");
    status.lines().find_map(|line| line.strip_prefix(&key)).map(str::to_owned)
}

/// Whether a resource's queues take threads: the CPU's, and a disk's under the stock driver. Of the
/// others the lists are all that is set; what they would refuse is not tried, for it would stand in
/// the status as a refusal.
fn takes_threads(files: &dyn Files, resource: &str) -> bool {
    let kind = kind(files, resource);
    let stock = || {
        let status = files.read("status").unwrap_or_default();
        status.lines().any(|line| line == format!("{resource}.driver stock"))
    };
    match kind.as_deref() {
        Some("link") => false,
        Some("disk") => stock(),
        _ => true,
    }
}

/// A queue that exists.
pub(crate) fn queue(files: &dyn Files, path: &str) -> Result<NodePath, Error> {
    let path = NodePath::parse(path, files.place())?;
    if let Some(error) = missing(files, &path) {
        return Err(error);
    }
    if files.read(&path.file("policy")).is_ok() {
        let mut error =
            Error::refused(format!("'{path}' is a scheduler node; only queues have members"));
        let queues: Vec<String> = files
            .list(path.as_str())
            .map(|l| l.dirs)
            .unwrap_or_default()
            .iter()
            .map(|name| path.join(name).to_string())
            .take(3)
            .collect();
        if !queues.is_empty() {
            error = error.hint(format!("below it there is '{}'", queues.join("', '")));
        }
        return Err(error);
    }
    Ok(path)
}

/// Put a process, with its present threads and what it will start, under a queue.
pub(crate) fn tag_process(files: &dyn Files, queue: &NodePath, pid: i32) -> Result<(), Error> {
    tag_as(files, queue, &format!("process {pid}"), (&format!("proc/{pid}"), &pid.to_string()))
}

/// Put this process there, whatever its number is where reservd runs: it may be another in this pid
/// name space.
fn tag_self(files: &dyn Files, queue: &NodePath) -> Result<(), Error> {
    tag_as(files, queue, "process self", ("self", "self"))
}

/// `folder` has its lists; `word` is what `members` is told.
fn tag_as(
    files: &dyn Files,
    queue: &NodePath,
    who: &str,
    (folder, word): (&str, &str),
) -> Result<(), Error> {
    // The lists first: what the process starts from here on is in the reservation, and nothing is
    // missed.
    for (list, called) in [("default", "default"), ("cdefault", "childdefault")] {
        files
            .write(&format!("{folder}/{list}"), queue.as_str())
            .map_err(|e| of_process(files, queue, who, &format!("write {folder} {called}"), &e))?;
    }
    if !takes_threads(files, queue.resource()) {
        return Ok(());
    }
    match files.write(&queue.file("members"), word) {
        // A resource whose queues take descriptors: the lists are all.
        Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
        done => done.map_err(|e| of_process(files, queue, who, &writing(queue, "members"), &e)),
    }
}

/// Tag what a descriptor of a process stands for.
fn tag_descriptor(files: &dyn Files, queue: &NodePath, pid: i32, fd: u32) -> Result<(), Error> {
    files.write(&format!("proc/{pid}/fds"), &format!("{fd} {}", queue.as_str())).map_err(|e| {
        of_process(
            files,
            queue,
            &format!("descriptor {pid}/{fd}"),
            &format!("write proc/{pid} fds"),
            &e,
        )
    })
}

/// Put one thread under a queue.
pub(crate) fn tag_thread(files: &dyn Files, queue: &NodePath, tid: i32) -> Result<(), Error> {
    files.write(&queue.file("members"), &format!("tid {tid}")).map_err(|e| {
        of_process(files, queue, &format!("thread {tid}"), &writing(queue, "members"), &e)
    })
}

fn of_process(
    files: &dyn Files,
    queue: &NodePath,
    who: &str,
    operation: &str,
    e: &std::io::Error,
) -> Error {
    match e.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => {
            let mut error = Error::new(Kind::NotFound, format!("there is no {who}"));
            if let Some((reason, _)) =
                files.refusal(operation).filter(|(reason, _)| reason.contains("is a thread of"))
            {
                error = Error::new(Kind::NotFound, reason).hint("--thread takes single threads");
            }
            error.errno = e.raw_os_error();
            error
        }
        // The same errno says that answers about stuck processes are waited for, in the daemon's
        // words.
        Some(libc::EAGAIN)
            if !files.refusal(operation).is_some_and(|(why, _)| why.contains("waited for")) =>
        {
            Error::refused(format!("'{queue}' has as many members as it may have"))
                .hint(format!("raise its limit: reserv set {queue} limit=N (0 is none)"))
        }
        Some(libc::EBUSY) => {
            Error::refused(format!("'{queue}' is being drained and takes no new members"))
        }
        _ => explain(files, queue, &format!("{who} cannot be tagged"), operation, e),
    }
}

/// The command `tag`. Everything that can be tagged is; the first failure is reported at the end.
pub(crate) fn tag(files: &dyn Files, args: &Tag) -> Result<(NodePath, usize), Error> {
    let queue = queue(files, &args.path)?;
    let mut done = 0;
    let mut failed: Option<Error> = None;
    let mut note = |result: Result<(), Error>| match result {
        Ok(()) => done += 1,
        Err(error) => match &mut failed {
            None => failed = Some(error),
            Some(first) => first.add(&error.message),
        },
    };
    for tagged in &args.pids {
        note(match tagged.fd {
            None => tag_process(files, &queue, tagged.pid),
            Some(fd) => tag_descriptor(files, &queue, tagged.pid, fd),
        });
    }
    for tid in &args.thread {
        note(tag_thread(files, &queue, *tid));
    }
    failed.map_or(Ok((queue, done)), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Tagged;
    use crate::fs::fake::Fake;
    use std::fs;

    fn with_process(pid: i32) -> Fake {
        let fake = Fake::new();
        fs::create_dir_all(fake.inner_path(&format!("proc/{pid}"))).unwrap();
        for list in ["default", "cdefault"] {
            fake.put(&format!("proc/{pid}/{list}"), "cpu/web");
        }
        fake
    }

    #[test]
    fn a_process_gets_both_lists_and_the_tag() {
        let fake = with_process(42);
        let args =
            Tag { path: "q0".into(), pids: vec![Tagged { pid: 42, fd: None }], thread: vec![] };
        assert_eq!(tag(&fake, &args).unwrap().1, 1);
        assert_eq!(fake.read("proc/42/default").unwrap(), "cpu/q0\n");
        assert_eq!(fake.read("proc/42/cdefault").unwrap(), "cpu/q0\n");
        assert_eq!(fake.read("cpu/q0/members").unwrap(), "42\n");
    }

    #[test]
    fn what_a_resource_is_stands_in_the_status() {
        let fake = Fake::new();
        assert_eq!(kind(&fake, "vda"), None);
        fake.put("status", "cpu.kind cpu\nvda.kind disk\nvda0.kind link");
        assert_eq!(kind(&fake, "vda").as_deref(), Some("disk"));
        assert_eq!(kind(&fake, "vda0").as_deref(), Some("link"));
        assert_eq!(kind(&fake, "vd"), None);
    }

    #[test]
    fn failures_name_the_process_or_the_node() {
        let fake = with_process(42);
        fake.node("cpu/web", true);
        fake.node("cpu/web/site1", false);
        for (path, pid, what, kind) in [
            ("q0", 43, "no process 43", Kind::NotFound),
            ("web", 42, "only queues have members", Kind::Refused),
            ("site1", 42, "there is 'web/site1'", Kind::NotFound),
        ] {
            let error = tag(
                &fake,
                &Tag { path: path.into(), pids: vec![Tagged { pid, fd: None }], thread: vec![] },
            )
            .unwrap_err();
            assert_eq!(error.kind, kind);
            assert!(error.to_string().contains(what), "{error}");
        }
        fake.refuse.borrow_mut().push(("cpu/q0/members".into(), libc::EAGAIN));
        let error =
            tag(&fake, &Tag { path: "q0".into(), pids: vec![], thread: vec![7] }).unwrap_err();
        assert!(error.to_string().contains("as many members"), "{error}");
    }
}
