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
//! ```
//!
//! Beside `match` a rule names queues, by resource: at least one, at most one of each. Where
//! `container` stands, that is the queue of every resource that is not named: a container's nodes
//! have one path in all trees. All conditions of one rule must hold, and there must be one. `uid`
//! and `gid` are a number or a name; `unit`, `command` are patterns with `*` (any text) and `?`
//! (one character); `cgroup` is a path below the cgroup mount and matches that cgroup and all below
//! it. `port`, `local_port` (a number or a range), `remote` (a prefix) and `protocol` are about
//! packets ([`Packets`]), and no rule is about both.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, Name, NodePath, Packets, Ports, Prefix, Protocol};

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
}

/// Where processes or packets go that match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Who is meant.
    #[serde(rename = "match")]
    pub conditions: Match,
    /// Queues, by the name of their resource.
    #[serde(flatten)]
    pub queues: BTreeMap<Name, NodePath>,
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
                "name one of uid, gid, unit, cgroup, command, or of port, local_port, remote, protocol",
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

    /// Its queue of a resource: the one that it names there, or else its container's.
    pub fn queue(&self, resource: &str) -> Option<&NodePath> {
        let named = |wanted: &str| self.queues.iter().find(|(name, _)| name.as_str() == wanted);
        named(resource).or_else(|| named(Self::CONTAINER)).map(|(_, path)| path)
    }

    /// The resources that it names, a container being none.
    pub fn resources(&self) -> impl Iterator<Item = &Name> {
        self.queues.keys().filter(|name| name.as_str() != Self::CONTAINER)
    }

    /// Whether it says something of a resource.
    pub fn is_about(&self, resource: &Name) -> bool {
        self.queue(resource.as_str()).is_some()
    }

    /// Of `rules`, the first that matches.
    pub fn first<'r>(rules: &'r [Self], subject: &Subject<'_>) -> Option<&'r Self> {
        rules.iter().find(|r| r.conditions.matches(subject))
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
