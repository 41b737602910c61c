// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/reserv` as a FUSE server: requests → the pure name space, the engine, the plane.
//!
//! * Modes are checked by the kernel at open (`default_permissions`); a descriptor is a capability afterwards.
//! * A `write(2)` is one command, whatever its offset. A read from offset 0 takes a snapshot of the text, reads further on go on
//!   in it.
//! * The kernel may keep names and attributes of nodes for some seconds. It is told of names that are removed behind its back,
//!   and an old name is never wrong: its node is stale, whereupon the kernel asks anew. `newqueue` and processes are not kept.
//! * Inode numbers are a function of the object, so that descriptors outlive the
//!   worker; only the snapshots of half-read files are lost with it (the text is made anew then).
//! * Every lookup of `newqueue` gives a fresh inode. When it is opened it becomes the new node's `share`, for `fstat` too. Its number
//!   carries the parent and what is to be made, so that a worker can open what another one looked up.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use reserv_model::{Error, ErrorKind, Name, NewKind, NodeId, Request as Edit, ThreadParams, Tree, quoted};
use reserv_namespace::{
    Command, FileKind, FileType, Ino, Member, Object, Place, Resource, Survey, View, Who, attributes, list,
    list_processes, lookup, parse_defaults, parse_write, render_defaults, render_read,
};
use reserv_plane::{List, Target};

use crate::core::{Core, lock};
use crate::engine::{Engine, Origin, Refusal};
use crate::fuse::proto::{Attr, Cache, Caller, OPEN_DIRECT_IO, OPEN_NOFLUSH, Op, Reply, Request, WRITE_MAX};
use crate::fuse::session::Server;
use crate::process;

/// `FATTR_MODE | FATTR_UID | FATTR_GID`
const SETATTR_OWNER: u32 = 1 | 2 | 4;
const RENAME_NOREPLACE: u32 = 1;
/// Most snapshots of half-read files; further readers get theirs made anew at each read.
const TEXTS_MAX: usize = 4096;

/// See the head of this file.
pub struct Fs {
    core: Arc<Mutex<Core>>,
    /// Where it is mounted, as text in lists and links.
    mount: String,
    /// Texts of open files that were read from their beginning.
    texts: BTreeMap<u64, Vec<u8>>,
    next_handle: u64,
    /// What all times show.
    time: u64,
}

/// How long the kernel may keep what it knows of an object. The mode of a file never changes; a directory counts its children.
fn cache(object: Object) -> Cache {
    match object {
        Object::Node { file: FileKind::NewQueue | FileKind::NewSched, .. }
        | Object::Process { .. }
        | Object::Fresh(_) => Cache::default(),
        Object::Node { file: FileKind::SchedulerDir | FileKind::QueueDir, .. } => {
            Cache { entry: 10, attr: 1 }
        }
        Object::Node { .. } | Object::Mount(_) => Cache { entry: 10, attr: 10 },
    }
}

/// A fresh inode's serial: what it is to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seed {
    scheduler: bool,
    /// Parent, with the low bits of its generation.
    index: u32,
    generation: u32,
    number: u32,
}

const SEED_GENERATION: u32 = 0x7f;

impl Seed {
    fn serial(self) -> u64 {
        u64::from(self.number)
            | u64::from(self.index & 0xffff) << 32
            | u64::from(self.scheduler) << 48
            | u64::from(self.generation & SEED_GENERATION) << 49
    }

    #[expect(clippy::cast_possible_truncation, reason = "the fields are that wide")]
    fn of(serial: u64) -> Self {
        Self {
            number: serial as u32,
            index: (serial >> 32) as u32 & 0xffff,
            scheduler: serial >> 48 & 1 == 1,
            generation: (serial >> 49) as u32 & SEED_GENERATION,
        }
    }

    /// The parent, if it still lives.
    fn parent(self, tree: &Tree) -> Option<NodeId> {
        tree.at(self.index).map(|n| n.id).filter(|id| id.generation & SEED_GENERATION == self.generation)
    }
}

