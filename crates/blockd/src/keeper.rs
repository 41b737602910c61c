// SPDX-License-Identifier: MIT OR Apache-2.0
//! The keeper: holds the FUSE session, where there is one, and the socket, and starts a worker
//! again that was killed. It does nothing else, so that there is little that can go wrong in it.
//! When it is killed itself, the worker goes on, and is not started again. When both are dead, the
//! requests of a device of ublk wait for another keeper ([`keep`] with `recover`); those of a loop
//! device are answered with an error.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::SockType;

use reserv_facts::place::variable::BLOCKD_HELD as HELD;

use crate::book::Book;
use crate::front::ublk::control::{self, Control};
use crate::front::{Choice, Held, fuse, loopdev};
use crate::log::{Aside, say};
use crate::private;
use crate::serve::{EXIT_STOPPED, Places, Worker};
use crate::settings;

/// A worker that dies sooner is followed more and more slowly.
const STABLE: Duration = Duration::from_secs(1);
/// How often it is looked whether the first worker has made the book.
const LOOK: Duration = Duration::from_millis(5);
/// Longest pause between two workers.
const PAUSE_MAX: Duration = Duration::from_secs(5);

fn wrong(what: &str, error: &dyn std::fmt::Display) -> String {
    format!("{what}: {error}")
}

/// The mark of what is to live as long as the machine: systemd's last step kills all other
/// processes before it unmounts what is still mounted.
pub(crate) const STAYS: &str = "@reserv-blockd";

/// The name of who was started through /proc/self/exe.
pub(crate) fn take_name() {
    // SAFETY: a name is copied.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"reserv-blockd".as_ptr()) };
}

/// Who serves a disk ends when it is given back: a service manager that ends everything, and a
/// terminal that goes, are not obeyed.
fn stay() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: a signal is ignored.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    take_name();
}

/// Another program begins as this one, under the name that stays.
pub fn rename_self() {
    if std::env::args_os().next().is_some_and(|name| name == STAYS) {
        return;
    }
    let error = Command::new("/proc/self/exe").arg0(STAYS).args(std::env::args_os().skip(1)).exec();
    say(format_args!("/proc/self/exe: {error}"));
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

/// What is wanted, as far as this kernel has it.
fn choose(wanted: Choice) -> Result<Choice, String> {
    if wanted == Choice::Fuse {
        return Ok(wanted);
    }
    match (wanted, Control::usable()) {
        (_, Ok(())) => Ok(Choice::Ublk),
        (Choice::Ublk, Err(why)) => Err(format!("no ublk here: {why}")),
        (_, Err(_)) => Ok(Choice::Fuse),
    }
}

fn prepare(places: &Places, front: Choice) -> Result<(Held, OwnedFd), String> {
    let listener = private::listen_at(&places.socket, SockType::SeqPacket, 4)
        .map_err(|e| wrong(&places.socket.display().to_string(), &e))?;
    inheritable(&listener).map_err(|e| wrong("descriptors", &e))?;
    if front == Choice::Ublk {
        return Ok((Held::Ublk, listener));
    }
    let image = places.image.display().to_string();
    let _ = fuse::unmount(&places.image);
    std::fs::write(&places.image, "").map_err(|e| wrong(&image, &e))?;
    let device = fuse::open_device().map_err(|e| wrong("/dev/fuse", &e))?;
    inheritable(&device).map_err(|e| wrong("descriptors", &e))?;
    fuse::mount(&device, &places.image).map_err(|e| wrong(&format!("mount {image}"), &e))?;
    Ok((Held::Fuse(device), listener))
}

/// The socket goes last: reservd waits for that.
fn remove(places: &Places) {
    if let Err(error) = control::remove_marked(places.mark()) {
        say(format_args!("the ublk device is still there: {error}"));
    }
    // Not asked first whether it is there: nobody may be left who answers.
    match fuse::unmount(&places.image) {
        Err(error) if !matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOENT)) => {
            say(format_args!("{}: {error}", places.image.display()));
        }
        _ => {}
    }
    for path in [&places.image, &places.book, &places.socket] {
        let _ = std::fs::remove_file(path);
    }
}

