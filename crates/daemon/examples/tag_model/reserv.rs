// SPDX-License-Identifier: MIT OR Apache-2.0
//! Of the operations (operations.rs), those on files of /reserv, which tags are set by: opened,
//! made by newqueue, opened again, and current directories.

use reserv_daemon::engine::Origin;
use reserv_daemon::seed::{self, Seed};
use reserv_model::{Caller, NewKind, NodeId, Request, Right};
use reserv_namespace::{FileKind, Ino, Object, permit_open};

use crate::operations::{NODES, done, of_resource};
use crate::oracle::{CPU, Open, RESOURCES, What};
use crate::world::{Checked, MOUNT, World, agree};

/// `FMODE_PATH`
pub(crate) const PATH: u32 = 0x4000;

fn is_fresh(ino: u64) -> bool {
    matches!(Ino(ino).object(), Some(Object::Fresh(_)))
}

impl World {
    /// A file of a node, or newqueue.
    pub(crate) fn open_reserv(&mut self, pid: i32) -> Checked {
        let (at, who) = (self.random.below(RESOURCES), self.oracle.processes[&pid].who.clone());
        if self.random.one_in(3) && self.oracle.trees[at].places.len() < NODES {
            return self.newqueue(pid, at, &who);
        }
        let places: Vec<(NodeId, bool)> =
            self.oracle.trees[at].places.iter().map(|p| (p.id, p.queue)).collect();
        let Some(mut one) = self.random.of(&places) else { return Ok(()) };
        if !one.1 && !self.random.one_in(4) {
            one = self.random.of(&places).unwrap_or(one);
        }
        let (id, queue) = one;
        let directory = if queue { FileKind::QueueDir } else { FileKind::SchedulerDir };
        let of_queue = [FileKind::Members, FileKind::Backlog];
        let said = if queue { self.random.of(&of_queue) } else { Some(FileKind::Shares) };
        let said = said.filter(|_| self.random.one_in(2)).unwrap_or(FileKind::Access);
        let kinds = [FileKind::Share, FileKind::Share, directory, directory, FileKind::Stat, said];
        let kind = self.random.of(&kinds).unwrap_or(directory);
        let writes = kind == FileKind::Share && who.uid == 0 && self.random.one_in(8);
        let within = self.within(pid, at);
        let asked = (!writes, writes);
        let got =
            done(&permit_open(self.engines[at].tree(), &who, id, kind, asked, || within.clone()));
        let tree = &self.oracle.trees[at];
        let wanted = match kind {
            FileKind::QueueDir => tree.may(&who, id, Right::Use),
            FileKind::Members => {
                tree.may(&who, id, Right::Read) || who.uid == 0 || within.contains(&id)
            }
            FileKind::Shares | FileKind::Backlog | FileKind::Access => {
                tree.may(&who, id, Right::Read)
            }
            _ => who.uid == 0 || tree.sees(&who, id, &within),
        };
        agree(|| format!("{who:?} opens {kind:?} of {id:?} of {at}"), &got, &wanted)?;
        if self.random.one_in(10) {
            self.open_path(pid, at, id, kind, &who);
            return Ok(());
        }
        if got {
            self.opened(pid, at, id, kind, if writes { 2 } else { 1 }, &who)?;
        }
        Ok(())
    }

    /// The queues that the oracle has a process in, by its tag or its lists; q0 is one as any
    /// other.
    fn within(&self, pid: i32, at: usize) -> Vec<NodeId> {
        let p = &self.oracle.processes[&pid];
        let tag = p.threads.get(&pid).filter(|_| at == CPU);
        tag.into_iter().chain(&p.lists[at]).map(|tag| tag.unwrap_or(NodeId::Q0)).collect()
    }

    fn opened(
        &mut self,
        pid: i32,
        at: usize,
        id: NodeId,
        kind: FileKind,
        mode: u32,
        who: &Caller,
    ) -> Checked {
        let handle = self.fresh();
        self.opened_as(
            pid,
            at,
            (id, kind),
            mode,
            (Ino::of_node(of_resource(at), id, kind).0, handle),
            who,
        )
    }

    /// With the inode's number as the kernel knows it, and the handle.
    fn opened_as(
        &mut self,
        pid: i32,
        at: usize,
        (id, kind): (NodeId, FileKind),
        mode: u32,
        (ino, handle): (u64, u64),
        who: &Caller,
    ) -> Checked {
        let (file, directory) =
            (self.fresh(), matches!(kind, FileKind::QueueDir | FileKind::SchedulerDir));
        let keeps = self.oracle.trees[at].concerns(who, id);
        self.engines[at].opened(handle, id, who).map_err(|e| e.to_string())?;
        if keeps || !is_fresh(ino) {
            self.handles.insert(handle, (at, file));
        }
        let fd = self.kernel.k_open_reserv(MOUNT, ino, directory.into(), mode, handle);
        self.note("open reserv", || {
            format!("{fd} of {pid} {kind:?} of {id:?} of {at} mode {mode} handle {handle:#x}")
        });
        if is_fresh(ino) {
            self.fresh_files.insert(file, ino);
        }
        let what = What::Reserv { resource: at, id, kind, mode, who: who.clone(), keeps };
        self.oracle
            .files
            .insert(file, Open { what, tags: [None; RESOURCES], asked: false, note: None });
        self.has(pid, fd, file);
        Ok(())
    }