fn trees<'e>(engine: &'e Engine) -> impl Fn(Resource) -> Option<&'e Tree> {
    |resource| match resource {
        Resource::Cpu => Some(engine.tree()),
    }
}

fn error(kind: ErrorKind, why: impl Into<String>) -> Refusal {
    Error::new(kind, why).into()
}

fn gone() -> Refusal {
    error(ErrorKind::Stale, "it is gone")
}

/// The object behind an inode; a fresh one that was opened is its node's `share`.
fn object(engine: &Engine, ino: u64) -> Result<Object, Refusal> {
    match Ino(ino).object().ok_or_else(gone)? {
        Object::Fresh(_) => Ok(match engine.fresh_node(ino) {
            Some(id) => Object::Node { resource: Resource::Cpu, id, file: FileKind::Share },
            None => Ino(ino).object().ok_or_else(gone)?,
        }),
        object => Ok(object),
    }
}

/// A process that lives, by its own number (not a thread's).
fn living(pid: u32) -> Result<i32, Refusal> {
    let pid = pid.cast_signed();
    if process::tgid(pid) == Some(pid) {
        Ok(pid)
    } else {
        Err(error(ErrorKind::NotFound, format!("no process {pid}")))
    }
}

/// A node's directory.
fn node_of(object: Object) -> Result<NodeId, Refusal> {
    match object {
        Object::Node { id, file: FileKind::SchedulerDir, .. } => Ok(id),
        Object::Node { file: FileKind::QueueDir, .. } => {
            Err(error(ErrorKind::NotScheduler, "a queue has no children"))
        }
        _ => Err(error(ErrorKind::Protected, "this directory is not changed")),
    }
}

fn name_of(bytes: &[u8]) -> Result<Name, Refusal> {
    let text = std::str::from_utf8(bytes).map_err(|_| error(ErrorKind::NotText, "the name is no UTF-8"))?;
    Ok(Name::new(text)?)
}

/// A child that is a node. Other entries are there and cannot be changed.
fn child(engine: &Engine, parent: Object, name: &[u8]) -> Result<(NodeId, FileKind), Refusal> {
    match lookup(parent, name, trees(engine))? {
        Object::Node { id, file, .. } => Ok((id, file)),
        _ => Err(error(ErrorKind::Protected, format!("{} stays", quoted(&String::from_utf8_lossy(name))))),
    }
}

impl Fs {
    /// Over the core, mounted at `mount`.
    pub fn new(core: Arc<Mutex<Core>>, mount: &Path) -> Self {
        let since_epoch =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self {
            core,
            mount: mount.to_string_lossy().into_owned(),
            texts: BTreeMap::new(),
            // Unlike those of an earlier worker, whose descriptors may still be open.
            next_handle: u64::from(since_epoch.subsec_nanos()) << 32 | (since_epoch.as_secs() & 0xffff) << 16,
            time: since_epoch.as_secs(),
        }
    }

    fn attr(&self, engine: &Engine, object: Object) -> Result<Attr, Refusal> {
        if let Object::Process { pid, .. } = object {
            living(pid)?;
        }
        let a = attributes(object, trees(engine))?;
        Ok(Attr { ino: Ino::from(object).0, mode: a.mode, nlink: a.nlink, uid: 0, gid: 0, time: self.time })
    }

    fn lookup(&self, engine: &mut Engine, dir: u64, name: &[u8], reply: &mut Reply) -> Result<(), Refusal> {
        let mut found = lookup(object(engine, dir)?, name, trees(engine))?;
        if let Object::Node { id, file: file @ (FileKind::NewQueue | FileKind::NewSched), .. } = found {
            let number = engine.fresh_number()?;
            let scheduler = file == FileKind::NewSched;
            let seed = Seed { scheduler, index: id.index, generation: id.generation, number };
            found = Object::Fresh(seed.serial());
        }
        reply.entry(Ino::from(found).0, &self.attr(engine, found)?, cache(found));
        Ok(())
    }

