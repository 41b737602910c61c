// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reader of the tracer in `bpf/cpu/trace.h`: events of the tree, in the order in which they
//! happened. It needs no daemon and takes none of its calls' places: the ring is its own.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapType, RingBuffer, RingBufferBuilder};

use reserv_facts::cpu::{trace, tracing};

use super::abi::{self, RcCall, RcTrace, to};
use super::load::{self, os};
use crate::PlaneError;
use crate::sys::{self, Mapped};

/// What a record is (`enum rc_trace_kind`). `bpf/abi.h` has the table of what stands in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the table is in bpf/abi.h")]
#[repr(u8)]
pub enum EventKind {
    Start = trace::START,
    End = trace::END,
    Node = trace::NODE,
    Item = trace::ITEM,
    Settle = trace::SETTLE,
    Wake = trace::WAKE,
    Remove = trace::REMOVE,
    Move = trace::MOVE,
    Floor = trace::FLOOR,
    Forced = trace::FORCED,
    Edit = trace::EDIT,
    GoneNode = trace::GONE_NODE,
    Reset = trace::RESET,
    Tune = trace::TUNE,
    Child = trace::CHILD,
    Param = trace::PARAM,
    Server = trace::SERVER,
}

impl EventKind {
    /// All, with the words of raw traces.
    pub const ALL: &[(Self, &'static str)] = &[
        (Self::Start, "start"),
        (Self::End, "end"),
        (Self::Node, "node"),
        (Self::Item, "item"),
        (Self::Settle, "settle"),
        (Self::Wake, "wake"),
        (Self::Remove, "remove"),
        (Self::Move, "move"),
        (Self::Floor, "floor"),
        (Self::Forced, "forced"),
        (Self::Edit, "edit"),
        (Self::GoneNode, "gone"),
        (Self::Reset, "reset"),
        (Self::Tune, "tune"),
        (Self::Child, "child"),
        (Self::Param, "param"),
        (Self::Server, "server"),
    ];

    /// The word of raw traces.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(kind, _)| *kind == self).map_or("?", |(_, word)| word)
    }

    /// From that word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, w)| *w == word).map(|(kind, _)| *kind)
    }

    fn from_number(number: u8) -> Option<Self> {
        Self::ALL.iter().find(|(kind, _)| *kind as u8 == number).map(|(kind, _)| *kind)
    }
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The tree's clock, ns.
    pub at: u64,
    /// What happened.
    pub kind: EventKind,
    /// A node, as generation << 32 | index.
    pub node: u64,
    /// By kind.
    pub node2: u64,
    /// By kind; ns where it is work.
    pub work: u64,
    /// By kind; mostly a thread.
    pub tid: u32,
    /// By kind; mostly a CPU.
    pub unit: u16,
    /// By kind.
    pub flags: u8,
}

/// A trace that is being taken. Dropping it switches the tracer off.
#[derive(Debug)]
pub struct Tracer {
    program: OwnedFd,
    slot: MapHandle,
    ring: Option<RingBuffer<'static>>,
    got: Rc<RefCell<Vec<Event>>>,
    owner: u64,
    on: bool,
}

fn bpf(context: &str) -> impl FnOnce(libbpf_rs::Error) -> PlaneError {
    let context = context.to_owned();
    move |error| PlaneError::Os {
        context: format!("{context}: {error:#}"),
        source: io::Error::other("libbpf"),
    }
}

