// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rules, as naively as they can be said: Eclipse/BSD §2.5 to §2.7 and statements T1, T6, T7,
//! T10 and M13 of SPECIFICATION.md. Nothing is counted, indexed or kept for speed: whoever wants to
//! know looks at everybody.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::pages::Numbers;
use crate::reserv::PATH;
use crate::works::{Bound, Container};
use reserv_model::{Caller, NodeId, Party, Right, Verb};
use reserv_namespace::FileKind;

/// Resources: two of files, one of an interface, and the CPU.
pub(crate) const RESOURCES: usize = 4;
pub(crate) const NET: usize = 2;
pub(crate) const CPU: usize = 3;
/// The interface of [`NET`]. All others are nobody's.
pub(crate) const INTERFACE: i32 = 1;

/// A queue, or q0.
pub(crate) type Tag = Option<NodeId>;

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "what is true of a node, each by itself")]
pub(crate) struct Place {
    pub(crate) id: NodeId,
    pub(crate) parent: Tag,
    pub(crate) queue: bool,
    pub(crate) gc: bool,
    pub(crate) draining: bool,
    pub(crate) maker: u32,
    /// The resource had access lists when it was made or moved, or one at or above it has changed:
    /// the kernel asks them.
    pub(crate) told: bool,
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
}

/// An entry of an access list, made by root.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) node: NodeId,
    pub(crate) allow: bool,
    pub(crate) party: Party,
    pub(crate) rights: Vec<Right>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    pub(crate) places: Vec<Place>,
    pub(crate) lines: Vec<Line>,
}

impl Tree {
    pub(crate) fn place(&self, id: NodeId) -> Option<&Place> {
        self.places.iter().find(|p| p.id == id)
    }

    pub(crate) fn within(&self, id: NodeId, top: NodeId) -> bool {
        id == top || self.place(id).and_then(|p| p.parent).is_some_and(|p| self.within(p, top))
    }

    pub(crate) fn children(&self, id: NodeId) -> usize {
        self.places.iter().filter(|p| p.parent == Some(id)).count()
    }

    pub(crate) fn depth(&self, id: NodeId) -> usize {
        self.place(id).and_then(|p| p.parent).map_or(0, |p| 1 + self.depth(p))
    }

    fn meant(party: Party, who: &Caller) -> bool {
        !(party.uid.is_some_and(|u| u != who.uid)
            || party.gid.is_some_and(|g| g != who.gid && !who.groups.contains(&g))
            || party.process.is_some_and(|p| p.0 != who.pid || p.1 != who.start))
    }

    fn says(&self, allow: bool, who: &Caller, id: NodeId, right: Right) -> bool {
        let here =
            |l: &Line| l.allow == allow && l.rights.contains(&right) && self.within(id, l.node);
        self.lines.iter().any(|l| here(l) && Self::meant(l.party, who))
    }

    fn listed(&self, who: &Caller, id: NodeId, right: Right) -> bool {
        who.uid == 0 || !self.says(false, who, id, right) && self.says(true, who, id, right)
    }

    pub(crate) fn may(&self, who: &Caller, id: NodeId, right: Right) -> bool {
        let Some(place) = self.place(id) else { return false };
        let made = |parent| place.maker == who.uid && self.listed(who, parent, Right::Create);
        let own = [Right::Modify, Right::Delete].contains(&right) && place.parent.is_some_and(made);
        let implied = || right == Right::Read && self.concerns(who, id);
        self.listed(who, id, right) || (own || implied()) && !self.says(false, who, id, right)
    }

    /// Whether somebody who is himself in these queues sees the totals of a node.
    pub(crate) fn sees(&self, who: &Caller, id: NodeId, within: &[NodeId]) -> bool {
        let shows = |below: NodeId| within.contains(&below) || self.may(who, below, Right::Read);
        id == NodeId::ROOT || self.places.iter().any(|p| self.within(p.id, id) && shows(p.id))
    }

    /// What a node is to its siblings is inside its parent.
    pub(crate) fn above(&self, who: &Caller, id: NodeId, right: Right) -> bool {
        let own = self.may(who, id, right) && !self.listed(who, id, right);
        own || self.may(who, self.place(id).and_then(|p| p.parent).unwrap_or(id), right)
    }

    pub(crate) fn concerns(&self, who: &Caller, id: NodeId) -> bool {
        Right::to_act().any(|right| self.may(who, id, right))
    }

    /// Whether somebody may tag with it now, who was given it: by a list, or a descriptor of its
    /// directory.
    pub(crate) fn usable(&self, who: &Caller, id: NodeId) -> bool {
        let may = |p: &Place| p.queue && !p.draining && (!p.told || self.may(who, id, Right::Use));
        self.place(id).is_some_and(may)
    }

