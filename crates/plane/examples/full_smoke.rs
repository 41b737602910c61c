// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads the full CPU driver, makes queues with the weights of the command line (default 1 2 4),
//! runs a busy process in each and prints what each received. For the guest:
//! `vm/run --icount -- target/release/examples/full_smoke 1 2 4`.

#![expect(clippy::cast_precision_loss, reason = "times and counts below 2^52")]

mod spin;

use std::error::Error;
use std::process::Command;
use std::time::Duration;
use std::{env, process, thread};

use reserv_model::{Batch, Class, Kind, NodeId, Op, Weight};
use reserv_plane::cpu::full;
use reserv_plane::{Plane as _, Target, Threads as _};

fn main() -> Result<(), Box<dyn Error>> {
    if env::args().nth(1).as_deref() == Some("--hog") {
        spin::forever();
    }
    let mut seconds = 5;
    let mut hogs = 1;
    let mut weights: Vec<u32> = Vec::new();
    for arg in env::args().skip(1) {
        match arg.split_once('=') {
            Some(("seconds", n)) => seconds = n.parse()?,
            Some(("hogs", n)) => hogs = n.parse()?,
            _ => weights.push(arg.parse()?),
        }
    }
    if weights.is_empty() {
        weights = vec![1, 2, 4];
    }
    let mut plane = full::start()?;
    println!("loaded: {:?}", plane.health()?);
    let mut ops = Vec::new();
    let mut ids = Vec::new();
    for (i, w) in weights.iter().enumerate() {
        let id = NodeId { index: 2 + u32::try_from(i)?, generation: 1 };
        ops.push(Op::Create { id, parent: NodeId::ROOT, kind: Kind::Queue(Class::Ts) });
        ops.push(Op::Reweight { id, weight: Weight::from_milli(w * 100_000).ok_or("weight")? });
        ids.push(id);
    }
    plane.apply(&Batch { seq: 1, ops })?;
    let mut children = Vec::new();
    for id in &ids {
        for _ in 0..hogs {
            let child = Command::new(env::current_exe()?).arg("--hog").spawn()?;
            plane.tag(Target::Process(i32::try_from(child.id())?), *id)?;
            children.push(child);
        }
    }
    thread::sleep(Duration::from_millis(500));
    let before = plane.sample()?;
    thread::sleep(Duration::from_secs(seconds));
    let after = plane.sample()?;
    let used: Vec<u64> = ids
        .iter()
        .map(|id| {
            let of = |s: &[reserv_plane::Sample]| {
                s.iter().find(|s| s.id == id.pack()).map_or(0, |s| s.service_ns)
            };
            of(&after) - of(&before)
        })
        .collect();
    let total: u64 = used.iter().sum();
    let sum: u32 = weights.iter().sum();
    for (w, u) in weights.iter().zip(&used) {
        println!(
            "weight {w}: {:.5} (want {:.5}), {u} ns",
            *u as f64 / total as f64,
            f64::from(*w) / f64::from(sum)
        );
    }
    for s in &after {
        println!("{s:?}");
    }
    println!("health: {:?}", plane.health()?);
    plane.applied_seq()?;
    println!("{:?}", plane.counters());
    for mut child in children {
        child.kill()?;
        child.wait()?;
    }
    plane.stop()?;
    process::exit(0)
}
