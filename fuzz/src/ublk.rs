// SPDX-License-Identifier: MIT OR Apache-2.0
//! The block server between the kernel (ublk), the disk below and reservd, each of which says
//! anything at all: requests of any operation, size and place, results that are none, packets.
//! A naive model knows of each slot of the device what must become of it. After every step:
//!
//! * A request is refused at once, at the disk, or waits. It is answered once, with what the disk
//!   said of it, and the slot is the kernel's again. Who answers a slot that the kernel has, or
//!   forgets one, is found.
//! * What the disk is asked for is a part of a request that is with us, within the disk, in memory
//!   of that request alone, and within that.
//! * A batch of reservd's that is refused changes nothing. The book and the tree agree.
//!
//! At the end all that waits is served. `crates/blockd/tests/corpora.rs` gives it every input that
//! is kept in `corpus/ublk`.
//!
//! A server takes milliseconds to make, so one plays for many inputs, each of which leaves it as it
//! was, but for counters and virtual time; else the next input has another one.

#![expect(clippy::cast_possible_truncation, reason = "bytes of an input, and what was compared")]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use reserv_blockd::backend::{Backend, Data, Io};
use reserv_blockd::book::Book;
use reserv_blockd::front::ublk::control::{Info, flag};
use reserv_blockd::front::ublk::{DEPTH, Described, Ublk};
use reserv_blockd::front::{Dataless, Op};
use reserv_blockd::owners::{Owner, Owners};
use reserv_blockd::ring::{Of, Ring, Sqe};
use reserv_blockd::serve::Worker;
use reserv_blockd::wire::{self, Answer, Ask, Node, Q0, ROOT, RsBatch, RsOp, op, what};

/// Of the disk, and of a request's data.
const SIZE: u64 = 1 << 30;
const PART: u64 = 256 * 1024;
/// Requests of a hardware queue, and how many of them are used here.
const TAGS: u16 = 1024;
const TAGS_USED: u16 = 64;
/// `UBLK_U_IO_COMMIT_AND_FETCH_REQ` and the operation of an entry that has such a command.
const COMMIT: u32 = 0xc010_7521;
const URING_CMD: u8 = 46;
const EIO: i32 = 5;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const EOPNOTSUPP: i32 = 95;
/// Steps of one input, and how late it is at its beginning at most.
const STEPS: usize = 300;
const NOW_MAX: u64 = 1 << 56;

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(1) };
    static STAGE: RefCell<Option<Stage>> = const { RefCell::new(None) };
}

fn now() -> u64 {
    NOW.get()
}

/// Zeros where there are no more bytes.
struct Bytes<'d>(&'d [u8]);

impl<'d> Bytes<'d> {
    fn take(&mut self, len: usize) -> &'d [u8] {
        let (taken, left) = self.0.split_at(len.min(self.0.len()));
        self.0 = left;
        taken
    }

    fn word(&mut self, len: usize) -> u64 {
        self.take(len).iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
    }

    fn u8(&mut self) -> u8 {
        self.word(1) as u8
    }

    fn u32(&mut self) -> u32 {
        self.word(4) as u32
    }

    fn i32(&mut self) -> i32 {
        self.u32().cast_signed()
    }

    /// A small number, or any.
    fn number(&mut self) -> u64 {
        match self.u8() {
            small @ ..200 => small.into(),
            200..225 => self.word(4),
            _ => self.word(8),
        }
    }
}

/// The disk: it keeps what it is asked for.
struct Store {
    asked: Rc<RefCell<Vec<Io>>>,
    arm: Rc<Cell<bool>>,
}

impl Backend for Store {
    unsafe fn submit(&mut self, _ring: &mut Ring, io: &Io) -> io::Result<()> {
        self.asked.borrow_mut().push(*io);
        Ok(())
    }

    fn completed(&mut self, done: &[(u64, i32)], into: &mut Vec<(u64, i32)>) {
        into.extend_from_slice(done);
    }

    fn memory_block(&self) -> u32 {
        512
    }

    fn size(&self) -> u64 {
        SIZE
    }

    fn block(&self) -> u32 {
        512
    }

