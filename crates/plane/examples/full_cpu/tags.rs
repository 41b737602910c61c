// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who is tagged with what, and what chcpures() costs.

use std::error::Error;
use std::process::{Command, Stdio};
use std::time::Instant;
use std::{env, fs, process, thread};

use reserv_facts::call::fcntl::{CHCPURES, GETCPURES};
use reserv_model::{DeleteMode, NodeId, Op};
use reserv_plane::cpu::full::Full;
use reserv_plane::{List, Lists as _, Plane as _, PlaneError, Target, Threads as _};

use crate::setup::{Answer, Setup, check};

/// Who is tagged with what, over threads, processes and programs.
pub(crate) fn run_inherit() -> Answer {
    let mut s = Setup::new()?;
    let (a, b) = (s.queue(NodeId::ROOT, 100)?, s.queue(NodeId::ROOT, 100)?);
    let me = i32::try_from(process::id())?;
    let plane = &mut s.plane.0;
    check(plane.tag_of(me)? == NodeId::Q0, "an untagged thread is in q0");
    let lists = plane.defaults(me)?;
    check(
        (lists.default, lists.child) == (NodeId::Q0, NodeId::Q0),
        "and so are its process' lists",
    );
    let child_tag = |plane: &Full| -> Result<(NodeId, NodeId), Box<dyn Error>> {
        let mut child = Command::new("sleep").arg("100").spawn()?;
        let pid = i32::try_from(child.id())?;
        let got = (plane.tag_of(pid)?, plane.defaults(pid)?.child);
        child.kill()?;
        child.wait()?;
        Ok(got)
    };
    plane.tag(Target::Thread(me), a)?;
    check(plane.tag_of(me)? == a, "a thread is tagged");
    let (send, receive) = std::sync::mpsc::channel::<()>();
    let (tell, told) = std::sync::mpsc::channel();
    let other = thread::spawn(move || {
        // SAFETY: no argument, no memory.
        let _ = tell.send(unsafe { libc::gettid() });
        let _ = receive.recv();
    });
    let tid = told.recv()?;
    check(plane.tag_of(tid)? == a, "a new thread has its creator's tag");
    check(plane.members(a)?.iter().any(|m| m.tid == tid && m.tgid == me), "and is a member");
    let members = plane.members(a)?;
    check(members.len() == 2, &format!("beside its creator, and nobody else: {members:?}"));
    drop(send);
    let _ = other.join();
    check(
        child_tag(plane)? == (NodeId::Q0, NodeId::Q0),
        "a new process does not: its parent's child list is q0",
    );
    plane.set_default(me, List::Child, b)?;
    check(
        child_tag(plane)? == (b, b),
        "with a child list, a new process starts there, exec included, and its children will",
    );
    plane.set_default(me, List::Default, a)?;
    let lists = plane.defaults(me)?;
    check((lists.default, lists.child) == (a, b), "the lists read as set");
    // A grandchild, through a shell.
    let mut shell = Command::new("sh")
        .args(["-c", "sleep 100 & echo $!; wait"])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    if let Some(out) = shell.stdout.take() {
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line)?;
    }
    let grandchild: i32 = line.trim().parse()?;
    check(plane.tag_of(grandchild)? == b, "a grandchild too");
    // A thread that is not the first execs: the process goes on under its number with its tag.
    check(
        plane.tag(Target::Process(i32::try_from(shell.id())?), a)? == 1,
        "a process is tagged by its threads",
    );
    check(plane.tag_of(grandchild)? == b, "which does not touch its children");
    shell.kill()?;
    shell.wait()?;
    // SAFETY: a signal to a process that we know.
    unsafe { libc::kill(grandchild, libc::SIGKILL) };
    check(
        matches!(plane.tag_of(0x3fff_fff0), Err(PlaneError::NoProcess(_))),
        "an unknown thread is an error",
    );
    check(
        plane.tag(Target::Thread(me), NodeId { index: 99, generation: 1 }).is_err(),
        "an unknown queue is an error",
    );
    check(plane.tag(Target::Thread(me), NodeId::ROOT).is_err(), "a scheduler node is not a queue");
    check(plane.set_default(me, List::Child, NodeId::ROOT).is_err(), "nor is it for a list");
    // A limit: forks fail with EAGAIN, and nothing else is lost.
    s.apply(vec![Op::SetLimit { id: b, members_max: 2, bytes_max: 0 }])?;
    let mut kept = Vec::new();
    let mut failed = None;
    for _ in 0..4 {
        match Command::new("sleep").arg("100").spawn() {
            Ok(child) => kept.push(child),
            Err(error) => failed = Some(error.raw_os_error()),
        }
    }
    check(
        kept.len() <= 2 && failed == Some(Some(libc::EAGAIN)),
        &format!("a full queue refuses new processes: {} {failed:?}", kept.len()),
    );
    for mut child in kept {
        child.kill()?;
        child.wait()?;
    }
    let counters = s.plane.0.counters();
    check(counters.refused >= 1, &format!("which is counted: {}", counters.refused));
    check(
        counters.sections > counters.steps,
        &format!("as the lock's sections are: {}", counters.sections),
    );
    s.apply(vec![Op::SetLimit { id: b, members_max: 0, bytes_max: 0 }])?;
    check(Command::new("true").status()?.success(), "and takes them again without the limit");
    draining(&mut s, b)?;
    // The queue of a child list goes away: children are in q0 then.
    let b = s.queue(NodeId::ROOT, 100)?;
    s.plane.0.set_default(me, List::Child, b)?;
    check(child_tag(&s.plane.0)?.0 == b, "a list names a queue");
    s.apply(vec![Op::Delete { id: b, mode: DeleteMode::Flush }])?;
    check(child_tag(&s.plane.0)?.0 == NodeId::Q0, "a list with a queue that is gone means q0");
    s.health("still ours")
}

