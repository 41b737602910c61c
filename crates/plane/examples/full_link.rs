// SPDX-License-Identifier: MIT OR Apache-2.0
//! The full driver of a link against a real kernel: how long the longest section of its tree's lock
//! is, interrupts being off, in a tree of all its nodes with a packet in each queue.
//! tests/guest/net_longest runs it in the guest, with `RESERV_TIMED` in the environment. Prints
//! `ok - …` and `not ok - …`, and exits with 1 when anything was not.

use std::cell::Cell;
use std::error::Error;
use std::net::UdpSocket;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::Path;
use std::process::{self, Command};
use std::thread;
use std::time::Duration;

use reserv_model::{
    Batch, Class, DeleteMode, Driver, Kind, NodeId, Op, Policy, Rate, Source, Weight,
};
use reserv_plane::net::full::{self, Link};
use reserv_plane::{Descriptors as _, Health, Plane as _, PlaneError};

type Answer = Result<(), Box<dyn Error>>;

/// 200 us of a CPU of 3 GHz that does an instruction a cycle; here one takes 1 ns.
const MOST_NS: u64 = 600_000;
const SCHEDULERS: u32 = 14;
const QUEUES: u32 = 1000;
/// As many edits as fit into a batch.
const EDITS: usize = 128;
/// As many moves between the ends of the longest paths as the CPU's tree takes in one.
const MOVES: usize = 28;
/// As many deletions of queues with packets there as one batch may have.
const DELETIONS: usize = 9;
/// As many weights there as one batch may have.
const WEIGHTS: usize = 21;
/// Connections with packets in one queue of class drr.
const FLOWS: u16 = 4000;

const DEV: &str = "rsv0";
const PEER: &str = "10.77.0.2";

thread_local! {
    static FAILED: Cell<u32> = const { Cell::new(0) };
}

fn check(good: bool, what: &str) {
    println!("{} - {what}", if good { "ok" } else { "not ok" });
    if !good {
        FAILED.with(|f| f.set(f.get() + 1));
    }
}

fn sh(line: &str) -> Answer {
    let mut words = line.split_whitespace();
    let status = Command::new(words.next().ok_or("no command")?).args(words).status()?;
    if status.success() { Ok(()) } else { Err(format!("{line}: {status}").into()) }
}

/// What is loaded is taken out again, also when a check gives up with an error.
struct Guard(Link);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Err(error) = self.0.stop() {
            println!("not ok - stop: {error}");
        }
    }
}

struct Setup {
    plane: Guard,
    seq: u64,
    next: u32,
    socket: UdpSocket,
    /// The longest of all sections.
    longest: u64,
}

impl Setup {
    fn new() -> Result<Self, Box<dyn Error>> {
        let source = Source::Link {
            interface: DEV.into(),
            rate: Some(Rate::MIN),
            driver: Driver::Full,
            receive: None,
            receive_in: None,
        };
        let plane = Guard(full::start(Path::new("/run/reserv-link"), 9, &source)?);
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        let room: libc::c_int = 1 << 28;
        // SAFETY: the option's value is an int, of which the size is given.
        let set = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_SNDBUFFORCE,
                (&raw const room).cast(),
                4,
            )
        };
        if set != 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        Ok(Self { plane, seq: 0, next: 2, socket, longest: 0 })
    }

    fn apply(&mut self, ops: Vec<Op>) -> Result<(), PlaneError> {
        self.seq += 1;
        self.plane.0.apply(&Batch { seq: self.seq, ops }).map(drop)
    }

    /// So many queues of weight 1 + `more`.
    fn queues(
        &mut self,
        parent: NodeId,
        class: Class,
        count: u32,
        more: u32,
    ) -> Result<Vec<NodeId>, PlaneError> {
        let ids: Vec<NodeId> =
            (0..count).map(|i| NodeId { index: self.next + i, generation: 1 }).collect();
        self.next += count;
        let make = |id: &NodeId| Op::Create { id: *id, parent, kind: Kind::Queue(class) };
        let weigh = |id: &NodeId| Op::Reweight { id: *id, weight: weight(1 + more) };
        self.apply(ids.iter().map(make).chain(ids.iter().map(weigh)).collect())?;
        Ok(ids)
    }

    /// A packet of `bytes` waits in each of them.
    fn send(&mut self, queues: &[NodeId], bytes: usize) -> Answer {
        for queue in queues {
            self.plane.0.descriptor_tag(*queue)?.set(self.socket.as_fd())?;
            self.socket.send_to(&vec![0; bytes], (PEER, 9))?;
        }
        Ok(())
    }

    /// Packets that wait in one.
    fn waiting(&self, queue: NodeId) -> Result<u32, PlaneError> {
        Ok(self.plane.0.sample_one(queue)?.queued)
    }

    /// No section since this was last asked is longer than it may be.
    fn within(&mut self, what: &str) -> Answer {
        let (longest, line) = self.plane.0.section()?;
        println!(
            "# {what}: the longest section since: {longest} instructions, ended at line {line}"
        );
        check(
            longest > 0 && longest <= MOST_NS,
            &format!("{what}: no section is longer than {MOST_NS} instructions"),
        );
        self.longest = self.longest.max(longest);
        Ok(())
    }

    fn each(&mut self, what: &str, ops: impl Iterator<Item = Op>) -> Answer {
        self.apply(ops.collect())?;
        self.within(what)
    }
}

