// SPDX-License-Identifier: MIT OR Apache-2.0
//! Texts of files that were read from their beginning and not yet to their end, so that who reads
//! on reads the same text. Bounded in bytes, for each user and for all but root: beyond it the
//! user's own oldest goes, and is made anew if it is read on. What was read to its end is dropped
//! but for its length, for most readers ask once more. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

/// What is kept for one user, in bytes.
const OF_ONE_MAX: usize = 1 << 20;
/// For all users together but root.
const OF_USERS_MAX: usize = 16 << 20;
/// For root.
const OF_ROOT_MAX: usize = 64 << 20;
/// What an entry costs beside its text.
const OVERHEAD: usize = 128;

/// What is known of an open file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// Its text.
    Text(Arc<[u8]>),
    /// It had this length, and was read.
    Read(u64),
}

impl Kept {
    fn cost(&self) -> usize {
        match self {
            Self::Text(text) => text.len() + OVERHEAD,
            Self::Read(_) => OVERHEAD,
        }
    }
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Texts {
    /// By handle, which are numbers that grow.
    files: BTreeMap<u64, (u32, Kept)>,
    used: BTreeMap<u32, usize>,
}

impl Texts {
    /// Of an open file.
    pub(super) fn get(&self, handle: u64) -> Option<Kept> {
        self.files.get(&handle).map(|(_, kept)| kept.clone())
    }

    /// Its reader is this user. Not kept where there is no room for it.
    pub(super) fn keep(&mut self, handle: u64, uid: u32, kept: Kept) {
        self.closed(handle);
        let cost = kept.cost();
        let most = if uid == 0 { OF_ROOT_MAX } else { OF_ONE_MAX };
        if cost > most {
            return;
        }
        while self.of(uid) + cost > most {
            let Some(oldest) =
                self.files.iter().find(|(_, (of, _))| *of == uid).map(|(handle, _)| *handle)
            else {
                break;
            };
            self.closed(oldest);
        }
        if uid != 0 {
            let users: usize =
                self.used.iter().filter(|(uid, _)| **uid != 0).map(|(_, used)| used).sum();
            if users + cost > OF_USERS_MAX {
                return;
            }
        }
        *self.used.entry(uid).or_default() += cost;
        self.files.insert(handle, (uid, kept));
    }

    fn of(&self, uid: u32) -> usize {
        self.used.get(&uid).copied().unwrap_or(0)
    }

    /// The file was closed.
    pub(super) fn closed(&mut self, handle: u64) {
        let Some((uid, kept)) = self.files.remove(&handle) else { return };
        if let Some(used) = self.used.get_mut(&uid) {
            *used -= kept.cost();
            if *used == 0 {
                self.used.remove(&uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(len: usize) -> Kept {
        Kept::Text(vec![b'x'; len].into())
    }

    #[test]
    fn a_user_has_so_many_bytes_and_loses_his_own_oldest() {
        let mut texts = Texts::default();
        texts.keep(1, 8, text(50_000));
        for handle in 2..502 {
            texts.keep(handle, 7, text(50_000));
        }
        assert!(texts.of(7) <= OF_ONE_MAX);
        assert_eq!((texts.get(2), texts.get(501)), (None, Some(text(50_000))));
        assert_eq!(texts.get(1), Some(text(50_000)), "another's stays");
        texts.keep(501, 7, Kept::Read(50_000));
        assert_eq!(texts.get(501), Some(Kept::Read(50_000)));
        texts.keep(600, 7, text(OF_ONE_MAX));
        assert_eq!(texts.get(600), None, "larger than all that he has");
        (1..=600).for_each(|handle| texts.closed(handle));
        assert!(texts.files.is_empty() && texts.used.is_empty());
    }

    #[test]
    fn all_users_together_have_so_many_and_root_has_his() {
        let mut texts = Texts::default();
        for uid in 1..100 {
            texts.keep(u64::from(uid), uid, text(1_000_000));
        }
        let all: usize = texts.used.values().sum();
        assert!(all <= OF_USERS_MAX && all > OF_USERS_MAX - 1_100_000, "{all}");
        texts.keep(1000, 0, text(10 << 20));
        assert_eq!(texts.get(1000), Some(text(10 << 20)));
    }
}
