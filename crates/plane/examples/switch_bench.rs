// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a switch costs: two processes pass a byte through pipes on one CPU. First under the kernel's own scheduler, in cgroups of depth 1
//! and 5, then under ours, in queues of the same depths. For the guest: with `vm/run --smp 1 --icount` a nanosecond is an instruction.

#![expect(clippy::cast_precision_loss, reason = "times and counts below 2^52")]

use std::error::Error;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use std::{env, process};

use reserv_model::{Batch, Class, Kind, NodeId, Op, Policy, Weight};
use reserv_plane::cpu::full;
use reserv_plane::{Plane as _, Target};

const ROUNDS: u32 = 4000;

fn echo() -> Result<(), Box<dyn Error>> {
    let mut byte = [0_u8];
    let (mut input, mut output) =
        (std::io::stdin().lock(), fs::File::from(std::io::stdout().as_fd().try_clone_to_owned()?));
    while input.read(&mut byte)? == 1 {
        output.write_all(&byte)?;
    }
    Ok(())
}

/// ns per round trip, the best of five series.
fn ping(child: &mut Child) -> Result<f64, Box<dyn Error>> {
    let mut to = child.stdin.take().ok_or("no stdin")?;
    let mut from = fs::File::from(OwnedFd::from(child.stdout.take().ok_or("no stdout")?));
    let mut best = f64::MAX;
    let mut byte = [1_u8];
    for _ in 0..5 {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            to.write_all(&byte)?;
            from.read_exact(&mut byte)?;
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(ROUNDS));
    }
    Ok(best)
}

fn spawn() -> Result<Child, Box<dyn Error>> {
    Ok(Command::new(env::current_exe()?)
        .arg("--echo")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?)
}

fn cgroups(depth: u32) -> Result<f64, Box<dyn Error>> {
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
    Ok(took)
}

fn main() -> Result<(), Box<dyn Error>> {
    if env::args().nth(1).as_deref() == Some("--echo") {
        return echo();
    }
    let mut flat = spawn()?;
    let base = ping(&mut flat)?;
    flat.wait()?;
    println!("EEVDF without groups: {base:.0} ns");
    let eevdf = [cgroups(1)?, cgroups(5)?];
    let mut plane = full::start()?;
    let mut ours = [0.0; 2];
    let mut index = 2;
    for (slot, depth) in ours.iter_mut().zip([1_u32, 5]) {
        let mut parent = NodeId::ROOT;
        let mut ops = Vec::new();
        for level in 0..depth {
            let id = NodeId { index, generation: 1 };
            index += 1;
            let kind = if level + 1 == depth { Kind::Queue(Class::Ts) } else { Kind::Scheduler(Policy::Sfq) };
            ops.push(Op::Create { id, parent, kind });
            ops.push(Op::Reweight { id, weight: Weight::DEFAULT });
            parent = id;
        }
        plane.apply(&Batch { seq: u64::from(index), ops })?;
        let mut child = spawn()?;
        plane.tag(Target::Process(i32::try_from(child.id())?), parent)?;
        plane.tag(Target::Process(i32::try_from(process::id())?), parent)?;
        *slot = ping(&mut child)?;
        child.wait()?;
    }
    let start = Instant::now();
    for n in 0..200_u32 {
        let id = NodeId { index: index + n, generation: 1 };
        let kind = Kind::Queue(Class::Ts);
        plane.apply(&Batch {
            seq: 1000 + u64::from(n),
            ops: vec![Op::Create { id, parent: NodeId::ROOT, kind }],
        })?;
    }
    let create = start.elapsed().as_nanos() / 200;
    println!("{:?}", plane.counters());
    plane.stop()?;
    for ((depth, e), o) in [1, 5].iter().zip(eevdf).zip(ours) {
        println!("depth {depth}: EEVDF in cgroups {e:.0} ns, ours {o:.0} ns a round trip: {:.3}", o / e);
    }
    println!("a queue is created in {create} ns (one batch each)");
    Ok(())
}
