// SPDX-License-Identifier: MIT OR Apache-2.0
//! The name space as a server of requests: which of them go one behind the other, and what becomes
//! of one that is refused, late, or another's to answer.

use reserv_namespace::{Ino, Object, RESOURCES_MAX};

use super::foreign::{Apart, PATIENCE};
use super::{Fs, Refusal, is_fresh, resource_of};
use crate::aside::Turn;
use crate::core::slot::News;
use crate::fuse::proto::{Op, Reply, Request};
use crate::fuse::serve::{Server, Ticket};
use crate::priority;
use crate::seed::Seed;

/// Lanes of what is no resource's: the mount's own files, and those of processes.
const LANE_MOUNT: usize = RESOURCES_MAX as usize;
const LANE_PROCESSES: usize = LANE_MOUNT + 1;
/// That of containers, which are in all resources.
const LANE_CONTAINERS: usize = LANE_PROCESSES + 1;
/// Threads that answer requests under a reservation of their own: one of a resource that somebody
/// holds up, and one for all else.
const RESERVED: usize = 2;

fn lane_of(ino: u64) -> usize {
    match (resource_of(ino), Ino(ino).object()) {
        (Some(resource), _) => resource.number().into(),
        (None, Some(Object::Process { .. })) => LANE_PROCESSES,
        (None, Some(Object::Container { .. } | Object::FreshContainer(_))) => LANE_CONTAINERS,
        (None, _) => LANE_MOUNT,
    }
}

impl Fs {
    /// What a request that changes something is called in `status`; `None` for mere questions.
    pub(super) fn changing(&self, request: &Request<'_>) -> Option<String> {
        let core = &self.core;
        let word = match request.op {
            Op::Mkdir { name } => format!("mkdir {}", String::from_utf8_lossy(name)),
            Op::Rmdir { name } => format!("rmdir {}", String::from_utf8_lossy(name)),
            Op::Rename { from, .. } => format!("mv {}", String::from_utf8_lossy(from)),
            Op::Open { .. } => "open".to_owned(),
            Op::Write { .. } => "write".to_owned(),
            _ => return None,
        };
        let place = match Ino(request.node).object() {
            Some(Object::Node { resource, id, file }) => {
                format!("{} {file:?}", core.shown(resource, id))
            }
            Some(Object::Process { pid, file }) => format!("proc/{pid} {file:?}"),
            Some(Object::Mount(file)) => format!("{file:?}"),
            Some(Object::Fresh(_)) => "newqueue".to_owned(),
            Some(Object::Container { id, file }) => {
                format!("{} {file:?}", self.room.look(|all| all.shown(id)))
            }
            Some(Object::FreshContainer(_)) => "new container".to_owned(),
            None => "?".to_owned(),
        };
        Some(format!("{word} {}", place.to_lowercase()))
    }

    /// Answers a request, the kernel's or one by path (`by_path.rs`). What is refused is told in
    /// `status` too.
    pub(super) fn answer_now(
        &self,
        request: &Request<'_>,
        reply: &mut Reply,
    ) -> Result<(), Refusal> {
        let answer = match request.op {
            Op::Read { handle, offset, size } => self.read(request, (handle, offset, size), reply),
            _ => self.dispatch(request, reply),
        };
        answer.inspect_err(|refusal| {
            let core = &self.core;
            if let Some(what) = self.changing(request) {
                core.refused(request.caller.uid, &what, refusal);
            }
        })
    }

    /// Whether the edit of this request happened, under this worker or one before it.
    pub(crate) fn answered(&self, unique: u64) -> bool {
        let of_container =
            || self.room.answered_in_the_end(unique).is_ok_and(|made| made.is_some());
        self.core.answered(unique).is_some() || of_container()
    }

    /// Where it is mounted.
    pub(crate) fn mount(&self) -> &str {
        &self.mount
    }
}

impl Server for Fs {
    const LANES: usize = LANE_CONTAINERS + 1;

    fn lane(&self, request: &Request<'_>) -> usize {
        lane_of(request.node)
    }

    fn forgets(&self, node: u64) -> Option<usize> {
        let fresh = is_fresh(node) || matches!(Ino(node).object(), Some(Object::FreshContainer(_)));
        fresh.then(|| lane_of(node))
    }

    fn answer(
        &self,
        request: &Request<'_>,
        reply: &mut Reply,
        ticket: &Turn<Ticket>,
    ) -> Option<Result<(), i32>> {
        if let Some(apart) = Apart::of(request) {
            // Nearly all are done by then, so that those who are not blocked take one thread in
            // all.
            if let Some(ended) = ticket.take().and_then(|ticket| self.answer_aside(apart, ticket)) {
                let _ = ended.recv_timeout(PATIENCE);
            }
            return None;
        }
        Some(self.answer_now(request, reply).map_err(|refusal| refusal.errno))
    }

    fn late(&self, request: &Request<'_>) {
        if let Some(what) = self.changing(request) {
            self.core.refused(request.caller.uid, &what, &Refusal::no_answer());
        }
    }

    fn caught_up(&self) {
        self.core.caught_up();
    }

    fn forget(&self, node: u64, _count: u64) {
        // Each fresh inode is looked up once, hence forgotten once.
        if let Some(Object::FreshContainer(_)) = Ino(node).object() {
            self.room.forget(node);
        }
        if let Some(Object::Fresh(serial)) = Ino(node).object()
            && let Ok(resource) = Seed::of(serial).resource()
            && let Ok(slot) = self.core.slot(resource)
        {
            match slot.engine() {
                Ok(mut engine) => engine.forget_fresh(node),
                Err(_) => slot.tell(News::Forgotten(node)),
            }
        }
    }

    fn begins(&self, thread: usize) {
        if thread < RESERVED {
            priority::reserve();
        }
    }
}
