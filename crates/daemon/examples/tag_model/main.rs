// SPDX-License-Identifier: MIT OR Apache-2.0
//! Forks, execs, exits, opens, dups, sends, closes, tags, lists, nodes made, moved, deleted and
//! collected, rights given and taken back, by processes of several users at random: the daemon's
//! engines, model and driver of tags over bpf/tag's own code (compiled for this machine,
//! tests/lib/tagsim.c, preloaded) beside a naive oracle (oracle.rs). After every so many operations
//! everything that can be asked is compared. Run by tests/host/tag_model:
//!
//! `LD_PRELOAD=tagsim.so RESERV_BPFFS=FOLDER RESERV_TAG_CGROUP=/ tag_model FOLDER SEED OPERATIONS [BREAKAGE]`
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it tells a test what it found")]

mod kernel;
mod nodes;
mod operations;
mod oracle;
mod pages;
mod reserv;
mod works;
mod world;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let [_, folder, seed, operations, more @ ..] = &args[..] else {
        eprintln!("tag_model FOLDER SEED OPERATIONS [BREAKAGE]");
        return ExitCode::from(2);
    };
    let (Ok(seed), Ok(operations)) = (seed.parse(), operations.parse()) else {
        return ExitCode::from(2);
    };
    match world::run(folder.as_ref(), seed, operations, more.first().map(String::as_str)) {
        Ok(done) => {
            println!("{done}");
            ExitCode::SUCCESS
        }
        Err(wrong) => {
            println!("{wrong}");
            ExitCode::FAILURE
        }
    }
}
