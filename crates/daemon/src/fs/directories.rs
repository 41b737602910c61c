// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nodes as directories: made, moved and removed.

use reserv_model::{ErrorKind, Name, NewKind, NodeId, Request as Edit, quoted};
use reserv_namespace::{FileKind, FileType, Object, Place, Resource, lookup};

use super::{Fs, Refusal, error, object, trees_in};
use crate::core::{Core, Trees};
use crate::engine::Origin;
use crate::fuse::proto::Request;
use crate::rights::caller;

const RENAME_NOREPLACE: u32 = 1;

/// A node's directory.
fn node_of(object: Object) -> Result<(Resource, NodeId), Refusal> {
    match object {
        Object::Node { resource, id, file: FileKind::SchedulerDir } => Ok((resource, id)),
        Object::Node { file: FileKind::QueueDir, .. } => {
            Err(error(ErrorKind::NotScheduler, "a queue has no children"))
        }
        _ => Err(error(ErrorKind::Protected, "this directory is not changed")),
    }
}

pub(super) fn name_of(bytes: &[u8]) -> Result<Name, Refusal> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| error(ErrorKind::NotText, "the name is no UTF-8"))?;
    Ok(Name::new(text)?)
}

/// A child that is a node. Other entries are there and cannot be changed. With its tree, so that it
/// is what is called so until it has been changed.
fn child(
    core: &Core,
    parent: Object,
    name: &[u8],
) -> Result<(Resource, NodeId, FileKind, Trees), Refusal> {
    let stays =
        || error(ErrorKind::Protected, format!("{} stays", quoted(&String::from_utf8_lossy(name))));
    let trees = trees_in(core, parent)?;
    match lookup(parent, name, trees.of())? {
        // A resource comes and goes with `reserv up` and `down`.
        Object::Node { id: NodeId::ROOT, .. } if Place::of(parent) == Some(Place::Mount) => {
            Err(stays())
        }
        Object::Node { resource, id, file } => Ok((resource, id, file, trees)),
        _ => Err(stays()),
    }
}

impl Fs {
    pub(super) fn rename(
        core: &Core,
        request: &Request<'_>,
        (from, new_parent, to, flags): (&[u8], u64, &[u8], u32),
    ) -> Result<(), Refusal> {
        if flags & !RENAME_NOREPLACE != 0 {
            return Err(error(ErrorKind::Invalid, "nodes are not exchanged"));
        }
        let (old, new) = (object(core, request.node)?, object(core, new_parent)?);
        let (resource, id, file, mut trees) = child(core, old, from)?;
        if FileType::of(file) != FileType::Directory {
            return Err(error(ErrorKind::Protected, "a file keeps its name"));
        }
        let ((other, parent), name) = (node_of(new)?, Some(name_of(to)?));
        if other != resource {
            return Err(Refusal::new(libc::EXDEV, "a node stays in the tree of its resource"));
        }
        let edit = Edit::Move { node: id.into(), parent: parent.into(), name };
        let origin = Origin { unique: request.unique, fresh: None };
        let engine = trees.engine()?;
        let before = engine.tree().get(id).and_then(|node| Some((node.parent?, node.name.clone())));
        engine.edit_by(&caller(request.caller), &[edit], Some(origin))?;
        if let Some((parent, name)) = before.filter(|_| Origin::is_chosen(request.unique)) {
            engine.moved(parent, name);
        }
        Ok(())
    }

    pub(super) fn make_directory(
        core: &Core,
        request: &Request<'_>,
        name: &[u8],
    ) -> Result<(Object, Trees), Refusal> {
        let (resource, parent) = node_of(object(core, request.node)?)?;
        let kind = NewKind::Scheduler(None);
        let create =
            Edit::Create { parent: parent.into(), name: Some(name_of(name)?), kind, share: None };
        let origin = Origin { unique: request.unique, fresh: None };
        let mut trees = core.trees(resource)?;
        let done = trees.engine()?.edit_by(&caller(request.caller), &[create], Some(origin))?;
        let id = done.created.first().copied().ok_or_else(Refusal::gone)?;
        Ok((Object::Node { resource, id, file: FileKind::SchedulerDir }, trees))
    }

    pub(super) fn remove_directory(
        core: &Core,
        request: &Request<'_>,
        name: &[u8],
    ) -> Result<(), Refusal> {
        let parent = object(core, request.node)?;
        let (_, id, file, mut trees) = child(core, parent, name)?;
        if FileType::of(file) != FileType::Directory {
            return Err(error(ErrorKind::NotScheduler, "not a directory"));
        }
        let delete = Edit::Delete { node: id.into(), mode: reserv_model::DeleteMode::Refuse };
        let engine = trees.engine()?;
        let origin = Origin { unique: request.unique, fresh: None };
        engine.edit_by(&caller(request.caller), &[delete], Some(origin))?;
        if !Origin::is_chosen(request.unique) {
            // The kernel removes the name itself.
            engine.take_removed();
        }
        Ok(())
    }
}
