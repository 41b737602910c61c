// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a worker was answering when it died. The kernel gives a request that was not answered to
//! the next worker, and clients of the control socket ask again; one on which the worker panics
//! would end each of them, and nobody would be served any more. So who has ended two workers is
//! answered EIO.
//!
//! ```text
//!  file:   a slot for each request that is being answered: its number (8 bytes), workers that it
//!          has ended (8 bytes). 0: nobody's
//!  worker  takes a slot before it begins with a request, and empties it behind the answer
//!  keeper  a worker died of its own fault (by a signal that is no SIGKILL): one more in each slot
//!  worker  the next one reads the file; what stands there is suspected, and served one at a time,
//!          so that the second death is of one of them only
//! ```
//!
//! SIGKILL says nothing about the request: it comes from outside. The file is removed with the
//! session whose numbers it has. Without room for it nothing is refused.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

use crate::sync::lock;

/// Requests that are answered at once and have a slot; further ones have none.
const SLOTS: usize = 256;
const SLOT: usize = 16;
/// Workers that one request may end.
const DEATHS_MAX: u64 = 2;
/// How long a suspect waits for another one.
const WAIT: Duration = Duration::from_secs(3);
/// Numbers of the control socket's requests have this bit, those of the kernel's have not.
const CONTROL: u64 = 1 << 63;

#[derive(Debug, Default)]
struct State {
    free: Vec<usize>,
    suspects: HashMap<u64, u64>,
    /// One of them is being answered.
    busy: bool,
}

#[derive(Debug, Default)]
struct Shared {
    file: Option<File>,
    state: Mutex<State>,
    changed: Condvar,
}

/// The worker's side. See the head of this file.
#[derive(Clone, Debug, Default)]
pub struct Unanswered(Arc<Shared>);

/// It has ended as many workers as it may.
#[derive(Debug, PartialEq, Eq)]
pub struct Fatal;

/// One request is being answered, until this is dropped.
#[derive(Debug)]
pub struct Note {
    shared: Arc<Shared>,
    slot: Option<usize>,
    suspect: bool,
}

fn word(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_ne_bytes)
}

/// Numbers and deaths of the slots that are taken.
fn slots(bytes: &[u8]) -> impl Iterator<Item = (usize, u64, u64)> + '_ {
    let of = |(slot, bytes): (usize, &[u8])| (slot, word(&bytes[..8]), word(&bytes[8..]));
    bytes.chunks_exact(SLOT).take(SLOTS).enumerate().map(of).filter(|(_, number, _)| *number != 0)
}

fn write(file: &File, slot: usize, number: u64, deaths: u64) -> io::Result<()> {
    let bytes = [number.to_ne_bytes(), deaths.to_ne_bytes()].concat();
    file.write_all_at(&bytes, (slot * SLOT) as u64)
}

/// The worker died of its own fault: whatever it was answering may have done it.
pub fn died(path: &Path) {
    let more = || -> io::Result<()> {
        let bytes = std::fs::read(path)?;
        let file = OpenOptions::new().write(true).open(path)?;
        slots(&bytes).try_for_each(|(slot, number, deaths)| write(&file, slot, number, deaths + 1))
    };
    if let Err(error) = more() {
        tracing::debug!(%error, "what the worker was answering is not known");
    }
}

/// The session has ended, and its numbers begin anew.
pub fn forget(path: &Path) {
    let _ = std::fs::remove_file(path);
}

impl Unanswered {
    /// Of this worker, and of what an earlier one left.
    pub fn open(path: &Path) -> Self {
        let suspects = slots(&std::fs::read(path).unwrap_or_default())
            .map(|(_, number, deaths)| (number, deaths))
            .collect();
        // All of its room is taken now: later nothing can fail.
        let made = || -> io::Result<File> {
            let mut options = OpenOptions::new();
            let file = options.write(true).create(true).truncate(false).mode(0o600).open(path)?;
            file.write_all_at(&[0; SLOTS * SLOT], 0)?;
            Ok(file)
        };
        let file = made()
            .inspect_err(|error| tracing::warn!(%error, "{}: a request may end many workers", path.display()))
            .ok();
        let state = State { free: (0..SLOTS).rev().collect(), suspects, busy: false };
        Self(Arc::new(Shared { file, state: Mutex::new(state), changed: Condvar::new() }))
    }

