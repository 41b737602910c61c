// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules that tag processes by who and what they are, and rules about the packets of links. The
//! first that matches wins, of each of the two.
//!
//! ```toml
//! [[rule]]
//! match = { uid = "www-data", command = "php-fpm*" }
//! cpu = "web/site1"
//! net0 = "web"
//!
//! [[rule]]
//! match = { protocol = "tcp", local_port = 443, remote = "10.0.0.0/8" }
//! net0 = "office"
//!
//! [[rule]]
//! match = { from = "192.0.2.0/24", protocol = "tcp", local_port = 443 }
//! receive = "100/s"
//! ```
//!
//! Beside `match` a rule names queues, by resource: at least one, at most one of each. Where
//! `container` stands, that is the queue of every resource that is not named: a container's nodes
//! have one path in all trees. A queue may be one for each user, `"users/{user}"` ([`RulePlace`]).
//! All conditions of one rule must hold, and there must be one. `uid`, `gid` and `group` are a
//! number or a name; `unit`, `command` are patterns with `*` (any text) and `?` (one character);
//! `cgroup` is a path below the cgroup mount and matches that cgroup and all below it. `port`,
//! `local_port` (a number or a range), `remote` (a prefix) and `protocol` are about packets
//! ([`Packets`]), and no rule is about both. `from` (a prefix, `not` and a prefix, or `any`) is
//! about packets that come in over links with an entrance ([`Arrival`]): beside it `local_port` and
//! `protocol` may stand, and in place of queues or beside them `receive` (packets a second, or
//! `nothing`) and `receive-burst`. Without queues it holds at every entrance.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::quoted;
use crate::{
    ARRIVAL_RULES_MAX, Arrival, Burst, Client, Error, ErrorKind, LetIn, Name, NodeConfig, NodeKind,
    NodePath, PACKET_RULES_MAX, Packets, Ports, Prefix, Protocol, RuleOfLink,
};

/// A user or a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a number or a name of a user or group")]
pub enum Principal {
    /// By number.
    Id(u32),
    /// By name.
    Name(String),
}

impl Principal {
    fn is(&self, id: u32, name: Option<&str>) -> bool {
        match self {
            Self::Id(i) => *i == id,
            // A name that is all digits is meant as the number where no such name exists.
            Self::Name(n) => name == Some(n) || n.parse() == Ok(id),
        }
    }
}

/// Conditions; at least one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Match {
    /// Effective user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<Principal>,
    /// Effective group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<Principal>,
    /// A group that the process is in, the effective one or another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Principal>,
    /// Systemd unit: a pattern.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Path of a cgroup, from `/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// File name of the program: a pattern.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The other side's port of a packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<Ports>,
    /// This side's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_port: Option<Ports>,
    /// The other side's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<Prefix>,
    /// Its protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// Who sent it, of what comes in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Client>,
}

/// Where processes or packets go that match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Who is meant.
    #[serde(rename = "match")]
    pub conditions: Match,
    /// How many packets a second come in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive: Option<LetIn>,
    /// And how many at once.
    #[serde(default, rename = "receive-burst", skip_serializing_if = "Option::is_none")]
    pub receive_burst: Option<Burst>,
    /// Queues, by the name of their resource.
    #[serde(flatten)]
    pub queues: BTreeMap<Name, RulePlace>,
}

/// Where a rule puts its processes in one resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum RulePlace {
    /// This queue.
    Queue(NodePath),
    /// A queue of this scheduler for each user, by his name: `"users/{user}"`. It is made when his
    /// first process is seen, and collected when nothing refers to it any more.
    ///
    /// Users without a name have none: numbers of users are what a user may have by the thousand
    /// (`/etc/subuid`), names are not, and each queue is a share more.
    EachUser(NodePath),
}

impl RulePlace {
    /// What stands for the user's name, as the last name of a path.
    pub const USER: &'static str = "{user}";

    /// The queue of a user; `None`: he can have none there.
    pub fn of(&self, user: Option<&str>) -> Option<NodePath> {
        match self {
            Self::Queue(path) => Some(path.clone()),
            Self::EachUser(above) => Some(above.join(Name::new(user?).ok()?)),
        }
    }

    /// The queue that all its processes have.
    pub const fn queue(&self) -> Option<&NodePath> {
        match self {
            Self::Queue(path) => Some(path),
            Self::EachUser(_) => None,
        }
    }

