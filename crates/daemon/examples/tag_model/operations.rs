// SPDX-License-Identifier: MIT OR Apache-2.0
//! One operation at random, through the product and in the oracle; what was answered is compared at
//! once.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use reserv_model::{Caller, NodeId, Right};
use reserv_namespace::{FileKind, Resource};
use reserv_plane::{List, Target};

use crate::kernel::{GET_QUEUE, SET_CPU, SET_QUEUE};
use crate::oracle::{CPU, INTERFACE, NET, Open, Place, RESOURCES, TICK, Tag, Waiting, What};
use crate::reserv::PATH;
use crate::world::{BOTH, Checked, FIRST, PART, World, agree};

const PROCESSES: usize = 10;
const THREADS: usize = 4;
const DESCRIPTORS: usize = 10;
pub(crate) const NODES: usize = 12;
const UNDER_WAY: u32 = 6;
const WAITING: usize = 3;
pub(crate) const USERS: [u32; 4] = [0, 11, 12, 13];

pub(crate) fn of_resource(at: usize) -> Resource {
    Resource::new(u8::try_from((at + 1) % RESOURCES).unwrap_or(0)).unwrap_or(Resource::CPU)
}

pub(crate) fn done<T, E>(result: &Result<T, E>) -> bool {
    result.is_ok()
}

impl World {
    /// What somebody does.
    pub(crate) fn step(&mut self) -> Checked {
        let pids: Vec<i32> = self.oracle.processes.keys().copied().collect();
        let Some(pid) = self.random.of(&pids) else { return Ok(()) };
        let threads: Vec<i32> = self.oracle.processes[&pid].threads.keys().copied().collect();
        let tid = self.random.of(&threads).unwrap_or(pid);
        self.kernel.k_as(tid);
        let fds: Vec<i32> = self.oracle.processes[&pid].fds.keys().copied().collect();
        let (fd, full) = (self.random.of(&fds), fds.len() >= DESCRIPTORS);
        match (self.random.below(224), fd) {
            (0..5, _) => self.clone_thread(pid, tid)?,
            (5..10, _) => self.fork(pid, tid)?,
            (10..12, _) => self.exec(pid, tid),
            (12..17, _) => self.exit(pid, tid),
            (17..20, _) => {
                if pid != FIRST {
                    self.note("kill", || format!("{pid}"));
                    self.kill(pid);
                }
            }
            (20..45, _) if !full => self.open(pid, tid)?,
            (45..66, _) if !full => self.open_reserv(pid)?,
            (66..68, Some(fd)) if !full => self.open_again(pid, fd)?,
            (68..70, Some(fd)) => self.known(pid, fd),
            (70..80, Some(fd)) if !full => {
                let new = self.kernel.k_dup(fd);
                self.note("dup", || format!("{fd} of {pid}: {new}"));
                self.has(pid, new, self.oracle.processes[&pid].fds[&fd]);
            }
            (80..87, Some(fd)) => self.send(pid, fd),
            (87..94, _) => self.receive(pid, full),
            (94..96 | 20..80, Some(fd)) => {
                self.note("close", || format!("{fd} of {pid}"));
                self.kernel.k_close(fd);
                self.owner(pid).fds.remove(&fd);
            }
            (96..120, Some(fd)) => self.tag(pid, fd)?,
            (120..126, Some(_)) => self.chcpures(pid, tid)?,
            (126..130, Some(fd)) => self.tag_for(pid, fd)?,
            (130..142, _) => self.list(pid)?,
            (142..174, Some(fd)) => self.use_it(pid, tid, fd),
            (174..178, _) => self.create(pid)?,
            (178..180, _) => self.delete(pid)?,
            (180..182, _) => self.shift()?,
            (182..184, _) => self.flag(pid)?,
            (184..198, _) => self.access(pid)?,
            (198, _) if self.random.one_in(2) => self.strange(pid, fd)?,
            (198, _) => self.stand(pid),
            (200, _) if self.random.one_in(4) => self.another_personality()?,
            (200..203, _) => self.contain()?,
            (203..205, _) => self.remove()?,
            (205..224, Some(fd)) => self.bind(pid, tid, fd)?,
            _ => self.tag_thread(pid)?,
        }
        self.settle()
    }

