// SPDX-License-Identifier: MIT OR Apache-2.0
//! Containers, and threads that bind themselves to them (Resource Containers §4.2): the rules, as
//! naively as they can be said (docs/containers.md), and the operations.
//!
//! A container is a queue of the CPU and, in the other resources, one or none each. Daemon and
//! kernel agree on no more than that: `tell_owned`.

use std::collections::BTreeMap;

use reserv_facts::call::fcntl;
use reserv_model::{ContainerId, DeleteMode, NodeId, Personality, Request, Right};
use reserv_namespace::{ContainerFile, Ino};
use reserv_plane::tag::{self, Wanted};

use crate::operations::of_resource;
use crate::oracle::{CPU, NET, Open, Oracle, RESOURCES, Tag, What};
use crate::world::{Checked, MOUNT, World, agree};

const BIND: u32 = fcntl::BIND.cast_unsigned();
const UNBIND: u32 = fcntl::UNBIND.cast_unsigned();
const BOUND: u32 = fcntl::BOUND.cast_unsigned();

const CONTAINERS: usize = 4;
const DESCRIPTORS: usize = 10;

/// What a container owns: of [`CPU`] always.
pub(crate) type Container = [Tag; RESOURCES];

/// What a thread is bound to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    /// The container's queue of the CPU.
    pub(crate) queue: NodeId,
    /// Where the thread was before.
    back: NodeId,
    /// A list let it.
    listed: bool,
}

impl Bound {
    pub(crate) fn new(queue: NodeId, back: NodeId, listed: bool) -> Self {
        Self { queue, back, listed }
    }

    pub(crate) fn back(self) -> NodeId {
        self.back
    }

    /// As it is for who begins there, and would have begun elsewhere.
    pub(crate) fn from(self, elsewhere: Tag) -> Self {
        Self { back: elsewhere.unwrap_or(NodeId::Q0), ..self }
    }
}

impl Oracle {
    /// What a thread is bound to, while it is where that put it.
    pub(crate) fn bound(&self, pid: i32, tid: i32) -> Option<Bound> {
        let p = &self.processes[&pid];
        p.bound.get(&tid).copied().filter(|b| p.threads[&tid] == Some(b.queue))
    }

    /// The queue of a resource that a thread works for, if it may use it.
    fn works_for(&self, pid: i32, tid: i32, at: usize) -> Tag {
        let (bound, who) = (self.bound(pid, tid)?, &self.processes[&pid].who);
        let container = self.containers.iter().find(|c| c[CPU] == Some(bound.queue))?;
        let node = container[at]?;
        let place = self.trees[at].place(node)?;
        // Who was given the container's CPU by a list alone has no more of it.
        let given = !bound.listed || who.uid == 0 || place.told;
        (given && self.trees[at].usable(who, node)).then_some(node)
    }

    /// The queue of what a thread does and nobody tagged.
    pub(crate) fn mine(&self, pid: i32, tid: i32, at: usize) -> Tag {
        self.works_for(pid, tid, at).or_else(|| self.chosen(pid, at))
    }

    /// The queue that F_GET_QUEUE tells a thread of a socket that nobody tagged.
    pub(crate) fn would_send_in(&self, pid: i32, tid: i32, file: u64, at: usize) -> Tag {
        let open = &self.files[&file];
        let asked = open.asked && open.tags[at].is_some();
        let socket = matches!(open.what, What::Socket { .. });
        self.works_for(pid, tid, at).filter(|_| socket && at == NET && !asked)
    }

    /// The queue of who sent last over a socket that nobody tagged, and was bound.
    pub(crate) fn noted(&self, file: u64, at: usize) -> Tag {
        let open = &self.files[&file];
        let asked = open.asked && open.tags[at].is_some();
        open.note.filter(|node| at == NET && !asked && self.trees[at].place(*node).is_some())
    }

    /// A thread sends over a socket.
    pub(crate) fn sends(&mut self, pid: i32, tid: i32, file: u64) {
        let note = self.works_for(pid, tid, NET);
        if let Some(open) = self.files.get_mut(&file) {
            open.note = note;
        }
    }

