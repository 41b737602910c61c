// SPDX-License-Identifier: MIT OR Apache-2.0
//! The few system calls: pins, runs of SYSCALL programs, mapped arrays, links.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

use libbpf_rs::{MapCore as _, MapFlags, MapHandle};

/// libbpf answers a negative errno.
fn check(answer: i32) -> io::Result<i32> {
    if answer < 0 { Err(io::Error::from_raw_os_error(-answer)) } else { Ok(answer) }
}

/// BPF_OBJ_GET.
pub(crate) fn open(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)?;
    // SAFETY: the path is a C string that outlives the call.
    let fd = check(unsafe { libbpf_sys::bpf_obj_get(path.as_ptr()) })?;
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// One run of a SYSCALL program with a context that it may change; its return value is not used.
pub(crate) fn run<T: Copy>(program: &OwnedFd, context: &mut T) -> io::Result<()> {
    let size = u32::try_from(size_of::<T>()).map_err(io::Error::other)?;
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        ctx_in: std::ptr::from_mut(context).cast(),
        ctx_size_in: size,
        ..Default::default()
    };
    // SAFETY: the context is writable memory of the size we say, and the kernel writes no more than
    // it.
    check(unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) })?;
    Ok(())
}

/// A new link of a struct_ops map: the kernel starts to use it.
pub(crate) fn attach_struct_ops(map: &OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: no options.
    let fd = check(unsafe {
        libbpf_sys::bpf_link_create(
            map.as_raw_fd(),
            0,
            libbpf_sys::BPF_STRUCT_OPS,
            std::ptr::null(),
        )
    })?;
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// BPF_OBJ_PIN.
pub(crate) fn pin(fd: &impl AsFd, path: &Path) -> io::Result<()> {
    let fd = fd.as_fd();
    let path = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)?;
    // SAFETY: the path is a C string that outlives the call.
    check(unsafe { libbpf_sys::bpf_obj_pin(fd.as_raw_fd(), path.as_ptr()) })?;
    Ok(())
}

/// BPF_LINK_DETACH: the kernel has stopped using it when this returns.
pub(crate) fn detach(link: &OwnedFd) -> io::Result<()> {
    // SAFETY: a descriptor number.
    check(unsafe { libbpf_sys::bpf_link_detach(link.as_raw_fd()) })?;
    Ok(())
}