    fn handle(&mut self) -> u64 {
        self.next_handle += 1;
        self.next_handle
    }

    /// Opening a fresh inode makes the node.
    fn open(&mut self, core: &mut Core, ino: u64, request: &Request<'_>, flags: u32) -> Result<u64, Refusal> {
        let engine = core.engine()?;
        match object(engine, ino)? {
            Object::Fresh(serial) => {
                if flags & libc::O_PATH.cast_unsigned() == 0 {
                    let seed = Seed::of(serial);
                    let parent = seed.parent(engine.tree()).ok_or_else(gone)?;
                    let kind = if seed.scheduler { NewKind::Scheduler(None) } else { NewKind::Queue(None) };
                    let create = Edit::Create { parent: parent.into(), name: None, kind, share: None };
                    engine.edit(&[create], Some(Origin { unique: request.unique, fresh: Some(ino) }))?;
                }
            }
            object => {
                self.attr(engine, object)?;
            }
        }
        Ok(self.handle())
    }

    fn text(&self, core: &mut Core, ino: u64) -> Result<Vec<u8>, Refusal> {
        let engine = core.engine()?;
        let text = match object(engine, ino)? {
            Object::Node { id, file, .. } => {
                let members: Vec<Member> = match file {
                    FileKind::Members if id != NodeId::Q0 => engine.plane().members(id)?,
                    _ => Vec::new(),
                }
                .into_iter()
                .map(|m| {
                    let (pid, tid) = (m.tgid.cast_unsigned(), m.tid.cast_unsigned());
                    Member { pid, tid, params: m.params }
                })
                .collect();
                let nothing = Survey::default();
                let (tree, survey) = match file {
                    FileKind::Stat | FileKind::Backlog => engine.survey()?,
                    _ => (engine.tree(), &nothing),
                };
                let capacity_ns_per_s = tree.capacity();
                let view = View { tree, node: id, survey, members: &members, capacity_ns_per_s };
                render_read(file, &view)?
            }
            Object::Process { pid, file: file @ (FileKind::Default | FileKind::ChildDefault) } => {
                let lists = engine.plane().defaults(living(pid)?)?;
                let id = if file == FileKind::Default { lists.default } else { lists.child };
                let path =
                    engine.tree().path(id).or_else(|| engine.tree().path(NodeId::Q0)).ok_or_else(gone)?;
                render_defaults(&self.mount, &[(Resource::Cpu, path)])
            }
            Object::Mount(FileKind::Status) => core.status()?.text(),
            _ => return Err(error(ErrorKind::NotPermitted, "it is not read")),
        };
        Ok(text.into_bytes())
    }

    fn read(
        &mut self,
        ino: u64,
        handle: u64,
        offset: u64,
        size: u32,
        reply: &mut Reply,
    ) -> Result<(), Refusal> {
        let kept = if offset == 0 { None } else { self.texts.remove(&handle) };
        let text = match kept {
            Some(text) => text,
            None => self.text(&mut lock(&self.core), ino)?,
        };
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
        let to = from.saturating_add(size as usize).min(text.len());
        reply.data(&text[from..to]);
        if self.texts.len() < TEXTS_MAX {
            self.texts.insert(handle, text);
        }
        Ok(())
    }

