// SPDX-License-Identifier: MIT OR Apache-2.0
//! What sockets are for, as it was told, and what the program looks up: the second is made of the
//! first alone, so that a change that was broken off is made again by making all of it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use reserv_facts::listen::{RESTS_MAX, SET_MAX};
use reserv_model::{Client, Listen, Prefix};

use super::abi::{
    DOOR_BITS, RlAddress, RlClient, RlDoor, RlKey, RlListener, RlOwn, RlRest, RlRestKey, RlSet,
};
use super::socket::Socket;
use crate::PlaneError;

/// A socket that is for some clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The socket.
    pub socket: Socket,
    /// Who asked.
    pub user: u32,
    /// Whether it needs no socket that is bound where it listens.
    pub free: bool,
    /// For whom, and where.
    pub listen: Listen,
}

impl Listener {
    /// Where it listens for them.
    pub fn port(&self) -> u16 {
        self.listen.port.unwrap_or(self.socket.port)
    }

    /// Whether that is where it is bound.
    pub fn is_own(&self) -> bool {
        self.port() == self.socket.port
    }

    /// Whether it listens where another one is bound.
    pub fn joins(&self, other: &Self) -> bool {
        let (one, two) = (&self.socket, &other.socket);
        other.is_own()
            && self.port() == other.port()
            && one.protocol == two.protocol
            && one.local == two.local
            && one.versions & two.versions != 0
    }

    /// Whether a user may join it.
    pub fn allows(&self, user: u32) -> bool {
        user == 0 || user == self.user || self.listen.allowed.contains(&user)
    }

    /// Whether it may be where it listens, beside all that are there now.
    fn is_permitted(&self, all: &BTreeMap<u64, Self>) -> bool {
        let mut there = all.values().filter(|other| self.joins(other)).peekable();
        self.is_own() || self.free || there.peek().is_some() && there.all(|o| o.allows(self.user))
    }

    /// Refuses clients that the socket cannot have.
    pub fn check(&self) -> Result<(), PlaneError> {
        for client in &self.listen.clients {
            let (Client::In(prefix) | Client::Not(prefix)) = client else { continue };
            if self.socket.versions & version_bit(*prefix) == 0 {
                let name = if prefix.address().is_ipv4() { "IPv4" } else { "IPv6" };
                return Err(PlaneError::Invalid(format!(
                    "\"{prefix}\": the socket has no clients of {name}"
                )));
            }
        }
        Ok(())
    }
}

fn version_bit(prefix: Prefix) -> u8 {
    if prefix.address().is_ipv4() { 1 << 4 } else { 1 << 6 }
}

fn bytes(address: IpAddr) -> RlAddress {
    let mut all = [0; 16];
    match address {
        IpAddr::V4(four) => all[..4].copy_from_slice(&four.octets()),
        IpAddr::V6(six) => all = six.octets(),
    }
    all
}

fn kept_client(client: &Client) -> RlClient {
    let of = |prefix: &Prefix, complement| RlClient {
        address: bytes(prefix.address()),
        bits: prefix.length(),
        version: if prefix.address().is_ipv4() { 4 } else { 6 },
        complement,
        pad: 0,
    };
    match client {
        Client::Any => RlClient::default(),
        Client::In(prefix) => of(prefix, 0),
        Client::Not(prefix) => of(prefix, 1),
    }
}

fn told_client(kept: &RlClient) -> Option<Client> {
    let address: IpAddr = match kept.version {
        0 => return Some(Client::Any),
        4 => <[u8; 4]>::try_from(&kept.address[..4]).ok()?.into(),
        _ => kept.address.into(),
    };
    let prefix = format!("{address}/{}", kept.bits).parse().ok()?;
    Some(if kept.complement == 0 { Client::In(prefix) } else { Client::Not(prefix) })
}

