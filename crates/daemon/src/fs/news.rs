// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files whose readers wait for news of a node, by poll(2): `dropped`.

use reserv_model::{Dropper, NodeId};
use reserv_namespace::{FileKind, Object, Resource};

use super::{Fs, Refusal, object};
use crate::core::Core;
use crate::fuse::proto::{Caller, Request};
use crate::polled::{self, Of};

/// `POLLIN | POLLRDNORM`
const POLL_NEWS: u32 = 0x41;
/// And `POLLOUT | POLLWRNORM`: what the kernel says of a file that is not asked.
const POLL_ALWAYS: u32 = POLL_NEWS | 0x104;

impl Fs {
    /// What poll(2) says. Files are always ready but for those that tell news. (ENOSYS would be for
    /// all files of the mount, and for ever.)
    pub(super) fn poll(
        core: &Core,
        request: &Request<'_>,
        (handle, waits): (u64, Option<u64>),
    ) -> Result<u32, Refusal> {
        let Object::Node { resource, id, file: file @ FileKind::Dropped } =
            object(core, request.node)?
        else {
            return Ok(POLL_ALWAYS);
        };
        let from = request.caller;
        if let Some(who) = Self::reader(from, handle) {
            let object = Object::Node { resource, id, file };
            Self::permit(core, (&who, from.tid), object, (true, false))?;
        }
        let number = polled::dropped(&core.engine(resource)?.plane().droppers(id)?);
        let of = Of { handle, uid: from.uid, resource, node: id };
        Ok(if core.polled.has_news(of, number, waits)? { POLL_NEWS } else { 0 })
    }

    /// A reader was told of these. What is read by path has no open file.
    pub(super) fn told(
        core: &Core,
        (from, handle): (Caller, u64),
        (resource, node): (Resource, NodeId),
        dropped: &[Dropper],
    ) {
        if handle == 0 {
            return;
        }
        let of = Of { handle, uid: from.uid, resource, node };
        core.polled.told(of, polled::dropped(dropped));
    }
}
