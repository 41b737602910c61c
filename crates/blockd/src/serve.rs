// SPDX-License-Identifier: MIT OR Apache-2.0
//! The worker: one thread that waits for requests, completions and reservd, and moves them on.

use std::fmt::Arguments;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use crate::backend::{self, Backend, Data, FileBackend, Io};
use crate::buffer::Pool;
use crate::front::fuse::PART;
use crate::front::offer::{self, Device};
use crate::front::ublk::control;
use crate::front::{Arrived, Front, Held, Op};
use crate::log::say;
use crate::owners::Owners;
use crate::private;
use crate::ring::{Of, Ring, errno_of};
use crate::scheduler::{Scheduler, Ticket};
use crate::shape::shape;
use crate::sysfs;
use crate::wire::Copies;

mod ask;
mod played;

use reserv_facts::place::BLOCK_SOCKET;
pub use reserv_facts::tree::DISK_DEPTH_MAX as DEPTH_MAX;
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
    /// Data are copied though they need not be.
    pub copy: bool,
    /// Registered buffers that there may be; requests without one are copied.
    pub buffers: u32,
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
            copy: false,
            buffers: u32::MAX,
            image: place(".img"),
            book: place(".book"),
            socket: place(BLOCK_SOCKET),
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
    /// Where its data are, where they are registered.
    registered: Option<u16>,
    /// It failed with registered data, and is tried again with a copy.
    again: bool,
}

/// Names of who is waited for in the ring.
mod name {
    pub(super) const LISTENER: u64 = 0;
    pub(super) const FRONT: u64 = 1;
    /// And from here on each client has its own.
    pub(super) const CLIENT: u64 = 2;
}

/// What a turn has brought; kept for the next one's.
#[derive(Default)]
struct Turn {
    done: Vec<(Of, u64, i32)>,
    fetched: Vec<(u64, i32)>,
    finished: Vec<(u64, i32)>,
    completed: Vec<(u64, i32)>,
    arrived: Vec<Arrived>,
}

/// See the head of this file.
pub struct Worker {
    front: Box<dyn Front>,
    backend: Box<dyn Backend>,
    scheduler: Scheduler,
    ring: Ring,
    turn: Turn,
    /// By their numbers at the backend, which are used again.
    running: Vec<Option<Running>>,
    /// Of which these are free.
    free: Vec<usize>,
    /// Of the running ones, those that count against the depth.
    scheduled: u32,
    depth: u32,
    copies: Copies,
    pool: Pool,
    listener: OwnedFd,
    client: Option<OwnedFd>,
    /// The client's name in the ring.
    client_name: u64,
    /// The client says something.
    said: bool,
    below: (u32, u32),
    /// From the thread that sets the device up.
    device: Option<Receiver<io::Result<Device>>>,
    /// The front end has no device any more.
    over: bool,
    /// Somebody looks at more than the descriptors.
    hurry: bool,
    /// A full scheduler or a cap: when to look again.
    wake_at: u64,
    clock: fn() -> u64,
    say: fn(Arguments<'_>),
}

/// Nanoseconds of the monotonic clock.
pub fn now() -> u64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: one structure is written.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut at) };
    u64::try_from(at.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(at.tv_nsec).unwrap_or(0)
}

impl Worker {
    /// With what the keeper holds. `again`: there was a worker before.
    pub fn new(
        places: &Places,
        held: Held,
        listener: OwnedFd,
        again: bool,
    ) -> Result<Self, String> {
        let wrong = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
        let target = places.target.display().to_string();
        let below = FileBackend::device(&places.target).map_err(|e| wrong(&target, &e))?;
        if again {
            settle(below);
        }
        let mut ring = Ring::new().map_err(|e| wrong("io_uring", &e))?;
        let backend =
            backend::open(&places.target, places.model).map_err(|e| wrong(&target, &e))?;
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
        let mut shape = shape(&places.target, is_disk, below, backend.as_ref(), places.copy);
        shape.buffers = places.buffers;
        let (mut front, device) = offer::offer(
            held,
            &mut ring,
            &shape,
            &places.image,
            places.mark(),
            (&book.device().0, again),
        )
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
        // What is to be done at a time is done then, not up to 50 us later. SAFETY: numbers only.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
        let watched =
            ring.watch(listener.as_raw_fd(), name::LISTENER).and_then(|()| match front.fd() {
                Some(fd) => ring.watch(fd, name::FRONT),
                None => Ok(()),
            });
        watched.map_err(|e| wrong("io_uring", &e))?;
        Ok(Self::of((front, backend), scheduler, ring, listener, depth, (below, device)))
    }

