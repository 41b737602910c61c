// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who but root opened the files of a tree that are kept. Pure.
//!
//! A file's opener is his process and the number of his credentials: these are kept, and stand in
//! the journal, once, for they may be 65 536 groups. They are known as long as a file refers to
//! them; with the first file of the journal that does they are written there ([`OpenedBy`]), and
//! with the last one they are forgotten, by who writes it and by who reads it.
//!
//! A handle is one open file's, whose opener is one, for whatever he is known.
//!
//! How many files a user has is bounded (`portions.rs`). One that is known already, because the
//! request that opened it is sent again, or whose node may be collected from now on, takes nothing
//! more; nor is one refused that another worker has left.

use std::collections::BTreeMap;

use reserv_model::{Caller, Groups};
use serde::{Deserialize, Serialize};

use crate::portions::{Portions, of_groups};
use crate::refusal::Refusal;

/// What a file's opener is known for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// It counts as long as he has a right at its node.
    Counts = 1,
    /// The same in the journal, of a node that may be collected.
    Keeps = 2,
    /// He opened it to write: in the journal, whatever becomes of his rights.
    Writes = 4,
}

/// What is in the journal.
const JOURNALED: u8 = Use::Keeps as u8 | Use::Writes as u8;

/// As whom somebody asks, whichever of his processes it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Credentials {
    uid: u32,
    gid: u32,
    groups: Groups,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unseen: bool,
}

impl Credentials {
    fn of(who: &Caller) -> Self {
        let &Caller { uid, gid, unseen, .. } = who;
        Self { uid, gid, groups: who.groups.clone(), unseen }
    }

    fn places(&self) -> usize {
        of_groups(self.groups.len())
    }
}

/// The number of somebody's credentials, his process and its start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Opener(u64, u32, u64);

/// As the journal is told: with his credentials, where they are not in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OpenedBy {
    by: Opener,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    who: Option<Credentials>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    who: Credentials,
    /// That refer to them.
    files: usize,
    /// Of those, how many are in the journal.
    journaled: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct File {
    by: Opener,
    uses: u8,
}

/// See the head of this file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Openers {
    files: BTreeMap<u64, File>,
    known: BTreeMap<u64, Known>,
    numbers: BTreeMap<Credentials, u64>,
    /// No number from here on was given.
    next: u64,
    portions: Portions,
}

impl Openers {
    /// Whether he may have one more file. `handle`: unless it is this one.
    pub(crate) fn admit(&self, handle: Option<u64>, who: &Caller) -> Result<(), Refusal> {
        if who.uid == 0 || handle.is_some_and(|handle| self.files.contains_key(&handle)) {
            return Ok(());
        }
        let credentials = Credentials::of(who);
        let known = self.numbers.contains_key(&credentials);
        self.portions.admit(who.uid, 1 + if known { 0 } else { credentials.places() })
    }

    /// Somebody, as the journal is told.
    pub(crate) fn told(&self, who: &Caller) -> OpenedBy {
        let credentials = Credentials::of(who);
        let number = self.numbers.get(&credentials).copied();
        let journaled =
            number.and_then(|n| self.known.get(&n)).is_some_and(|known| known.journaled > 0);
        let by = Opener(number.unwrap_or(self.next), who.pid, who.start);
        OpenedBy { by, who: (!journaled).then_some(credentials) }
    }

    /// He has opened it. False: nobody has said who that is.
    pub(crate) fn add(&mut self, handle: u64, what: Use, told: OpenedBy) -> bool {
        let OpenedBy { by, who } = told;
        if let Some(who) = who
            && !self.known.contains_key(&by.0)
        {
            self.portions.take(who.uid, who.places());
            self.numbers.insert(who.clone(), by.0);
            self.known.insert(by.0, Known { who, files: 0, journaled: 0 });
            self.next = self.next.max(by.0.wrapping_add(1));
        }
        if !self.known.contains_key(&by.0) {
            return false;
        }
        // Who had the handle before is sent again, or has not been heard to close it.
        let before = self.files.get(&handle).map_or(0, |file| file.uses);
        self.set(handle, by, before | what as u8);
        true
    }

