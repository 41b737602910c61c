// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where tagged threads came from, so that leaving our tree leads back there.
//!
//! A thread that enters the tree from outside is recorded with what tells it from others that have
//! its number later ([`Born`]).
//! One that was born inside has no record of its own: it goes back with its process's first thread
//! or its nearest recorded ancestor. The records are lines appended to a file, so that they outlive
//! the daemon.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::kernel::Kernel;
use super::mounts::Version;
use super::places::{Born, Place, Places, gone, os};
use crate::PlaneError;

#[derive(Serialize, Deserialize)]
struct Record {
    tid: i32,
    /// One of these two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    identity: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started: Option<u64>,
    place: Place,
}

impl Record {
    fn born(&self) -> Option<Born> {
        self.identity.map(Born::Identity).or(self.started.map(Born::Started))
    }
}

pub(crate) struct Origins {
    records: BTreeMap<i32, (Born, Place)>,
    file: String,
    /// Records that are kept without looking whether they are still of use.
    watermark: usize,
}

const SPARE: usize = 1024;

impl Origins {
    pub(crate) fn empty(file: String) -> Self {
        Self { records: BTreeMap::new(), file, watermark: SPARE }
    }

    /// Reads what a previous daemon left, keeping the records of threads that are still ours. A
    /// torn last line is the record of a thread that was not moved yet.
    pub(crate) fn load(cg: &Places, file: String) -> Result<Self, PlaneError> {
        let mut origins = Self::empty(file);
        let text = match cg.kernel().read(&origins.file) {
            Ok(text) => text,
            Err(e) if gone(&e) => String::new(),
            Err(e) => return Err(os(format!("read {}", origins.file))(e)),
        };
        for record in text.lines().filter_map(|line| serde_json::from_str::<Record>(line).ok()) {
            if let Some(born) = record.born() {
                origins.records.insert(record.tid, (born, record.place));
            }
        }
        origins.prune(cg)?;
        Ok(origins)
    }

    /// Forgets the records of threads that have gone or left, and writes the file anew. One whose
    /// number another thread of ours has by now is of no use, and does no harm ([`Origins::own`]):
    /// whether that is so is not asked of all, for the answer may have to be waited for.
    fn prune(&mut self, cg: &Places) -> Result<(), PlaneError> {
        self.records.retain(|tid, _| cg.locate(*tid).is_ok_and(|place| cg.ours(&place)));
        self.watermark = 2 * self.records.len() + SPARE;
        let lines: String =
            self.records.iter().map(|(tid, (born, place))| line(*tid, *born, place)).collect();
        cg.kernel().store(&self.file, lines.as_bytes()).map_err(os(format!("write {}", self.file)))
    }

    /// Records threads that are about to enter the tree.
    pub(crate) fn add(&mut self, cg: &Places, entering: &[(i32, Place)]) -> Result<(), PlaneError> {
        let mut lines = String::new();
        for (tid, place) in entering {
            let Ok(born) = cg.born(*tid) else { continue };
            lines += &line(*tid, born, place);
            self.records.insert(*tid, (born, place.clone()));
        }
        cg.kernel().append(&self.file, &lines).map_err(os(format!("append to {}", self.file)))?;
        if self.records.len() > self.watermark {
            self.prune(cg)?;
        }
        Ok(())
    }

    fn own(&self, cg: &Places, tid: i32) -> Option<Place> {
        let (born, place) = self.records.get(&tid)?;
        cg.is_the_same(tid, *born).then(|| place.clone())
    }

    /// Where a thread of ours came from.
    fn of(&self, cg: &Places, tid: i32) -> Option<Place> {
        let mut at = tid;
        // Bounded by the depth of the tree of processes; a loop is impossible but for races with
        // exits.
        for _ in 0..256 {
            if let Some(place) = self.own(cg, at) {
                return Some(place);
            }
            let leader = cg.tgid(at).ok()?;
            if leader != at {
                at = leader;
                continue;
            }
            at = cg.parent(at).ok()?;
            if at <= 0 {
                return None;
            }
            let place = cg.locate(at).ok()?;
            if !cg.ours(&place) {
                return Some(place);
            }
        }
        None
    }

