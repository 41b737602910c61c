// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs of this version in the place of those that an earlier daemon loaded, while the link
//! is scheduled; and finding out what a dead daemon left of that.
//!
//! Two sets of programs have pins of their own ([`load::folders`]) and names of their own. In this
//! order:
//!
//! | killed | what there is | the next daemon |
//! |---|---|---|
//! | while the new ones are loaded and get their tree | the old ones have the interface, the new ones are half made | removes the new ones |
//! | after the new qdisc has taken the interface (one message to the kernel) | the new ones have it, the old ones' packets are counted as dropped | carries the counters over, removes the old ones |
//! | while counters are carried over | `follows` says how far it is | goes on there |
//! | while the old ones are removed | the new ones have it | removes the rest |
//!
//! The tree is the caller's journal: a version need not understand another one's nodes. Tags name
//! nodes by ids, which stay. Counters are carried over where this version understands the other's
//! samples (`RN_CARRY_VERSION`).

use std::path::{Path, PathBuf};
use std::ptr;

use reserv_model::{Batch, Op, Source};

use super::abi::{self, RnCall, RnState, what};
use super::{Link, entrances, index_of, link, load, open};
use crate::count::{Meter as _, Tagged};
use crate::libbpf::os;
use crate::net::rtnl;
use crate::ops::{self, io_error};
use crate::{PlaneError, Upgraded};
use reserv_facts::tree::RsBatch;

/// Programs of another version than this.
#[derive(Debug)]
pub(super) struct Foreign {
    abi: u32,
    /// Their counters are understood.
    pub(super) sampled: bool,
}

impl Foreign {
    pub(super) fn of(state: &RnState) -> Option<Self> {
        let &RnState { abi, carry, .. } = state;
        // Version 2 had what version 3 gave the number 1.
        let sampled = carry == abi::CARRY_VERSION || (abi, carry) == (2, 0);
        (abi != abi::ABI_VERSION).then_some(Self { abi, sampled })
    }
}

fn attached(state: &RnState) -> bool {
    state.attached > state.detached
}

/// What runs, of what is pinned; what an upgrade left in the middle is ended one way or the other.
pub(super) fn find(former: &Path, number: u8, source: &Source) -> Result<Option<Link>, PlaneError> {
    let (there, rest): (Vec<PathBuf>, Vec<PathBuf>) =
        load::folders(number).into_iter().partition(|folder| folder.join(load::LINK).exists());
    let mut found = Vec::new();
    for folder in there {
        found.push(open(folder, former.to_path_buf(), number, source)?);
    }
    let (Some(first), second) = (found.pop(), found.pop()) else { return Ok(None) };
    rest.iter().try_for_each(|folder| load::unload(folder))?;
    let Some(second) = second else {
        if first.foreign.is_none() && first.state().follows != 0 {
            first.set(what::ALONE, 0, 0)?;
        }
        return Ok(Some(first));
    };
    let (new, old) = if first.state().follows != 0 { (first, second) } else { (second, first) };
    if new.state().attached == 0 || attached(&old.state()) {
        tracing::warn!(interface = old.interface, "an upgrade did not happen; the programs stay");
        load::unload(&new.folder)?;
        return Ok(Some(old));
    }
    tracing::warn!(interface = new.interface, "an upgrade is carried to its end");
    new.follow(&old);
    Ok(Some(new))
}

impl Link {
    /// Whether the nodes' counters can be read.
    pub(super) fn sampled(&self) -> bool {
        self.foreign.as_ref().is_none_or(|foreign| foreign.sampled)
    }

    /// Whether the programs are this version's. Others go on as they are.
    pub(super) fn understood(&self) -> Result<(), PlaneError> {
        let Some(Foreign { abi, .. }) = self.foreign else { return Ok(()) };
        Err(PlaneError::Unsupported(format!(
            "another version of Reserv loaded the programs that schedule {0} (ABI {abi}, this is {1}): they go on as they are, and nothing can be changed before `reserv upgrade {0}`",
            self.interface,
            abi::ABI_VERSION
        )))
    }

