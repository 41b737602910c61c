// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C ABI: include/reserv.h says what each call does. Nothing unwinds into C: the library does
//! not panic, and a panic would abort.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int};
use std::os::fd::{IntoRawFd as _, OwnedFd};

use crate::calls::ThreadPage;
use crate::error::{Error, Result};
use crate::page::{self, Slot};
use crate::pool::{self, Shared};
use crate::sized::{self, Grows};
use crate::{
    Delete, List, Params, PoolParams, Stat, container, descriptor, listen, request, thread,
};

/// Longest text of an error, with its 0.
const ERROR_MAX: usize = 1024;

thread_local! {
    /// The calling thread's last error. Without a destructor: it can be read until the thread's
    /// very end.
    static ERROR: UnsafeCell<[u8; ERROR_MAX]> = const { UnsafeCell::new([0; ERROR_MAX]) };
}

fn remember(error: &Error) {
    ERROR.with(|cell| {
        // SAFETY: Only this thread has the cell, and no reference into it outlives this function or
        // is held by another.
        let text = unsafe { &mut *cell.get() };
        let mut length = error.text().len().min(ERROR_MAX - 1);
        while !error.text().is_char_boundary(length) {
            length -= 1;
        }
        text[..length].copy_from_slice(&error.text().as_bytes()[..length]);
        text[length] = 0;
    });
    // SAFETY: It points at the thread's errno.
    unsafe { *libc::__errno_location() = error.errno() };
}

fn answer<T>(result: Result<T>, good: impl FnOnce(T) -> isize) -> isize {
    match result {
        Ok(value) => good(value),
        Err(error) => {
            remember(&error);
            -1
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "-1, a descriptor, 0 or 1")]
fn number<T>(result: Result<T>, good: impl FnOnce(T) -> c_int) -> c_int {
    answer(result, |value| good(value) as isize) as c_int
}

fn done(result: Result<()>) -> c_int {
    number(result, |()| 0)
}

/// An argument.
///
/// # Safety
/// `text` is null or a string that lives and does not change while the call runs.
unsafe fn word<'a>(text: *const c_char, what: &str) -> Result<&'a str> {
    if text.is_null() {
        return Err(Error::new(libc::EFAULT, format!("{what} is NULL")));
    }
    // SAFETY: It is a string, says the caller.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Error::new(libc::EILSEQ, format!("{what} {text:?} is no UTF-8")))
}

/// An argument that may be NULL.
///
/// # Safety
/// As [`word`].
unsafe fn optional<'a>(text: *const c_char, what: &str) -> Result<Option<&'a str>> {
    // SAFETY: As the caller says.
    if text.is_null() { Ok(None) } else { unsafe { word(text, what) }.map(Some) }
}

/// Fills a buffer with text and a 0; the text's length.
///
/// # Safety
/// `buf` has room for `size` bytes.
unsafe fn fill(buf: *mut c_char, size: usize, text: &str) -> Result<isize> {
    if size > 0 {
        if text.len() >= size {
            let text = format!(
                "a buffer of {size} bytes is too small for {text:?}: {} are needed",
                text.len() + 1
            );
            return Err(Error::new(libc::ERANGE, text));
        }
        if buf.is_null() {
            return Err(Error::new(libc::EFAULT, "the buffer is NULL"));
        }
        // SAFETY: text.len() < size bytes, and a 0 behind them, fit; a caller's buffer overlaps
        // nothing of ours.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buf, text.len());
            *buf.add(text.len()) = 0;
        }
    }
    Ok(isize::try_from(text.len()).unwrap_or(isize::MAX))
}

/// # Safety
/// As [`fill`].
unsafe fn text(result: Result<String>, buf: *mut c_char, size: usize) -> isize {
    // SAFETY: As the caller says.
    answer(result.and_then(|text| unsafe { fill(buf, size, &text) }), |length| length)
}

/// Declares the calls: each is a body in which `word` and `optional` may be used on its pointers.
macro_rules! c_abi {
    ($($name:ident ( $($argument:ident : $type:ty),* ) -> $answer:ty $body:block)*) => { $(
        /// See include/reserv.h.
        ///
        /// # Safety
        /// Pointers are null or point at what the header says, for as long as the call runs.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> $answer {
            // SAFETY: As the caller says.
            #[allow(unused_unsafe, reason = "some bodies have no pointers")]
            unsafe { $body }
        }
    )* };
}

