// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C ABI: include/reserv.h says what each call does. Nothing unwinds into C: the library does
//! not panic, and a panic would abort.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int};
use std::os::fd::{IntoRawFd as _, OwnedFd};

use crate::calls::ThreadPage;
use crate::error::{Error, Result};
use crate::page::{self, Slot};
use crate::{Delete, List, Params, Stat};

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

c_abi! {
    reserv_error() -> *const c_char { ERROR.with(|cell| cell.get().cast_const().cast()) }
    reserv_version() -> *const c_char { concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast() }
    reserv_mount(buf: *mut c_char, size: usize) -> isize {
        text(crate::mount().map(|m| m.to_string_lossy().into_owned()), buf, size)
    }

    reserv_open(node: *const c_char) -> c_int {
        number(word(node, "the node").and_then(crate::open), OwnedFd::into_raw_fd)
    }
    reserv_path(fd: c_int, buf: *mut c_char, size: usize) -> isize { text(crate::path(fd), buf, size) }

    reserv_chcpures(queue: c_int) -> c_int { done(crate::chcpures(queue)) }
    reserv_chcpures_path(queue: *const c_char) -> c_int { done(word(queue, "the queue").and_then(crate::chcpures_path)) }
    reserv_cpures(buf: *mut c_char, size: usize) -> isize { text(crate::cpures(), buf, size) }
    reserv_open_container(container: *const c_char) -> c_int {
        number(word(container, "the container").and_then(crate::open_container), OwnedFd::into_raw_fd)
    }
    reserv_bind(container: c_int) -> c_int { done(crate::bind(container)) }
    reserv_bind_path(container: *const c_char) -> c_int {
        done(word(container, "the container").and_then(crate::bind_path))
    }
    reserv_unbind() -> c_int { done(crate::unbind()) }
    reserv_bound(buf: *mut c_char, size: usize) -> isize {
        text(crate::bound().map(Option::unwrap_or_default), buf, size)
    }
    reserv_slot(container: c_int) -> c_int {
        number(Slot::new(container), |slot| slot.into_number().cast_signed())
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
    reserv_tag(queue: *const c_char, pid: libc::pid_t) -> c_int {
        done(word(queue, "the queue").and_then(|queue| crate::tag(queue, pid)))
    }
    reserv_tag_thread(queue: *const c_char, tid: libc::pid_t) -> c_int {
        done(word(queue, "the queue").and_then(|queue| crate::tag_thread(queue, tid)))
    }
    reserv_set_params(params: *const Params) -> c_int {
        let params = params.as_ref().ok_or_else(|| Error::new(libc::EFAULT, "the parameters are NULL"));
        done(params.and_then(crate::set_params))
    }
    reserv_get_params(params: *mut Params) -> c_int {
        let params = params.as_mut().ok_or_else(|| Error::new(libc::EFAULT, "the parameters are NULL"));
        done(params.and_then(|params| { *params = crate::get_params()?; Ok(()) }))
    }

    reserv_set_queue(fd: c_int, queue: c_int) -> c_int { done(crate::set_queue(fd, queue)) }
    reserv_set_queue_path(fd: c_int, queue: *const c_char) -> c_int {
        done(word(queue, "the queue").and_then(|queue| crate::set_queue_path(fd, queue)))
    }
    reserv_get_queue(fd: c_int, resource: *const c_char, buf: *mut c_char, size: usize) -> isize {
        text(optional(resource, "the resource").and_then(|r| crate::get_queue(fd, r)), buf, size)
    }

    reserv_pread(fd: c_int, buf: *mut std::ffi::c_void, count: usize, offset: libc::off_t, deadline_ns: u64) -> isize {
        answer(crate::request::pread_raw(fd, buf, count, offset, deadline_ns), |n| isize::try_from(n).unwrap_or(isize::MAX))
    }
    reserv_pwrite(fd: c_int, buf: *const std::ffi::c_void, count: usize, offset: libc::off_t, deadline_ns: u64) -> isize {
        answer(crate::request::pwrite_raw(fd, buf, count, offset, deadline_ns), |n| isize::try_from(n).unwrap_or(isize::MAX))
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
        number(fresh(crate::newqueue, word(parent, "the parent"), buf, size), OwnedFd::into_raw_fd)
    }
    reserv_newsched(parent: *const c_char, buf: *mut c_char, size: usize) -> c_int {
        number(fresh(crate::newsched, word(parent, "the parent"), buf, size), OwnedFd::into_raw_fd)
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
    reserv_fset_collect(fd: c_int, on: c_int) -> c_int { done(flag(on).and_then(|on| crate::fset_collect(fd, on))) }
    reserv_fget_collect(fd: c_int) -> c_int { number(crate::fget_collect(fd), c_int::from) }

    reserv_stat(node: *const c_char, stat: *mut Stat) -> c_int {
        let stat = stat.as_mut().ok_or_else(|| Error::new(libc::EFAULT, "the counters are NULL"));
        done(stat.and_then(|stat| { *stat = crate::stat(word(node, "the node")?)?; Ok(()) }))
    }
}

fn flag(on: c_int) -> Result<bool> {
    match on {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Error::new(libc::EINVAL, format!("{on} is neither 0 (keep) nor 1 (collect)"))),
    }
}
