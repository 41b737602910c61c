// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is beside our tree at the top of the hierarchy, and is q0's: by its weights the tree's is
//! chosen, and by those that want the CPU now it is said who gets what.
//!
//! The kernel weighs our tree against each runnable thread of the top cgroup itself, by its nice
//! value, or with autogroup against each session of such threads; and against each cgroup beside
//! ours in which anybody wants. Threads of the kernel are left out of what wants: they want for
//! moments only. Real-time threads have no weight.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use reserv_model::{NICE_0, NodeId, Outside, nice_weight};

use super::Stock;
use crate::cgroup::weights::Share;

const SCHED_NORMAL: i64 = 0;
const SCHED_BATCH: i64 = 3;
const SCHED_IDLE: i64 = 5;
/// The kernel's priority of nice 0.
const PRIO_0: i64 = 120;
/// What the kernel gives to SCHED_IDLE.
const IDLE_WEIGHT: u32 = 3;
/// So many threads of a cgroup beside ours are looked at; one with more counts as one that wants.
const LOOKED_AT: usize = 1000;

/// Nobody is looked at anew before this many times the CPU time that the last look took have
/// passed, or this long.
const REST: u32 = if cfg!(test) { 0 } else { 10 };
const REST_MAX: Duration = Duration::from_secs(2);

fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// A thread that runs or waits, and is weighed.
struct Wanting {
    nice: i64,
    idle: bool,
}

impl Wanting {
    fn weight(&self) -> u32 {
        if self.idle { IDLE_WEIGHT } else { nice_weight(self.nice) }
    }
}

/// What wants outside of our tree, of which kind; in the kernel's weights, 1024 a thread.
#[derive(Clone, Copy, Default)]
pub(super) struct Crowd {
    /// Threads and sessions of the top cgroup itself.
    threads: u32,
    weight: u32,
    /// Weights of the cgroups beside ours.
    groups: u32,
}

impl Stock {
    /// In the kernel's weights, from what a cgroup's file has.
    fn load(&self, weight: u32) -> u32 {
        let default = u64::from(self.cg.flavour().range().default);
        let load = u64::from(weight) * u64::from(NICE_0) / default;
        u32::try_from(load).unwrap_or(u32::MAX)
    }

    /// Cgroups beside ours that have a weight.
    fn beside(&self) -> Vec<(String, u32)> {
        let names = self.cg.kernel().list(self.cg.top()).unwrap_or_default();
        let weighed = |name: String| {
            let dir = format!("{}/{name}", self.cg.top());
            let read = |file: &str| {
                self.cg.kernel().read(&format!("{dir}/{file}")).ok()?.trim().parse::<u32>().ok()
            };
            let idle = read("cpu.idle") == Some(1);
            let weight = read(self.cg.flavour().weight()).filter(|_| !idle)?;
            Some((name, weight))
        };
        names.into_iter().filter(|name| *name != self.cg.name).filter_map(weighed).collect()
    }

    /// Weight of everything beside our tree, and who that is, in words.
    pub(super) fn look_outside(&self) -> (u32, Vec<String>) {
        let range = self.cg.flavour().range();
        let mut total = range.default;
        let mut who =
            vec![format!("each runnable thread of the top cgroup itself counts {}", range.default)];
        for (name, weight) in self.beside() {
            total = total.saturating_add(weight);
            who.push(format!("{name} {weight}"));
        }
        self.outside.set(total);
        (total, who)
    }

    /// Threads that wait or run in no queue of ours: they are q0's, whatever cgroup they are in.
    /// The machine's count has whoever reads it in it.
    pub(super) fn runnable_outside(&self, inside: u32) -> u32 {
        let text = self.cg.kernel().read("/proc/loadavg").unwrap_or_default();
        let running = text.split_ascii_whitespace().nth(3).and_then(|word| word.split_once('/'));
        let all = running.and_then(|(running, _)| running.parse::<u32>().ok()).unwrap_or(1);
        all.saturating_sub(1).saturating_sub(inside)
    }

    /// A thread, if it wants the CPU and is weighed. Of its files none is read that may wait for
    /// a process in the middle of an exec.
    fn wanting(&self, tid: &str) -> Option<Wanting> {
        let read = |file: &str| self.cg.kernel().read(&format!("/proc/{tid}/{file}"));
        let status = read("status").ok()?;
        let line =
            |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        // Who has no memory of his own is the kernel's.
        if !line("State:")?.starts_with('R') || line("VmSize:").is_none() {
            return None;
        }
        // Without this file it is taken for one that nobody touched.
        let sched = read("sched").unwrap_or_default();
        let number = |key: &str, default: i64| {
            let of = |line: &str| {
                let (name, value) = line.split_once(':')?;
                (name.trim() == key).then(|| value.trim().parse().ok())?
            };
            sched.lines().find_map(of).unwrap_or(default)
        };
        let policy = number("policy", SCHED_NORMAL);
        let weighed = [SCHED_NORMAL, SCHED_BATCH, SCHED_IDLE].contains(&policy);
        let nice = number("prio", PRIO_0) - PRIO_0;
        weighed.then_some(Wanting { nice, idle: policy == SCHED_IDLE })
    }

    /// Threads of one cgroup itself.
    fn threads_at(&self, dir: &str) -> Vec<String> {
        let file = format!("{dir}/{}", self.cg.threads_file());
        let text = self.cg.kernel().read(&file).unwrap_or_default();
        text.lines().map(|line| line.trim().to_owned()).collect()
    }

