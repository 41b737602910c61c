// SPDX-License-Identifier: MIT OR Apache-2.0
//! What HTB is told so that it shares as the tree says. Pure.
//!
//! A node is a class: its minor number is the node's index, the root's is [`ROOT_MINOR`]. Its rate
//! is its part of its parent's by the weights, so who wants is given its share first, and what a
//! queue leaves goes to its siblings before it goes up. What is left at a level goes round by
//! quanta, which are in proportion to the queues' rates: exactly by the weights among queues, and
//! among scheduler nodes as far as the queues below them want. Weight 0 is HTB's last priority,
//! with a rate of nearly nothing.

use std::collections::BTreeMap;

use reserv_model::{Error, ErrorKind, Node, Tree};

use super::super::rtnl::attribute;
use crate::PlaneError;
use crate::count::Books;

/// The root's class. No node has this index.
pub(super) const ROOT_MINOR: u16 = 0xfffe;
/// Weights of siblings may differ by this: from a quantum of the longest packet, below which rounds
/// go by packets, to 200 000 bytes, above which the kernel warns.
pub(super) const WEIGHT_RANGE: u64 = 130;
/// Levels of HTB (`TC_HTB_MAXDEPTH`), the root's and the queues' among them.
const LEVELS: u32 = 8;
const QUANTUM_MAX: u64 = 200_000;
/// One round of all queues takes this long, where the longest packet lets it.
const ROUND_MS: u64 = 20;
/// Of the rate that late timers may not lose.
const BURST_NS: u64 = 20_000_000;
/// What the kernel lets a class owe.
const BURST_MAX_NS: u64 = 60_000_000_000;
const BACKGROUND_PRIORITY: u32 = 7;

/// What waits in a queue at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    Packets(u32),
    Bytes(u32),
}

/// One class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) parent: u16,
    /// The root's is 0.
    pub(super) depth: u32,
    /// Bytes per second.
    pub(super) rate: u64,
    pub(super) ceil: u64,
    pub(super) quantum: u32,
    pub(super) priority: u32,
    /// Of a queue.
    pub(super) limit: Option<Limit>,
}

/// All classes, by minor number.
pub(super) type Shapes = BTreeMap<u16, Shape>;

#[expect(clippy::cast_possible_truncation, reason = "a tree has fewer nodes (NODES_MAX)")]
pub(super) const fn minor(index: u32) -> u16 {
    if index == 0 { ROOT_MINOR } else { index as u16 }
}

/// The largest packet of many segments on a link of `rate` bytes per second: 2 ms of it, from 8 KiB
/// to 64. A round that gives a queue less than its packet goes by packets, not by bytes.
pub(super) fn segments_max(rate: u64) -> u32 {
    u32::try_from((rate / 500).clamp(8192, 65_536)).unwrap_or(65_536)
}

/// The classes of a tree on a link of `rate` bytes per second whose longest packet is `longest`
/// bytes, with `limit` bytes for each queue.
pub(super) fn shapes(
    books: &Books,
    rate: u64,
    longest: u32,
    limit: u32,
) -> Result<Shapes, PlaneError> {
    let mut below: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (id, node) in books.iter().filter(|(id, _)| id.index != 0) {
        below.entry(node.parent).or_default().push(id.index);
    }
    let nodes: BTreeMap<u32, _> = books.iter().map(|(id, node)| (id.index, node)).collect();
    let mut shapes = Shapes::new();
    let root =
        Shape { parent: 0, depth: 0, rate, ceil: rate, quantum: longest, priority: 0, limit: None };
    let mut open = vec![(0_u32, root.clone())];
    shapes.insert(ROOT_MINOR, root);
    while let Some((index, up)) = open.pop() {
        let Some(children) = below.get(&index) else { continue };
        if up.depth + 2 > LEVELS {
            return Err(PlaneError::Unsupported(format!(
                "HTB has {LEVELS} levels, the queues' among them"
            )));
        }
        let weights =
            || children.iter().map(|child| u64::from(nodes[child].weight)).filter(|w| *w > 0);
        let (sum, least, most) = (weights().sum::<u64>(), weights().min(), weights().max());
        if let (Some(least), Some(most)) = (least, most)
            && most > least * WEIGHT_RANGE
        {
            return Err(PlaneError::Unsupported(format!(
                "HTB shares by weights that differ by {WEIGHT_RANGE} to 1 at most, and these siblings' would be {} and {}",
                Milli(most),
                Milli(least)
            )));
        }
        for &child in children {
            let node = nodes[&child];
            let part = u128::from(up.rate) * u128::from(node.weight) / u128::from(sum.max(1));
            let background = node.weight == 0 || up.priority == BACKGROUND_PRIORITY;
            let cap = if node.cap > 0 { node.cap.min(rate) } else { rate };
            let shape = Shape {
                parent: minor(index),
                depth: up.depth + 1,
                rate: u64::try_from(part).unwrap_or(u64::MAX).clamp(1, cap),
                ceil: cap,
                quantum: longest,
                priority: if background { BACKGROUND_PRIORITY } else { 0 },
                limit: node.kind.is_queue().then_some(match (node.limit, node.limit_bytes) {
                    (0, 0) => Limit::Bytes(limit),
                    (0, bytes) => Limit::Bytes(bytes),
                    (packets, _) => Limit::Packets(packets),
                }),
            };
            if !node.kind.is_queue() {
                open.push((child, shape.clone()));
            }
            shapes.insert(minor(child), shape);
        }
    }
    set_quanta(&mut shapes, rate, longest);
    Ok(shapes)
}