fn weight(w: u32) -> Weight {
    Weight::from_milli(w * 1000).unwrap_or(Weight::DEFAULT)
}

const POLICIES: [Policy; 4] = [Policy::Wf2qPlus, Policy::Sfq, Policy::Wf2q, Policy::Sfq];

/// A queue of many connections is one of none, and goes.
fn flows(s: &mut Setup) -> Answer {
    let queue = s.queues(NodeId::ROOT, Class::Drr, 1, 1)?[0];
    let packets = u32::from(FLOWS) * 2;
    s.apply(vec![Op::SetLimit { id: queue, members_max: packets, bytes_max: 4 << 20 }])?;
    s.plane.0.descriptor_tag(queue)?.set(s.socket.as_fd())?;
    let fill = |s: &mut Setup| -> Answer {
        for port in 0..FLOWS {
            s.socket.send_to(&[0; 100], (PEER, 1000 + port))?;
        }
        Ok(())
    };
    fill(s)?;
    s.within("packets of many connections came into one queue")?;
    let class = |class| std::iter::once(Op::SetClass { id: queue, class });
    s.each("whose class becomes fifo", class(Class::Fifo))?;
    check(s.waiting(queue)? == u32::from(FLOWS), "none of them is lost");
    s.each("and drr again", class(Class::Drr))?;
    for port in 0..FLOWS {
        s.socket.send_to(&[0; 100], (PEER, 1000 + port))?;
    }
    s.within("packets of the same connections")?;
    s.plane.0.descriptor_tag(NodeId::Q0)?.set(s.socket.as_fd())?;
    let before = s.waiting(NodeId::Q0)?;
    let gone = Op::Delete { id: queue, mode: DeleteMode::Refuse };
    s.each("the queue is deleted", std::iter::once(gone))?;
    let came = s.waiting(NodeId::Q0)? - before;
    check(came == packets, &format!("{came} of {packets} packets are q0's"));
    Ok(())
}

/// Queues at the ends of the longest paths, each place of which is one of a thousand, below wf2q.
fn deep(s: &mut Setup, schedulers: &[NodeId], queues: &[NodeId]) -> Answer {
    let policy = |id: &NodeId| Op::SetPolicy { id: *id, policy: Policy::Wf2q };
    s.each("policy wf2q of all schedulers, one batch", schedulers.iter().map(policy))?;
    for pair in schedulers.windows(2) {
        s.apply(vec![Op::Move { id: pair[1], parent: pair[0] }])?;
    }
    s.within("schedulers of a thousand queues, one below the other")?;
    let deepest = schedulers[schedulers.len() - 1];
    let below = &queues[..2 * EDITS];
    s.send(below, 100)?;
    let down = |id: &NodeId| Op::Move { id: *id, parent: deepest };
    let (single, rest) = below.split_at(EDITS);
    for id in single {
        s.apply(vec![down(id)])?;
    }
    s.within("queues with packets moved to the lowest one, one a batch")?;
    for some in rest.chunks(MOVES) {
        s.apply(some.iter().map(down).collect())?;
    }
    s.within("28 a batch")?;
    s.send(below, 200)?;
    s.within("packets that come there")?;
    let weigh = |id: &NodeId| Op::Reweight { id: *id, weight: weight(9) };
    let (some, more) = below[..EDITS].split_at(WEIGHTS);
    s.each("weights of 21 queues there, one batch", some.iter().map(weigh))?;
    let answer = s.apply(more[..=WEIGHTS].iter().map(weigh).collect());
    check(matches!(answer, Err(PlaneError::TooMuch(_))), &format!("one more at once: {answer:?}"));
    let gone = |id: &NodeId| Op::Delete { id: *id, mode: DeleteMode::Refuse };
    let (some, more) = below.split_at(DELETIONS);
    s.each("9 queues there with packets deleted, one batch", some.iter().map(gone))?;
    let (some, more) = more.split_at(DELETIONS + 1);
    let answer = s.apply(some.iter().map(gone).collect());
    check(matches!(answer, Err(PlaneError::TooMuch(_))), &format!("one more at once: {answer:?}"));
    for id in some {
        check(s.waiting(*id)? == 2, "and it has its packets still");
    }
    s.within("while that was refused")?;
    let (some, more) = more.split_at(DELETIONS);
    let wrong = || Op::Reweight { id: NodeId { index: 1, generation: 77 }, weight: weight(1) };
    let answer = s.apply(some.iter().map(gone).chain([wrong()]).collect());
    check(answer.is_err(), &format!("9 deletions and what is wrong: {answer:?}"));
    s.within("9 deleted and taken back")?;
    check(s.waiting(some[0])? == 2, "with their packets");
    let (first, rest) = more[..=WEIGHTS].split_at(1);
    let weigh = |id: &NodeId| Op::Reweight { id: *id, weight: weight(11) };
    let both = || first.iter().map(gone).chain(rest.iter().map(weigh));
    let mut refused: Vec<Op> = both().collect();
    refused[WEIGHTS] = wrong();
    let answer = s.apply(refused);
    check(answer.is_err(), &format!("one deletion, 20 weights and what is wrong: {answer:?}"));
    s.within("one deleted beside weights, and taken back")?;
    check(s.waiting(first[0])? == 2, "with its packets");
    let before = s.waiting(NodeId::Q0)?;
    s.each("one deleted, and weights of 21 beside it", both())?;
    let came = s.waiting(NodeId::Q0)? - before;
    check(came == 2, &format!("{came} packets are q0's then"));
    Ok(())
}

