// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tagged descriptors of running processes: seen, set, and taken back from who may no longer use
//! their queue.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::{fs, io};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use nix::sys::socket::{getsockopt, sockopt};
use reserv_model::NodeId;
use serde::{Deserialize, Serialize};

use super::abi::{RtCall, RtFile, RtSock, RtStored, RtWalk, object_kind, walked, what};
use super::load::{self, os};
use super::{Mechanism, TaggedFd, Tags};
use crate::{Holders, PlaneError, sys};

/// Files that are opened and closed to see whether the end of one is seen.
const ENDS_TRIES: u32 = 100;

/// How often a walk is begun again because what it walks over has become another one on the way.
const CHANGES: u32 = 64;

/// How often a socket's storage is replaced again because its process sets something meanwhile:
/// some 10 ms. Who sets one socket's queue without a pause may need tens of rounds; beyond these he
/// loses a setting of his own.
const ROUNDS: u32 = 4096;

/// Numbers that a folder of `/proc` has: its processes, or the threads of one.
fn numbers(folder: &str) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Tells the tags in a thread's table of descriptors, one by one, and answers whether other threads
/// of its process may have tables of their own; `None`: the process has no such thread (any more).
fn walk_table(
    program: &OwnedFd,
    pid: i32,
    tid: i32,
    tell: &mut impl FnMut(&RtWalk),
) -> Result<Option<bool>, PlaneError> {
    let mut walk = RtWalk { tgid: pid, tid, ..RtWalk::default() };
    let mut changes = 0;
    loop {
        sys::run(program, &mut walk).map_err(os("run rt_fds"))?;
        match walk.answer {
            walked::FOUND => tell(&walk),
            walked::MORE => {}
            walked::CHANGED if changes < CHANGES => changes += 1,
            walked::END | walked::CHANGED => return Ok(Some(walk.others != 0)),
            _ => return Ok(None),
        }
    }
}

/// The same of all threads of a process; answers whether there is one. A table that threads share
/// is walked once.
fn walk(program: &OwnedFd, pid: i32, tell: &mut impl FnMut(&RtWalk)) -> Result<bool, PlaneError> {
    let Some(others) = walk_table(program, pid, pid, tell)? else { return Ok(false) };
    if others {
        for tid in numbers(&format!("/proc/{pid}/task")).into_iter().filter(|tid| *tid != pid) {
            walk_table(program, pid, tid, tell)?;
        }
    }
    Ok(true)
}

/// What tags an open file or socket with a queue. Plain words, for another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DescriptorTag {
    folder: PathBuf,
    mechanism: Mechanism,
    resource: u8,
    queue: NodeId,
}

impl DescriptorTag {
    /// Tags what is behind a descriptor of ours (a copy of somebody's).
    pub fn set(&self, fd: BorrowedFd<'_>) -> Result<(), PlaneError> {
        let tags = Tags::open(self.folder.clone(), self.mechanism)?;
        tags.tag_descriptor(fd, self.resource, self.queue)
    }
}

impl Tags {
    /// For whoever has a descriptor.
    pub fn descriptor_tag(&self, resource: u8, queue: NodeId) -> DescriptorTag {
        DescriptorTag { folder: self.folder.clone(), mechanism: self.mechanism, resource, queue }
    }

