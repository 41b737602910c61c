// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reserv's model: units, trees of reservations and the edits that change them.
//!
//! Pure: time, randomness and I/O are arguments; no clock, file, thread, float or hash order.
//!
//! * [`Tree`]: the reservations of one resource; [`Tree::plan`] checks [`Request`]s, [`Plan`] goes
//!   to the journal ([`Record`]) and the plane ([`Batch`]), [`Tree::commit`] brings it into effect.
//! * [`Snapshot`] and [`Record`]: what survives the daemon.
//! * [`Tree::garbage`], [`Handles`]: which nodes are collected.
//! * [`Containers`]: the activities that have one share in several trees, and their parents.
//! * [`Config`]: a declarative tree, [`diff`] and [`to_config`].
//! * [`Shares`]: who gets what, exactly, given who wants; [`Tree::guarantee`]: what a queue has
//!   whoever wants.
//! * [`Tree::set_capacity`], [`Tree::overcommitted`]: admission control; every plan is checked
//!   against the minimums that were promised.
//! * [`Tree::decide`], [`Tree::permit`]: who may do what, by the access lists of nodes
//!   ([`AccessEntry`]).
//! * [`Fixed`]: shares that stay what they are when siblings come and go.
//! * [`ThreadParams`], [`Tune`]: what threads and nodes can be set to.
//! * [`ResourceKind`]: what differs between resources; [`Source`]: what a counting one counts.
//! * [`Sample`]: what a plane counts for a node.
//! * [`Share`], [`Cap`], [`Weight`], [`Class`] …: values whose `Display` parses back with
//!   `FromStr`.
#![forbid(unsafe_code)]
#![deny(
    clippy::float_arithmetic,
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros
)]

mod access;
mod admission;
mod arrival;
mod backlog;
mod batch;
mod collect;
mod config;
mod container;
mod edit;
mod error;
mod fixed;
mod groups;
mod guarantee;
mod id;
mod journal;
mod kind;
mod listen;
mod name;
mod nice;
mod node;
mod packet;
mod permit;
mod plan;
mod rate;
mod resource;
mod rule;
mod sample;
mod share;
mod sight;
mod thread;
mod tree;
mod tune;
mod units;

pub use access::{
    AccessChange, AccessEntry, Caller, ChangedAccess, Decision, ENTRIES_MAX, Party, QUOTA_DEFAULT,
    Right, Rights, USE_RULES_MAX, UseRule, Verb, Why,
};
pub use arrival::{
    ARRIVAL_RULES_MAX, Arrival, ArrivalRule, ArrivalSample, Burst, CHAIN_MAX, LetIn,
};
pub use backlog::{Backlog, Memory};
pub use batch::{Batch, DeleteMode, Op, Outcome};
pub use collect::Handles;
pub use config::{
    Config, ContainerConfig, Driver, NodeConfig, NodeKind, OfContainers, ResourceConfig, Written,
    diff, diff_as_asked, difference_of_access, listed_access, nodes_of, requests_of, same_cap,
    split, to_config, to_config_with_draining,
};
pub use container::{
    CONTAINER_FILES, Container, ContainerEdit, ContainerId, ContainerLimits, Containers, Holds,
    NewContainer,
};
pub use edit::Edit;
pub use error::{Errno, Error, ErrorKind, quoted};
pub use fixed::FIXED_MAX;
pub use groups::Groups;
pub use guarantee::promised;
pub use id::{NODES_MAX, NodeId};
pub use journal::{Record, SavedNode, SavedSlot, Snapshot};
pub use kind::{Class, Kind, NewKind, Personality, Policy};
pub use listen::{Client, Listen};
pub use name::{NAME_MAX, Name, NodePath, RESERVED_NAMES};
pub use nice::{NICE_0, nice_weight};
pub use node::Node;
pub use packet::{
    PACKET_RULES_MAX, PacketRule, PacketRules, Packets, Ports, Prefix, Protocol, RuleOfLink,
};
pub use plan::{NodeRef, Plan, Request};
pub use rate::Rate;
pub use resource::{DiskModel, Front, Receive, ResourceKind, Source};
pub use rule::{Match, Principal, Rule, RulePlace, Subject};
pub use sample::{DiskSample, Dropper, LinkSample, Outside, ReceiveOthers, ReceiveSample, Sample};
pub use share::{Beside, Ppm, Shares};
pub use sight::Sight;
pub use thread::ThreadParams;
pub use tree::{DEPTH_MAX, Tree};
pub use tune::{Tune, TuneChange, TuneKey, check_tune, parse_tune, show_tune, tune_text};
pub use units::{
    Amount, CPUS_MAX, Cap, Duration, Fixed, Minimum, Share, Weight, parse_bytes, parse_cap,
    show_bytes, show_cap,
};

/// Longest text that a control file takes, in bytes.
pub const TEXT_MAX: usize = 4096;
