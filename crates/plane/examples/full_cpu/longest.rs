// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long the longest section of the tree's lock is, interrupts being off, in a tree of all its
//! nodes and with thousands of threads. `RESERV_TIMED` must stand in the environment.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;

use reserv_model::{Class, Kind, NodeId, Op, Policy, TuneKey};
use reserv_plane::{Plane as _, Target, Threads as _};

use crate::life::{detached, eject};
use crate::setup::{Answer, Setup, check, weight};

/// 200 us of a CPU of 3 GHz that does an instruction a cycle; here one takes 1 ns.
pub(crate) const MOST_NS: u64 = 600_000;
const SCHEDULERS: u32 = 14;
const QUEUES: u32 = 1000;
/// Unless the second word of the command says how many.
const THREADS: usize = 3000;
/// Threads that want the CPU all the time, each in a queue of its own.
const BUSY: usize = 300;
/// As many edits as fit into a batch.
pub(crate) const EDITS: usize = 128;

/// As many moves between the ends of the longest paths as fit into one.
const MOVES: usize = 28;

/// The longest section since this was last asked, in instructions, and the line where it ended.
pub(crate) fn section(s: &Setup) -> (u64, u32) {
    let counters = s.plane.0.counters();
    (counters.section_ns, counters.section_line)
}

/// It is no longer than it may be.
pub(crate) fn within(s: &Setup, what: &str) {
    let most = MOST_NS;
    let (longest, line) = section(s);
    println!("# {what}: the longest section since: {longest} instructions, ended at line {line}");
    check(
        longest > 0 && longest <= most,
        &format!("{what}: no section is longer than {most} instructions"),
    );
}

/// Policies of a scheduler whose queues are many, while threads wait in some; then of many
/// schedulers at once.
fn busy(s: &mut Setup, all: NodeId, queues: &[NodeId]) -> Answer {
    let over = Arc::new(AtomicBool::new(false));
    let (told, tids) = mpsc::channel();
    let (mut threads, mut busy) = (Vec::new(), Vec::new());
    for _ in 0..BUSY {
        let (over, told) = (Arc::clone(&over), told.clone());
        let spin = move || {
            // SAFETY: no preconditions.
            let _ = told.send(unsafe { libc::gettid() });
            while !over.load(Ordering::Relaxed) {
                crate::spin::straight_line();
            }
        };
        threads.push(thread::Builder::new().stack_size(64 << 10).spawn(spin)?);
        busy.push(tids.recv()?);
        s.plane.0.tag(Target::Thread(busy[busy.len() - 1]), queues[threads.len() * 40])?;
    }
    within(s, "busy threads begun");
    for policy in [Policy::Sfq, Policy::Mtrls, Policy::Prio, Policy::Wrr, Policy::Eevdf] {
        s.apply(vec![Op::SetPolicy { id: all, policy }])?;
        within(s, &format!("{policy:?} over {} queues", queues.len()));
    }
    for tid in busy {
        s.plane.0.tag(Target::Thread(tid), queues[0])?;
    }
    within(s, &format!("{BUSY} busy threads in one queue"));
    s.apply(vec![Op::SetClass { id: queues[0], class: Class::Sfq }])?;
    within(s, "whose class changes");
    over.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().map_err(|_| "a thread")?;
    }
    within(s, "busy threads ended");
    Ok(())
}

/// What threads wait for, until it is open.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn wait(&self) {
        let (lock, opened) = &*self.0;
        let Ok(mut open) = lock.lock() else { return };
        while !*open {
            let Ok(next) = opened.wait(open) else { return };
            open = next;
        }
    }

    fn open(&self) -> Answer {
        *self.0.0.lock().map_err(|_| "poisoned")? = true;
        self.0.1.notify_all();
        Ok(())
    }
}

/// A thread in each of 2000 queues at the end of the longest path that there can be, each place of
/// it being one of a thousand; all are woken at once.
fn deep(s: &mut Setup, schedulers: &[NodeId], queues: &[NodeId]) -> Answer {
    for pair in schedulers.windows(2) {
        s.apply(vec![Op::Move { id: pair[1], parent: pair[0] }])?;
    }
    within(s, "schedulers of a thousand queues, one below the other");
    let deepest = schedulers[schedulers.len() - 1];
    let from = queues.len() - QUEUES as usize * 2;
    let below: Vec<NodeId> = queues[from..].to_vec();
    for some in below.chunks(MOVES) {
        s.apply(some.iter().map(|id| Op::Move { id: *id, parent: deepest }).collect())?;
    }
    let over = Gate::default();
    let (told, tids) = mpsc::channel();
    let mut threads = Vec::new();
    for queue in &below {
        let (over, told) = (over.clone(), told.clone());
        let wait = move || {
            // SAFETY: no preconditions.
            let _ = told.send(unsafe { libc::gettid() });
            over.wait();
        };
        threads.push(thread::Builder::new().stack_size(64 << 10).spawn(wait)?);
        s.plane.0.tag(Target::Thread(tids.recv()?), *queue)?;
    }
    within(s, "threads begun there");
    over.open()?;
    for thread in threads {
        thread.join().map_err(|_| "a thread")?;
    }
    within(s, "2000 threads in as many queues woken there");
    for id in schedulers.iter().rev() {
        s.apply(vec![Op::Move { id: *id, parent: NodeId::ROOT }])?;
    }
    within(s, "schedulers back below the root");
    Ok(())
}

