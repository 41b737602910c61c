// SPDX-License-Identifier: MIT OR Apache-2.0
//! The worker: one thread that waits for requests, completions and reservd, and moves them on.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use crate::backend::{self, Backend, FileBackend, Io};
use crate::book::put_text;
use crate::buffer::Pool;
use crate::front::fuse::PART;
use crate::front::offer::{self, Device, Ended};
use crate::front::ublk::control;
use crate::front::{Arrived, Front, Held, Op};
use crate::log::say;
use crate::owners::Owners;
use crate::scheduler::{Scheduler, Ticket};
use crate::shape::shape;
use crate::wire::{self, Answer, Ask, Hello, RsBatch, what};
use crate::{sysfs, wire::Node};

/// Most that can be asked for.
pub const DEPTH_MAX: u32 = 256;
/// How long a new worker waits for what a dead one has under way.
const SETTLE_MAX: Duration = Duration::from_secs(10);
/// The process' end, as the keeper understands it: stopped on request.
pub const EXIT_STOPPED: i32 = 0;

/// Where everything is.
#[derive(Clone, Debug)]
pub struct Places {
    /// What the data are on.
    pub target: PathBuf,
    /// The disk that it is to be as slow as, if any.
    pub model: Option<backend::Model>,
    /// The FUSE file.
    pub image: PathBuf,
    /// The book.
    pub book: PathBuf,
    /// The socket.
    pub socket: PathBuf,
    prefix: PathBuf,
}

impl Places {
    /// All below one prefix.
    pub fn new(target: &std::path::Path, prefix: &std::path::Path) -> Self {
        let place = |end: &str| {
            let mut path = prefix.as_os_str().to_owned();
            path.push(end);
            PathBuf::from(path)
        };
        Self {
            target: target.to_owned(),
            model: None,
            image: place(".img"),
            book: place(".book"),
            socket: place(".socket"),
            prefix: prefix.to_owned(),
        }
    }

    /// Of a device of ublk that is ours.
    pub fn mark(&self) -> u64 {
        control::mark(&self.prefix)
    }
}

/// A request at the backend.
struct Running {
    request: Arrived,
    /// The scheduler's, where it was its turn.
    ticket: Option<Ticket>,
    /// Bytes of it that are done.
    done: u32,
}

/// See the head of this file.
pub struct Worker {
    front: Box<dyn Front>,
    backend: Box<dyn Backend>,
    scheduler: Scheduler,
    running: BTreeMap<u64, Running>,
    /// Of the running ones, those that count against the depth.
    scheduled: u32,
    depth: u32,
    pool: Pool,
    listener: OwnedFd,
    client: Option<OwnedFd>,
    next_id: u64,
    below: (u32, u32),
    /// From the thread that sets the device up.
    device: Option<Receiver<io::Result<Device>>>,
    /// The front end has no device any more.
    over: bool,
    /// Somebody looks at more than the descriptors.
    hurry: bool,
    /// A full scheduler or a cap: when to look again.
    wake_at: u64,
}

/// Nanoseconds of the monotonic clock.
pub fn now() -> u64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: one structure is written.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut at) };
    u64::try_from(at.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(at.tv_nsec).unwrap_or(0)
}

/// What has happened, of poll().
#[expect(clippy::struct_excessive_bools, reason = "one for each descriptor")]
struct Ready {
    front: bool,
    backend: bool,
    listener: bool,
    client: bool,
}

