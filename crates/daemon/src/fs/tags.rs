// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tags and default lists that are written to files.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use reserv_model::{
    Caller as Rightful, Class, ErrorKind, Kind, Name, NodeId, ResourceKind, Right, ThreadParams,
};
use reserv_namespace::{Resource, Who, render_defaults, render_descriptors, render_missing};
use reserv_plane::listen::{Admission, Socket};
use reserv_plane::{List, Target};

use super::{Refusal, error};
use crate::asks::require_modest;
use crate::copier::{Copiers, HeldCopy, Job, NotTagged};
use crate::core::Core;
use crate::core::slot::Slot;
use crate::engine::Engine;
use crate::fuse::proto::Caller;
use crate::process;
use crate::rights::require_own;

pub(super) fn target_queue(engine: &Engine, queue: NodeId) -> Result<(), Refusal> {
    let node = engine.tree().node(queue)?;
    if !node.kind.is_queue() {
        return Err(error(
            ErrorKind::NotQueue,
            format!("{} is a scheduler node", engine.tree().shown(queue)),
        ));
    }
    if node.draining {
        return Err(error(ErrorKind::Busy, format!("{} is draining", engine.tree().shown(queue))));
    }
    Ok(())
}

pub(super) fn tag(
    engine: &mut Engine,
    queue: NodeId,
    who: Who,
    params: Option<ThreadParams>,
    (caller, asking): (Caller, &[Rightful]),
) -> Result<(), Refusal> {
    target_queue(engine, queue)?;
    let owner = |tid: i32| {
        process::tgid(tid)
            .ok_or_else(|| error(ErrorKind::NoProcess, format!("no process or thread {tid}")))
    };
    let target = match who {
        Who::Process(pid) => Target::Process(owner(pid.cast_signed()).and_then(|tgid| {
            if tgid == pid.cast_signed() {
                Ok(tgid)
            } else {
                Err(error(
                    ErrorKind::NoProcess,
                    format!("{pid} is a thread of {tgid}: write \"tid {pid}\""),
                ))
            }
        })?),
        Who::Thread { tid, pid } => {
            let tgid = owner(tid.cast_signed())?;
            if pid.is_some_and(|pid| pid.cast_signed() != tgid) {
                return Err(error(
                    ErrorKind::NoProcess,
                    format!("thread {tid} is of process {tgid}"),
                ));
            }
            Target::Thread(tid.cast_signed())
        }
        Who::CallerProcess => Target::Process(owner(caller.tid)?),
        Who::CallerThread => {
            owner(caller.tid)?;
            Target::Thread(caller.tid)
        }
    };
    let (Target::Process(tid) | Target::Thread(tid)) = target;
    let held = process::hold(tid)?;
    asking.iter().try_for_each(|by| require_own(by, tid))?;
    if let Some(params) = &params {
        require_modest(asking, tid, params)?;
    }
    // What was asked was asked of this one.
    let tag = |engine: &mut Engine| engine.tag(target, queue, params);
    engine.act_on_held((held.as_fd(), tid), tag, |engine| engine.tag(target, NodeId::Q0, None))
}

/// Sets one list of a process for several resources, all or none.
pub(super) fn set_defaults(
    core: &Core,
    asking: &[Rightful],
    (pid, list): (i32, List),
    queues: &[(Resource, NodeId)],
) -> Result<(), Refusal> {
    let mut before = Vec::new();
    for &(resource, queue) in queues {
        let engine = core.engine(resource)?;
        target_queue(&engine, queue)?;
        asking.iter().try_for_each(|by| engine.tree().require(by, queue, Right::Use))?;
        let lists = engine.plane().defaults(pid)?;
        before.push((resource, if list == List::Default { lists.default } else { lists.child }));
    }
    for (at, &(resource, queue)) in queues.iter().enumerate() {
        let set = |resource, queue| -> Result<(), Refusal> {
            Ok(core.engine(resource)?.plane_mut().set_default(pid, list, queue)?)
        };
        if let Err(refusal) = set(resource, queue) {
            for &(resource, old) in &before[..at] {
                if let Err(error) = set(resource, old) {
                    tracing::warn!(%error, pid, "a default list was not put back");
                }
            }
            return Err(refusal);
        }
    }
    Ok(())
}

/// How long a text about all resources waits for one of them.
pub(super) const PART_MAX: Duration = Duration::from_secs(2);

/// What each resource says of a process, where it answers; and lines about those that do not.
fn of_each<T: Send + 'static>(
    core: &Core,
    ask: impl Fn(&Engine) -> Result<T, Refusal> + Clone + Send + 'static,
) -> Result<(Vec<(Name, T)>, String), Refusal> {
    let (mut said, mut missing) = (Vec::new(), String::new());
    let slots = core.slots();
    let shown: Vec<&Arc<Slot>> = slots.values().filter(|slot| slot.is_shown()).collect();
    let begin = |slot: &&Arc<Slot>| {
        let ask = ask.clone();
        slot.begin(PART_MAX, move |held| ask(&held.engine))
    };
    let asked: Vec<_> = shown.iter().map(begin).collect();
    for (slot, asked) in shown.into_iter().zip(asked) {
        match asked.and_then(|asked| asked.answer(PART_MAX)) {
            Ok(answer) => said.push((slot.name.clone(), answer?)),
            Err(refusal) => missing.push_str(&render_missing(&slot.name, &refusal.text)),
        }
    }
    Ok((said, missing))
}