/// A mapped array with one element.
pub(crate) struct Mapped<T> {
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
    pub(crate) fn new(map: &OwnedFd) -> io::Result<Self> {
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
    pub(crate) fn at(&self) -> *mut T {
        self.at.as_ptr()
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this size, and nobody keeps a pointer into it.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

/// `BPF_MAP_UPDATE_ELEM`; sizes must be the map's.
pub(crate) fn put<K: Copy, V: Copy>(map: &OwnedFd, key: &K, value: &V) -> io::Result<()> {
    // SAFETY: key and value are plain memory as large as the map's, which the caller vouches for by
    // the types.
    check(unsafe {
        libbpf_sys::bpf_map_update_elem(
            map.as_raw_fd(),
            std::ptr::from_ref(key).cast(),
            std::ptr::from_ref(value).cast(),
            libbpf_sys::BPF_ANY.into(),
        )
    })?;
    Ok(())
}

/// `BPF_MAP_DELETE_ELEM`; answers whether there was such a key.
pub(crate) fn remove<K: Copy>(map: &OwnedFd, key: &K) -> io::Result<bool> {
    // SAFETY: as for `put`.
    match check(unsafe {
        libbpf_sys::bpf_map_delete_elem(map.as_raw_fd(), std::ptr::from_ref(key).cast())
    }) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// All keys of a map. Where one goes meanwhile the kernel begins anew: each is told once.
pub(crate) fn keys<K: Copy + Default + Ord>(map: &OwnedFd) -> io::Result<BTreeSet<K>> {
    let mut all = BTreeSet::new();
    let mut last: Option<K> = None;
    loop {
        let mut next = K::default();
        let from = last.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: as for `put`; the kernel writes one key.
        let got = check(unsafe {
            libbpf_sys::bpf_map_get_next_key(map.as_raw_fd(), from.cast(), (&raw mut next).cast())
        });
        match got {
            Ok(_) if last.is_some() && all.contains(&next) => return Ok(all),
            Ok(_) => {
                all.insert(next);
                last = Some(next);
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(all),
            Err(error) => return Err(error),
        }
    }
}

/// `BPF_LINK_UPDATE`: another program in the place of a link's.
pub(crate) fn replace(link: &OwnedFd, program: &impl AsFd) -> io::Result<()> {
    // SAFETY: numbers of descriptors; no options.
    check(unsafe {
        libbpf_sys::bpf_link_update(link.as_raw_fd(), program.as_fd().as_raw_fd(), std::ptr::null())
    })?;
    Ok(())
}

/// `BPF_MAP_LOOKUP_ELEM`
pub(crate) fn get<K: Copy, V: Copy + Default>(map: &OwnedFd, key: &K) -> io::Result<Option<V>> {
    get_by(map, key, 0)
}

/// The same of a value with a lock, which is held while it is copied.
pub(crate) fn get_locked<K: Copy, V: Copy + Default>(
    map: &OwnedFd,
    key: &K,
) -> io::Result<Option<V>> {
    get_by(map, key, libbpf_sys::BPF_F_LOCK.into())
}

fn get_by<K: Copy, V: Copy + Default>(map: &OwnedFd, key: &K, flags: u64) -> io::Result<Option<V>> {
    let mut value = V::default();
    // SAFETY: as for `put`; the kernel writes one value.
    match check(unsafe {
        libbpf_sys::bpf_map_lookup_elem_flags(
            map.as_raw_fd(),
            std::ptr::from_ref(key).cast(),
            (&raw mut value).cast(),
            flags,
        )
    }) {
        Ok(_) => Ok(Some(value)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A pinned array with one element becomes all 0.
pub(crate) fn zero(path: &Path) -> io::Result<()> {
    let map = MapHandle::from_pinned_path(path).map_err(io::Error::other)?;
    let nothing = vec![0_u8; map.value_size() as usize];
    map.update(&0_u32.to_ne_bytes(), &nothing, MapFlags::ANY).map_err(io::Error::other)
}

/// A pinned map has no element any more.
pub(crate) fn clear(path: &Path) -> io::Result<()> {
    let map = MapHandle::from_pinned_path(path).map_err(io::Error::other)?;
    // The keys first: after one that has gone the kernel begins anew.
    for key in map.keys().collect::<Vec<_>>() {
        match map.delete(&key) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
                return Err(io::Error::other(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// A link of a tracing program to the function that it was loaded for.
pub(crate) fn attach_trace(program: &OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: no name, no memory: the program knows its function.
    let fd = check(unsafe {
        libbpf_sys::bpf_raw_tracepoint_open(std::ptr::null(), program.as_raw_fd())
    })?;
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A link of a program to the sockets of a cgroup: to what leaves them, their options, their
/// making.
pub(crate) fn attach_cgroup(
    program: &OwnedFd,
    cgroup: &OwnedFd,
    at: libbpf_sys::bpf_attach_type,
) -> io::Result<OwnedFd> {
    // SAFETY: no options.
    let fd = check(unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), cgroup.as_raw_fd(), at, std::ptr::null())
    })?;
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A link of a program to an interface: to what leaves, before its qdisc (tcx egress), or comes in
/// (tcx ingress, XDP). `flags`: of the place.
pub(crate) fn attach_interface(
    program: &OwnedFd,
    index: u32,
    at: libbpf_sys::bpf_attach_type,
    flags: u32,
) -> io::Result<OwnedFd> {
    let index = i32::try_from(index).map_err(io::Error::other)?;
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        flags,
        ..Default::default()
    };
    // SAFETY: the options outlive the call.
    let fd = check(unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), index, at, &raw const options)
    })?;
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A new array with one element of this size, as those that an array of maps holds.
pub(crate) fn new_array<V>(name: &CStr) -> io::Result<OwnedFd> {
    let value = u32::try_from(size_of::<V>()).map_err(io::Error::other)?;
    // SAFETY: the name is a C string that outlives the call; no options.
    let fd = check(unsafe {
        libbpf_sys::bpf_map_create(
            libbpf_sys::BPF_MAP_TYPE_ARRAY,
            name.as_ptr(),
            4,
            value,
            1,
            std::ptr::null(),
        )
    })?;
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Which thread has a number, as no other since the machine's start: the inode of a pidfd.
/// `None`: the kernel gives none of threads, or does not number them (before Linux 6.9). It is told
/// at once, as `/proc/TID/stat` is not in the middle of an exec.
pub(crate) fn identity(tid: i32) -> io::Result<Option<u64>> {
    /// `PIDFD_THREAD`
    const THREAD: libc::c_long = libc::O_EXCL as libc::c_long;
    /// `PID_FS_MAGIC`
    const PIDFS: i64 = 0x5049_4446;
    // SAFETY: pidfd_open takes a number and flags by value and answers a new descriptor.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(tid), THREAD) };
    let Some(fd) = i32::try_from(fd).ok().filter(|fd| *fd >= 0) else {
        let error = io::Error::last_os_error();
        return if error.raw_os_error() == Some(libc::EINVAL) { Ok(None) } else { Err(error) };
    };
    // SAFETY: the kernel has just given us this descriptor.
    let held = unsafe { OwnedFd::from_raw_fd(fd) };
    let numbered = nix::sys::statfs::fstatfs(&held)?.filesystem_type().0 == PIDFS;
    Ok(if numbered { Some(nix::sys::stat::fstat(&held)?.st_ino) } else { None })
}

/// Whether a program on a socket's packets can ask for their network name space.
pub(crate) fn packets_tell_netns() -> bool {
    // SAFETY: numbers, and no options.
    let answer = unsafe {
        libbpf_sys::libbpf_probe_bpf_helper(
            libbpf_sys::BPF_PROG_TYPE_CGROUP_SKB,
            libbpf_sys::BPF_FUNC_get_netns_cookie,
            std::ptr::null(),
        )
    };
    answer == 1
}
