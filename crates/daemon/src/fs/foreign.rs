// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests that are about the process of somebody else: answered by threads that may be lost
//! ([`crate::aside`]), which first learn of him all that is asked afterwards, under the lock.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use reserv_model::Caller as Rightful;
use reserv_namespace::{
    Command, ContainerCommand, ContainerFile, FileKind, FileType, Ino, Object, Who,
    parse_container_write, parse_descriptor, parse_listen, parse_write,
};

use super::handles::writer;
use super::tags::{Descriptor, admitted, copy};
use super::{Fs, Refusal, held, require_whole};
use crate::aside::Turn;
use crate::core::Core;
use crate::fuse::proto::{Caller, Op, Reply, Request};
use crate::fuse::serve::Ticket;
use crate::process;
use crate::rights::{asking, caller, require_meant, require_own};

/// How long the next request of the same lane waits for one.
pub(super) const PATIENCE: Duration = Duration::from_millis(20);

/// Who is told the answer to a request: the kernel ([`Ticket`]), or a connection of the control
/// socket (a channel).
pub(super) trait Asker: Send + 'static {
    /// Called once. `status` has heard of a refusal before.
    fn told(self, answer: Result<&mut Reply, Refusal>);
}

impl Asker for Ticket {
    fn told(self, answer: Result<&mut Reply, Refusal>) {
        match answer {
            Ok(reply) => self.answer(reply, None),
            Err(refusal) => self.refuse(refusal.errno),
        }
    }
}

impl Asker for SyncSender<Result<Reply, Refusal>> {
    fn told(self, answer: Result<&mut Reply, Refusal>) {
        let _ = self.send(answer.map(std::mem::take));
    }
}

/// The operation of a request that another thread answers, with data of its own: what the kernel
/// sent lies in the buffer of the thread that read it.
enum Wanted {
    Open(u32),
    Access(u32),
    Read(u64, u64, u32),
    Write(u64, u64, Vec<u8>),
}

/// A request about the process of somebody else, for another thread to answer.
pub(super) struct Apart {
    unique: u64,
    resent: bool,
    node: u64,
    caller: Caller,
    wanted: Wanted,
    /// Whose facts are asked.
    concerned: Option<i32>,
    /// Whose descriptor is to be tagged, or is to be for some clients, by which file.
    descriptor_of: Option<(u32, FileKind)>,
}

impl Apart {
    /// `None`: it can be answered at once.
    pub(super) fn of(request: &Request<'_>) -> Option<Self> {
        let (concerned, descriptor_of) = (concerned(request), written_descriptors(request));
        if concerned.is_none() && descriptor_of.is_none() {
            return None;
        }
        let wanted = match request.op {
            Op::Open { flags } => Wanted::Open(flags),
            Op::Access { mask } => Wanted::Access(mask),
            Op::Read { handle, offset, size } => Wanted::Read(handle, offset, size),
            Op::Write { handle, offset, data } => Wanted::Write(handle, offset, data.to_vec()),
            _ => return None,
        };
        let &Request { unique, resent, node, caller, .. } = request;
        Some(Self { unique, resent, node, caller, wanted, concerned, descriptor_of })
    }

    fn request(&self) -> Request<'_> {
        let op = match &self.wanted {
            &Wanted::Open(flags) => Op::Open { flags },
            &Wanted::Access(mask) => Op::Access { mask },
            &Wanted::Read(handle, offset, size) => Op::Read { handle, offset, size },
            Wanted::Write(handle, offset, data) => {
                Op::Write { handle: *handle, offset: *offset, data: data.as_slice() }
            }
        };
        let &Self { unique, resent, node, caller, .. } = self;
        Request { unique, resent, node, caller, op }
    }
}

/// The number of a file of descriptors that is written, if that is what a request does.
fn written_descriptors(request: &Request<'_>) -> Option<(u32, FileKind)> {
    match (request.op, Ino(request.node).object()) {
        (
            Op::Write { .. },
            Some(Object::Process { pid, file: file @ (FileKind::Fds | FileKind::Listen) }),
        ) => Some((pid, file)),
        _ => None,
    }
}

