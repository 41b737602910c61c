// SPDX-License-Identifier: MIT OR Apache-2.0
//! reservd's control socket: one JSON line there, one back (the commands stand in the daemon's
//! `control.rs`). It carries what is no file: starting configurations, saving, stopping, and what
//! the daemon says about itself; and for root the files too (`socket.rs`).

use std::io::{self, BufRead as _, BufReader};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, send};
use reserv_facts::place;
use serde_json::{Value, json};

use crate::error::{Error, Kind};

/// How long a reservd that was killed may listen still, and how often it is looked whether it does.
const DYING: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(50);

pub(crate) use crate::settings::run as run_dir;

/// A connection.
pub(crate) struct Control(BufReader<UnixStream>);

impl Control {
    /// Or why not.
    pub(crate) fn connect_now() -> io::Result<Self> {
        UnixStream::connect(run_dir().join(place::CONTROL)).map(|stream| Self(BufReader::new(stream)))
    }

    /// `None` when no reservd listens.
    pub(crate) fn connect() -> Result<Option<Self>, Error> {
        match Self::connect_now() {
            Ok(control) => Ok(Some(control)),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                Ok(None)
            }
            Err(e) => Err(Error::io(run_dir().join(place::CONTROL).display(), &e)),
        }
    }

    /// The same, of a reservd that answers. One that was killed a moment ago may listen still.
    pub(crate) fn living() -> Result<Option<Self>, Error> {
        let until = Instant::now() + DYING;
        loop {
            let Some(mut control) = Self::connect()? else { return Ok(None) };
            match control.ask(&json!({ "request": "status" })) {
                Err(e) if e.kind == Kind::NotRunning && Instant::now() < until => sleep(AGAIN),
                answer => return answer.map(|_| Some(control)),
            }
        }
    }

    /// The same where a daemon is needed.
    pub(crate) fn need() -> Result<Self, Error> {
        Self::connect()?.ok_or_else(|| {
            Error::new(Kind::NotRunning, "Reserv is not running: nobody listens on the control socket")
                .hint("start it with: reserv up")
        })
    }

    /// Ask, and wait for the answer.
    pub(crate) fn ask(&mut self, request: &Value) -> Result<Value, Error> {
        let answer = self.exchange(request).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => {
                Error::new(Kind::NotRunning, "reservd went away before it answered")
            }
            io::ErrorKind::InvalidData => Error::refused(format!("reservd's answer is no JSON: {e}")),
            _ => Error::io("reservd went away", &e).of_kind(Kind::NotRunning),
        })?;
        match answer.get("error") {
            Some(error) => Err(refusal(error)),
            None => Ok(answer),
        }
    }
}

impl Control {
    /// A line there, a line back. Without an answer nobody knows whether it was done.
    pub(crate) fn exchange(&mut self, request: &Value) -> io::Result<Value> {
        let mut line = request.to_string();
        line.push('\n');
        // Who is ended by SIGPIPE where nobody reads his output is not to be ended by this.
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            match send(self.0.get_ref().as_raw_fd(), rest, MsgFlags::MSG_NOSIGNAL) {
                Err(Errno::EINTR) => {}
                sent => rest = &rest[sent?..],
            }
        }
        let mut answer = String::new();
        self.0.read_line(&mut answer)?;
        if !answer.ends_with('\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        serde_json::from_str(&answer).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
    }
}

/// An error as the daemon words it.
fn refusal(error: &Value) -> Error {
    let text =
        |key: &str| error.get(key).and_then(Value::as_str).filter(|t| !t.is_empty()).map(str::to_owned);
    let errno = error.get("errno").and_then(Value::as_i64).and_then(|n| i32::try_from(n).ok());
    let message =
        text("text").or_else(|| error.as_str().map(str::to_owned)).unwrap_or_else(|| error.to_string());
    let mut result = match errno {
        Some(libc::EACCES | libc::EPERM) => Error::new(Kind::Denied, message),
        Some(libc::ENOENT | libc::ESRCH) => Error::new(Kind::NotFound, message),
        _ => Error::refused(message),
    };
    result.errno = errno;
    result.hint = text("hint");
    result
}