    /// The program that walks tables of descriptors; where the kernel refused it, the answer is
    /// what is lost without it.
    fn walker(&self) -> Result<OwnedFd, PlaneError> {
        let name = "rt_fds";
        sys::open(&self.folder.join(name)).map_err(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                return os("open the pinned program rt_fds")(error);
            }
            let lost = load::LOSSES
                .iter()
                .find(|(other, _)| *other == name)
                .map_or(name, |(_, lost)| lost);
            PlaneError::Unsupported(format!("{lost}: this kernel refuses the program {name}"))
        })
    }

    /// The tagged descriptors of a process, in order.
    pub fn tagged(&self, pid: i32) -> Result<Vec<TaggedFd>, PlaneError> {
        let mut found = Vec::new();
        let there = walk(&self.walker()?, pid, &mut |seen| {
            found.push(TaggedFd {
                pid,
                fd: seen.fd,
                resource: u8::try_from(seen.resource).unwrap_or(u8::MAX),
                queue: seen.node,
            });
        })?;
        if !there {
            return Err(PlaneError::NoProcess(pid));
        }
        found.sort_unstable();
        found.dedup(); // threads with tables of their own have much in common
        Ok(found)
    }

    /// Tags the file or socket of a descriptor of ours, as F_SET_QUEUE does.
    pub fn tag_descriptor(
        &self,
        fd: BorrowedFd<'_>,
        resource: u8,
        queue: NodeId,
    ) -> Result<(), PlaneError> {
        let a = u64::try_from(fd.as_raw_fd()).unwrap_or(u64::MAX);
        let call = RtCall {
            resource: resource.into(),
            node: queue.pack(),
            a,
            ..RtCall::new(what::TAG_FD)
        };
        if self.mechanism == Mechanism::Full {
            return self.call(call).map(drop);
        }
        // Not by fstat: whoever serves the file decides when that is answered.
        if getsockopt(&fd, sockopt::SockType) != Err(nix::errno::Errno::ENOTSOCK) {
            return self.tag_stored(fd, RtCall { what: what::STORE, ..call });
        }
        if self.object(resource)?.kind == object_kind::FILES {
            self.see_ends()?;
        }
        self.call(call).map(drop)
    }

    /// A socket of ours (stock): a copy of its storage with the tag takes the storage's place. What
    /// its process sets meanwhile the programs tell, and it is put there too.
    fn tag_stored(&self, fd: BorrowedFd<'_>, store: RtCall) -> Result<(), PlaneError> {
        let map = self.map("stored_socks")?;
        let word = self.call(store)?.b;
        let key = fd.as_raw_fd();
        let put = |resource: u32, word: u64| -> io::Result<()> {
            let mut value = sys::get::<i32, RtSock>(&map, &key)?.unwrap_or_default();
            if let Some(slot) = value.slot.get_mut(resource as usize) {
                *slot = word;
            }
            sys::put(&map, &key, &value)
        };
        let mut done = put(store.resource, word);
        for round in 0.. {
            let give_up = done.is_err() || round == ROUNDS;
            let said = self.call(RtCall { what: what::STORED, a: give_up.into(), ..store })?;
            if said.a == 0 {
                break;
            }
            done = put(said.resource, said.b);
        }
        done.map_err(os("tag a socket"))
    }

    /// A file may be tagged only where its end is seen (stock): else the next file at its address
    /// would have its tag. Whether it is, an end of a file of ours shows.
    fn see_ends(&self) -> Result<(), PlaneError> {
        let seen = || Ok::<_, PlaneError>(self.call(RtCall::new(what::STATE))?.pid != 0);
        let attached = load::ends_attached(&self.folder);
        for _ in 0..ENDS_TRIES {
            if !attached || seen()? {
                break;
            }
            drop(fs::File::open("/proc/self/stat"));
        }
        if attached && seen()? {
            return Ok(());
        }
        Err(PlaneError::Unsupported(
            "files are tagged on disks that are scheduled, and this kernel does not tell when one ends"
                .into(),
        ))
    }

    /// Keys of the elements of a map that `is` accepts.
    fn keys<V: Copy + Default>(
        &self,
        map: &str,
        is: impl Fn(&V) -> bool,
    ) -> Result<Vec<u64>, PlaneError> {
        let Ok(all) = MapHandle::from_pinned_path(self.folder.join(map)) else {
            return Ok(Vec::new());
        };
        let fd = self.map(map)?;
        let keys = all.keys().filter_map(|key| Some(u64::from_ne_bytes(key.try_into().ok()?)));
        // One that has gone meanwhile is not there.
        Ok(keys
            .filter(|key| sys::get::<u64, V>(&fd, key).ok().flatten().is_some_and(|v| is(&v)))
            .collect())
    }

    /// Files of a map that have this tag. Its elements are asked for at once: there are many
    /// places, and few are taken.
    fn files(&self, map: &str, tag: u64) -> Result<Vec<u64>, PlaneError> {
        let all = MapHandle::from_pinned_path(self.folder.join(map))
            .map_err(|error| PlaneError::Invalid(format!("the pinned map '{map}': {error}")))?;
        let found = all
            .lookup_batch(1 << 16, MapFlags::ANY, MapFlags::ANY)
            .map_err(|error| PlaneError::Invalid(format!("the pinned map '{map}': {error}")))?;
        let word = |value: &[u8], at: usize| {
            Some(u64::from_ne_bytes(value.get(at..at + 8)?.try_into().ok()?))
        };
        Ok(found
            .filter(|(_, value)| word(value, offset_of!(RtFile, tag)) == Some(tag))
            .filter_map(|(key, value)| match map {
                "hot" => word(&value, offset_of!(RtFile, file)),
                _ => word(&key, 0),
            })
            .filter(|file| *file != 0)
            .collect())
    }

    /// Open files and sockets that are tagged with a queue, with the processes that have a
    /// descriptor of each. One under way over a socket has none.
    pub fn holders(&self, resource: u8, queue: NodeId) -> Result<Vec<Holders>, PlaneError> {
        if self.refs(resource, queue)?.descriptors == 0 {
            return Ok(Vec::new());
        }
        if self.mechanism == Mechanism::Stock && self.stored(resource, queue)? > 0 {
            return Err(PlaneError::Unsupported(
                "who has a tagged socket is not known here: this kernel refuses trampolines".into(),
            ));
        }
        let node = queue.pack();
        // First what is tagged, then who has it: what is tagged meanwhile is by somebody who may.
        let mut found: BTreeMap<u64, Vec<i32>> = BTreeMap::new();
        for map in ["hot", "files"] {
            let tagged = self.files(map, node | u64::from(resource) << 16)?;
            found.extend(tagged.into_iter().map(|key| (key, Vec::new())));
        }
        found.extend(
            self.keys::<RtSock>("socks", |s| s.slot.get(usize::from(resource)) == Some(&node))?
                .into_iter()
                .map(|key| (key, Vec::new())),
        );
        let program = self.walker()?;
        for pid in numbers("/proc") {
            walk(&program, pid, &mut |seen| {
                if (seen.node, seen.resource) == (node, resource.into())
                    && let Some(pids) = found.get_mut(&seen.key)
                    && !pids.contains(&pid)
                {
                    pids.push(pid);
                }
            })?;
        }
        Ok(found.into_iter().map(|(key, pids)| Holders { key, pids }).collect())
    }

    /// Sockets that hold a tag in their own storage (stock). A list that changes as it is read may
    /// be counted in part.
    pub(super) fn stored(&self, resource: u8, queue: NodeId) -> Result<u64, PlaneError> {
        let program = match sys::open(&self.folder.join("rt_stored")) {
            // `limits` says that they are not known; with its node gone a tag means q0.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            opened => opened.map_err(os("open the pinned program rt_stored"))?,
        };
        let mut list =
            RtStored { resource: resource.into(), node: queue.pack(), ..RtStored::default() };
        let (mut count, mut changes) = (0, 0);
        loop {
            sys::run(&program, &mut list).map_err(os("run rt_stored"))?;
            match list.answer {
                walked::MORE => {}
                walked::CHANGED if changes < CHANGES => {
                    changes += 1;
                    continue;
                }
                walked::CHANGED => list.at += 1,
                _ => return Ok(count),
            }
            count += u64::from(list.count);
        }
    }

    /// These files and sockets are no longer tagged with a queue. Answers how many were.
    pub fn untag(&self, resource: u8, queue: NodeId, keys: &[u64]) -> Result<u64, PlaneError> {
        let mut taken = 0;
        for &a in keys {
            let call = RtCall {
                resource: resource.into(),
                node: queue.pack(),
                a,
                ..RtCall::new(what::UNTAG)
            };
            taken += self.call(call)?.a;
        }
        Ok(taken)
    }
}