    fn newqueue(&mut self, pid: i32, at: usize, who: &Caller) -> Checked {
        let Some(parent) = self.parent(at) else { return Ok(()) };
        let (queue, unique) = (!self.random.one_in(4), self.fresh());
        let kind = if queue { NewKind::Queue(None) } else { NewKind::Scheduler(None) };
        let create = Request::Create { parent: parent.into(), name: None, kind, share: None };
        let got =
            done(&self.engines[at].edit_by(who, &[create], Some(Origin { unique, fresh: None })));
        let wanted = self.oracle.trees[at].may(who, parent, Right::Create);
        agree(|| format!("{who:?} opens newqueue of {parent:?} of {at}"), &got, &wanted)?;
        if got {
            let id = self.made(at, parent, queue, true, who)?;
            let (resource, number) =
                (of_resource(at).number(), u32::try_from(self.fresh()).unwrap_or(0));
            let seed = Seed {
                resource,
                scheduler: !queue,
                index: parent.index,
                generation: parent.generation,
                number,
            };
            self.opened_fresh(pid, at, id, Ino::fresh(seed.serial()).0, who)?;
        }
        Ok(())
    }

    /// What newqueue gave: the kernel knows it by its fresh number, and the node by the handle.
    fn opened_fresh(&mut self, pid: i32, at: usize, id: NodeId, ino: u64, who: &Caller) -> Checked {
        let mut handle = seed::handle(id, 0);
        if self.engines[at].tree().concerns(who, id) {
            while handle == seed::handle(id, 0) || self.engines[at].has_open(handle) {
                handle = seed::handle(id, u16::try_from(self.fresh() & 0xffff).unwrap_or(0));
            }
        }
        self.opened_as(pid, at, (id, FileKind::Share), 1, (ino, handle), who)
    }

    /// /proc/self/fd/N of such a file.
    pub(crate) fn open_again(&mut self, pid: i32, fd: i32) -> Checked {
        let (file, who) =
            (self.oracle.processes[&pid].fds[&fd], self.oracle.processes[&pid].who.clone());
        let (Some(ino), What::Reserv { resource, id, .. }) =
            (self.fresh_files.get(&file).copied(), &self.oracle.files[&file].what)
        else {
            return Ok(());
        };
        let (resource, id) = (*resource, *id);
        // Of a node that is gone the daemon opens nothing.
        if self.oracle.trees[resource].place(id).is_none() {
            return Ok(());
        }
        self.opened_fresh(pid, resource, id, ino, &who)
    }

    /// fstat: from then on the kernel knows the inode as the node's share.
    pub(crate) fn known(&mut self, pid: i32, fd: i32) {
        let file = self.oracle.processes[&pid].fds[&fd];
        if let (true, What::Reserv { resource, id, .. }) =
            (self.fresh_files.contains_key(&file), &self.oracle.files[&file].what)
        {
            let ino = Ino::of_node(of_resource(*resource), *id, FileKind::Share);
            self.kernel.k_known(fd, ino.0);
            self.note("fstat", || format!("{fd} of {pid}"));
        }
    }

    /// O_PATH: neither right nor reference, and the daemon hears nothing of it.
    fn open_path(&mut self, pid: i32, at: usize, id: NodeId, kind: FileKind, who: &Caller) {
        let (file, directory) =
            (self.fresh(), matches!(kind, FileKind::QueueDir | FileKind::SchedulerDir));
        let ino = Ino::of_node(of_resource(at), id, kind);
        let fd = self.kernel.k_open_reserv(MOUNT, ino.0, directory.into(), PATH, 0);
        self.note("open path", || format!("{fd} of {pid} {kind:?} of {id:?} of {at}"));
        let what =
            What::Reserv { resource: at, id, kind, mode: PATH, who: who.clone(), keeps: false };
        self.oracle
            .files
            .insert(file, Open { what, tags: [None; RESOURCES], asked: false, note: None });
        self.has(pid, fd, file);
    }

    /// chdir, into a node's directory or out of all of them.
    pub(crate) fn stand(&mut self, pid: i32) {
        let at = self.random.below(RESOURCES);
        let places: Vec<NodeId> = self.oracle.trees[at].places.iter().map(|p| p.id).collect();
        let there = self.random.of(&places).filter(|_| !self.random.one_in(3)).map(|id| (at, id));
        self.note("chdir", || format!("{pid} to {there:?}"));
        self.owner(pid).cwd = there;
    }
}