    pub(crate) fn owner(&mut self, pid: i32) -> &mut crate::oracle::Process {
        #[expect(clippy::expect_used, reason = "the caller has just chosen it")]
        self.oracle.processes.get_mut(&pid).expect("a process that lives")
    }

    pub(crate) fn has(&mut self, pid: i32, fd: i32, file: u64) {
        if fd >= 0 {
            self.owner(pid).fds.insert(fd, file);
        }
    }

    fn tid(&mut self) -> i32 {
        loop {
            let tid = FIRST + 10 + i32::try_from(self.random.below(60)).unwrap_or(0);
            let taken = |(pid, p): (&i32, &crate::oracle::Process)| {
                *pid == tid || p.threads.contains_key(&tid)
            };
            if !self.oracle.processes.iter().any(taken) {
                return tid;
            }
        }
    }

    fn born(&mut self) -> u64 {
        self.clock += 1 + self.random.below(20_000_000) as u64;
        self.clock
    }

    fn clone_thread(&mut self, pid: i32, by: i32) -> Checked {
        if self.oracle.processes[&pid].threads.len() >= THREADS {
            return Ok(());
        }
        let (tid, start) = (self.tid(), self.born());
        let bound = self.oracle.bound(pid, by);
        let tag = self.oracle.begins(self.oracle.processes[&pid].threads[&by]);
        let got = self.kernel.k_clone(tid, pid, start);
        self.note("thread", || format!("{tid} of {pid} by {by}: {got}"));
        self.owner(pid).threads.insert(tid, tag);
        if let Some(bound) = bound.filter(|bound| tag == Some(bound.queue)) {
            self.owner(pid).bound.insert(tid, bound);
        }
        agree(|| format!("a thread of {pid}"), &got, &0)
    }

    fn fork(&mut self, pid: i32, by: i32) -> Checked {
        if self.oracle.processes.len() >= PROCESSES {
            return Ok(());
        }
        // Who is born within a tick of another's death may have its number, and cannot be told from
        // it.
        self.clock += TICK;
        let (child, start) = (self.tid(), self.born());
        let got = self.kernel.k_clone(child, child, start);
        self.note("fork", || format!("{child} by {by} of {pid}: {got}"));
        self.oracle.fork((pid, by), child, start);
        agree(|| format!("a child of {pid}"), &got, &0)
    }

    fn exec(&mut self, pid: i32, tid: i32) {
        if pid == FIRST {
            return;
        }
        let others: Vec<i32> =
            self.oracle.processes[&pid].threads.keys().copied().filter(|t| *t != tid).collect();
        for other in others {
            self.kernel.k_as(other);
            self.kernel.k_exit();
        }
        self.kernel.k_as(tid);
        let start = self.oracle.processes[&pid].start;
        let (uid, gid) = (
            self.random.of(&USERS).unwrap_or(0),
            20 + u32::try_from(self.random.below(3)).unwrap_or(0),
        );
        let groups: Vec<u32> = if self.random.one_in(2) { vec![20, 22] } else { Vec::new() };
        self.note("exec", || format!("by {tid} of {pid}, uid {uid} gid {gid} groups {groups:?}"));
        self.kernel.k_exec(
            start,
            uid,
            gid,
            u32::try_from(groups.len()).unwrap_or(0),
            groups.as_ptr(),
        );
        let p = self.owner(pid);
        p.threads = [(pid, p.threads[&tid])].into();
        p.bound = p.bound.remove(&tid).map(|bound| (pid, bound)).into_iter().collect();
        p.numbers = crate::pages::Numbers::default();
        (p.who.uid, p.who.gid, p.who.groups) = (uid, gid, groups.into());
    }

    fn exit(&mut self, pid: i32, tid: i32) {
        if pid == FIRST {
            return;
        }
        self.note("exit", || format!("{tid} of {pid}"));
        self.kernel.k_exit();
        let p = self.owner(pid);
        p.threads.remove(&tid);
        p.bound.remove(&tid);
        p.numbers.ends(tid);
        if p.threads.is_empty() {
            self.oracle.processes.remove(&pid);
        }
    }

    pub(crate) fn kill(&mut self, pid: i32) {
        let Some(p) = self.oracle.processes.remove(&pid) else { return };
        for tid in p.threads.into_keys() {
            self.kernel.k_as(tid);
            self.kernel.k_exit();
        }
    }

