// SPDX-License-Identifier: MIT OR Apache-2.0
//! How threads are begun here, so that who has no memory for one is told so. The standard library
//! gives each thread a second stack, for signals, as the first thing that the thread does, and ends
//! the process where there is none to be had.

use std::io;
use std::thread::JoinHandle;

/// Of most threads: the standard library's own.
const STACK: usize = 2 << 20;
/// What a thread takes besides its stack before it begins with its work.
const FIRST: usize = 1 << 17;

/// A thread with a name, to be told apart in `ps` and by tests.
pub(crate) fn thread<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    thread_of(name, STACK, body)
}

/// The same with a stack of this size.
pub(crate) fn thread_of<T: Send + 'static>(
    name: &str,
    stack: usize,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    memory(stack + FIRST)?;
    std::thread::Builder::new().name(name.to_owned()).stack_size(stack).spawn(body)
}

/// Whether there is room for so many bytes. Somebody else may be quicker; who has as good as none
/// hears it.
fn memory(size: usize) -> io::Result<()> {
    let (access, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, where the kernel finds room; nothing is behind it.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), size, access, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: made above, known to nobody else.
    unsafe { libc::munmap(at, size) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_that_cannot_be_had_is_an_error() {
        assert_eq!(memory(1 << 60).unwrap_err().raw_os_error(), Some(libc::ENOMEM));
        let begun = thread_of("much", 1 << 60, || ());
        assert_eq!(begun.unwrap_err().raw_os_error(), Some(libc::ENOMEM));
    }

    #[test]
    fn a_thread_has_its_name() {
        let name = thread("one", || std::thread::current().name().map(str::to_owned));
        assert_eq!(name.unwrap().join().unwrap().as_deref(), Some("one"));
    }
}