    /// Somebody has tagged it, itself or another.
    pub(crate) fn retag(&mut self, pid: i32, tid: i32, queue: NodeId) {
        if let Some(p) = self.processes.get_mut(&pid) {
            p.bound.remove(&tid);
            p.threads.insert(tid, Some(queue).filter(|id| *id != NodeId::Q0));
        }
    }

    /// Where a thread goes that was somewhere before; whether it may.
    pub(crate) fn way_back(&self, pid: i32, back: NodeId) -> (NodeId, bool) {
        let (tree, who) = (&self.trees[CPU], &self.processes[&pid].who);
        let there = tree.place(back).is_some_and(|p| !p.draining);
        let to = if there { back } else { NodeId::Q0 };
        let told = tree.place(to).is_some_and(|p| p.told);
        let may = if told { tree.may(who, to, Right::Use) } else { who.uid == 0 || to == back };
        (to, may)
    }

    /// The queue of the CPU goes: who was bound to it is where it was before, if it may.
    pub(crate) fn sent_back(&mut self, id: NodeId) {
        let pids: Vec<i32> = self.processes.keys().copied().collect();
        for pid in pids {
            let tids: Vec<i32> = self.processes[&pid].threads.keys().copied().collect();
            for tid in tids {
                let Some(bound) = self.bound(pid, tid).filter(|b| b.queue == id) else { continue };
                let (to, may) = self.way_back(pid, bound.back);
                self.retag(pid, tid, if may && to != id { to } else { NodeId::Q0 });
            }
        }
    }

    /// What F_RESERV_BIND answers; the queue, and whether a list lets the thread.
    fn may_bind(&self, pid: i32, tid: i32, fd: i32) -> Result<(NodeId, bool), i32> {
        let p = &self.processes[&pid];
        let What::Container { queue, share } = self.files[&p.fds[&fd]].what else {
            return Err(libc::EINVAL);
        };
        let tree = &self.trees[CPU];
        let place = tree.place(queue);
        let told = place.is_some_and(|p| p.told);
        // Who only sees a container may open its share.
        if share && !told && p.who.uid != 0 {
            return Err(libc::EACCES);
        }
        if told && !tree.may(&p.who, queue, Right::Use) {
            return Err(libc::EACCES);
        }
        let place = place.ok_or(libc::ESTALE)?;
        if place.draining && p.threads[&tid] != Some(queue) {
            return Err(if self.drains(queue) { libc::EAGAIN } else { libc::ESTALE });
        }
        Ok((queue, told))
    }
}

impl World {
    /// The programs are told what there is.
    fn tell(&mut self) -> Checked {
        let all = self.oracle.containers.iter();
        let owned = all.filter_map(|container| {
            let others = (0..CPU).filter_map(|at| Some((of_resource(at).number(), container[at]?)));
            Some((container[CPU]?, others.collect::<BTreeMap<_, _>>()))
        });
        let wanted = Wanted { owned: owned.collect(), ..Wanted::default() };
        tag::tell_owned(&mut self.told, || wanted).map_err(|e| e.to_string())
    }

    /// One is made of queues that no other has.
    pub(crate) fn contain(&mut self) -> Checked {
        // Somebody has taken a queue away behind a container: what is left is none.
        let lives = |at: usize, id: NodeId, oracle: &Oracle| oracle.trees[at].place(id).is_some();
        let all = std::mem::take(&mut self.oracle.containers);
        for mut container in all {
            for (at, part) in container.iter_mut().enumerate() {
                *part = part.filter(|id| lives(at, *id, &self.oracle));
            }
            if container[CPU].is_some() {
                self.oracle.containers.push(container);
            }
        }
        if self.oracle.containers.len() < CONTAINERS {
            let mut container = [None; RESOURCES];
            for (at, part) in container.iter_mut().enumerate() {
                let taken = |id| self.oracle.containers.iter().any(|c| c[at] == Some(id));
                let free = self.oracle.trees[at]
                    .places
                    .iter()
                    .filter(|p| p.queue && !p.draining && p.id != NodeId::Q0 && !taken(p.id));
                let free: Vec<NodeId> = free.map(|p| p.id).collect();
                *part = self.random.of(&free).filter(|_| at == CPU || !self.random.one_in(4));
            }
            if container[CPU].is_some() {
                self.note("container", || format!("{container:?}"));
                self.oracle.containers.push(container);
            }
        }
        self.tell()
    }