    pub(crate) fn tell(&mut self, top: NodeId) {
        let within: Vec<NodeId> =
            self.places.iter().map(|p| p.id).filter(|id| self.within(*id, top)).collect();
        self.places.iter_mut().filter(|p| within.contains(&p.id)).for_each(|p| p.told = true);
    }

    /// Root changes a list.
    pub(crate) fn change(&mut self, node: NodeId, verb: Verb, party: Party, rights: &[Right]) {
        // Who may look is nothing about use.
        let said = self.said();
        for line in self.lines.iter_mut().filter(|l| l.node == node && l.party == party) {
            let taken = match verb {
                Verb::Remove => true,
                Verb::Deny => line.allow,
                Verb::Allow => !line.allow,
            };
            if taken {
                line.rights.retain(|r| !rights.contains(r));
            }
        }
        if verb != Verb::Remove {
            self.lines.push(Line {
                node,
                allow: verb == Verb::Allow,
                party,
                rights: rights.to_vec(),
            });
        }
        self.lines.retain(|l| !l.rights.is_empty());
        if self.said() != said {
            self.tell(node);
        }
    }

    /// What the lists say of what can be done, in any order.
    pub(crate) fn said(&self) -> Vec<String> {
        let mut said = Vec::new();
        for line in &self.lines {
            let act = line.rights.iter().filter(|right| **right != Right::Read);
            said.extend(
                act.map(|r| format!("{:?} {} {:?} {r:?}", line.node, line.allow, line.party)),
            );
        }
        said.sort();
        said.dedup();
        said
    }
}

/// A connection that nobody has accepted. Its tag is its listener's, if that was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) bound: i32,
    pub(crate) route: i32,
    pub(crate) tag: Tag,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    /// The resources that it lives on.
    File([bool; RESOURCES]),
    Socket {
        stream: bool,
        inet: bool,
        elsewhere: bool,
        bound: i32,
        route: Option<i32>,
        listens: bool,
        waiting: VecDeque<Waiting>,
    },
    /// A file of /reserv: opened by whom, and whether that keeps its node.
    Reserv { resource: usize, id: NodeId, kind: FileKind, mode: u32, who: Caller, keeps: bool },
    /// A container's directory or share, with its queue of the CPU.
    Container { queue: NodeId, share: bool },
}

/// What descriptors stand for.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    pub(crate) what: What,
    pub(crate) tags: [Tag; RESOURCES],
    /// Of a socket: its tag was asked for, not filled from a list.
    pub(crate) asked: bool,
    /// Of a socket: what who sent last was bound to.
    pub(crate) note: Tag,
}

#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) who: Caller,
    /// Each with its queue of the CPU.
    pub(crate) threads: BTreeMap<i32, Tag>,
    /// What those are bound to that have bound themselves: see [`Oracle::bound`].
    pub(crate) bound: BTreeMap<i32, Bound>,
    pub(crate) numbers: Numbers,
    /// When it was born, in ns.
    pub(crate) start: u64,
    /// Default and child default by resource.
    pub(crate) lists: [[Tag; 2]; RESOURCES],
    /// The node that it stands in.
    pub(crate) cwd: Option<(usize, NodeId)>,
    /// Which open file each descriptor is.
    pub(crate) fds: BTreeMap<i32, u64>,
}

#[derive(Default)]
pub(crate) struct Oracle {
    pub(crate) trees: [Tree; RESOURCES],
    pub(crate) processes: BTreeMap<i32, Process>,
    pub(crate) files: BTreeMap<u64, Open>,
    /// Sent, and not received yet.
    pub(crate) under_way: BTreeMap<u32, u64>,
    pub(crate) containers: Vec<Container>,
    /// The personality is `containers`: new processes of bound threads are bound.
    pub(crate) binds_children: bool,
}

impl Oracle {
    pub(crate) fn new() -> Self {
        let mut oracle = Self::default();
        for tree in &mut oracle.trees {
            for (id, parent, queue) in
                [(NodeId::ROOT, None, false), (NodeId::Q0, Some(NodeId::ROOT), true)]
            {
                tree.places.push(Place {
                    id,
                    parent,
                    queue,
                    gc: false,
                    draining: false,
                    maker: 0,
                    told: false,
                    operations: 0,
                    bytes: 0,
                });
            }
        }
        oracle
    }

    fn held(&self, file: u64) -> bool {
        self.under_way
            .values()
            .chain(self.processes.values().flat_map(|p| p.fds.values()))
            .any(|f| *f == file)
    }

