// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages for people, to standard error. Nobody may read it any more: that is no reason to end.
//! Nor may anybody who serves a disk wait for it: it may be a file in memory whose page is on its
//! way to swap on that very disk (where the keeper waited, no other worker was ever started), or a
//! pipe to who writes to it. So keeper and workers write into a pipe that drops what it has no room
//! for, and a thread of the keeper, which nobody waits for, carries it on.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::pipe2;

/// Who ends waits so long for his last words.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// One line.
pub fn say(text: fmt::Arguments<'_>) {
    // Whole: of two who write at once neither is torn.
    let line = format!("reserv-blockd[{}]: {text}\n", std::process::id());
    let _ = io::stderr().write_all(line.as_bytes());
}

/// A pipe whose writers never wait, and the end of the thread that carries what is in it to `to`:
/// when all of them are closed and all is there.
fn aside(mut to: File) -> io::Result<(OwnedFd, Receiver<()>)> {
    let (from, into) = pipe2(OFlag::O_CLOEXEC)?;
    fcntl(&into, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    let (done, end) = channel();
    std::thread::Builder::new().name("log".into()).spawn(move || {
        let (mut from, mut text) = (File::from(from), [0; 4096]);
        while let Ok(len @ 1..) = from.read(&mut text) {
            let _ = to.write_all(&text[..len]);
        }
        let _ = done.send(());
    })?;
    Ok((into, end))
}

/// Standard error as it is for keeper and workers; until it is dropped.
#[derive(Debug)]
pub struct Aside {
    real: OwnedFd,
    end: Receiver<()>,
}

impl Aside {
    /// From here on nobody in this process, or started by it, waits for who reads standard error.
    pub fn begin() -> io::Result<Self> {
        let real = io::stderr().as_fd().try_clone_to_owned()?;
        let (into, end) = aside(File::from(real.try_clone()?))?;
        Self::put(&into)?;
        Ok(Self { real, end })
    }

    fn put(fd: &OwnedFd) -> io::Result<()> {
        nix::unistd::dup2_stderr(fd).map_err(Into::into)
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if Self::put(&self.real).is_ok() {
            let _ = self.end.recv_timeout(LAST_WORDS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pipe with room for a page, into which nobody who waits could write all of this.
    #[test]
    fn nobody_waits_for_who_does_not_read() {
        let (read, write) = pipe2(OFlag::O_CLOEXEC).unwrap();
        fcntl(&write, FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
        let (into, end) = aside(File::from(write)).unwrap();
        let mut into = File::from(into);
        let (mut taken, mut dropped) = (0, 0);
        for _ in 0..10_000 {
            match into.write(&[b'x'; 100]) {
                Ok(len) => taken += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => dropped += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(taken > 2 * 4096 && dropped > 0, "{taken} bytes taken, {dropped} lines dropped");
        drop(into);
        assert!(end.try_recv().is_err(), "it waits for the reader, who is slow");
        let mut came = Vec::new();
        File::from(read).read_to_end(&mut came).unwrap();
        assert_eq!(came.len(), taken, "what was taken comes");
        end.recv_timeout(Duration::from_secs(10)).unwrap();
    }
}
