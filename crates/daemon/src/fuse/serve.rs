// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loop between `/dev/fuse` and a file system. All threads do the same: they read what the
//! kernel has, put it where its turn is kept ([`Fair`]), serve whose turn it is, and read again, so
//! that who comes first does not stand behind a thousand others in the kernel's own queue. The
//! kernel wakes one thread for a request, so an idle daemon answers it without a change of threads.
//!
//! There is always one thread more than there are requests that are being served, up to a bound
//! that is more than all lanes; the rest end.
//!
//! A request that is not answered within [`ANSWER_MAX`] is answered ETIMEDOUT, whatever holds up
//! the thread that serves it: its lane goes on with another thread, and what that one answers later
//! nobody hears.
//!
//! A session outlives its server: the keeper holds the descriptor, a new server calls
//! [`session::resend`] and gets all requests again that the old one took and did not answer, marked
//! as such ([`Request::resent`]).

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::fair::{Fair, Lane};
use reserv_facts::fuse::INIT_HAS_RESEND;
use reserv_facts::time::ANSWER_MAX;

use super::proto::{self, Op, Reply, Request};
use crate::aside::Turn;
use crate::begin;
use crate::sync::lock;
use crate::unanswered::{Note, Unanswered};

/// Threads that wait, at most.
const IDLE_MAX: usize = 2;
/// Requests that are read at once, before one is served.
const READ_MAX: usize = 256;
/// How often it is looked whether one is late.
const LOOK: Duration = Duration::from_secs(1);