impl Worker {
    /// With what the keeper holds. `again`: there was a worker before.
    pub fn new(places: &Places, held: Held, listener: OwnedFd, again: bool) -> Result<Self, String> {
        let wrong = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
        let target = places.target.display().to_string();
        let below = FileBackend::device(&places.target).map_err(|e| wrong(&target, &e))?;
        if again {
            settle(below);
        }
        let backend = backend::open(&places.target, places.model).map_err(|e| wrong(&target, &e))?;
        let book = if again {
            crate::book::Book::open(&places.book)
        } else {
            crate::book::Book::create(&places.book, 100_000)
        };
        let mut book = book.map_err(|e| wrong(&places.book.display().to_string(), &e))?;
        let is_disk = std::fs::metadata(&places.target).is_ok_and(|found| is_device(&found));
        if !again && is_disk {
            take_elevator(&mut book, below);
        }
        let depth = if book.depth() == 0 { backend.depth() } else { book.depth() };
        let shape = shape(&places.target, is_disk, below, backend.as_ref());
        let (mut front, device) =
            offer::offer(held, &shape, &places.image, places.mark(), (&book.device().0, again))
                .map_err(|e| wrong("front end", &e))?;
        let (owners_path, first) = book.owners();
        if !owners_path.is_empty() {
            match Owners::open(&owners_path, first) {
                Ok(owners) => front.set_owners(owners),
                Err(error) => say(format_args!("{owners_path}: {error}; requests have no owners")),
            }
        }
        let mut scheduler = Scheduler::new(book)?;
        scheduler.set_device(depth, backend.arm());
        Ok(Self {
            front,
            backend,
            scheduler,
            running: BTreeMap::new(),
            scheduled: 0,
            depth,
            pool: Pool::new(PART, 64),
            listener,
            client: None,
            next_id: 1,
            below,
            device,
            over: false,
            hurry: false,
            wake_at: 0,
        })
    }

    fn end_of_device(&mut self) -> Result<(), String> {
        let Some(receive) = &self.device else { return Ok(()) };
        match receive.try_recv() {
            Err(TryRecvError::Empty) => Ok(()),
            Ok(Ok((name, dev))) => {
                self.scheduler.book.set_device(&name, dev);
                self.device = None;
                Ok(())
            }
            Ok(Err(error)) => Err(format!("{} device: {error}", self.front.kind())),
            Err(error) => Err(format!("{} device: {error}", self.front.kind())),
        }
    }