/// A queue that drains takes nobody any more, and nobody fails to be born for it. The child list
/// names `b`, which goes.
fn draining(s: &mut Setup, b: NodeId) -> Answer {
    let me = i32::try_from(process::id())?;
    let mut member = Command::new("sleep").arg("100").spawn()?;
    s.apply(vec![Op::Delete { id: b, mode: DeleteMode::Drain }])?;
    let mut child = Command::new("sleep").arg("100").spawn()?;
    let plane = &mut s.plane.0;
    check(plane.tag_of(i32::try_from(member.id())?)? == b, "who is in a queue that drains stays");
    check(
        plane.tag_of(i32::try_from(child.id())?)? == NodeId::Q0,
        "a child whose list names it begins in q0",
    );
    check(plane.members(b)?.len() == 1, "and is no member");
    check(
        plane.tag(Target::Process(i32::try_from(child.id())?), b).is_err(),
        "nobody can be tagged with it",
    );
    for one in [&mut member, &mut child] {
        one.kill()?;
        one.wait()?;
    }
    check(plane.collect_drained()? == [b], "it goes with its last member");
    let a = s.queue(NodeId::ROOT, 100)?;
    s.plane.0.tag(Target::Thread(me), a)?;
    s.apply(vec![Op::Delete { id: a, mode: DeleteMode::Drain }])?;
    let plane = &mut s.plane.0;
    let (send, receive) = std::sync::mpsc::channel::<()>();
    let (tell, told) = std::sync::mpsc::channel();
    let other = thread::spawn(move || {
        // SAFETY: no argument, no memory.
        let _ = tell.send(unsafe { libc::gettid() });
        let _ = receive.recv();
    });
    let tid = told.recv()?;
    check((plane.tag_of(me)?, plane.tag_of(tid)?) == (a, NodeId::Q0), "which begins in q0");
    drop(send);
    let _ = other.join();
    plane.tag(Target::Thread(me), NodeId::Q0)?;
    check(plane.collect_drained()? == [a], "and does not keep the queue");
    Ok(())
}

/// `chcpures DIR DIR [MOST]`: two queue directories of a mounted /reserv. What they answer is
/// checked by the test that starts this; here is what a change costs beside a null system call:
/// MOST of them, else 2.
pub(crate) fn run_chcpures() -> Answer {
    let open = |n| -> Result<fs::File, Box<dyn Error>> {
        Ok(fs::File::open(env::args().nth(n).ok_or("two directories")?)?)
    };
    let (a, b) = (open(2)?, open(3)?);
    let most: f64 = env::args().nth(4).map_or(Ok(2.0), |word| word.parse())?;
    let (a, b) = (std::os::fd::AsRawFd::as_raw_fd(&a), std::os::fd::AsRawFd::as_raw_fd(&b));
    // The system calls themselves, all through the same function of libc: its fcntl() has a cost of
    // its own. SAFETY: the option takes a descriptor number and no memory.
    let change = |fd: i32| unsafe { libc::syscall(libc::SYS_fcntl, fd, CHCPURES, 0) };
    // SAFETY: no memory.
    let mine = || unsafe { libc::syscall(libc::SYS_fcntl, a, GETCPURES, 0) };
    check(change(a) == 1, "chcpures answers 1");
    let first = mine();
    check(change(b) == 1 && mine() != first, "and the thread is in the other queue");
    let n = 20_000_u32;
    let time = |f: &dyn Fn(u32)| {
        let start = Instant::now();
        for i in 0..n {
            f(i);
        }
        start.elapsed().as_nanos() as f64 / f64::from(n)
    };
    let mut best = [f64::MAX; 4];
    for _ in 0..5 {
        best[0] = best[0].min(time(&|_| {
            // SAFETY: a system call without arguments.
            let _ = unsafe { libc::syscall(libc::SYS_getppid) };
        }));
        best[1] = best[1].min(time(&|_| assert_eq!(change(a), 1)));
        best[2] = best[2].min(time(&|i| assert_eq!(change(if i % 2 == 0 { a } else { b }), 1)));
        best[3] = best[3].min(time(&|_| {
            // SAFETY: F_GETFD takes nothing.
            let _ = unsafe { libc::syscall(libc::SYS_fcntl, a, libc::F_GETFD, 0) };
        }));
    }
    let [null, same, changed, another] = best;
    println!(
        "# getppid {null:.0} ns, another fcntl {:.2}, chcpures to the same queue {:.2}, to another {:.2} times that",
        another / null,
        same / null,
        changed / null
    );
    check(
        // Instruction time differs by up to 2 % between boots; the figure stands in the output.
        changed / null <= most * 1.02,
        &format!("chcpures costs at most {most} null system calls, to 2 %: {:.2}", changed / null),
    );
    Ok(())
}
