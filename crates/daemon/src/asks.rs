// SPDX-License-Identifier: MIT OR Apache-2.0
//! What may be asked for a thread by who is not root, in `members`: no more than it may ask for
//! itself by `F_RESERV_SETPARAM`. `bpf/cpu/asks.h` has the rule; a period needs `use`, which is
//! asked for every write to `members`.

use std::fs;

use reserv_facts::tree::PRIORITY_DEFAULT as PRIORITY;
use reserv_model::{Caller, Error, ErrorKind, NICE_0, ThreadParams, Weight, nice_weight};

use crate::process::Stat;

const SCHED_IDLE: u64 = 5;

/// In thousandths.
fn weight_of(nice: i64) -> u32 {
    nice_weight(nice) * 1000 / NICE_0
}

/// The most for a thread of this nice value and policy, which may lower it to 20 - `limit`.
fn most(nice: i64, policy: u64, limit: i64) -> u32 {
    let own = if policy == SCHED_IDLE { 3 * 1000 / 1024 } else { weight_of(nice) };
    if limit > 0 { own.max(weight_of(20 - limit)) } else { own }
}

/// `RLIMIT_NICE` as `/proc/PID/limits` shows it.
fn limit_in(limits: &str) -> i64 {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max nice priority"));
    match line.and_then(|line| line.split_whitespace().next()) {
        Some("unlimited") => 40,
        Some(number) => number.parse().unwrap_or(0),
        None => 0,
    }
}

/// Refuses what the thread may not ask for itself, unless all who ask are root.
pub(crate) fn require_modest(
    asking: &[Caller],
    tid: i32,
    params: &ThreadParams,
) -> Result<(), Error> {
    if asking.iter().all(|by| by.uid == 0) {
        return Ok(());
    }
    if params.priority > PRIORITY {
        let why = format!(
            "priority {} is above the default, {PRIORITY}: root's to give",
            params.priority
        );
        return Err(Error::new(ErrorKind::NotPermitted, why));
    }
    if params.weight == 0 {
        return Ok(());
    }
    let limits = fs::read_to_string(format!("/proc/{tid}/limits")).unwrap_or_default();
    let most = Stat::of(tid).map_or(0, |stat| most(stat.nice, stat.policy, limit_in(&limits)));
    if params.weight <= most {
        return Ok(());
    }
    let shown = |weight: u32| Weight::from_milli(weight).unwrap_or(Weight::MAX);
    let why = format!(
        "weight {} is above what thread {tid} may have by its nice value",
        shown(params.weight)
    );
    let hint = format!("{} at most; more is root's to give", shown(most));
    Err(Error::new(ErrorKind::NotPermitted, why).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_is_what_nice_gives() {
        assert_eq!((most(0, 0, 0), most(19, 0, 0), most(-20, 0, 0)), (1000, 14, 86680));
        assert_eq!((most(0, SCHED_IDLE, 0), most(0, SCHED_IDLE, 20)), (2, 1000));
        assert_eq!((most(10, 0, 25), most(0, 0, 40)), (weight_of(-5), weight_of(-20)));
        assert_eq!(
            limit_in("Max nice priority         30                   40                   \n"),
            30
        );
        assert_eq!((limit_in("Max nice priority  unlimited unlimited\n"), limit_in("")), (40, 0));
    }

    #[test]
    fn root_may_ask_for_anything_and_others_for_less() {
        let (root, user) = (Caller::root(), Caller { uid: 1000, ..Caller::default() });
        let tid = std::process::id().cast_signed();
        let asks = |weight, priority| ThreadParams { weight, priority, ..ThreadParams::default() };
        assert!(require_modest(&[root], tid, &asks(1_000_000, 100)).is_ok());
        let user = [user];
        assert!(require_modest(&user, tid, &asks(1, 50)).is_ok());
        assert!(require_modest(&user, tid, &asks(0, 0)).is_ok());
        assert!(require_modest(&user, tid, &asks(0, 51)).is_err());
        assert!(require_modest(&user, tid, &asks(90_000, 0)).is_err());
    }
}