    /// The same of somebody whom the journal is not told of.
    pub(crate) fn add_caller(&mut self, handle: u64, what: Use, who: &Caller) {
        let told = OpenedBy { who: Some(Credentials::of(who)), ..self.told(who) };
        self.add(handle, what, told);
    }

    /// He is not known any more for this.
    pub(crate) fn remove(&mut self, handle: u64, what: Use) {
        if let Some(&File { by, uses }) = self.files.get(&handle) {
            self.set(handle, by, uses & !(what as u8));
        }
    }

    fn set(&mut self, handle: u64, by: Opener, uses: u8) {
        let file = (uses != 0).then_some(File { by, uses });
        // The new one first: what both refer to stays.
        self.refer(file.as_ref(), 1);
        let before = match file {
            Some(file) => self.files.insert(handle, file),
            None => self.files.remove(&handle),
        };
        self.refer(before.as_ref(), -1);
    }

    fn refer(&mut self, file: Option<&File>, by: isize) {
        let Some(&File { by: Opener(number, ..), uses }) = file else { return };
        let Some(known) = self.known.get_mut(&number) else { return };
        known.files = known.files.saturating_add_signed(by);
        if uses & JOURNALED != 0 {
            known.journaled = known.journaled.saturating_add_signed(by);
        }
        let uid = known.who.uid;
        if by > 0 {
            return self.portions.take(uid, 1);
        }
        self.portions.give_back(uid, 1);
        if known.files == 0
            && let Some(Known { who, .. }) = self.known.remove(&number)
        {
            self.portions.give_back(uid, who.places());
            if self.numbers.get(&who) == Some(&number) {
                self.numbers.remove(&who);
            }
        }
    }

    /// Who opened a file, if that is known for this; `None`: root.
    pub(crate) fn get(&self, handle: u64, what: Use) -> Option<Caller> {
        let file = self.files.get(&handle).filter(|file| file.uses & what as u8 != 0)?;
        let Opener(number, pid, start) = file.by;
        let Credentials { uid, gid, groups, unseen } = self.known.get(&number)?.who.clone();
        Some(Caller { uid, gid, groups, pid, start, unseen })
    }

    /// No file is open.
    pub(crate) fn clear(&mut self) {
        *self = Self { next: self.next, ..Self::default() };
    }

    /// What the snapshot of a journal has of them: the credentials, and the files of each use.
    pub(crate) fn saved(&self) -> Saved {
        let of = |what: Use| {
            let files = self.files.iter().filter(|(_, file)| file.uses & what as u8 != 0);
            files.map(|(handle, file)| (*handle, file.by)).collect()
        };
        let journaled = self.known.iter().filter(|(_, known)| known.journaled > 0);
        Saved {
            credentials: journaled.map(|(number, known)| (*number, known.who.clone())).collect(),
            keeping: of(Use::Keeps),
            writing: of(Use::Writes),
        }
    }

    /// Out of such a snapshot; `None`: it says of some file not who opened it.
    pub(crate) fn read(saved: Saved) -> Option<Self> {
        let mut openers = Self::default();
        let Saved { credentials, keeping, writing } = saved;
        for (files, what) in [(keeping, Use::Keeps), (writing, Use::Writes)] {
            for (handle, by) in files {
                let who = credentials.get(&by.0).cloned();
                if !openers.add(handle, what, OpenedBy { by, who }) {
                    return None;
                }
            }
        }
        Some(openers)
    }
}

