// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups that somebody is in: sorted, each once, and shared by all who know them, for there may be
//! 65 536 (Linux, `NGROUPS_MAX`) and many may ask on behalf of who is in them.

use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// See the head of this file.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "Vec<u32>", into = "Vec<u32>")]
pub struct Groups(Arc<[u32]>);

impl Groups {
    /// Whether it is one of them.
    pub fn has(&self, gid: u32) -> bool {
        self.0.binary_search(&gid).is_ok()
    }
}

impl From<Vec<u32>> for Groups {
    fn from(mut groups: Vec<u32>) -> Self {
        groups.sort_unstable();
        groups.dedup();
        Self(groups.into())
    }
}

impl From<Groups> for Vec<u32> {
    fn from(groups: Groups) -> Self {
        groups.0.to_vec()
    }
}

impl Deref for Groups {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_sorted_and_each_there_once_also_where_they_are_read() {
        let groups = Groups::from(vec![7, 5, 7, 5, 9]);
        assert_eq!(*groups, [5, 7, 9]);
        assert!(groups.has(7) && !groups.has(6) && !Groups::default().has(0));
        let read: Groups = serde_json::from_str("[9,9,5,7]").unwrap();
        assert_eq!(read, groups);
        assert_eq!(serde_json::to_string(&read).unwrap(), "[5,7,9]");
    }
}