    fn dataless(&self) -> Dataless {
        Dataless { discard: true, unmap: true, zero: true }
    }

    fn depth(&self) -> u32 {
        8
    }

    fn arm(&self) -> bool {
        self.arm.get()
    }
}

/// What is kept from one input to the next.
struct Stage {
    worker: Worker,
    asked: Rc<RefCell<Vec<Io>>>,
    arm: Rc<Cell<bool>>,
    /// Of the nodes of the input: a tree takes no older one's place.
    generation: u64,
}

impl Stage {
    fn new(front: Ublk) -> Option<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = PathBuf::from(format!("/tmp/reserv-fuzz-{}-{number}", std::process::id()));
        let book = Book::create(&path, 100_000);
        let _ = std::fs::remove_file(&path);
        let (asked, arm) = <(Rc<RefCell<Vec<Io>>>, Rc<Cell<bool>>)>::default();
        let store = Store { asked: asked.clone(), arm: arm.clone() };
        NOW.set(1);
        let worker = Worker::played(Box::new(front), Box::new(store), book.ok()?, now).ok()?;
        Some(Self { worker, asked, arm, generation: 1 })
    }
}

/// What a request wants, as far as the kernel's description means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wants {
    op: Op,
    fua: bool,
    offset: u64,
    len: u32,
}

/// Of a description: operation and flags, sectors, and the first one.
fn wants((op_flags, sectors, start): (u32, u32, u64)) -> Result<Wants, i32> {
    let (bytes, offset) = (u128::from(sectors) * 512, u128::from(start) * 512);
    let (op, most) = match op_flags & 0xff {
        0 => (Op::Read, u128::from(PART)),
        1 => (Op::Write, u128::from(PART)),
        2 => return Ok(Wants { op: Op::Flush, fua: false, offset: 0, len: 0 }),
        3 => (Op::Discard, u128::from(u32::MAX)),
        5 if op_flags >> 15 & 1 == 0 => (Op::Unmap, u128::from(u32::MAX)),
        5 => (Op::Zero, u128::from(u32::MAX)),
        _ => return Err(EOPNOTSUPP),
    };
    if bytes > most || offset > u128::from(u64::MAX) {
        return Err(EINVAL);
    }
    if offset + bytes > u128::from(SIZE) {
        return Err(EIO);
    }
    let fua = op == Op::Write && op_flags >> 13 & 1 == 1;
    Ok(Wants { op, fua, offset: offset as u64, len: bytes as u32 })
}

/// What must become of a request next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// It is answered now.
    Answer(i32),
    /// It waits, and may come to the disk.
    Turn,
    /// It is at the disk again now, this much of it done.
    Again(u32),
    /// The disk has it, this much of it done before; and where its data are, if they are ours.
    Done(u32, Option<usize>),
}

#[derive(Debug)]
struct Given {
    wants: Wants,
    registered: bool,
    due: Due,
}

impl Given {
    fn moves(&self) -> bool {
        matches!(self.wants.op, Op::Read | Op::Write)
    }
}

/// Where data are copied from and to: what becomes of that.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copied {
    Well,
    NoneToWrite,
    NoRoom,
}

impl Copied {
    /// Whether the data of this request cannot be had to be written.
    fn lacks(self, wants: Wants) -> bool {
        self == Self::NoneToWrite && wants.op == Op::Write && wants.len > 0
    }

    fn device(self) -> io::Result<File> {
        let path = match self {
            Self::Well => "/dev/zero",
            Self::NoneToWrite => "/dev/null",
            Self::NoRoom => "/dev/full",
        };
        OpenOptions::new().read(true).write(true).open(path)
    }
}

/// The server ended, as it may.
struct Ended;

struct Play {
    stage: Stage,
    described: Described,
    queues: u16,
    zero_copy: bool,
    copied: Copied,
    /// By slot, what the kernel described there last.
    words: BTreeMap<u16, (u32, u32, u64)>,
    /// By slot: requests that are with the server.
    given: BTreeMap<u16, Given>,
    /// Of I/Os that the disk has: the slot.
    at_disk: BTreeMap<u64, u16>,
    /// The next input needs another server.
    changed: bool,
}

