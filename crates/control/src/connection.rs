// SPDX-License-Identifier: MIT OR Apache-2.0
//! A connection.

use std::io::{self, BufRead as _, BufReader};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use reserv_facts::place;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::answer::Refusal;
use crate::asker::Failed;

/// To whoever listens in a run-time directory.
#[derive(Debug)]
pub struct Connection(BufReader<UnixStream>);

fn no_json(error: serde_json::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl Connection {
    /// Or why not.
    pub fn open(run: &Path) -> io::Result<Self> {
        UnixStream::connect(run.join(place::CONTROL)).map(|stream| Self(BufReader::new(stream)))
    }

    /// A line there, a line back. Where it is [`Failed::Lost`], nobody knows whether it was done.
    pub fn ask<A: DeserializeOwned>(&mut self, request: &impl Serialize) -> Result<A, Failed> {
        let answer = self.exchange(request)?;
        if answer.get("error").is_none() {
            return serde_json::from_value(answer).map_err(|error| Failed::Lost(no_json(error)));
        }
        match serde_json::from_value::<Refusal>(answer) {
            Ok(refusal) => Err(Failed::Refused(refusal.error)),
            Err(error) => Err(Failed::Lost(no_json(error))),
        }
    }

    fn exchange(&mut self, request: &impl Serialize) -> io::Result<Value> {
        let mut line = serde_json::to_string(request).map_err(no_json)?;
        line.push('\n');
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            match self.send(rest) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                sent => rest = &rest[sent?..],
            }
        }
        let mut answer = String::new();
        self.0.read_line(&mut answer)?;
        if !answer.ends_with('\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        serde_json::from_str(&answer).map_err(no_json)
    }

    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let fd = self.0.get_ref().as_raw_fd();
        // Who is ended by SIGPIPE where nobody reads his output is not to be ended by this.
        // SAFETY: memory of that length, which is only read.
        let sent =
            unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}
