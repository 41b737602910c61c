// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access control at work: who asks, whom he may tag, and what becomes of tags whose right was
//! taken back.
//!
//! A request is checked when a file is opened and again when it is written: by the rights that who
//! writes, and who opened it, have now. So a descriptor from before a revocation, or one that
//! somebody else opened, gives nothing; nor does somebody who may more and is given one (as
//! standard output, say) do more with it than who gave it to him.

use reserv_model::{AccessChange, Caller, Error, ErrorKind, NodeId, Request, ResourceKind, Right};
use reserv_plane::{Holders, List};

use crate::engine::{Engine, Tagged};
use crate::fuse::proto;
use crate::process;
use crate::refusal::Refusal;

/// Who sent a request, as far as rights ask for it. The thread waits for the answer: it cannot
/// change meanwhile.
pub fn caller(from: proto::Caller) -> Caller {
    let proto::Caller { uid, gid, tid } = from;
    if uid == 0 {
        return Caller { gid, pid: tid.cast_unsigned(), ..Caller::root() };
    }
    let known =
        process::status(tid).and_then(|s| Some((s.tgid, s.groups, process::start_time(s.tgid)?)));
    match known {
        Some((pid, groups, start)) => {
            let groups = groups.into();
            Caller { uid, gid, groups, pid: pid.cast_unsigned(), start, unseen: false }
        }
        None => Caller { uid, gid, unseen: true, ..Caller::default() },
    }
}

/// Who asks for what is written to a file: who writes, and who opened it, if that is not root. The
/// last is the one as whom it is done. Root in between is nobody: he was given the file.
pub fn asking(writer: Caller, opener: Option<&Caller>) -> Vec<Caller> {
    match opener {
        None => vec![writer],
        Some(opener) if writer.uid == 0 || *opener == writer => vec![opener.clone()],
        Some(opener) => vec![opener.clone(), writer],
    }
}

/// A process as if it asked itself.
pub fn process_as_caller(pid: i32) -> Option<Caller> {
    let status = process::status(pid)?;
    let start = process::start_time(status.tgid)?;
    let ([.., uid], [.., gid]) = (status.uids, status.gids);
    let pid = status.tgid.cast_unsigned();
    Some(Caller { uid, gid, groups: status.groups.into(), pid, start, unseen: false })
}

/// The same but for its start time, which takes as long as the process lets it: as far as an exec
/// does not hold it up. Entries about a process are not about this caller.
pub fn process_at_once(pid: i32) -> Option<Caller> {
    let process::Status { tgid, uids: [.., uid], gids: [.., gid], groups, .. } =
        process::status(pid)?;
    let groups = groups.into();
    Some(Caller { uid, gid, groups, pid: tgid.cast_unsigned(), start: 0, unseen: false })
}

/// Refuses numbers of processes by who is in another pid name space than reservd: there they are
/// others'.
pub fn require_same_numbers(from: proto::Caller) -> Result<(), Refusal> {
    let own = process::pid_namespace(std::process::id().cast_signed());
    if own.is_some() && process::pid_namespace(from.tid) == own {
        return Ok(());
    }
    let why =
        "the writer is in another pid name space than reservd: a number means another process here";
    Err(Error::new(ErrorKind::NotPermitted, why)
        .hint("self is the writer's own process, tid self its thread")
        .into())
}

/// The same of a file of a process, but the writer's own (`self` leads there).
pub fn require_meant(from: proto::Caller, pid: i32) -> Result<(), Refusal> {
    if process::tgid(from.tid) == Some(pid) { Ok(()) } else { require_same_numbers(from) }
}

/// Refuses to touch a process or thread that has any uid but the caller's own.
pub fn require_own(who: &Caller, tid: i32) -> Result<(), Refusal> {
    if who.uid == 0 {
        return Ok(());
    }
    let gone = || Error::new(ErrorKind::NoProcess, format!("no process or thread {tid}"));
    let status = process::status(tid).ok_or_else(gone)?;
    let leader = process::status(status.tgid).ok_or_else(gone)?;
    if status.uids.iter().chain(&leader.uids).all(|uid| *uid == who.uid) {
        return Ok(());
    }
    let why = format!("{tid} is not a process of uid {}", who.uid);
    Err(Error::new(ErrorKind::NotPermitted, why).hint("root may tag all, others their own").into())
}

/// Refuses to tell of a process that is neither the caller's own nor the caller.
pub fn require_to_read(who: &Caller, pid: i32) -> Result<(), Refusal> {
    let oneself = !who.unseen && who.pid.cast_signed() == pid;
    if oneself { Ok(()) } else { require_own(who, pid) }
}

