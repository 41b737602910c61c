// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a reply says, for who asks without the kernel in between.

use super::proto::Reply;

/// Where `attr` begins in `fuse_entry_out`, and `mode` in that.
const MODE_AT: usize = 40 + 60;
/// The fixed part of a `fuse_dirent`.
const DIRENT: usize = 24;

/// An entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What it is called.
    pub name: String,
    /// Its inode number.
    pub inode: u64,
    /// Whether it is a directory.
    pub directory: bool,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

impl Reply {
    /// The inode that a lookup found, and its mode.
    pub fn seen_entry(&self) -> Option<(u64, u32)> {
        let node = u64::from_ne_bytes(self.body().get(..8)?.try_into().ok()?);
        Some((node, u32_at(self.body(), MODE_AT)?))
    }

    /// What a listing has.
    pub fn seen_dirents(&self) -> Vec<Seen> {
        let mut rest = self.body();
        let mut found = Vec::new();
        while let (Some(length), Some(kind)) = (u32_at(rest, 16), u32_at(rest, 20)) {
            let end = DIRENT + length as usize;
            let Some(name) = rest.get(DIRENT..end) else { break };
            let inode =
                rest.get(..8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes);
            let name = String::from_utf8_lossy(name).into_owned();
            found.push(Seen { name, inode, directory: kind == libc::S_IFDIR >> 12 });
            rest = rest.get(end.next_multiple_of(8)..).unwrap_or_default();
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::proto::{Attr, Cache};
    use super::*;

    #[test]
    fn what_is_written_is_seen() {
        let mut reply = Reply::default();
        reply.clear();
        assert_eq!(reply.seen_entry(), None);
        assert_eq!(reply.seen_dirents(), []);
        let attr = Attr { ino: 7, mode: 0o40755, nlink: 2, uid: 0, gid: 0, time: 1 };
        reply.entry(9, &attr, Cache::default());
        assert_eq!(reply.seen_entry(), Some((9, 0o40755)));
        reply.clear();
        for (at, directory, name) in
            [(1, Some(true), "q0"), (2, Some(false), "share"), (3, None, "self")]
        {
            assert!(reply.dirent(u32::MAX, at, at, directory, name.as_bytes()));
        }
        let wanted = [("q0", 1, true), ("share", 2, false), ("self", 3, false)];
        let seen = |(name, inode, directory)| Seen { name: String::from(name), inode, directory };
        assert_eq!(reply.seen_dirents(), wanted.map(seen));
    }
}
