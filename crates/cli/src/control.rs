// SPDX-License-Identifier: MIT OR Apache-2.0
//! reservd's control socket, for what is no file (`reserv_control` has what is said there):
//! starting configurations, saving, stopping, and what the daemon says about itself.

use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use reserv_control::{Command, Connection, Failed, Refused};
use reserv_facts::place;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Error, Kind};

/// How long a reservd that was killed may listen still, and how often it is looked whether it does.
const DYING: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(50);

pub(crate) use crate::settings::run as run_dir;

/// A connection.
pub(crate) struct Control(Connection);

impl Control {
    /// `None` when no reservd listens.
    pub(crate) fn connect() -> Result<Option<Self>, Error> {
        match Connection::open(&run_dir()) {
            Ok(connection) => Ok(Some(Self(connection))),
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                ) =>
            {
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
            match control.ask::<Value>(&Command::Status {}) {
                Err(e) if e.kind == Kind::NotRunning && Instant::now() < until => sleep(AGAIN),
                answer => return answer.map(|_| Some(control)),
            }
        }
    }

    /// The same where a daemon is needed.
    pub(crate) fn need() -> Result<Self, Error> {
        Self::connect()?.ok_or_else(|| {
            Error::new(
                Kind::NotRunning,
                "Reserv is not running: nobody listens on the control socket",
            )
            .hint("start it with: reserv up")
        })
    }

    /// Ask, and wait for the answer.
    pub(crate) fn ask<A: DeserializeOwned>(&mut self, command: &Command) -> Result<A, Error> {
        self.0.ask(command).map_err(|failed| match failed {
            Failed::Refused(refused) => refusal(refused),
            Failed::Lost(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                Error::new(Kind::NotRunning, "reservd went away before it answered")
            }
            Failed::Lost(e) if e.kind() == io::ErrorKind::InvalidData => {
                Error::refused(format!("reservd's answer is not understood: {e}"))
            }
            Failed::Lost(e) => Error::io("reservd went away", &e).of_kind(Kind::NotRunning),
        })
    }
}

/// An error as the daemon words it.
pub(crate) fn refusal(Refused { errno, text, hint }: Refused) -> Error {
    let mut error = match errno {
        libc::EACCES | libc::EPERM => Error::new(Kind::Denied, text),
        libc::ENOENT | libc::ESRCH => Error::new(Kind::NotFound, text),
        _ => Error::refused(text),
    };
    error.errno = Some(errno);
    error.hint = Some(hint).filter(|hint| !hint.is_empty());
    error
}
