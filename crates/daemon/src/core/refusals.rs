// SPDX-License-Identifier: MIT OR Apache-2.0
//! The last refusals, for `status`. No user drives out those of others, and however many names he
//! has, none of root's: those have places of their own.

use std::collections::VecDeque;

use super::status::Refused;
use crate::quiet::Quiet;
use crate::refusal::Refusal;

/// Refusals that are kept of root, and as many of all others.
const REFUSALS_MAX: usize = 16;

/// See the head of this file.
#[derive(Default)]
pub(super) struct Refusals {
    last: VecDeque<Refused>,
    quiet: Quiet,
}

impl Refusals {
    /// Answers whether it is logged: with how many before it that were not.
    pub(super) fn add(
        &mut self,
        uid: u32,
        what: &str,
        refusal: &Refusal,
        at_ms: u64,
    ) -> Option<u64> {
        let last = &self.last;
        let same: Vec<usize> =
            (0..last.len()).filter(|at| (last[*at].uid == 0) == (uid == 0)).collect();
        if same.len() == REFUSALS_MAX {
            let of = |at: usize| last.iter().filter(|one| one.uid == last[at].uid).count();
            let most = same.iter().map(|at| of(*at)).max();
            let oldest = same.iter().find(|at| Some(of(**at)) == most).copied();
            self.last.remove(oldest.unwrap_or(0));
        }
        let Refusal { errno, text, hint } = refusal.clone();
        self.last.push_back(Refused { uid, what: what.to_owned(), errno, text, hint, at_ms });
        self.quiet.says(uid, at_ms)
    }

    /// All of them, newest last.
    pub(super) fn all(&self) -> Vec<Refused> {
        self.last.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(all: &mut Refusals, uid: u32, what: &str) {
        all.add(uid, what, &Refusal::new(libc::EACCES, "no"), 0);
    }

    fn of(all: &Refusals, uid: u32) -> Vec<String> {
        all.all().into_iter().filter(|one| one.uid == uid).map(|one| one.what).collect()
    }

    #[test]
    fn many_names_drive_out_none_of_roots() {
        let mut all = Refusals::default();
        for what in ["a", "b", "c"] {
            add(&mut all, 0, what);
        }
        (1000..1100).for_each(|uid| add(&mut all, uid, "x"));
        assert_eq!(of(&all, 0), ["a", "b", "c"]);
        assert_eq!(all.all().len(), 3 + REFUSALS_MAX);
        (0..100).for_each(|_| add(&mut all, 0, "d"));
        assert_eq!(of(&all, 0).len(), REFUSALS_MAX, "nor he theirs");
        assert_eq!(all.all().len(), 2 * REFUSALS_MAX);
    }

    #[test]
    fn who_has_most_loses_his_oldest() {
        let mut all = Refusals::default();
        add(&mut all, 7, "a");
        (0..100).for_each(|n| add(&mut all, 8, &n.to_string()));
        assert_eq!(of(&all, 7), ["a"]);
        assert_eq!(of(&all, 8).last().map(String::as_str), Some("99"));
        assert_eq!(of(&all, 8).len(), REFUSALS_MAX - 1);
    }
}
