// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets that say for which clients they are (`proc/PID/listen`), and who may join whose port.
//!
//! A socket that is bound to a port may be for any clients there: the kernel has asked for the
//! right to bind it. One that is bound elsewhere may join a port (`at`) where a socket of the same
//! user has said for whom it is, or one that allows the user; root may join any. That is asked
//! again whenever a socket comes or goes, and while none of the port's own lives, the program in
//! the kernel passes those that have joined. So whoever is bound there next has the port alone.

use std::fmt::Write as _;
use std::sync::Mutex;

use reserv_facts::listen::SOCKETS_MAX;
use reserv_model::{Caller, ErrorKind, Listen};
use reserv_plane::PlaneError;
use reserv_plane::listen::{self, Admission, Listener, Listeners, Socket};

use crate::process;
use crate::refusal::Refusal;
use crate::sync::lock;

/// Most sockets of one user but root: of all.
const OF_ONE_MAX: usize = SOCKETS_MAX / 4;

/// See the head of this file.
#[derive(Debug, Default)]
pub struct Listening(Mutex<Option<Listeners>>);

fn not_permitted(text: String, hint: &str) -> Refusal {
    reserv_model::Error::new(ErrorKind::NotPermitted, text).hint(hint).into()
}

/// Refuses to join a port, or a socket more.
fn require(is: &Listener, others: &[Listener]) -> Result<(), Refusal> {
    let user = is.user;
    if user == 0 {
        return Ok(());
    }
    if others.iter().filter(|other| other.user == user).count() >= OF_ONE_MAX {
        let text = format!("{OF_ONE_MAX} sockets of uid {user} are for clients already");
        return Err(Refusal::new(libc::ENOSPC, text));
    }
    if is.is_own() {
        return Ok(());
    }
    let port = is.port();
    let mut there = others.iter().filter(|other| is.joins(other)).peekable();
    if there.peek().is_none() {
        let text = format!("port {port}: no socket that is bound there has said for whom it is");
        let hint = "its owner writes \"FD any\" to its proc/PID/listen; root may join any port";
        return Err(not_permitted(text, hint));
    }
    match there.find(|other| !other.allows(user)) {
        Some(other) => {
            let text =
                format!("port {port} is of uid {}, and uid {user} may not join it", other.user);
            let hint = format!("its owner may allow it: \"FD any allow {user}\"");
            Err(not_permitted(text, &hint))
        }
        None => Ok(()),
    }
}

impl Listening {
    /// What an earlier worker left. What cannot be gone on with is taken away: the kernel chooses
    /// as always then.
    pub fn open() -> Self {
        let found = Listeners::adopt().unwrap_or_else(|error| {
            tracing::error!(%error, "listeners for clients: all are as other sockets from now on");
            if let Err(error) = listen::clear() {
                tracing::error!(%error, "what chooses listeners was not taken away");
            }
            None
        });
        Self(Mutex::new(found))
    }

    /// For whoever has a copy of a socket. With the first one the program is there.
    pub fn admission(&self) -> Result<Admission, Refusal> {
        let mut held = lock(&self.0);
        let there = match held.take() {
            Some(there) => there,
            None => Listeners::begin()?,
        };
        Ok(held.insert(there).admission())
    }

    /// A socket that was admitted is for these from now on. `asking`: the first is the one as whom
    /// it is done, and all must have the right.
    pub fn set(&self, asking: &[Caller], socket: Socket, listen: Listen) -> Result<(), Refusal> {
        let held = lock(&self.0);
        let Some(there) = &*held else {
            return Err(Refusal::new(libc::ENODEV, "reservd is stopping"));
        };
        let done = Self::set_in(there, asking, socket, listen);
        if let Err(error) = there.leave(socket.cookie) {
            tracing::warn!(%error, "a socket that is for no clients is kept");
        }
        done
    }

