// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/reserv` as a FUSE server: requests → the pure name space, the engine, the plane.
//!
//! * Rights are checked (`permit.rs`): when a file is opened, again at every write (`rights.rs`),
//!   and again whenever its text is made or a directory listed, by who reads then. What root opened
//!   to read stays so, whoever reads it: so a program can open as root and go on as somebody. Modes
//!   only show what root may.
//! * A `write(2)` is one command, whatever its offset. A read from offset 0 takes a snapshot of the
//!   text, reads further on go on in it.
//! * The kernel may keep names and attributes of nodes for some seconds. It is told of names that
//!   are removed behind its back, and an old name is never wrong: its node is stale, whereupon the
//!   kernel asks anew. `newqueue` and processes are not kept.
//! * Inode numbers are a function of the object, so that descriptors outlive the
//!   worker; only the snapshots of half-read files are lost with it (the text is made anew then).
//! * Every lookup of `newqueue` gives a fresh inode. When it is opened it becomes the new node's
//!   `share`, for `fstat` too. Its number carries the parent and what is to be made, so that a
//!   worker can open what another one looked up.
//! * Requests come from the kernel, and from the control socket by path (`by_path.rs`). Both are
//!   answered by the same functions.

pub mod by_path;
mod containers;
mod directories;
mod foreign;
mod handles;
mod news;
mod permit;
mod served;
mod tags;
mod texts;

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};

use reserv_facts::fuse::open;
use reserv_model::{Caller as Rightful, Error, ErrorKind, NewKind, NodeId, Request as Edit, Right};
use reserv_namespace::{
    Command, DirItem, FileKind, FileType, Ino, Member, Object, Place, Resource, Survey, View, Who,
    attributes, list, list_processes, lookup, parse_defaults, parse_write, render_domain,
    render_missing, render_read, shown,
};
use reserv_plane::List;

use self::directories::name_of;
use self::handles::{OF_ROOT, opened, opened_in, writer};
use self::tags::{PART_MAX, descriptors, listed, set_defaults, tag};
use self::texts::{Kept, Texts};
use crate::aside::Asides;
use crate::container::Room;
use crate::copier::Copiers;
use crate::core::fall::Starts;
use crate::core::slot::{News, Slot};
use crate::core::{Core, Trees};
use crate::engine::Origin;
use crate::fuse::proto::{Attr, Cache, Caller, Op, Reply, Request, WRITE_MAX};
use crate::process;
use crate::refusal::Refusal;
use crate::rights::{
    asking, caller, process_as_caller, require_meant, require_own, require_same_numbers, within,
};
use crate::seed::Seed;
use crate::sync::lock;

/// `FATTR_MODE | FATTR_UID | FATTR_GID`
const SETATTR_OWNER: u32 = 1 | 2 | 4;
/// `FATTR_SIZE`
const SETATTR_SIZE: u32 = 8;
/// `FATTR_ATIME | FATTR_MTIME`, and the same of now.
const SETATTR_TIMES: u32 = 16 | 32 | 128 | 256;

/// See the head of this file.
#[derive(Clone)]
pub struct Fs {
    core: Arc<Core>,
    room: Arc<Room>,
    /// Where it is mounted, as text in lists and links.
    mount: String,
    texts: Arc<Mutex<Texts>>,
    asides: Asides,
    copiers: Copiers,
    /// What all times show.
    time: u64,
}

/// How long the kernel may keep what it knows of an object. The mode of a file never changes; a
/// directory counts its children.
fn cache(object: Object) -> Cache {
    match object {
        Object::Node { file: FileKind::NewQueue | FileKind::NewSched, .. }
        | Object::Process { .. }
        | Object::Container { .. }
        | Object::FreshContainer(_)
        | Object::Fresh(_) => Cache::default(),
        Object::Node { file: FileKind::SchedulerDir | FileKind::QueueDir, .. } => {
            Cache { entry: 10, attr: 1 }
        }
        Object::Node { .. } | Object::Mount(_) => Cache { entry: 10, attr: 10 },
    }
}

