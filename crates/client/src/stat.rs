// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of a node.

use std::path::Path;

use crate::error::Result;
use crate::node::get;

/// The lines of a node's `stat`, with what is below it; 0 where its resource does not have one.
/// This is `struct reserv_stat`, which grows at its end (`sized.rs`).
#[non_exhaustive]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Part of the resource if every node wanted, in millionths.
    pub weight_share_ppm: u64,
    /// The same given who wants now; 0 for a node that does not.
    pub effective_share_ppm: u64,
    /// Time received.
    pub service_ns: u64,
    /// Threads that wait or run.
    pub runnable: u64,
    /// Its first part.
    pub queued: u64,
    /// Its second part.
    pub running: u64,
    /// Threads tagged.
    pub members: u64,
    /// 1: its own cap holds it back now.
    pub throttled: u64,
    /// Time held back.
    pub throttled_ns: u64,
    /// 1: it takes no new members.
    pub draining: u64,
    /// Promised to it per second.
    pub minimum_ns: u64,
    /// What it has per second whoever wants, by weights and caps on its way from the root.
    pub guarantee_ns: u64,
    /// Threads that it lacks to be able to use its minimum.
    pub threads_short: u64,
}

fn parse(text: &str) -> Stat {
    let mut stat = Stat::default();
    for (key, value) in text.lines().filter_map(|line| line.split_once(' ')) {
        let number = value.trim().parse().unwrap_or(0);
        match key {
            "weight_share_ppm" => stat.weight_share_ppm = number,
            "effective_share_ppm" => stat.effective_share_ppm = number,
            "service_ns" => stat.service_ns = number,
            "runnable" => stat.runnable = number,
            "queued" => stat.queued = number,
            "running" => stat.running = number,
            "members" => stat.members = number,
            "throttled" => stat.throttled = number,
            "throttled_ns" => stat.throttled_ns = number,
            "minimum_ns" => stat.minimum_ns = number,
            "guarantee_ns" => stat.guarantee_ns = number,
            "threads_short" => stat.threads_short = number,
            "state" => stat.draining = u64::from(value.trim() == "draining"),
            // Counters of a newer daemon; `get` has them all.
            _ => {}
        }
    }
    stat
}

/// The counters of a node.
pub fn stat(node: impl AsRef<Path>) -> Result<Stat> {
    get(node, "stat").map(|text| parse(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counters() {
        let text = "weight_share_ppm 250000\nservice_ns 120\nrunnable 2\nnew_one 7\nthrottled 1\nstate draining\nodd\n";
        let stat = parse(text);
        let wanted = Stat {
            weight_share_ppm: 250_000,
            service_ns: 120,
            runnable: 2,
            throttled: 1,
            draining: 1,
            ..Stat::default()
        };
        assert_eq!(stat, wanted);
        assert_eq!(parse("state active\n"), Stat::default());
        assert_eq!(size_of::<Stat>(), 104);
    }
}