    fn open(&mut self, pid: i32, tid: i32) -> Checked {
        let file = self.fresh();
        let mut tags = [None; RESOURCES];
        let (fd, what) = if self.random.one_in(3) {
            let (stream, inet, elsewhere) =
                (self.random.one_in(2), !self.random.one_in(8), self.random.one_in(10));
            let family = if !inet {
                1
            } else if self.random.one_in(2) {
                2
            } else {
                10
            };
            let fd = self.kernel.k_socket(family, if stream { 1 } else { 2 }, elsewhere.into());
            self.note("socket", || {
                format!("{fd} of {pid} family {family} stream {stream} elsewhere {elsewhere}")
            });
            let waiting = VecDeque::new();
            (
                fd,
                What::Socket {
                    stream,
                    inet,
                    elsewhere,
                    bound: 0,
                    route: None,
                    listens: false,
                    waiting,
                },
            )
        } else {
            let [d, e] = self.devices;
            let all = [
                (d, 0, [true, false, false, false]),
                (d, 1, [true, false, false, false]),
                (e, 0, [false, true, false, false]),
                (BOTH, 0, [true, true, false, false]),
                (BOTH, 1, [true, true, false, false]),
                (PART, 0, [true, false, false, false]),
                (5 << 20, 0, [false; RESOURCES]),
            ];
            let (dev, block, lives) = all[self.random.below(all.len())];
            let fd = self.kernel.k_open(dev, block, file);
            for (at, tag) in tags.iter_mut().enumerate().filter(|(at, _)| lives[*at]) {
                *tag = self.oracle.mine(pid, tid, at).filter(|q| *q != NodeId::Q0);
            }
            self.note("open", || format!("{fd} of {pid} ({tid}) on {dev:#x}"));
            (fd, What::File(lives))
        };
        self.oracle.files.insert(file, Open { what, tags, asked: false, note: None });
        self.has(pid, fd, file);
        agree(|| "there is room for a descriptor".into(), &(fd >= 0), &true)
    }

    pub(crate) fn made(
        &mut self,
        at: usize,
        parent: NodeId,
        queue: bool,
        gc: bool,
        who: &Caller,
    ) -> Result<NodeId, String> {
        let known = &self.oracle.trees[at].places;
        let new = self.engines[at]
            .tree()
            .iter()
            .find(|n| known.iter().all(|p| p.id != n.id))
            .ok_or("no new node")?
            .id;
        let tree = &mut self.oracle.trees[at];
        let (draining, maker, told) = (false, who.uid, !tree.said().is_empty());
        tree.places.push(Place {
            id: new,
            parent: Some(parent),
            queue,
            gc,
            draining,
            maker,
            told,
            operations: 0,
            bytes: 0,
        });
        Ok(new)
    }

    pub(crate) fn parent(&mut self, at: usize) -> Option<NodeId> {
        let tree = &self.oracle.trees[at];
        let fits: Vec<NodeId> =
            tree.places.iter().filter(|p| !p.queue && tree.depth(p.id) < 3).map(|p| p.id).collect();
        self.random.of(&fits)
    }

    fn send(&mut self, pid: i32, fd: i32) {
        let Some(at) = (0..UNDER_WAY).find(|at| !self.oracle.under_way.contains_key(at)) else {
            return;
        };
        self.note("send", || format!("{fd} of {pid} at {at}"));
        self.kernel.k_send(fd, at);
        let file = self.oracle.processes[&pid].fds[&fd];
        self.oracle.under_way.insert(at, file);
    }

    fn receive(&mut self, pid: i32, full: bool) {
        let ways: Vec<u32> = self.oracle.under_way.keys().copied().collect();
        let Some(at) = self.random.of(&ways) else { return };
        let file = self.oracle.under_way.remove(&at).unwrap_or(0);
        if full || self.random.one_in(8) {
            self.note("never received", || format!("at {at}"));
            self.kernel.k_forget(at);
            return;
        }
        let fd = self.kernel.k_receive(at);
        self.note("receive", || format!("{fd} of {pid} at {at}"));
        self.has(pid, fd, file);
    }