impl Play {
    /// A slot by a byte.
    fn slot(&self, byte: u8) -> u16 {
        (u16::from(byte) >> 6) % self.queues * TAGS + u16::from(byte) % TAGS_USED
    }

    /// A node by a byte: the root, q0, some of this input's generation, and some of an older one.
    fn node(&self, byte: u8) -> u64 {
        let generation = self.stage.generation;
        match byte % 16 {
            0 => ROOT,
            1 => Q0,
            index @ 2..12 => generation << 32 | u64::from(index),
            index => (generation - 1) << 32 | u64::from(index - 10),
        }
    }

    /// A turn with this, which the server may end with, or not.
    fn turn(&mut self, done: &[(Of, u64, i32)], may_end: bool) -> Result<(), Ended> {
        let turned = self.stage.worker.play(done);
        if let Err(why) = turned {
            assert!(may_end, "it ends: {why}");
            return Err(Ended);
        }
        if self.stage.worker.is_over() {
            assert!(may_end, "it thinks that the device is gone");
            return Err(Ended);
        }
        for entry in self.stage.worker.pushed() {
            self.pushed(&entry);
        }
        let asked = std::mem::take(&mut *self.stage.asked.borrow_mut());
        for io in asked {
            self.submitted(&io);
        }
        for (slot, given) in &self.given {
            let now = matches!(given.due, Due::Answer(_) | Due::Again(_));
            assert!(!now, "slot {slot} is forgotten: {given:?}");
        }
        Ok(())
    }

    /// An answer to the kernel.
    fn pushed(&mut self, entry: &Sqe) {
        let mut bytes = Bytes(entry);
        if bytes.u8() != URING_CMD {
            return;
        }
        bytes.take(7);
        let code = bytes.u32();
        bytes.take(4);
        let register = bytes.word(8);
        bytes.take(8);
        let name = bytes.word(8);
        bytes.take(8);
        let (queue, tag, result) = (bytes.word(2) as u16, bytes.word(2) as u16, bytes.i32());
        assert_eq!(code, COMMIT, "nothing else is asked of the kernel");
        assert!(queue < self.queues && tag < DEPTH, "queue {queue}, tag {tag}");
        let slot = queue * TAGS + tag;
        assert_eq!(name, (Of::Front as u64) << 56 | u64::from(slot));
        assert!(!self.zero_copy || register == 1 << 16 | u64::from(slot));
        // What was refused at once was never with the server.
        let Some(given) = self.given.remove(&slot) else {
            panic!("slot {slot} is answered {result}, and the kernel has it")
        };
        let without_data = !given.registered && self.copied.lacks(given.wants);
        match given.due {
            Due::Answer(wanted) => assert_eq!(result, wanted, "slot {slot}: {given:?}"),
            Due::Turn if without_data => assert_eq!(result, -EIO, "slot {slot}: {given:?}"),
            _ => panic!("slot {slot} is answered {result} too early: {given:?}"),
        }
    }

    /// Something that the disk is asked for.
    fn submitted(&mut self, io: &Io) {
        let Some(handle) = self.stage.worker.request_of(io.id) else {
            panic!("{io:?} is nobody's")
        };
        let slot = handle as u16;
        let was = self.at_disk.insert(io.id, slot);
        assert_eq!(was, None, "{io:?} has the name of another");
        let Some(given) = self.given.get_mut(&slot) else {
            panic!("{io:?} is of slot {slot}, which the kernel has")
        };
        let done = match given.due {
            Due::Turn => 0,
            Due::Again(done) => done,
            due => panic!("{io:?} is of slot {slot}, of which {due:?} is due"),
        };
        let wants = given.wants;
        let part = Wants { offset: wants.offset + u64::from(done), len: wants.len - done, ..wants };
        let asked = Wants { op: io.op, fua: io.fua, offset: io.offset, len: io.len };
        assert_eq!(asked, part, "slot {slot}");
        let base = match io.data {
            Data::None => None,
            Data::Registered(buffer, from) => {
                assert!(
                    given.registered && (buffer, from) == (slot, done),
                    "{io:?} of slot {slot}"
                );
                None
            }
            Data::At(at) => {
                assert!(!given.registered, "{io:?} of slot {slot} is registered");
                let base = at as usize - done as usize;
                assert!(
                    base.is_multiple_of(4096) && u64::from(wants.len) <= PART,
                    "{io:?} in its buffer"
                );
                Some(base)
            }
        };
        assert_eq!(given.moves(), !matches!(io.data, Data::None), "{io:?}");
        given.due = Due::Done(done, base);
        if let Some(base) = base {
            let bases = self.given.values().filter_map(|given| match given.due {
                Due::Done(_, base) => base,
                _ => None,
            });
            let near = bases.filter(|other| other.abs_diff(base) < PART as usize);
            assert_eq!(near.count(), 1, "a buffer of two requests");
        }
    }

