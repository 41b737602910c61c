// SPDX-License-Identifier: MIT OR Apache-2.0
//! reservd's control socket: one JSON line there, one back (the commands stand in the daemon's `control.rs`). It carries what is no file: starting configurations,
//! saving, stopping, and what the daemon says about itself.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::error::{Error, Kind};

/// The run-time directory, unless `RESERV_RUN` says otherwise.
const RUN: &str = "/run/reserv";

/// How long a reservd that was killed may listen still, and how often it is looked whether it does.
const DYING: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(50);

/// The run-time directory.
pub(crate) fn run_dir() -> PathBuf {
    std::env::var_os("RESERV_RUN").filter(|v| !v.is_empty()).map_or_else(|| PathBuf::from(RUN), PathBuf::from)
}

/// A connection.
pub(crate) struct Control(BufReader<UnixStream>);

impl Control {
    /// `None` when no reservd listens.
    pub(crate) fn connect() -> Result<Option<Self>, Error> {
        let path = run_dir().join("control.sock");
        match UnixStream::connect(&path) {
            Ok(stream) => Ok(Some(Self(BufReader::new(stream)))),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                Ok(None)
            }
            Err(e) => Err(Error::io(path.display(), &e)),
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
        let lost = |e: &io::Error| Error::io("reservd went away", e).of_kind(Kind::NotRunning);
        let mut line = request.to_string();
        line.push('\n');
        self.0.get_mut().write_all(line.as_bytes()).map_err(|e| lost(&e))?;
        let mut answer = String::new();
        self.0.read_line(&mut answer).map_err(|e| lost(&e))?;
        if answer.is_empty() {
            return Err(Error::new(Kind::NotRunning, "reservd went away before it answered"));
        }
        let answer: Value = serde_json::from_str(&answer)
            .map_err(|e| Error::refused(format!("reservd's answer is no JSON: {e}")))?;
        match answer.get("error") {
            Some(error) => Err(refusal(error)),
            None => Ok(answer),
        }
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