    /// Whether this may be the queue of one of its users.
    pub fn may_make(&self, path: &NodePath) -> bool {
        let above = path.split_last().map(|(above, _)| above);
        matches!(self, Self::EachUser(of) if above.as_ref() == Some(of))
    }
}

impl fmt::Display for RulePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(path) => write!(f, "{path}"),
            Self::EachUser(above) if above.is_root() => f.write_str(Self::USER),
            Self::EachUser(above) => write!(f, "{above}/{}", Self::USER),
        }
    }
}

impl TryFrom<String> for RulePlace {
    type Error = Error;
    fn try_from(text: String) -> Result<Self, Error> {
        let above = if text == Self::USER {
            Some("")
        } else {
            text.strip_suffix(Self::USER).and_then(|above| above.strip_suffix('/'))
        };
        let stray = |path: &str| {
            path.contains(['{', '}']).then(|| {
                let hint =
                    format!("\"users/{}\": a queue for each user, last in its path", Self::USER);
                Error::new(ErrorKind::Invalid, format!("{} is no queue", quoted(&text))).hint(hint)
            })
        };
        if let Some(error) = stray(above.unwrap_or(&text)) {
            return Err(error);
        }
        Ok(match above {
            Some(above) => Self::EachUser(above.parse::<NodePath>()?),
            None => Self::Queue(text.parse()?),
        })
    }
}

impl From<RulePlace> for String {
    fn from(place: RulePlace) -> Self {
        place.to_string()
    }
}

/// A process as rules see it. The caller looks names up. What processes and their users choose (a
/// command, a cgroup) is bytes, as the kernel has it, and need not be text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Subject<'a> {
    /// Effective user.
    pub uid: u32,
    /// Its name, if it has one.
    pub user: Option<&'a str>,
    /// Effective group.
    pub gid: u32,
    /// Its name, if it has one.
    pub group: Option<&'a str>,
    /// Further groups that it is in, and their names.
    pub groups: &'a [(u32, Option<String>)],
    /// Systemd unit, if it runs in one: `nginx.service`.
    pub unit: Option<&'a [u8]>,
    /// Path below the cgroup mount, from `/`.
    pub cgroup: &'a [u8],
    /// File name of the program, or the thread's comm.
    pub command: &'a [u8],
}

impl Match {
    /// The conditions about processes that are named.
    fn of_processes(&self) -> impl Iterator<Item = &'static str> {
        let named = [
            ("uid", self.uid.is_some()),
            ("gid", self.gid.is_some()),
            ("group", self.group.is_some()),
            ("unit", self.unit.is_some()),
            ("cgroup", self.cgroup.is_some()),
            ("command", self.command.is_some()),
        ];
        named.into_iter().filter(|(_, there)| *there).map(|(name, _)| name)
    }

    /// And about packets.
    fn of_packets(&self) -> impl Iterator<Item = &'static str> {
        let named = [
            ("port", self.port.is_some()),
            ("local_port", self.local_port.is_some()),
            ("remote", self.remote.is_some()),
            ("protocol", self.protocol.is_some()),
            ("from", self.from.is_some()),
        ];
        named.into_iter().filter(|(_, there)| *there).map(|(name, _)| name)
    }

    /// What it says about packets; `None`: it is about processes.
    pub fn packets(&self) -> Option<Packets> {
        self.of_packets().next()?;
        Some(Packets {
            ports: self.port.unwrap_or(Ports::ANY),
            local_ports: self.local_port.unwrap_or(Ports::ANY),
            remote: self.remote,
            protocol: self.protocol,
        })
    }

    /// Whether all conditions hold. Without any condition nothing matches.
    pub fn matches(&self, s: &Subject<'_>) -> bool {
        let holds = [
            self.uid.as_ref().map(|w| w.is(s.uid, s.user)),
            self.gid.as_ref().map(|w| w.is(s.gid, s.group)),
            self.group.as_ref().map(|w| {
                let others = s.groups.iter().map(|(id, name)| (*id, name.as_deref()));
                std::iter::once((s.gid, s.group)).chain(others).any(|(id, name)| w.is(id, name))
            }),
            self.unit.as_ref().map(|p| s.unit.is_some_and(|u| fits(p, u))),
            self.cgroup.as_ref().map(|p| is_below(p, s.cgroup)),
            self.command.as_ref().map(|p| fits(p, s.command)),
        ];
        holds.iter().any(Option::is_some) && holds.iter().all(|h| h.unwrap_or(true))
    }

    /// Refuses a rule that says nothing, one about processes and packets, ports of what has none,
    /// an empty pattern, and a cgroup that is no absolute path.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |why: &str, hint: &str| Err(Error::new(ErrorKind::Invalid, why).hint(hint));
        if *self == Self::default() {
            return refuse(
                "a rule without a condition",
                "name one of uid, gid, group, unit, cgroup, command, or of port, local_port, \
                 remote, protocol, from",
            );
        }
        if let (Some(process), Some(packet)) =
            (self.of_processes().next(), self.of_packets().next())
        {
            return refuse(
                &format!(
                    "{process} is of processes and {packet} of packets; a rule is about one of the two"
                ),
                "two rules",
            );
        }
        if let Some(protocol) = self.protocol.filter(|p| !p.has_ports())
            && let Some(port) = self.of_packets().find(|name| name.ends_with("port"))
        {
            return refuse(&format!("{port}: {protocol} has no ports"), "leave one of the two out");
        }
        if self.from.is_some()
            && let Some(other) = self.of_packets().find(|name| matches!(*name, "port" | "remote"))
        {
            return refuse(
                &format!("{other} beside from, which is about what comes in"),
                "from with local_port and protocol",
            );
        }
        for pattern in [&self.unit, &self.command].into_iter().flatten() {
            if pattern.is_empty() {
                return refuse(
                    "an empty pattern in a rule",
                    "a name, with * and ? where it may vary",
                );
            }
        }
        if self.cgroup.as_ref().is_some_and(|c| !c.starts_with('/')) {
            return refuse(
                "a cgroup that is no absolute path",
                "as in /proc/PID/cgroup: /system.slice/nginx.service",
            );
        }
        Ok(())
    }
}