    /// What nobody refers to any more ends.
    pub(crate) fn end_files(&mut self) {
        let gone: Vec<u64> = self.files.keys().copied().filter(|file| !self.held(*file)).collect();
        for file in gone {
            self.files.remove(&file);
        }
    }

    /// Every place where a tag of a resource stands, but lists.
    fn tags(&mut self, resource: usize) -> impl Iterator<Item = &mut Tag> {
        self.files.values_mut().flat_map(move |open| {
            let Open { what, tags, .. } = open;
            let waiting = match what {
                What::Socket { waiting, .. } if resource == NET => Some(waiting),
                _ => None,
            };
            std::iter::once(&mut tags[resource])
                .chain(waiting.into_iter().flatten().map(|w| &mut w.tag))
        })
    }

    /// Tagged descriptors, default lists and child default lists that name a node.
    pub(crate) fn refs(&mut self, resource: usize, id: NodeId) -> [u64; 3] {
        let lists = |which: usize| {
            self.processes.values().filter(|p| p.lists[resource][which] == Some(id)).count() as u64
        };
        let (default, child) = (lists(0), lists(1));
        if resource == CPU {
            let threads = self.processes.values().flat_map(|p| p.threads.values());
            return [threads.filter(|tag| **tag == Some(id)).count() as u64, default, child];
        }
        [self.tags(resource).filter(|tag| **tag == Some(id)).count() as u64, default, child]
    }

    /// Threads of a queue of the CPU, by process.
    pub(crate) fn members(&self, id: NodeId) -> Vec<i32> {
        let of = |p: &Process| {
            p.threads.iter().filter(|(_, tag)| **tag == Some(id)).map(|(tid, _)| *tid).collect()
        };
        self.processes.values().flat_map(|p| -> Vec<i32> { of(p) }).collect()
    }

    /// Of each file and socket that is tagged with a node, the processes that have it.
    pub(crate) fn holders(&self, resource: usize, id: NodeId) -> Vec<Vec<i32>> {
        let mut all = Vec::new();
        for (file, open) in &self.files {
            let has = |p: &Process| p.fds.values().any(|f| f == file);
            if open.tags[resource] == Some(id) {
                all.push(
                    self.processes.iter().filter(|(_, p)| has(p)).map(|(pid, _)| *pid).collect(),
                );
            }
            if let What::Socket { waiting, .. } = &open.what
                && resource == NET
            {
                all.extend(waiting.iter().filter(|w| w.tag == Some(id)).map(|_| Vec::new()));
            }
        }
        all.sort_unstable();
        all
    }

    /// A node is no more: whoever named it has q0.
    pub(crate) fn gone(&mut self, resource: usize, id: NodeId) {
        if resource == CPU {
            self.sent_back(id);
        }
        self.trees[resource].places.retain(|p| p.id != id);
        self.trees[resource].lines.retain(|l| l.node != id);
        for tag in self.tags(resource) {
            *tag = tag.filter(|t| *t != id);
        }
        for list in self.processes.values_mut().flat_map(|p| &mut p.lists[resource]) {
            *list = list.filter(|t| *t != id);
        }
        if resource == CPU {
            for tag in self.processes.values_mut().flat_map(|p| p.threads.values_mut()) {
                *tag = tag.filter(|t| *t != id);
            }
        }
    }

    /// The queue that a process' default list gives to what it opens now.
    pub(crate) fn chosen(&self, pid: i32, resource: usize) -> Tag {
        let p = &self.processes[&pid];
        p.lists[resource][0].filter(|q| self.trees[resource].usable(&p.who, *q))
    }

    /// Whether a file lives on a resource; of a socket, whether its packets can leave by its
    /// interface.
    pub(crate) fn lives(&self, file: u64, resource: usize) -> Result<(), i32> {
        let yes = |lives: bool| if lives { Ok(()) } else { Err(libc::EXDEV) };
        match &self.files[&file].what {
            What::File(lives) if lives.contains(&true) => yes(lives[resource]),
            What::Socket { inet: true, elsewhere, bound, route, .. } => {
                let by = if *bound != 0 { Some(*bound) } else { *route };
                yes(resource == NET && !elsewhere && by.is_none_or(|by| by == INTERFACE))
            }
            _ => Err(libc::EOPNOTSUPP),
        }
    }

    /// The queue whose turn it is for what a process does through a file.
    pub(crate) fn queue(&self, pid: i32, file: u64, resource: usize) -> Tag {
        let open = &self.files[&file];
        let late = matches!(open.what, What::Socket { stream: false, route: None, .. });
        let tag = self.noted(file, resource).or(open.tags[resource]);
        tag.or_else(|| if late { self.chosen(pid, resource) } else { None })
    }

