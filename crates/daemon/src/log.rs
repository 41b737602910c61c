// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log is standard error. A line that cannot be written is lost, and nothing else happens:
//! nobody ends for it (a full file system, a closed pipe), and nobody waits for who reads it (a
//! pipe, a terminal, a journal that stands still). A file does not grow for ever: when it is full
//! its first half goes.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, send};

/// Longest log file; then half of it goes. Keeper, worker and forgetter write to one file.
const LONGEST: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    File,
    Socket,
    /// Pipes and terminals.
    Stream,
}

/// Where lines go.
#[derive(Debug)]
struct Out {
    to: File,
    kind: Kind,
    /// Longest file.
    longest: u64,
    /// Lines that were lost and of which nobody was told yet.
    lost: AtomicU64,
}

static OUT: OnceLock<Out> = OnceLock::new();

impl Out {
    fn of(fd: BorrowedFd<'_>, longest: u64) -> io::Result<Self> {
        let given = File::from(fd.try_clone_to_owned()?);
        let found = given.metadata()?.file_type();
        let kind = match () {
            () if found.is_file() => Kind::File,
            () if found.is_socket() => Kind::Socket,
            () => Kind::Stream,
        };
        // Opened anew: flags of the given one are shared with whoever started us.
        let again = OpenOptions::new()
            .read(kind == Kind::File)
            .append(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(format!("/proc/self/fd/{}", given.as_raw_fd()));
        let to = if kind == Kind::Socket { given } else { again.unwrap_or(given) };
        Ok(Self { to, kind, longest, lost: AtomicU64::new(0) })
    }

    /// Half of a file that has become too long.
    fn shorten(&self) -> io::Result<()> {
        let len = self.to.metadata()?.len();
        let keep = len.min(self.longest / 2);
        let mut kept = vec![0; usize::try_from(keep).unwrap_or(0)];
        self.to.read_exact_at(&mut kept, len - keep)?;
        let line = kept.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.to.set_len(0)?;
        (&self.to).write_all(b"(what stood before was too long and is gone)\n")?;
        (&self.to).write_all(&kept[line..])
    }

    fn write(&self, line: &[u8]) -> io::Result<()> {
        match self.kind {
            Kind::Socket => {
                let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
                send(self.to.as_raw_fd(), line, flags)?;
                return Ok(());
            }
            Kind::Stream => {
                // Where it could not be opened anew it waits: asked before.
                let mut ready = [PollFd::new(self.to.as_fd(), PollFlags::POLLOUT)];
                if poll(&mut ready, PollTimeout::ZERO)? == 0 {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
            }
            Kind::File if self.to.metadata()?.len() + line.len() as u64 > self.longest => {
                // What cannot be shortened does not grow either.
                self.shorten()?;
            }
            Kind::File => {}
        }
        (&self.to).write_all(line)
    }

    fn put(&self, line: &[u8]) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        let told = if lost == 0 {
            self.write(line)
        } else {
            let told = format!("({lost} lines of the log were lost here)\n");
            self.write(&[told.as_bytes(), line].concat())
        };
        if told.is_err() {
            self.lost.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }
}

/// A line for the log; all of it at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Line;

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(out) = OUT.get() {
            out.put(line);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Last words: what a person is told who started this process. `reserv up` looks for such a line.
pub fn say(text: impl fmt::Display) {
    let _ = Line.write(format!("reservd: {text}\n").as_bytes());
}

/// From here on standard error is written as the head of this file says, panics too.
pub fn begin() {
    if let Ok(out) = Out::of(io::stderr().as_fd(), LONGEST) {
        let _ = OUT.set(out);
    }
    std::panic::set_hook(Box::new(|info| say(info)));
    let filter = tracing_subscriber::EnvFilter::try_new(crate::settings::log())
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Line)
        // It would tell standard error, and panic if that fails.
        .log_internal_errors(false)
        .with_ansi(false)
        .with_target(false)
        .init();
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Seek as _};
    use std::os::fd::OwnedFd;

    use nix::fcntl::OFlag;
    use nix::unistd::pipe2;

    use super::*;

    fn file() -> File {
        // SAFETY: memfd_create takes a name and flags and answers a new descriptor, which is ours
        // alone.
        unsafe {
            let fd = libc::memfd_create(c"log".as_ptr(), libc::MFD_CLOEXEC);
            assert!(fd >= 0);
            std::os::fd::FromRawFd::from_raw_fd(fd)
        }
    }

    fn text(mut file: File) -> String {
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn a_file_stays_short_and_ends_with_the_last_line() {
        let file = file();
        let out = Out::of(file.as_fd(), 1000).unwrap();
        for n in 0..1000 {
            out.put(format!("line {n}\n").as_bytes());
            assert!(file.metadata().unwrap().len() <= 1100);
        }
        let text = text(file);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("(what stood before")
                && lines.ends_with(&["line 998", "line 999"])
        );
        assert!(
            lines[1..].windows(2).all(|two| two[0] < two[1] || two[0].len() < two[1].len()),
            "{text}"
        );
    }

    #[test]
    fn nobody_waits_for_a_reader_and_is_told_what_was_lost() {
        let (read, write) = pipe2(OFlag::O_CLOEXEC).unwrap();
        let out = Out::of(write.as_fd(), LONGEST).unwrap();
        let line = [[b'x'; 99].as_slice(), b"\n"].concat();
        (0..2000).for_each(|_| out.put(&line));
        let lost = out.lost.load(Ordering::Relaxed);
        assert!(lost > 0 && lost < 2000, "{lost}");
        let mut taken = vec![0; 1 << 16];
        let len = nix::unistd::read(&read, &mut taken).unwrap();
        assert!(len >= 4096, "{len}");
        out.put(b"again\n");
        let len = nix::unistd::read(&read, &mut taken).unwrap();
        let end = format!("({lost} lines of the log were lost here)\nagain\n");
        assert!(String::from_utf8_lossy(&taken[..len]).ends_with(&end));
    }

    #[test]
    fn who_reads_may_be_gone_or_stand_still() {
        let (read, write) = pipe2(OFlag::O_CLOEXEC).unwrap();
        drop(read);
        let out = Out::of(write.as_fd(), LONGEST).unwrap();
        out.put(b"into a closed pipe\n");
        assert_eq!(out.lost.load(Ordering::Relaxed), 1);
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let out = Out::of(OwnedFd::from(here).as_fd(), LONGEST).unwrap();
        (0..100_000).for_each(|_| out.put(b"to a journal that stands still\n"));
        assert!(out.lost.load(Ordering::Relaxed) > 0);
        drop(there);
        out.put(b"to one that is gone\n");
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let out = Out::of(full.as_fd(), LONGEST).unwrap();
        out.put(b"no space\n");
        assert_eq!(out.lost.load(Ordering::Relaxed), 1);
    }
}
