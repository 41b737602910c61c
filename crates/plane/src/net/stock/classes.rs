// SPDX-License-Identifier: MIT OR Apache-2.0
//! The classes that HTB has on an interface: brought to what they should be, and read.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::{fs, io};

use reserv_model::NodeId;
use serde::{Deserialize, Serialize};

use super::super::rtnl::{self, Counters};
use super::shape::{Limit, Shape, Shapes, minor, qdisc_options, segments_max};
use crate::PlaneError;
use crate::count::Usage;
use crate::libbpf::os;

/// What the classes of before had counted, and where the counters of drops were last reset: it
/// outlives the daemon in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Carried {
    /// By minor number.
    usage: BTreeMap<u16, (Usage, u64)>,
    dropped_base: BTreeMap<u16, u64>,
    /// The largest packet of many segments that the interface had before.
    gso_max: Option<u32>,
}

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Classes {
    /// The qdisc's handle.
    pub(super) handle: u32,
    interface: String,
    file: PathBuf,
    carried: Carried,
    /// What the kernel was told.
    have: Shapes,
    longest: u32,
    /// What was last read.
    seen: BTreeMap<u16, Counters>,
}

fn tried(what: &str) -> impl FnOnce(io::Error) -> PlaneError {
    os(what.to_owned())
}

impl Classes {
    pub(super) fn new(interface: &str, major: u16, file: PathBuf, adopted: bool) -> Self {
        let carried = adopted.then(|| fs::read(&file).ok()).flatten();
        let carried =
            carried.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        let (have, seen) = (Shapes::new(), BTreeMap::new());
        let handle = u32::from(major) << 16;
        Self { handle, interface: interface.to_owned(), file, carried, have, longest: 0, seen }
    }

    fn index(&self) -> io::Result<u32> {
        rtnl::index_of(&self.interface).ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
    }

