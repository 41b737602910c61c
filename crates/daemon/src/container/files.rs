// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open files of containers: by handle, which container and which user's. Pure.

use std::collections::BTreeMap;

use reserv_model::ContainerId;

use crate::portions::Portions;
use crate::refusal::Refusal;

/// Its container, and who opened it; 0: root.
pub(super) type File = (ContainerId, u32);

/// See the head of this file.
#[derive(Default)]
pub(super) struct Files {
    all: BTreeMap<u64, File>,
    portions: Portions,
}

impl Files {
    /// Whether a user may have one more.
    pub(super) fn admit(&self, uid: u32) -> Result<(), Refusal> {
        self.portions.admit(uid, 1)
    }

    pub(super) fn get(&self, handle: u64) -> Option<File> {
        self.all.get(&handle).copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, File)> + '_ {
        self.all.iter().map(|(handle, file)| (*handle, *file))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn opened(&mut self, handle: u64, file: File) {
        self.closed(handle);
        self.all.insert(handle, file);
        self.portions.take(file.1, 1);
    }

    pub(super) fn closed(&mut self, handle: u64) {
        if let Some((_, uid)) = self.all.remove(&handle) {
            self.portions.give_back(uid, 1);
        }
    }

    /// A container is gone.
    pub(super) fn gone(&mut self, id: ContainerId) {
        let of: Vec<u64> = self.iter().filter(|(_, file)| file.0 == id).map(|f| f.0).collect();
        for handle in of {
            self.closed(handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_so_many_until_they_are_closed_or_the_container_is_gone() {
        let (one, other) = (ContainerId::TOP, ContainerId { index: 1, ..ContainerId::TOP });
        let mut files = Files::default();
        let mut last = 0;
        while files.admit(7).is_ok() {
            files.opened(last, (if last % 2 == 0 { one } else { other }, 7));
            last += 1;
        }
        assert_eq!(usize::try_from(last).unwrap(), crate::portions::OF_ONE_MAX);
        assert!(files.admit(8).is_ok() && files.admit(0).is_ok());
        files.opened(0, (one, 7));
        assert!(files.admit(7).is_err(), "the same again");
        files.closed(0);
        files.closed(0);
        assert!(files.admit(7).is_ok() && files.get(0).is_none());
        files.gone(other);
        assert!(files.iter().all(|(_, file)| file == (one, 7)));
        files.gone(one);
        assert!(files.is_empty() && files.portions == Portions::default());
    }
}
