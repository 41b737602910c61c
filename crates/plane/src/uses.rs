// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who may use a queue, as the programs in the kernel ask it: the Rust face of `bpf/use.h`. Tests
//! of both drivers' tables compare the sizes.

pub(crate) use reserv_facts::tag::rules::MAX as RULES_MAX;
use reserv_facts::tag::rules::{may, names};
use reserv_model::UseRule;

use crate::PlaneError;

/// `struct rt_rule`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct RtRule {
    names: u32,
    allow: u32,
    uid: u32,
    gid: u32,
    tgid: u32,
    pad: u32,
    pub(crate) start: u64,
}

/// `struct rt_use`
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RtUse {
    count: u32,
    may: u32,
    user: u32,
    pad: u32,
    rule: [RtRule; RULES_MAX],
}

impl From<&UseRule> for RtRule {
    fn from(rule: &UseRule) -> Self {
        let mut packed = Self { allow: rule.allow.into(), ..Self::default() };
        if let Some(uid) = rule.uid {
            packed.names |= names::UID;
            packed.uid = uid;
        }
        if let Some(gid) = rule.gid {
            packed.names |= names::GID;
            packed.gid = gid;
        }
        if let Some((tgid, start)) = rule.process {
            packed.names |= names::PID;
            (packed.tgid, packed.start) = (tgid, start);
        }
        packed
    }
}

/// Whether whoever has this uid may, whatever else is true of him.
fn surely(rules: &[UseRule], uid: u32) -> bool {
    for rule in rules.iter().filter(|rule| rule.uid.is_none_or(|of| of == uid)) {
        if !rule.allow {
            return false;
        }
        if rule.gid.is_none() && rule.process.is_none() {
            return true;
        }
    }
    uid == 0
}

/// Of whom it needs no look at the rules: `enum rt_may`, and the user.
fn at_once(rules: &[UseRule]) -> (u32, u32) {
    let user = rules.iter().filter_map(|rule| rule.uid).find(|&uid| uid != 0 && surely(rules, uid));
    let root = if surely(rules, 0) { may::ROOT } else { 0 };
    (root | user.map_or(0, |_| may::USER), user.unwrap_or(0))
}

/// All of them, in order.
pub(crate) fn pack(rules: &[UseRule]) -> Result<RtUse, PlaneError> {
    if rules.len() > RULES_MAX {
        return Err(PlaneError::Full(format!("{} rules; at most {RULES_MAX}", rules.len())));
    }
    let count = u32::try_from(rules.len()).unwrap_or(u32::MAX);
    let (may, user) = at_once(rules);
    let mut packed = RtUse { count, may, user, pad: 0, rule: [RtRule::default(); RULES_MAX] };
    for (slot, rule) in packed.rule.iter_mut().zip(rules) {
        *slot = rule.into();
    }
    Ok(packed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_names_what_it_names() {
        let nobody = UseRule { uid: None, gid: None, process: None, allow: false };
        let packed = RtRule::from(&nobody);
        assert_eq!((packed.names, packed.allow), (0, 0));
        let all = UseRule { uid: Some(0), gid: Some(7), process: Some((5, 99)), allow: true };
        let packed = RtRule::from(&all);
        assert_eq!((packed.names, packed.allow, packed.uid, packed.gid), (7, 1, 0, 7));
        assert_eq!((packed.tgid, packed.start), (5, 99));
    }

    #[test]
    fn who_may_at_once_may_by_the_rules() {
        let rule = |uid: Option<u32>, gid: Option<u32>, allow: bool| UseRule {
            uid,
            gid,
            process: None,
            allow,
        };
        let all = [may::USER | may::ROOT, may::ROOT, may::USER, 0];
        for (rules, expected) in [
            (vec![], (all[1], 0)),
            (vec![rule(Some(5), None, true)], (all[0], 5)),
            (
                vec![
                    rule(Some(0), None, true),
                    rule(Some(5), None, false),
                    rule(Some(5), None, true),
                ],
                (all[1], 0),
            ),
            (
                vec![
                    rule(Some(0), None, true),
                    rule(Some(6), None, false),
                    rule(Some(5), None, true),
                ],
                (all[0], 5),
            ),
            (
                vec![
                    rule(Some(0), None, true),
                    rule(None, Some(9), false),
                    rule(Some(5), None, true),
                ],
                (all[1], 0),
            ),
            (vec![rule(Some(5), Some(9), true), rule(Some(5), None, false)], (all[1], 0)),
            (vec![rule(Some(5), Some(9), true), rule(Some(6), None, true)], (all[0], 6)),
            (vec![rule(None, None, true)], (all[1], 0)),
            (vec![rule(None, None, false), rule(Some(0), None, true)], (all[3], 0)),
            (vec![rule(Some(5), None, true), rule(None, None, false)], (all[2], 5)),
        ] {
            assert_eq!(at_once(&rules), expected, "{rules:?}");
        }
    }

    #[test]
    fn more_rules_than_there_is_room_for_are_refused() {
        let rule = UseRule { uid: Some(1), gid: None, process: None, allow: true };
        assert_eq!(
            pack(&vec![rule; RULES_MAX]).ok().map(|p| p.count),
            u32::try_from(RULES_MAX).ok()
        );
        assert!(matches!(pack(&vec![rule; RULES_MAX + 1]), Err(PlaneError::Full(_))));
    }
}