    pub(super) fn upgrade_to(&mut self, tree: &[Batch]) -> Result<Option<Upgraded>, PlaneError> {
        let was = self.state();
        if self.foreign.is_none() && was.build == load::build() {
            return Ok(None);
        }
        let index = self.take_note_if_lost(&was)?;
        let folders = load::folders(self.number);
        let folder = folders.into_iter().find(|folder| *folder != self.folder);
        let folder = folder
            .ok_or_else(|| PlaneError::Invalid("pins are not where they should be".into()))?;
        load::unload(&folder)?;
        load::load(&folder)?;
        let made =
            open(folder.clone(), self.former.clone(), self.number, &self.source).and_then(|new| {
                new.build(tree)?;
                let dropped = rtnl::tx_dropped(index).unwrap_or_default();
                new.attach(index)
                    .or_else(|error| if attached(&new.state()) { Ok(()) } else { Err(error) })?;
                let meanwhile = rtnl::tx_dropped(index).unwrap_or_default().saturating_sub(dropped);
                Ok((new, meanwhile))
            });
        let (mut new, meanwhile) = match made {
            Ok(made) => made,
            Err(error) => {
                if let Err(also) = load::unload(&folder) {
                    tracing::error!(%also, "programs that were not needed stay loaded");
                }
                return Err(error);
            }
        };
        let counters = new.follow(self);
        let now = self.state();
        new.meter = std::mem::replace(&mut self.meter, Tagged::new(self.number));
        let done = Upgraded {
            from: now.abi,
            to: abi::ABI_VERSION,
            packets: now.flushed - was.flushed,
            bytes: now.flushed_bytes - was.flushed_bytes,
            meanwhile,
            counters,
        };
        tracing::info!(interface = self.interface, ?done, "upgraded");
        *self = new;
        Ok(Some(done))
    }

    /// The index of the interface. Where something else has it now, that is written down to be put
    /// back.
    fn take_note_if_lost(&mut self, state: &RnState) -> Result<u32, PlaneError> {
        if attached(state) {
            return index_of(&self.interface);
        }
        let index = self.take_note()?;
        self.meter.again(&self.source)?;
        Ok(index)
    }

    /// Rate and tree, in programs that are on no interface yet.
    fn build(&self, tree: &[Batch]) -> Result<(), PlaneError> {
        self.tell_rate(link(&self.source)?.1)?;
        for batch in tree {
            // The entrance stands beside the tree, and goes on.
            let (_, batch) = &entrances(batch);
            let mut done: RsBatch = self.encode(batch)?;
            for (slot, edit) in done.op.iter_mut().zip(&batch.ops) {
                // Who refers to it is known to the tags only; it goes when it is looked at next, if
                // nobody does.
                slot.a = if matches!(edit, Op::Delete { .. }) { 1 } else { slot.a };
            }
            let answer = self.edit(&mut done)?;
            if answer < 0 {
                return Err(ops::refused(&done, batch, answer, || Ok(None)));
            }
        }
        self.set(what::FOLLOW, 0, 0)
    }

    /// What `old` has counted is ours, and it goes: it is on no interface any more. Whoever does
    /// this again after a death goes on where that one was. Answers whether the nodes' counters
    /// could be carried over.
    fn follow(&self, old: &Self) -> bool {
        let carried = self.carry(old).unwrap_or_else(|error| {
            tracing::error!(%error, interface = self.interface, "counters begin anew");
            false
        });
        let RnState { flushed, flushed_bytes, no_room, .. } = old.state();
        let mut call = RnCall {
            what: what::CARRIED,
            a: flushed,
            b: flushed_bytes,
            node: no_room,
            ..RnCall::default()
        };
        let ended = match self.call("rn_do", &mut call) {
            Ok(answer) if answer == 0 || answer == -libc::ESTALE => Ok(()),
            Ok(answer) => Err(os("carry totals over")(io_error(-answer))),
            Err(error) => Err(error),
        };
        // Only when the old ones are gone is there nothing left to be done.
        let ended = ended
            .and_then(|()| load::unload(&old.folder))
            .and_then(|()| self.set(what::ALONE, 0, 0));
        if let Err(error) = ended {
            tracing::error!(%error, interface = self.interface, "what is left of an upgrade goes with the next start");
        }
        carried
    }

    fn carry(&self, old: &Self) -> Result<bool, PlaneError> {
        if !old.sampled() {
            return Ok(false);
        }
        loop {
            let at = self.state().follows;
            if at == 0 || at == abi::FOLLOWS_ALL {
                return Ok(true);
            }
            let first = at - 1;
            let mut nodes = Vec::new();
            let (end, _) = old.some_nodes(first, &mut nodes)?;
            if end <= first {
                return Ok(true);
            }
            for (i, node) in nodes.iter().enumerate() {
                // SAFETY: `io` is ours between two calls, and one call's nodes have room in it.
                unsafe { ptr::write_volatile(&raw mut (*self.io.at()).node[i], *node) };
            }
            let count = u32::try_from(nodes.len()).unwrap_or_default();
            let mut call = RnCall { first, count, what: end, ..RnCall::default() };
            match -self.call("rn_carry", &mut call)? {
                0 => {}
                errno => return Err(os("carry counters over")(io_error(errno))),
            }
        }
    }
}
