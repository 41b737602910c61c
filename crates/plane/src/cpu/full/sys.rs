// SPDX-License-Identifier: MIT OR Apache-2.0
//! The few system calls: pins, runs of SYSCALL programs, mapped arrays, links.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

/// libbpf answers a negative errno.
fn check(answer: i32) -> io::Result<i32> {
    if answer < 0 { Err(io::Error::from_raw_os_error(-answer)) } else { Ok(answer) }
}

/// BPF_OBJ_GET.
pub(super) fn open(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)?;
    // SAFETY: the path is a C string that outlives the call.
    let fd = check(unsafe { libbpf_sys::bpf_obj_get(path.as_ptr()) })?;
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// One run of a SYSCALL program with a context that it may change; its return value is not used.
pub(super) fn run<T: Copy>(program: &OwnedFd, context: &mut T) -> io::Result<()> {
    let size = u32::try_from(size_of::<T>()).map_err(io::Error::other)?;
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        ctx_in: std::ptr::from_mut(context).cast(),
        ctx_size_in: size,
        ..Default::default()
    };
    // SAFETY: the context is writable memory of the size we say, and the kernel writes no more than it.
    check(unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) })?;
    Ok(())
}

/// A new link of a struct_ops map: the kernel starts to use it.
pub(super) fn attach_struct_ops(map: &OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: no options.
    let fd = check(unsafe {
        libbpf_sys::bpf_link_create(map.as_raw_fd(), 0, libbpf_sys::BPF_STRUCT_OPS, std::ptr::null())
    })?;
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// BPF_OBJ_PIN.
pub(super) fn pin(fd: &OwnedFd, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)?;
    // SAFETY: the path is a C string that outlives the call.
    check(unsafe { libbpf_sys::bpf_obj_pin(fd.as_raw_fd(), path.as_ptr()) })?;
    Ok(())
}

/// BPF_LINK_DETACH: the kernel has stopped using it when this returns.
pub(super) fn detach(link: &OwnedFd) -> io::Result<()> {
    // SAFETY: a descriptor number.
    check(unsafe { libbpf_sys::bpf_link_detach(link.as_raw_fd()) })?;
    Ok(())
}

/// A mapped array with one element.
pub(super) struct Mapped<T> {
    at: NonNull<T>,
    bytes: usize,
}

impl<T> std::fmt::Debug for Mapped<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mapped({:p}, {} bytes)", self.at, self.bytes)
    }
}

// SAFETY: the memory belongs to the process, not to a thread; access goes through `&`/`&mut`.
unsafe impl<T: Send> Send for Mapped<T> {}

impl<T> Mapped<T> {
    /// Map it, for reading and writing.
    pub(super) fn new(map: &OwnedFd) -> io::Result<Self> {
        let page = 4096_usize;
        let bytes = size_of::<T>().next_multiple_of(page);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Self { at, bytes })
    }

    /// The memory. The kernel's programs change it too: read through the pointer, copy, then look.
    pub(super) fn at(&self) -> *mut T {
        self.at.as_ptr()
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this size, and nobody keeps a pointer into it.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}