/// The process or thread whose facts the answer to a request needs, but who asks himself: of him
/// they are had at once, since he waits for the answer.
fn concerned(request: &Request<'_>) -> Option<i32> {
    let number = match (Ino(request.node).object()?, request.op) {
        (Object::Process { pid, file: FileKind::Domain | FileKind::Listen }, Op::Read { .. })
        | (Object::Process { pid, .. }, Op::Write { .. }) => pid,
        // Root is asked for no right.
        (Object::Process { pid, file }, Op::Open { .. } | Op::Read { .. } | Op::Access { .. })
            if request.caller.uid != 0 && FileType::of(file) == FileType::Regular =>
        {
            pid
        }
        (
            Object::Node { id, file: file @ (FileKind::Members | FileKind::Access), .. },
            Op::Write { data, .. },
        ) => match parse_write(file, id, data).ok()? {
            Command::Tag { who: Who::Process(pid), .. } => pid,
            Command::Tag { who: Who::Thread { tid, .. }, .. } => tid,
            Command::Access { change, .. } => {
                change.party.process.filter(|(_, start)| *start == 0)?.0
            }
            _ => return None,
        },
        (
            Object::Container {
                file: file @ (ContainerFile::Members | ContainerFile::Access), ..
            },
            Op::Write { data, .. },
        ) => match parse_container_write(file, data).ok()? {
            ContainerCommand::Bind(Who::Process(pid)) => pid,
            ContainerCommand::Access(change, _) => {
                change.party.process.filter(|(_, start)| *start == 0)?.0
            }
            _ => return None,
        },
        _ => return None,
    };
    let number = number.cast_signed();
    (number != request.caller.tid && process::tgid(request.caller.tid) != Some(number))
        .then_some(number)
}

impl Fs {
    /// Tells `status`, and answers.
    fn refuse<A: Asker>(
        core: &Core,
        (uid, what): (u32, Option<String>),
        asker: A,
        refusal: Refusal,
    ) {
        if let Some(what) = what {
            core.refused(uid, &what, &refusal);
        }
        asker.told(Err(refusal));
    }

    /// Answers on a thread that may be lost: it first learns of the process that the request is
    /// about. What comes back hangs up when that thread has ended.
    pub(super) fn answer_aside<A: Asker>(&self, apart: Apart, asker: A) -> Option<Receiver<()>> {
        let fs = self.clone();
        let uid = apart.caller.uid;
        let what = self.changing(&apart.request());
        let (late, what_late) = (self.core.clone(), what.clone());
        let too_late = move |asker: A, refusal: Refusal| {
            Self::refuse(&late, (uid, what_late), asker, refusal);
        };
        let begun = self.asides.start(uid, asker, too_late, move |turn| {
            if let Some(tid) = apart.concerned {
                process::learn(tid);
            }
            match apart.descriptor_of {
                Some((pid, FileKind::Listen)) => {
                    return fs.write_listener(&apart.request(), pid, turn);
                }
                Some((pid, _)) => return fs.write_descriptor(&apart.request(), pid, turn),
                None => {}
            }
            let Some(asker) = turn.take() else { return };
            let mut reply = Reply::default();
            reply.clear();
            let done = fs.answer_now(&apart.request(), &mut reply);
            asker.told(done.map(|()| &mut reply));
        });
        match begun {
            Ok(ended) => Some(ended),
            Err((asker, refusal)) => {
                Self::refuse(&self.core, (uid, what), asker, refusal);
                None
            }
        }
    }

    /// The same for who can wait: not a thread that serves others.
    pub(super) fn answer_waiting(
        &self,
        request: &Request<'_>,
        reply: &mut Reply,
    ) -> Result<(), Refusal> {
        let Some(apart) = Apart::of(request) else { return self.answer_now(request, reply) };
        let (tell, hear) = sync_channel(1);
        self.answer_aside(apart, tell);
        *reply = hear
            .recv()
            .unwrap_or_else(|_| Err(Refusal::new(libc::EIO, "who was asked has died")))?;
        Ok(())
    }

