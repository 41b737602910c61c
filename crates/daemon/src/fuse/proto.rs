// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's FUSE protocol as far as a synthetic file system needs it: requests are decoded
//! from, replies encoded into plain bytes, in host byte order, without `unsafe`. Pure: no
//! descriptor is touched here.
//!
//! [`reserv_facts::fuse`] has the numbers; what we use exists since 7.31, except resend (7.40,
//! Linux 6.9). A request is a header of 40 bytes and a body; a reply a header of 16 bytes and a
//! body. Unknown opcodes are answered ENOSYS, which the kernel remembers and never asks again.

use reserv_facts::fuse::{
    Head, INIT_HAS_RESEND, MAJOR, NOTIFY_INVAL_ENTRY, NOTIFY_POLL, OUT_HEADER,
    POLL_SCHEDULE_NOTIFY, Words, code, init, init_words, out_header,
};
pub use reserv_facts::fuse::{UNIQUE_RESEND, resend};

/// Longest write that the kernel hands over in one request; a longer `write(2)` comes in pieces, so
/// a first piece of this length is no command of ours.
pub const WRITE_MAX: u32 = 64 << 10;
/// Length of the buffer for one request: a write, its headers, and room for what a later kernel
/// adds.
pub const BUFFER_LEN: usize = WRITE_MAX as usize + 8192;

/// Who asks. The thread id is in the mounter's pid name space, 0 when it is not visible there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Effective (file system) uid.
    pub uid: u32,
    /// Effective (file system) gid.
    pub gid: u32,
    /// Thread id.
    pub tid: i32,
}

/// One request, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Number of the request, without the resend bit. Unique within one mount.
    pub unique: u64,
    /// Whether the kernel sends it again because a dead server took it and never answered.
    pub resent: bool,
    /// The inode that it is about (our `nodeid`).
    pub node: u64,
    /// Who asks.
    pub caller: Caller,
    /// What is asked.
    pub op: Op<'a>,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of fuse.h")]
pub enum Op<'a> {
    Init {
        major: u32,
        minor: u32,
        flags: u64,
    },
    Destroy,
    Lookup {
        name: &'a [u8],
    },
    Forget {
        count: u64,
    },
    /// Pairs of nodeid and count, 16 bytes each; read with [`forgets`].
    BatchForget {
        pairs: &'a [u8],
    },
    Getattr,
    Setattr {
        valid: u32,
        size: u64,
    },
    Readlink,
    Mkdir {
        name: &'a [u8],
    },
    Unlink {
        name: &'a [u8],
    },
    Rmdir {
        name: &'a [u8],
    },
    Rename {
        from: &'a [u8],
        new_parent: u64,
        to: &'a [u8],
        flags: u32,
    },
    Open {
        flags: u32,
    },
    Read {
        handle: u64,
        offset: u64,
        size: u32,
    },
    Write {
        handle: u64,
        offset: u64,
        data: &'a [u8],
    },
    Release {
        handle: u64,
    },
    Statfs,
    Opendir,
    Readdir {
        handle: u64,
        offset: u64,
        size: u32,
    },
    Releasedir {
        handle: u64,
    },
    Fsync,
    Access {
        mask: u32,
    },
    Poll {
        handle: u64,
        /// By what name the kernel knows who waits; `None`: nobody does.
        waits: Option<u64>,
    },
    Interrupt,
    /// Nodes that this file system never has: symlink, link, mknod, create. Refused with EPERM.
    Make,
    /// Anything else: answered ENOSYS.
    Unknown {
        opcode: u32,
    },
}

/// Attributes of an inode as the kernel wants them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// What `stat` shows as inode number.
    pub ino: u64,
    /// Type and mode bits.
    pub mode: u32,
    /// Links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// All three times, in seconds.
    pub time: u64,
}

/// How long the kernel may go without asking again, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cache {
    /// Whether the name leads to this node.
    pub entry: u64,
    /// What [`Attr`] says.
    pub attr: u64,
}

/// Decodes one request as read from `/dev/fuse`; `None` when it is not one (too short, inconsistent
/// length).
pub fn decode(bytes: &[u8]) -> Option<Request<'_>> {
    let mut words = Words(bytes);
    let Head { len, opcode, unique, node, uid, gid, pid } = Head::read(&mut words)?;
    if len as usize != bytes.len() {
        return None;
    }
    let caller = Caller { uid, gid, tid: pid.cast_signed() };
    let op = decode_op(opcode, words)?;
    Some(Request {
        unique: unique & !UNIQUE_RESEND,
        resent: unique & UNIQUE_RESEND != 0,
        node,
        caller,
        op,
    })
}