/// Whether HTB can share as a tree says: [`shapes`] would be refused for the same, but knows no
/// names.
pub(crate) fn fits(tree: &Tree) -> Result<(), Error> {
    let refused = |why| Err(Error::new(ErrorKind::Unsupported, why));
    for (level, node) in tree.walk() {
        if u32::try_from(level).unwrap_or(u32::MAX) >= LEVELS {
            let name = tree.shown(node.id);
            return refused(format!("{name}: HTB has {LEVELS} levels, the queues' among them"));
        }
        let weighed = || {
            let children = node.children.values().filter_map(|&id| tree.get(id));
            children.filter(|child| child.weight.milli() > 0)
        };
        let weight = |node: &&Node| node.weight;
        let (Some(least), Some(most)) =
            (weighed().min_by_key(weight), weighed().max_by_key(weight))
        else {
            continue;
        };
        let from = u64::from(most.weight.milli()).div_ceil(WEIGHT_RANGE);
        if u64::from(least.weight.milli()) < from {
            return refused(format!(
                "{} with weight {} beside {} with {}: HTB shares by weights that differ by \
                 {WEIGHT_RANGE} to 1 at most, so beside {} from {} on",
                tree.shown(least.id),
                least.weight,
                tree.shown(most.id),
                most.weight,
                most.weight,
                Milli(from)
            ));
        }
    }
    Ok(())
}

/// In proportion to the rates of the queues that take part; the smallest holds the longest packet.
fn set_quanta(shapes: &mut Shapes, rate: u64, longest: u32) {
    let takes_part = |shape: &&Shape| shape.limit.is_some() && shape.priority == 0;
    let least = shapes.values().filter(takes_part).map(|shape| shape.rate).min().unwrap_or(1);
    let sum: u64 = shapes.values().filter(takes_part).map(|shape| shape.rate).sum();
    // The smallest queue's quantum if a round is to take ROUND_MS.
    let round = u128::from(rate * ROUND_MS / 1000);
    let fit = u64::try_from(round * u128::from(least) / u128::from(sum.max(1))).unwrap_or(u64::MAX);
    let most = shapes.values().filter(takes_part).map(|shape| shape.rate).max().unwrap_or(1);
    let range = QUANTUM_MAX * least / most.max(1);
    // What holds a packet of many segments, if the largest queue's stays what the kernel likes;
    // else a plain packet.
    let base = fit
        .clamp(u64::from(segments_max(rate).max(longest)), QUANTUM_MAX)
        .min(range)
        .max(longest.into());
    for shape in shapes.values_mut().filter(|shape| shape.limit.is_some() && shape.priority == 0) {
        let quantum = u128::from(base) * u128::from(shape.rate) / u128::from(least);
        let most = QUANTUM_MAX.max(u64::from(longest));
        shape.quantum = u32::try_from(quantum.min(u128::from(most))).unwrap_or(longest);
    }
}

struct Milli(u64);

impl std::fmt::Display for Milli {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 % 1000 {
            0 => write!(f, "{}", self.0 / 1000),
            rest => write!(f, "{}.{rest:03}", self.0 / 1000),
        }
    }
}

const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_INIT: u16 = 2;
const TCA_HTB_RATE64: u16 = 6;
const TCA_HTB_CEIL64: u16 = 7;

/// The options of the qdisc: what no filter and no priority names is q0's.
pub(super) fn qdisc_options(default: u16) -> Vec<u8> {
    let mut glob = Vec::new();
    for word in [3, 10, u32::from(default), 0, 0] {
        // struct tc_htb_glob: version, rate2quantum, defcls, debug, direct_pkts
        glob.extend(u32::to_ne_bytes(word));
    }
    let mut out = Vec::new();
    attribute(&mut out, TCA_HTB_INIT, &glob);
    out
}

/// Time to send what may be saved up, in the kernel's ticks of 64 ns.
fn burst(rate: u64, longest: u32) -> u32 {
    let packet = u128::from(longest) * 1_000_000_000 / u128::from(rate.max(1));
    let ns = u64::try_from(packet).unwrap_or(u64::MAX).clamp(BURST_NS, BURST_MAX_NS);
    u32::try_from(ns / 64).unwrap_or(u32::MAX)
}

impl Shape {
    /// The options of the class.
    pub(super) fn options(&self, longest: u32) -> Vec<u8> {
        let mut parms = Vec::new();
        for rate in [self.rate, self.ceil] {
            // struct tc_ratespec: cell_log, linklayer (Ethernet), overhead, cell_align, mpu, rate
            parms.extend([0, 1, 0, 0, 0, 0, 0, 0]);
            parms.extend(u32::try_from(rate).unwrap_or(u32::MAX).to_ne_bytes());
        }
        for word in
            [burst(self.rate, longest), burst(self.ceil, longest), self.quantum, 0, self.priority]
        {
            parms.extend(word.to_ne_bytes()); // buffer, cbuffer, quantum, level, prio
        }
        let mut out = Vec::new();
        attribute(&mut out, TCA_HTB_PARMS, &parms);
        for (kind, rate) in [(TCA_HTB_RATE64, self.rate), (TCA_HTB_CEIL64, self.ceil)] {
            if u32::try_from(rate).is_err() {
                attribute(&mut out, kind, &rate.to_ne_bytes());
            }
        }
        out
    }
}
