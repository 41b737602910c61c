// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tagged descriptors of running processes: seen, set, and taken back from who may no longer use their queue.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::{fs, io};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use reserv_model::NodeId;

use super::abi::{RtCall, RtFile, RtSeen, RtSock, object_kind, what};
use super::load::{self, os};
use super::{Mechanism, TaggedFd, Tags, read_seen};
use crate::{Holders, PlaneError, sys};

/// Files that are opened and closed to see whether the end of one is seen.
const ENDS_TRIES: u32 = 100;

impl Tags {
    /// A pinned iterator; where the kernel refused it, the answer is what is lost without it.
    fn iterator(&self, name: &str) -> Result<OwnedFd, PlaneError> {
        sys::open(&self.folder.join(name)).map_err(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                return os("open the pinned iterator")(error);
            }
            let lost = load::LOSSES.iter().find(|(other, _)| *other == name).map_or(name, |(_, lost)| lost);
            PlaneError::Unsupported(format!("{lost}: this kernel refuses the program {name}"))
        })
    }

    /// Of one process, or of all (0).
    fn seen(&self, pid: u32) -> Result<Vec<RtSeen>, PlaneError> {
        let program = self.iterator("rt_fds")?;
        sys::iterate_task(&program, pid)
            .and_then(read_seen)
            .map_err(os(format!("look at the descriptors of process {pid}")))
    }

    /// The tagged descriptors of a process, in order.
    pub fn tagged(&self, pid: i32) -> Result<Vec<TaggedFd>, PlaneError> {
        let tid = u32::try_from(pid).ok().filter(|pid| *pid > 0).ok_or(PlaneError::NoProcess(pid))?;
        if !Path::new(&format!("/proc/{pid}")).exists() {
            return Err(PlaneError::NoProcess(pid));
        }
        let of = |seen: &RtSeen| TaggedFd {
            pid: seen.tgid,
            fd: seen.fd,
            resource: u8::try_from(seen.resource).unwrap_or(u8::MAX),
            queue: seen.node,
        };
        let mut found: Vec<TaggedFd> = self.seen(tid)?.iter().map(of).collect();
        found.sort_unstable();
        found.dedup(); // the threads of a process share a table
        Ok(found)
    }

    /// Tags the file or socket of a descriptor of ours, as F_SET_QUEUE does.
    pub fn tag_descriptor(&self, fd: BorrowedFd<'_>, resource: u8, queue: NodeId) -> Result<(), PlaneError> {
        let a = u64::try_from(fd.as_raw_fd()).unwrap_or(u64::MAX);
        let call = RtCall { resource: resource.into(), node: queue.pack(), a, ..RtCall::new(what::TAG_FD) };
        if self.mechanism == Mechanism::Full {
            return self.call(call).map(drop);
        }
        let mode =
            nix::sys::stat::fstat(fd).map_err(|errno| os("look at the descriptor")(errno.into()))?.st_mode;
        if mode & libc::S_IFMT == libc::S_IFSOCK {
            return self.tag_stored(RtCall { what: what::WISH, ..call });
        }
        if self.object(resource)?.kind == object_kind::FILES {
            self.see_ends()?;
        }
        self.call(call).map(drop)
    }

    /// A socket of ours (stock): its storage is made on the way of an iterator over our descriptors.
    fn tag_stored(&self, wish: RtCall) -> Result<(), PlaneError> {
        let program = self.iterator("rt_stock_tag")?;
        self.call(wish)?;
        let walked = sys::iterate_task(&program, std::process::id()).and_then(read_seen).map(drop);
        let done = self.call(RtCall { a: u64::from(u32::MAX), node: 0, ..wish })?;
        walked.map_err(os("look at our descriptors"))?;
        let errno = i32::try_from(done.a).unwrap_or(libc::EIO);
        if errno == 0 { Ok(()) } else { Err(os("tag a socket")(io::Error::from_raw_os_error(errno))) }
    }

    /// A file may be tagged only where its end is seen (stock): else the next file at its address would have its tag. Whether it is, an end of a file of ours shows.
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
    fn keys<V: Copy + Default>(&self, map: &str, is: impl Fn(&V) -> bool) -> Result<Vec<u64>, PlaneError> {
        let Ok(all) = MapHandle::from_pinned_path(self.folder.join(map)) else { return Ok(Vec::new()) };
        let fd = self.map(map)?;
        let keys = all.keys().filter_map(|key| Some(u64::from_ne_bytes(key.try_into().ok()?)));
        // One that has gone meanwhile is not there.
        Ok(keys.filter(|key| sys::get::<u64, V>(&fd, key).ok().flatten().is_some_and(|v| is(&v))).collect())
    }

    /// Files of a map that have this tag. Its elements are asked for at once: there are many places, and few are taken.
    fn files(&self, map: &str, tag: u64) -> Result<Vec<u64>, PlaneError> {
        let all = MapHandle::from_pinned_path(self.folder.join(map))
            .map_err(|error| PlaneError::Invalid(format!("the pinned map '{map}': {error}")))?;
        let found = all
            .lookup_batch(1 << 16, MapFlags::ANY, MapFlags::ANY)
            .map_err(|error| PlaneError::Invalid(format!("the pinned map '{map}': {error}")))?;
        let word =
            |value: &[u8], at: usize| Some(u64::from_ne_bytes(value.get(at..at + 8)?.try_into().ok()?));
        Ok(found
            .filter(|(_, value)| word(value, offset_of!(RtFile, tag)) == Some(tag))
            .filter_map(|(_, value)| word(&value, offset_of!(RtFile, file)))
            .filter(|file| *file != 0)
            .collect())
    }

    /// Open files and sockets that are tagged with a queue, with the processes that have a descriptor of each. One under way over a socket has none.
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
        for seen in self.seen(0)? {
            if (seen.node, seen.resource) == (node, resource.into())
                && let Some(pids) = found.get_mut(&seen.key)
                && !pids.contains(&seen.tgid)
            {
                pids.push(seen.tgid);
            }
        }
        Ok(found.into_iter().map(|(key, pids)| Holders { key, pids }).collect())
    }

    /// These files and sockets are no longer tagged with a queue. Answers how many were.
    pub fn untag(&self, resource: u8, queue: NodeId, keys: &[u64]) -> Result<u64, PlaneError> {
        let mut taken = 0;
        for &a in keys {
            let call =
                RtCall { resource: resource.into(), node: queue.pack(), a, ..RtCall::new(what::UNTAG) };
            taken += self.call(call)?.a;
        }
        Ok(taken)
    }
}