    /// F_SET_QUEUE, or setsockopt.
    fn tag(&mut self, pid: i32, fd: i32) -> Checked {
        let p = &self.oracle.processes[&pid];
        // Mostly a queue that fits.
        let mut pairs = Vec::new();
        for (qfd, queue) in &p.fds {
            let What::Reserv { resource, id, .. } = self.oracle.files[queue].what else { continue };
            if self.oracle.trees[resource].place(id).is_some_and(|p| p.queue) {
                let fits = |(_, file): &(&i32, &u64)| self.oracle.lives(**file, resource).is_ok();
                pairs.extend(p.fds.iter().filter(fits).map(|(fd, _)| (*fd, *qfd)));
            }
        }
        if pairs.is_empty() && p.fds.len() < DESCRIPTORS && !self.random.one_in(4) {
            return self.open_reserv(pid);
        }
        let any = i32::try_from(self.random.below(24)).unwrap_or(0);
        let (fd, qfd) =
            self.random.of(&pairs).filter(|_| !self.random.one_in(6)).unwrap_or((fd, any));
        let file = self.oracle.processes[&pid].fds[&fd];
        let socket = matches!(self.oracle.files[&file].what, What::Socket { .. });
        let option = socket && self.random.one_in(2);
        let wanted = self.oracle.may_tag(pid, fd, qfd);
        let got = if option {
            self.kernel.k_setsockopt(fd, qfd)
        } else {
            self.kernel.k_fcntl(fd, SET_QUEUE, u64::from(qfd.cast_unsigned()))
        };
        self.note("tag", || format!("{fd} of {pid} with {qfd}: {got} (by option: {option})"));
        let sort = match wanted {
            Ok(_) => "tagged",
            Err(libc::EACCES) => "no right",
            Err(libc::ESTALE) => "stale",
            Err(_) => "does not fit",
        };
        *self.counts.entry(sort).or_default() += 1;
        if let Ok((at, id)) = wanted {
            self.oracle.tag(file, at, id);
        }
        agree(
            || format!("tag of {fd} of {pid} with {qfd}"),
            &got,
            &wanted.map_or_else(|errno| -errno, |_| 1),
        )
    }

    /// Written to proc/PID/fds: the daemon borrows the descriptor.
    fn tag_for(&mut self, pid: i32, fd: i32) -> Checked {
        let at = self.random.below(CPU);
        let (who, file) =
            (self.oracle.processes[&pid].who.clone(), self.oracle.processes[&pid].fds[&fd]);
        let Some(id) = self.queue_of(at) else { return Ok(()) };
        let engine = &mut self.engines[at];
        let allowed = done(&engine.tree().require(&who, id, Right::Use));
        agree(
            || format!("{who:?} tags another's with {id:?} of {at}"),
            &allowed,
            &self.oracle.trees[at].may(&who, id, Right::Use),
        )?;
        if !allowed || self.oracle.under_way.contains_key(&0) {
            return Ok(());
        }
        self.kernel.k_send(fd, 0);
        self.kernel.k_as(FIRST);
        let borrowed = self.kernel.k_receive(0);
        // SAFETY: the number is not of a descriptor of ours, but of the process that is played;
        // nobody else looks at it.
        let copy = unsafe { BorrowedFd::borrow_raw(borrowed) };
        let got = engine.plane_mut().descriptor_tag(id).and_then(|tag| tag.set(copy));
        self.kernel.k_close(borrowed);
        let wanted = self.oracle.lives(file, at);
        self.note("tag for", || format!("{fd} of {pid} with {id:?} of {at}: {got:?}"));
        agree(
            || format!("tag of another's {fd} of {pid}: {got:?}"),
            &got.is_ok(),
            &wanted.is_ok(),
        )?;
        if wanted.is_ok() {
            self.oracle.tag(file, at, id);
        }
        Ok(())
    }

