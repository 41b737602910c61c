// SPDX-License-Identifier: MIT OR Apache-2.0
//! The keeper: holds the FUSE session and the socket, and starts a worker again that was killed. It does nothing else, so that there is little that
//! can go wrong in it. When it is killed itself, the worker goes on, and is not started again.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use crate::book::Book;
use crate::front::{fuse, loopdev};
use crate::log::say;
use crate::serve::{EXIT_STOPPED, Places, Worker};

/// A worker that dies sooner is followed more and more slowly.
const STABLE: Duration = Duration::from_secs(1);
/// Longest pause between two workers.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// What the keeper tells a worker: numbers of its descriptors, and whether there was one before.
const HELD: &str = "RESERV_BLOCKD_HELD";

fn wrong(what: &str, error: &dyn std::fmt::Display) -> String {
    format!("{what}: {error}")
}

/// A SOCK_SEQPACKET socket that listens.
fn listen(path: &Path) -> io::Result<OwnedFd> {
    use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
    let _ = std::fs::remove_file(path);
    let fd = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
    bind(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    listen(&fd, Backlog::new(4)?)?;
    Ok(fd)
}

/// No page of ours may have to wait for a page that we write.
fn for_memory_pressure() {
    const PR_SET_IO_FLUSHER: i32 = 57;
    const MCL_ONFAULT: i32 = 4;
    // SAFETY: numbers only.
    unsafe {
        if libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) < 0 {
            say(format_args!("PR_SET_IO_FLUSHER: {}", io::Error::last_os_error()));
        }
        if libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | MCL_ONFAULT) < 0 {
            say(format_args!("mlockall: {}", io::Error::last_os_error()));
        }
        // The first to go when memory runs out should not be who frees it.
        let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
        libc::setpriority(libc::PRIO_PROCESS, 0, -10);
    }
}

fn inheritable(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: a descriptor's flags.
    if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, 0) } < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn prepare(places: &Places) -> Result<(OwnedFd, OwnedFd), String> {
    let image = places.image.display().to_string();
    let _ = fuse::unmount(&places.image);
    std::fs::write(&places.image, "").map_err(|e| wrong(&image, &e))?;
    let listener = listen(&places.socket).map_err(|e| wrong(&places.socket.display().to_string(), &e))?;
    let device = fuse::open_device().map_err(|e| wrong("/dev/fuse", &e))?;
    inheritable(&device).and_then(|()| inheritable(&listener)).map_err(|e| wrong("descriptors", &e))?;
    fuse::mount(&device, &places.image).map_err(|e| wrong(&format!("mount {image}"), &e))?;
    Ok((device, listener))
}

fn remove(places: &Places) {
    if let Err(error) = fuse::unmount(&places.image) {
        say(format_args!("{}: {error}", places.image.display()));
    }
    for path in [&places.image, &places.book, &places.socket] {
        let _ = std::fs::remove_file(path);
    }
}

/// Removes what a server left that was killed with its keeper: its device answers nobody any more.
pub fn clean(prefix: &Path) -> io::Result<()> {
    let places = Places::new(Path::new(""), prefix);
    if let Ok(book) = Book::open(&places.book) {
        let (name, _) = book.device();
        if !name.is_empty() {
            loopdev::detach(&name)?;
        }
    }
    remove(&places);
    Ok(())
}

/// The whole life of the server of one disk.
pub fn keep(places: &Places, arguments: &[OsString]) -> ExitCode {
    for_memory_pressure();
    let (device, listener) = match prepare(places) {
        Ok(both) => both,
        Err(why) => {
            say(format_args!("{why}"));
            remove(places);
            return ExitCode::FAILURE;
        }
    };
    let program = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    let mut ready = false;
    let mut pause = Duration::ZERO;
    loop {
        let start = Instant::now();
        let held = format!("{} {} {}", device.as_raw_fd(), listener.as_raw_fd(), u8::from(ready));
        let child = Command::new(&program).arg0("reserv-blockd").args(arguments).env(HELD, held).spawn();
        let ended = child.and_then(|mut child| child.wait());
        let code = ended.as_ref().ok().and_then(std::process::ExitStatus::code);
        if code == Some(EXIT_STOPPED) || (!ready && !places.book.exists()) {
            remove(places);
            return if code == Some(EXIT_STOPPED) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        // Whoever could begin once can begin again; who ended by its own decision at the very start cannot.
        if !ready && code.is_some() {
            remove(places);
            return ExitCode::FAILURE;
        }
        ready = true;
        say(format_args!("the worker ended ({ended:?}); starting another"));
        pause = if start.elapsed() > STABLE {
            Duration::ZERO
        } else {
            (pause * 2).clamp(Duration::from_millis(10), PAUSE_MAX)
        };
        std::thread::sleep(pause);
    }
}

/// A worker's life, if this process was started as one.
pub fn work(places: &Places) -> Option<ExitCode> {
    let held = std::env::var(HELD).ok()?;
    let mut numbers = held.split(' ').filter_map(|word| word.parse::<i32>().ok());
    let (Some(device), Some(listener), Some(again)) = (numbers.next(), numbers.next(), numbers.next()) else {
        say(format_args!("{HELD}: {held}"));
        return Some(ExitCode::FAILURE);
    };
    for_memory_pressure();
    // SAFETY: the keeper left these open for us, and for nobody else here.
    let (device, listener) = unsafe { (OwnedFd::from_raw_fd(device), OwnedFd::from_raw_fd(listener)) };
    let ran = Worker::new(places.clone(), device, listener, again == 1).and_then(|mut worker| worker.run());
    Some(match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            say(format_args!("{why}"));
            ExitCode::FAILURE
        }
    })
}