    fn wait(&mut self) -> io::Result<Ready> {
        let client = self.client.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let front = if self.over { -1 } else { self.front.fd() };
        let fds: [RawFd; 4] = [front, self.backend.fd(), self.listener.as_raw_fd(), client];
        let mut polled = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        let soon = self.device.is_some() || self.hurry;
        let left = if soon { 5_000_000 } else { self.wake_at.saturating_sub(now()).min(1_000_000_000) };
        let timeout =
            libc::timespec { tv_sec: 0, tv_nsec: i64::try_from(left).unwrap_or(0).min(999_999_999) };
        let for_ever = !soon && self.wake_at == 0;
        let timeout = if for_ever { std::ptr::null() } else { &raw const timeout };
        // SAFETY: four structures, and a time that outlives the call, or none.
        if unsafe { libc::ppoll(polled.as_mut_ptr(), 4, timeout, std::ptr::null()) } < 0 {
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EINTR) {
                return Err(error);
            }
        }
        let [front, backend, listener, client] = polled.map(|p| p.revents != 0);
        Ok(Ready { front, backend, listener, client })
    }

    /// What has happened is done, except what reservd says.
    fn turn(&mut self) -> Result<Ready, String> {
        let ready = self.wait().map_err(|e| format!("poll: {e}"))?;
        self.end_of_device()?;
        if ready.backend {
            let mut completed = Vec::new();
            self.backend.completed(&mut completed);
            for (id, result) in completed {
                self.completed(id, result).map_err(|e| format!("answer: {e}"))?;
            }
        }
        if ready.front {
            let mut arrived = Vec::new();
            match self.front.receive(&mut self.pool, &mut arrived) {
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => self.over = true,
                other => other.map_err(|e| format!("receive: {e}"))?,
            }
            for request in arrived {
                self.arrived(request).map_err(|e| format!("a request: {e}"))?;
            }
        }
        self.dispatch().map_err(|e| format!("dispatch: {e}"))?;
        // One call for all that this turn has brought.
        self.backend.enter().map_err(|e| format!("backend: {e}"))?;
        self.front.submit().map_err(|e| format!("answers: {e}"))?;
        if let poison @ 1.. = self.scheduler.poison() {
            // The next worker plants the tree anew, and all requests come again.
            return Err(format!(
                "the tree is inconsistent: reason {} at line {}",
                poison >> 32,
                poison & 0xffff_ffff
            ));
        }
        Ok(ready)
    }

    /// Until the disk was given back.
    pub fn run(&mut self) -> Result<(), String> {
        loop {
            let ready = self.turn()?;
            if self.over {
                return Err("the device was ended by somebody".into());
            }
            if ready.client && self.talk() {
                return Ok(());
            }
            if ready.listener {
                // SAFETY: no address is asked for.
                let fd = unsafe {
                    libc::accept4(
                        self.listener.as_raw_fd(),
                        std::ptr::null_mut(),
                        std::ptr::null_mut(),
                        libc::SOCK_CLOEXEC,
                    )
                };
                if fd >= 0 {
                    // The last who comes is talked to: the one before is a reservd that died. SAFETY: a new descriptor.
                    self.client = Some(unsafe { OwnedFd::from_raw_fd(fd) });
                }
            }
        }
    }

    fn arrived(&mut self, request: Arrived) -> io::Result<()> {
        let end = request.offset.checked_add(request.len.into());
        if end.is_none_or(|end| end > self.backend.size()) {
            return self.front.answer(&request, Err(libc::EIO));
        }
        if request.op == Op::Flush {
            // Waits for nobody: what it is about was acknowledged, so it is at the backend already.
            return self.begin(request, None);
        }
        self.scheduler.arrive(request, now());
        Ok(())
    }

    fn dispatch(&mut self) -> io::Result<()> {
        self.wake_at = 0;
        while self.scheduled < self.depth {
            match self.scheduler.dispatch(now()) {
                Ok((request, ticket)) => {
                    self.scheduled += 1;
                    self.begin(request, Some(ticket))?;
                }
                Err(at) => {
                    self.wake_at = at;
                    break;
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, mut request: Arrived, ticket: Option<Ticket>) -> io::Result<()> {
        if request.op == Op::Read {
            request.buffer = Some(self.pool.take());
        } else if request.op == Op::Write && request.buffer.is_none() {
            let mut buffer = self.pool.take();
            if let Err(error) = self.front.load(&request, &mut buffer) {
                say(format_args!("the data of a write at {}: {error}", request.offset));
                self.pool.give(buffer);
                self.release(ticket);
                return self.front.answer(&request, Err(libc::EIO));
            }
            request.buffer = Some(buffer);
        }
        let id = self.next_id;
        self.next_id += 1;
        self.running.insert(id, Running { request, ticket, done: 0 });
        self.submit(id)
    }

    /// A dispatched request is not under way any more.
    fn release(&mut self, ticket: Option<Ticket>) {
        if let Some(ticket) = ticket {
            self.scheduled -= 1;
            self.scheduler.done(ticket, now());
        }
    }

    fn submit(&mut self, id: u64) -> io::Result<()> {
        let Some(Running { request, done, .. }) = self.running.get(&id) else { return Ok(()) };
        let data = request.buffer.as_ref().map_or(std::ptr::null_mut(), |b| {
            // SAFETY: a request is no longer than a buffer (`Front::receive`), and `done` no more than its length.
            unsafe { b.at().add(*done as usize) }
        });
        let io = Io {
            id,
            op: request.op,
            fua: request.fua,
            offset: request.offset + u64::from(*done),
            len: request.len - done,
            data,
        };
        // SAFETY: the buffer stays in `running` until the completion.
        unsafe { self.backend.submit(&io) }
    }

    fn completed(&mut self, id: u64, result: i32) -> io::Result<()> {
        let Some(running) = self.running.get_mut(&id) else { return Ok(()) };
        let moves = matches!(running.request.op, Op::Read | Op::Write);
        if moves && let Ok(part @ 1..) = u32::try_from(result) {
            running.done += part;
            if running.done < running.request.len {
                return self.submit(id);
            }
        }
        let answer = match result {
            error @ ..0 => Err(-error),
            0 if moves => Err(libc::EIO),
            _ => Ok(()),
        };
        let Some(Running { mut request, ticket, .. }) = self.running.remove(&id) else { return Ok(()) };
        self.release(ticket);
        if let Err(errno) = answer
            && errno != libc::EOPNOTSUPP
        {
            say(format_args!(
                "{:?} of {} bytes at {}: {}",
                request.op,
                request.len,
                request.offset,
                io::Error::from_raw_os_error(errno)
            ));
        }
        let sent = self.front.answer(&request, answer);
        if let Some(buffer) = request.buffer.take() {
            self.pool.give(buffer);
        }
        sent
    }

    /// One question. Answers whether that was the end.
    fn talk(&mut self) -> bool {
        let Some(client) = &self.client else { return false };
        let fd = client.as_raw_fd();
        let mut packet = vec![0_u8; 64 * 1024];
        // SAFETY: writable memory, as long as it says.
        let got = unsafe { libc::recv(fd, packet.as_mut_ptr().cast(), packet.len(), libc::MSG_DONTWAIT) };
        let Some(got) = usize::try_from(got).ok().filter(|&got| got > 0) else {
            self.client = None;
            return false;
        };
        let (head, body) = packet[..got].split_at(got.min(size_of::<Ask>()));
        // SAFETY: plain numbers.
        let Some(ask) = (unsafe { wire::of_bytes::<Ask>(head) }) else {
            self.client = None;
            return false;
        };
        let (answer, body) = self.answer(ask, body);
        // SAFETY: the structure has no padding.
        let mut out = unsafe { wire::bytes_of(&answer) }.to_vec();
        out.extend(body);
        // SAFETY: readable memory, as long as it says.
        let sent = unsafe { libc::send(fd, out.as_ptr().cast(), out.len(), libc::MSG_NOSIGNAL) };
        if sent < 0 {
            self.client = None;
        }
        ask.what == what::STOP && ask.a == 0 && answer.answer == 0
    }

    fn answer(&mut self, ask: Ask, body: &[u8]) -> (Answer, Vec<u8>) {
        let only = |answer| (Answer { answer, ..Answer::default() }, Vec::new());
        let nodes = |nodes: Vec<Node>, next: usize| {
            let mut bytes = Vec::new();
            for node in &nodes {
                // SAFETY: the structure has no padding.
                bytes.extend(unsafe { wire::bytes_of(node) });
            }
            let count = u32::try_from(nodes.len()).unwrap_or(0);
            (Answer { answer: 0, count, a: next as u64 }, bytes)
        };
        match ask.what {
            what::HELLO => {
                let hello = self.hello();
                // SAFETY: the structure has no padding.
                (Answer { count: 1, ..Answer::default() }, unsafe { wire::bytes_of(&hello) }.to_vec())
            }
            what::EDIT => {
                // SAFETY: plain numbers, which the core checks.
                let Some(mut batch) = (unsafe { wire::of_bytes::<RsBatch>(body) }) else {
                    return only(-libc::EINVAL);
                };
                let answer = self.scheduler.edit(&mut batch, now());
                // SAFETY: the structure has no padding.
                (Answer { answer, count: 1, a: 0 }, unsafe { wire::bytes_of(&batch) }.to_vec())
            }
            what::SAMPLE => {
                let (found, next) = self.scheduler.sample(usize::try_from(ask.a).unwrap_or(usize::MAX));
                nodes(found, next)
            }
            what::SAMPLE_ONE => match self.scheduler.sample_one(ask.a) {
                Some(node) => nodes(vec![node], 0),
                None => only(-libc::ESTALE),
            },
            what::COLLECT => only(self.scheduler.collect(ask.a, now())),
            what::OWNERS => {
                let path = String::from_utf8_lossy(body).into_owned();
                match Owners::open(&path, ask.a) {
                    Ok(owners) => {
                        self.front.set_owners(owners);
                        self.scheduler.book.set_owners(&path, ask.a);
                        only(0)
                    }
                    Err(error) => only(-error.raw_os_error().unwrap_or(libc::EIO)),
                }
            }
            what::DEPTH => match u32::try_from(ask.a) {
                Ok(depth @ 1..=DEPTH_MAX) => {
                    self.depth = depth;
                    self.scheduler.set_device(depth, self.backend.arm());
                    self.scheduler.book.set_depth(depth);
                    only(0)
                }
                _ => only(-libc::EINVAL),
            },
            what::STOP => self.stop(ask.a == 1),
            _ => only(-libc::EINVAL),
        }
    }

    fn hello(&self) -> Hello {
        let (device, dev) = self.scheduler.book.device();
        let mut hello = Hello {
            version: wire::VERSION,
            pid: std::process::id(),
            dev,
            seq: self.scheduler.book.seq(),
            size: self.backend.size(),
            poison: self.scheduler.poison(),
            restarts: self.scheduler.book.restarts(),
            depth: self.depth,
            strays: self.scheduler.strays,
            name: [0; 32],
            front: [0; 16],
        };
        put_text(&mut hello.name, &device);
        put_text(&mut hello.front, self.front.kind());
        hello
    }

    /// The device goes.
    fn give_back(&mut self, device: &str) -> io::Result<()> {
        let receive = match offer::end(device)? {
            Ended::Now => return Ok(()),
            Ended::Soon(receive) => receive,
        };
        // The kernel may write what its page cache still has, and waits for that.
        let stopped = loop {
            match receive.recv_timeout(Duration::from_millis(1)) {
                Ok(stopped) => break stopped,
                Err(_) => self.turn_soon()?,
            }
        };
        self.over = stopped.is_ok();
        stopped
    }

    /// A turn that does not wait for long.
    fn turn_soon(&mut self) -> io::Result<()> {
        self.hurry = true;
        let turned = self.turn().map(drop).map_err(io::Error::other);
        self.hurry = false;
        turned
    }

    /// The device goes, if nobody uses it; else who does is told.
    fn stop(&mut self, only_ask: bool) -> (Answer, Vec<u8>) {
        let (device, dev) = self.scheduler.book.device();
        let refused =
            |errno: i32, text: String| (Answer { answer: -errno, ..Answer::default() }, text.into_bytes());
        if !device.is_empty() {
            let keeper = std::os::unix::process::parent_id();
            let users = sysfs::users(&device, dev, &[keeper]);
            if !users.is_empty() {
                return refused(libc::EBUSY, format!("/dev/{device} is {}", users.join(", ")));
            }
            if !self.scheduler.is_idle() || !self.running.is_empty() {
                return refused(libc::EBUSY, format!("/dev/{device} has requests under way"));
            }
            if only_ask {
                return (Answer::default(), Vec::new());
            }
            if let Err(error) = self.give_back(&device) {
                return refused(error.raw_os_error().unwrap_or(libc::EIO), format!("/dev/{device}: {error}"));
            }
        }
        let elevator = if only_ask { String::new() } else { self.scheduler.book.elevator() };
        if !elevator.is_empty()
            && let Err(error) = sysfs::set_elevator(self.below.0, self.below.1, &elevator)
        {
            say(format_args!("the elevator {elevator} was not put back: {error}"));
        }
        (Answer::default(), Vec::new())
    }
}

fn is_device(found: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    found.file_type().is_block_device()
}

/// Two policies over one device give neither's promise: the device below has none while it is ours.
fn take_elevator(book: &mut crate::book::Book, (major, minor): (u32, u32)) {
    let Some(was) = sysfs::elevator(major, minor).filter(|was| was != "none") else { return };
    match sysfs::set_elevator(major, minor, "none") {
        Ok(()) => book.set_elevator(&was),
        Err(error) => say(format_args!("the elevator {was} stays: {error}")),
    }
}

/// What a dead worker had begun at the device may still be under way, and must not come after what is sent again.
fn settle((major, minor): (u32, u32)) {
    let start = Instant::now();
    while sysfs::inflight(major, minor) > 0 {
        if start.elapsed() > SETTLE_MAX {
            say(format_args!(
                "the device below is never idle: what the last worker began may still be under way"
            ));
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
