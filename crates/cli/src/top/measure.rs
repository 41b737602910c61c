// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `top` shows: the trees, read again and again, and what was served between two readings.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::processes::{Process, Processes};
use crate::error::Error;
use crate::fs::Files;
use crate::node::Node;
use crate::path::NodePath;
use crate::tree::{load_all, read};

/// A node, or a process in a queue of the CPU, in one measurement.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Measured {
    /// `cpu/web/site1`; of a process its queue's.
    pub path: String,
    /// `scheduler`, `queue` or `process`.
    pub kind: &'static str,
    /// Below the node that is watched.
    #[serde(skip)]
    pub depth: usize,
    /// The weight as written.
    pub weight: String,
    /// Part of the resource it is entitled to, 0 to 1.
    pub entitled: f64,
    /// Part of what was served to everyone, 0 to 1.
    pub received: f64,
    /// Service per second of wall time.
    #[serde(skip)]
    pub rate: f64,
    /// The unit in which people write it: `ns` of CPU time, `bytes`, or `bits`.
    #[serde(skip)]
    pub unit: String,
    /// The rate under a key that names its unit: `rate_ns_per_s`, `rate_bytes_per_s`.
    #[serde(flatten)]
    pub rates: BTreeMap<String, f64>,
    /// Threads that wait or run.
    pub runnable: u64,
    /// Threads tagged here.
    pub members: u64,
    /// Whether a cap holds it back now.
    pub throttled: bool,
    /// Class or policy, cap, state.
    pub notes: String,
    /// Its place among its siblings, as they are listed.
    #[serde(skip)]
    pub at: usize,
    /// Of a process.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
}

/// Readings of the trees, and the ones before.
pub(crate) struct Meter {
    /// `None`: every resource that runs.
    path: Option<NodePath>,
    before: Option<(Instant, HashMap<String, u64>)>,
    /// Whether those in the CPU's queues are rows too.
    pub(crate) processes: Option<Processes>,
}

impl Meter {
    /// Measures `path` and what is below it, or every resource.
    pub(crate) fn new(files: &dyn Files, path: Option<&str>) -> Result<Self, Error> {
        let path = path.map(|path| NodePath::parse(path, files.place())).transpose()?;
        Ok(Self { path, before: None, processes: None })
    }

    fn roots(&self, files: &dyn Files) -> Result<Vec<Node>, Error> {
        let Some(path) = &self.path else { return load_all(files) };
        Ok(vec![read(files, path)?])
    }

    /// Read again. The first time rates are 0.
    pub(crate) fn measure(
        &mut self,
        files: &dyn Files,
        now: Instant,
    ) -> Result<Vec<Measured>, Error> {
        let roots = self.roots(files)?;
        let mut service = HashMap::new();
        for root in &roots {
            root.each(&mut |node, _| {
                service.insert(node.path.clone(), node.stat.service().0);
            });
        }
        let rates = rates(
            self.before.as_ref().map(|(then, old)| (now.duration_since(*then), old)),
            &service,
        );
        let time = self.before.as_ref().map(|(then, _)| now.duration_since(*then));
        if let Some(processes) = &mut self.processes {
            processes.begin(time);
        }
        let mut rows = Vec::new();
        for root in &roots {
            let total = rates.get(&root.path).copied().unwrap_or(0.0);
            root.each(&mut |node, depth| {
                let rate = rates.get(&node.path).copied().unwrap_or(0.0);
                let (_, unit) = node.stat.service();
                rows.push(Measured {
                    path: node.path.clone(),
                    kind: node.kind,
                    depth,
                    weight: node.weight.clone(),
                    entitled: node.entitled,
                    received: if total > 0.0 { root.entitled * rate / total } else { 0.0 },
                    rate,
                    unit: node.stat.rate_unit().to_owned(),
                    rates: [(format!("rate_{unit}_per_s"), rate)].into(),
                    runnable: node.stat.runnable(),
                    members: node.stat.number("members"),
                    throttled: node.stat.throttled(),
                    notes: node.notes(),
                    at: rows.len(),
                    process: None,
                });
                let of_cpu = node.kind == "queue" && unit == "ns";
                if let Some(processes) = self.processes.as_mut().filter(|_| of_cpu) {
                    let part = if total > 0.0 { root.entitled / total } else { 0.0 };
                    rows.extend(processes.rows(files, &node.path, depth + 1, part));
                }
            });
        }
        self.before = Some((now, service));
        Ok(rows)
    }
}

/// Service per second of each node. A counter that fell (a node deleted and made anew) starts at 0.
fn rates(
    before: Option<(Duration, &HashMap<String, u64>)>,
    now: &HashMap<String, u64>,
) -> HashMap<String, f64> {
    let Some((time, old)) = before else { return HashMap::new() };
    let seconds = time.as_secs_f64();
    if seconds <= 0.0 {
        return HashMap::new();
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "a difference of counters, printed with three digits"
    )]
    let rate = |(path, new): (&String, &u64)| {
        let served = old.get(path).map_or(0, |old| new.saturating_sub(*old));
        (path.clone(), served as f64 / seconds)
    };
    now.iter().map(rate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_fell_is_no_negative_rate() {
        let (old, new) =
            (HashMap::from([("x".to_owned(), 5)]), HashMap::from([("x".to_owned(), 1)]));
        let fallen = rates(Some((Duration::from_secs(1), &old)), &new);
        assert!(fallen["x"].abs() < f64::EPSILON, "{fallen:?}");
        assert!(rates(Some((Duration::ZERO, &old)), &new).is_empty());
    }
}
