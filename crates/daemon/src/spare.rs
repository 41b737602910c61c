// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors that are kept for root's requests: where there is none to be had, what connects to
//! the control socket could not even be accepted.

use std::fs::File;

/// For a connection, for its process, and for a file that the request writes. One more, for another
/// thread may be quicker with one.
const SPARE: usize = 4;

/// Some that mean nothing, and can be given back at any time: none, before the first `fill`.
#[derive(Default)]
pub struct Spare(Vec<File>);

impl Spare {
    /// Gives all of them back: as many can be opened now.
    pub fn give(&mut self) {
        self.0.clear();
    }

    /// Has as many as there are to be, as far as there are any.
    pub fn fill(&mut self) {
        while self.0.len() < SPARE {
            let Ok(file) = File::open("/dev/null") else { return };
            self.0.push(file);
        }
    }
}
