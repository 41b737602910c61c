// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open files whose readers wait for news of a node (poll(2), of `dropped`). A file has news when
//! there is another number to tell than when it was read last, or never was. A worker that dies
//! leaves the names of those who wait in the file `polled` of the run-time directory: the next one
//! wakes them all, and they ask again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use reserv_model::{Dropper, NodeId};
use reserv_namespace::Resource;

use crate::refusal::Refusal;
use crate::sync::lock;

/// Open files of one user that are known here.
const OF_ONE_MAX: usize = 256;
/// Those of all users but root.
const OF_USERS_MAX: usize = 16_384;
/// Lines of the file that may be of nobody who waits any more.
const STALE_MAX: usize = 1024;

/// An open file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Of {
    pub(crate) handle: u64,
    pub(crate) uid: u32,
    pub(crate) resource: Resource,
    pub(crate) node: NodeId,
}

#[derive(Debug)]
struct Known {
    of: Of,
    /// The number that was told last.
    told: u64,
    /// By what name the kernel knows who waits.
    waits: Option<u64>,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<u64, Known>,
    users: BTreeMap<u32, usize>,
    /// In the file.
    written: BTreeSet<u64>,
}

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Polled {
    path: PathBuf,
    state: Mutex<State>,
}

/// The number of `dropped`: it is another one whenever somebody lost a packet.
pub(crate) fn dropped(all: &[Dropper]) -> u64 {
    all.iter().fold(0, |sum, of| sum.wrapping_add(of.packets))
}

impl State {
    fn of(&self, uid: u32) -> usize {
        self.users.get(&uid).copied().unwrap_or(0)
    }

    /// The file as it is known, or as one that was told nothing; `None`: there is no room.
    fn known(&mut self, of: Of) -> Option<&mut Known> {
        if !self.files.contains_key(&of.handle) {
            let of_users = self.files.len() - self.of(0);
            let full = self.of(of.uid) >= OF_ONE_MAX || of_users >= OF_USERS_MAX;
            if of.uid != 0 && full {
                return None;
            }
            *self.users.entry(of.uid).or_default() += 1;
            self.files.insert(of.handle, Known { of, told: 0, waits: None });
        }
        self.files.get_mut(&of.handle)
    }

    fn waiting(&self) -> impl Iterator<Item = u64> + '_ {
        self.files.values().filter_map(|known| known.waits)
    }
}

impl Polled {
    /// In this run-time directory.
    pub(crate) fn new(run: &Path) -> Self {
        Self { path: run.join("polled"), state: Mutex::default() }
    }

    /// Who may have waited for an earlier worker; they are to be woken. They stay in the file: this
    /// worker may die before they ask again.
    pub(crate) fn former(&self) -> Vec<u64> {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        let names: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
        lock(&self.state).written.extend(&names);
        names
    }

    /// This number was told. Where there is no room it cannot be polled.
    pub(crate) fn told(&self, of: Of, number: u64) {
        if let Some(known) = lock(&self.state).known(of) {
            known.told = number;
        }
    }

    /// Whether it has news, the number being this; else `waits` is to be woken.
    pub(crate) fn has_news(
        &self,
        of: Of,
        number: u64,
        waits: Option<u64>,
    ) -> Result<bool, Refusal> {
        let mut state = lock(&self.state);
        let known = state.known(of).ok_or_else(|| {
            let why = format!("{OF_ONE_MAX} open files of a user can be polled, and all have been");
            Refusal::new(libc::ENFILE, why)
        })?;
        if known.told != number {
            return Ok(true);
        }
        known.waits = waits.or(known.waits);
        if let Some(name) = waits {
            self.write(&mut state, name).map_err(|error| {
                let why = format!("who waits cannot be noted in {}: {error}", self.path.display());
                Refusal::new(error.raw_os_error().unwrap_or(libc::EIO), why)
            })?;
        }
        Ok(false)
    }

    fn write(&self, state: &mut State, name: u64) -> io::Result<()> {
        if state.written.contains(&name) {
            return Ok(());
        }
        let mut names = vec![name];
        let anew = state.written.len() > STALE_MAX + 2 * state.files.len();
        if anew {
            state.written.clear();
            names = state.waiting().collect();
        }
        let mut lines = String::new();
        for name in &names {
            let _ = writeln!(lines, "{name}");
        }
        let place = if anew { self.path.with_extension("new") } else { self.path.clone() };
        let mut file = OpenOptions::new();
        file.create(true).append(!anew).write(true).truncate(anew).mode(0o600);
        file.open(&place)?.write_all(lines.as_bytes())?;
        if anew {
            fs::rename(&place, &self.path)?;
        }
        state.written.extend(names);
        Ok(())
    }

