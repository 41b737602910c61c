// SPDX-License-Identifier: MIT OR Apache-2.0
//! For which clients a listening socket is. The daemon is asked, which borrows the descriptor.

use std::os::fd::RawFd;

use crate::calls;
use crate::error::{Error, Result};
use crate::files::Attempt;
use crate::place::Place;

const FILE: &str = "listen";

/// The directory of the calling process.
fn own(place: &Place) -> Result<String> {
    place.way.own().map_err(|e| place.explain(&Attempt::reading("self", "link"), &e))
}

fn require_open(fd: RawFd) -> Result<()> {
    if calls::is_open(fd) {
        return Ok(());
    }
    Err(Error::new(libc::EBADF, format!("descriptor {fd} is not open")))
}

/// As borrowed.rs says.
pub(crate) fn listen_for(fd: RawFd, clients: &str) -> Result<()> {
    require_open(fd)?;
    let place = Place::find()?;
    let (dir, text) = (own(&place)?, format!("{fd} {clients}"));
    let attempt = Attempt::writing(&dir, FILE, &text);
    place.write(&format!("{dir}/{FILE}"), &text).map_err(|e| place.explain(&attempt, &e))
}

/// As borrowed.rs says.
pub(crate) fn listens_for(fd: RawFd) -> Result<String> {
    require_open(fd)?;
    let place = Place::find()?;
    let dir = own(&place)?;
    let attempt = Attempt::reading(&dir, FILE);
    let text = place.read(&format!("{dir}/{FILE}")).map_err(|e| place.explain(&attempt, &e))?;
    let of_it = |line: &str| {
        let (number, clients) = line.split_once(' ')?;
        (number.parse() == Ok(fd)).then(|| clients.to_owned())
    };
    Ok(text.lines().find_map(of_it).unwrap_or_else(|| "none".into()))
}
