// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a switch costs: two processes pass a byte through pipes on one CPU. First under the
//! kernel's own scheduler, in cgroups of depth 1, 3, 5 and 8, then under ours, in queues of the
//! same depths; then beside 10 to 10 000 other queues, each with a thread that waits. For the
//! guest: with `vm/run --smp 1 --icount` a nanosecond is an instruction. `--ours DEPTH` prints the
//! ns of a round trip under ours at that depth alone, with a decimal. `--check` fails where ours
//! costs more than the kernel's, or 5 % more beside the most queues than beside the fewest.
//! `--depths` and `--beside` do one of the two, `--few` the latter with 10 and 1000 queues alone.
//! Each figure is printed when it is known.

#![expect(clippy::cast_precision_loss, reason = "times and counts below 2^52")]

mod spin;

use std::error::Error;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Barrier, mpsc};
use std::time::Instant;
use std::{env, process, thread};

use reserv_model::{Batch, Class, Kind, NodeId, Op, Policy, Weight};
use reserv_plane::cpu::full::{self, Full};
use reserv_plane::{Plane as _, Target, Threads as _};

const ROUNDS: u32 = 1000;
const DEPTHS: [u32; 4] = [1, 3, 5, 8];
/// Other queues, each with a thread that waits.
const BESIDE: [u32; 4] = [10, 100, 1000, 10_000];

type Answer<T> = Result<T, Box<dyn Error>>;

fn echo() -> Answer<()> {
    let mut byte = [0_u8];
    let (mut input, mut output) =
        (std::io::stdin().lock(), fs::File::from(std::io::stdout().as_fd().try_clone_to_owned()?));
    while input.read(&mut byte)? == 1 {
        output.write_all(&byte)?;
    }
    Ok(())
}

/// ns per round trip, the best of three series.
fn ping(child: &mut Child) -> Answer<f64> {
    let mut to = child.stdin.take().ok_or("no stdin")?;
    let mut from = fs::File::from(OwnedFd::from(child.stdout.take().ok_or("no stdout")?));
    let mut best = f64::MAX;
    let mut byte = [1_u8];
    for _ in 0..3 {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            to.write_all(&byte)?;
            from.read_exact(&mut byte)?;
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(ROUNDS));
    }
    Ok(best)
}

fn spawn() -> Answer<Child> {
    Ok(Command::new(env::current_exe()?)
        .arg("--echo")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?)
}

fn cgroups(depth: u32) -> Answer<f64> {
    let mut path = String::from("/sys/fs/cgroup");
    fs::write(format!("{path}/cgroup.subtree_control"), "+cpu")?;
    for level in 0..depth {
        path = format!("{path}/bench{level}");
        let _ = fs::create_dir(&path);
        if level + 1 < depth {
            fs::write(format!("{path}/cgroup.subtree_control"), "+cpu")?;
        }
    }
    let mut child = spawn()?;
    fs::write(format!("{path}/cgroup.procs"), child.id().to_string())?;
    fs::write(format!("{path}/cgroup.procs"), process::id().to_string())?;
    let took = ping(&mut child)?;
    child.wait()?;
    fs::write("/sys/fs/cgroup/cgroup.procs", process::id().to_string())?;
    for level in (0..depth).rev() {
        fs::remove_dir(&path)?;
        if level > 0 {
            path.truncate(path.len() - format!("/bench{level}").len());
            fs::write(format!("{path}/cgroup.subtree_control"), "-cpu")?;
        }
    }
    Ok(took)
}

struct Ours {
    plane: Full,
    index: u32,
    seq: u64,
}

impl Ours {
    fn make(&mut self, parent: NodeId, kind: Kind, weight: Weight) -> Answer<NodeId> {
        let id = NodeId { index: self.index, generation: 1 };
        self.index += 1;
        self.seq += 1;
        let ops = vec![Op::Create { id, parent, kind }, Op::Reweight { id, weight }];
        self.plane.apply(&Batch { seq: self.seq, ops })?;
        Ok(id)
    }

    /// A round trip in a queue of this depth.
    fn at(&mut self, depth: u32) -> Answer<f64> {
        let mut node = NodeId::ROOT;
        for _ in 1..depth {
            node = self.make(node, Kind::Scheduler(Policy::Sfq), Weight::DEFAULT)?;
        }
        node = self.make(node, Kind::Queue(Class::Ts), Weight::DEFAULT)?;
        self.ping(node)
    }