    /// Whether somebody waits for news of this resource.
    pub(crate) fn is_polled(&self, resource: Resource) -> bool {
        let state = lock(&self.state);
        state.files.values().any(|known| known.of.resource == resource && known.waits.is_some())
    }

    /// Those who wait for what has come, who wait no longer. `number`: of a node; `None`: it is
    /// gone, which is news.
    pub(crate) fn due(
        &self,
        resource: Resource,
        number: impl Fn(NodeId) -> Option<u64>,
    ) -> Vec<u64> {
        let mut state = lock(&self.state);
        let all = state.files.values_mut().filter(|known| known.of.resource == resource);
        all.filter(|known| known.waits.is_some())
            .filter(|known| number(known.of.node) != Some(known.told))
            .filter_map(|known| known.waits.take())
            .collect()
    }

    /// The file was closed.
    pub(crate) fn closed(&self, handle: u64) {
        let mut state = lock(&self.state);
        let Some(known) = state.files.remove(&handle) else { return };
        if let Some(count) = state.users.get_mut(&known.of.uid) {
            *count -= 1;
            if *count == 0 {
                state.users.remove(&known.of.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(handle: u64, uid: u32) -> Of {
        Of { handle, uid, resource: Resource::CPU, node: NodeId::Q0 }
    }

    fn polled() -> (Polled, PathBuf) {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let run = std::env::temp_dir().join(format!("polled-{}-{count}", std::process::id()));
        fs::create_dir_all(&run).unwrap();
        (Polled::new(&run), run)
    }

    #[test]
    fn there_is_news_when_the_number_is_another_than_what_was_told() {
        let (polled, run) = polled();
        assert!(!polled.has_news(of(1, 7), 0, None).unwrap(), "nothing has come");
        assert!(!polled.has_news(of(1, 7), 0, Some(40)).unwrap());
        assert!(polled.is_polled(Resource::CPU));
        assert!(polled.due(Resource::CPU, |_| Some(0)).is_empty());
        assert_eq!(polled.due(Resource::CPU, |_| Some(3)), [40]);
        assert!(!polled.is_polled(Resource::CPU), "who was woken asks again");
        assert!(polled.has_news(of(1, 7), 3, Some(40)).unwrap());
        polled.told(of(1, 7), 3);
        assert!(!polled.has_news(of(1, 7), 3, Some(40)).unwrap());
        assert_eq!(polled.due(Resource::CPU, |_| None), [40], "the node is gone");
        polled.closed(1);
        polled.closed(1);
        assert!(lock(&polled.state).users.is_empty());
        fs::remove_dir_all(run).unwrap();
    }

    #[test]
    fn a_user_has_so_many_and_nobody_elses() {
        let (polled, run) = polled();
        for handle in 0..OF_ONE_MAX as u64 {
            assert!(polled.has_news(of(handle, 7), 0, None).is_ok());
        }
        let refused = polled.has_news(of(1000, 7), 0, None).unwrap_err();
        assert_eq!(refused.errno, libc::ENFILE);
        polled.told(of(1000, 7), 3);
        assert!(polled.has_news(of(1001, 8), 0, None).is_ok());
        polled.closed(0);
        assert!(polled.has_news(of(1000, 7), 0, None).is_ok());
        for handle in 0..2 * OF_ONE_MAX as u64 {
            assert!(polled.has_news(of(10_000 + handle, 0), 0, None).is_ok(), "root");
        }
        fs::remove_dir_all(run).unwrap();
    }

    #[test]
    fn the_next_worker_knows_who_waits_and_the_file_stays_short() {
        let (polled, run) = polled();
        for name in 0..10_000 {
            polled.has_news(of(1, 0), 0, Some(name)).unwrap();
        }
        let lines = fs::read_to_string(run.join("polled")).unwrap().lines().count();
        assert!(lines <= STALE_MAX + 4, "{lines}");
        let next = Polled::new(&run);
        assert!(next.former().contains(&9_999));
        assert!(Polled::new(&run).former().contains(&9_999), "and the one after it");
        next.has_news(of(1, 0), 0, Some(9_999)).unwrap();
        let again = fs::read_to_string(run.join("polled")).unwrap().lines().count();
        assert_eq!(again, lines, "who is in it is not written again");
        fs::remove_dir_all(run).unwrap();
    }
}
