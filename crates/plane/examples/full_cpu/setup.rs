// SPDX-License-Identifier: MIT OR Apache-2.0
//! What every check begins with: a driver that goes away with the test, queues in it, and load.

use std::cell::Cell;
use std::error::Error;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, thread};

use reserv_model::{Batch, Class, Kind, NodeId, Op, Outcome, Weight};
use reserv_plane::cpu::full::{self, Full};
use reserv_plane::{Health, Plane as _, PlaneError, Sample, Target, Threads as _};

pub(crate) type Answer = Result<(), Box<dyn Error>>;

thread_local! {
    pub(crate) static FAILED: Cell<u32> = const { Cell::new(0) };
}

pub(crate) fn check(good: bool, what: &str) {
    println!("{} - {what}", if good { "ok" } else { "not ok" });
    if !good {
        FAILED.with(|f| f.set(f.get() + 1));
    }
}

/// What is loaded is taken out again, also when a check gives up with an error.
pub(crate) struct Guard(pub(crate) Full);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Err(error) = self.0.stop() {
            println!("not ok - stop: {error}");
        }
    }
}

/// Processes that end with the test.
#[derive(Default)]
pub(crate) struct Load(pub(crate) Vec<Child>);

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Load {
    /// A busy process tagged with `queue`. It is busy before: a program that is being loaded waits
    /// for its files, and its queue is not backlogged then.
    pub(crate) fn hog(&mut self, plane: &mut Full, queue: NodeId) -> Result<i32, Box<dyn Error>> {
        let mut hog = Command::new(env::current_exe()?);
        let mut child = hog.arg("--hog").stdout(Stdio::piped()).spawn()?;
        let pid = i32::try_from(child.id())?;
        let said = child.stdout.take();
        self.0.push(child);
        said.ok_or("no pipe")?.read_exact(&mut [0])?;
        plane.tag(Target::Process(pid), queue)?;
        Ok(pid)
    }
}

pub(crate) struct Setup {
    pub(crate) plane: Guard,
    pub(crate) seq: u64,
    pub(crate) next: u32,
}

impl Setup {
    pub(crate) fn new() -> Result<Self, Box<dyn Error>> {
        let mut plane = Guard(full::start()?);
        // This test itself is in q0: its part is taken out of every comparison, and it sleeps most
        // of the time.
        plane.0.apply(&Batch {
            seq: 1,
            ops: vec![Op::Reweight { id: NodeId::Q0, weight: weight(1_000) }],
        })?;
        Ok(Self { plane, seq: 1, next: 2 })
    }

    pub(crate) fn apply(&mut self, ops: Vec<Op>) -> Result<Vec<Outcome>, PlaneError> {
        self.seq += 1;
        self.plane.0.apply(&Batch { seq: self.seq, ops })
    }

    pub(crate) fn make(
        &mut self,
        parent: NodeId,
        kind: Kind,
        w: u32,
    ) -> Result<NodeId, PlaneError> {
        let id = NodeId { index: self.next, generation: 1 };
        self.next += 1;
        self.apply(vec![Op::Create { id, parent, kind }, Op::Reweight { id, weight: weight(w) }])?;
        Ok(id)
    }

    pub(crate) fn queue(&mut self, parent: NodeId, w: u32) -> Result<NodeId, PlaneError> {
        self.make(parent, Kind::Queue(Class::Ts), w)
    }

    pub(crate) fn health(&mut self, what: &str) -> Answer {
        let health = self.plane.0.health()?;
        check(health == Health::Running, &format!("{what}: {health:?}"));
        Ok(())
    }
}

pub(crate) fn weight(w: u32) -> Weight {
    Weight::from_milli(w * 1000).unwrap_or(Weight::DEFAULT)
}

pub(crate) fn service(samples: &[Sample], id: NodeId) -> u64 {
    samples.iter().find(|s| s.id == id.pack()).map_or(0, |s| s.service_ns)
}

/// What part of the sum each received during `time`.
pub(crate) fn shares(plane: &Full, ids: &[NodeId], time: Duration) -> Result<Vec<f64>, PlaneError> {
    let before = plane.sample()?;
    thread::sleep(time);
    let after = plane.sample()?;
    let got: Vec<f64> =
        ids.iter().map(|id| (service(&after, *id) - service(&before, *id)) as f64).collect();
    let sum: f64 = got.iter().sum();
    Ok(got.iter().map(|g| g / sum).collect())
}

pub(crate) fn near(got: &[f64], want: &[f64], tolerance: f64, what: &str) {
    let worst = got.iter().zip(want).map(|(g, w)| (g - w).abs()).fold(0.0, f64::max);
    check(
        worst <= tolerance,
        &format!("{what}: {got:.4?}, wanted {want:.4?}, error {:.2} %", worst * 100.0),
    );
}

pub(crate) fn settle() {
    thread::sleep(Duration::from_millis(500));
}