/// A default list of a process.
pub(super) fn listed(
    core: &Core,
    mount: &str,
    (pid, list): (i32, List),
) -> Result<String, Refusal> {
    let (queues, missing) = of_each(core, move |engine| {
        let lists = engine.plane().defaults(pid)?;
        let id = if list == List::Default { lists.default } else { lists.child };
        let tree = engine.tree();
        tree.path(id).or_else(|| tree.path(NodeId::Q0)).ok_or_else(Refusal::gone)
    })?;
    Ok(render_defaults(mount, &queues) + &missing)
}

/// What the descriptors of a process are tagged with.
pub(super) fn descriptors(core: &Core, mount: &str, pid: i32) -> Result<String, Refusal> {
    let (of_all, missing) = of_each(core, move |engine| {
        let tagged = engine.plane().descriptors(pid)?.into_iter();
        // One whose queue has gone meanwhile is q0's, as all that is not listed.
        Ok(tagged
            .filter_map(|(fd, queue)| engine.tree().path(queue).map(|path| (fd, path)))
            .collect::<Vec<_>>())
    })?;
    let mut tags: Vec<_> = of_all
        .into_iter()
        .flat_map(|(name, tags)| tags.into_iter().map(move |(fd, path)| (fd, name.clone(), path)))
        .collect();
    tags.sort_by_key(|(fd, ..)| *fd);
    Ok(render_descriptors(mount, &tags) + &missing)
}

/// A copy of somebody's descriptor, which another process has.
pub(super) fn copy(
    copiers: &Copiers,
    process: BorrowedFd<'_>,
    (pid, fd): (u32, u32),
) -> Result<HeldCopy, Refusal> {
    copiers.copy(process, fd).map_err(|e| match e.raw_os_error() {
        Some(libc::EBADF) => {
            error(ErrorKind::NotFound, format!("process {pid} has no descriptor {fd}"))
        }
        errno => Refusal::new(
            errno.unwrap_or(libc::EIO),
            format!("descriptor {fd} of process {pid}: {e}"),
        ),
    })
}

/// A copy that is a socket is among those that are chosen by their clients.
pub(super) fn admitted(
    copy: &mut HeldCopy,
    admission: Admission,
    (pid, fd): (u32, u32),
) -> Result<Socket, Refusal> {
    let refuse =
        |errno, why: &str| Refusal::new(errno, format!("descriptor {fd} of process {pid}: {why}"));
    copy.admit(admission)
        .map_err(|e| refuse(e.raw_os_error().unwrap_or(libc::EIO), &e.to_string()))?
        .map_err(|NotTagged { errno, text, full, .. }| {
            refuse(if full { libc::ENOSPC } else { errno }, &text)
        })
}

/// Somebody's descriptor, and the queue for the open file or socket behind it.
pub(super) struct Descriptor {
    /// Who asks for it.
    pub(super) asking: Vec<Rightful>,
    /// What the process was called.
    pub(super) pid: u32,
    /// It, whatever its number is by now.
    pub(super) process: OwnedFd,
    pub(super) fd: u32,
    pub(super) resource: Resource,
    pub(super) queue: NodeId,
}

impl Descriptor {
    /// Asked before there is a copy, and again when there is one.
    pub(super) fn may_be_tagged(&self, engine: &Engine) -> Result<(), Refusal> {
        target_queue(engine, self.queue)?;
        Ok(self
            .asking
            .iter()
            .try_for_each(|by| engine.tree().require(by, self.queue, Right::Use))?)
    }

    /// A copy of it, which another process has. May take for ever, and so may the copy's close.
    pub(super) fn copy(&self, copiers: &Copiers) -> Result<HeldCopy, Refusal> {
        copy(copiers, self.process.as_fd(), (self.pid, self.fd))
    }

    /// Has the copy tagged, with the resource's lock: who may no longer use the queue does not.
    pub(super) fn tag(&self, core: &Core, copy: &mut HeldCopy) -> Result<(), Refusal> {
        let mut engine = core.engine(self.resource)?;
        self.may_be_tagged(&engine)?;
        let tree = engine.tree();
        let read_nothing_ahead = tree.resource() == ResourceKind::Disk
            && tree.node(self.queue)?.kind == Kind::Queue(Class::RealTime);
        let done = match engine.plane_mut().descriptor_tag(self.queue) {
            Ok(tag) => copy.tag(&Job { tag, read_nothing_ahead }).map_err(|e| {
                let (pid, fd) = (self.pid, self.fd);
                let errno = e.raw_os_error().unwrap_or(libc::EIO);
                Refusal::new(errno, format!("descriptor {fd} of process {pid} was not tagged: {e}"))
            })?,
            Err(refused) => Err(refused.into()),
        };
        done.map_err(|why| self.not_tagged(&engine, why))
    }

    fn not_tagged(&self, engine: &Engine, why: NotTagged) -> Refusal {
        let (pid, fd, name) = (self.pid, self.fd, &engine.tree().root().name);
        let NotTagged { errno, text, in_words, full } = why;
        match errno {
            // As fcntl has it.
            _ if full => Refusal::new(
                libc::ENOSPC,
                format!(
                    "no room for a tag of descriptor {fd} of process {pid}: the tags of its user are half \
                     of what others leave"
                ),
            ),
            libc::EXDEV => {
                let text =
                    format!("descriptor {fd} of process {pid} is no file or socket of {name}");
                Refusal::new(errno, text)
            }
            // What the plane cannot do at all it says in words of its own.
            libc::EOPNOTSUPP if !in_words => {
                let text = format!("descriptor {fd} of process {pid} is not scheduled by {name}");
                Refusal::new(errno, text)
            }
            _ => Refusal::new(errno, text),
        }
    }
}