/// What answers requests, from several threads at once.
pub trait Server: Send + Sync + 'static {
    /// How many lanes there are.
    const LANES: usize;

    /// What the answer to a request needs. Requests of one lane are served one after another.
    fn lane(&self, request: &Request<'_>) -> Lane;

    /// The same of a node that is forgotten; `None`: it is nothing to us.
    fn forgets(&self, node: u64) -> Option<Lane>;

    /// Answers one request by filling `reply`, or with an errno. `None`: the ticket was taken, and
    /// somebody answers later. INIT, FORGET and their like do not come here, except that forgotten
    /// nodes are announced through [`Server::forget`].
    fn answer(
        &self,
        request: &Request<'_>,
        reply: &mut Reply,
        ticket: &Turn<Ticket>,
    ) -> Option<Result<(), i32>>;

    /// This request was answered with ETIMEDOUT.
    fn late(&self, request: &Request<'_>);

    /// The kernel dropped `count` references to a node. Unknown nodes must be tolerated: a dead
    /// server's successor hears of nodes that it never gave out.
    fn forget(&self, node: u64, count: u64);

    /// Said once: whatever a dead server left unanswered, and the kernel sent again, has been
    /// answered.
    fn caught_up(&self);

    /// A thread that serves begins; the first one is 0.
    fn begins(&self, thread: usize);
}

/// The right, and the duty, to answer one request. Dropped, it answers EIO.
pub struct Ticket {
    device: Arc<File>,
    unique: u64,
    open: bool,
    /// Dropped behind the answer.
    note: Option<Note>,
}

impl Ticket {
    /// From whatever thread.
    pub fn answer(mut self, reply: &mut Reply, error: Option<i32>) {
        self.open = false;
        write(&self.device, reply.finish(self.unique, error));
    }

    /// The same without a body.
    pub fn refuse(self, errno: i32) {
        let mut reply = Reply::default();
        reply.clear();
        self.answer(&mut reply, Some(errno));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.open {
            let mut reply = Reply::default();
            reply.clear();
            write(&self.device, reply.finish(self.unique, Some(libc::EIO)));
        }
    }
}

fn write(mut device: &File, bytes: &[u8]) {
    match device.write(bytes) {
        Ok(_) => {}
        // The caller was killed meanwhile, or all are gone with the mount, which whoever reads
        // finds out.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) => {}
        Err(error) => tracing::error!(%error, "the kernel refused an answer"),
    }
}

enum Job {
    Request(Arc<[u8]>),
    Forget(u64, u64),
}

/// What the kernel sends again stands before all other requests.
struct Behind {
    may_come: bool,
    unanswered: usize,
    told: bool,
}

/// What is being served of a lane.
struct Serving {
    number: u64,
    since: Instant,
    /// A request, and the right to answer it.
    request: Option<(Arc<[u8]>, Turn<Ticket>)>,
}

struct State {
    fair: Fair<Job>,
    /// By lane.
    serving: Vec<Option<Serving>>,
    served: u64,
    /// Those that are not lost over a request.
    threads: usize,
    idle: usize,
    begun: usize,
    behind: Behind,
}

struct Session<S> {
    device: Arc<File>,
    server: S,
    unanswered: Unanswered,
    state: Mutex<State>,
    /// Who reads: what comes first is put into its queue first.
    reading: Mutex<()>,
    ended: Box<dyn Fn(io::Result<()>) + Send + Sync>,
}

/// What reading found.
#[derive(PartialEq, Eq)]
enum Found {
    Nothing,
    More,
    Unmounted,
}

/// Serves, until the file system is mounted no more or `/dev/fuse` fails, which `ended` is told.
pub fn serve<S: Server>(
    device: File,
    server: S,
    unanswered: Unanswered,
    ended: impl Fn(io::Result<()>) + Send + Sync + 'static,
) -> io::Result<()> {
    // Of the open file, so of all who hold it: nobody else reads.
    let flags = OFlag::from_bits_retain(fcntl(&device, FcntlArg::F_GETFL)?);
    fcntl(&device, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    let behind = Behind { may_come: true, unanswered: 0, told: false };
    let serving = (0..S::LANES.max(1)).map(|_| None).collect();
    let fair = Fair::new(S::LANES);
    let state = State { fair, serving, served: 0, threads: 1, idle: 0, begun: 1, behind };
    let device = Arc::new(device);
    let session = Session {
        device,
        server,
        unanswered,
        state: Mutex::new(state),
        reading: Mutex::default(),
        ended: Box::new(ended),
    };
    let session = Arc::new(session);
    let of_clock = session.clone();
    begin::thread("late", move || {
        loop {
            std::thread::sleep(LOOK);
            of_clock.look();
        }
    })?;
    session.spawn(0)
}

impl<S: Server> Session<S> {
    /// With all that a thread needs: without a descriptor for it there is none, and the others go
    /// on.
    fn spawn(self: Arc<Self>, number: usize) -> io::Result<()> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        // One of those who wait is woken, the first that can be.
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE;
        epoll.add(&self.device, EpollEvent::new(flags, 0))?;
        let body = move || {
            self.server.begins(number);
            match self.work(number, &epoll) {
                Ok(Found::Unmounted) => (self.ended)(Ok(())),
                Ok(_) => {}
                Err(error) => (self.ended)(Err(error)),
            }
        };
        begin::thread("fuse", body).map(drop)
    }

    /// Until the end, or until there are enough others.
    fn work(self: &Arc<Self>, number: usize, epoll: &Epoll) -> io::Result<Found> {
        let mut buffer = vec![0_u8; proto::BUFFER_LEN];
        let mut reply = Reply::default();
        loop {
            let mut found = self.read(&mut buffer, &mut reply)?;
            while found != Found::Unmounted
                && let Some((lane, number, job)) = self.take()
            {
                self.serve((lane, number), job, &mut reply);
                if self.done(lane, number) {
                    found = self.read(&mut buffer, &mut reply)?;
                }
            }
            match found {
                Found::Unmounted => return Ok(found),
                Found::More => continue,
                Found::Nothing => {}
            }
            if !self.rest(number) {
                return Ok(found);
            }
            let woken = epoll.wait(&mut [EpollEvent::empty()], EpollTimeout::NONE);
            lock(&self.state).idle -= 1;
            if let Err(errno) = woken
                && errno != nix::errno::Errno::EINTR
            {
                return Err(errno.into());
            }
        }
    }

    fn read(&self, buffer: &mut [u8], reply: &mut Reply) -> io::Result<Found> {
        let _reading = lock(&self.reading);
        for _ in 0..READ_MAX {
            match (&*self.device).read(buffer) {
                Ok(len) => self.received(&buffer[..len], reply),
                Err(error) => match error.raw_os_error() {
                    // A request that was interrupted before we had it; a signal.
                    Some(libc::ENOENT | libc::EINTR) => {}
                    Some(libc::EAGAIN) => {
                        self.nothing_sent_again();
                        return Ok(Found::Nothing);
                    }
                    Some(libc::ENODEV) => return Ok(Found::Unmounted),
                    _ => return Err(error),
                },
            }
        }
        Ok(Found::More)
    }

    fn received(&self, bytes: &[u8], reply: &mut Reply) {
        let Some(request) = proto::decode(bytes) else {
            tracing::error!(len = bytes.len(), "request that is not FUSE");
            return;
        };
        let answer = match request.op {
            Op::Forget { count } => return self.forgotten(&[(request.node, count)]),
            Op::BatchForget { pairs } => {
                return self.forgotten(&proto::forgets(pairs).collect::<Vec<_>>());
            }
            // Whoever is interrupted is answered in his turn. EAGAIN would ask for it again.
            Op::Interrupt => return,
            Op::Init { major, minor, flags } => {
                tracing::info!(
                    major,
                    minor,
                    resend = flags & INIT_HAS_RESEND != 0,
                    "session begins"
                );
                reply.clear();
                reply.init(flags);
                if major == 7 { None } else { Some(libc::EPROTO) }
            }
            Op::Destroy => {
                reply.clear();
                None
            }
            Op::Unknown { .. } => Some(libc::ENOSYS),
            _ => {
                // What the kernel asks for itself frees what we keep.
                let own = matches!(request.op, Op::Release { .. } | Op::Releasedir { .. });
                let uid = if own { 0 } else { request.caller.uid };
                let mut state = lock(&self.state);
                if request.resent {
                    state.behind.unanswered += 1;
                } else {
                    state.behind.may_come = false;
                }
                let lane = self.server.lane(&request);
                if state.fair.push(lane, uid, bytes.len(), Job::Request(bytes.into())).is_ok() {
                    return;
                }
                drop(state);
                self.answered(&request);
                Some(libc::EAGAIN)
            }
        };
        if answer.is_some() {
            reply.clear();
        }
        self.ticket(&request).answer(reply, answer);
    }

    fn forgotten(&self, nodes: &[(u64, u64)]) {
        let mut state = lock(&self.state);
        for &(node, count) in nodes {
            if let Some(lane) = self.server.forgets(node) {
                // Root's are never refused.
                let _ = state.fair.push(lane, 0, 0, Job::Forget(node, count));
            }
        }
    }

    fn ticket(&self, request: &Request<'_>) -> Ticket {
        let unique = request.unique | if request.resent { proto::UNIQUE_RESEND } else { 0 };
        Ticket { device: self.device.clone(), unique, open: true, note: None }
    }

    fn serve(&self, (lane, number): (Lane, u64), job: Job, reply: &mut Reply) {
        let bytes = match job {
            Job::Forget(node, count) => return self.server.forget(node, count),
            Job::Request(bytes) => bytes,
        };
        let Some(request) = proto::decode(&bytes) else { return };
        let mut ticket = self.ticket(&request);
        if let Ok(note) = self.unanswered.begin(request.unique) {
            ticket.note = Some(note);
        } else {
            let (uid, pid) = (request.caller.uid, request.caller.tid);
            tracing::error!(uid, pid, "a request that has ended two workers is answered EIO");
            ticket.refuse(libc::EIO);
            return self.answered(&request);
        }
        let turn = Turn::new(ticket);
        if let Some(serving) = &mut lock(&self.state).serving[lane]
            && serving.number == number
        {
            serving.request = Some((bytes.clone(), turn.clone()));
        }
        reply.clear();
        if let Some(done) = self.server.answer(&request, reply, &turn)
            && let Some(ticket) = turn.take()
        {
            ticket.answer(reply, done.err());
        }
        // Of one that was given up this has been said.
        if let Some(serving) = &mut lock(&self.state).serving[lane]
            && serving.number == number
        {
            serving.request = None;
        } else {
            return;
        }
        self.answered(&request);
    }

    /// Goes on without those who have served a request for too long.
    fn look(self: &Arc<Self>) {
        let mut lost = Vec::new();
        let mut state = lock(&self.state);
        for lane in 0..state.serving.len() {
            let serving = &mut state.serving[lane];
            if serving.as_ref().is_some_and(|serving| serving.since.elapsed() >= ANSWER_MAX) {
                lost.extend(serving.take());
                state.fair.done(lane);
                state.threads -= 1;
            }
        }
        // Those who rest hear of what comes, and not of what waited for these.
        let wanted = state.fair.has_next() || (!lost.is_empty() && state.idle == 0);
        let begin = wanted && state.threads <= S::LANES;
        let number = state.begun;
        if begin {
            state.threads += 1;
            state.begun += 1;
        }
        drop(state);
        for (bytes, turn) in lost.into_iter().filter_map(|serving| serving.request) {
            let Some(request) = proto::decode(&bytes) else { continue };
            if let Some(ticket) = turn.take() {
                self.server.late(&request);
                ticket.refuse(libc::ETIMEDOUT);
            }
            self.answered(&request);
        }
        if begin && let Err(error) = self.clone().spawn(number) {
            tracing::warn!(%error, "no other thread to serve");
            lock(&self.state).threads -= 1;
        }
    }

    fn answered(&self, request: &Request<'_>) {
        if request.resent {
            let mut state = lock(&self.state);
            state.behind.unanswered -= 1;
            self.tell_caught_up(&mut state);
        }
    }

    fn nothing_sent_again(&self) {
        let mut state = lock(&self.state);
        state.behind.may_come = false;
        self.tell_caught_up(&mut state);
    }

    fn tell_caught_up(&self, state: &mut State) {
        let behind = &mut state.behind;
        if !behind.may_come && behind.unanswered == 0 && !behind.told {
            behind.told = true;
            self.server.caught_up();
        }
    }

    /// What is served next. Somebody else reads meanwhile.
    fn take(self: &Arc<Self>) -> Option<(Lane, u64, Job)> {
        let mut state = lock(&self.state);
        let (lane, job) = state.fair.take()?;
        state.served += 1;
        let serving = state.served;
        state.serving[lane] =
            Some(Serving { number: serving, since: Instant::now(), request: None });
        if state.idle == 0 && state.threads <= S::LANES {
            state.threads += 1;
            let number = state.begun;
            state.begun += 1;
            drop(state);
            if let Err(error) = self.clone().spawn(number) {
                // Tried again with the next request.
                tracing::debug!(%error, "no other thread to serve");
                lock(&self.state).threads -= 1;
            }
        }
        Some((lane, serving, job))
    }

    /// Answers whether there may be more to do.
    fn done(&self, lane: Lane, number: u64) -> bool {
        let mut state = lock(&self.state);
        if state.serving[lane].as_ref().is_some_and(|serving| serving.number == number) {
            state.serving[lane] = None;
            state.fair.done(lane);
        } else {
            // It was given up, and is one of those who serve again.
            state.threads += 1;
        }
        state.fair.has_next()
    }

    /// Whether this thread waits for more; else it ends.
    fn rest(&self, number: usize) -> bool {
        let mut state = lock(&self.state);
        if number > 0 && state.idle >= IDLE_MAX {
            state.threads -= 1;
            return false;
        }
        state.idle += 1;
        true
    }
}