    /// A request of the kernel's is being answered, by its number.
    pub fn begin(&self, number: u64) -> Result<Note, Fatal> {
        let mut state = lock(&self.0.state);
        let deaths = state.suspects.remove(&number).unwrap_or(0);
        if deaths >= DEATHS_MAX {
            return Err(Fatal);
        }
        let suspect = deaths > 0;
        if suspect {
            let waited = self.0.changed.wait_timeout_while(state, WAIT, |state| state.busy);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.busy = true;
        }
        let slot = state.free.pop();
        drop(state);
        if let (Some(slot), Some(file)) = (slot, &self.0.file) {
            let _ = write(file, slot, number, deaths);
        }
        Ok(Note { shared: self.0.clone(), slot, suspect })
    }

    /// One of the control socket's, by what it says. Asked again it has one word more.
    pub fn begin_said(&self, said: &Value) -> Result<Note, Fatal> {
        let mut same = said.clone();
        if let Some(words) = same.as_object_mut() {
            words.remove("again");
        }
        let mut hasher = DefaultHasher::new();
        same.to_string().hash(&mut hasher);
        self.begin(hasher.finish() | CONTROL)
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        if let (Some(slot), Some(file)) = (self.slot, &self.shared.file) {
            let _ = write(file, slot, 0, 0);
        }
        let mut state = lock(&self.shared.state);
        state.free.extend(self.slot);
        if self.suspect {
            state.busy = false;
            self.shared.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_ended_two_workers_is_refused_once_and_nobody_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("unanswered");
        let first = Unanswered::open(&path);
        let kept = [first.begin(2).unwrap(), first.begin(4).unwrap()];
        drop(first.begin(6).unwrap());
        std::mem::forget(kept);
        died(&path);
        let second = Unanswered::open(&path);
        std::mem::forget((second.begin(2).unwrap(), second.begin(8).unwrap()));
        died(&path);
        let third = Unanswered::open(&path);
        assert_eq!(third.begin(2).map(drop), Err(Fatal));
        for other in [4, 6, 8, 2] {
            assert!(third.begin(other).is_ok(), "{other}");
        }
        drop(third);
        let fourth = Unanswered::open(&path);
        assert!(fourth.begin(8).is_ok(), "what was answered is suspected no more");
    }

    #[test]
    fn a_worker_that_was_killed_blames_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("unanswered");
        for _ in 0..5 {
            std::mem::forget(Unanswered::open(&path).begin(2).unwrap());
        }
        died(&path);
        std::mem::forget(Unanswered::open(&path).begin(2).unwrap());
        let again = Unanswered::open(&path);
        assert_eq!(
            lock(&again.0.state).suspects.get(&2),
            Some(&1),
            "its death before is remembered"
        );
        forget(&path);
        died(&path);
        assert!(
            lock(&Unanswered::open(&path).0.state).suspects.is_empty(),
            "a session ends with it"
        );
    }

    #[test]
    fn suspects_are_answered_one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("unanswered");
        let first = Unanswered::open(&path);
        std::mem::forget([first.begin(2).unwrap(), first.begin(4).unwrap()]);
        died(&path);
        let second = Unanswered::open(&path);
        let (one, other) = (second.begin(2).unwrap(), second.clone());
        let thread = std::thread::spawn(move || other.begin(4).map(|note| note.suspect));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!thread.is_finished());
        assert!(second.begin(6).is_ok(), "others do not wait");
        drop(one);
        assert_eq!(thread.join().unwrap(), Ok(true));
    }

    #[test]
    fn what_is_asked_again_is_the_same_request() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("unanswered");
        let said = |again: bool| {
            if again {
                serde_json::json!({"request": "write", "number": 7, "again": true})
            } else {
                serde_json::json!({"number": 7, "request": "write"})
            }
        };
        for again in [false, true] {
            std::mem::forget(Unanswered::open(&path).begin_said(&said(again)).unwrap());
            died(&path);
        }
        let third = Unanswered::open(&path);
        assert!(third.begin_said(&serde_json::json!({"request": "write", "number": 8})).is_ok());
        assert_eq!(third.begin_said(&said(true)).map(drop), Err(Fatal));
    }
}