    fn of(
        (front, backend): (Box<dyn Front>, Box<dyn Backend>),
        scheduler: Scheduler,
        ring: Ring,
        listener: OwnedFd,
        depth: u32,
        (below, device): ((u32, u32), Option<Receiver<io::Result<Device>>>),
    ) -> Self {
        let pool = Pool::new(PART, front.buffers());
        Self {
            front,
            backend,
            scheduler,
            ring,
            turn: Turn::default(),
            running: Vec::new(),
            free: Vec::new(),
            scheduled: 0,
            depth,
            copies: Copies::default(),
            pool,
            listener,
            client: None,
            client_name: name::CLIENT,
            said: false,
            below,
            device,
            over: false,
            hurry: false,
            wake_at: 0,
            clock: now,
            say,
        }
    }

    fn now(&self) -> u64 {
        (self.clock)()
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

    /// Until something happens, or it is time to look.
    fn wait(&mut self) -> io::Result<()> {
        let timeout = if self.device.is_some() || self.hurry {
            Some(Duration::from_millis(5))
        } else {
            let times = [self.wake_at, self.backend.due()];
            let next = times.into_iter().filter(|&at| at > 0).min();
            next.map(|at| Duration::from_nanos(at.saturating_sub(self.now()).min(1_000_000_000)))
        };
        self.ring.wait(timeout)
    }

    /// What has happened is done, except what reservd says.
    fn turn(&mut self) -> Result<(), String> {
        let mut turn = std::mem::take(&mut self.turn);
        let turned = self.turn_with(&mut turn);
        self.turn = turn;
        turned
    }

    fn turn_with(&mut self, turn: &mut Turn) -> Result<(), String> {
        // One call for all that the last turn has brought.
        self.wait().map_err(|e| format!("io_uring: {e}"))?;
        self.end_of_device()?;
        let (mut called, mut readable) = (false, false);
        self.ring.take(&mut turn.done);
        for (of, name, result) in turn.done.drain(..) {
            match of {
                Of::Backend => turn.finished.push((name, result)),
                Of::Front => turn.fetched.push((name, result)),
                Of::Readable => {
                    self.said |= name == self.client_name;
                    called |= name == name::LISTENER;
                    readable |= name == name::FRONT;
                }
                Of::Nobody => {}
            }
        }
        self.backend.completed(&turn.finished, &mut turn.completed);
        turn.finished.clear();
        for (id, result) in turn.completed.drain(..) {
            self.completed(id, result).map_err(|e| format!("answer: {e}"))?;
        }
        if !self.over && (readable || !turn.fetched.is_empty()) {
            let got = self.front.receive(
                &mut self.ring,
                &turn.fetched,
                &mut self.pool,
                &mut turn.arrived,
            );
            match got {
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => self.over = true,
                other => other.map_err(|e| format!("receive: {e}"))?,
            }
            for request in turn.arrived.drain(..) {
                self.arrived(request).map_err(|e| format!("a request: {e}"))?;
            }
            if let Some(fd) = self.front.fd().filter(|_| readable && !self.over) {
                self.ring.watch(fd, name::FRONT).map_err(|e| format!("io_uring: {e}"))?;
            }
        }
        turn.fetched.clear();
        self.dispatch().map_err(|e| format!("dispatch: {e}"))?;
        if let poison @ 1.. = self.scheduler.poison() {
            // The next worker plants the tree anew, and all requests come again.
            return Err(format!(
                "the tree is inconsistent: reason {} at line {}",
                poison >> 32,
                poison & 0xffff_ffff
            ));
        }
        if called {
            self.accept().map_err(|e| format!("io_uring: {e}"))?;
        }
        Ok(())
    }

    /// The last who comes is talked to: the one before is a reservd that died.
    fn accept(&mut self) -> io::Result<()> {
        let (none, listener) = (std::ptr::null_mut(), self.listener.as_raw_fd());
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no address is asked for.
        let fd = unsafe { libc::accept4(listener, none, none.cast(), flags) };
        if fd >= 0 {
            // SAFETY: a new descriptor.
            let client = unsafe { OwnedFd::from_raw_fd(fd) };
            // One that is nobody's of ours is closed, and takes nobody's place.
            if private::is_ours(&client) {
                self.hang_up()?;
                self.client = Some(client);
                self.client_name += 1;
                self.ring.watch(fd, self.client_name)?;
            }
        }
        self.ring.watch(listener, name::LISTENER)
    }

    fn hang_up(&mut self) -> io::Result<()> {
        if self.client.take().is_some() { self.ring.unwatch(self.client_name) } else { Ok(()) }
    }

    /// Until the disk was given back.
    pub fn run(&mut self) -> Result<(), String> {
        loop {
            self.turn()?;
            if self.over {
                return Err("the device was ended by somebody".into());
            }
            if std::mem::take(&mut self.said) {
                if self.talk() {
                    return Ok(());
                }
                if let Some(client) = &self.client {
                    self.ring
                        .watch(client.as_raw_fd(), self.client_name)
                        .map_err(|e| format!("io_uring: {e}"))?;
                }
            }
        }
    }

    fn arrived(&mut self, request: Arrived) -> io::Result<()> {
        let end = request.offset.checked_add(request.len.into());
        if end.is_none_or(|end| end > self.backend.size()) {
            return self.front.answer(&mut self.ring, &request, Err(libc::EIO));
        }
        if request.op == Op::Flush {
            // Waits for nobody: what it is about was acknowledged, so it is at the backend already.
            return self.begin(request, None);
        }
        self.scheduler.arrive(request, self.now());
        Ok(())
    }

    fn dispatch(&mut self) -> io::Result<()> {
        self.wake_at = 0;
        while self.scheduled < self.depth {
            match self.scheduler.dispatch(self.now()) {
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
        let moves = matches!(request.op, Op::Read | Op::Write);
        let registered =
            if moves && request.buffer.is_none() { self.front.registered(&request) } else { None };
        if moves && registered.is_none() && request.buffer.is_none() && !self.fill(&mut request) {
            self.release(ticket);
            return self.front.answer(&mut self.ring, &request, Err(libc::EIO));
        }
        if moves {
            self.copies.moved += 1;
            self.copies.copied += u64::from(registered.is_none());
            self.copies.unregistered +=
                u64::from(registered.is_none() && self.front.copies().is_none());
        }
        let running = Some(Running { request, ticket, done: 0, registered, again: false });
        let id = if let Some(id) = self.free.pop() {
            self.running[id] = running;
            id
        } else {
            self.running.push(running);
            self.running.len() - 1
        };
        self.submit(id)
    }

    /// A buffer of ours for the data, with them in it if they are to be written.
    fn fill(&mut self, request: &mut Arrived) -> bool {
        let mut buffer = self.pool.take();
        if request.op == Op::Write
            && let Err(error) = self.front.load(request, &mut buffer)
        {
            (self.say)(format_args!("the data of a write at {}: {error}", request.offset));
            self.pool.give(buffer);
            return false;
        }
        request.buffer = Some(buffer);
        true
    }

    /// A dispatched request is not under way any more.
    fn release(&mut self, ticket: Option<Ticket>) {
        if let Some(ticket) = ticket {
            self.scheduled -= 1;
            self.scheduler.done(ticket, self.now());
        }
    }

    fn submit(&mut self, id: usize) -> io::Result<()> {
        let Some(Some(Running { request, done, registered, .. })) = self.running.get(id) else {
            return Ok(());
        };
        let data = match (registered, &request.buffer) {
            (Some(buffer), _) => Data::Registered(*buffer, *done),
            // SAFETY: a request is no longer than a buffer (`Front::receive`), and `done` no more
            // than its length.
            (None, Some(buffer)) => Data::At(unsafe { buffer.at().add(*done as usize) }),
            (None, None) => Data::None,
        };
        let io = Io {
            id: id as u64,
            op: request.op,
            fua: request.fua,
            offset: request.offset + u64::from(*done),
            len: request.len - done,
            data,
        };
        // SAFETY: the buffer stays in `running` until the completion; a registered one is the
        // kernel's.
        unsafe { self.backend.submit(&mut self.ring, &io) }
    }

    fn completed(&mut self, id: u64, result: i32) -> io::Result<()> {
        let Ok(id) = usize::try_from(id) else { return Ok(()) };
        let Some(Some(running)) = self.running.get_mut(id) else { return Ok(()) };
        let moves = matches!(running.request.op, Op::Read | Op::Write);
        let left = running.request.len - running.done;
        let answer = match u32::try_from(result) {
            Err(_) => Err(errno_of(result)),
            Ok(part) if moves && part > 0 && part < left => {
                running.done += part;
                return self.submit(id);
            }
            // Of no data, or of more than were asked for, nobody knows what was done.
            Ok(part) if moves && (part == 0 || part > left) => Err(libc::EIO),
            Ok(_) => Ok(()),
        };
        // It may be the memory, as it lies there: ours it takes. Registered memory is not looked at
        // before it is at the driver, whose word for it may be EIO.
        let refused =
            matches!(answer, Err(libc::EINVAL | libc::EIO)) && running.registered.is_some();
        let Some(mut running) = self.running[id].take() else { return Ok(()) };
        if running.again && answer.is_ok() {
            self.copies.copied += 1;
            self.copies.refused += 1;
        }
        if refused {
            (running.registered, running.done, running.again) = (None, 0, true);
            if self.fill(&mut running.request) {
                self.running[id] = Some(running);
                return self.submit(id);
            }
        }
        self.free.push(id);
        let Running { mut request, ticket, .. } = running;
        self.release(ticket);
        if let Err(errno) = answer
            && errno != libc::EOPNOTSUPP
        {
            (self.say)(format_args!(
                "{:?} of {} bytes at {}: {}",
                request.op,
                request.len,
                request.offset,
                io::Error::from_raw_os_error(errno)
            ));
        }
        let sent = self.front.answer(&mut self.ring, &request, answer);
        if let Some(buffer) = request.buffer.take() {
            self.pool.give(buffer);
        }
        sent
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

/// What a dead worker had begun at the device may still be under way, and must not come after what
/// is sent again.
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