    /// `containers`, or the default.
    pub(crate) fn another_personality(&mut self) -> Checked {
        let personality = [Personality::Containers, Personality::Default][self.random.below(2)];
        let request = Request::SetPersonality { personality };
        self.engines[CPU].edit(&[request], None).map_err(|e| e.to_string())?;
        self.note("personality", || personality.to_string());
        self.oracle.binds_children = personality == Personality::Containers;
        Ok(())
    }

    /// `rm` of a container, by root: with all that it owns, or, where somebody is in it, nothing.
    pub(crate) fn remove(&mut self) -> Checked {
        let all = self.oracle.containers.clone();
        let Some(container) = self.random.of(&all) else { return Ok(()) };
        let parts: Vec<(usize, NodeId)> =
            (0..RESOURCES).filter_map(|at| Some((at, container[at]?))).collect();
        for (at, id) in &parts {
            let Some(place) = self.oracle.trees[*at].place(*id) else { return Ok(()) };
            let (draining, [tags, ..]) = (place.draining, self.oracle.refs(*at, *id));
            let refs = self.engines[*at].plane().refs(&[*id]).map_err(|e| e.to_string())?;
            let got = refs.first().is_some_and(|refs| refs.tags() > 0);
            agree(|| format!("somebody is in {id:?} of {at}"), &got, &(tags > 0))?;
            if draining || got {
                return Ok(());
            }
        }
        self.note("rm container", || format!("{container:?}"));
        for (at, id) in parts {
            let delete = Request::Delete { node: id.into(), mode: DeleteMode::Refuse };
            self.engines[at].edit(&[delete], None).map_err(|e| e.to_string())?;
            self.oracle.gone(at, id);
        }
        self.oracle.containers.retain(|c| c[CPU] != container[CPU]);
        self.tell()
    }

    /// A container's directory or share is opened, if there is none among the descriptors.
    fn open_container(&mut self, pid: i32) {
        let all = self.oracle.containers.clone();
        let Some(queue) = self.random.of(&all).and_then(|container| container[CPU]) else { return };
        let share = self.random.one_in(3);
        let id = ContainerId { index: 5, generation: 1 };
        let kind = if share { ContainerFile::Share } else { ContainerFile::Dir };
        let (file, handle) = (self.fresh(), reserv_daemon::seed::handle(queue, 0));
        let ino = Ino::of_container(id, kind).0;
        let fd = self.kernel.k_open_reserv(MOUNT, ino, (!share).into(), 1, handle);
        self.note("open container", || format!("{fd} of {pid}: {queue:?} share {share}"));
        let what = What::Container { queue, share };
        let open = Open { what, tags: [None; RESOURCES], asked: false, note: None };
        self.oracle.files.insert(file, open);
        self.has(pid, fd, file);
    }

    /// F_RESERV_BIND, F_RESERV_UNBIND, F_RESERV_BOUND.
    pub(crate) fn bind(&mut self, pid: i32, tid: i32, any: i32) -> Checked {
        let p = &self.oracle.processes[&pid];
        let fits = |file: &u64| matches!(self.oracle.files[file].what, What::Container { .. });
        let fitting: Vec<i32> =
            p.fds.iter().filter(|(_, file)| fits(file)).map(|(fd, _)| *fd).collect();
        let room = p.fds.len() < DESCRIPTORS;
        if room && (fitting.is_empty() || self.random.one_in(4)) {
            self.open_container(pid);
            return Ok(());
        }
        let fd = self.random.of(&fitting).filter(|_| !self.random.one_in(10)).unwrap_or(any);
        if !fitting.contains(&fd) {
            return self.bind_by_another(pid, tid, fd);
        }
        match self.random.below(12) {
            0 => self.unbind(pid, tid, fd),
            5 | 6 => self.slot(pid, fd),
            7..12 => self.page(pid, tid, fd),
            1 => {
                let wanted = self.is_bound(pid, tid);
                let got = self.kernel.k_fcntl(fd, BOUND, 0);
                agree(|| format!("what {tid} of {pid} is bound to"), &got, &wanted)
            }
            _ => self.bind_by(pid, tid, fd),
        }
    }