impl Tracer {
    /// Begin, with a ring of `bytes` (a power of two). `Taken`: somebody else traces.
    /// `Unsupported`: the full driver is not running. `Full`: the tree is too large to be listed
    /// without a pause of all CPUs; `pause` allows it.
    pub fn start(bytes: u32, pause: bool) -> Result<Self, PlaneError> {
        let folder: PathBuf = load::folder();
        if !folder.join("state").exists() {
            return Err(PlaneError::Unsupported("the full CPU driver is not running".into()));
        }
        let state = Mapped::<abi::RcState>::new(
            &sys::open(&folder.join("state")).map_err(os("open the pinned map 'state'"))?,
        )
        .map_err(os("map 'state'"))?;
        // SAFETY: the mapping is as large as the structure, which is plain numbers.
        let version = unsafe { std::ptr::read_volatile(state.at()) }.abi;
        if version != abi::ABI_VERSION || !folder.join("trace").exists() {
            return Err(PlaneError::Unsupported(format!(
                "the scheduler that runs has ABI version {version}, this program understands {}",
                abi::ABI_VERSION
            )));
        }
        let program = load::open_program(&folder)?;
        let slot = MapHandle::from_pinned_path(folder.join("trace"))
            .map_err(bpf("open the pinned map 'trace'"))?;
        let mut tracer = Self {
            program,
            slot,
            ring: None,
            got: Rc::default(),
            owner: u64::from(std::process::id()),
            on: false,
        };
        tracer.claim()?;
        tracer.on = true; // from here on, dropping gives it up
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            ..Default::default()
        };
        let map = MapHandle::create(MapType::RingBuf, Some("reserv_trace"), 0, 0, bytes, &options)
            .map_err(bpf("make a ring buffer"))?;
        let fd = map.as_fd().as_raw_fd().to_ne_bytes();
        tracer
            .slot
            .update(&0_u32.to_ne_bytes(), &fd, MapFlags::ANY)
            .map_err(bpf("hand the ring buffer over"))?;
        let got = Rc::clone(&tracer.got);
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&map, move |bytes| {
                got.borrow_mut().extend(event(bytes));
                0
            })
            .map_err(bpf("read the ring buffer"))?;
        tracer.ring = Some(builder.build().map_err(bpf("read the ring buffer"))?);
        tracer.ask(if pause { tracing::PAUSE } else { tracing::ON })?;
        Ok(tracer)
    }

    /// A reader that died holds the place until the next one looks.
    fn claim(&self) -> Result<(), PlaneError> {
        let mut call = RcCall { node: self.owner, what: tracing::CLAIM, ..RcCall::default() };
        if load::call(&self.program, to::TRACING, &mut call)? == 0 {
            return Ok(());
        }
        let other = call.node;
        if std::path::Path::new(&format!("/proc/{other}")).exists() && other != self.owner {
            return Err(PlaneError::Taken(format!(
                "process {other} is tracing; one trace at a time"
            )));
        }
        let mut call = RcCall { node: self.owner, what: tracing::CLAIM_FORCE, ..RcCall::default() };
        load::call(&self.program, to::TRACING, &mut call)?;
        Ok(())
    }

    /// Answers how many records were lost.
    fn ask(&self, what: u32) -> Result<u64, PlaneError> {
        let mut call = RcCall { node: self.owner, what, ..RcCall::default() };
        match load::call(&self.program, to::TRACING, &mut call)? {
            0 => Ok(call.node2),
            answer if answer == -libc::E2BIG => Err(PlaneError::Full(
                "the tree has more nodes and waiting threads than can be listed in 200 us, for \
                 which interrupts are off"
                    .into(),
            )),
            _ => Err(PlaneError::Taken(format!("process {} took the tracer over", call.node))),
        }
    }

    /// What has come since the last call, in order.
    pub fn read(&mut self) -> Result<Vec<Event>, PlaneError> {
        if let Some(ring) = &self.ring {
            ring.consume().map_err(bpf("read the ring buffer"))?;
        }
        Ok(std::mem::take(&mut self.got.borrow_mut()))
    }

    /// End: the rest of the events, and how many were lost in all.
    pub fn stop(mut self) -> Result<(Vec<Event>, u64), PlaneError> {
        // Room for the list of the tree at the end.
        let mut rest = self.read()?;
        let lost = self.ask(tracing::OFF)?;
        rest.extend(self.read()?);
        self.end();
        Ok((rest, lost))
    }

    fn end(&mut self) {
        self.on = false;
        // Gives the ring's memory back; it fails where another reader took the place over, and then
        // it is not ours.
        let _ = self.slot.delete(&0_u32.to_ne_bytes());
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        if self.on && self.ask(tracing::OFF).is_ok() {
            self.end();
        }
    }
}

fn event(bytes: &[u8]) -> Option<Event> {
    if bytes.len() < size_of::<RcTrace>() {
        return None;
    }
    // SAFETY: as many bytes as the structure has, which is plain numbers; unaligned reads are
    // allowed here.
    let r = unsafe { bytes.as_ptr().cast::<RcTrace>().read_unaligned() };
    Some(Event {
        at: r.at,
        kind: EventKind::from_number(r.kind)?,
        node: r.node,
        node2: r.node2,
        work: r.work,
        tid: r.tid,
        unit: r.unit,
        flags: r.flags,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_names_its_kind() {
        for (kind, word) in EventKind::ALL {
            assert_eq!(EventKind::from_word(word), Some(*kind));
            assert_eq!(kind.word(), *word);
            assert_eq!(EventKind::from_number(*kind as u8), Some(*kind));
        }
        assert_eq!(EventKind::from_number(0), None);
    }

    #[test]
    fn a_short_or_unknown_record_is_none() {
        assert!(event(&[0; 39]).is_none());
        assert!(event(&[0xff; 40]).is_none());
    }
}
