// SPDX-License-Identifier: MIT OR Apache-2.0
//! Containers as files: the only part of this file system that knows them. The kernel keeps nothing
//! of them, so nothing has to be taken back from it.

use reserv_facts::fuse::open;
use reserv_model::{
    Caller as Rightful, ContainerId, Containers, ErrorKind, Holds, Name, NewContainer, Share,
    Weight, quoted,
};
use reserv_namespace::{
    ContainerCommand, ContainerFile as File, FileType, Ino, Object, attributes_in_container,
    list_container, lookup_in_container, parse_container_write, render_container, render_nodes,
};

use super::handles::{OF_ROOT, plain_handle, writer, writes};
use super::{
    Fs, Refusal, SETATTR_OWNER, SETATTR_SIZE, SETATTR_TIMES, error, fill, name_of, require_whole,
};
use crate::container::{Asked, Plain};
use crate::fuse::proto::{Attr, Cache, Caller, Op, Reply, Request};
use crate::rights::{asking, caller, require_same_numbers};

const RENAME_NOREPLACE: u32 = 1;

/// Bits of a fresh inode's serial, from below: number 32, index 14, generation 10.
const INDEX_SHIFT: u32 = 32;
const GENERATION_SHIFT: u32 = 46;
const INDEX: u32 = (1 << (GENERATION_SHIFT - INDEX_SHIFT)) - 1;
const GENERATION: u32 = (1 << 10) - 1;

const _: () = assert!(reserv_model::ContainerLimits::ALL <= INDEX);

/// What a lookup of `new` in a container gives.
fn serial(parent: ContainerId, number: u32) -> u64 {
    u64::from(number)
        | u64::from(parent.index & INDEX) << INDEX_SHIFT
        | u64::from(parent.generation & GENERATION) << GENERATION_SHIFT
}

/// The container in which it was looked up, if it still lives.
fn parent_of(all: &Containers, serial: u64) -> Option<ContainerId> {
    let field =
        |shift: u32, mask: u32| u32::try_from(serial >> shift & u64::from(mask)).unwrap_or(0);
    let (index, generation) = (field(INDEX_SHIFT, INDEX), field(GENERATION_SHIFT, GENERATION));
    let id = all.at(index)?.id;
    (id.generation & GENERATION == generation).then_some(id)
}

/// What a request is about.
#[derive(Clone, Copy)]
struct At {
    id: ContainerId,
    file: File,
}

fn new(holds: Holds, name: Option<Name>, share: Share, who: &Rightful) -> NewContainer {
    // As of nodes: who gives a name says when it goes.
    let gc = name.is_none();
    NewContainer { name, holds, share, gc, maker: who.uid }
}

fn plain(request: &Request<'_>, who: &Rightful) -> Plain {
    Plain { handle: plain_handle(request, who), resent: request.resent }
}

impl Fs {
    /// What of containers an inode is; `None`: nothing of them.
    fn container_at(&self, ino: u64) -> Option<Result<At, Refusal>> {
        let (id, file) = match Ino(ino).object()? {
            Object::Container { id, file } => (Some(id), file),
            Object::FreshContainer(serial) => match self.room.fresh(ino) {
                Some(id) => (Some(id), File::Share),
                None => (self.room.look(|all| parent_of(all, serial)), File::New),
            },
            _ => return None,
        };
        Some(id.map(|id| At { id, file }).ok_or_else(Refusal::gone))
    }

    /// Answers what is about containers.
    pub(super) fn of_containers(
        &self,
        request: &Request<'_>,
        reply: &mut Reply,
    ) -> Option<Result<(), Refusal>> {
        let at = match self.container_at(request.node)? {
            Ok(at) => at,
            // What is gone has open files still.
            Err(_) if matches!(request.op, Op::Release { .. } | Op::Releasedir { .. }) => {
                return None;
            }
            Err(refusal) => return Some(Err(refusal)),
        };
        if request.resent && self.changing(request).is_some() {
            // What the dead worker began has its end first, or this would be answered by half of
            // it.
            match self.room.answered_in_the_end(request.unique) {
                Ok(None) => {}
                Ok(Some(made)) => return Some(self.container_again(request, made, reply)),
                Err(refusal) => return Some(Err(refusal)),
            }
        }
        Some(match request.op {
            Op::Lookup { name } => self.lookup_container(at.id, name, reply),
            Op::Getattr => self
                .container_attr(request.node, at)
                .map(|attr| reply.attr(&attr, Cache::default())),
            Op::Setattr { valid, .. } => self.set_container_attr(request, at, valid, reply),
            Op::Mkdir { name } => self.make_container(request, at, name, reply),
            Op::Rmdir { name } => self.remove_container(request, at.id, name),
            Op::Rename { from, new_parent, to, flags } => {
                self.rename_container(request, at.id, (from, new_parent, to, flags))
            }
            Op::Unlink { .. } | Op::Make => Err(error(
                ErrorKind::Protected,
                "mkdir, new and mk make containers, rmdir removes one",
            )),
            Op::Open { flags } => self.open_container(request, at, flags, reply),
            Op::Opendir => self.open_container(request, at, 0, reply),
            Op::Write { handle, data, .. } => {
                self.write_container(request, at, (handle, data), reply)
            }
            Op::Readdir { handle, offset, size } => {
                self.list_containers(request, at.id, (handle, offset, size), reply)
            }
            Op::Access { mask } => {
                let write = mask & 2 != 0;
                if mask & 1 != 0 && at.file != File::Dir {
                    return Some(Err(error(ErrorKind::NotPermitted, "nothing here is executed")));
                }
                self.permit_container(&caller(request.caller), at, (mask & 4 != 0, write))
            }
            _ => return None,
        })
    }

