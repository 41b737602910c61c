// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one place where the name space asks for rights: at open, at `access(2)`, and whenever a text
//! is made.

use reserv_model::{Caller as Rightful, ErrorKind, Right};
use reserv_namespace::{FileKind, FileType, Object, Place, mode_allows, permit_open};

use super::handles::OF_ROOT;
use super::{Fs, Refusal, error, living, object};
use crate::core::Core;
use crate::fuse::proto::{Caller, Request};
use crate::rights::{caller, require_own, require_to_read, within};
use crate::seed::Seed;

impl Fs {
    /// Whether somebody, whose thread this is, may open an object, or ask whether he could.
    pub(super) fn permit(
        core: &Core,
        (who, tid): (&Rightful, i32),
        object: Object,
        wanted: (bool, bool),
    ) -> Result<(), Refusal> {
        let never = || error(ErrorKind::NotPermitted, "for root only");
        match object {
            _ if who.uid == 0 => {}
            Object::Node { resource, id, file } => {
                let engine = core.engine(resource)?;
                permit_open(engine.tree(), who, id, file, wanted, || within(&engine, who, tid))?;
            }
            Object::Fresh(serial) => {
                let seed = Seed::of(serial);
                let engine = core.engine(seed.resource()?)?;
                let parent = seed.parent(engine.tree()).ok_or_else(Refusal::gone)?;
                permit_open(engine.tree(), who, parent, FileKind::NewQueue, wanted, Vec::new)?;
            }
            Object::Process { pid, file: FileKind::Default | FileKind::ChildDefault } => {
                if wanted.1 {
                    require_own(who, living(pid)?)?;
                } else if wanted.0 {
                    require_to_read(who, living(pid)?)?;
                }
            }
            Object::Process { pid, file: FileKind::Domain } if !wanted.1 => {
                require_to_read(who, living(pid)?)?;
            }
            Object::Process { pid, file: FileKind::Fds | FileKind::Listen } => {
                require_own(who, living(pid)?)?;
            }
            Object::Process { file, .. } if !mode_allows(file, Place::Process, wanted) => {
                return Err(never());
            }
            Object::Mount(file) if !mode_allows(file, Place::Mount, wanted) => return Err(never()),
            Object::Process { .. }
            | Object::Mount(_)
            | Object::Container { .. }
            | Object::FreshContainer(_) => {}
        }
        Ok(())
    }

    /// What `access(2)` and `chdir(2)` ask. A directory is written by making something in it.
    pub(super) fn access(core: &Core, request: &Request<'_>, mask: u32) -> Result<(), Refusal> {
        let (who, object) = (caller(request.caller), object(core, request.node)?);
        let directory = matches!(object, Object::Node { file, .. } | Object::Mount(file) | Object::Process { file, .. }
            if FileType::of(file) == FileType::Directory);
        if mask & 1 != 0 && !directory {
            return Err(error(ErrorKind::NotPermitted, "nothing here is executed"));
        }
        if let Object::Node { resource, id, file: FileKind::SchedulerDir | FileKind::QueueDir } =
            object
        {
            core.slot(resource)?.enters(id);
        }
        match object {
            Object::Node { resource, id, file: FileKind::SchedulerDir } if mask & 2 != 0 => {
                Ok(core.engine(resource)?.tree().require(&who, id, Right::Create)?)
            }
            _ => {
                let wanted = (mask & 4 != 0, mask & 2 != 0);
                Self::permit(core, (&who, request.caller.tid), object, wanted)
            }
        }
    }

    /// Who reads what was opened by this handle; `None`: root, or for root.
    pub(super) fn reader(from: Caller, handle: u64) -> Option<Rightful> {
        (from.uid != 0 && handle & OF_ROOT == 0).then(|| caller(from))
    }
}