    /// Gives one thread back to where it came from, or to `q0` (directories) when that is gone or
    /// takes no single thread. Answers whether it moved; a thread that is not ours, or gone, does
    /// not.
    pub(crate) fn release_thread(
        &mut self,
        cg: &Places,
        tid: i32,
        q0: &[String],
    ) -> Result<bool, PlaneError> {
        let before = match cg.locate(tid) {
            Ok(place) if cg.ours(&place) => place,
            Ok(_) | Err(PlaneError::NoProcess(_)) => return Ok(false),
            Err(error) => return Err(error),
        };
        let home = self.of(cg, tid).and_then(|place| cg.dirs_of(&place));
        if let Some(home) = &home {
            match cg.put_thread(home, tid) {
                Ok(()) => {
                    self.records.remove(&tid);
                    return Ok(true);
                }
                Err(e) if gone(&e) && cg.locate(tid).is_err() => return Ok(false),
                // Another domain (v2), or a cgroup that takes nobody any more.
                Err(_) => {}
            }
        }
        match cg.put_thread(q0, tid) {
            Ok(()) => {}
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(false),
            Err(e) => return Err(os(format!("move thread {tid} to q0"))(e)),
        }
        if home.is_some() && cg.layout.version == Version::V2 {
            self.release_if_all(cg, tid, q0)?;
        }
        Ok(cg.locate(tid).is_ok_and(|after| after != before))
    }

    /// Once no thread of a process is tagged elsewhere, the whole of it can go home.
    fn release_if_all(&mut self, cg: &Places, tid: i32, q0: &[String]) -> Result<(), PlaneError> {
        let Ok(pid) = cg.tgid(tid) else { return Ok(()) };
        let idle = |t: &i32| match cg.locate(*t).map(|place| cg.dirs_of(&place)) {
            Ok(Some(dirs)) => dirs == q0,
            _ => true,
        };
        if cg.threads(pid).unwrap_or_default().iter().all(idle) {
            self.release_process(cg, pid, q0)?;
        }
        Ok(())
    }

    /// Gives a whole process back, each thread to its own origin where the kernel lets it. Answers
    /// how many threads moved.
    pub(crate) fn release_process(
        &mut self,
        cg: &Places,
        pid: i32,
        q0: &[String],
    ) -> Result<usize, PlaneError> {
        let mut homes = Vec::new();
        let mut before = Vec::new();
        for tid in cg.threads(pid)? {
            let Ok(place) = cg.locate(tid) else { continue };
            if cg.ours(&place) {
                homes.push((tid, self.of(cg, tid).and_then(|place| cg.dirs_of(&place))));
                before.push((tid, place));
            }
        }
        if before.is_empty() {
            return Ok(0);
        }
        let leader = homes
            .iter()
            .find(|(tid, _)| *tid == pid)
            .or(homes.first())
            .and_then(|(_, dirs)| dirs.clone());
        let target = match leader {
            Some(home)
                if before.len() == cg.threads(pid)?.len() && cg.put_process(&home, pid).is_ok() =>
            {
                Some(home)
            }
            _ => None,
        };
        for (tid, home) in &homes {
            let own = home.as_deref().unwrap_or(q0);
            if target.as_deref() == Some(own) {
                self.records.remove(tid);
                continue;
            }
            if cg.put_thread(own, *tid).is_ok() {
                self.records.remove(tid);
            } else if target.is_none() {
                match cg.put_thread(q0, *tid) {
                    Err(e) if e.raw_os_error() != Some(libc::ESRCH) => {
                        return Err(os(format!("move thread {tid} to q0"))(e));
                    }
                    _ => {}
                }
            }
        }
        Ok(before
            .iter()
            .filter(|(tid, place)| cg.locate(*tid).is_ok_and(|after| after != *place))
            .count())
    }

    /// The file, when everybody has gone home.
    pub(crate) fn delete(&mut self, kernel: &dyn Kernel) {
        self.records.clear();
        kernel.remove(&self.file);
    }
}

fn line(tid: i32, born: Born, place: &Place) -> String {
    let (identity, started) = match born {
        Born::Identity(identity) => (Some(identity), None),
        Born::Started(started) => (None, Some(started)),
    };
    let record = Record { tid, identity, started, place: place.clone() };
    serde_json::to_string(&record).map_or_else(|_| String::new(), |text| text + "\n")
}
