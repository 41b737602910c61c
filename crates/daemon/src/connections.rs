// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the connections of the control socket may take from each other: nothing.
//!
//! There is a place for each. When all are taken, who comes gets that of the connection that has
//! been idle longest (its client asks again on a new one: `crates/cli/src/control.rs`); where none
//! is idle, none. A line has a greatest length, and a longest time from its first byte to its last.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::sync::lock;

/// Longest line.
const LINE_MAX: usize = 1 << 20;
/// What of a longer one is taken, and for how long, before its connection is closed.
const DRAIN_MAX: usize = 64 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(1);
/// What is read at once.
const READ: usize = 16 << 10;

/// One that is there.
struct Connection {
    stream: Arc<UnixStream>,
    /// Since when nothing of it has been under way.
    idle: Option<Instant>,
}

/// All of them, by the order of their coming.
#[derive(Default)]
struct There {
    next: u64,
    all: BTreeMap<u64, Connection>,
}

/// See the head of this file.
pub struct Connections {
    max: usize,
    there: Mutex<There>,
}

/// A connection's place, until it is dropped.
pub struct Place {
    connections: Arc<Connections>,
    number: u64,
}

impl Connections {
    /// At most so many at once.
    pub fn new(max: usize) -> Self {
        Self { max, there: Mutex::default() }
    }

    /// A place, if need be that of another.
    pub fn enter(self: &Arc<Self>, stream: &Arc<UnixStream>) -> Option<Place> {
        let mut there = lock(&self.there);
        if there.all.len() >= self.max {
            let idle = there.all.iter().filter_map(|(number, one)| Some((one.idle?, *number)));
            let (_, longest) = idle.min()?;
            if let Some(gone) = there.all.remove(&longest) {
                let _ = gone.stream.shutdown(Shutdown::Both);
            }
        }
        let number = there.next;
        there.next += 1;
        there.all.insert(number, Connection { stream: stream.clone(), idle: Some(Instant::now()) });
        Some(Place { connections: self.clone(), number })
    }
}

impl Place {
    /// A request begins; false: the place is another's by now.
    pub fn busy(&self) -> bool {
        self.set(None)
    }

    /// It has been answered.
    pub fn idle(&self) {
        self.set(Some(Instant::now()));
    }

    fn set(&self, idle: Option<Instant>) -> bool {
        let mut there = lock(&self.connections.there);
        there.all.get_mut(&self.number).is_some_and(|one| {
            one.idle = idle;
            true
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.connections.there).all.remove(&self.number);
    }
}

/// What a connection said.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// A line without its end, or what stood behind the last one.
    Whole(Vec<u8>),
    /// More than a line may have. What follows is no line.
    TooLong,
    /// Nothing comes any more.
    End,
}

/// The lines of a connection.
pub struct Lines<'s> {
    stream: &'s UnixStream,
    silence: Duration,
    /// What was read and is no whole line yet, and how far it was looked through.
    read: Vec<u8>,
    seen: usize,
}

impl<'s> Lines<'s> {
    /// Each comes within `silence`, and takes no longer than that.
    pub fn new(stream: &'s UnixStream, silence: Duration) -> Self {
        Self { stream, silence, read: Vec::new(), seen: 0 }
    }

    /// Takes what is still said in a line that was too long, and throws it away, so that who says
    /// it comes to read the answer: with something unread a socket's end is a reset.
    pub fn drain(&mut self) {
        let until = Instant::now() + DRAIN_TIME;
        let mut stream = self.stream;
        let mut piece = [0; READ];
        let mut left = DRAIN_MAX;
        while left > 0 && Instant::now() < until {
            let _ = stream.set_read_timeout(Some(DRAIN_TIME));
            match stream.read(&mut piece) {
                Ok(0) | Err(_) => return,
                Ok(got) => left = left.saturating_sub(got),
            }
        }
    }

    /// The next one. `TimedOut` or `WouldBlock` when it does not come.
    pub fn line(&mut self) -> io::Result<Line> {
        let mut until = Instant::now() + self.silence;
        loop {
            if let Some(at) = self.read[self.seen..].iter().position(|byte| *byte == b'\n') {
                let rest = self.read.split_off(self.seen + at + 1);
                let mut line = std::mem::replace(&mut self.read, rest);
                line.pop();
                self.seen = 0;
                return Ok(if line.len() < LINE_MAX { Line::Whole(line) } else { Line::TooLong });
            }
            self.seen = self.read.len();
            if self.seen >= LINE_MAX {
                return Ok(Line::TooLong);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
            let mut piece = [0; READ];
            let mut stream = self.stream;
            let got = match stream.read(&mut piece) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                got => got?,
            };
            if got == 0 {
                let last = std::mem::take(&mut self.read);
                self.seen = 0;
                return Ok(if last.is_empty() { Line::End } else { Line::Whole(last) });
            }
            if self.read.is_empty() {
                until = Instant::now() + self.silence;
            }
            self.read.extend_from_slice(&piece[..got]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn pair() -> (UnixStream, Arc<UnixStream>) {
        let (a, b) = UnixStream::pair().unwrap();
        (a, Arc::new(b))
    }

    #[test]
    fn lines_come_whole() {
        let (mut client, server) = pair();
        client.write_all(b"one\ntwo\n\nthr").unwrap();
        let mut lines = Lines::new(&server, Duration::from_secs(5));
        for line in ["one", "two", ""] {
            assert_eq!(lines.line().unwrap(), Line::Whole(line.into()));
        }
        client.write_all(b"ee").unwrap();
        drop(client);
        assert_eq!(lines.line().unwrap(), Line::Whole(b"three".into()));
        assert_eq!(lines.line().unwrap(), Line::End);
    }

    #[test]
    fn a_line_that_is_too_long_or_too_slow_ends_it() {
        for (length, whole) in [(LINE_MAX - 1, true), (LINE_MAX, false)] {
            let (mut client, server) = pair();
            let sender = std::thread::spawn(move || {
                let mut text = vec![b'x'; length];
                text.push(b'\n');
                let _ = client.write_all(&text);
            });
            let line = Lines::new(&server, Duration::from_secs(5)).line().unwrap();
            assert_eq!(matches!(line, Line::Whole(_)), whole, "{length}");
            drop(server);
            sender.join().unwrap();
        }
        // A byte now and then is no reason to wait on.
        let (mut client, server) = pair();
        let dripping = std::thread::spawn(move || {
            while client.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let began = Instant::now();
        let error = Lines::new(&server, Duration::from_millis(200)).line().unwrap_err();
        assert!(
            matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock),
            "{error}"
        );
        assert!(began.elapsed() < Duration::from_secs(4));
        drop(server);
        dripping.join().unwrap();
    }

    #[test]
    fn who_is_idle_longest_makes_room() {
        let connections = Arc::new(Connections::new(2));
        let pairs: Vec<_> = (0..4).map(|_| pair()).collect();
        let first = connections.enter(&pairs[0].1).unwrap();
        let second = connections.enter(&pairs[1].1).unwrap();
        assert!(first.busy() && second.busy());
        assert!(connections.enter(&pairs[2].1).is_none(), "all are served");
        second.idle();
        let third = connections.enter(&pairs[2].1).unwrap();
        assert!(!second.busy(), "it has lost its place");
        assert_eq!((&pairs[1].0).read(&mut [0]).unwrap(), 0, "and is told so");
        assert!(first.busy() && third.busy());
        drop(second);
        assert!(connections.enter(&pairs[3].1).is_none());
        drop(first);
        assert!(connections.enter(&pairs[3].1).is_some());
    }
}