fn edits(s: &mut Setup) -> Answer {
    s.within("after the start")?;
    let (mut schedulers, mut queues) = (Vec::new(), Vec::new());
    for _ in 0..SCHEDULERS {
        let id = NodeId { index: s.next, generation: 1 };
        s.next += 1;
        let kind = Kind::Scheduler(Policy::Sfq);
        s.apply(vec![Op::Create { id, parent: NodeId::ROOT, kind }])?;
        schedulers.push(id);
        for more in 0..QUEUES / 50 {
            queues.extend(s.queues(id, Class::Fifo, 50, more)?);
        }
    }
    s.within(&format!("{} nodes made, fifty a batch", s.next))?;
    s.plane.0.sample()?;
    s.within("all nodes sampled")?;
    s.send(&queues, 100)?;
    s.within("a packet came into each queue")?;
    let full = s.waiting(queues[queues.len() - 1])?;
    check(full == 1, &format!("{full} packet waits in the last one"));
    let some = queues[..EDITS].to_vec();
    let weigh = |id: &NodeId| Op::Reweight { id: *id, weight: weight(7) };
    s.each("weights of 128 queues, one batch", some.iter().map(weigh))?;
    for class in [Class::Drr, Class::Fifo] {
        let set = |id: &NodeId| Op::SetClass { id: *id, class };
        s.each(&format!("class {class} of 128 queues, one batch"), some.iter().map(set))?;
    }
    let to = schedulers[1];
    s.each("128 queues moved, one batch", some.iter().map(|id| Op::Move { id: *id, parent: to }))?;
    for policy in POLICIES {
        let set = Op::SetPolicy { id: to, policy };
        s.each(&format!("policy {policy} of a thousand queues"), std::iter::once(set))?;
    }
    flows(s)?;
    for some in queues.chunks(EDITS) {
        s.apply(some.iter().map(|id| Op::Move { id: *id, parent: to }).collect())?;
    }
    s.within("all queues moved below one scheduler")?;
    for policy in POLICIES {
        let set = Op::SetPolicy { id: to, policy };
        s.each(&format!("policy {policy} of {} queues", queues.len()), std::iter::once(set))?;
    }
    s.plane.0.remake()?;
    s.within("the tree was made anew")?;
    s.plane.0.set_rate(None)?;
    // The next packet has the device ask.
    s.send(&queues[..1], 100)?;
    let last = queues[queues.len() - 1];
    for _ in 0..1000 {
        if s.waiting(last)? == 0 {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    check(s.waiting(last)? == 0, "without a rate all packets leave");
    s.within("while they do")?;
    s.plane.0.set_rate(Some(Rate::MIN))?;
    s.send(&queues, 100)?;
    sh(&format!("ip link set {DEV} down"))?;
    s.within("the interface went down")?;
    check(s.waiting(queues[queues.len() - 1])? == 0, "none waits");
    sh(&format!("ip link set {DEV} up"))?;
    sh(&format!("ip neigh replace {PEER} lladdr 02:00:00:00:00:02 dev {DEV} nud permanent"))?;
    for (at, scheduler) in schedulers.iter().enumerate() {
        for some in queues[at * QUEUES as usize..][..QUEUES as usize].chunks(EDITS) {
            s.apply(some.iter().map(|id| Op::Move { id: *id, parent: *scheduler }).collect())?;
        }
    }
    s.within("all queues moved back")?;
    deep(s, &schedulers, &queues)?;
    let health = s.plane.0.health()?;
    check(health == Health::Running, &format!("after that: {health:?}"));
    println!("# the longest of all: {} instructions", s.longest);
    Ok(())
}

fn run() -> Answer {
    sh("ip netns add sink")?;
    sh(&format!("ip link add {DEV} type veth peer name peer0 netns sink"))?;
    sh(&format!("ip addr add 10.77.0.1/24 dev {DEV}"))?;
    sh(&format!("ip link set {DEV} up"))?;
    sh("ip -n sink link set peer0 up")?;
    sh(&format!("ip neigh replace {PEER} lladdr 02:00:00:00:00:02 dev {DEV} nud permanent"))?;
    let mut s = Setup::new()?;
    let done = edits(&mut s);
    drop(s);
    sh(&format!("ip link del {DEV}"))?;
    sh("ip netns del sink")?;
    done
}

fn main() {
    if let Err(error) = run() {
        check(false, &error.to_string());
    }
    process::exit(i32::from(FAILED.with(Cell::get) > 0));
}