fn error(kind: ErrorKind, why: impl Into<String>) -> Refusal {
    Error::new(kind, why).into()
}

/// The object behind an inode; a fresh one that was opened is its node's `share`.
fn object(core: &Core, ino: u64) -> Result<Object, Refusal> {
    let object = Ino(ino).object().ok_or_else(Refusal::gone)?;
    if let Object::Fresh(serial) = object {
        let resource = Seed::of(serial).resource()?;
        if let Some(id) = core.engine(resource)?.fresh_node(ino) {
            return Ok(Object::Node { resource, id, file: FileKind::Share });
        }
    }
    Ok(object)
}

/// Refuses what may be the beginning of a longer write.
fn require_whole(data: &[u8]) -> Result<(), Refusal> {
    if data.len() >= WRITE_MAX as usize {
        return Err(error(ErrorKind::TooLong, "a write of 64 KiB or more"));
    }
    Ok(())
}

/// The trees that a directory is looked up and listed by.
fn trees_in(core: &Core, dir: Object) -> Result<Trees, Refusal> {
    match dir {
        Object::Node { resource, .. } => core.trees(resource),
        _ => Ok(core.names()),
    }
}

/// The resource that an inode belongs to, if any.
fn resource_of(ino: u64) -> Option<Resource> {
    match Ino(ino).object()? {
        Object::Node { resource, .. } => Some(resource),
        Object::Fresh(serial) => Seed::of(serial).resource().ok(),
        Object::Process { .. }
        | Object::Mount(_)
        | Object::Container { .. }
        | Object::FreshContainer(_) => None,
    }
}

fn is_fresh(ino: u64) -> bool {
    matches!(Ino(ino).object(), Some(Object::Fresh(_)))
}

/// A process that lives, by its own number (not a thread's). Asked six times while a list is read,
/// so not of `/proc/PID/status`, which takes eleven system calls.
fn living(pid: u32) -> Result<i32, Refusal> {
    held(pid).map(|_| pid.cast_signed())
}

/// The same process, whatever its number becomes.
fn held(pid: u32) -> Result<OwnedFd, Refusal> {
    process::pidfd_open(pid).map_err(|_| error(ErrorKind::NotFound, format!("no process {pid}")))
}

/// The entries of a directory, as many as there is room for.
fn fill(reply: &mut Reply, items: &[DirItem], (ino, offset, size): (u64, u64, u32)) {
    // The kernel's offsets: 1 and 2 stand after "." and "..", then cookies follow.
    for (at, name) in [(1, &b"."[..]), (2, b"..")] {
        if offset < at && !reply.dirent(size, ino, at, Some(true), name) {
            return;
        }
    }
    for item in items.iter().filter(|item| item.cookie + 2 > offset) {
        let directory = match item.file_type {
            FileType::Directory => Some(true),
            FileType::Regular => Some(false),
            FileType::Link => None,
        };
        if !reply.dirent(size, item.ino.0, item.cookie + 2, directory, item.name.as_bytes()) {
            break;
        }
    }
}

impl Fs {
    /// Over the core, mounted at `mount`.
    pub fn new(core: Arc<Core>, room: Arc<Room>, mount: &Path, asides: Asides) -> Self {
        let since_epoch =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self {
            core,
            room,
            mount: mount.to_string_lossy().into_owned(),
            texts: Arc::default(),
            asides,
            copiers: Copiers::default(),
            time: since_epoch.as_secs(),
        }
    }

    fn attr(&self, core: &Core, object: Object) -> Result<Attr, Refusal> {
        self.attr_by(&core.trees_of(object)?, object)
    }

    fn attr_by(&self, trees: &Trees, object: Object) -> Result<Attr, Refusal> {
        if let Object::Process { pid, .. } = object {
            living(pid)?;
        }
        let a = attributes(object, trees.of())?;
        Ok(Attr {
            ino: Ino::from(object).0,
            mode: a.mode,
            nlink: a.nlink,
            uid: 0,
            gid: 0,
            time: self.time,
        })
    }