fn list(which: List, pid: c_int, resource: Result<Option<&str>>) -> Result<String> {
    crate::get_list(pid, which, resource?)
}

/// Makes a numbered node. That its path fits is known before it is made: a number has at most ten
/// digits.
///
/// # Safety
/// As [`fill`].
unsafe fn fresh(
    make: fn(&str) -> Result<(OwnedFd, String)>,
    parent: Result<&str>,
    buf: *mut c_char,
    size: usize,
) -> Result<OwnedFd> {
    let parent = parent?;
    if !buf.is_null() {
        let room = crate::mount()?.as_os_str().len() + parent.len() + 16;
        if size < room {
            let text = format!(
                "a buffer of {size} bytes may be too small for the new node's path: {room} are enough"
            );
            return Err(Error::new(libc::ERANGE, text));
        }
    }
    let (fd, path) = make(parent)?;
    if !buf.is_null() {
        // SAFETY: As the caller says.
        unsafe { fill(buf, size, &path) }?;
    }
    Ok(fd)
}

/// `struct reserv_pool_params`. Its fields leave no hole, not at the end either: what grows there
/// finds zeros in older programs.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawPoolParams {
    share: *const c_char,
    flags: u64,
}

// SAFETY: A pointer, which may be null, and a number.
unsafe impl Grows for RawPoolParams {
    const NAME: &str = "struct reserv_pool_params";
}

// SAFETY: Numbers alone.
unsafe impl Grows for Stat {
    const NAME: &str = "struct reserv_stat";
}

// SAFETY: Numbers alone.
unsafe impl Grows for Params {
    const NAME: &str = "struct reserv_params";
}

/// RESERV_POOL_OVERFLOW
const OVERFLOW: u64 = 1;

fn no_pool() -> Error {
    Error::new(libc::EFAULT, "the pool is NULL")
}

/// # Safety
/// As the header says of the parameters.
unsafe fn open_pool(
    parent: Result<Option<&str>>,
    count: c_int,
    params: *const RawPoolParams,
    size: usize,
) -> Result<*mut Shared> {
    let wrong = || Error::new(libc::EINVAL, format!("{count} is no number of containers"));
    let count = u32::try_from(count).map_err(|_| wrong())?;
    let mut wanted = PoolParams::default();
    if !params.is_null() {
        // SAFETY: As the caller says.
        let params = unsafe { sized::read(params, size) }?;
        if params.flags & !OVERFLOW != 0 {
            let text =
                format!("{:#x} are no flags of a pool; RESERV_POOL_OVERFLOW is 1", params.flags);
            return Err(Error::new(libc::EINVAL, text));
        }
        // SAFETY: As the caller says.
        wanted.share = unsafe { optional(params.share, "the share") }?;
        wanted.overflow = params.flags & OVERFLOW != 0;
    }
    pool::open_raw(parent?.unwrap_or_default().as_ref(), count, &wanted)
}