    /// F_GET_QUEUE of a thread, or, of a process, getsockopt.
    pub(crate) fn told(&self, pid: i32, tid: Option<i32>, file: u64, resource: usize) -> i32 {
        let number =
            |tag: Tag| 1 + i32::try_from(tag.unwrap_or(NodeId::Q0).index).unwrap_or(i32::MAX);
        if let What::Reserv { id, mode, .. } = self.files[&file].what {
            return if mode == PATH { -libc::EBADF } else { number(Some(id)) };
        }
        if let What::Container { .. } = self.files[&file].what {
            return -libc::EINVAL;
        }
        let own = tid.and_then(|tid| self.would_send_in(pid, tid, file, resource));
        self.lives(file, resource)
            .map_or(-libc::ENOENT, |()| number(own.or_else(|| self.queue(pid, file, resource))))
    }

    /// What F_SET_QUEUE answers, and the resource and queue that it asks for.
    pub(crate) fn may_tag(&self, pid: i32, fd: i32, qfd: i32) -> Result<(usize, NodeId), i32> {
        let p = &self.processes[&pid];
        let file = p.fds[&fd];
        if matches!(self.files[&file].what, What::Reserv { mode: PATH, .. }) {
            return Err(libc::EBADF);
        }
        let queue = p.fds.get(&qfd).ok_or(libc::EBADF)?;
        let (resource, id, share) = match self.files[queue].what {
            What::Reserv { mode, .. } if mode != 1 => return Err(libc::EBADF),
            What::Reserv { resource, id, kind: FileKind::QueueDir, .. } => (resource, id, false),
            What::Reserv { resource, id, kind: FileKind::Share, .. } => (resource, id, true),
            What::Reserv { kind: FileKind::SchedulerDir, .. } => return Err(libc::EISDIR),
            _ => return Err(libc::EINVAL),
        };
        let tree = &self.trees[resource];
        // Who only sees a queue may open its share file: by that alone, root may.
        if share
            && resource != CPU
            && p.who.uid != 0
            && tree.place(id).is_some_and(|p| p.queue && !p.told)
        {
            return Err(libc::EACCES);
        }
        self.lives(file, resource)?;
        let place = tree.place(id).filter(|p| !p.draining).ok_or(libc::ESTALE)?;
        if !place.queue {
            return Err(libc::EISDIR);
        }
        if tree.usable(&p.who, id) { Ok((resource, id)) } else { Err(libc::EACCES) }
    }

    pub(crate) fn tag(&mut self, file: u64, resource: usize, id: NodeId) {
        if let Some(open) = self.files.get_mut(&file) {
            open.tags[resource] = Some(id).filter(|id| *id != NodeId::Q0);
            open.asked = open.tags[resource].is_some();
        }
    }

    /// connect and accept: what nobody asked for is the process' default.
    pub(crate) fn fill(&mut self, pid: i32, tid: i32, file: u64) {
        let default = self.mine(pid, tid, NET);
        if let Some(open) = self.files.get_mut(&file)
            && (!open.asked || open.tags[NET].is_none())
            && default.is_some()
        {
            open.tags[NET] = default;
            open.asked = false;
        }
    }

    /// Whether a thread may tag itself with the queue of the CPU whose directory or share a
    /// descriptor stands for.
    pub(crate) fn may_move(&self, pid: i32, tid: i32, qfd: i32) -> Result<NodeId, i32> {
        let p = &self.processes[&pid];
        let (id, share) = match self.files[&p.fds[&qfd]].what {
            What::Reserv { mode: PATH, .. } => return Err(libc::EBADF),
            What::Reserv { resource: CPU, id, kind: FileKind::QueueDir, .. } => (id, false),
            What::Reserv { resource: CPU, id, kind: FileKind::Share, mode: 1, .. } => (id, true),
            What::Reserv { resource: CPU, kind: FileKind::Share, .. } => return Err(libc::EBADF),
            _ => return Err(libc::EINVAL),
        };
        let tree = &self.trees[CPU];
        let place = tree.place(id).ok_or(libc::ESTALE)?;
        if !place.queue {
            return Err(libc::EINVAL);
        }
        // One that drains takes nobody, whoever asks, and goes with its last thread. What was told
        // of it may be forgotten before, so that users are answered either.
        if place.draining {
            if p.threads[&tid] == Some(id) && p.who.uid == 0 {
                return Ok(id);
            }
            return Err(if self.drains(id) { libc::EAGAIN } else { libc::ESTALE });
        }
        // Who only sees a queue may open its share file: by that alone, root may.
        let given = !share || p.who.uid == 0;
        let may = if place.told { tree.may(&p.who, id, Right::Use) } else { given };
        if may { Ok(id) } else { Err(libc::EACCES) }
    }