    fn lookup(&self, core: &Core, dir: u64, name: &[u8], reply: &mut Reply) -> Result<(), Refusal> {
        let dir = object(core, dir)?;
        let mut trees = trees_in(core, dir)?;
        let mut found = lookup(dir, name, trees.of())?;
        if let Object::Node {
            resource,
            id,
            file: file @ (FileKind::NewQueue | FileKind::NewSched),
        } = found
        {
            let number = trees.engine()?.fresh_number()?;
            let scheduler = file == FileKind::NewSched;
            let resource = resource.number();
            let seed =
                Seed { resource, scheduler, index: id.index, generation: id.generation, number };
            found = Object::Fresh(seed.serial());
        }
        reply.entry(Ino::from(found).0, &self.attr_by(&trees, found)?, cache(found));
        Ok(())
    }

    /// Opening a fresh inode makes the node. A request that is sent again opens nothing twice, and
    /// has the same handle.
    fn open(&self, core: &Core, request: &Request<'_>, flags: u32) -> Result<u64, Refusal> {
        let ino = request.node;
        let (who, found) = (caller(request.caller), object(core, ino)?);
        let mode = flags.cast_signed() & libc::O_ACCMODE;
        let wanted = (mode != libc::O_WRONLY, mode != libc::O_RDONLY);
        Self::permit(core, (&who, request.caller.tid), found, wanted)?;
        match found {
            Object::Fresh(serial) => {
                if flags & libc::O_PATH.cast_unsigned() == 0 {
                    let seed = Seed::of(serial);
                    let mut engine = core.engine(seed.resource()?)?;
                    let parent = seed.parent(engine.tree()).ok_or_else(Refusal::gone)?;
                    let kind = if seed.scheduler {
                        NewKind::Scheduler(None)
                    } else {
                        NewKind::Queue(None)
                    };
                    let create =
                        Edit::Create { parent: parent.into(), name: None, kind, share: None };
                    let origin = Origin { unique: request.unique, fresh: Some(ino) };
                    // Before it is made: a refusal changes nothing.
                    engine.admit_file(None, &who)?;
                    engine.edit_by(&who, &[create], Some(origin))?;
                    // In one: what is not open may be collected.
                    return opened_in(&mut engine, request, &who);
                }
            }
            object => {
                self.attr(core, object)?;
            }
        }
        opened(core, request, &who)
    }

    fn text(
        &self,
        core: &Core,
        ino: u64,
        (from, handle): (Caller, u64),
    ) -> Result<Vec<u8>, Refusal> {
        if let Some(text) = self.container_text(ino, (from, handle)) {
            return text.map(String::into_bytes);
        }
        let (found, reader) = (object(core, ino)?, Self::reader(from, handle));
        if let Some(who) = &reader {
            Self::permit(core, (who, from.tid), found, (true, false))?;
        }
        let text = match found {
            Object::Node { resource, id, file } => {
                let mut engine = core.engine(resource)?;
                let all = |who: &Rightful| engine.tree().decide(who, id, Right::Read).allowed;
                let own = reader.as_ref().filter(|who| !all(who)).map(|who| who.pid.cast_signed());
                let members: Vec<Member> = match file {
                    FileKind::Members if id != NodeId::Q0 => engine.plane().members(id)?,
                    _ => Vec::new(),
                }
                .into_iter()
                .filter(|m| own.is_none_or(|pid| m.tgid == pid))
                .map(|m| {
                    let (pid, tid) = (m.tgid.cast_unsigned(), m.tid.cast_unsigned());
                    Member { pid, tid, params: m.params }
                })
                .collect();
                let dropped = match file {
                    FileKind::Dropped => engine.plane().droppers(id)?,
                    _ => Vec::new(),
                };
                if file == FileKind::Dropped {
                    Self::told(core, (from, handle), (resource, id), &dropped);
                }
                let kind = engine.kind();
                let nothing = Survey::default();
                let (tree, survey) = match file {
                    FileKind::Stat | FileKind::Backlog => engine.survey()?,
                    _ => (engine.tree(), &nothing),
                };
                let capacity = tree.capacity();
                let (members, dropped) = (&members, &dropped);
                render_read(
                    file,
                    &View { tree, node: id, survey, members, dropped, kind, capacity },
                )?
            }
            Object::Process { pid, file: file @ (FileKind::Default | FileKind::ChildDefault) } => {
                let list = if file == FileKind::Default { List::Default } else { List::Child };
                listed(core, &self.mount, (living(pid)?, list))?
            }
            Object::Process { pid, file: FileKind::Fds } => {
                descriptors(core, &self.mount, living(pid)?)?
            }
            Object::Process { pid, file: FileKind::Listen } => {
                core.listening().of_process(living(pid)?)?
            }
            Object::Mount(FileKind::Status) => core.status()?.text(reader.map(|who| who.uid)),
            Object::Process { pid, file: FileKind::Domain } => {
                let who = process_as_caller(living(pid)?).ok_or_else(Refusal::gone)?;
                let of = |slot: &Arc<Slot>| match slot.held_within(PART_MAX) {
                    Ok(held) => render_domain(held.engine.tree(), &who),
                    Err(refusal) => render_missing(&slot.name, &refusal.text),
                };
                core.slots().values().filter(|slot| slot.is_shown()).map(of).collect()
            }
            _ => return Err(error(ErrorKind::NotPermitted, "it is not read")),
        };
        Ok(text.into_bytes())
    }