/// All CPUs but the first go, if the third word of the command is "one": the tree has had them,
/// and is served as one of several until the scheduler is thrown out. Instructions of other CPUs
/// count in a section, for there is one clock.
pub(crate) fn others_go() -> Answer {
    match std::env::args().nth(3).as_deref() {
        None => return Ok(()),
        Some("one") => {}
        Some(word) => return Err(format!("{word}: \"one\" is all that there can be").into()),
    }
    let mut gone = 0;
    for cpu in 1.. {
        let file = format!("/sys/devices/system/cpu/cpu{cpu}/online");
        if !Path::new(&file).exists() {
            break;
        }
        fs::write(file, "0")?;
        gone += 1;
    }
    check(gone > 0, &format!("{gone} CPUs go"));
    Ok(())
}

/// How many threads wait in one queue.
pub(crate) fn many() -> Result<usize, std::num::ParseIntError> {
    std::env::args().nth(2).map_or(Ok(THREADS), |word| word.parse())
}

pub(crate) fn run() -> Answer {
    let mut s = Setup::new()?;
    others_go()?;
    within(&s, "after the start");
    let (mut schedulers, mut queues) = (Vec::new(), Vec::new());
    for _ in 0..SCHEDULERS {
        let scheduler = s.make(NodeId::ROOT, Kind::Scheduler(Policy::Sfq), 100)?;
        schedulers.push(scheduler);
        for chunk in 0..QUEUES / 50 {
            let ids: Vec<NodeId> =
                (0..50).map(|i| NodeId { index: s.next + i, generation: 1 }).collect();
            s.next += 50;
            let make = |id: &NodeId| Op::Create {
                id: *id,
                parent: scheduler,
                kind: Kind::Queue(Class::Ts),
            };
            let weigh = |id: &NodeId| Op::Reweight { id: *id, weight: weight(1 + chunk) };
            s.apply(ids.iter().map(make).chain(ids.iter().map(weigh)).collect())?;
            queues.extend(ids);
        }
    }
    within(&s, &format!("{} nodes made, fifty a batch", s.next));
    s.plane.0.sample()?;
    within(&s, "all nodes sampled");

    let over = Gate::default();
    let (mut threads, many) = (Vec::new(), many()?);
    for _ in 0..many {
        let over = over.clone();
        threads.push(thread::Builder::new().stack_size(64 << 10).spawn(move || over.wait())?);
    }
    let own = Target::Process(i32::try_from(std::process::id())?);
    let crowd = queues[0];
    s.plane.0.tag(own, crowd)?;
    let members = s.plane.0.members(crowd)?.len();
    check(members > many, &format!("{members} threads in one queue"));
    within(&s, "threads made, tagged and listed");
    s.apply(vec![
        Op::SetClass { id: crowd, class: Class::Rr },
        Op::SetClass { id: crowd, class: Class::Ts },
    ])?;
    within(&s, "their queue's class changed");

    let some = &queues[..EDITS];
    let tuned = |id: &NodeId| Op::Tune { id: *id, key: TuneKey::Quantum, value: 5_000_000 };
    s.apply(some.iter().map(tuned).collect())?;
    within(&s, "quanta of 128 queues, one batch");
    s.apply(schedulers.iter().map(tuned).collect())?;
    within(&s, "quanta of all schedulers, one batch");
    s.apply(some.iter().map(|id| Op::Reweight { id: *id, weight: weight(7) }).collect())?;
    within(&s, "weights of 128 queues, one batch");
    let to = schedulers[1];
    s.apply(some.iter().map(|id| Op::Move { id: *id, parent: to }).collect())?;
    within(&s, "128 queues moved, one batch");

    over.open()?;
    s.plane.0.tag(own, NodeId::Q0)?;
    for thread in threads {
        thread.join().map_err(|_| "a thread")?;
    }
    within(&s, "all threads woken and ended");
    deep(&mut s, &schedulers, &queues)?;
    s.apply(vec![Op::Move { id: schedulers[2], parent: schedulers[3] }])?;
    within(&s, "a scheduler with a thousand queues moved");
    let below = schedulers[3];
    for some in schedulers[4..].chunks(3) {
        s.apply(some.iter().map(|id| Op::Move { id: *id, parent: below }).collect())?;
    }
    within(&s, "ten schedulers with a thousand queues each moved, three a batch");
    eject()?;
    detached(&mut s.plane.0)?;
    s.plane.0.revive()?;
    within(&s, "the scheduler came again");
    s.apply(vec![Op::SetPolicy { id: to, policy: Policy::Eevdf }])?;
    within(&s, "a policy changed over a thousand queues");
    for some in queues.chunks(EDITS) {
        s.apply(some.iter().map(|id| Op::Move { id: *id, parent: to }).collect())?;
    }
    within(&s, "all queues moved below one scheduler");
    busy(&mut s, to, &queues)?;
    s.health("after that")
}