    fn container_attr(&self, ino: u64, at: At) -> Result<Attr, Refusal> {
        let a = self.room.look(|all| attributes_in_container(all, at.id, at.file))?;
        Ok(Attr { ino, mode: a.mode, nlink: a.nlink, uid: 0, gid: 0, time: self.time })
    }

    fn lookup_container(
        &self,
        dir: ContainerId,
        name: &[u8],
        reply: &mut Reply,
    ) -> Result<(), Refusal> {
        let found = self.room.look(|all| lookup_in_container(all, dir, name))?;
        let Object::Container { id, file } = found else { return Err(Refusal::gone()) };
        let ino = match file {
            File::New => Ino::fresh_container(serial(id, self.room.fresh_number()?)),
            _ => Ino::of_container(id, file),
        };
        reply.entry(ino.0, &self.container_attr(ino.0, At { id, file })?, Cache::default());
        Ok(())
    }

    /// A change is asked for again, at the nodes of all trees. A file that is read says what those
    /// may know who may look at its node of the CPU.
    fn permit_container(
        &self,
        who: &Rightful,
        at: At,
        (read, write): (bool, bool),
    ) -> Result<(), Refusal> {
        let refused = || {
            let shown = self.room.look(|all| all.shown(at.id));
            let why = format!("uid {} has no right to {shown}", who.uid);
            Err(error(ErrorKind::NotPermitted, why))
        };
        let never = matches!(at.file, File::Nodes | File::Usage) && write
            || matches!(at.file, File::Mk) && read;
        if never {
            return Err(error(ErrorKind::NotPermitted, "it is only read, or only written"));
        }
        // Of all of them everybody is told his part.
        let top = at.id == ContainerId::TOP && matches!(at.file, File::Dir | File::Usage);
        let own = at.file == File::Members && !write && !who.unseen;
        if read && !top && !own && !self.room.concerns(who, at.id, false) {
            return refused();
        }
        if write && !self.room.concerns(who, at.id, true) { refused() } else { Ok(()) }
    }

    fn set_container_attr(
        &self,
        request: &Request<'_>,
        at: At,
        valid: u32,
        reply: &mut Reply,
    ) -> Result<(), Refusal> {
        if valid & SETATTR_OWNER != 0 {
            return Err(error(ErrorKind::Protected, "modes and owners are fixed"));
        }
        let who = caller(request.caller);
        if valid & SETATTR_SIZE != 0 {
            self.permit_container(&who, at, (false, true))?;
        } else if valid & SETATTR_TIMES != 0 && who.uid != 0 {
            return Err(error(ErrorKind::Protected, "times are fixed"));
        }
        reply.attr(&self.container_attr(request.node, at)?, Cache::default());
        Ok(())
    }

    fn make_container(
        &self,
        request: &Request<'_>,
        at: At,
        name: &[u8],
        reply: &mut Reply,
    ) -> Result<(), Refusal> {
        let who = caller(request.caller);
        let new = new(Holds::Containers, Some(name_of(name)?), Share::of(Weight::BACKGROUND), &who);
        let asked = Asked { unique: request.unique, fresh: None };
        let id = self.room.create(&[who], at.id, new, (asked, None))?;
        self.container_made(id, reply)
    }

    fn container_made(&self, id: ContainerId, reply: &mut Reply) -> Result<(), Refusal> {
        let (ino, at) = (Ino::of_container(id, File::Dir), At { id, file: File::Dir });
        reply.entry(ino.0, &self.container_attr(ino.0, at)?, Cache::default());
        Ok(())
    }

    /// A child that is a container. Other entries are there and stay.
    fn child_container(&self, dir: ContainerId, name: &[u8]) -> Result<ContainerId, Refusal> {
        let found = self.room.look(|all| lookup_in_container(all, dir, name))?;
        let Object::Container { id, file: File::Dir } = found else {
            let name = quoted(&String::from_utf8_lossy(name));
            return Err(error(ErrorKind::Protected, format!("{name} stays")));
        };
        Ok(id)
    }