    /// The kernel says that a fetch is done.
    fn fetched(&mut self, name: u64, result: i32) -> Result<(), Ended> {
        let slot = u16::try_from(name).ok().filter(|slot| slot / TAGS < self.queues);
        let fetches = slot.filter(|slot| !self.given.contains_key(slot));
        if let Some(slot) = fetches
            && result == 0
        {
            let words = self.words.get(&slot).copied().unwrap_or_default();
            let (wants, due) = match wants(words) {
                Ok(wants) => (wants, Due::Turn),
                Err(errno) => {
                    let wants = Wants { op: Op::Flush, fua: false, offset: 0, len: 0 };
                    (wants, Due::Answer(-errno))
                }
            };
            let registered = self.zero_copy && words.0 >> 17 & 1 == 0;
            let mut given = Given { wants, registered, due };
            given.registered &= given.moves();
            self.given.insert(slot, given);
        }
        self.turn(&[(Of::Front, name, result)], fetches.is_some() && result != 0)
    }

    /// The disk says how one ended.
    fn completed(&mut self, id: u64, result: i32) -> Result<(), Ended> {
        let Some(slot) = self.at_disk.remove(&id) else { return Ok(()) };
        let copied = self.copied;
        let Some(given) = self.given.get_mut(&slot) else { panic!("slot {slot} at the disk") };
        let Due::Done(done, base) = given.due else { panic!("slot {slot} at the disk: {given:?}") };
        let left = given.wants.len - done;
        if let Some(base) = base {
            // SAFETY: the server has promised this memory until now, and nobody else has it.
            let data = unsafe {
                let at = (base + done as usize) as *mut u8;
                std::slice::from_raw_parts_mut(at, left as usize)
            };
            match given.wants.op {
                Op::Read => data.fill(0x5a),
                _ => {
                    assert!(data.iter().all(|byte| *byte == 0), "what is written is the request's");
                }
            }
        }
        let failed = match u32::try_from(result) {
            Err(_) if result < -4095 => Some(EIO),
            Err(_) => Some(-result),
            Ok(part) if given.moves() && (part == 0 || part > left) => Some(EIO),
            Ok(_) => None,
        };
        given.due = match failed {
            // Once more, with memory of ours.
            Some(EIO | EINVAL) if given.registered => {
                given.registered = false;
                let errno = failed.unwrap_or(EIO);
                if copied.lacks(given.wants) { Due::Answer(-errno) } else { Due::Again(0) }
            }
            Some(errno) => Due::Answer(-errno),
            None if !given.moves() => Due::Answer(0),
            None if result.unsigned_abs() < left => Due::Again(done + result.unsigned_abs()),
            None if given.wants.op == Op::Read && !given.registered && copied == Copied::NoRoom => {
                Due::Answer(-ENOSPC)
            }
            None => Due::Answer(given.wants.len.cast_signed()),
        };
        self.turn(&[(Of::Backend, id, result)], false)
    }

    /// A question of reservd's, and the answer.
    fn ask(&mut self, ask: Ask, body: &[u8]) -> Option<(Answer, Vec<u8>)> {
        // SAFETY: the structure has no padding.
        let mut packet = unsafe { wire::bytes_of(&ask) }.to_vec();
        packet.extend(body);
        self.ask_raw(&packet)
    }