fn decode_op(opcode: u32, mut body: Words<'_>) -> Option<Op<'_>> {
    let b = &mut body;
    Some(match opcode {
        code::LOOKUP => Op::Lookup { name: b.name()? },
        code::FORGET => Op::Forget { count: b.u64()? },
        code::GETATTR => Op::Getattr,
        code::SETATTR => {
            let valid = b.u32()?;
            b.take(4 + 8)?; // padding, fh
            Op::Setattr { valid, size: b.u64()? }
        }
        code::READLINK => Op::Readlink,
        code::SYMLINK | code::MKNOD | code::LINK | code::CREATE => Op::Make,
        code::MKDIR => {
            b.take(8)?; // mode, umask
            Op::Mkdir { name: b.name()? }
        }
        code::UNLINK => Op::Unlink { name: b.name()? },
        code::RMDIR => Op::Rmdir { name: b.name()? },
        code::RENAME => {
            let new_parent = b.u64()?;
            Op::Rename { new_parent, flags: 0, from: b.name()?, to: b.name()? }
        }
        code::RENAME2 => {
            let (new_parent, flags) = (b.u64()?, b.u32()?);
            b.u32()?;
            Op::Rename { new_parent, flags, from: b.name()?, to: b.name()? }
        }
        code::OPEN => Op::Open { flags: b.u32()? },
        code::READ => Op::Read { handle: b.u64()?, offset: b.u64()?, size: b.u32()? },
        code::WRITE => {
            let (handle, offset, size) = (b.u64()?, b.u64()?, b.u32()?);
            b.take(4 + 8 + 4 + 4)?; // write_flags, lock_owner, flags, padding
            Op::Write { handle, offset, data: b.take(size as usize)? }
        }
        code::STATFS => Op::Statfs,
        code::RELEASE => Op::Release { handle: b.u64()? },
        code::FSYNC | code::FSYNCDIR => Op::Fsync,
        code::INIT => {
            let (major, minor) = (b.u32()?, b.u32()?);
            b.u32()?; // max_readahead
            let mut flags = u64::from(b.u32()?);
            if flags & init::INIT_EXT != 0 {
                flags |= u64::from(b.u32().unwrap_or(0)) << 32;
            }
            Op::Init { major, minor, flags }
        }
        code::OPENDIR => Op::Opendir,
        code::READDIR => Op::Readdir { handle: b.u64()?, offset: b.u64()?, size: b.u32()? },
        code::RELEASEDIR => Op::Releasedir { handle: b.u64()? },
        code::ACCESS => Op::Access { mask: b.u32()? },
        code::POLL => {
            let (handle, name) = (b.u64()?, b.u64()?);
            let waits = b.u32()? & POLL_SCHEDULE_NOTIFY != 0;
            Op::Poll { handle, waits: waits.then_some(name) }
        }
        code::INTERRUPT => Op::Interrupt,
        code::DESTROY => Op::Destroy,
        code::BATCH_FORGET => {
            let count = b.u32()? as usize;
            b.u32()?;
            Op::BatchForget { pairs: b.take(count.checked_mul(16)?)? }
        }
        opcode => Op::Unknown { opcode },
    })
}

/// The nodeids of a batch of forgets, with their counts.
pub fn forgets(pairs: &[u8]) -> impl Iterator<Item = (u64, u64)> + '_ {
    pairs.chunks_exact(16).filter_map(|pair| {
        let mut words = Words(pair);
        Some((words.u64()?, words.u64()?))
    })
}

/// A reply being built. The header is filled in by [`Reply::finish`].
#[derive(Debug, Default)]
pub struct Reply {
    bytes: Vec<u8>,
}

