// SPDX-License-Identifier: MIT OR Apache-2.0
//! A meter for tests: a file in place of the kernel. A test writes what was counted and what refers
//! to a queue (`fake-meter-N` beside the plane's file, one line per queue:
//! `INDEX GENERATION OPERATIONS BYTES DESCRIPTORS`), the lists of processes are kept in
//! `fake-lists-N`. Lists are not inherited: nobody here sees a fork.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use reserv_model::{NodeId, Source};

use super::{Meter, Usage};
use crate::{Defaults, List, PlaneError, Refs};

/// See the head of this file.
#[derive(Debug)]
pub struct Fake {
    told: PathBuf,
    lists: PathBuf,
}

/// Default and child default list by process, packed.
type Lists = BTreeMap<i32, (u64, u64)>;

fn tried(source: io::Error) -> PlaneError {
    PlaneError::Os { context: "the fake meter's file".into(), source }
}

fn lives(pid: i32) -> Result<(), PlaneError> {
    if Path::new(&format!("/proc/{pid}")).exists() {
        Ok(())
    } else {
        Err(PlaneError::NoProcess(pid))
    }
}

impl Fake {
    /// Of the plane with this number.
    pub fn new(run: &Path, number: u8) -> Self {
        Self {
            told: run.join(format!("fake-meter-{number}")),
            lists: run.join(format!("fake-lists-{number}")),
        }
    }

    fn told_of(&self, queue: NodeId) -> Option<(Usage, u64)> {
        let text = std::fs::read_to_string(&self.told).ok()?;
        text.lines().find_map(|line| {
            let mut words = line.split_whitespace().map(str::parse::<u64>);
            let mut next = || words.next()?.ok();
            let of = (next()?, next()?);
            let (operations, bytes, descriptors) = (next()?, next()?, next()?);
            (of == (queue.index.into(), queue.generation.into()))
                .then_some((Usage { operations, bytes }, descriptors))
        })
    }

    fn read(&self) -> Lists {
        let text = std::fs::read_to_string(&self.lists).unwrap_or_default();
        let mut lists: Lists = serde_json::from_str(&text).unwrap_or_default();
        lists.retain(|pid, _| lives(*pid).is_ok());
        lists
    }

    fn write(&self, lists: &Lists) -> Result<(), PlaneError> {
        let text = serde_json::to_string(lists).map_err(|e| tried(e.into()))?;
        let new = self.lists.with_extension("new");
        std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &self.lists)).map_err(tried)
    }
}

impl Meter for Fake {
    fn mechanism(&self) -> &'static str {
        "a file"
    }

    fn limits(&self, _source: &Source) -> Vec<String> {
        vec!["a test's numbers".into()]
    }

    fn usage(&self, queue: NodeId) -> Result<Usage, PlaneError> {
        Ok(self.told_of(queue).map_or_else(Usage::default, |(usage, _)| usage))
    }

    fn refs(&self, queue: NodeId) -> Result<Refs, PlaneError> {
        let descriptors = self.told_of(queue).map_or(0, |(_, descriptors)| descriptors);
        let mut refs = Refs { descriptors, ..Refs::default() };
        for (default, child) in self.read().values() {
            refs.defaults += u64::from(*default == queue.pack());
            refs.child_defaults += u64::from(*child == queue.pack());
        }
        Ok(refs)
    }

    fn removed(&mut self, queue: NodeId) -> Result<(), PlaneError> {
        let mut lists = self.read();
        for (default, child) in lists.values_mut() {
            for id in [default, child] {
                if *id == queue.pack() {
                    *id = NodeId::Q0.pack();
                }
            }
        }
        self.write(&lists)
    }

    fn defaults(&self, pid: i32) -> Result<Defaults, PlaneError> {
        lives(pid)?;
        let q0 = NodeId::Q0.pack();
        let (default, child) = self.read().get(&pid).copied().unwrap_or((q0, q0));
        Ok(Defaults { default: NodeId::unpack(default), child: NodeId::unpack(child) })
    }

    fn set_default(&mut self, pid: i32, list: List, queue: NodeId) -> Result<(), PlaneError> {
        lives(pid)?;
        let mut lists = self.read();
        let q0 = NodeId::Q0.pack();
        let both = lists.entry(pid).or_insert((q0, q0));
        match list {
            List::Default => both.0 = queue.pack(),
            List::Child => both.1 = queue.pack(),
        }
        self.write(&lists)
    }

    fn stop(&mut self) -> Result<(), PlaneError> {
        let _ = std::fs::remove_file(&self.lists);
        Ok(())
    }
}
