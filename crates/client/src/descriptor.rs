// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors: of nodes, and tags on those of files and sockets. borrowed.rs says what the calls
//! with a number do.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::calls::{self, GET_QUEUE, SET_QUEUE};
use crate::error::{Error, Result};
use crate::files::Attempt;
use crate::lists::late;
use crate::node;
use crate::place::{self, Place};

/// A descriptor of a node's directory, opened for reading.
pub fn open(node: impl AsRef<Path>) -> Result<OwnedFd> {
    let place = Place::find()?;
    open_at(&place, &place.node(node)?)
}

pub(crate) fn open_at(place: &Place, node: &str) -> Result<OwnedFd> {
    let dir = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(place.full(node));
    dir.map(OwnedFd::from).map_err(|e| place.explain(&Attempt::reading(node, "its directory"), &e))
}

pub(crate) fn path(fd: RawFd) -> Result<String> {
    let place = Place::find()?;
    below(&place, fd).map(|path| place.shown(&path))
}

fn below(place: &Place, fd: RawFd) -> Result<String> {
    let wanted = place.handle(fd)?;
    place.path_of(wanted.resource, |h| h.id == wanted.id).ok_or_else(|| {
        Error::new(libc::ESTALE, format!("descriptor {fd}: its node is gone{}", place::or_hidden()))
    })
}

fn unknown(what: &str) -> Error {
    let text = format!(
        "{what} needs Reserv's hooks in the kernel, which are not loaded ('reserv doctor' says why)"
    );
    Error::new(libc::EOPNOTSUPP, text)
}

pub(crate) fn set_queue(fd: RawFd, queue: RawFd) -> Result<()> {
    let Err(mut e) = calls::number(fd, SET_QUEUE, queue) else { return Ok(()) };
    // An unknown command, perhaps: then sockets may have an option for it.
    if e.raw_os_error() == Some(libc::EINVAL) {
        match calls::set_option(fd, queue) {
            Ok(()) => return Ok(()),
            Err(other) if !unheard_of(&other) => e = other,
            // And files the daemon, which tags what a process has open.
            Err(_) => match through_the_daemon(fd, queue) {
                Some(Ok(())) => return Ok(()),
                Some(Err(other)) => e = other,
                None => {}
            },
        }
    } else if new_perhaps(&e) && matches!(through_the_daemon(fd, queue), Some(Ok(()))) {
        return Ok(());
    }
    Err(why_not(fd, queue, &e).unwrap_or_else(|error| error))
}

/// Whether the device may have come a moment ago: what is stacked above a disk is known to the
/// hooks only when reservd has heard of it. It looks before it tags.
fn new_perhaps(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EXDEV | libc::EOPNOTSUPP))
}

/// Tags by writing to /reserv. The daemon looks at the caller's own right to the queue, not at the
/// one that came with the descriptor. `None`: nothing to ask for, the queue or the file is no such
/// thing.
fn through_the_daemon(fd: RawFd, queue: RawFd) -> Option<io::Result<()>> {
    let place = Place::find().ok()?;
    let handle = place.handle(queue).ok()?;
    let path = place.path_of(handle.resource, |h| h.id == handle.id)?;
    if !calls::is_open(fd) || !place.has(&path, "class") {
        return None;
    }
    Some(
        place.write(
            &format!("{}/fds", place.way.own().ok()?),
            &format!("{fd} {}", place.shown(&path)),
        ),
    )
}

/// The queue of an open file as the daemon tells it. `None`: it tells of no such file.
fn told_by_the_daemon(place: &Place, fd: RawFd, resource: &str) -> Option<Result<String>> {
    let tags = place.read(&format!("{}/fds", place.way.own().ok()?)).ok()?;
    if let Some(why) = late(&tags, resource) {
        return Some(Err(Error::new(libc::EAGAIN, why)));
    }
    let tagged = tags.lines().find_map(|line| {
        let mut words = line.splitn(3, ' ');
        let of_it = words.next()?.parse() == Ok(fd) && words.next() == Some(resource);
        of_it.then(|| words.next().map(ToOwned::to_owned)).flatten()
    });
    let untagged = || {
        // Only tags are listed: whether a file without one lives there, the device says.
        let disk = std::fs::metadata(format!("/dev/reserv/{resource}")).ok()?.rdev();
        Some(match calls::lives_on(fd, disk) {
            Ok(true) => Ok(place.shown(&format!("{resource}/q0"))),
            _ => Err(elsewhere(fd, resource)),
        })
    };
    tagged.map(Ok).or_else(untagged)
}