    fn read(
        &self,
        request: &Request<'_>,
        (handle, offset, size): (u64, u64, u32),
        reply: &mut Reply,
    ) -> Result<(), Refusal> {
        let kept = if offset == 0 { None } else { lock(&self.texts).get(handle) };
        let text: Arc<[u8]> = match kept {
            Some(Kept::Text(text)) => text,
            Some(Kept::Read(len)) if offset >= len => return Ok(()),
            _ => self.text(&self.core, request.node, (request.caller, handle))?.into(),
        };
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
        let to = from.saturating_add(size as usize).min(text.len());
        reply.data(&text[from..to]);
        let kept = if to == text.len() { Kept::Read(to as u64) } else { Kept::Text(text) };
        lock(&self.texts).keep(handle, request.caller.uid, kept);
        Ok(())
    }

    fn write(
        &self,
        core: &Core,
        request: &Request<'_>,
        (handle, data): (u64, &[u8]),
    ) -> Result<(), Refusal> {
        require_whole(data)?;
        let origin = Some(Origin { unique: request.unique, fresh: None });
        let opener = writer(core, request.node, handle)?;
        let asking = asking(caller(request.caller), opener.as_ref());
        let each = || asking.iter();
        match object(core, request.node)? {
            Object::Node { resource, id, file } => match parse_write(file, id, data)? {
                Command::Edit(edits) => {
                    let mut engine = core.engine(resource)?;
                    let (by, others) = asking.split_last().ok_or_else(Refusal::gone)?;
                    for who in others {
                        edits.iter().try_for_each(|edit| engine.permit(who, edit))?;
                    }
                    engine.edit_by(by, &edits, origin)?;
                }
                Command::Access { node, change, fall } => {
                    if change.party.process.is_some_and(|(_, start)| start == 0) {
                        require_same_numbers(request.caller)?;
                    }
                    let before = if fall {
                        Some(core.before_fall(&[(resource, node)], &change.party)?)
                    } else {
                        None
                    };
                    let mut engine = core.engine(resource)?;
                    if fall {
                        // Whoever has lost his right would be in q0.
                        each()
                            .try_for_each(|by| engine.tree().require(by, NodeId::Q0, Right::Use))?;
                    }
                    engine.change_access(&asking, node, change, origin)?;
                    drop(engine);
                    if let Some(before) = before {
                        core.fall(resource, node, before)?;
                    }
                }
                Command::Tag { queue, who, params } => {
                    if matches!(who, Who::Process(_) | Who::Thread { .. }) {
                        require_same_numbers(request.caller)?;
                    }
                    let mut engine = core.engine(resource)?;
                    each().try_for_each(|by| engine.tree().require(by, queue, Right::Use))?;
                    tag(&mut engine, queue, who, params, (request.caller, &asking))?;
                }
            },
            Object::Process { pid, file: file @ (FileKind::Default | FileKind::ChildDefault) } => {
                let process = held(pid)?;
                let pid = pid.cast_signed();
                require_meant(request.caller, pid)?;
                each().try_for_each(|by| require_own(by, pid))?;
                process::require_alive(process.as_fd(), pid)?;
                let which = if file == FileKind::Default { List::Default } else { List::Child };
                let queues =
                    parse_defaults(data, &self.mount, |name, path| core.resolve(name, path))?;
                set_defaults(core, &asking, (pid, which), &queues)?;
            }
            _ => return Err(error(ErrorKind::NotPermitted, "it is not written")),
        }
        Ok(())
    }