    /// chcpures: with a descriptor of a queue's directory, mostly.
    fn chcpures(&mut self, pid: i32, tid: i32) -> Checked {
        let p = &self.oracle.processes[&pid];
        let fits = |file: &u64| {
            matches!(
                self.oracle.files[file].what,
                What::Reserv { resource: CPU, kind: FileKind::QueueDir | FileKind::Share, .. }
            )
        };
        let (all, fitting): (Vec<i32>, Vec<i32>) = (
            p.fds.keys().copied().collect(),
            p.fds.iter().filter(|(_, file)| fits(file)).map(|(fd, _)| *fd).collect(),
        );
        if fitting.is_empty() && p.fds.len() < DESCRIPTORS && !self.random.one_in(8) {
            return self.open_reserv(pid);
        }
        let of = if fitting.is_empty() || self.random.one_in(8) { all } else { fitting };
        let Some(qfd) = self.random.of(&of) else { return Ok(()) };
        let (wanted, got) =
            (self.oracle.may_move(pid, tid, qfd), self.kernel.k_fcntl(qfd, SET_CPU, 0));
        self.note("chcpures", || format!("{tid} of {pid} by {qfd}: {got}"));
        if let Ok(id) = wanted {
            self.oracle.retag(pid, tid, id);
        }
        // Of one that drains the rules may be forgotten before it goes.
        let either = [-libc::EAGAIN, -libc::EACCES];
        let before = self.oracle.processes[&pid].threads[&tid];
        let stays = got == 1 && before.is_some_and(|id| self.oracle.drains(id));
        if let Some(id) = before.filter(|_| stays) {
            self.oracle.retag(pid, tid, id); // a binding has ended nevertheless
        }
        if wanted == Err(libc::EAGAIN) && (either.contains(&got) || stays) {
            return Ok(());
        }
        agree(
            || format!("chcpures by {tid} of {pid} with {qfd}"),
            &got,
            &wanted.map_or_else(|errno| -errno, |_| 1),
        )
    }

    /// Written to members.
    fn tag_thread(&mut self, pid: i32) -> Checked {
        let threads: Vec<i32> = self.oracle.processes[&pid].threads.keys().copied().collect();
        let (Some(tid), Some(id)) = (self.random.of(&threads), self.queue_of(CPU)) else {
            return Ok(());
        };
        self.engines[CPU].plane_mut().tag(Target::Thread(tid), id).map_err(|e| e.to_string())?;
        self.note("members", || format!("{tid} of {pid} in {id:?}"));
        self.oracle.retag(pid, tid, id);
        Ok(())
    }

    fn queue_of(&mut self, at: usize) -> Tag {
        let queues: Vec<NodeId> = self.oracle.trees[at]
            .places
            .iter()
            .filter(|p| p.queue && !p.draining)
            .map(|p| p.id)
            .collect();
        self.random.of(&queues)
    }

    /// Written to proc/PID/default or cdefault, by the process or root.
    fn list(&mut self, pid: i32) -> Checked {
        let (at, child) = (self.random.below(RESOURCES), self.random.one_in(2));
        let Some(id) = self.queue_of(at) else { return Ok(()) };
        let by = if self.random.one_in(3) {
            Caller::root()
        } else {
            self.oracle.processes[&pid].who.clone()
        };
        let engine = &mut self.engines[at];
        let got = done(&engine.tree().require(&by, id, Right::Use));
        agree(
            || format!("{by:?} puts {id:?} of {at} into a list"),
            &got,
            &self.oracle.trees[at].may(&by, id, Right::Use),
        )?;
        if got {
            let list = if child { List::Child } else { List::Default };
            engine.plane_mut().set_default(pid, list, id).map_err(|e| e.to_string())?;
            self.note("list", || format!("of {pid} child {child}: {id:?} of {at}"));
            self.owner(pid).lists[at][usize::from(child)] = Some(id).filter(|id| *id != NodeId::Q0);
        }
        Ok(())
    }