    /// Tags a descriptor of somebody's: his exec, and whoever serves the file, decide when a copy
    /// of it is had and closed. Another process has it ([`crate::copier`]).
    fn write_descriptor<A: Asker>(&self, request: &Request<'_>, pid: u32, turn: &Turn<A>) {
        let Op::Write { handle, data, .. } = request.op else { return };
        let wanted = self.wanted_descriptor(request, pid, (handle, data));
        let copied = wanted.and_then(|wanted| Ok((wanted.copy(&self.copiers)?, wanted)));
        let Some(asker) = turn.take() else { return };
        // Closed after the answer, whatever that is: whoever serves the file may let it take for
        // ever.
        let (_copy, done) = match copied {
            Ok((mut copy, wanted)) => {
                let done = wanted.tag(&self.core, &mut copy);
                (Some(copy), done)
            }
            Err(refusal) => (None, Err(refusal)),
        };
        self.tell_written(request, data.len(), asker, done);
    }

    fn tell_written<A: Asker>(
        &self,
        request: &Request<'_>,
        length: usize,
        asker: A,
        done: Result<(), Refusal>,
    ) {
        match done {
            Ok(()) => {
                let mut reply = Reply::default();
                reply.clear();
                reply.written(u32::try_from(length).unwrap_or(0));
                asker.told(Ok(&mut reply));
            }
            Err(refusal) => {
                let what = self.changing(request);
                Self::refuse(&self.core, (request.caller.uid, what), asker, refusal);
            }
        }
    }

    /// Has a socket of somebody's be for some clients. As with a tag, another process has the copy.
    fn write_listener<A: Asker>(&self, request: &Request<'_>, pid: u32, turn: &Turn<A>) {
        let Op::Write { handle, data, .. } = request.op else { return };
        let (listening, copiers) = (self.core.listening(), &self.copiers);
        let copied = parse_listen(data).map_err(Refusal::from).and_then(|(fd, listen)| {
            let (process, asking) = self.own_process(request, pid, (handle, data))?;
            let copy = copy(copiers, process.as_fd(), (pid, fd))?;
            let admission = listening.admission()?;
            Ok((copy, admission, asking, fd, listen))
        });
        let Some(asker) = turn.take() else { return };
        let (_copy, done) = match copied {
            Ok((mut copy, admission, asking, fd, listen)) => {
                let done = admitted(&mut copy, admission, (pid, fd))
                    .and_then(|socket| listening.set(&asking, socket, listen));
                (Some(copy), done)
            }
            Err(refusal) => (None, Err(refusal)),
        };
        self.tell_written(request, data.len(), asker, done);
    }

    /// The process whose descriptors are written about, and who asks, if he may.
    fn own_process(
        &self,
        request: &Request<'_>,
        pid: u32,
        (handle, data): (u64, &[u8]),
    ) -> Result<(OwnedFd, Vec<Rightful>), Refusal> {
        require_whole(data)?;
        let opener = writer(&self.core, request.node, handle)?;
        let asking = asking(caller(request.caller), opener.as_ref());
        // Held before it is asked whose it is: if the number was another's then,
        // nothing is had of either.
        let process = held(pid)?;
        require_meant(request.caller, pid.cast_signed())?;
        asking.iter().try_for_each(|by| require_own(by, pid.cast_signed()))?;
        process::require_alive(process.as_fd(), pid.cast_signed())?;
        Ok((process, asking))
    }

    /// Which one, after all that can be refused before it is had.
    fn wanted_descriptor(
        &self,
        request: &Request<'_>,
        pid: u32,
        (handle, data): (u64, &[u8]),
    ) -> Result<Descriptor, Refusal> {
        let core = &self.core;
        let (process, asking) = self.own_process(request, pid, (handle, data))?;
        let (fd, resource, queue) =
            parse_descriptor(data, &self.mount, |name, path| core.resolve(name, path))?;
        let wanted = Descriptor { asking, pid, process, fd, resource, queue };
        wanted.may_be_tagged(&*core.engine(resource)?)?;
        Ok(wanted)
    }
}