    fn readdir(
        core: &Core,
        request: &Request<'_>,
        (handle, offset, size): (u64, u64, u32),
        reply: &mut Reply,
    ) -> Result<(), Refusal> {
        let (ino, from) = (request.node, request.caller);
        let dir = object(core, ino)?;
        let mut trees = trees_in(core, dir)?;
        let mut items = list(dir, trees.of())?;
        if let Object::Node { id, .. } = dir
            && let Some(who) = Self::reader(from, handle)
        {
            let engine = &*trees.engine()?;
            let sight = engine.tree().sight(&who, &within(engine, &who, from.tid));
            sight.require(id)?;
            items = shown(&sight, id, items);
        }
        drop(trees);
        if Place::of(dir) == Some(Place::Proc) {
            let pids: Vec<u32> = process::all().into_iter().map(i32::cast_unsigned).collect();
            items.extend(list_processes(&pids));
        }
        fill(reply, &items, (ino, offset, size));
        Ok(())
    }

    fn dispatch(&self, request: &Request<'_>, reply: &mut Reply) -> Result<(), Refusal> {
        let core = &*self.core;
        if let Op::Poll { handle, waits } = request.op {
            reply.polled(Self::poll(core, request, (handle, waits))?);
            return Ok(());
        }
        if let Some(answer) = self.of_containers(request, reply) {
            return answer;
        }
        if request.resent
            && let Some(resource) = resource_of(request.node)
            && let Some(made) = core.answered_by(resource, request.unique)
        {
            tracing::info!(unique = request.unique, ?made, "answered for a dead worker");
            return self.answer_again(core, request, made, reply);
        }
        match request.op {
            Op::Lookup { name } => self.lookup(core, request.node, name, reply),
            Op::Getattr => {
                let found = object(core, request.node)?;
                // The attributes of an inode that is or was fresh are those of now.
                let cache = if is_fresh(request.node) { Cache::default() } else { cache(found) };
                reply.attr(&self.attr(core, found)?, cache);
                Ok(())
            }
            Op::Setattr { valid, .. } => {
                if valid & SETATTR_OWNER != 0 {
                    return Err(error(ErrorKind::Protected, "modes and owners are fixed"));
                }
                // Truncation and times: what shells and tools do beside writing.
                let found = object(core, request.node)?;
                let who = caller(request.caller);
                if valid & SETATTR_SIZE != 0 {
                    Self::permit(core, (&who, request.caller.tid), found, (false, true))?;
                } else if valid & SETATTR_TIMES != 0 && who.uid != 0 {
                    return Err(error(ErrorKind::Protected, "times are fixed"));
                }
                // The attributes of an inode that is or was fresh are those of now.
                let cache = if is_fresh(request.node) { Cache::default() } else { cache(found) };
                reply.attr(&self.attr(core, found)?, cache);
                Ok(())
            }
            Op::Readlink => {
                let tgid = process::tgid(request.caller.tid)
                    .ok_or_else(|| error(ErrorKind::NoProcess, "the caller is not visible here"))?;
                // `self` and `proc/self` are one inode, so no relative path would do for both.
                reply.data(format!("{}/proc/{tgid}", self.mount).as_bytes());
                Ok(())
            }
            Op::Mkdir { name } => {
                let (made, trees) = Self::make_directory(core, request, name)?;
                reply.entry(Ino::from(made).0, &self.attr_by(&trees, made)?, cache(made));
                Ok(())
            }
            Op::Rmdir { name } => Self::remove_directory(core, request, name),
            Op::Rename { from, new_parent, to, flags } => {
                Self::rename(core, request, (from, new_parent, to, flags))
            }
            Op::Unlink { .. } => {
                Err(error(ErrorKind::Protected, "files stay; rmdir removes a node"))
            }
            Op::Make => Err(error(
                ErrorKind::Protected,
                "mkdir, newqueue and mk make nodes; nothing else is made",
            )),
            Op::Open { flags } => {
                let handle = self.open(core, request, flags)?;
                reply.open(handle, open::DIRECT_IO | open::NOFLUSH);
                Ok(())
            }
            Op::Write { handle, data, .. } => {
                self.write(core, request, (handle, data))?;
                reply.written(u32::try_from(data.len()).unwrap_or(0));
                Ok(())
            }
            Op::Opendir => {
                let found = object(core, request.node)?;
                let who = caller(request.caller);
                Self::permit(core, (&who, request.caller.tid), found, (true, false))?;
                reply.open(opened(core, request, &who)?, 0);
                Ok(())
            }
            Op::Readdir { handle, offset, size } => {
                Self::readdir(core, request, (handle, offset, size), reply)
            }
            Op::Statfs => {
                reply.statfs();
                Ok(())
            }
            Op::Release { handle } | Op::Releasedir { handle } => {
                lock(&self.texts).closed(handle);
                core.polled.closed(handle);
                self.container_closed(request.node, handle);
                Self::closed(core, request.node, handle);
                Ok(())
            }
            Op::Fsync => Ok(()),
            Op::Access { mask } => Self::access(core, request, mask),
            _ => Err(Refusal::new(libc::ENOSYS, "not asked of this file system")),
        }
    }