    /// Whether anybody wants in a cgroup or below it.
    fn wants(&self, dir: String, me: &BTreeSet<String>) -> bool {
        let mut dirs = vec![dir];
        let mut looked_at = 0;
        while let Some(dir) = dirs.pop() {
            for tid in self.threads_at(&dir).iter().filter(|tid| !me.contains(*tid)) {
                looked_at += 1;
                if looked_at > LOOKED_AT || self.wanting(tid).is_some() {
                    return true;
                }
            }
            let below = self.cg.kernel().list(&dir).unwrap_or_default();
            dirs.extend(below.into_iter().map(|name| format!("{dir}/{name}")));
        }
        false
    }

    /// What wants the CPU outside now, of so many threads.
    pub(super) fn crowd(&self, running: u32) -> Crowd {
        if running == 0 {
            return Crowd::default();
        }
        if let Some((seen, until)) = self.crowd.get()
            && Instant::now() < until
        {
            return seen;
        }
        let began = cpu_time();
        let seen = self.look_at_crowd();
        let rest = (cpu_time().saturating_sub(began) * REST).min(REST_MAX);
        self.crowd.set(Some((seen, Instant::now() + rest)));
        seen
    }

    fn look_at_crowd(&self) -> Crowd {
        let mut crowd = Crowd::default();
        let kernel = self.cg.kernel();
        // Whoever looks is awake, and no competitor.
        let me: BTreeSet<String> =
            kernel.list("/proc/self/task").unwrap_or_default().into_iter().collect();
        let mut sessions = BTreeMap::new();
        for tid in self.threads_at(self.cg.top()).iter().filter(|tid| !me.contains(*tid)) {
            let Some(thread) = self.wanting(tid) else { continue };
            if let Some((session, nice)) = self.session(tid) {
                sessions.insert(session, nice_weight(nice));
            } else {
                crowd.threads += 1;
                crowd.weight = crowd.weight.saturating_add(thread.weight());
            }
        }
        for weight in sessions.into_values() {
            crowd.threads += 1;
            crowd.weight = crowd.weight.saturating_add(weight);
        }
        for (name, weight) in self.beside() {
            if self.wants(format!("{}/{name}", self.cg.top()), &me) {
                crowd.groups = crowd.groups.saturating_add(self.load(weight));
            }
        }
        crowd
    }

    fn autogroup(&self) -> bool {
        let on = self.cg.kernel().read("/proc/sys/kernel/sched_autogroup_enabled");
        on.is_ok_and(|text| text.trim() == "1")
    }

    /// The session by which a thread of the top cgroup is weighed, and its nice value.
    fn session(&self, tid: &str) -> Option<(String, i64)> {
        if !self.autogroup() {
            return None;
        }
        let text = self.cg.kernel().read(&format!("/proc/{tid}/autogroup")).ok()?;
        let (session, nice) = text.trim().split_once(" nice ")?;
        Some((session.to_owned(), nice.parse().ok()?))
    }

    /// The weight of our tree as it is set.
    fn own_weight(&self) -> u32 {
        match self.written.get(&NodeId::ROOT).map(|attr| attr.share) {
            Some(Share::Weight(weight)) => weight,
            _ => 0,
        }
    }

    /// What q0 is weighed by: so many threads run or wait outside, and so many of q0 in our tree.
    pub(super) fn outside(&self, running: u32, inside: u32) -> Outside {
        let crowd = self.crowd(running);
        let groups = self.beside().into_iter().map(|(_, weight)| self.load(weight));
        let groups = groups.fold(0, u32::saturating_add);
        Outside {
            tree: self.load(self.own_weight()),
            wanting: crowd.weight.saturating_add(crowd.groups),
            all: crowd.weight.max(NICE_0).saturating_add(groups),
            inside,
        }
    }

    pub(super) fn outside_words(&self) -> String {
        let (total, who) = self.look_outside();
        let ours = self.own_weight();
        let default = self.cg.flavour().range().default;
        let q0 = u64::from(self.state.mirror.q0_weight().milli());
        let all = self.state.mirror.others_milli() + q0;
        let crowd = u64::from(total) + 10 * u64::from(default);
        let autogroup = if self.autogroup() {
            "; autogroup is on, so each session of the top cgroup counts as one thread"
        } else {
            ""
        };
        // Words are asked for often, and a look may take long beside many that want.
        let now = self.crowd.get().map_or_else(|| self.crowd(u32::MAX), |(seen, _)| seen);
        let wanting = u64::from(now.weight.saturating_add(now.groups));
        let tree = u64::from(self.load(ours));
        format!(
            "our tree has {} {ours} against {total} outside ({}{autogroup}); while everything wants \
             the CPU, outside gets {:.1} % of it, and with ten more such threads or sessions {:.1} %; \
             those that wanted it when last looked at ({} of them, cgroups apart) get {:.1} % where \
             our tree wants; q0's own share is {:.1} %",
            self.cg.flavour().weight(),
            who.join(", "),
            percent(u64::from(total), u64::from(total) + u64::from(ours)),
            percent(crowd, crowd + u64::from(ours)),
            now.threads,
            percent(wanting, wanting + tree),
            percent(q0, all),
        )
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people to read")]
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}
