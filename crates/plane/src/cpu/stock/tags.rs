// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tags: moving threads into our cgroups, and back.

use reserv_model::NodeId;

use super::Stock;
use super::cg::{Place, os};
use crate::cgroup::{disk_tree, parse_component};
use crate::{Member, PlaneError, Target};

impl Stock {
    /// The node whose directory a place lies in; q0 outside our tree.
    pub(super) fn node_at(&self, place: &Place) -> NodeId {
        let Some(path) = self.cg.inside(place) else { return NodeId::Q0 };
        // The deepest name that is ours: somebody may have made a cgroup below.
        path.split('/')
            .rev()
            .filter_map(parse_component)
            .find_map(|(id, _)| {
                self.state.mirror.get(id).ok().filter(|n| !n.scheduler).map(|n| n.id)
            })
            .unwrap_or(NodeId::Q0)
    }

    pub(super) fn retag(&mut self, target: Target, queue: NodeId) -> Result<usize, PlaneError> {
        let node = self.state.mirror.get(queue)?;
        if node.scheduler {
            return Err(PlaneError::Invalid(
                "a scheduler node has no members: name a queue".into(),
            ));
        }
        if node.draining {
            return Err(PlaneError::Busy("the queue is being drained and takes nobody".into()));
        }
        let limit = node.members_max as usize;
        let path = self.state.mirror.path(queue)?;
        let threads = match target {
            Target::Thread(tid) | Target::Process(tid) if tid <= 0 => {
                return Err(PlaneError::NoProcess(tid));
            }
            Target::Thread(tid) => vec![tid],
            Target::Process(pid) => self.cg.threads(pid)?,
        };
        let mut moving = Vec::new();
        for tid in threads {
            match self.cg.locate(tid) {
                Ok(place) if self.node_at(&place) != queue => moving.push((tid, place)),
                Ok(place) if queue == NodeId::Q0 && self.cg.ours(&place) => {
                    moving.push((tid, place));
                }
                Ok(_) => {}
                Err(PlaneError::NoProcess(_)) if matches!(target, Target::Process(_)) => {}
                Err(error) => return Err(error),
            }
        }
        if moving.is_empty() {
            return Ok(0);
        }
        let dirs = self.cg.dirs(&path);
        if queue == NodeId::Q0 {
            return match target {
                Target::Thread(tid) => {
                    Ok(usize::from(self.origins.release_thread(&self.cg, tid, &dirs)?))
                }
                Target::Process(pid) => self.origins.release_process(&self.cg, pid, &dirs),
            };
        }
        // Where the disk's stock driver has the same hierarchy a process cannot be in both trees.
        let disk = disk_tree(&self.cg.name);
        if let Some((tid, _)) = moving.iter().find(|(_, place)| self.cg.lies(place, &disk)) {
            return Err(PlaneError::Unsupported(format!(
                "thread {tid} is in a cgroup of a disk's stock driver, and has one cgroup for both: take it from the \
                 disk's queue first"
            )));
        }
        if limit > 0 && self.cg.tids(&path)?.len() + moving.len() > limit {
            return Err(PlaneError::Full(format!("the queue takes at most {limit} members")));
        }
        self.enter(&moving, target, &dirs)?;
        Ok(moving.len())
    }

    /// Moves threads, which are at the places named, to the directories of a queue.
    pub(super) fn enter(
        &mut self,
        moving: &[(i32, Place)],
        target: Target,
        dirs: &[String],
    ) -> Result<(), PlaneError> {
        let outside = |list: &[(i32, Place)]| -> Vec<_> {
            list.iter().filter(|(_, place)| !self.cg.ours(place)).cloned().collect()
        };
        let entering = outside(moving);
        if !entering.is_empty() {
            self.origins.add(&self.cg, &entering)?;
        }
        let (id, result) = match target {
            Target::Process(pid) => (pid, self.cg.put_process(dirs, pid)),
            Target::Thread(tid) => (tid, self.cg.put_thread(dirs, tid)),
        };
        let result = match result {
            // v2, a process of another domain: it comes whole, the others of it to q0.
            Err(e)
                if e.raw_os_error() == Some(libc::EOPNOTSUPP)
                    && matches!(target, Target::Thread(_)) =>
            {
                return self.enter_whole(id, dirs);
            }
            other => other,
        };
        match result {
            Ok(()) => Ok(()),
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Err(PlaneError::NoProcess(id)),
            Err(e) => {
                // v1 has two hierarchies: do not stay in one of them only.
                for (tid, place) in moving {
                    if let Some(back) = self.cg.dirs_of(place) {
                        let _ = self.cg.put_thread(&back, *tid);
                    }
                }
                Err(os(format!("move {id} to {}", dirs[0]))(e))
            }
        }
    }

    fn enter_whole(&mut self, tid: i32, dirs: &[String]) -> Result<(), PlaneError> {
        let pid = self.cg.tgid(tid)?;
        let q0 = self.cg.dirs(&self.state.mirror.path(NodeId::Q0)?);
        let mut others = Vec::new();
        for other in self.cg.threads(pid)? {
            if let Ok(place) = self.cg.locate(other)
                && !self.cg.ours(&place)
            {
                others.push((other, place));
            }
        }
        self.origins.add(&self.cg, &others)?;
        let moved = self.cg.put_process(&q0, pid).and_then(|()| self.cg.put_thread(dirs, tid));
        if let Err(error) = moved {
            let _ = self.origins.release_process(&self.cg, pid, &q0);
            if error.raw_os_error() == Some(libc::ESRCH) {
                return Err(PlaneError::NoProcess(tid));
            }
            return Err(os(format!("move thread {tid} with its process {pid} to {}", dirs[0]))(
                error,
            ));
        }
        Ok(())
    }

    pub(super) fn members_of(&self, queue: NodeId) -> Result<Vec<Member>, PlaneError> {
        if self.state.mirror.get(queue)?.scheduler {
            return Err(PlaneError::Invalid("a scheduler node has no members".into()));
        }
        if queue == NodeId::Q0 {
            return Ok(Vec::new());
        }
        let tids = self.cg.tids(&self.state.mirror.path(queue)?)?;
        let mut members: Vec<_> = tids
            .into_iter()
            .filter_map(|tid| {
                let tgid = self.cg.tgid(tid).ok()?;
                Some(Member { tgid, tid, params: reserv_model::ThreadParams::default() })
            })
            .collect();
        members.sort_unstable();
        Ok(members)
    }
}
