// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open files: their handles, which another worker knows them by, and who opened them to write.

use reserv_model::{Caller as Rightful, NodeId};
use reserv_namespace::{Ino, Object, Resource};

use super::{Refusal, is_fresh, resource_of};
use crate::core::Core;
use crate::core::slot::HadEngine;
use crate::engine::Engine;
use crate::fuse::proto::{Op, Request};
use crate::seed;
pub(super) use crate::seed::OF_ROOT;

/// Notes an open file, and answers its handle.
pub(super) fn opened(core: &Core, request: &Request<'_>, who: &Rightful) -> Result<u64, Refusal> {
    if let Some(resource) = resource_of(request.node) {
        return opened_in(&mut *core.engine(resource)?, request, who);
    }
    let handle = plain_handle(request, who);
    if writes(request, who) {
        core.cpu()?.writes(handle, who)?;
    }
    Ok(handle)
}

/// The same of a node: the request's number; of a fresh inode the node, and which of its open files
/// it is.
pub(super) fn opened_in(
    engine: &mut Engine,
    request: &Request<'_>,
    who: &Rightful,
) -> Result<u64, Refusal> {
    let mut handle = plain_handle(request, who);
    let node = match Ino(request.node).object() {
        Some(Object::Node { id, .. }) => Some(id),
        _ => engine.fresh_node(request.node),
    };
    if let Some(id) = node {
        if is_fresh(request.node) {
            handle = fresh_handle(engine, id, request, who)?;
        }
        // That of nobody who has a right there keeps nothing.
        if handle != seed::handle(id, 0) {
            engine.opened(handle, id, who)?;
        }
    }
    if writes(request, who)
        && let Err(refusal) = engine.writes(handle, who)
    {
        // It is not open, so nobody tells of its end.
        engine.closed(handle);
        return Err(refusal);
    }
    Ok(handle)
}

pub(super) fn plain_handle(request: &Request<'_>, who: &Rightful) -> u64 {
    if who.uid == 0 { request.unique | OF_ROOT } else { request.unique }
}

pub(super) fn writes(request: &Request<'_>, who: &Rightful) -> bool {
    who.uid != 0
        && matches!(request.op, Op::Open { flags } if flags.cast_signed() & libc::O_ACCMODE != libc::O_RDONLY)
}

fn fresh_handle(
    engine: &Engine,
    id: NodeId,
    request: &Request<'_>,
    who: &Rightful,
) -> Result<u64, Refusal> {
    if !engine.tree().concerns(who, id) {
        return Ok(seed::handle(id, 0)); // it keeps nothing
    }
    // Who is sent again gets what he had, unless that is another's by now, who came 65535 opens of
    // this node later.
    let first = u16::try_from(request.unique >> 1 & 0xffff).unwrap_or(0);
    let places = (0..=u16::MAX).map(|n| first.wrapping_add(n)).filter(|which| *which != 0);
    places
        .map(|which| seed::handle(id, which))
        .find(|handle| request.resent || !engine.has_open(*handle))
        .ok_or_else(|| Refusal::new(libc::ENFILE, "it is open 65535 times"))
}

/// The engine whose journal keeps who opened a file to write: that of its node, or the CPU's.
pub(super) fn written_in(core: &Core, ino: u64) -> Result<HadEngine, Refusal> {
    core.engine(resource_of(ino).unwrap_or(Resource::CPU))
}

/// Who opened a file to write; `None`: root.
pub(super) fn writer(core: &Core, ino: u64, handle: u64) -> Result<Option<Rightful>, Refusal> {
    if handle & OF_ROOT != 0
        && !matches!(Ino(ino).object(), Some(Object::Node { .. } | Object::Fresh(_)))
    {
        return Ok(None);
    }
    Ok(written_in(core, ino)?.writer(handle))
}
