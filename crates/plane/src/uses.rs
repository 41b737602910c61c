// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who may use a queue, as the programs in the kernel ask it: the Rust face of `bpf/use.h`. Tests of both drivers' tables compare the sizes.

use reserv_model::UseRule;

use crate::PlaneError;

/// `RT_RULES_MAX`
pub(crate) const RULES_MAX: usize = reserv_model::USE_RULES_MAX;

/// `enum rt_rule_names`
mod names {
    pub(super) const UID: u32 = 1;
    pub(super) const GID: u32 = 2;
    pub(super) const PID: u32 = 4;
}

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

/// All of them, in order.
pub(crate) fn pack(rules: &[UseRule]) -> Result<RtUse, PlaneError> {
    if rules.len() > RULES_MAX {
        return Err(PlaneError::Full(format!("{} rules; at most {RULES_MAX}", rules.len())));
    }
    let count = u32::try_from(rules.len()).unwrap_or(u32::MAX);
    let mut packed = RtUse { count, pad: 0, rule: [RtRule::default(); RULES_MAX] };
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
    fn more_rules_than_there_is_room_for_are_refused() {
        let rule = UseRule { uid: Some(1), gid: None, process: None, allow: true };
        assert_eq!(pack(&vec![rule; RULES_MAX]).ok().map(|p| p.count), u32::try_from(RULES_MAX).ok());
        assert!(matches!(pack(&vec![rule; RULES_MAX + 1]), Err(PlaneError::Full(_))));
    }
}