    /// Reads, writes, packets; sockets listen, connect and accept.
    fn use_it(&mut self, pid: i32, tid: i32, fd: i32) {
        let file = self.oracle.processes[&pid].fds[&fd];
        let bytes = 1 + self.random.below(9000) as u64;
        let What::Socket { stream, elsewhere, inet, bound, route, listens, waiting } =
            self.oracle.files[&file].what.clone()
        else {
            let write = self.random.one_in(2);
            self.kernel.k_use(fd, bytes, write.into());
            self.note("use", || format!("{fd} of {pid}: {bytes}"));
            for at in 0..NET {
                if self.oracle.lives(file, at).is_ok() {
                    self.counted(pid, file, at, bytes);
                }
            }
            return;
        };
        let by = if self.random.one_in(3) { 2 } else { INTERFACE };
        let what = self.random.below(6);
        self.note("socket use", || format!("{fd} of {pid}: {what} by {by}"));
        let Some(Open {
            what:
                What::Socket {
                    bound: to_bound,
                    route: to_route,
                    listens: to_listen,
                    waiting: to_wait,
                    ..
                },
            asked,
            tags,
            ..
        }) = self.oracle.files.get_mut(&file)
        else {
            return;
        };
        match what {
            0 if route.is_none() && self.random.one_in(3) => {
                self.kernel.k_bind_device(fd, by);
                *to_bound = by;
            }
            1 if stream && inet && route.is_none() => *to_listen = true,
            2 if !(listens || stream && route.is_some()) => {
                let by = if bound != 0 { bound } else { by };
                *to_route = Some(by);
                self.kernel.k_connect(fd, by);
                if inet {
                    self.oracle.fill(pid, tid, file);
                }
            }
            3 if listens && waiting.len() < WAITING => {
                let by = if bound != 0 { bound } else { by };
                let tag = if *asked { tags[NET] } else { None };
                to_wait.push_back(Waiting { bound, route: by, tag });
                self.kernel.k_incoming(fd, by);
            }
            4 if listens
                && !waiting.is_empty()
                && self.oracle.processes[&pid].fds.len() < DESCRIPTORS =>
            {
                let Some(Waiting { bound, route, tag }) = to_wait.pop_front() else { return };
                let (waiting, new) = (VecDeque::new(), self.fresh());
                let fd = self.kernel.k_accept(fd);
                let what = What::Socket {
                    stream,
                    inet,
                    elsewhere,
                    bound,
                    route: Some(route),
                    listens: false,
                    waiting,
                };
                let mut tags = [None; RESOURCES];
                tags[NET] = tag;
                let open = Open { what, tags, asked: tag.is_some(), note: None };
                self.oracle.files.insert(new, open);
                self.oracle.fill(pid, tid, new);
                self.has(pid, fd, new);
            }
            _ => {
                let by = if bound != 0 { bound } else { route.unwrap_or(by) };
                if inet {
                    self.oracle.sends(pid, tid, file);
                }
                self.kernel.k_packet(fd, by.cast_unsigned(), u32::try_from(bytes).unwrap_or(0));
                if by == INTERFACE {
                    self.counted(pid, file, NET, bytes);
                }
            }
        }
    }

    fn counted(&mut self, pid: i32, file: u64, at: usize, bytes: u64) {
        let id = self.oracle.queue(pid, file, at).unwrap_or(NodeId::Q0);
        self.note("counted", || format!("{bytes} of {id:?} of {at}"));
        if let Some(place) = self.oracle.trees[at].places.iter_mut().find(|p| p.id == id) {
            place.operations += 1;
            place.bytes += bytes;
        }
    }

    /// Numbers that mean nothing.
    fn strange(&mut self, pid: i32, fd: Option<i32>) -> Checked {
        let Some(fd) = fd else { return Ok(()) };
        let what = &self.oracle.files[&self.oracle.processes[&pid].fds[&fd]].what;
        if matches!(what, What::Reserv { mode: PATH, .. }) {
            return Ok(());
        }
        let reserv = matches!(what, What::Reserv { .. } | What::Container { .. });
        self.note("strange", || format!("{fd} of {pid}"));
        for resource in [0, 9, 16, 1 << 40] {
            let got = self.kernel.k_fcntl(fd, GET_QUEUE, resource);
            let wanted = if resource < 16 { -libc::ENOENT } else { -libc::EINVAL };
            agree(
                || format!("queue of resource {resource} of {fd} of {pid}"),
                &(got < 0 || reserv),
                &true,
            )?;
            agree(
                || format!("queue of resource {resource} of {fd} of {pid}"),
                &(reserv || got == wanted),
                &true,
            )?;
        }
        agree(|| "another command".into(), &self.kernel.k_fcntl(fd, 1, 0), &-libc::EINVAL)?;
        let wild = self.kernel.k_fcntl(fd, SET_QUEUE, u64::from(u32::MAX));
        agree(|| "a queue that is no descriptor".into(), &wild, &-libc::EBADF)
    }
}
