// SPDX-License-Identifier: MIT OR Apache-2.0
//! The last refusals, for `status`. No user drives out those of others.

use std::collections::VecDeque;

use super::quiet::Quiet;
use super::status::Refused;
use crate::refusal::Refusal;

/// Refusals that are kept.
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
        if self.last.len() == REFUSALS_MAX {
            let of = |uid: u32| self.last.iter().filter(|one| one.uid == uid).count();
            let most = self.last.iter().map(|one| of(one.uid)).max();
            let oldest = self.last.iter().position(|one| Some(of(one.uid)) == most);
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