/// As the kernel's map keeps it.
#[expect(clippy::cast_possible_truncation, reason = "as many as fit were checked when it was read")]
pub(super) fn kept(is: &Listener) -> RlListener {
    let mut kept = RlListener {
        inode: is.socket.inode,
        user: is.user,
        bound: is.socket.port,
        port: is.port(),
        protocol: is.socket.protocol,
        versions: is.socket.versions,
        free: is.free.into(),
        clients: is.listen.clients.len() as u8,
        users: is.listen.allowed.len() as u8,
        local: is.socket.local,
        ..RlListener::default()
    };
    for (to, from) in kept.client.iter_mut().zip(&is.listen.clients) {
        *to = kept_client(from);
    }
    for (to, from) in kept.allowed.iter_mut().zip(&is.listen.allowed) {
        *to = *from;
    }
    kept
}

/// What it says.
pub(super) fn told(cookie: u64, kept: &RlListener) -> Listener {
    let clients = kept.client.iter().take(kept.clients.into()).filter_map(told_client).collect();
    Listener {
        socket: Socket {
            cookie,
            inode: kept.inode,
            protocol: kept.protocol,
            versions: kept.versions,
            local: kept.local,
            port: kept.bound,
        },
        user: kept.user,
        free: kept.free != 0,
        listen: Listen {
            port: (kept.port != kept.bound).then_some(kept.port),
            clients,
            allowed: kept.allowed.iter().take(kept.users.into()).copied().collect(),
        },
    }
}

/// All that the program looks up.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tables {
    pub(super) clients: BTreeMap<RlKey, RlSet>,
    pub(super) doors: BTreeMap<RlDoor, RlOwn>,
    pub(super) rests: BTreeMap<RlRestKey, RlRest>,
}

fn add(set: &mut RlSet, is: &Listener) -> Result<(), PlaneError> {
    let at = set.count as usize;
    let Some(place) = set.socket.get_mut(at) else {
        let why = format!("{SET_MAX} sockets are for clients at port {}", is.port());
        return Err(PlaneError::Full(why));
    };
    *place = is.socket.cookie;
    match (is.is_own(), is.free) {
        (true, _) => {}
        (false, true) => set.free |= 1 << at,
        (false, false) => set.joined |= 1 << at,
    }
    set.count += 1;
    Ok(())
}

/// The tables of these. Of those for the same clients the one that is older comes first.
pub(super) fn tables(all: &BTreeMap<u64, Listener>) -> Result<Tables, PlaneError> {
    let mut tables = Tables::default();
    // By (bits that are left out, which): complements first, the one that leaves out most before.
    let mut rests: BTreeMap<RlDoor, BTreeMap<(u32, RlAddress), RlSet>> = BTreeMap::new();
    for is in all.values().filter(|is| is.is_permitted(all)) {
        for version in [4, 6].into_iter().filter(|v| is.socket.versions & 1 << v != 0) {
            let door = RlDoor {
                protocol: is.socket.protocol,
                version,
                port: is.port(),
                local: is.socket.local,
            };
            let own = tables.doors.entry(door).or_default();
            if is.is_own() {
                add(&mut own.set, is)?;
            }
            for client in is.listen.clients.iter().map(kept_client) {
                if client.version != 0 && client.version != version {
                    continue;
                }
                let bits = u32::from(client.bits);
                if client.complement == 0 && bits > 0 {
                    let key = RlKey { bits: DOOR_BITS + bits, door, client: client.address };
                    let set = tables.clients.entry(key).or_default();
                    set.bits = bits;
                    add(set, is)?;
                } else {
                    let left_out = if bits == 0 { u32::MAX } else { bits };
                    let of_door = rests.entry(door).or_default();
                    add(of_door.entry((left_out, client.address)).or_default(), is)?;
                }
            }
        }
    }
    for (door, of_door) in rests {
        if of_door.len() > RESTS_MAX {
            let why = format!("more than {} complements at port {}", RESTS_MAX - 1, door.port);
            return Err(PlaneError::Full(why));
        }
        for (index, ((left_out, but), set)) in (0..).zip(of_door) {
            let but_bits = if left_out == u32::MAX { 0 } else { left_out };
            let rest = RlRest { but, but_bits, set, ..RlRest::default() };
            tables.rests.insert(RlRestKey { door, index }, rest);
            if let Some(own) = tables.doors.get_mut(&door) {
                own.rests = index + 1;
            }
        }
    }
    Ok(tables)
}