    fn write(&self, core: &mut Core, request: &Request<'_>, data: &[u8]) -> Result<(), Refusal> {
        if data.len() >= WRITE_MAX as usize {
            return Err(error(ErrorKind::TooLong, "a write of 64 KiB or more"));
        }
        let engine = core.engine()?;
        match object(engine, request.node)? {
            Object::Node { id, file, .. } => match parse_write(file, id, data)? {
                Command::Edit(edits) => {
                    engine.edit(&edits, Some(Origin { unique: request.unique, fresh: None }))?;
                }
                Command::Tag { queue, who, params } => tag(engine, queue, who, params, request.caller)?,
            },
            Object::Process { pid, file: file @ (FileKind::Default | FileKind::ChildDefault) } => {
                let pid = living(pid)?;
                let which = if file == FileKind::Default { List::Default } else { List::Child };
                let tags = parse_defaults(data, &self.mount, |_, path| engine.tree().resolve(path))?;
                for (_, queue) in tags {
                    target_queue(engine, queue)?;
                    engine.plane_mut().set_default(pid, which, queue)?;
                }
            }
            _ => return Err(error(ErrorKind::NotPermitted, "it is not written")),
        }
        Ok(())
    }

    fn rename(
        engine: &mut Engine,
        request: &Request<'_>,
        (from, new_parent, to, flags): (&[u8], u64, &[u8], u32),
    ) -> Result<(), Refusal> {
        if flags & !RENAME_NOREPLACE != 0 {
            return Err(error(ErrorKind::Invalid, "nodes are not exchanged"));
        }
        let (old, new) = (object(engine, request.node)?, object(engine, new_parent)?);
        let (id, file) = child(engine, old, from)?;
        if file.file_type() != FileType::Directory {
            return Err(error(ErrorKind::Protected, "a file keeps its name"));
        }
        let (parent, name) = (node_of(new)?, Some(name_of(to)?));
        let edit = Edit::Move { node: id.into(), parent: parent.into(), name };
        engine.edit(&[edit], Some(Origin { unique: request.unique, fresh: None }))?;
        Ok(())
    }