    fn set_in(
        there: &Listeners,
        asking: &[Caller],
        socket: Socket,
        listen: Listen,
    ) -> Result<(), Refusal> {
        let others: Vec<Listener> = there
            .all()?
            .into_values()
            .filter(|other| other.socket.cookie != socket.cookie)
            .collect();
        let user = asking.iter().map(|who| who.uid).find(|uid| *uid != 0).unwrap_or(0);
        let is = Listener { socket, user, free: user == 0, listen };
        if !is.listen.clients.is_empty() {
            for who in asking {
                require(&Listener { user: who.uid, ..is.clone() }, &others)?;
            }
        }
        // It may have been taken out since: by who was refused the same socket, or its close.
        if !there.has(socket.cookie)? {
            return Err(Refusal::new(libc::EAGAIN, "the socket was closed, or changed, meanwhile"));
        }
        there.set(&is).map_err(|error| match error {
            PlaneError::Full(why) => Refusal::new(libc::ENOSPC, why),
            error => error.into(),
        })
    }

    /// Of a process: a line for each of its descriptors.
    pub fn of_process(&self, pid: i32) -> Result<String, Refusal> {
        let held = lock(&self.0);
        let all = match &*held {
            Some(there) => there.all()?,
            None => return Ok(String::new()),
        };
        drop(held);
        let mut text = String::new();
        for (fd, inode) in process::sockets(pid) {
            if let Some(is) = all.values().find(|is| is.socket.inode == inode) {
                let _ = writeln!(text, "{fd} {}", is.listen);
            }
        }
        Ok(text)
    }

    /// Nothing is chosen any more.
    pub fn end(&self) -> Result<(), Refusal> {
        *lock(&self.0) = None;
        Ok(listen::clear()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(cookie: u64, user: u32, port: u16, text: &str) -> Listener {
        let socket = Socket { cookie, inode: 1, protocol: 6, versions: 0x10, local: [0; 16], port };
        Listener { socket, user, free: user == 0, listen: text.parse().unwrap() }
    }

    #[test]
    fn who_joins_a_port_has_a_right_to_it() {
        let own = listener(1, 1000, 80, "any");
        let errno = |is: &Listener, others: &[Listener]| match require(is, others) {
            Ok(()) => 0,
            Err(refusal) => refusal.errno,
        };
        let join = |user| listener(2, user, 8080, "at 80 10.0.0.0/8");
        assert_eq!(errno(&join(1000), std::slice::from_ref(&own)), 0);
        assert_eq!(errno(&join(0), &[]), 0);
        assert_eq!(errno(&join(1000), &[]), libc::EACCES, "nobody is there");
        assert_eq!(errno(&join(1001), std::slice::from_ref(&own)), libc::EACCES);
        let open = listener(1, 1000, 80, "any allow 1001");
        assert_eq!(errno(&join(1001), std::slice::from_ref(&open)), 0);
        assert_eq!(errno(&join(1002), std::slice::from_ref(&open)), libc::EACCES);
        let other = listener(3, 1000, 80, "10.0.0.0/8");
        assert_eq!(errno(&join(1001), &[open, other]), libc::EACCES, "all must allow it");
        let joined = listener(3, 1001, 8081, "at 80 any");
        assert_eq!(errno(&join(1001), &[joined]), libc::EACCES, "who has joined is not there");
        let elsewhere = Listener {
            socket: Socket { local: [127; 16], ..own.socket },
            ..listener(1, 1001, 80, "any")
        };
        assert_eq!(errno(&join(1001), &[elsewhere]), libc::EACCES, "at another address");
    }

    #[test]
    fn a_user_has_a_part_of_the_places() {
        let many: Vec<Listener> =
            (0..OF_ONE_MAX as u64).map(|n| listener(n, 1000, 80, "any")).collect();
        let refused = |user| require(&listener(9999, user, 81, "any"), &many).is_err();
        assert!(refused(1000) && !refused(1001) && !refused(0));
    }
}