/// What the snapshot of a journal has of them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Saved {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    credentials: BTreeMap<u64, Credentials>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    keeping: BTreeMap<u64, Opener>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    writing: BTreeMap<u64, Opener>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(uid: u32, groups: u32, pid: u32) -> Caller {
        let groups = (1..=groups).collect::<Vec<u32>>().into();
        Caller { uid, gid: uid, groups, pid, start: 9, unseen: false }
    }

    /// Opens a file as the engine does: the journal is told, then it is noted.
    fn open(
        openers: &mut Openers,
        journal: &mut Vec<(u64, Use, OpenedBy)>,
        file: (u64, Use),
        by: &Caller,
    ) {
        let told = openers.told(by);
        journal.push((file.0, file.1, told.clone()));
        assert!(openers.add(file.0, file.1, told));
    }

    #[test]
    fn credentials_stand_once_whatever_refers_to_them() {
        let (mut openers, mut journal) = (Openers::default(), Vec::new());
        for handle in 0..100 {
            let by = who(7, 65_536, 100 + u32::try_from(handle % 10).unwrap());
            assert!(openers.admit(Some(handle), &by).is_ok());
            open(&mut openers, &mut journal, (handle, Use::Writes), &by);
            assert_eq!(openers.get(handle, Use::Writes), Some(by));
            assert_eq!(openers.get(handle, Use::Keeps), None);
        }
        assert_eq!(journal.iter().filter(|(.., told)| told.who.is_some()).count(), 1);
        let text = serde_json::to_string(&openers.saved()).unwrap();
        assert!(text.len() < 500_000, "{}", text.len());
        let read = Openers::read(serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(read, openers);
        for handle in 0..100 {
            openers.remove(handle, Use::Writes);
        }
        assert_eq!(openers, Openers { next: 1, ..Openers::default() }, "nothing is left");
    }

    /// What one worker knows the next one reads, whatever was opened and closed, and also where
    /// the journal is not told of a file.
    #[test]
    fn who_reads_the_journal_knows_who_wrote_it() {
        let (mut live, mut journal, mut read) =
            (Openers::default(), Vec::new(), Openers::default());
        let mut random = 12_345_u64;
        for _ in 0..4000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (handle, n) = (random >> 33 & 31, u32::try_from(random >> 40 & 7).unwrap());
            let there = [Use::Counts, Use::Writes].iter().find_map(|what| live.get(handle, *what));
            let by = there.unwrap_or_else(|| who(1 + n % 3, n, n));
            match random >> 50 & 3 {
                0 => live.add_caller(handle, Use::Counts, &by),
                1 => live.remove(handle, Use::Counts),
                2 => {
                    open(&mut live, &mut journal, (handle, Use::Writes), &by);
                    let (handle, what, told) = journal.pop().unwrap();
                    assert!(read.add(handle, what, told), "it says who that is");
                }
                _ => {
                    live.remove(handle, Use::Writes);
                    read.remove(handle, Use::Writes);
                }
            }
            for handle in 0..32 {
                assert_eq!(live.get(handle, Use::Writes), read.get(handle, Use::Writes));
            }
            assert_eq!(Openers::read(live.saved()).unwrap().files, read.files);
        }
    }

    #[test]
    fn a_user_is_refused_and_what_is_open_is_not() {
        let (mut openers, mut journal) = (Openers::default(), Vec::new());
        let by = who(7, 32, 5);
        let mut last = 0;
        while openers.admit(Some(last), &by).is_ok() {
            open(&mut openers, &mut journal, (last, Use::Writes), &by);
            last += 1;
        }
        assert_eq!(usize::try_from(last).unwrap() + 2, crate::portions::OF_ONE_MAX);
        assert!(openers.admit(Some(0), &by).is_ok(), "that is open");
        assert!(openers.admit(None, &who(8, 65_536, 6)).is_ok(), "another");
        assert!(openers.admit(None, &Caller::root()).is_ok());
        openers.remove(3, Use::Writes);
        assert!(openers.admit(None, &by).is_ok());
        let another = who(7, 33, 5);
        assert!(openers.admit(None, &another).is_err(), "other groups take more");
    }

    #[test]
    fn a_file_of_nobody_is_damage() {
        let mut openers = Openers::default();
        assert!(!openers.add(1, Use::Writes, OpenedBy { by: Opener(5, 1, 1), who: None }));
        let saved = Saved { writing: [(1, Opener(5, 1, 1))].into(), ..Saved::default() };
        assert!(Openers::read(saved).is_none());
    }
}
