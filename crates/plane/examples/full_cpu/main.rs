// SPDX-License-Identifier: MIT OR Apache-2.0
//! The full CPU driver against a real kernel, one behaviour per argument; tests/guest/full_* run it
//! in the guest. Prints `ok - …` and `not ok - …`, and exits with 1 when anything was not.

#![expect(clippy::cast_precision_loss, reason = "times and counts below 2^52")]

mod classes;
mod edits;
mod foreign;
mod idle;
mod life;
mod longest;
mod policies;
mod scans;
mod sections;
mod setup;
mod shares;
#[path = "../spin/mod.rs"]
mod spin;
mod tags;
mod threads;

use std::cell::Cell;
use std::time::Duration;
use std::{env, process, thread};

use reserv_model::{Batch, Class, Kind, NodeId, Op};
use reserv_plane::Plane as _;
use reserv_plane::cpu::full::{self};

use setup::{Answer, FAILED, Guard, check};

fn main() {
    let what = env::args().nth(1).unwrap_or_default();
    let done = match what.as_str() {
        "--hog" => {
            println!("busy");
            spin::forever()
        }
        "--foreign" => foreign::run(&env::args().nth(2).unwrap_or_default()),
        "--echo" => return sections::echo(),
        "--other" => {
            match full::start() {
                Ok(plane) => {
                    println!("loaded");
                    drop(Guard(plane));
                }
                Err(error) => println!("{error:?}"),
            }
            return;
        }
        "--loader" => {
            let run = || -> Answer {
                let mut plane = full::start()?;
                let id = NodeId { index: 2, generation: 1 };
                plane.apply(&Batch {
                    seq: 7,
                    ops: vec![Op::Create {
                        id,
                        parent: NodeId::ROOT,
                        kind: Kind::Queue(Class::Rr),
                    }],
                })?;
                println!("ready");
                thread::sleep(Duration::from_secs(1000));
                Ok(())
            };
            if let Err(error) = run() {
                println!("{error}");
            }
            return;
        }
        "shares" => shares::run_shares(4, 1, 0.005),
        "smp" => shares::run_shares(4, 2, 0.005),
        "infeasible" => shares::run_infeasible(4),
        "herd" => shares::run_herd(60),
        "lag" => shares::run_lag(),
        "sections" => sections::run(),
        "longest" => longest::run(),
        "scans" => scans::run(),
        "far" => scans::run_far(),
        "idle" => idle::run(),
        "owners" => threads::run_owners(),
        "edits" => edits::run_edits(),
        "mtrls" => classes::run_mtrls(),
        "prio" => classes::run_prio(),
        "params" => classes::run_params(),
        "caps" => shares::run_caps(),
        "low-cap" => shares::run_low_cap(),
        "inherit" => tags::run_inherit(),
        "life" => life::run_life(),
        "eevdf" => policies::run_eevdf(),
        "policies" => policies::run_policies(),
        "affinity" => threads::run_affinity(),
        "apart" => threads::run_apart(),
        "mount" => life::run_mount(),
        "kthreads" => threads::run_kthreads(),
        "chcpures" => tags::run_chcpures(),
        other => Err(format!("no check named '{other}'").into()),
    };
    if let Err(error) = done {
        check(false, &format!("{what}: {error}"));
    }
    process::exit(i32::from(FAILED.with(Cell::get) > 0));
}
