// SPDX-License-Identifier: MIT OR Apache-2.0
//! The drivers of a network interface: its packets wait in the tree's queues and leave by the
//! tree's shares. Which queue a packet is for is the tags' business ([`crate::tag`], through
//! [`crate::count::Tagged`]). The design note is `docs/notes/net.md`.

mod former;
pub mod full;
mod rtnl;
pub mod stock;
pub mod threads;

#[doc(hidden)]
pub use rtnl::understand;

use std::path::Path;

use reserv_model::{Batch, Driver, Outcome, Rate, Source};

use crate::count::Meter;
use crate::libbpf::os;
use crate::{Plane, PlaneError, receive, tag};

/// Memory of a packet beside its bytes: `struct sk_buff`, what it shares, and what the allocator
/// rounds up. Of what sockets send the most is 2601 (a datagram of 1709 bytes, which stands in one
/// piece of 4 KiB; longer ones have their bytes in pages), with an MTU of 1500 it is 1610.
const PACKET_EACH: u64 = 3072;

/// Room of a queue, where nothing else is said: what the link sends in this many ms, …
const LIMIT_MS: u64 = 100;
/// … at least this: two of the largest packets.
const LIMIT_MIN: u64 = 128 * 1024;

/// Most bytes that wait in a queue of a link of that rate, where nothing else is said.
fn room(rate: Rate) -> u32 {
    u32::try_from((rate.bytes() * LIMIT_MS / 1000).max(LIMIT_MIN)).unwrap_or(u32::MAX)
}

/// What a source that is scheduled says.
fn link(source: &Source) -> Result<(&str, Option<Rate>), PlaneError> {
    match source {
        Source::Link { interface, rate, .. } => Ok((interface, *rate)),
        other => Err(PlaneError::Invalid(format!("{other} is not scheduled"))),
    }
}

/// The index of an interface in the caller's network name space.
pub(crate) fn index_of(interface: &str) -> Result<u32, PlaneError> {
    rtnl::index_of(interface)
        .ok_or_else(|| PlaneError::Invalid(format!("no interface \"{interface}\" here")))
}

/// Whether an interface has its packets itself: what comes in by a port of a bridge, or a part of a
/// bond, is that one's.
pub(crate) fn own_packets(interface: &str, index: u32) -> Result<(), PlaneError> {
    match rtnl::master(index).map_err(os(format!("what {interface} belongs to")))? {
        0 => Ok(()),
        master => Err(PlaneError::Unsupported(format!(
            "the entrance of {interface}: what comes in by it belongs to another interface (number \
             {master}), which can have one"
        ))),
    }
}

fn netns() -> Result<u64, PlaneError> {
    tag::netns_cookie().map_err(os("the network name space"))
}

/// How packets are told apart, for `status`.
fn told_apart(meter: &dyn Meter) -> String {
    let entrance = meter.entrance().map(|at| format!(", what comes in by {at}"));
    let threads = meter.received_in().map(|queue| format!(", processed in cpu/{queue}"));
    let words = [entrance, threads].map(Option::unwrap_or_default);
    format!("{}{}", meter.mechanism(), words.concat())
}

/// What queues let in, told again; one that is gone lets nothing in.
fn set_entries(meter: &mut dyn Meter, all: &[receive::Set]) -> Result<(), PlaneError> {
    for one in all {
        match meter.let_in(std::slice::from_ref(one)) {
            Ok(_) | Err(PlaneError::NoNode(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What of a batch is set at the link's entrance, and the rest, which is the tree's.
fn entrances(batch: &Batch) -> (Vec<receive::Set>, Batch) {
    let entries = batch.ops.iter().filter_map(receive::of).collect();
    let ops = batch.ops.iter().filter(|op| receive::of(op).is_none()).cloned().collect();
    (entries, Batch { seq: batch.seq, ops })
}

/// The outcomes of a whole batch, by those of the tree's part.
fn with_entrances(batch: &Batch, tree: Vec<Outcome>) -> Vec<Outcome> {
    let mut tree = tree.into_iter();
    let ops = batch.ops.iter().map(|op| match receive::of(op) {
        Some(_) => Outcome::Done,
        None => tree.next().unwrap_or(Outcome::Done),
    });
    ops.collect()
}

/// Which driver interfaces have on this machine, and for the stock one why it is not the full;
/// `Err`: none, with the reason. The kernel is asked by loading a program, which is root's; for
/// others the type information must do.
pub fn survey() -> Result<(Driver, String), String> {
    let full = if nix::unistd::geteuid().is_root() { full::try_load() } else { full::probe() };
    match full {
        Ok(()) => Ok((Driver::Full, String::new())),
        Err(why) => match stock::probe() {
            Ok(()) => Ok((Driver::Stock, why)),
            Err(also) => Err(format!("{why}; {also}")),
        },
    }
}

/// Take an interface, with a tree of root and q0, by the driver that the source names: else by the
/// best that this kernel can. `run` is where what must survive us is written down.
pub fn start(run: &Path, number: u8, source: &Source) -> Result<Box<dyn Plane>, PlaneError> {
    let wanted = match source {
        Source::Link { driver, .. } => *driver,
        _ => Driver::Auto,
    };
    let lacks = match wanted {
        Driver::Stock => None,
        // Only loading tells: since 6.16 the qdiscs may be there, and the verifier may not be up to
        // the programs.
        Driver::Full | Driver::Auto => match full::start(run, number, source) {
            Err(PlaneError::Unsupported(why)) if wanted == Driver::Auto => {
                tracing::info!(why, %source, "the full driver cannot be used here");
                Some(why)
            }
            other => return other.map(|plane| Box::new(plane) as Box<dyn Plane>),
        },
    };
    Ok(Box::new(stock::start(run, number, source, lacks)?))
}

/// Find what an earlier daemon left; `None` when there is nothing.
pub fn adopt(
    run: &Path,
    number: u8,
    source: &Source,
) -> Result<Option<Box<dyn Plane>>, PlaneError> {
    if let Some(plane) = full::adopt(run, number, source)? {
        return Ok(Some(Box::new(plane)));
    }
    Ok(stock::adopt(run, number, source)?.map(|plane| Box::new(plane) as Box<dyn Plane>))
}
