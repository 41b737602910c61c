// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much of what reservd keeps of open files is each user's. It is counted in places: one for a
//! file, and one for each [`GROUPS`] groups of who opens it, once for all files that he opens with
//! the same groups. Pure.
//!
//! Rules
//! * Root has as many as he likes.
//! * A user has at most a ninth of what the others leave: [`OF_ONE_MAX`] where he is alone, and
//!   where `n` others took all that they got, in turn, still (8/9)ⁿ of that. A bound that follows
//!   what is free keeps room for who comes next without a share for each user that there may be
//!   (Choudhury and Hahne, Dynamic Queue Length Thresholds for Shared-Memory Packet Switches,
//!   §III; α is 1/8 here).
//! * All together take less than half of the longest snapshot of a journal.

use std::collections::BTreeMap;

use crate::refusal::Refusal;

/// Places of one user.
pub(crate) const OF_ONE_MAX: usize = OF_ALL_MAX / PARTS;
/// Places of all users but root.
pub(crate) const OF_ALL_MAX: usize = 9 * 8192;
/// A user has one of so many parts of what the others leave.
const PARTS: usize = 9;
/// So many groups take a place.
const GROUPS: usize = 16;
/// What a place takes in a journal at most: a file's handle thrice, its node, who opened it
/// and his credentials; or so many groups.
const BYTES: usize = 320;

const _: () = assert!(OF_ALL_MAX * BYTES * 2 < crate::journal::PAYLOAD_MAX);

/// What somebody's groups take, beside the place of each of his files.
pub(crate) const fn of_groups(groups: usize) -> usize {
    groups.div_ceil(GROUPS)
}

/// See the head of this file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Portions {
    users: BTreeMap<u32, usize>,
    all: usize,
}

impl Portions {
    fn of(&self, uid: u32) -> usize {
        self.users.get(&uid).copied().unwrap_or(0)
    }

    /// Whether a user may have so many more.
    pub(crate) fn admit(&self, uid: u32, places: usize) -> Result<(), Refusal> {
        let own = self.of(uid);
        let most = OF_ALL_MAX.saturating_sub(self.all - own) / PARTS;
        if uid == 0 || own + places <= most {
            return Ok(());
        }
        let text = format!(
            "the open files of uid {uid} take {own} places of at most {most}, this one {places} \
             more"
        );
        let hint = format!(
            "close some: a user's files take at most {OF_ONE_MAX} places, and a ninth of what \
             others leave: one a file, and one for {GROUPS} groups of who opens it"
        );
        Err(Refusal { errno: libc::EMFILE, text, hint })
    }

    /// He has them.
    pub(crate) fn take(&mut self, uid: u32, places: usize) {
        if uid != 0 && places > 0 {
            *self.users.entry(uid).or_default() += places;
            self.all += places;
        }
    }

    /// He has them no more.
    pub(crate) fn give_back(&mut self, uid: u32, places: usize) {
        let Some(own) = self.users.get_mut(&uid) else { return };
        let places = places.min(*own);
        *own -= places;
        self.all -= places;
        if *own == 0 {
            self.users.remove(&uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greedy(portions: &mut Portions, uid: u32) -> usize {
        while portions.admit(uid, 1).is_ok() {
            portions.take(uid, 1);
        }
        portions.of(uid)
    }

    #[test]
    fn a_user_has_so_many_and_another_and_root_have_theirs() {
        let mut portions = Portions::default();
        assert_eq!(greedy(&mut portions, 7), OF_ONE_MAX);
        let refusal = portions.admit(7, 1).unwrap_err();
        assert_eq!(refusal.errno, libc::EMFILE);
        assert!(refusal.text.contains("uid 7 take 8192 places of at most 8192"), "{refusal}");
        assert!(refusal.hint.contains("at most 8192 places"), "{}", refusal.hint);
        assert_eq!(greedy(&mut portions, 8), (OF_ALL_MAX - OF_ONE_MAX) / PARTS);
        portions.take(0, 1 << 40);
        assert!(portions.admit(0, 1 << 40).is_ok());
        portions.give_back(8, OF_ONE_MAX);
        portions.give_back(7, 1);
        assert!(portions.admit(7, 1).is_ok() && portions.admit(7, 2).is_err());
        portions.give_back(7, OF_ONE_MAX);
        portions.give_back(9, 1);
        assert_eq!(portions, Portions::default());
    }

    #[test]
    fn many_users_leave_room_for_another() {
        let mut portions = Portions::default();
        let all: Vec<usize> = (1..=50).map(|uid| greedy(&mut portions, uid)).collect();
        assert!(all.is_sorted_by(|one, next| one > next), "{all:?}");
        assert!(greedy(&mut portions, 51) > 20, "{} are taken", portions.all);
        for uid in 1..=5000 {
            greedy(&mut portions, uid);
        }
        assert!(portions.all <= OF_ALL_MAX, "{}", portions.all);
    }

    #[test]
    fn the_most_groups_that_linux_knows_have_room() {
        let places = 1 + of_groups(65_536);
        assert!(Portions::default().admit(7, places).is_ok());
        assert_eq!((of_groups(0), of_groups(1), of_groups(16), of_groups(17)), (0, 1, 1, 2));
    }
}