impl Reply {
    /// Starts anew, keeping the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.resize(OUT_HEADER, 0);
    }

    fn word32(&mut self, word: u32) {
        self.bytes.extend_from_slice(&word.to_ne_bytes());
    }

    fn word64(&mut self, word: u64) {
        self.bytes.extend_from_slice(&word.to_ne_bytes());
    }

    fn attr_body(&mut self, attr: &Attr) {
        self.word64(attr.ino);
        self.word64(0); // size: synthetic files have none, as in /proc
        self.word64(0); // blocks
        for _ in 0..3 {
            self.word64(attr.time);
        }
        for _ in 0..3 {
            self.word32(0); // nanoseconds
        }
        self.word32(attr.mode);
        self.word32(attr.nlink);
        self.word32(attr.uid);
        self.word32(attr.gid);
        self.word32(0); // rdev
        self.word32(4096); // blksize
        self.word32(0); // flags
    }

    /// `fuse_entry_out`.
    pub fn entry(&mut self, node: u64, attr: &Attr, cache: Cache) {
        self.word64(node);
        self.word64(0); // generation
        self.word64(cache.entry);
        self.word64(cache.attr);
        self.word64(0); // both nanoseconds
        self.attr_body(attr);
    }

    /// `fuse_attr_out`.
    pub fn attr(&mut self, attr: &Attr, cache: Cache) {
        self.word64(cache.attr);
        self.word64(0); // nanoseconds, padding
        self.attr_body(attr);
    }

    /// `fuse_open_out`.
    pub fn open(&mut self, handle: u64, flags: u32) {
        self.word64(handle);
        self.word32(flags);
        self.word32(0);
    }

    /// `fuse_write_out`.
    pub fn written(&mut self, size: u32) {
        self.word32(size);
        self.word32(0);
    }

    /// `fuse_poll_out`: the events of poll(2).
    pub fn polled(&mut self, events: u32) {
        self.word32(events);
        self.word32(0);
    }

    /// Bytes of a file, of a link's target or of a directory.
    pub fn data(&mut self, data: &[u8]) {
        self.bytes.extend_from_slice(data);
    }

    /// One `fuse_dirent`; false when it does not fit into `size` bytes any more. `next` is the
    /// offset from which to go on.
    pub fn dirent(
        &mut self,
        size: u32,
        ino: u64,
        next: u64,
        directory: Option<bool>,
        name: &[u8],
    ) -> bool {
        let padded = (24 + name.len()).next_multiple_of(8);
        if self.bytes.len() - OUT_HEADER + padded > size as usize {
            return false;
        }
        let end = self.bytes.len() + padded;
        self.word64(ino);
        self.word64(next);
        self.word32(u32::try_from(name.len()).unwrap_or(0));
        self.word32(match directory {
            Some(true) => libc::S_IFDIR >> 12,
            Some(false) => libc::S_IFREG >> 12,
            None => libc::S_IFLNK >> 12,
        });
        self.bytes.extend_from_slice(name);
        self.bytes.resize(end, 0);
        true
    }

    /// `fuse_statfs_out` of a file system without blocks.
    pub fn statfs(&mut self) {
        for _ in 0..5 {
            self.word64(0); // blocks, bfree, bavail, files, ffree
        }
        self.word32(4096); // bsize
        self.word32(255); // namelen
        self.word32(4096); // frsize
        for _ in 0..7 {
            self.word32(0); // padding, spare
        }
    }

    /// `fuse_init_out`: what we accept of what the kernel `offers`.
    pub fn init(&mut self, offers: u64) {
        let wanted = init::ATOMIC_O_TRUNC
            | init::BIG_WRITES
            | init::PARALLEL_DIROPS
            | init::INIT_EXT
            | INIT_HAS_RESEND;
        let flags = offers & wanted;
        let [low, high] = init_words(flags);
        self.word32(MAJOR);
        self.word32(38);
        self.word32(0); // max_readahead
        self.word32(low);
        self.word32(64 | 48 << 16); // max_background, congestion_threshold
        self.word32(WRITE_MAX);
        self.word32(1); // time_gran
        self.word32(0); // max_pages, map_alignment
        self.word32(high);
        for _ in 0..7 {
            self.word32(0);
        }
    }

    /// What was answered so far, without the header.
    pub fn body(&self) -> &[u8] {
        self.bytes.get(OUT_HEADER..).unwrap_or_default()
    }

    /// Closes the reply to request `unique` (with the resend bit where it had one) and gives the
    /// bytes to write. An error drops the body.
    pub fn finish(&mut self, unique: u64, error: Option<i32>) -> &[u8] {
        if error.is_some() {
            self.bytes.truncate(OUT_HEADER);
        }
        header(&mut self.bytes, error.map_or(0, |errno| -errno), unique);
        &self.bytes
    }
}

fn header(bytes: &mut [u8], error: i32, unique: u64) {
    let head = out_header(bytes.len(), error, unique);
    bytes[..OUT_HEADER].copy_from_slice(&head);
}

/// The message that makes the kernel forget a name that it may have cached. Not to be sent by the
/// thread that answers requests: the kernel waits for the directory, which a request under way may
/// hold.
pub fn forget_name(parent: u64, name: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; OUT_HEADER];
    bytes.extend_from_slice(&parent.to_ne_bytes());
    bytes.extend_from_slice(&u32::try_from(name.len()).unwrap_or(0).to_ne_bytes());
    bytes.extend_from_slice(&0_u32.to_ne_bytes());
    bytes.extend_from_slice(name);
    bytes.push(0);
    header(&mut bytes, NOTIFY_INVAL_ENTRY, 0);
    bytes
}