impl Rule {
    /// What stands before a container's path, in place of all resources' names.
    pub const CONTAINER: &'static str = "container";

    /// Its place in a resource: the one that it names there, or else its container's.
    pub fn place(&self, resource: &str) -> Option<&RulePlace> {
        let named = |wanted: &str| self.queues.iter().find(|(name, _)| name.as_str() == wanted);
        named(resource).or_else(|| named(Self::CONTAINER)).map(|(_, place)| place)
    }

    /// Whether a process is one that it puts somewhere: all its conditions hold, and where it has a
    /// queue for each user, the process's user has a name that a queue may have. Root has none:
    /// what lets a user in is root with the user's groups, for a moment.
    pub fn takes(&self, subject: &Subject<'_>) -> bool {
        let place = |place: &RulePlace| {
            place.queue().is_some() || subject.uid != 0 && place.of(subject.user).is_some()
        };
        self.conditions.matches(subject) && self.queues.values().all(place)
    }

    /// Whether one of these makes such a queue of a resource for a user. It goes by itself, so a
    /// configuration with this rule need not name it.
    pub fn any_makes(
        rules: &[Self],
        resource: &str,
        (path, node): (&NodePath, &NodeConfig),
    ) -> bool {
        let mut places = rules.iter().filter_map(|rule| rule.place(resource));
        node.gc && node.kind == NodeKind::Queue && places.any(|place| place.may_make(path))
    }

    /// Whether it has a queue for each user somewhere.
    pub fn is_by_user(&self) -> bool {
        self.queues.values().any(|place| place.queue().is_none())
    }

