// SPDX-License-Identifier: MIT OR Apache-2.0
//! What reservd asks of a worker, and the end of a device.

use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use super::{DEPTH_MAX, Worker};
use crate::book::put_text;
use crate::front::offer::{self, Ended};
use crate::front::ublk::nudge;
use crate::log::say;
use crate::owners::Owners;
use crate::sysfs;
use crate::wire::{self, Answer, Ask, Hello, Node, RsBatch, what};

/// Who gives a disk back waits so long for a flush of ours ([`nudge`]).
const FLUSH_MAX: Duration = Duration::from_secs(2);

impl Worker {
    /// One question. Answers whether that was the end.
    pub(super) fn talk(&mut self) -> bool {
        let Some(client) = &self.client else { return false };
        let fd = client.as_raw_fd();
        let mut packet = vec![0_u8; 64 * 1024];
        // SAFETY: writable memory, as long as it says.
        let got =
            unsafe { libc::recv(fd, packet.as_mut_ptr().cast(), packet.len(), libc::MSG_DONTWAIT) };
        let Some(got) = usize::try_from(got).ok().filter(|&got| got > 0) else {
            self.client = None;
            return false;
        };
        let Some((out, over)) = self.answer_to(&packet[..got]) else {
            self.client = None;
            return false;
        };
        // SAFETY: readable memory, as long as it says.
        let sent = unsafe { libc::send(fd, out.as_ptr().cast(), out.len(), libc::MSG_NOSIGNAL) };
        if sent < 0 {
            self.client = None;
        }
        over
    }

    /// What is answered to a packet, and whether that was the end. `None`: it is no question.
    pub(super) fn answer_to(&mut self, packet: &[u8]) -> Option<(Vec<u8>, bool)> {
        let (head, body) = packet.split_at(packet.len().min(size_of::<Ask>()));
        // SAFETY: plain numbers.
        let ask = unsafe { wire::of_bytes::<Ask>(head) }?;
        let (answer, body) = self.answer(ask, body);
        // SAFETY: the structure has no padding.
        let mut out = unsafe { wire::bytes_of(&answer) }.to_vec();
        out.extend(body);
        Some((out, ask.what == what::STOP && ask.a == 0 && answer.answer == 0))
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
        // Of a server that was stopped, who asked meanwhile was told that nothing has happened.
        if ask.until != 0 && self.now() / 1_000_000_000 > u64::from(ask.until) {
            return only(-libc::ETIMEDOUT);
        }
        match ask.what {
            what::HELLO => {
                let hello = self.hello();
                // SAFETY: the structure has no padding.
                (
                    Answer { count: 1, ..Answer::default() },
                    unsafe { wire::bytes_of(&hello) }.to_vec(),
                )
            }
            what::EDIT => {
                // SAFETY: plain numbers, which the core checks.
                let Some(mut batch) = (unsafe { wire::of_bytes::<RsBatch>(body) }) else {
                    return only(-libc::EINVAL);
                };
                let answer = self.scheduler.edit(&mut batch, self.now());
                // SAFETY: the structure has no padding.
                (Answer { answer, count: 1, a: 0 }, unsafe { wire::bytes_of(&batch) }.to_vec())
            }
            what::SAMPLE => {
                let (found, next) =
                    self.scheduler.sample(usize::try_from(ask.a).unwrap_or(usize::MAX));
                nodes(found, next)
            }
            what::SAMPLE_ONE => match self.scheduler.sample_one(ask.a) {
                Some(node) => nodes(vec![node], 0),
                None => only(-libc::ESTALE),
            },
            what::COLLECT => only(self.scheduler.collect(ask.a, self.now())),
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
            what::COPIES => {
                // SAFETY: the structure has no padding.
                let mut body = unsafe { wire::bytes_of(&self.copies) }.to_vec();
                body.extend(self.front.copies().unwrap_or_default().bytes());
                (Answer { count: 1, ..Answer::default() }, body)
            }
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
        let turned = self.turn().map_err(io::Error::other);
        self.hurry = false;
        turned
    }

    /// We are no user of our own device: no flush is sent while what this returns is held. `None`:
    /// one is under way, and the disk below has not answered it.
    fn without_flushes(&mut self) -> Option<MutexGuard<'static, ()>> {
        let begin = Instant::now();
        loop {
            let paused = nudge::pause();
            if paused.is_some() || begin.elapsed() > FLUSH_MAX || self.turn_soon().is_err() {
                return paused;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The device goes, if nobody uses it; else who does is told.
    fn stop(&mut self, only_ask: bool) -> (Answer, Vec<u8>) {
        let (device, dev) = self.scheduler.book.device();
        let refused = |errno: i32, text: String| {
            (Answer { answer: -errno, ..Answer::default() }, text.into_bytes())
        };
        if !device.is_empty() {
            let _paused = self.without_flushes();
            let keeper = std::os::unix::process::parent_id();
            let users = sysfs::users(&device, dev, &[keeper]);
            if !users.is_empty() {
                return refused(libc::EBUSY, format!("/dev/{device} is {}", users.join(", ")));
            }
            if !self.scheduler.is_idle() || self.running.len() > self.free.len() {
                return refused(libc::EBUSY, format!("/dev/{device} has requests under way"));
            }
            if only_ask {
                return (Answer::default(), Vec::new());
            }
            if let Err(error) = self.give_back(&device) {
                return refused(
                    error.raw_os_error().unwrap_or(libc::EIO),
                    format!("/dev/{device}: {error}"),
                );
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