    fn ask_raw(&mut self, packet: &[u8]) -> Option<(Answer, Vec<u8>)> {
        let (answer, _) = self.stage.worker.asked(packet)?;
        let (head, body) = answer.split_at(size_of::<Answer>());
        // SAFETY: plain numbers.
        let head = unsafe { wire::of_bytes::<Answer>(head) };
        let Some(head) = head else { panic!("an answer has a head") };
        assert!(head.answer >= -4095, "{head:?}");
        Some((head, body.to_vec()))
    }

    fn nodes(&mut self) -> Vec<u8> {
        let Some((head, body)) = self.ask(Ask { what: what::SAMPLE, ..Ask::default() }, &[]) else {
            panic!("there is a tree")
        };
        assert!(head.answer == 0 && head.count as usize * size_of::<Node>() == body.len());
        body
    }

    fn each_node(&mut self) -> Vec<Node> {
        let bytes = self.nodes();
        // SAFETY: plain numbers.
        bytes
            .chunks_exact(size_of::<Node>())
            .filter_map(|part| unsafe { wire::of_bytes(part) })
            .collect()
    }

    /// The book and the tree have the same nodes, and as many requests wait in them as are not at
    /// the disk, but for those that are about to be.
    fn agree(&mut self) {
        let waits = self.given.values().filter(|given| given.due == Due::Turn).count();
        let nodes = self.each_node();
        let queued: u64 = nodes.iter().map(|node| u64::from(node.queued)).sum();
        assert!(queued <= waits as u64, "{queued} wait in the tree, and {waits} in all");
        for index in 2..12 {
            let id = self.node(index);
            let (book, tree) = self.stage.worker.knows(id);
            assert_eq!(book, tree, "{id:#x}: the book knows it, the tree");
        }
    }

    fn edit(&mut self, batch: &RsBatch) -> i32 {
        // SAFETY: the structure has no padding.
        let bytes = unsafe { wire::bytes_of(batch) }.to_vec();
        let before = self.nodes();
        let asked = self.ask(Ask { what: what::EDIT, ..Ask::default() }, &bytes);
        let Some((head, body)) = asked else { panic!("a batch is answered") };
        assert_eq!(body.len(), size_of::<RsBatch>());
        if head.answer != 0 {
            assert_eq!(
                before,
                self.nodes(),
                "it is refused, {}, and changes something",
                head.answer
            );
            return head.answer;
        }
        let edits = &batch.op[..(batch.count as usize).min(wire::BATCH_MAX)];
        self.changed |= batch.seq != 0
            || edits.iter().any(|edit| {
                edit.code != op::CREATE && edit.code != op::RESET && [ROOT, Q0].contains(&edit.node)
            });
        self.agree();
        0
    }