/// The queues of a resource that who asks is himself in, he and this thread of his; and those of
/// his lists. Of himself only: to look for all processes of a user would take as long as others
/// make it.
pub fn within(engine: &Engine, who: &Caller, tid: i32) -> Vec<NodeId> {
    if who.unseen {
        return Vec::new();
    }
    let (plane, pid) = (engine.plane(), who.pid.cast_signed());
    let lists = plane.defaults(pid).map_or([NodeId::Q0; 2], |lists| [lists.default, lists.child]);
    let mut queues: Vec<NodeId> = lists.into_iter().filter(|id| *id != NodeId::Q0).collect();
    // Where a list names a queue, what is not tagged goes by it, but threads of the CPU.
    if engine.kind() == ResourceKind::Cpu || lists[0] == NodeId::Q0 {
        queues.extend([tid, pid].into_iter().filter_map(|t| plane.tag_of(t).ok()));
    }
    queues
}

/// A process that is named without its start time is the one that lives now.
pub fn fill_in_start(change: &mut AccessChange) -> Result<(), Refusal> {
    if let Some((pid, start @ 0)) = &mut change.party.process {
        let known = process::tgid(pid.cast_signed()).filter(|tgid| *tgid == pid.cast_signed());
        *start = known.and_then(process::start_time).ok_or_else(|| {
            Error::new(ErrorKind::NoProcess, format!("no process {pid}"))
                .hint("of one that ended, say its start time too")
        })?;
    }
    Ok(())
}

impl Engine {
    /// Changes an access list as all of those may who ask for it, and as the last of them.
    pub fn change_access(
        &mut self,
        asking: &[Caller],
        id: NodeId,
        mut change: AccessChange,
        origin: Option<crate::engine::Origin>,
    ) -> Result<(), Refusal> {
        fill_in_start(&mut change)?;
        let request = self.access_asked(asking, id, &change)?;
        self.edit(&[request], origin)?;
        Ok(())
    }

    /// A change of an access list, if all of those may make it who ask for it; as the last of them.
    pub fn access_asked(
        &self,
        asking: &[Caller],
        id: NodeId,
        change: &AccessChange,
    ) -> Result<Request, Refusal> {
        let request = Request::SetAccess { node: id.into(), change: change.clone() };
        let mut written = change.clone();
        for who in asking {
            self.tree().permit(who, &request)?;
            written = self.tree().as_written_by(who, id, change.clone())?;
        }
        Ok(Request::SetAccess { node: id.into(), change: written })
    }

    /// Brings threads, descriptors and lists that may no longer use their queue, at or below a
    /// node, back to q0, where `all` says which processes live, and `who` whose they are (`None`:
    /// they stay). He is asked about all whom it concerns. `send`: what a number has of a queue is
    /// q0's.
    pub fn fall_among(
        &mut self,
        top: NodeId,
        all: impl FnOnce() -> Vec<i32>,
        who: impl Fn(i32) -> Option<Caller>,
        send: impl Fn(&mut Self, i32, Tagged, NodeId) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let tree = self.tree();
        let below = tree
            .iter()
            .filter(|n| n.kind.is_queue() && n.id != NodeId::Q0 && tree.is_within(n.id, top));
        let queues: Vec<NodeId> = below.map(|n| n.id).collect();
        let lost = |engine: &Self, pid: i32, queue: NodeId| {
            who(pid).is_some_and(|who| !engine.tree().decide(&who, queue, Right::Use).allowed)
        };
        for &queue in &queues {
            for member in self.plane().members(queue)? {
                if lost(self, member.tgid, queue)
                    && let Err(refusal) = send(self, member.tid, Tagged::Thread, queue)
                {
                    tracing::debug!(%refusal, tid = member.tid, "a tag stays");
                }
            }
        }
        for &queue in &queues {
            // What several processes have stays as long as one of them may use the queue.
            let fallen = |held: &Holders| {
                let all: Vec<bool> = held.pids.iter().map(|&pid| lost(self, pid, queue)).collect();
                all.into_iter().all(|lost| lost)
            };
            let keys: Vec<u64> = match self.plane().holders(queue) {
                Ok(held) => held.iter().filter(|held| fallen(held)).map(|held| held.key).collect(),
                Err(error) => {
                    tracing::warn!(%error, queue = self.tree().shown(queue), "tags of descriptors stay");
                    continue;
                }
            };
            if !keys.is_empty() {
                self.plane_mut().untag(queue, &keys)?;
            }
        }
        for pid in all() {
            let Ok(both) = self.plane().defaults(pid) else { continue };
            for (queue, list) in [(both.default, List::Default), (both.child, List::Child)] {
                if queues.contains(&queue)
                    && lost(self, pid, queue)
                    && let Err(refusal) = send(self, pid, Tagged::List(list), queue)
                {
                    tracing::debug!(%refusal, pid, "a list stays");
                }
            }
        }
        Ok(())
    }
}