    fn remove_container(
        &self,
        request: &Request<'_>,
        dir: ContainerId,
        name: &[u8],
    ) -> Result<(), Refusal> {
        let id = self.child_container(dir, name)?;
        let asked = Asked { unique: request.unique, fresh: None };
        self.room.remove(&[caller(request.caller)], id, asked)
    }

    fn rename_container(
        &self,
        request: &Request<'_>,
        dir: ContainerId,
        (from, new_parent, to, flags): (&[u8], u64, &[u8], u32),
    ) -> Result<(), Refusal> {
        if flags & !RENAME_NOREPLACE != 0 {
            return Err(error(ErrorKind::Invalid, "containers are not exchanged"));
        }
        let id = self.child_container(dir, from)?;
        let Some(Object::Container { id: parent, file: File::Dir }) = Ino(new_parent).object()
        else {
            return Err(Refusal::new(libc::EXDEV, "a container stays among containers"));
        };
        let asked = Asked { unique: request.unique, fresh: None };
        let name = Some(name_of(to)?);
        self.room.set_parent(&[caller(request.caller)], id, (parent, name), asked)
    }

    /// Opening a fresh inode makes the container.
    fn open_container(
        &self,
        request: &Request<'_>,
        at: At,
        flags: u32,
        reply: &mut Reply,
    ) -> Result<(), Refusal> {
        let who = caller(request.caller);
        let mut handle = self.handle_of(request, at, &who);
        if at.file == File::New {
            if flags & libc::O_PATH.cast_unsigned() == 0 {
                let new = new(Holds::Threads, None, Share::of(Weight::BACKGROUND), &who);
                let asked = Asked { unique: request.unique, fresh: Some(request.node) };
                let open = Some((plain(request, &who), &mut handle));
                // Before it is made: a refusal changes nothing.
                if writes(request, &who) {
                    self.core.cpu()?.admit_file(None, &who)?;
                }
                self.room.create(std::slice::from_ref(&who), at.id, new, (asked, open))?;
            }
        } else {
            let mode = flags.cast_signed() & libc::O_ACCMODE;
            self.permit_container(&who, at, (mode != libc::O_WRONLY, mode != libc::O_RDONLY))?;
            self.container_attr(request.node, at)?;
            self.container_opened(handle, at.id, &who)?;
        }
        self.container_handle(request, (handle, &who), reply)
    }

    /// By a directory or a share threads are bound: the handle names the container's node. Whoever
    /// only sees the container has the plain handle, by which nobody is bound and nothing is kept.
    fn handle_of(&self, request: &Request<'_>, at: At, who: &Rightful) -> u64 {
        let plain = plain(request, who);
        let binds = match at.file {
            File::Dir => self.room.may_use(who, at.id),
            File::Share => true,
            _ => false,
        };
        if binds && self.room.concerns(who, at.id, true) {
            self.room.handle(at.id, plain)
        } else {
            plain.handle
        }
    }

    fn container_opened(
        &self,
        handle: u64,
        id: ContainerId,
        who: &Rightful,
    ) -> Result<(), Refusal> {
        // Of who has no right at a container nothing keeps it.
        if id != ContainerId::TOP && self.room.concerns(who, id, true) {
            self.room.opened(handle, id, who.uid)?;
        }
        Ok(())
    }

    fn container_handle(
        &self,
        request: &Request<'_>,
        (handle, who): (u64, &Rightful),
        reply: &mut Reply,
    ) -> Result<(), Refusal> {
        if writes(request, who)
            && let Err(refusal) = self.core.cpu().and_then(|mut cpu| cpu.writes(handle, who))
        {
            // It is not open, so nobody tells of its end.
            self.room.closed(handle);
            return Err(refusal);
        }
        let how =
            if matches!(request.op, Op::Opendir) { 0 } else { open::DIRECT_IO | open::NOFLUSH };
        reply.open(handle, how);
        Ok(())
    }