    fn readdir(engine: &Engine, ino: u64, offset: u64, size: u32, reply: &mut Reply) -> Result<(), Refusal> {
        let dir = object(engine, ino)?;
        let mut items = list(dir, trees(engine))?;
        if Place::of(dir) == Some(Place::Proc) {
            let pids: Vec<u32> = process::all().into_iter().map(i32::cast_unsigned).collect();
            items.extend(list_processes(&pids));
        }
        // The kernel's offsets: 1 and 2 stand after "." and "..", then cookies follow.
        for (at, name) in [(1, &b"."[..]), (2, b"..")] {
            if offset < at && !reply.dirent(size, ino, at, Some(true), name) {
                return Ok(());
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
        Ok(())
    }

    fn make_directory(engine: &mut Engine, request: &Request<'_>, name: &[u8]) -> Result<NodeId, Refusal> {
        let parent = node_of(object(engine, request.node)?)?;
        let kind = NewKind::Scheduler(None);
        let create = Edit::Create { parent: parent.into(), name: Some(name_of(name)?), kind, share: None };
        let done = engine.edit(&[create], Some(Origin { unique: request.unique, fresh: None }))?;
        done.created.first().copied().ok_or_else(gone)
    }

    fn remove_directory(engine: &mut Engine, request: &Request<'_>, name: &[u8]) -> Result<(), Refusal> {
        let parent = object(engine, request.node)?;
        let (id, file) = child(engine, parent, name)?;
        if file.file_type() != FileType::Directory {
            return Err(error(ErrorKind::NotScheduler, "not a directory"));
        }
        let delete = Edit::Delete { node: id.into(), mode: reserv_model::DeleteMode::Refuse };
        engine.edit(&[delete], Some(Origin { unique: request.unique, fresh: None }))?;
        // The kernel removes the name itself.
        engine.take_removed();
        Ok(())
    }

    fn dispatch(&mut self, request: &Request<'_>, reply: &mut Reply) -> Result<(), Refusal> {
        let core = self.core.clone();
        let mut core = lock(&core);
        let core = &mut *core;
        if request.resent
            && let Some(made) = core.engine()?.answered(request.unique)
        {
            tracing::info!(unique = request.unique, ?made, "answered for a dead worker");
            return self.answer_again(core.engine()?, request, made, reply);
        }
        match request.op {
            Op::Lookup { name } => self.lookup(core.engine()?, request.node, name, reply),
            Op::Getattr => {
                let engine = core.engine()?;
                let found = object(engine, request.node)?;
                // The attributes of an inode that is or was fresh are those of now.
                let is_fresh = matches!(Ino(request.node).object(), Some(Object::Fresh(_)));
                let cache = if is_fresh { Cache::default() } else { cache(found) };
                reply.attr(&self.attr(engine, found)?, cache);
                Ok(())
            }
            Op::Setattr { valid, .. } => {
                if valid & SETATTR_OWNER != 0 {
                    return Err(error(ErrorKind::Protected, "modes and owners are fixed"));
                }
                // Truncation and times: what shells and tools do beside writing.
                let engine = core.engine()?;
                let found = object(engine, request.node)?;
                // The attributes of an inode that is or was fresh are those of now.
                let is_fresh = matches!(Ino(request.node).object(), Some(Object::Fresh(_)));
                let cache = if is_fresh { Cache::default() } else { cache(found) };
                reply.attr(&self.attr(engine, found)?, cache);
                Ok(())
            }
            Op::Readlink => {
                let tgid = process::tgid(request.caller.tid)
                    .ok_or_else(|| error(ErrorKind::NoProcess, "the caller is not visible here"))?;
                reply.data(format!("{}/proc/{tgid}", self.mount).as_bytes());
                Ok(())
            }
            Op::Mkdir { name } => {
                let id = Self::make_directory(core.engine()?, request, name)?;
                let made = Object::Node { resource: Resource::Cpu, id, file: FileKind::SchedulerDir };
                reply.entry(Ino::from(made).0, &self.attr(core.engine()?, made)?, cache(made));
                Ok(())
            }
            Op::Rmdir { name } => Self::remove_directory(core.engine()?, request, name),
            Op::Rename { from, new_parent, to, flags } => {
                Self::rename(core.engine()?, request, (from, new_parent, to, flags))
            }
            Op::Unlink { .. } => Err(error(ErrorKind::Protected, "files stay; rmdir removes a node")),
            Op::Make => {
                Err(error(ErrorKind::Protected, "mkdir, newqueue and mk make nodes; nothing else is made"))
            }
            Op::Open { flags } => {
                let handle = self.open(core, request.node, request, flags)?;
                reply.open(handle, OPEN_DIRECT_IO | OPEN_NOFLUSH);
                Ok(())
            }
            Op::Write { data, .. } => {
                self.write(core, request, data)?;
                reply.written(u32::try_from(data.len()).unwrap_or(0));
                Ok(())
            }
            Op::Opendir => {
                reply.open(self.handle(), 0);
                Ok(())
            }
            Op::Readdir { offset, size, .. } => {
                Self::readdir(core.engine()?, request.node, offset, size, reply)
            }
            Op::Statfs => {
                reply.statfs();
                Ok(())
            }
            Op::Releasedir { .. } | Op::Fsync => Ok(()),
            // Access is the kernel's (`default_permissions`).
            _ => Err(Refusal::new(libc::ENOSYS, "not asked of this file system")),
        }
    }

    /// The answer to a request whose edit happened under a worker that died before it answered.
    fn answer_again(
        &mut self,
        engine: &Engine,
        request: &Request<'_>,
        made: Option<NodeId>,
        reply: &mut Reply,
    ) -> Result<(), Refusal> {
        match request.op {
            Op::Mkdir { .. } => {
                let id = made.ok_or_else(gone)?;
                let made = Object::Node { resource: Resource::Cpu, id, file: FileKind::SchedulerDir };
                reply.entry(Ino::from(made).0, &self.attr(engine, made)?, cache(made));
            }
            Op::Open { .. } => reply.open(self.handle(), OPEN_DIRECT_IO | OPEN_NOFLUSH),
            Op::Write { data, .. } => reply.written(u32::try_from(data.len()).unwrap_or(0)),
            _ => {}
        }
        Ok(())
    }
}

fn target_queue(engine: &Engine, queue: NodeId) -> Result<(), Refusal> {
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

fn tag(
    engine: &mut Engine,
    queue: NodeId,
    who: Who,
    params: Option<ThreadParams>,
    caller: Caller,
) -> Result<(), Refusal> {
    target_queue(engine, queue)?;
    let owner = |tid: i32| {
        process::tgid(tid).ok_or_else(|| error(ErrorKind::NoProcess, format!("no process or thread {tid}")))
    };
    let target = match who {
        Who::Process(pid) => Target::Process(owner(pid.cast_signed()).and_then(|tgid| {
            if tgid == pid.cast_signed() {
                Ok(tgid)
            } else {
                Err(error(ErrorKind::NoProcess, format!("{pid} is a thread of {tgid}: write \"tid {pid}\"")))
            }
        })?),
        Who::Thread { tid, pid } => {
            let tgid = owner(tid.cast_signed())?;
            if pid.is_some_and(|pid| pid.cast_signed() != tgid) {
                return Err(error(ErrorKind::NoProcess, format!("thread {tid} is of process {tgid}")));
            }
            Target::Thread(tid.cast_signed())
        }
        Who::CallerProcess => Target::Process(owner(caller.tid)?),
        Who::CallerThread => {
            owner(caller.tid)?;
            Target::Thread(caller.tid)
        }
    };
    engine.tag(target, queue, params)
}

/// What a request that changes something is called in `status`; `None` for mere questions.
fn changing(engine: &Engine, request: &Request<'_>) -> Option<String> {
    let word = match request.op {
        Op::Mkdir { name } => format!("mkdir {}", String::from_utf8_lossy(name)),
        Op::Rmdir { name } => format!("rmdir {}", String::from_utf8_lossy(name)),
        Op::Rename { from, .. } => format!("mv {}", String::from_utf8_lossy(from)),
        Op::Open { .. } => "open".to_owned(),
        Op::Write { .. } => "write".to_owned(),
        _ => return None,
    };
    let place = match Ino(request.node).object() {
        Some(Object::Node { id, file, .. }) => format!("{} {file:?}", engine.tree().shown(id)),
        Some(Object::Process { pid, file }) => format!("proc/{pid} {file:?}"),
        Some(Object::Mount(file)) => format!("{file:?}"),
        Some(Object::Fresh(_)) => "newqueue".to_owned(),
        None => "?".to_owned(),
    };
    Some(format!("{word} {}", place.to_lowercase()))
}

impl Server for Fs {
    fn answer(&mut self, request: &Request<'_>, reply: &mut Reply) -> Result<(), i32> {
        let answer = match request.op {
            Op::Read { handle, offset, size } => self.read(request.node, handle, offset, size, reply),
            Op::Release { handle } => {
                self.texts.remove(&handle);
                Ok(())
            }
            _ => self.dispatch(request, reply),
        };
        answer.map_err(|refusal| {
            let mut core = lock(&self.core);
            if let Ok(engine) = core.engine()
                && let Some(what) = changing(engine, request)
            {
                core.refused(request.caller.uid, what, &refusal);
            }
            refusal.errno
        })
    }

    fn forget(&mut self, node: u64, _count: u64) {
        // Each fresh inode is looked up once, hence forgotten once.
        if let Some(Object::Fresh(_)) = Ino(node).object()
            && let Ok(engine) = lock(&self.core).engine()
        {
            engine.forget_fresh(node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_survives_its_serial() {
        for seed in [
            Seed { scheduler: true, index: 16_383, generation: 0x7f, number: u32::MAX },
            Seed { scheduler: false, index: 0, generation: 1, number: 0 },
        ] {
            assert_eq!(Seed::of(seed.serial()), seed);
            let ino = Ino::fresh(seed.serial());
            assert_eq!(ino.object(), Some(Object::Fresh(seed.serial())), "it fits into an inode number");
        }
    }
}
