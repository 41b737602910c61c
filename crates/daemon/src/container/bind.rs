// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes are bound to a container: their threads and both their lists in every tree, so what
//! they open, accept, connect and start is the container's too.

use std::collections::BTreeSet;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use reserv_model::{Caller, ContainerId, Error, ErrorKind, Holds, Kind, NodeId, Right};
use reserv_namespace::Who;
use reserv_plane::{Defaults, List, PlaneError, Target};

use super::{Room, of_tree};
use crate::core::slot::Slot;
use crate::engine::Engine;
use crate::fuse::proto;
use crate::process;
use crate::refusal::Refusal;
use crate::rights::{require_own, require_same_numbers};

/// Processes all of which is bound to a queue: those whose list it is in, too.
pub(super) fn bound_in(engine: &Engine, node: NodeId) -> Vec<i32> {
    if !engine.tree().get(node).is_some_and(|node| node.kind.is_queue()) {
        return Vec::new();
    }
    let members = engine.plane().members(node).unwrap_or_default();
    let pids: BTreeSet<i32> = members.iter().map(|member| member.tgid).collect();
    let listed = |pid: &i32| engine.plane().defaults(*pid).is_ok_and(|lists| lists.default == node);
    pids.into_iter().filter(listed).collect()
}

fn set_lists(engine: &mut Engine, pid: i32, lists: Defaults) -> Result<(), PlaneError> {
    // What it starts from here on is bound, and nothing is missed.
    engine.plane_mut().set_default(pid, List::Default, lists.default)?;
    engine.plane_mut().set_default(pid, List::Child, lists.child)
}

/// In one tree. Where that fails, its lists are what they were.
pub(super) fn bind_in(engine: &mut Engine, pid: i32, node: NodeId) -> Result<(), Refusal> {
    let before = engine.plane().defaults(pid)?;
    let bound = set_lists(engine, pid, Defaults { default: node, child: node })
        .map_err(Refusal::from)
        .and_then(|()| match engine.tag(Target::Process(pid), node, None) {
            // A resource whose queues take descriptors: the lists are all.
            Err(refusal) if refusal.errno == libc::EOPNOTSUPP => Ok(()),
            done => done,
        });
    if bound.is_err()
        && let Err(error) = set_lists(engine, pid, before)
    {
        tracing::warn!(%error, pid, "default lists were not put back");
    }
    bound
}

/// What a process was in a tree before.
struct Before {
    slot: Arc<Slot>,
    lists: Defaults,
    tag: NodeId,
}

impl Before {
    fn put_back(&self, pid: i32) -> Result<(), Refusal> {
        let mut engine = self.slot.engine()?;
        set_lists(&mut engine, pid, self.lists)?;
        match engine.tag(Target::Process(pid), self.tag, None) {
            Err(refusal) if refusal.errno == libc::EOPNOTSUPP => Ok(()),
            done => done,
        }
    }
}

impl Room {
    /// The process is bound, in all trees or in none, as far as all of those may who ask for it.
    pub fn bind(
        &self,
        asking: &[Caller],
        from: proto::Caller,
        id: ContainerId,
        who: Who,
    ) -> Result<(), Refusal> {
        let no_process = |pid: i32| Error::new(ErrorKind::NoProcess, format!("no process {pid}"));
        let pid = match who {
            Who::CallerProcess => process::tgid(from.tid).ok_or_else(|| no_process(from.tid))?,
            Who::Process(pid) => {
                require_same_numbers(from)?;
                let pid = pid.cast_signed();
                process::tgid(pid).filter(|tgid| *tgid == pid).ok_or_else(|| no_process(pid))?
            }
            Who::Thread { .. } | Who::CallerThread => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "single threads are bound by their tags",
                )
                .into());
            }
        };
        let _turning = self.begin()?;
        let holds = self.look(|all| all.node(id).map(|held| held.holds))?;
        if holds != Holds::Threads {
            let why = format!("{} holds containers, not threads", self.look(|all| all.shown(id)));
            return Err(Error::new(ErrorKind::NotQueue, why)
                .hint("bind to one of those in it")
                .into());
        }
        let held = process::hold(pid)?;
        asking.iter().try_for_each(|by| require_own(by, pid))?;
        let nodes = self.nodes_to_change(id)?;
        for (slot, node) in &nodes {
            let may = |engine: &Engine| {
                let there = engine.tree().node(*node)?;
                if !matches!(there.kind, Kind::Queue(_)) || there.draining {
                    return Err(Error::new(ErrorKind::Busy, "its queue takes nobody").into());
                }
                Ok::<(), Refusal>(
                    asking
                        .iter()
                        .try_for_each(|by| engine.tree().require(by, *node, Right::Use))?,
                )
            };
            slot.engine().and_then(|engine| may(&engine)).map_err(|r| of_tree(slot, r))?;
        }
        // What was asked was asked of this one.
        process::require_alive(held.as_fd(), pid)?;
        let mut done: Vec<Before> = Vec::new();
        for (slot, node) in nodes {
            let in_tree = |engine: &mut Engine| {
                let lists = engine.plane().defaults(pid)?;
                let tag = engine.plane().tag_of(pid).unwrap_or(NodeId::Q0);
                bind_in(engine, pid, node)?;
                Ok::<_, Refusal>((lists, tag))
            };
            match slot.engine().and_then(|mut engine| in_tree(&mut engine)) {
                Ok((lists, tag)) => done.push(Before { slot, lists, tag }),
                Err(refusal) => {
                    for before in done {
                        if let Err(error) = before.put_back(pid) {
                            tracing::warn!(%error, pid, name = %before.slot.name, "a binding was not put back");
                        }
                    }
                    return Err(of_tree(&slot, refusal));
                }
            }
        }
        Ok(())
    }

    /// The processes that are bound, a line each: those of the CPU.
    pub fn members(&self, id: ContainerId, own: Option<&Caller>) -> Result<String, Refusal> {
        let Some((slot, node)) = self.nodes_of(id).into_iter().next() else {
            return Ok(String::new());
        };
        let pids: BTreeSet<i32> =
            slot.engine()?.plane().members(node)?.iter().map(|member| member.tgid).collect();
        let shown =
            pids.into_iter().filter(|pid| own.is_none_or(|who| who.pid.cast_signed() == *pid));
        Ok(shown.flat_map(|pid| [pid.to_string(), "\n".to_owned()]).collect())
    }
}