    /// What F_RESERV_BOUND answers.
    pub(crate) fn is_bound(&self, pid: i32, tid: i32) -> i32 {
        self.oracle
            .bound(pid, tid)
            .map_or(-libc::ENOENT, |bound| 1 + i32::try_from(bound.queue.index).unwrap_or(i32::MAX))
    }

    fn bind_by(&mut self, pid: i32, tid: i32, fd: i32) -> Checked {
        let before = self.oracle.processes[&pid].threads[&tid];
        let (bound, wanted) = (self.oracle.bound(pid, tid), self.oracle.may_bind(pid, tid, fd));
        let got = self.kernel.k_fcntl(fd, BIND, 0);
        self.note("bind", || format!("{tid} of {pid} by {fd}: {got}, {wanted:?}"));
        // What was told of a queue that drains may be forgotten before it goes.
        let What::Container { queue, .. } =
            self.oracle.files[&self.oracle.processes[&pid].fds[&fd]].what
        else {
            return Ok(());
        };
        let drains = self.oracle.drains(queue);
        if drains && got != 1 && [-libc::EAGAIN, -libc::EACCES].contains(&got) {
            return Ok(());
        }
        let wanted = match wanted {
            // Who is in it already may be told that it is.
            Err(_) if drains && got == 1 && before == Some(queue) => Ok((queue, false)),
            wanted => wanted,
        };
        if let Ok((queue, listed)) = wanted {
            let back = bound.map_or(before.unwrap_or(NodeId::Q0), |bound| bound.back);
            self.oracle.retag(pid, tid, queue);
            self.owner(pid).bound.insert(tid, Bound { queue, back, listed });
        }
        let sort = match wanted {
            Ok((_, true)) => "bound by a list",
            Ok(_) => "bound by a descriptor",
            Err(libc::EACCES) => "not bound: no right",
            Err(_) => "not bound: gone",
        };
        *self.counts.entry(sort).or_default() += 1;
        let answer = wanted.map_or_else(|errno| -errno, |_| 1);
        agree(|| format!("{tid} of {pid} binds itself by {fd}"), &got, &answer)
    }

    fn unbind(&mut self, pid: i32, tid: i32, fd: i32) -> Checked {
        let got = self.kernel.k_fcntl(fd, UNBIND, 0);
        self.note("unbind", || format!("{tid} of {pid}: {got}"));
        let Some(bound) = self.oracle.bound(pid, tid) else {
            return agree(|| format!("{tid} of {pid} is bound to none"), &got, &1);
        };
        let (to, may) = self.oracle.way_back(pid, bound.back);
        if may {
            self.oracle.retag(pid, tid, to);
        }
        let wanted = if may { 1 } else { -libc::EACCES };
        let back = bound.back;
        agree(|| format!("{tid} of {pid} unbinds itself: from {back:?} to {to:?}"), &got, &wanted)
    }

    /// By what is no container's. To be asked whether one is bound, any file of /reserv will do.
    fn bind_by_another(&mut self, pid: i32, tid: i32, fd: i32) -> Checked {
        let Some(file) = self.oracle.processes[&pid].fds.get(&fd).copied() else { return Ok(()) };
        let wanted = match self.oracle.files[&file].what {
            What::Reserv { mode: crate::reserv::PATH, .. } => -libc::EBADF,
            _ => -libc::EINVAL,
        };
        let got = self.kernel.k_fcntl(fd, BIND, 0);
        self.note("bind by another", || format!("{tid} of {pid} by {fd}: {got}"));
        agree(|| format!("{tid} of {pid} binds itself by what is no container"), &got, &wanted)
    }
}