    fn edits(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Ended> {
        let mut batch = RsBatch { count: 1 + u32::from(bytes.u8() % 4), ..RsBatch::default() };
        for at in 0..batch.count as usize {
            let (code, node) = (u32::from(bytes.u8() % 13), bytes.u8());
            let (parent, a, b) = (bytes.u8(), bytes.number(), bytes.number());
            let (node, parent) = (self.node(node), self.node(parent));
            batch.op[at] = RsOp { code, node, parent, a, b, ..RsOp::default() };
        }
        self.edit(&batch);
        self.turn(&[], false)
    }

    /// A packet as it stands; a batch's end is zeros.
    fn packet(&mut self, packet: &[u8]) -> Result<(), Ended> {
        // SAFETY: plain numbers.
        let ask = unsafe { wire::of_bytes::<Ask>(packet) };
        // A path is opened: that is the kernel's to look at.
        if ask.is_some_and(|ask| ask.what == what::OWNERS) {
            return Ok(());
        }
        let mut packet = packet.to_vec();
        if ask.is_some_and(|ask| ask.what == what::EDIT) {
            packet.resize(packet.len().max(size_of::<Ask>() + size_of::<RsBatch>()), 0);
        }
        let answer = self.ask_raw(&packet);
        assert_eq!(answer.is_some(), ask.is_some(), "what is a question is answered");
        let did = |(head, _): &(Answer, Vec<u8>)| head.answer == 0;
        self.changed |=
            ask.is_some_and(|ask| ask.what == what::EDIT) && answer.as_ref().is_some_and(did);
        self.turn(&[], false)
    }

    fn question(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Ended> {
        let (number, of) = (u32::from(bytes.u8() % 11), bytes.u8());
        let a = if of < 128 { self.node(of) } else { bytes.number() };
        let until = if of & 1 == 0 { 0 } else { bytes.u32() };
        if ![what::EDIT, what::OWNERS].contains(&number) {
            let answer = self.ask(Ask { what: number, until, a }, &[]);
            assert!(answer.is_some(), "a question is answered");
        }
        self.turn(&[], false)
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Ended> {
        match bytes.u8() % 8 {
            0 | 1 => {
                let (slot, form) = (self.slot(bytes.u8()), bytes.u8());
                let (words, address) = if form < 128 {
                    let op = [0, 1, 2, 3, 5, 4, 1, 0][usize::from(form % 8)];
                    let [fua, kept, copied] = [3, 4, 5].map(|bit| u32::from(form >> bit & 1));
                    let op_flags = op | fua << 13 | kept << 15 | copied << 17;
                    ((op_flags, bytes.word(2) as u32, bytes.word(4)), 0)
                } else {
                    ((bytes.u32(), bytes.u32(), bytes.word(8)), bytes.word(8))
                };
                // The slot of a request that is with the server the kernel does not write.
                if !self.given.contains_key(&slot) {
                    self.words.insert(slot, words);
                    // SAFETY: the server's front end is there.
                    unsafe { self.described.put(slot, words, address) };
                }
                self.fetched(slot.into(), 0)
            }
            2 => {
                let (which, how) = (usize::from(bytes.u8()), bytes.u8());
                let all = self.at_disk.len().max(1);
                let Some((&id, &slot)) = self.at_disk.iter().nth(which % all) else {
                    return self.turn(&[], false);
                };
                let left = self.left(slot);
                let result = match how % 8 {
                    0..=2 => left.cast_signed(),
                    3 => (bytes.u32() % left.max(1)).cast_signed(),
                    4 => -EIO,
                    5 => -EINVAL,
                    6 => left.saturating_add(bytes.u8().into()).cast_signed(),
                    _ => bytes.i32(),
                };
                self.completed(id, result)
            }
            3 => {
                let of = bytes.u8();
                let (name, result) = (bytes.number() & ((1 << 56) - 1), bytes.i32());
                match of % 4 {
                    0 => self.turn(&[(Of::Nobody, name, result)], false),
                    1 => self.fetched(name, result),
                    2 if !self.at_disk.contains_key(&name) => {
                        self.turn(&[(Of::Backend, name, result)], false)
                    }
                    _ => self.turn(&[(Of::Readable, name, result)], false),
                }
            }
            4 => {
                let len = usize::from(bytes.u8());
                self.packet(bytes.take(len))
            }
            5 => self.edits(bytes),
            6 => {
                NOW.set(NOW.get() + bytes.number() % (1 << 40));
                self.turn(&[], false)
            }
            _ => self.question(bytes),
        }
    }

    /// What is left of a request that the disk has.
    fn left(&self, slot: u16) -> u32 {
        match self.given.get(&slot) {
            Some(Given { due: Due::Done(done, _), wants, .. }) => wants.len - done,
            _ => panic!("slot {slot} is at the disk"),
        }
    }

    /// Whatever waits is served.
    fn drain(&mut self) -> Result<(), Ended> {
        for _ in 0..100_000 {
            if self.given.is_empty() {
                assert!(self.at_disk.is_empty() && self.stage.worker.is_at_rest(), "at rest");
                return Ok(());
            }
            if let Some((&id, &slot)) = self.at_disk.first_key_value() {
                self.completed(id, self.left(slot).cast_signed())?;
                continue;
            }
            let at = self.stage.worker.wakes_at();
            assert!(at > 0, "nobody serves {:?}", self.given);
            NOW.set(at.max(NOW.get() + 1));
            self.turn(&[], false)?;
        }
        panic!("{:?} wait for ever", self.given)
    }

    /// The tree is as it was, or the next input has another one.
    fn leave(mut self) -> Option<Stage> {
        loop {
            let nodes = self.each_node();
            let before = nodes.len();
            for node in nodes.iter().filter(|node| ![ROOT, Q0].contains(&node.id)) {
                if node.dying != 0 {
                    self.ask(Ask { what: what::COLLECT, a: node.id, ..Ask::default() }, &[]);
                    continue;
                }
                let mut batch = RsBatch { count: 1, ..RsBatch::default() };
                batch.op[0] = RsOp { code: op::DELETE, node: node.id, ..RsOp::default() };
                self.edit(&batch);
            }
            let after = self.each_node().len();
            if after == 2 {
                break;
            }
            assert!(after < before, "nodes that nobody can delete: {nodes:?}");
        }
        self.stage.generation += 1;
        (!self.changed && NOW.get() < NOW_MAX).then_some(self.stage)
    }
}

/// The device that the control device tells of.
fn device(bytes: &mut Bytes<'_>) -> Option<(Ublk, Offered)> {
    let how = bytes.u8();
    let copied = [Copied::Well, Copied::Well, Copied::NoneToWrite, Copied::NoRoom];
    let copied = copied[usize::from(how >> 1 & 3)];
    let mut info = Info {
        queues: u16::from(how >> 3 & 3) + 1,
        depth: DEPTH,
        flags: if how & 1 == 1 { flag::AUTO_BUF_REG } else { 0 },
        ..Info::default()
    };
    if how & 0x80 != 0 {
        (info.queues, info.depth) = (bytes.word(2) as u16, bytes.word(2) as u16);
        info.flags = bytes.word(8);
    }
    let ours = (1..=4).contains(&info.queues) && info.depth == DEPTH;
    let played = Ublk::played(&info, copied.device().ok()?);
    assert_eq!(played.is_ok(), ours, "{info:?}");
    let (front, described) = played.ok()?;
    let zero_copy = info.flags & flag::AUTO_BUF_REG != 0;
    Some((front, Offered { described, queues: info.queues, zero_copy, copied, how }))
}

/// What of a play stands before its server.
struct Offered {
    described: Described,
    queues: u16,
    zero_copy: bool,
    copied: Copied,
    how: u8,
}

/// A device, and what happens to it.
pub(crate) fn ublk(data: &[u8]) {
    let mut bytes = Bytes(data);
    let Some((mut front, before)) = device(&mut bytes) else { return };
    // Taken: who panics leaves none.
    let there = STAGE.take();
    let generation = there.as_ref().map_or(1, |stage| stage.generation);
    if before.how & 0x20 != 0 {
        use reserv_blockd::front::Front as _;
        let Ok(mut owners) = Owners::blank() else { return };
        for slot in (0..before.queues * TAGS).filter(|slot| slot % TAGS < TAGS_USED) {
            let index = u64::from(slot % TAGS) % 10;
            let queue = if index < 2 { index } else { generation << 32 | index };
            let priority = (slot % TAGS).wrapping_mul(0x1003);
            owners.put(slot.into(), Owner { queue, priority });
        }
        front.set_owners(owners);
    }
    let stage = match there {
        Some(mut stage) => {
            stage.worker.offers(Box::new(front));
            Some(stage)
        }
        None => Stage::new(front),
    };
    let Some(stage) = stage else { return };
    stage.arm.set(before.how & 0x40 != 0);
    let Offered { described, queues, zero_copy, copied, .. } = before;
    let (words, given, at_disk) = <(BTreeMap<_, _>, BTreeMap<_, _>, BTreeMap<_, _>)>::default();
    let mut play =
        Play { stage, described, queues, zero_copy, copied, words, given, at_disk, changed: false };
    play.ask(Ask { what: what::DEPTH, a: 8, ..Ask::default() }, &[]);
    let played = (0..STEPS)
        .try_for_each(|_| if bytes.0.is_empty() { Ok(()) } else { play.step(&mut bytes) });
    let ended = played.and_then(|()| play.drain());
    // Of one that has ended, with its requests, the kernel makes another.
    if ended.is_ok() {
        STAGE.set(play.leave());
    }
}