    fn write_container(
        &self,
        request: &Request<'_>,
        at: At,
        (handle, data): (u64, &[u8]),
        reply: &mut Reply,
    ) -> Result<(), Refusal> {
        require_whole(data)?;
        let opener = writer(&self.core, request.node, handle)?;
        let asking = asking(caller(request.caller), opener.as_ref());
        let asked = Asked { unique: request.unique, fresh: None };
        let (room, id) = (&self.room, at.id);
        let who = asking.last().ok_or_else(Refusal::gone)?;
        match parse_container_write(at.file, data)? {
            ContainerCommand::Share(share) => room.set_share(&asking, id, share, asked)?,
            ContainerCommand::Gc(gc) => room.set_gc(&asking, id, gc, asked)?,
            ContainerCommand::Parent(path) => {
                let parent = match path {
                    None => ContainerId::TOP,
                    Some(path) => room.look(|all| all.resolve(&path))?,
                };
                room.set_parent(&asking, id, (parent, None), asked)?;
            }
            ContainerCommand::Mk(holds, name, share) => {
                let new = new(holds, Some(name), share, who);
                room.create(&asking, id, new, (asked, None))?;
            }
            ContainerCommand::Access(change, fall) => {
                if change.party.process.is_some_and(|(_, start)| start == 0) {
                    require_same_numbers(request.caller)?;
                }
                room.set_access(&asking, id, (change, fall), asked)?;
            }
            ContainerCommand::Bind(who) => room.bind(&asking, request.caller, id, who)?,
        }
        reply.written(u32::try_from(data.len()).unwrap_or(0));
        Ok(())
    }

    /// The text of a file of a container; `None`: it is no container's.
    pub(super) fn container_text(
        &self,
        ino: u64,
        (from, handle): (Caller, u64),
    ) -> Option<Result<String, Refusal>> {
        let at = match self.container_at(ino)? {
            Ok(at) => at,
            Err(refusal) => return Some(Err(refusal)),
        };
        Some(self.text_of_container(at, Self::reader(from, handle)))
    }

    fn text_of_container(&self, at: At, reader: Option<Rightful>) -> Result<String, Refusal> {
        let (room, id) = (&self.room, at.id);
        if let Some(who) = &reader {
            self.permit_container(who, at, (true, false))?;
        }
        if let Some(text) = room.look(|all| render_container(all, id, at.file))? {
            return Ok(text);
        }
        match at.file {
            File::Nodes => Ok(render_nodes(&room.owned(id)?)),
            File::Usage if id == ContainerId::TOP => room.usage_of_all(reader.as_ref()),
            File::Usage => room.usage(id),
            File::Access => room.access(id, reader.as_ref()),
            _ => {
                let own = reader.filter(|who| !room.concerns(who, id, false));
                room.members(id, own.as_ref())
            }
        }
    }

    fn list_containers(
        &self,
        request: &Request<'_>,
        id: ContainerId,
        (handle, offset, size): (u64, u64, u32),
        reply: &mut Reply,
    ) -> Result<(), Refusal> {
        let mut items = self.room.look(|all| list_container(all, id))?;
        if let Some(who) = Self::reader(request.caller, handle) {
            items.retain(|item| match item.ino.object() {
                Some(Object::Container { id: of, file: File::Dir })
                    if item.file_type == FileType::Directory =>
                {
                    of == id || self.room.concerns(&who, of, false)
                }
                _ => true,
            });
        }
        fill(reply, &items, (request.node, offset, size));
        Ok(())
    }

    /// A file was closed.
    pub(super) fn container_closed(&self, ino: u64, handle: u64) {
        if matches!(Ino(ino).object(), Some(Object::Container { .. } | Object::FreshContainer(_))) {
            self.room.closed(handle);
            if handle & OF_ROOT == 0
                && let Ok(mut cpu) = self.core.cpu()
            {
                cpu.writes_no_more(handle);
            }
        }
    }

    /// The answer to a request whose change happened under a worker that died before it answered.
    fn container_again(
        &self,
        request: &Request<'_>,
        made: Option<ContainerId>,
        reply: &mut Reply,
    ) -> Result<(), Refusal> {
        match (request.op, made) {
            (Op::Mkdir { .. }, Some(id)) => self.container_made(id, reply)?,
            (Op::Open { .. }, Some(id)) => {
                let who = caller(request.caller);
                let handle = self.handle_of(request, At { id, file: File::Share }, &who);
                self.container_opened(handle, id, &who)?;
                self.container_handle(request, (handle, &who), reply)?;
            }
            (Op::Write { data, .. }, _) => reply.written(u32::try_from(data.len()).unwrap_or(0)),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_says_where_it_was_looked_up() {
        let mut all = Containers::default();
        let root = Rightful::root();
        let edit = all
            .plan_create(
                ContainerId::TOP,
                new(Holds::Containers, None, Share::of(Weight::DEFAULT), &root),
            )
            .unwrap();
        all.apply(&edit).unwrap();
        for id in [ContainerId::TOP, edit.id()] {
            let ino = Ino::fresh_container(serial(id, u32::MAX));
            let Some(Object::FreshContainer(serial)) = ino.object() else { panic!("{ino:?}") };
            assert_eq!(parent_of(&all, serial), Some(id));
        }
        let gone = ContainerId { generation: 2, ..edit.id() };
        assert_eq!(parent_of(&all, serial(gone, 1)), None);
    }
}