c_abi! {
    reserv_error() -> *const c_char { ERROR.with(|cell| cell.get().cast_const().cast()) }
    reserv_version() -> *const c_char { concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast() }
    reserv_mount(buf: *mut c_char, size: usize) -> isize {
        text(crate::mount().map(|m| m.to_string_lossy().into_owned()), buf, size)
    }

    reserv_open(node: *const c_char) -> c_int {
        number(word(node, "the node").and_then(crate::open), OwnedFd::into_raw_fd)
    }
    reserv_path(fd: c_int, buf: *mut c_char, size: usize) -> isize { text(descriptor::path(fd), buf, size) }

    reserv_chcpures(queue: c_int) -> c_int { done(thread::chcpures(queue)) }
    reserv_chcpures_path(queue: *const c_char) -> c_int { done(word(queue, "the queue").and_then(crate::chcpures_path)) }
    reserv_cpures(buf: *mut c_char, size: usize) -> isize { text(crate::cpures(), buf, size) }
    reserv_open_container(container: *const c_char) -> c_int {
        number(word(container, "the container").and_then(crate::open_container), OwnedFd::into_raw_fd)
    }
    reserv_bind(container: c_int) -> c_int { done(container::bind(container)) }
    reserv_bind_path(container: *const c_char) -> c_int {
        done(word(container, "the container").and_then(crate::bind_path))
    }
    reserv_unbind() -> c_int { done(crate::unbind()) }
    reserv_bound(buf: *mut c_char, size: usize) -> isize {
        text(crate::bound().map(Option::unwrap_or_default), buf, size)
    }
    reserv_slot(container: c_int) -> c_int {
        number(Slot::of_fd(container), |slot| slot.into_number().cast_signed())
    }
    reserv_slot_path(container: *const c_char) -> c_int {
        let slot = word(container, "the container").and_then(Slot::of_path);
        number(slot, |slot| slot.into_number().cast_signed())
    }
    reserv_slot_free(slot: c_int) -> c_int { done(Slot::of_number(slot).map(drop)) }
    reserv_work(slot: c_int) -> c_int {
        done(u32::try_from(slot).map_err(|_| page::no_slot(slot)).and_then(page::work))
    }
    reserv_page() -> *mut ThreadPage {
        let mut page = std::ptr::null_mut();
        answer(page::page(), |at| { page = at; 0 });
        page
    }
    reserv_page_settle(_page: *mut ThreadPage) -> c_int { done(page::settle()) }
    reserv_pool_open_sized(
        parent: *const c_char, count: c_int, params: *const RawPoolParams, size: usize
    ) -> *mut Shared {
        let mut pool = std::ptr::null_mut();
        let opened = open_pool(optional(parent, "the parent"), count, params, size);
        answer(opened, |at| { pool = at; 0 });
        pool
    }
    reserv_pool_close(pool: *mut Shared) -> c_int { done(pool::close_raw(pool)) }
    reserv_begin(pool: *const Shared) -> c_int {
        number(pool.as_ref().ok_or_else(no_pool).and_then(pool::begin), u32::cast_signed)
    }
    reserv_end(pool: *const Shared, activity: c_int) -> c_int {
        done(pool.as_ref().ok_or_else(no_pool).and_then(|pool| pool::end(pool, activity.cast_unsigned())))
    }
    reserv_tag(queue: *const c_char, pid: libc::pid_t) -> c_int {
        done(word(queue, "the queue").and_then(|queue| crate::tag(queue, pid)))
    }
    reserv_tag_thread(queue: *const c_char, tid: libc::pid_t) -> c_int {
        done(word(queue, "the queue").and_then(|queue| crate::tag_thread(queue, tid)))
    }
    reserv_set_params_sized(params: *const Params, size: usize) -> c_int {
        done(sized::read(params, size).and_then(|params| crate::set_params(&params)))
    }
    reserv_get_params_sized(params: *mut Params, size: usize) -> c_int {
        done(sized::fill(params, size, crate::get_params))
    }

    reserv_set_queue(fd: c_int, queue: c_int) -> c_int { done(descriptor::set_queue(fd, queue)) }
    reserv_set_queue_path(fd: c_int, queue: *const c_char) -> c_int {
        done(word(queue, "the queue").and_then(|queue| descriptor::set_queue_path(fd, queue)))
    }
    reserv_get_queue(fd: c_int, resource: *const c_char, buf: *mut c_char, size: usize) -> isize {
        text(optional(resource, "the resource").and_then(|r| descriptor::get_queue(fd, r)), buf, size)
    }

    reserv_listen_for(fd: c_int, clients: *const c_char) -> c_int {
        done(word(clients, "the clients").and_then(|clients| listen::listen_for(fd, clients)))
    }
    reserv_listens_for(fd: c_int, buf: *mut c_char, size: usize) -> isize {
        text(listen::listens_for(fd), buf, size)
    }

    reserv_pread(fd: c_int, buf: *mut std::ffi::c_void, count: usize, offset: libc::off_t, deadline_ns: u64) -> isize {
        answer(request::pread_raw(fd, buf, count, offset, deadline_ns), |n| isize::try_from(n).unwrap_or(isize::MAX))
    }
    reserv_pwrite(fd: c_int, buf: *const std::ffi::c_void, count: usize, offset: libc::off_t, deadline_ns: u64) -> isize {
        answer(request::pwrite_raw(fd, buf, count, offset, deadline_ns), |n| isize::try_from(n).unwrap_or(isize::MAX))
    }

    reserv_get_default(pid: libc::pid_t, resource: *const c_char, buf: *mut c_char, size: usize) -> isize {
        text(list(List::Default, pid, optional(resource, "the resource")), buf, size)
    }
    reserv_get_cdefault(pid: libc::pid_t, resource: *const c_char, buf: *mut c_char, size: usize) -> isize {
        text(list(List::Child, pid, optional(resource, "the resource")), buf, size)
    }
    reserv_set_default(pid: libc::pid_t, queues: *const c_char) -> c_int {
        done(word(queues, "the list").and_then(|queues| crate::set_list(pid, List::Default, queues)))
    }
    reserv_set_cdefault(pid: libc::pid_t, queues: *const c_char) -> c_int {
        done(word(queues, "the list").and_then(|queues| crate::set_list(pid, List::Child, queues)))
    }

    reserv_newqueue(parent: *const c_char, buf: *mut c_char, size: usize) -> c_int {
        number(fresh(|parent| crate::newqueue(parent), word(parent, "the parent"), buf, size), OwnedFd::into_raw_fd)
    }
    reserv_newsched(parent: *const c_char, buf: *mut c_char, size: usize) -> c_int {
        number(fresh(|parent| crate::newsched(parent), word(parent, "the parent"), buf, size), OwnedFd::into_raw_fd)
    }
    reserv_mkqueue(node: *const c_char, share: *const c_char) -> c_int {
        done(word(node, "the node").and_then(|node| crate::mkqueue(node, optional(share, "the share")?)))
    }
    reserv_mksched(node: *const c_char, share: *const c_char) -> c_int {
        done(word(node, "the node").and_then(|node| crate::mksched(node, optional(share, "the share")?)))
    }
    reserv_delete(node: *const c_char, how: c_int) -> c_int {
        done(word(node, "the node").and_then(|node| crate::delete(node, match how {
            0 => Delete::Refuse,
            1 => Delete::Drain,
            2 => Delete::Flush,
            _ => return Err(Error::new(libc::EINVAL, format!("{how} is no way to delete; 0 refuse, 1 drain, 2 flush"))),
        })))
    }
    reserv_move(from: *const c_char, to: *const c_char) -> c_int {
        done(word(from, "the node").and_then(|from| crate::move_node(from, word(to, "the new path")?)))
    }

    reserv_set(node: *const c_char, file: *const c_char, value: *const c_char) -> c_int {
        done(word(node, "the node").and_then(|node| crate::set(node, word(file, "the file")?, word(value, "the value")?)))
    }
    reserv_get(node: *const c_char, file: *const c_char, buf: *mut c_char, size: usize) -> isize {
        text(word(node, "the node").and_then(|node| crate::get(node, word(file, "the file")?)), buf, size)
    }
    reserv_reweight(node: *const c_char, share: *const c_char) -> c_int {
        done(word(node, "the node").and_then(|node| crate::reweight(node, word(share, "the share")?)))
    }

    reserv_set_collect(node: *const c_char, on: c_int) -> c_int {
        done(word(node, "the node").and_then(|node| crate::set_collect(node, flag(on)?)))
    }
    reserv_get_collect(node: *const c_char) -> c_int { number(word(node, "the node").and_then(crate::get_collect), c_int::from) }
    reserv_fset_collect(fd: c_int, on: c_int) -> c_int { done(flag(on).and_then(|on| descriptor::fset_collect(fd, on))) }
    reserv_fget_collect(fd: c_int) -> c_int { number(descriptor::fget_collect(fd), c_int::from) }

    reserv_stat_sized(node: *const c_char, stat: *mut Stat, size: usize) -> c_int {
        done(sized::fill(stat, size, || crate::stat(word(node, "the node")?)))
    }
}

fn flag(on: c_int) -> Result<bool> {
    match on {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Error::new(libc::EINVAL, format!("{on} is neither 0 (keep) nor 1 (collect)"))),
    }
}