    /// Refuses a queue for each user where there is none to be had: of packets, of a container.
    pub fn check_places(&self) -> Result<(), Error> {
        let Some((name, _)) = self.queues.iter().find(|(_, place)| place.queue().is_none()) else {
            return Ok(());
        };
        let (why, hint) = if self.conditions.packets().is_some() {
            (
                "a packet has no user",
                "a rule about processes: uid, gid, group, unit, cgroup, command",
            )
        } else if name.as_str() == Self::CONTAINER {
            ("of a container there is none for each user", "name the queue of each resource")
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Invalid, format!("{}: {why}", RulePlace::USER)).hint(hint))
    }

    /// The resources that it names, a container being none.
    pub fn resources(&self) -> impl Iterator<Item = &Name> {
        self.queues.keys().filter(|name| name.as_str() != Self::CONTAINER)
    }

    /// Whether it says something of a resource.
    pub fn is_about(&self, resource: &Name) -> bool {
        self.place(resource.as_str()).is_some() || self.is_everywhere()
    }

    /// Whether it is about what comes in, at every entrance.
    fn is_everywhere(&self) -> bool {
        self.conditions.from.is_some() && self.queues.is_empty()
    }

    /// What it says about the packets of a link, if it does.
    pub fn of_link(&self, link: &Name) -> Option<RuleOfLink> {
        let packets = self.conditions.packets()?;
        let queue = self.place(link.as_str()).and_then(RulePlace::queue).cloned();
        if queue.is_none() && !self.is_everywhere() {
            return None;
        }
        let limit = self.receive.map(|rate| (rate, self.receive_burst));
        let arrival = self.conditions.from.map(|client| Arrival { client, limit });
        Some(RuleOfLink { packets, arrival, queue })
    }

    /// Refuses more rules about packets than a link has room for.
    pub fn check_room(link: &Name, rules: &[Self]) -> Result<(), Error> {
        let of_link = rules.iter().filter_map(|rule| rule.of_link(link));
        let (come, leave): (Vec<_>, Vec<_>) = of_link.partition(|rule| rule.arrival.is_some());
        let full = |most: usize, what: &str| {
            let why = format!("{link} has more than {most} rules about {what}");
            let hint = "a range or a prefix instead of many of them";
            Err(Error::new(ErrorKind::Full, why).hint(hint))
        };
        match (leave.len() > PACKET_RULES_MAX, come.len() > ARRIVAL_RULES_MAX) {
            (true, _) => full(PACKET_RULES_MAX, "packets"),
            (_, true) => full(ARRIVAL_RULES_MAX, "who comes"),
            _ => Ok(()),
        }
    }

    /// Refuses what its conditions do not refuse by themselves: a rule that does nothing.
    pub fn check(&self) -> Result<(), Error> {
        self.conditions.check()?;
        self.check_places()?;
        let refuse = |why: String, hint: &str| Err(Error::new(ErrorKind::Invalid, why).hint(hint));
        let receive = self.receive.map(|_| "receive");
        let burst = self.receive_burst.map(|_| "receive-burst");
        if let (Some(word), None) = (receive.or(burst), self.conditions.from) {
            return refuse(
                format!("{word} is of a rule about who comes"),
                "from=10.0.0.0/8 among the conditions; or receive= of a queue, by 'reserv set'",
            );
        }
        if burst.is_some() && self.receive.is_none_or(|rate| rate.rate() == 0) {
            return refuse("receive-burst without a rate".into(), "receive=100/s beside it");
        }
        if self.queues.is_empty() && self.receive.is_none() {
            let hint = if self.conditions.from.is_some() {
                "eth0 = \"web\", a queue of a link; or receive = \"100/s\", or \"nothing\""
            } else {
                "cpu = \"web/site1\", or a queue of another resource, or a container"
            };
            return refuse("it names no queue".into(), hint);
        }
        Ok(())
    }

    /// Of `rules`, the first that matches.
    pub fn first<'r>(rules: &'r [Self], subject: &Subject<'_>) -> Option<&'r Self> {
        rules.iter().find(|rule| rule.takes(subject))
    }
}

/// Whether `path` is the cgroup `top` or below it.
fn is_below(top: &str, path: &[u8]) -> bool {
    let top = top.trim_end_matches('/').as_bytes();
    path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// The characters of a name; a byte that is part of none is one of its own, which no text has.
fn characters(name: &[u8]) -> Vec<u32> {
    let byte = |byte: &u8| u32::from(*byte) + u32::from(char::MAX) + 1;
    let of = |chunk: std::str::Utf8Chunk<'_>| {
        let (valid, invalid) = (chunk.valid(), chunk.invalid());
        valid.chars().map(u32::from).chain(invalid.iter().map(byte)).collect::<Vec<u32>>()
    };
    name.utf8_chunks().flat_map(of).collect()
}

/// `*` is any text, `?` one character. Linear in space and, with one point to fall back to, at most
/// quadratic in time.
fn fits(pattern: &str, text: &[u8]) -> bool {
    const STAR: u32 = '*' as u32;
    const ONE: u32 = '?' as u32;
    let (pattern, text) = (characters(pattern.as_bytes()), characters(text));
    let (mut at, mut read) = (0, 0);
    // What follows the last star, and where in the text that is being tried.
    let mut star: Option<(usize, usize)> = None;
    while let Some(&next) = text.get(read) {
        match (pattern.get(at), star) {
            (Some(&STAR), _) => {
                at += 1;
                star = Some((at, read));
            }
            (Some(&c), _) if c == ONE || c == next => {
                at += 1;
                read += 1;
            }
            (_, Some((after, from))) => {
                star = Some((after, from + 1));
                (at, read) = (after, from + 1);
            }
            (_, None) => return false,
        }
    }
    pattern[at..].iter().all(|&c| c == STAR)
}
