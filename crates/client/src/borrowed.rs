// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls about descriptors, as Rust has them: whoever lends one knows that it is open. C lends
//! numbers (`ffi.rs`), which may be none, so what does the work takes numbers.

use std::os::fd::{AsFd, AsRawFd as _, RawFd};
use std::path::Path;

use crate::error::Result;
use crate::{container, descriptor, listen, open, request, thread};

fn number(fd: &impl AsFd) -> RawFd {
    fd.as_fd().as_raw_fd()
}

/// The path of the node that a descriptor of /reserv belongs to. `ESTALE`: it is gone.
pub fn path(fd: impl AsFd) -> Result<String> {
    descriptor::path(number(&fd))
}

/// Tags an open file or socket with a queue, by a descriptor of the queue's directory or `share`;
/// and with it every descriptor that shares it, here and in other processes. `q0` takes the tag
/// back.
pub fn set_queue(fd: impl AsFd, queue: impl AsFd) -> Result<()> {
    descriptor::set_queue(number(&fd), number(&queue))
}

/// The same by the queue's path.
pub fn set_queue_path(fd: impl AsFd, queue: impl AsRef<Path>) -> Result<()> {
    set_queue(fd, open(queue)?)
}

/// The queue of an open file or socket for a resource (`cpu`, `vda`); where none is named, of a
/// descriptor of /reserv: its own node. `ENOENT`: the object does not live on that resource.
pub fn get_queue(fd: impl AsFd, resource: Option<&str>) -> Result<String> {
    descriptor::get_queue(number(&fd), resource)
}

/// [`set_collect`](crate::set_collect) by a descriptor of the node: its directory or a file of it.
pub fn fset_collect(fd: impl AsFd, on: bool) -> Result<()> {
    descriptor::fset_collect(number(&fd), on)
}

/// [`get_collect`](crate::get_collect) by a descriptor of the node: its directory or a file of it.
pub fn fget_collect(fd: impl AsFd) -> Result<bool> {
    descriptor::fget_collect(number(&fd))
}

/// Tags the calling thread with the queue that a descriptor is of: its directory or `share` (which
/// is what [`newqueue`](crate::newqueue) gives), opened for reading. Without Reserv's hook in the
/// kernel this is a write to the queue's `members`, which needs the right to write it.
pub fn chcpures(queue: impl AsFd) -> Result<()> {
    thread::chcpures(number(&queue))
}

/// The calling thread works for a container from here on, by a descriptor of its directory, of its
/// `share`, or of what opening `new` gave: it competes and is charged there.
pub fn bind(container: impl AsFd) -> Result<()> {
    container::bind(number(&container))
}

/// A listening socket is for these clients from now on, and for no others: prefixes
/// (`10.1.0.0/16`), what is in none of them (`not 10.0.0.0/8`), `any`, with blanks between; behind
/// `at 80` at a port at which another socket is bound. `none`: it is as any other socket again.
pub fn listen_for(fd: impl AsFd, clients: &str) -> Result<()> {
    listen::listen_for(number(&fd), clients)
}

/// For which clients it is, as it was said; `none`: as any other socket.
pub fn listens_for(fd: impl AsFd) -> Result<String> {
    listen::listens_for(number(&fd))
}

/// As pread(2): its requests are due `deadline_ns` after they come to the disk. 8 ms to 1023 ms, in
/// whole milliseconds; 0: as the queue's are. Bytes that were read.
pub fn pread(fd: impl AsFd, buf: &mut [u8], offset: i64, deadline_ns: u64) -> Result<usize> {
    // SAFETY: Memory of that length, which is ours to write.
    unsafe {
        request::pread_raw(number(&fd), buf.as_mut_ptr().cast(), buf.len(), offset, deadline_ns)
    }
}

/// As pwrite(2), with a deadline as for [`pread`]. What stays in the page cache is written later,
/// without one: use `O_DIRECT` or `O_DSYNC`. Bytes that were written.
pub fn pwrite(fd: impl AsFd, buf: &[u8], offset: i64, deadline_ns: u64) -> Result<usize> {
    // SAFETY: Memory of that length.
    unsafe { request::pwrite_raw(number(&fd), buf.as_ptr().cast(), buf.len(), offset, deadline_ns) }
}
