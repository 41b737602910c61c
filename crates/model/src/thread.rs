// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a thread may ask of its queue's class, beside its place in it.
//!
//! ```text
//! params   = {("weight" weight | "priority" 1…100 | "period" duration | "budget" duration | "deadline" duration)}
//! ```
//!
//! Every key is optional and stands once. A write sets all of them: what is left out is the default
//! again.

use std::fmt;

use reserv_facts::tree;
use serde::{Deserialize, Serialize};

use crate::error::quoted;
use crate::units::Duration;
use crate::{Error, ErrorKind, Weight};

/// Parameters of one thread. 0 is "not set" everywhere: the class's own default.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ThreadParams {
    /// Among the threads of its queue, in thousandths; not set: as its nice value says (`ts`), or 1
    /// (others).
    pub weight: u32,
    /// 1 to 100, higher first.
    pub priority: u32,
    /// Of a periodic thread (`edf`).
    pub period_ns: u64,
    /// CPU time that it needs in each period.
    pub budget_ns: u64,
    /// Relative to the beginning of a period, at most the period; not set: the period.
    pub deadline_ns: u64,
}

const HINT: &str =
    "weight 2, priority 50, period 33ms budget 10ms, deadline 20ms (at most the period)";

impl ThreadParams {
    /// Highest priority.
    pub const PRIORITY_MAX: u32 = tree::PRIORITY_MAX;
    /// Shortest period and deadline.
    pub const PERIOD_MIN: u64 = tree::PERIOD_MIN;
    /// Longest period: 10 s.
    pub const PERIOD_MAX: u64 = tree::PERIOD_MAX;
    /// Smallest budget.
    pub const BUDGET_MIN: u64 = tree::BUDGET_MIN;

    /// Whether it asks for nothing.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// CPU time per second that it is promised until its deadlines, rounded up to 1 ns; 0 for a
    /// thread without a period. (A deadline before the period's end needs more than the budget per
    /// period: sched/class_edf.c.)
    pub fn rate_ns_per_s(&self) -> u64 {
        if self.period_ns == 0 {
            return 0;
        }
        let span = if self.deadline_ns == 0 { self.period_ns } else { self.deadline_ns };
        let rate = (u128::from(self.budget_ns) * 1_000_000_000).div_ceil(u128::from(span));
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    /// From words behind the thread's number.
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        let bad = |why: String| Error::new(ErrorKind::Invalid, why).hint(HINT);
        let mut params = Self::default();
        let mut seen: Vec<&str> = Vec::new();
        let mut words = words.into_iter();
        while let Some(key) = words.next() {
            if !["weight", "priority", "period", "budget", "deadline"].contains(&key) {
                return Err(bad(format!("{} is no parameter of a thread", quoted(key))));
            }
            if seen.contains(&key) {
                return Err(bad(format!("{} stands twice", quoted(key))));
            }
            seen.push(key);
            let value =
                words.next().ok_or_else(|| bad(format!("{} without a value", quoted(key))))?;
            let duration = |least: u64| -> Result<u64, Error> {
                let Duration(ns) = value.parse()?;
                if ns < least || ns > Self::PERIOD_MAX {
                    let (low, high) = (Duration(least), Duration(Self::PERIOD_MAX));
                    let why = format!("a {key} of {} is not from {low} to {high}", quoted(value));
                    return Err(Error::new(ErrorKind::Invalid, why).hint(HINT));
                }
                Ok(ns)
            };
            match key {
                "weight" => {
                    let weight = value.parse::<Weight>()?;
                    if weight == Weight::BACKGROUND {
                        return Err(bad(format!("a weight of {} for a thread", quoted(value))));
                    }
                    params.weight = weight.milli();
                }
                "priority" => {
                    let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
                    let number = if digits { value.parse().ok() } else { None };
                    params.priority = number
                        .filter(|n| (1..=Self::PRIORITY_MAX).contains(n))
                        .ok_or_else(|| {
                            let max = Self::PRIORITY_MAX;
                            bad(format!("{} is no priority from 1 to {max}", quoted(value)))
                        })?;
                }
                "period" => params.period_ns = duration(Self::PERIOD_MIN)?,
                "budget" => params.budget_ns = duration(Self::BUDGET_MIN)?,
                _ => params.deadline_ns = duration(Self::PERIOD_MIN)?,
            }
        }
        params.check()
    }

    /// Refuses a period without a budget, or the reverse, and what does not fit into its period.
    pub fn check(self) -> Result<Self, Error> {
        let bad = |why: String| Err(Error::new(ErrorKind::Invalid, why).hint(HINT));
        let (period, budget) = (Duration(self.period_ns), Duration(self.budget_ns));
        let deadline = Duration(self.deadline_ns);
        match (self.period_ns, self.budget_ns, self.deadline_ns) {
            (0, 0, 0) => Ok(self),
            (0, _, _) => bad("\"budget\" or \"deadline\" without \"period\"".into()),
            (_, 0, _) => bad("\"period\" without \"budget\"".into()),
            (p, _, d) if d > p => {
                bad(format!("a deadline of {deadline} after the period of {period}"))
            }
            (p, b, d) if b > if d == 0 { p } else { d } => {
                let (until, what) =
                    if d == 0 { (period, "period") } else { (deadline, "deadline") };
                bad(format!("a budget of {budget} does not fit before the {what} of {until}"))
            }
            _ => Ok(self),
        }
    }
}

impl fmt::Display for ThreadParams {
    /// As a write accepts it; nothing for the defaults, else with a blank before each key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(weight) = Weight::from_milli(self.weight).filter(|w| *w != Weight::BACKGROUND) {
            write!(f, " weight {weight}")?;
        }
        if self.priority != 0 {
            write!(f, " priority {}", self.priority)?;
        }
        for (key, ns) in
            [("period", self.period_ns), ("budget", self.budget_ns), ("deadline", self.deadline_ns)]
        {
            if ns != 0 {
                write!(f, " {key} {}", Duration(ns))?;
            }
        }
        Ok(())
    }
}