    /// Where a thread begins whose tag would be this: a queue that drains takes nobody, whence q0.
    pub(crate) fn begins(&self, tag: Tag) -> Tag {
        tag.filter(|id| !self.drains(*id))
    }

    /// Whether a queue of the CPU has threads, and takes no more.
    pub(crate) fn drains(&self, id: NodeId) -> bool {
        self.trees[CPU].place(id).is_some_and(|p| p.draining) && !self.members(id).is_empty()
    }

    pub(crate) fn fork(&mut self, (pid, tid): (i32, i32), child: i32, start: u64) {
        let bound = self.bound(pid, tid).filter(|_| self.binds_children);
        let mut new = self.processes[&pid].clone();
        (new.who.pid, new.who.start, new.start) = (child.cast_unsigned(), start / TICK, start);
        let elsewhere = self.begins(new.lists[CPU][1]);
        let tag = bound.map_or(elsewhere, |bound| self.begins(Some(bound.queue)));
        new.threads = [(child, tag)].into();
        new.numbers = Numbers::default();
        new.bound = bound.map(|bound| (child, bound.from(elsewhere))).into_iter().collect();
        for [default, child] in &mut new.lists {
            *default = *child;
        }
        self.processes.insert(child, new);
    }

    /// Rights have changed: what those opened who have none there now keeps nothing from then on.
    pub(crate) fn disown(&mut self, at: usize) {
        let tree = &self.trees[at];
        for open in self.files.values_mut() {
            if let What::Reserv { resource, id, who, keeps, .. } = &mut open.what
                && *resource == at
            {
                *keeps &= tree.concerns(who, *id);
            }
        }
    }

    /// What lost its right to queues at or below a node goes to q0: lists, and what nobody has who
    /// may use its queue.
    pub(crate) fn fall(&mut self, resource: usize, top: NodeId) {
        let tree = self.trees[resource].clone();
        for queue in
            tree.places.iter().filter(|p| p.queue && p.id != NodeId::Q0 && tree.within(p.id, top))
        {
            let may: BTreeSet<i32> = self
                .processes
                .iter()
                .filter(|(_, p)| tree.may(&p.who, queue.id, Right::Use))
                .map(|(pid, _)| *pid)
                .collect();
            let kept: BTreeSet<u64> =
                may.iter().flat_map(|pid| self.processes[pid].fds.values().copied()).collect();
            for (file, open) in &mut self.files {
                if !kept.contains(file) {
                    open.tags[resource] = open.tags[resource].filter(|t| *t != queue.id);
                }
                if let What::Socket { waiting, .. } = &mut open.what
                    && resource == NET
                {
                    for w in waiting {
                        w.tag = w.tag.filter(|t| *t != queue.id);
                    }
                }
            }
            for (_, p) in self.processes.iter_mut().filter(|(pid, _)| !may.contains(pid)) {
                if resource == CPU {
                    p.threads.values_mut().for_each(|tag| *tag = tag.filter(|t| *t != queue.id));
                }
                for list in &mut p.lists[resource] {
                    *list = list.filter(|t| *t != queue.id);
                }
            }
        }
    }

    /// Draining queues without a tag go, then what may be collected and nobody refers to, with what
    /// is below it.
    pub(crate) fn collect(&mut self, resource: usize) -> usize {
        let before = self.trees[resource].places.len();
        loop {
            let at = |oracle: &mut Self, p: &Place| {
                let [tagged, default, child] = oracle.refs(resource, p.id);
                let kept = oracle.files.values().any(|open| {
                    matches!(open.what, What::Reserv { resource: r, id, keeps: true, .. } if r == resource && id == p.id)
                });
                let tree = &oracle.trees[resource];
                let stands =
                    |q: &Process| q.cwd == Some((resource, p.id)) && tree.concerns(&q.who, p.id);
                let kept = kept || oracle.processes.values().any(stands);
                let drained = p.draining && tagged == 0;
                let unused = !p.draining && p.gc && tagged + default + child == 0 && !kept;
                drained || unused && oracle.trees[resource].children(p.id) == 0
            };
            let places = self.trees[resource].places.clone();
            let Some(one) = places.iter().find(|p| at(self, p)) else { break };
            self.gone(resource, one.id);
        }
        before - self.trees[resource].places.len()
    }
}

/// Ages of processes, as `/proc` tells them, in ns.
pub(crate) const TICK: u64 = 10_000_000;
