// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of files.
//!
//! Grammar of what is written; one line (`shares`: several) of at most 4096 bytes, words divided by
//! blanks, one newline at the end allowed:
//!
//! ```text
//! share      = (weight | fixed) [amount]     24 0      weight and minimum
//! shares     = name share {"\n" name share}  a 24 0    of children, all of them or none; those that are not named keep theirs
//! fixed      = "=" percent "%"               =25%      a fixed share of the parent, whatever the siblings' weights are
//! cap        = "none" | amount ["burst" duration]      1.5cpu, 250ms/s, 25% (of one CPU); of a link 10mbit
//! policy     = "sfq" | "eevdf" | "mtrls" | "prio" | "wrr" | "wf2q+" | "wf2q" | "yfq" | "cello"
//! class      = "ts" | "sfq" | "rr" | "fifo" | "edf" | "drr" | "scan" | "scan-edf" | "interactive" | "throughput" | "real-time"
//! tune       = key value {key value}         quantum 4ms lag default       keys of this node, others keep their values
//! gc         = "0" | "1"
//! backlog    = ["limit"] members [service]   16 0      0 is no limit; of a link packets and bytes; resets the counters
//! members    = pid | "self"                  1234      all threads of a process
//!            | "tid" (tid ["pid" pid] | "self") [params]          one thread
//! params     = "default" | {("weight" | "priority" | "period" | "budget" | "deadline") value}
//!                                            all of them: what is left out is the default; without any they stay as they are
//! state      = "drain" | "draining" | "active" | "flush"        flush: members to q0, the queue deleted, at once
//! mk         = ("queue" | "scheduler") name [weight [amount]]          share 100 where none is given
//! access     = ("allow" | "deny" | "remove") party rights ["quota" nodes] ["by" uid] ["tags" ("stay" | "fall")]
//! party      = "everyone" | {("uid" | "gid") number | "pid" pid ["start" time]}        all that is named must hold
//! rights     = "all" | right {"," right}                                               read, use, create, modify, grant, delete
//! default    = tag {tag}                     /reserv/cpu/q2            at most one per resource
//! cdefault   = tag {tag}
//! fds        = number tag
//! listen     = number ("none" | ["at" port] client {client} ["allow" uid {uid}])
//! client     = prefix | "not" prefix | "any"
//! tag        = [mount "/"] resource "/" name {"/" name}
//! ```
//!
//! weight, amount and duration are in `reserv_model`'s units, names in its `Name`, keys in its
//! `TuneKey`, parameters in its `ThreadParams`.
//!
//! What is read is one line that can be written back (`shares`: a line for each child), except:
//!
//! ```text
//! stat       = {key " " value "\n"}          see `read.rs`
//! access     = {entry "\n"}                    each a line that can be written
//! domain     = {path right ("yes" | "no") reason "\n"}      see `access.rs`
//! status     = {key " " value "\n"}
//! members    = {"tid " tid " pid " pid [" " params] "\n"}  one per thread, each a line that can be written; empty for q0
//! backlog    = "served " n "\n" "service_" unit " " n "\n" "limit " members " 0\n"   the last line can be written
//! ```
//!
//! Opening `newqueue` or `newsched` makes a node; the descriptor is the new node's `share`. `self`
//! is a link.

use reserv_model::{Error, NodeId};

use crate::ino::FileKind;
use crate::read::View;
use crate::write::Command;
use crate::{read, write};

/// A directory, as far as its files depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// `/reserv`
    Mount,
    /// A resource: its root scheduler node.
    Resource,
    /// Any other scheduler node.
    Scheduler,
    /// A queue.
    Queue,
    /// `/reserv/proc`
    Proc,
    /// `/reserv/proc/PID`
    Process,
}