/// The message that wakes who polls a file, by the name that he gave.
pub fn wake(name: u64) -> Vec<u8> {
    let mut bytes = vec![0; OUT_HEADER];
    bytes.extend_from_slice(&name.to_ne_bytes());
    header(&mut bytes, NOTIFY_POLL, 0);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use reserv_facts::fuse::IN_HEADER;

    use super::*;

    pub(crate) fn request(opcode: u32, unique: u64, node: u64, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&u32::try_from(IN_HEADER + body.len()).unwrap().to_ne_bytes());
        bytes.extend_from_slice(&opcode.to_ne_bytes());
        bytes.extend_from_slice(&unique.to_ne_bytes());
        bytes.extend_from_slice(&node.to_ne_bytes());
        for word in [1000_u32, 100, 42, 0] {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn a_lookup_is_decoded_and_a_resent_one_is_marked() {
        let bytes = request(1, 6 | UNIQUE_RESEND, 1, b"share\0");
        let got = decode(&bytes).unwrap();
        assert_eq!(got.op, Op::Lookup { name: b"share" });
        assert_eq!((got.unique, got.resent, got.caller.uid, got.caller.tid), (6, true, 1000, 42));
    }

    #[test]
    fn who_polls_says_whether_he_waits() {
        let mut body = Vec::new();
        body.extend_from_slice(&5_u64.to_ne_bytes());
        body.extend_from_slice(&77_u64.to_ne_bytes());
        body.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
        let op = |body: &[u8]| {
            decode(&request(40, 2, 1, body)).map(|request| match request.op {
                Op::Poll { handle, waits } => (handle, waits),
                other => panic!("{other:?}"),
            })
        };
        assert_eq!(op(&body), Some((5, Some(77))));
        body[16] = 0;
        assert_eq!(op(&body), Some((5, None)));
        assert_eq!(op(&body[..16]), None);
    }

    #[test]
    fn inconsistent_requests_are_refused() {
        let good = request(1, 2, 1, b"share\0");
        assert_eq!(decode(&good[..good.len() - 1]), None, "shorter than it says");
        assert_eq!(decode(&request(1, 2, 1, b"share")), None, "name without end");
        assert_eq!(decode(&request(16, 2, 1, &[0xff; 40])), None, "write longer than its data");
        assert_eq!(decode(&request(42, 2, 1, &[0xff; 8])), None, "more forgets than there are");
        assert!(matches!(
            decode(&request(4711, 2, 1, b"")).unwrap().op,
            Op::Unknown { opcode: 4711 }
        ));
    }

    #[test]
    fn replies_have_the_lengths_of_the_kernel_structures() {
        let attr = Attr { ino: 1, mode: libc::S_IFDIR | 0o755, nlink: 2, uid: 0, gid: 0, time: 0 };
        let len = |fill: &dyn Fn(&mut Reply)| {
            let mut reply = Reply::default();
            reply.clear();
            fill(&mut reply);
            reply.finish(2, None).len() - OUT_HEADER
        };
        assert_eq!(len(&|r| r.entry(1, &attr, Cache::default())), 128);
        assert_eq!(len(&|r| r.attr(&attr, Cache::default())), 104);
        assert_eq!(len(&|r| r.open(0, 0)), 16);
        assert_eq!(len(&|r| r.written(1)), 8);
        assert_eq!(len(&|r| r.polled(1)), 8);
        assert_eq!(len(&|r| r.statfs()), 80);
        assert_eq!(len(&|r| r.init(u64::MAX)), 64);
    }

    #[test]
    fn directory_entries_stop_at_the_size_asked_for() {
        let mut reply = Reply::default();
        reply.clear();
        assert!(reply.dirent(64, 1, 1, Some(true), b"cpu"));
        assert!(reply.dirent(64, 2, 2, Some(false), b"status"));
        assert!(!reply.dirent(64, 3, 3, None, b"self"));
        assert_eq!(reply.finish(2, None).len(), OUT_HEADER + 64);
    }

    proptest! {
        #[test]
        fn no_request_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), fit: bool) {
            let mut bytes = bytes;
            if fit && bytes.len() >= 8 {
                let len = u32::try_from(bytes.len()).unwrap();
                bytes[..4].copy_from_slice(&len.to_ne_bytes());
                bytes[5..8].fill(0);
            }
            if let Some(Request { op: Op::BatchForget { pairs }, .. }) = decode(&bytes) {
                prop_assert!(forgets(pairs).count() <= bytes.len());
            }
        }
    }
}