    /// A file was closed. Of a resource that somebody has, he hears it afterwards.
    fn closed(core: &Core, ino: u64, handle: u64) {
        let resource = match Ino(ino).object() {
            // Nobody but root opens the mount's own files to write.
            Some(Object::Mount(_) | Object::Container { .. } | Object::FreshContainer(_))
            | None => return,
            Some(Object::Process { .. }) if handle & OF_ROOT != 0 => return,
            Some(Object::Process { .. }) => Resource::CPU,
            Some(Object::Node { .. } | Object::Fresh(_)) => match resource_of(ino) {
                Some(resource) => resource,
                None => return,
            },
        };
        let Ok(slot) = core.slot(resource) else { return };
        let Ok(mut engine) = slot.engine() else { return slot.tell(News::Closed(handle)) };
        engine.writes_no_more(handle);
        if engine.closed(handle) {
            drop(engine);
            slot.wake();
        }
    }

    /// The answer to a request whose edit happened under a worker that died before it answered.
    fn answer_again(
        &self,
        core: &Core,
        request: &Request<'_>,
        made: Option<(Resource, NodeId)>,
        reply: &mut Reply,
    ) -> Result<(), Refusal> {
        match request.op {
            Op::Mkdir { .. } => {
                let (resource, id) = made.ok_or_else(Refusal::gone)?;
                let made = Object::Node { resource, id, file: FileKind::SchedulerDir };
                reply.entry(Ino::from(made).0, &self.attr(core, made)?, cache(made));
            }
            Op::Open { .. } => {
                let handle = opened(core, request, &caller(request.caller))?;
                reply.open(handle, open::DIRECT_IO | open::NOFLUSH);
            }
            Op::Write { data, .. } => {
                // What had lost its right may not have fallen yet.
                if let Object::Node { resource, id, file: file @ FileKind::Access } =
                    object(core, request.node)?
                    && let Command::Access { fall: true, .. } = parse_write(file, id, data)?
                {
                    core.fall(resource, id, Starts::default())?;
                }
                reply.written(u32::try_from(data.len()).unwrap_or(0));
            }
            _ => {}
        }
        Ok(())
    }
}
