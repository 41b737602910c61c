// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's FUSE protocol, as far as the daemon's name space and the block server's one file
//! speak it: numbers, the heads of requests and answers, and what is answered to INIT. In host byte
//! order.
//!
//! Source of all numbers and layouts: `include/uapi/linux/fuse.h`, protocol 7.40.

shared! {
    /// What is asked.
    "FUSE_" mod code: u32 {
        LOOKUP = 1,
        FORGET = 2,
        GETATTR = 3,
        SETATTR = 4,
        READLINK = 5,
        SYMLINK = 6,
        MKNOD = 8,
        MKDIR = 9,
        UNLINK = 10,
        RMDIR = 11,
        RENAME = 12,
        LINK = 13,
        OPEN = 14,
        READ = 15,
        WRITE = 16,
        STATFS = 17,
        RELEASE = 18,
        FSYNC = 20,
        FLUSH = 25,
        INIT = 26,
        OPENDIR = 27,
        READDIR = 28,
        RELEASEDIR = 29,
        FSYNCDIR = 30,
        ACCESS = 34,
        CREATE = 35,
        INTERRUPT = 36,
        DESTROY = 38,
        POLL = 40,
        BATCH_FORGET = 42,
        FALLOCATE = 43,
        RENAME2 = 45,
    }
}

shared! {
    /// What kernel and server can do; the upper half stands in a second word where
    /// [`init::INIT_EXT`] is set.
    "FUSE_" mod init: u64 {
        ASYNC_READ = 1 << 0,
        ATOMIC_O_TRUNC = 1 << 3,
        BIG_WRITES = 1 << 5,
        ASYNC_DIO = 1 << 15,
        PARALLEL_DIROPS = 1 << 18,
        MAX_PAGES = 1 << 22,
        INIT_EXT = 1 << 30,
    }
}

/// Of the same: the kernel can send unanswered requests again. Headers before Linux 6.9 lack it and
/// the other two of resending, so they are not compared.
pub const INIT_HAS_RESEND: u64 = 1 << 39;
/// What a server says unasked: all requests that were not answered shall come again.
pub const NOTIFY_RESEND: i32 = 7;
/// Bit of a request's number that marks it as sent again.
pub const UNIQUE_RESEND: u64 = 1 << 63;

/// What is in `init`, as the two words of an answer have it.
pub fn init_words(flags: u64) -> [u32; 2] {
    [flags & u64::from(u32::MAX), flags >> 32].map(|word| u32::try_from(word).unwrap_or(0))
}

shared! {
    /// Of an open file.
    "FOPEN_" mod open: u32 {
        /// No page cache, a `write(2)` is one request.
        DIRECT_IO = 1 << 0,
        /// No FLUSH at close.
        NOFLUSH = 1 << 5,
        /// Writes that do not grow the file may come at once.
        PARALLEL_DIRECT_WRITES = 1 << 6,
    }
}

shared! {
    /// Of a request to poll: who asks wants to be told when there is something.
    POLL_SCHEDULE_NOTIFY: u32 = 1, "FUSE_POLL_SCHEDULE_NOTIFY";
    /// What a server says unasked: there is something for one who polls.
    NOTIFY_POLL: i32 = 1, "FUSE_NOTIFY_POLL";
    /// What a server says unasked: the name of a directory's entry is no longer so.
    NOTIFY_INVAL_ENTRY: i32 = 3, "FUSE_NOTIFY_INVAL_ENTRY";
    /// The version of the protocol.
    MAJOR: u32 = 7, "FUSE_KERNEL_VERSION";
    /// Length of a request's head.
    IN_HEADER: usize = 40, "sizeof(struct fuse_in_header)";
    /// Length of an answer's head.
    OUT_HEADER: usize = 16, "sizeof(struct fuse_out_header)";
}

/// `struct fuse_in_header`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as in fuse.h")]
pub struct Head {
    pub len: u32,
    pub opcode: u32,
    pub unique: u64,
    pub node: u64,
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
}

impl Head {
    /// Reads it, and leaves the body; `None`: there are too few bytes.
    pub fn read(words: &mut Words<'_>) -> Option<Self> {
        let (len, opcode, unique, node) = (words.u32()?, words.u32()?, words.u64()?, words.u64()?);
        let head = Self {
            len,
            opcode,
            unique,
            node,
            uid: words.u32()?,
            gid: words.u32()?,
            pid: words.u32()?,
        };
        words.u32()?; // total_extlen and padding
        Some(head)
    }
}

/// Reads fixed-width words in order.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a>(pub &'a [u8]);

impl<'a> Words<'a> {
    /// So many bytes.
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(len)?;
        self.0 = tail;
        Some(head)
    }

    /// A number of 32 bits.
    pub fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_ne_bytes)
    }

    /// A number of 64 bits.
    pub fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_ne_bytes)
    }

    /// A name that ends with a zero byte.
    pub fn name(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|&b| b == 0)?;
        let name = self.take(end)?;
        self.take(1)?;
        Some(name)
    }
}

/// `struct fuse_out_header` of an answer that is `len` bytes long, itself included: `error` is 0 or
/// a negative errno. With a number of 0 it is unasked, and `error` one of `NOTIFY_…`.
pub fn out_header(len: usize, error: i32, unique: u64) -> [u8; OUT_HEADER] {
    let mut bytes = [0; OUT_HEADER];
    bytes[0..4].copy_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_ne_bytes());
    bytes[4..8].copy_from_slice(&error.to_ne_bytes());
    bytes[8..16].copy_from_slice(&unique.to_ne_bytes());
    bytes
}

/// The message that makes the kernel send all unanswered requests again.
pub fn resend() -> [u8; OUT_HEADER] {
    out_header(OUT_HEADER, NOTIFY_RESEND, 0)
}