/// Whether a server that was killed with its keeper has left a device whose requests wait for
/// another one.
pub fn may_recover(prefix: &Path) -> bool {
    let places = Places::new(Path::new(""), prefix);
    places.book.exists()
        && Control::open().is_ok_and(|mut control| {
            let left = control.marked(places.mark());
            left.iter()
                .any(|info| matches!(info.state, control::state::LIVE | control::state::QUIESCED))
        })
}

/// Removes what a server left that was killed with its keeper: its device answers nobody any more.
pub fn clean(prefix: &Path) -> io::Result<()> {
    let places = Places::new(Path::new(""), prefix);
    if let Ok(book) = Book::open(&places.book) {
        let (name, _) = book.device();
        if name.starts_with("loop") {
            loopdev::detach(&name)?;
        }
    }
    remove(&places);
    Ok(())
}

/// The book, in memory whatever becomes of the workers. That it cannot be held is said, and is no
/// reason not to serve.
fn hold(places: &Places) -> io::Result<Option<Book>> {
    Book::hold(&places.book)
        .inspect_err(|error| say(format_args!("{} may go to swap: {error}", places.book.display())))
}

/// The whole life of the server of one disk. `recover`: of a server that was killed with its
/// keeper.
pub fn keep(places: &Places, arguments: &[OsString], front: Choice, recover: bool) -> ExitCode {
    stay();
    for_memory_pressure();
    let _aside =
        Aside::begin().map_err(|error| say(format_args!("standard error is waited for: {error}")));
    let chosen = if recover { Ok(Choice::Ublk) } else { choose(front) };
    let (held, listener) = match chosen.and_then(|front| prepare(places, front)) {
        Ok(both) => both,
        Err(why) => {
            say(format_args!("{why}"));
            if !recover {
                remove(places);
            }
            return ExitCode::FAILURE;
        }
    };
    if !recover {
        // Of somebody before us: the first worker's is another file, which is held.
        let _ = std::fs::remove_file(&places.book);
    }
    let mut ready = recover;
    let mut book = None;
    let mut pause = Duration::ZERO;
    loop {
        let start = Instant::now();
        let fuse = match &held {
            Held::Fuse(device) => device.as_raw_fd(),
            Held::Ublk => -1,
        };
        let held =
            format!("{fuse} {} {} {}", listener.as_raw_fd(), u8::from(ready), std::process::id());
        // This same program, whatever lies at its path by now: the next worker understands the last
        // one's book.
        let child =
            Command::new("/proc/self/exe").arg0(STAYS).args(arguments).env(HELD, held).spawn();
        let ended = child.and_then(|mut child| {
            while book.is_none() && child.try_wait()?.is_none() {
                book = hold(places).transpose();
                std::thread::sleep(LOOK);
            }
            child.wait()
        });
        let code = ended.as_ref().ok().and_then(std::process::ExitStatus::code);
        if code == Some(EXIT_STOPPED) || (!ready && !places.book.exists()) {
            remove(places);
            return if code == Some(EXIT_STOPPED) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        // Whoever could begin once can begin again; who ended by its own decision at the very start
        // cannot.
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
    let told = settings::held()?;
    let numbers: Vec<i32> = told.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [fuse, listener, again, keeper] = numbers[..] else {
        say(format_args!("{HELD}: {told}"));
        return Some(ExitCode::FAILURE);
    };
    stay();
    for_memory_pressure();
    // SAFETY: the keeper left it open for us, and for nobody else here.
    let take = |fd| unsafe { OwnedFd::from_raw_fd(fd) };
    let held = if fuse < 0 { Held::Ublk } else { Held::Fuse(take(fuse)) };
    let listener = take(listener);
    // Whoever is started here does not hold the socket.
    let _ = fcntl(&listener, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC));
    let ran = Worker::new(places, held, listener, again == 1).and_then(|mut worker| worker.run());
    Some(match ran {
        Ok(()) => {
            // The keeper was killed: nobody else cleans up.
            if u32::try_from(keeper)
                .is_ok_and(|keeper| keeper != std::os::unix::process::parent_id())
            {
                remove(places);
            }
            ExitCode::SUCCESS
        }
        Err(why) => {
            say(format_args!("{why}"));
            ExitCode::FAILURE
        }
    })
}