fn elsewhere(fd: RawFd, resource: &str) -> Error {
    Error::new(libc::ENOENT, format!("descriptor {fd} is no file or socket of {resource}"))
}

/// What every descriptor answers to an option that nobody knows.
fn unheard_of(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(libc::ENOTSOCK | libc::ENOPROTOOPT | libc::EOPNOTSUPP | libc::EBADF)
    )
}

fn why_not(fd: RawFd, queue: RawFd, e: &io::Error) -> Result<Error> {
    let errno = e.raw_os_error().unwrap_or(libc::EIO);
    for (fd, what) in [(fd, "the file"), (queue, "the queue")] {
        if !calls::is_open(fd) {
            return Ok(Error::new(libc::EBADF, format!("{what}: descriptor {fd} is not open")));
        }
    }
    let place = Place::find()?;
    let handle = place.handle(queue)?;
    let name = place.path_of(handle.resource, |h| h.id == handle.id);
    let queue_shown = name.unwrap_or_else(|| format!("descriptor {queue}"));
    let text = match errno {
        libc::EXDEV => {
            format!("{queue_shown} is of another resource than descriptor {fd} lives on")
        }
        libc::ESTALE => format!("{queue_shown}: the queue is gone"),
        libc::EACCES => format!("{queue_shown}: no right to use this queue"),
        libc::EOPNOTSUPP => {
            format!("descriptor {fd} is neither a file nor a socket that can be tagged")
        }
        libc::EBADF => {
            format!("descriptor {fd} or {queue} was opened with O_PATH, which gives no right")
        }
        libc::ENOSPC => {
            format!(
                "no room for a tag of descriptor {fd}: this user's tags are half of what others leave"
            )
        }
        libc::EISDIR | libc::EINVAL if !place.has(&queue_shown, "class") => {
            format!("{queue_shown} is a scheduler node; only queues take tags")
        }
        // A queue and a file that are right, and the command is unknown.
        libc::EINVAL => return Ok(unknown("a tag on a descriptor")),
        _ => format!(
            "descriptor {fd} cannot be tagged with {queue_shown}: {}",
            crate::error::words(errno)
        ),
    };
    Ok(Error::new(errno, text))
}

pub(crate) fn set_queue_path(fd: RawFd, queue: &str) -> Result<()> {
    set_queue(fd, open(queue)?.as_raw_fd())
}

pub(crate) fn get_queue(fd: RawFd, resource: Option<&str>) -> Result<String> {
    let Some(resource) = resource else { return path(fd) };
    if !calls::is_open(fd) {
        return Err(Error::new(libc::EBADF, format!("descriptor {fd} is not open")));
    }
    let place = Place::find()?;
    let number = place.resource(resource)?;
    let argument = i32::try_from(number).unwrap_or(i32::MAX);
    let mut got = calls::number(fd, GET_QUEUE, argument);
    if got.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::EINVAL)) {
        let other = calls::get_option(fd, argument);
        if !other.as_ref().is_err_and(unheard_of) {
            got = other;
        } else if let Some(told) = told_by_the_daemon(&place, fd, resource) {
            return told;
        }
    }
    let index = got.map_err(|e| match e.raw_os_error() {
        Some(libc::EINVAL) => unknown("the tag of a descriptor"),
        Some(libc::ENOENT) => elsewhere(fd, resource),
        _ => Error::of(format!("the tag of descriptor {fd} for {resource}"), &e),
    })?;
    by_index(&place, number, i64::from(index) - 1)
}

/// The path of a node by the number that the kernel answers.
pub(crate) fn by_index(place: &Place, resource: u64, index: i64) -> Result<String> {
    u64::try_from(index)
        .ok()
        .and_then(|index| place.path_of(resource, |h| h.is_queue_dir() && h.index() == index))
        .map(|path| place.shown(&path))
        .ok_or_else(|| {
            Error::new(libc::ESTALE, format!("queue number {index} is gone{}", place::or_hidden()))
        })
}

/// The right to do it is the right to write the node's `gc`, which a descriptor does not show; so
/// this is no call of the kernel's.
pub(crate) fn fset_collect(fd: RawFd, on: bool) -> Result<()> {
    node::set_collect(&below(&Place::find()?, fd)?, on)
}

pub(crate) fn fget_collect(fd: RawFd) -> Result<bool> {
    node::get_collect(&below(&Place::find()?, fd)?)
}