    fn ping(&mut self, queue: NodeId) -> Answer<f64> {
        let mut child = spawn()?;
        self.plane.tag(Target::Process(i32::try_from(child.id())?), queue)?;
        self.plane.tag(Target::Thread(i32::try_from(process::id())?), queue)?;
        let took = ping(&mut child)?;
        child.wait()?;
        Ok(took)
    }
}

/// A thread that wants the CPU from the second barrier on. Its queue's weight is the smallest
/// beside the largest, so that it stands in the tree's heap and hardly ever has a turn.
fn waiting(start: &Arc<Barrier>, tids: &mpsc::Sender<i32>) {
    let (start, tids) = (Arc::clone(start), tids.clone());
    thread::spawn(move || {
        let _ = tids.send(nix::unistd::gettid().as_raw());
        start.wait();
        spin::forever()
    });
}

fn asked(what: &str) -> bool {
    env::args().any(|arg| arg == what)
}

fn main() -> Answer<()> {
    if env::args().nth(1).as_deref() == Some("--echo") {
        return echo();
    }
    if env::args().nth(1).as_deref() == Some("--ours") {
        let depth: u32 = env::args().nth(2).ok_or("which depth?")?.parse()?;
        let mut ours = Ours { plane: full::start()?, index: 2, seq: 0 };
        println!("{:.1}", ours.at(depth)?);
        ours.plane.stop()?;
        return Ok(());
    }
    let mut worst = 0.0_f64;
    let mut eevdf = Vec::new();
    if !asked("--beside") {
        let mut flat = spawn()?;
        println!("EEVDF without groups: {:.0} ns", ping(&mut flat)?);
        flat.wait()?;
        for depth in DEPTHS {
            let e = cgroups(depth)?;
            println!("depth {depth}: EEVDF in cgroups {e:.0} ns");
            eevdf.push((depth, e));
        }
    }
    let mut ours = Ours { plane: full::start()?, index: 2, seq: 0 };
    for (depth, e) in eevdf {
        let o = ours.at(depth)?;
        worst = worst.max(o / e);
        println!(
            "depth {depth}: EEVDF in cgroups {e:.0} ns, ours {o:.0} ns a round trip: {:.3}",
            o / e
        );
    }
    let heaviest = Weight::from_milli(1_000_000_000).ok_or("a weight")?;
    let lightest = Weight::from_milli(1).ok_or("a weight")?;
    let queue = ours.make(NodeId::ROOT, Kind::Queue(Class::Ts), heaviest)?;
    let mut queues = 0;
    let mut took = Vec::new();
    let wanted = |want: u32| !asked("--depths") && (!asked("--few") || want == 10 || want == 1000);
    for want in BESIDE.into_iter().filter(|want| wanted(*want)) {
        let start = Instant::now();
        let first = queues;
        let mut made = Vec::new();
        while queues < want {
            made.push(ours.make(NodeId::ROOT, Kind::Queue(Class::Ts), lightest)?);
            queues += 1;
        }
        let create = start.elapsed().as_nanos() / u128::from(queues - first);
        println!(
            "{queues} queues: the last {} created in {create} ns each, one batch each",
            queues - first
        );
        let barrier = Arc::new(Barrier::new(made.len() + 1));
        let (send, tids) = mpsc::channel();
        for id in made {
            waiting(&barrier, &send);
            ours.plane.tag(Target::Thread(tids.recv()?), id)?;
        }
        barrier.wait();
        // The best of some: a guest's clock runs while it waits for a page of this program.
        let mut o = f64::MAX;
        for _ in 0..3 {
            o = o.min(ours.ping(queue)?);
        }
        println!("beside {queues} queues, each with a thread that waits: {o:.0} ns a round trip");
        took.push(o);
    }
    println!("{:?}", ours.plane.counters());
    ours.plane.stop()?;
    if !asked("--beside") {
        println!("worst depth {worst:.3} of EEVDF");
    }
    let mut growth = 1.0;
    if !took.is_empty() {
        growth = took.iter().copied().fold(0.0, f64::max)
            / took.iter().copied().fold(f64::MAX, f64::min);
        println!("most queues {growth:.3} of fewest");
    }
    if asked("--check") && (worst > 1.0 || growth > 1.05) {
        return Err("a switch costs too much".into());
    }
    process::exit(0); // with the threads that wait
}
