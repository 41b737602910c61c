// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much of what users do wrong is logged. Anybody can be refused as often as he likes; he is
//! not to fill the log with it, nor to drive out of it what others did. Pure: time is an argument.

use std::collections::BTreeMap;

/// Lines that a user may cause at once, and then one in so many milliseconds.
const OF_ONE: (u32, u64) = (20, 10_000);
/// The same of all users together but root, who may have many names.
const OF_ALL: (u32, u64) = (200, 1_000);
/// Most users of whom is known what they had.
const USERS_MAX: usize = 1024;

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// Lines that may still come.
    left: u32,
    /// Up to when what has come back is in `left`.
    at_ms: u64,
    /// Refusals that were not logged.
    unsaid: u64,
}

impl Bucket {
    fn full((most, _): (u32, u64), now_ms: u64) -> Self {
        Self { left: most, at_ms: now_ms, unsaid: 0 }
    }

    fn refill(&mut self, (most, every): (u32, u64), now_ms: u64) {
        let back = now_ms.saturating_sub(self.at_ms) / every;
        self.left = u32::try_from(back).unwrap_or(most).saturating_add(self.left).min(most);
        self.at_ms = if self.left == most { now_ms } else { self.at_ms + back * every };
    }
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(crate) struct Quiet {
    users: BTreeMap<u32, Bucket>,
    all: Option<Bucket>,
}

impl Quiet {
    /// Whether a refusal is logged: with how many before it that were not.
    pub(crate) fn says(&mut self, uid: u32, now_ms: u64) -> Option<u64> {
        let all = self.all.get_or_insert(Bucket::full(OF_ALL, now_ms));
        all.refill(OF_ALL, now_ms);
        if self.users.len() >= USERS_MAX && !self.users.contains_key(&uid) {
            self.users.retain(|_, bucket| {
                bucket.refill(OF_ONE, now_ms);
                bucket.left < OF_ONE.0
            });
            if self.users.len() >= USERS_MAX {
                return None;
            }
        }
        let own = self.users.entry(uid).or_insert(Bucket::full(OF_ONE, now_ms));
        own.refill(OF_ONE, now_ms);
        if own.left == 0 || (uid != 0 && all.left == 0) {
            own.unsaid += 1;
            return None;
        }
        own.left -= 1;
        if uid != 0 {
            all.left -= 1;
        }
        Some(std::mem::take(&mut own.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_heard_at_once_and_then_now_and_then() {
        let mut quiet = Quiet::default();
        let said = (0..1000).filter(|_| quiet.says(1000, 0).is_some()).count();
        assert_eq!(said, 20);
        assert_eq!(quiet.says(1001, 0), Some(0), "another is not silenced");
        assert_eq!((quiet.says(1000, 9_999), quiet.says(1000, 10_000)), (None, Some(981)));
        assert_eq!(quiet.says(1000, 10_001), None);
        let hour = (0..3_600_000)
            .step_by(100)
            .filter(|ms| quiet.says(1000, 20_000 + ms).is_some())
            .count();
        assert_eq!(hour, 360);
    }

    #[test]
    fn many_users_are_bounded_together_and_root_is_heard() {
        let mut quiet = Quiet::default();
        let said = (1..100_000).filter(|uid| quiet.says(*uid, 0).is_some()).count();
        assert_eq!(said, 200);
        assert!(quiet.users.len() <= USERS_MAX);
        let mut quiet = Quiet::default();
        (0..10).for_each(|_| assert!(quiet.says(0, 0).is_some()));
        (1..500).for_each(|uid| assert!(quiet.says(uid, 0).is_none() || uid <= 200));
        assert_eq!(quiet.says(0, 0), Some(0));
        let later = 1_000_000;
        (0..2048)
            .for_each(|n| assert!(quiet.says(5000 + n, later + u64::from(n) * 60_000).is_some()));
        assert!(quiet.users.len() <= USERS_MAX, "who was silent long enough is forgotten");
    }
}
