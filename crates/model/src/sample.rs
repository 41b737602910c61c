// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a plane counts for a node, in the words that `stat` and `backlog` use.

use core::net::IpAddr;

use crate::NodeId;

/// Counters and state of one node, read at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Which node: a packed [`NodeId`], as it stands in the kernel.
    pub id: u64,
    /// CPU time received since the node was made, in ns; of a scheduler node, by all below it.
    pub service_ns: u64,
    /// The same since the last reset through `backlog`.
    pub service_since_reset_ns: u64,
    /// Service steps (times a thread was put on a CPU and came off) since the last reset.
    pub served: u64,
    /// Threads that wait.
    pub queued: u32,
    /// Threads that run now.
    pub running: u32,
    /// Threads tagged here, whatever they do.
    pub members: u32,
    /// Whether a cap holds the node back now.
    pub throttled: bool,
    /// Time spent held back, in ns.
    pub throttled_ns: u64,
    /// Below a scheduler of policy eevdf: the length of the node's requests, set or estimated; 0:
    /// none yet.
    pub request_ns: u64,
    /// Whether the node is being drained.
    pub draining: bool,
    /// Of a queue of a link that is scheduled; there `served` and `queued` are packets.
    pub link: Option<LinkSample>,
    /// Of a queue of a link with an entrance: what has come in for it.
    pub receive: Option<ReceiveSample>,
    /// Of the root of such a link: what no queue is asked for.
    pub others: Option<ReceiveOthers>,
    /// Of q0, where the others' tree as a whole is weighed against it.
    pub outside: Option<Outside>,
    /// Of a queue of a disk that is scheduled; there `served`, `queued` and `running` are requests.
    pub disk: Option<DiskSample>,
}

/// What is q0's outside of the tree of a stock driver, and the tree's weight against it, in one
/// unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outside {
    /// The weight of the tree.
    pub tree: u32,
    /// Of what wants outside now.
    pub wanting: u32,
    /// Of what would if each of those did that the tree's weight was chosen against; those that do
    /// are counted too.
    pub all: u32,
    /// Threads of q0 that are in the tree, and want.
    pub inside: u32,
}

/// What else a disk's queue counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskSample {
    /// Bytes that wait.
    pub queued_bytes: u64,
}

/// What else a link's queue counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkSample {
    /// Bytes that wait.
    pub queued_bytes: u64,
    /// Packets refused since the last reset because the queue was full.
    pub dropped: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
    /// Most packets that wait, in force.
    pub limit_packets: u32,
    /// Most bytes.
    pub limit_bytes: u32,
}

/// Packets that came in, since the last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveSample {
    /// Packets that went on to their receiver.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets dropped because their receiver had no room for them.
    pub full: u64,
    /// Packets dropped because they came faster than the queue's rate.
    pub over: u64,
}

/// Packets of a prefix that a queue lost, since the last reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropper {
    /// Its first address.
    pub address: IpAddr,
    /// Bits of it that count: 24 of IPv4, 64 of IPv6.
    pub length: u8,
    /// How many packets, at most.
    pub packets: u64,
    /// By how much that may be too large.
    pub over: u64,
}

/// Packets that came in for no queue's receiver, since the entrance was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveOthers {
    /// For the machine as a whole: ARP, ICMP, groups, protocols without ports.
    pub shared: u64,
    /// For other machines, to which they are forwarded.
    pub forwarded: u64,
    /// For addresses and ports at which no socket is.
    pub nobody: u64,
    /// For a VLAN, or for another machine.
    pub elsewhere: u64,
}

impl Sample {
    /// Nothing yet.
    pub fn new(id: NodeId) -> Self {
        Self { id: id.pack(), ..Self::default() }
    }
}