    fn keep(&self) -> Result<(), PlaneError> {
        let text = serde_json::to_vec(&self.carried).map_err(|e| tried("counters")(e.into()))?;
        let new = self.file.with_extension("new");
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, &self.file))
            .map_err(os(format!("write {}", self.file.display())))
    }

    pub(super) fn forget(&self) {
        let _ = fs::remove_file(&self.file);
    }

    /// HTB at the interface's root, without classes. What another one had counted is carried on.
    pub(super) fn attach(&mut self, index: u32) -> Result<(), PlaneError> {
        let minors: Vec<u16> = self.seen.keys().copied().collect();
        for class in minors {
            self.carry(class);
        }
        self.have.clear();
        self.keep()?;
        let (root, _) = rtnl::root(index).map_err(tried("the root qdisc"))?;
        if root.is_some_and(|q| q.kind == "htb" && q.handle == self.handle) {
            rtnl::remove(index).map_err(tried("take an older HTB off"))?;
        }
        rtnl::replace(index, self.handle, "htb", &qdisc_options(minor(NodeId::Q0.index)))
            .map_err(os(format!("put HTB at the root of {}", self.interface)))
    }

    /// Packets of many segments as large as a round of a queue, at most.
    pub(super) fn limit_segments(&mut self, index: u32, rate: u64) -> Result<(), PlaneError> {
        let context = || format!("the largest packet of many segments of {}", self.interface);
        let has = rtnl::gso_max(index).map_err(os(context()))?;
        let before = self.carried.gso_max.unwrap_or(has).max(has);
        let wanted = segments_max(rate).min(before);
        if has == wanted {
            return Ok(());
        }
        // First what it was: who dies in between leaves that to be put back.
        self.carried.gso_max = Some(before);
        self.keep()?;
        match rtnl::set_gso_max(index, wanted) {
            // It may be another interface of that name, which never let so much.
            Err(error) if wanted > has => {
                tracing::warn!(%error, interface = self.interface, wanted, "its packets of many segments stay smaller");
                Ok(())
            }
            done => done.map_err(os(context())),
        }
    }

    /// And as they were.
    pub(super) fn release_segments(&mut self, index: u32) {
        if let Some(before) = self.carried.gso_max.take()
            && let Err(error) = rtnl::set_gso_max(index, before)
        {
            tracing::error!(%error, interface = self.interface, before, "the largest packet of many segments was not put back");
        }
    }

    /// The classes that are there were made by an earlier daemon: their settings are told anew.
    pub(super) fn found(&mut self, wanted: &Shapes, longest: u32) -> Result<(), PlaneError> {
        self.read()?;
        let mut there: Vec<u16> =
            self.seen.keys().copied().filter(|m| !wanted.contains_key(m)).collect();
        // Those that are not wanted, the deepest first: whatever has no children goes.
        while !there.is_empty() {
            let before = there.len();
            there.retain(|class| self.remove(*class).is_err());
            if there.len() == before {
                tracing::error!(
                    ?there,
                    interface = self.interface,
                    "classes that nobody wants stay"
                );
                break;
            }
        }
        self.have.clear();
        self.put(wanted, longest)
    }

    /// Makes and changes classes; takes none away but those that must hang elsewhere, which drop
    /// what waits in them.
    pub(super) fn put(&mut self, wanted: &Shapes, longest: u32) -> Result<(), PlaneError> {
        let moved: Vec<u16> =
            self.have.keys().copied().filter(|m| self.hangs_elsewhere(*m, wanted)).collect();
        self.take(moved)?;
        let mut order: Vec<(&u16, &Shape)> = wanted.iter().collect();
        order.sort_by_key(|(_, shape)| shape.depth);
        let index = self.index().map_err(tried("the interface"))?;
        for (&class, shape) in order {
            let old = self.have.get(&class);
            if old == Some(shape) && longest == self.longest {
                continue;
            }
            let parent = self.handle | u32::from(shape.parent);
            let refused = |error| os(format!("class {class:x} of {}", self.interface))(error);
            rtnl::put_class(index, self.handle | u32::from(class), parent, &shape.options(longest))
                .map_err(refused)?;
            // A class that always has packets keeps its old priority until it has none.
            let other_priority =
                old.is_some_and(|old| old.priority != shape.priority) && shape.limit.is_some();
            if other_priority {
                rtnl::remove_below(index, self.handle | u32::from(class)).map_err(refused)?;
            }
            if let Some(limit) = shape.limit
                && (other_priority || old.and_then(|old| old.limit) != Some(limit))
            {
                self.bound(index, class, limit).map_err(refused)?;
            }
            self.have.insert(class, shape.clone());
        }
        self.longest = longest;
        Ok(())
    }

    /// Whether a class, or one above it, has another parent than it will have.
    fn hangs_elsewhere(&self, class: u16, wanted: &Shapes) -> bool {
        let mut at = class;
        while at != super::shape::ROOT_MINOR {
            match (self.have.get(&at), wanted.get(&at)) {
                (Some(old), Some(new))
                    if old.parent == new.parent && old.limit.is_some() == new.limit.is_some() =>
                {
                    at = old.parent;
                }
                (Some(_), None) if at == class => return false, // it goes later
                _ => return true,
            }
        }
        false
    }

    /// What waits in a queue is bounded by a qdisc of its own.
    fn bound(&self, index: u32, class: u16, limit: Limit) -> io::Result<()> {
        let (kind, most) = match limit {
            Limit::Packets(most) => ("pfifo", most),
            Limit::Bytes(most) => ("bfifo", most),
        };
        rtnl::replace_below(index, self.handle | u32::from(class), 0, kind, &most.to_ne_bytes())
    }

    /// Those classes that are not wanted go, with what waits in them.
    pub(super) fn prune(&mut self, wanted: &Shapes) -> Result<(), PlaneError> {
        let gone: Vec<u16> =
            self.have.keys().copied().filter(|m| !wanted.contains_key(m)).collect();
        let result = self.take(gone.clone());
        // Their nodes are gone: nobody asks for them any more, and the number may come again.
        for class in gone {
            self.carried.usage.remove(&class);
            self.carried.dropped_base.remove(&class);
        }
        result.and_then(|()| self.keep())
    }

    fn take(&mut self, mut classes: Vec<u16>) -> Result<(), PlaneError> {
        if classes.is_empty() {
            return Ok(());
        }
        classes.sort_by_key(|class| {
            std::cmp::Reverse(self.have.get(class).map_or(0, |shape| shape.depth))
        });
        for class in classes {
            self.remove(class)
                .map_err(os(format!("remove class {class:x} of {}", self.interface)))?;
        }
        self.keep()
    }

    fn remove(&mut self, class: u16) -> io::Result<()> {
        let (index, handle) = (self.index()?, self.handle | u32::from(class));
        if let Some(counters) = rtnl::class(index, handle)? {
            self.seen.insert(class, counters);
            rtnl::remove_class(index, handle)?;
        }
        self.carry(class);
        self.have.remove(&class);
        Ok(())
    }

    /// What a class that is gone has counted, it has counted.
    fn carry(&mut self, class: u16) {
        let Some(counters) = self.seen.remove(&class) else { return };
        let (usage, dropped) = self.carried.usage.entry(class).or_default();
        *usage = usage.plus(Usage { operations: counters.packets, bytes: counters.bytes });
        // What waited is dropped.
        *dropped += u64::from(counters.dropped) + u64::from(counters.waiting);
    }

    /// Reads all counters.
    pub(super) fn read(&mut self) -> Result<(), PlaneError> {
        let Ok(index) = self.index() else { return Ok(()) }; // what was last seen stands
        let handle = self.handle;
        let all = rtnl::classes(index).map_err(os(format!("the classes of {}", self.interface)))?;
        let ours = all.into_iter().filter(|(class, _)| class & 0xffff_0000 == handle);
        let seen: BTreeMap<u16, Counters> =
            ours.map(|(class, counters)| ((class & 0xffff) as u16, counters)).collect();
        if !seen.is_empty() {
            self.seen = seen;
        }
        Ok(())
    }

    /// Reads one class' counters.
    pub(super) fn read_one(&mut self, id: NodeId) {
        let class = minor(id.index);
        if let Ok(index) = self.index()
            && let Ok(Some(counters)) = rtnl::class(index, self.handle | u32::from(class))
        {
            self.seen.insert(class, counters);
        }
    }

    /// As last read.
    pub(super) fn usage(&self, id: NodeId) -> Usage {
        let class = minor(id.index);
        let now = self.seen.get(&class).copied().unwrap_or_default();
        let (before, _) = self.carried.usage.get(&class).copied().unwrap_or_default();
        before.plus(Usage { operations: now.packets, bytes: now.bytes })
    }

    /// Packets that wait, their bytes, and the packets dropped since the last reset; as last read.
    pub(super) fn backlog(&self, id: NodeId) -> (u32, u64, u64) {
        let class = minor(id.index);
        let now = self.seen.get(&class).copied().unwrap_or_default();
        let base = self.carried.dropped_base.get(&class).copied().unwrap_or_default();
        (now.waiting, now.waiting_bytes.into(), self.dropped(class).saturating_sub(base))
    }

    fn dropped(&self, class: u16) -> u64 {
        let now = self.seen.get(&class).map_or(0, |counters| counters.dropped);
        self.carried.usage.get(&class).map_or(0, |(_, dropped)| *dropped) + u64::from(now)
    }

    /// The counters of drops begin anew.
    pub(super) fn reset(&mut self, id: NodeId) -> Result<(), PlaneError> {
        self.read_one(id);
        let class = minor(id.index);
        let dropped = self.dropped(class);
        self.carried.dropped_base.insert(class, dropped);
        self.keep()
    }

    /// The limit in force: packets and bytes, 0 where it does not count.
    pub(super) fn limit(&self, id: NodeId) -> (u32, u32) {
        match self.have.get(&minor(id.index)).and_then(|shape| shape.limit) {
            Some(Limit::Packets(most)) => (most, 0),
            Some(Limit::Bytes(most)) => (0, most),
            None => (0, 0),
        }
    }

    /// The longest packet that the shapes were made for.
    pub(super) fn longest(&self) -> u32 {
        self.longest
    }
}
