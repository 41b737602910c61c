// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes as rows of `top`: below each queue of the CPU those that used most of it.
//!
//! Who is in a queue its list of members says; what a thread ran, the kernel's own count
//! (`schedstat`). Nothing is read that another could make wait: no file of a process's memory.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde::Serialize;

use super::measure::Measured;
use crate::fs::Files;
use crate::ps::{command, number};

/// Rows below a queue; of the rest there is one more.
const MOST: usize = 10;

/// What the row of a process says besides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Process {
    /// None: all others of the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<i32>,
    command: String,
    /// How many of them are no rows of their own.
    #[serde(skip)]
    more: usize,
}

impl Measured {
    /// Whether it is what is left of a queue's processes.
    pub(super) fn is_rest(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.pid.is_none())
    }
}

impl Process {
    pub(super) fn label(&self) -> String {
        match self.pid {
            Some(pid) => format!("{pid} {}", self.command),
            None => format!("… {} more", self.more),
        }
    }
}

/// What threads had run, and when that was read.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    before: HashMap<i32, u64>,
    now: HashMap<i32, u64>,
    time: Option<Duration>,
}

/// Of a thread, in ns.
fn ran(pid: i32, tid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

impl Processes {
    /// Another measurement, so long after the last one.
    pub(super) fn begin(&mut self, time: Option<Duration>) {
        self.before = std::mem::take(&mut self.now);
        self.time = time;
    }

    #[expect(clippy::cast_precision_loss, reason = "printed with three digits")]
    fn per_second(&self, ns: u64) -> f64 {
        let time = self.time.filter(|time| !time.is_zero());
        time.map_or(0.0, |time| ns as f64 / time.as_secs_f64())
    }

    /// Those in a queue; `part` makes a rate a part of the resource. Where the caller may not know
    /// there are none.
    pub(super) fn rows(
        &mut self,
        files: &dyn Files,
        path: &str,
        depth: usize,
        part: f64,
    ) -> Vec<Measured> {
        let text = files.read(&format!("{path}/members")).unwrap_or_default();
        let mut threads: BTreeMap<i32, HashMap<i32, u64>> = BTreeMap::new();
        for line in text.lines() {
            if let (Some(tid), Some(pid)) = (number(line, "tid"), number(line, "pid"))
                && let Some(ran) = ran(pid, tid)
            {
                threads.entry(pid).or_default().insert(tid, ran);
            }
        }
        let mut rows = Vec::new();
        for (pid, now) in threads {
            // Who came since counts from what it had run when it was first seen.
            let since = |(tid, ran): (&i32, &u64)| Some(ran.saturating_sub(*self.before.get(tid)?));
            let rate = self.per_second(now.iter().filter_map(since).sum());
            let count = now.len();
            self.now.extend(now);
            let process =
                Process { pid: Some(pid), command: command(pid).unwrap_or_default(), more: 0 };
            rows.push(row(path, depth, (rate, part), count, process));
        }
        rows.sort_by(|a, b| b.rate.total_cmp(&a.rate));
        if rows.len() > MOST + 1 {
            let rest = rows.split_off(MOST);
            let rate = rest.iter().map(|row| row.rate).sum();
            let threads = rest.iter().map(|row| row.members).sum::<u64>();
            let process = Process { pid: None, command: String::new(), more: rest.len() };
            let threads = usize::try_from(threads).unwrap_or(usize::MAX);
            rows.push(row(path, depth, (rate, part), threads, process));
        }
        for (at, row) in rows.iter_mut().enumerate() {
            row.at = at;
        }
        rows
    }
}

fn row(
    path: &str,
    depth: usize,
    (rate, part): (f64, f64),
    threads: usize,
    process: Process,
) -> Measured {
    Measured {
        path: path.to_owned(),
        kind: "process",
        depth,
        received: rate * part,
        rate,
        unit: "ns".to_owned(),
        rates: [("rate_ns_per_s".to_owned(), rate)].into(),
        members: u64::try_from(threads).unwrap_or(u64::MAX),
        notes: format!("{threads} thread{}", if threads == 1 { "" } else { "s" }),
        process: Some(process),
        ..Measured::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::fake::Fake;

    #[test]
    fn who_used_most_comes_first_and_the_rest_is_one_row() {
        let (me, tid) = (nix::unistd::getpid().as_raw(), nix::unistd::gettid().as_raw());
        let fake = Fake::new();
        fake.node("cpu/a", false);
        fake.put("cpu/a/members", &format!("tid {tid} pid {me}\ntid 1 pid {me} weight 2\nodd"));
        let mut all = Processes::default();
        all.begin(None);
        let rows = all.rows(&fake, "cpu/a", 2, 0.0);
        assert_eq!((rows.len(), rows[0].rate), (1, 0.0), "thread 1 is another's: {rows:?}");
        assert!(rows[0].process.as_ref().unwrap().label().starts_with(&format!("{me} ")));
        // Of what it runs from here on.
        let begun = std::time::Instant::now();
        while ran(me, tid).unwrap() < all.now[&tid] + 20_000_000 {
            std::hint::spin_loop();
            assert!(begun.elapsed() < Duration::from_secs(60));
        }
        all.begin(Some(Duration::from_secs(1)));
        let rows = all.rows(&fake, "cpu/a", 2, 1e-9);
        assert!(rows[0].rate >= 2e7 && (rows[0].received - rows[0].rate * 1e-9).abs() < 1e-9);
        assert_eq!(rows[0].notes, "1 thread");
        assert!(all.rows(&fake, "cpu/none", 2, 1.0).is_empty(), "a queue that is not read");
    }
}