/// Where the text comes from.
#[derive(Clone, Copy, Debug)]
pub enum Read {
    /// Reading is refused (`EACCES`).
    No,
    /// From tree and samples, by [`crate::render_read`].
    Node(fn(&View<'_>) -> Result<String, Error>),
    /// From the daemon: `status`, the lists of a process, links.
    Daemon,
}

/// Where the text goes.
#[derive(Clone, Copy, Debug)]
pub enum Write {
    /// Writing is refused (`EACCES`).
    No,
    /// One line for [`crate::parse_write`].
    Node(fn(NodeId, &str) -> Result<Command, Error>),
    /// One line or more for it.
    Lines(fn(NodeId, &[&str]) -> Result<Command, Error>),
    /// For the daemon: the lists of a process, through [`crate::parse_defaults`].
    Daemon,
}

/// One row: a file in one kind of place.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// In its directory.
    pub name: &'static str,
    /// Where it stands.
    pub places: &'static [Place],
    /// What it is.
    pub file: FileKind,
    /// Permission bits as they are shown. Owner and group are root's; what others may write is
    /// decided by the lists (`access.rs`).
    pub mode: u16,
    /// What reading gives.
    pub read: Read,
    /// What writing does.
    pub write: Write,
}

const fn row(
    name: &'static str,
    places: &'static [Place],
    file: FileKind,
    mode: u16,
    read: Read,
    write: Write,
) -> Entry {
    Entry { name, places, file, mode, read, write }
}

use FileKind as F;
use Place::{Mount, Proc, Process, Queue, Resource, Scheduler};

/// Every file. Where a name stands twice, the places differ.
#[rustfmt::skip]
pub const TABLE: &[Entry] = &[
    //   name        where                           kind             mode   read                       write
    row("proc",     &[Mount],                        F::ProcDir,      0o555, Read::No,                  Write::No),
    row("self",     &[Mount, Proc],                  F::SelfLink,     0o777, Read::Daemon,              Write::No),
    row("status",   &[Mount],                        F::Status,       0o444, Read::Daemon,              Write::No),
    row("share",    &[Resource],                     F::Share,        0o444, Read::Node(read::share),   Write::Node(write::share)),
    row("share",    &[Scheduler, Queue],             F::Share,        0o644, Read::Node(read::share),   Write::Node(write::share)),
    row("shares",   &[Resource, Scheduler],          F::Shares,       0o644, Read::Node(read::shares),  Write::Lines(write::shares)),
    row("policy",   &[Resource, Scheduler],          F::Policy,       0o644, Read::Node(read::policy),  Write::Node(write::policy)),
    row("newqueue", &[Resource, Scheduler],          F::NewQueue,     0o600, Read::No,                  Write::No),
    row("newsched", &[Resource, Scheduler],          F::NewSched,     0o600, Read::No,                  Write::No),
    row("mk",       &[Resource, Scheduler],          F::Mk,           0o200, Read::No,                  Write::Node(write::mk)),
    row("stat",     &[Resource, Scheduler, Queue],   F::Stat,         0o444, Read::Node(read::stat),    Write::No),
    row("cap",      &[Resource],                     F::Cap,          0o444, Read::Node(read::cap),     Write::Node(write::cap)),
    row("cap",      &[Scheduler, Queue],             F::Cap,          0o644, Read::Node(read::cap),     Write::Node(write::cap)),
    row("tune",     &[Resource, Scheduler, Queue],   F::Tune,         0o644, Read::Node(read::tune),    Write::Node(write::tune)),
    row("gc",       &[Resource],                     F::Gc,           0o444, Read::Node(read::gc),      Write::Node(write::gc)),
    row("gc",       &[Scheduler, Queue],             F::Gc,           0o644, Read::Node(read::gc),      Write::Node(write::gc)),
    row("access",   &[Resource, Scheduler, Queue],   F::Access,       0o644, Read::Node(read::access),  Write::Node(write::access)),
    row("backlog",  &[Queue],                        F::Backlog,      0o644, Read::Node(read::backlog), Write::Node(write::backlog)),
    row("dropped",  &[Queue],                        F::Dropped,      0o444, Read::Node(read::dropped), Write::No),
    row("class",    &[Queue],                        F::Class,        0o644, Read::Node(read::class),   Write::Node(write::class)),
    row("members",  &[Queue],                        F::Members,      0o644, Read::Node(read::members), Write::Node(write::members)),
    row("state",    &[Queue],                        F::State,        0o644, Read::Node(read::state),   Write::Node(write::state)),
    row("default",  &[Process],                      F::Default,      0o644, Read::Daemon,              Write::Daemon),
    row("cdefault", &[Process],                      F::ChildDefault, 0o644, Read::Daemon,              Write::Daemon),
    row("fds",      &[Process],                      F::Fds,          0o600, Read::Daemon,              Write::Daemon),
    row("listen",   &[Process],                      F::Listen,       0o600, Read::Daemon,              Write::Daemon),
    row("domain",   &[Process],                      F::Domain,       0o444, Read::Daemon,              Write::No),
];

/// The row of a file by its kind and place.
pub fn entry(file: FileKind, place: Place) -> Option<&'static Entry> {
    TABLE.iter().find(|e| e.file == file && e.places.contains(&place))
}

impl Place {
    /// Its row by name.
    pub fn file(self, name: &str) -> Option<&'static Entry> {
        TABLE.iter().find(|e| e.name == name && e.places.contains(&self))
    }

    /// Its rows, in order of the table.
    pub fn files(self) -> impl Iterator<Item = &'static Entry> {
        TABLE.iter().filter(move |e| e.places.contains(&self))
    }
}
