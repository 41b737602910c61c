// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random traces of events that are legal in the present state of a pair.

use crate::core::{Id, Op, Q0, QUEUE, ROOT, SCHED, id};
use crate::model::{EEVDF, State};
use crate::pair::{Event, Pair};
use crate::rng::Rng;

/// What a trace is made of.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each is said by its name")]
#[expect(clippy::struct_excessive_bools, reason = "each switches one kind of event")]
pub struct Flavour {
    pub weights: Vec<u32>,
    pub item_weights: Vec<u32>,
    pub lengths: Vec<u64>,
    pub nodes: usize,
    pub items: usize,
    pub caps: bool,
    pub affinity: bool,
    pub edits: bool,
    pub background: bool,
    pub classes: Vec<u32>,
    pub policies: Vec<u32>,
    pub strict: bool,
}

impl Flavour {
    /// Everything, with small weights.
    pub fn all() -> Self {
        Self {
            weights: vec![1000, 2000, 3000, 5000, 7000, 9000],
            item_weights: vec![1000, 1000, 1000, 3000, 335],
            lengths: vec![4_000_000, 4_000_000, 1_000_000, 2_345_678, 333_333, 0],
            nodes: 12,
            items: 14,
            caps: true,
            affinity: true,
            edits: true,
            background: true,
            classes: vec![0, 1, 2, 3],
            policies: vec![0],
            strict: false,
        }
    }

    /// One event for a pair, or none if what was drawn is not possible now.
    pub fn event(&self, r: &mut Rng, pair: &Pair) -> Option<Event> {
        let m = &pair.model;
        let ids: Vec<Id> = m.nodes.keys().copied().collect();
        let items: Vec<u32> = m.items.keys().copied().collect();
        let of = |s: State| -> Vec<u32> {
            m.items.iter().filter(|(_, i)| i.state == s).map(|(&i, _)| i).collect()
        };
        let busy: Vec<u32> =
            m.items.values().filter(|i| i.state == State::Service).map(|i| i.unit).collect();
        let free: Vec<u32> = (0..m.units).filter(|u| !busy.contains(u)).collect();
        let any = |r: &mut Rng, v: &[u32]| (!v.is_empty()).then(|| *r.pick(v));
        match r.below(100) {
            // Only eevdf looks at it.
            14 if self.policies.contains(&EEVDF) => {
                Some(Event::Called { item: any(r, &of(State::Service))? })
            }
            0..=14 => Some(Event::Time(r.below(3_000_000))),
            15..=39 => Some(Event::Pick { unit: any(r, &free)? }),
            40..=64 => {
                let item = any(r, &of(State::Service))?;
                Some(Event::Settle { item, work: *r.pick(&self.lengths), more: r.chance(75) })
            }
            65..=76 => Some(Event::Wake { item: any(r, &of(State::Idle))? }),
            77..=78 => Some(Event::Remove { item: any(r, &of(State::Queued))? }),
            79..=83 => {
                let queues: Vec<Id> =
                    ids.iter().copied().filter(|i| m.nodes[i].kind == QUEUE).collect();
                let queue = *r.pick(&queues);
                (items.len() < self.items).then(|| Event::NewItem {
                    queue,
                    weight: *r.pick(&self.item_weights),
                    flags: *r.pick(&[0, 0, 0, 1, 2, 4, 5]),
                })
            }
            84 => Some(Event::Leave { item: any(r, &of(State::Idle))? }),
            85..=86 => Some(Event::Move {
                item: any(r, &items)?,
                to: *r.pick(&ids),
                work: *r.pick(&self.lengths),
            }),
            87 if self.edits => Some(Event::ItemWeight {
                item: any(r, &items)?,
                weight: *r.pick(&self.item_weights),
            }),
            88..=89 if self.affinity => {
                let mask = if r.chance(40) {
                    None
                } else {
                    Some([r.range(1, (1 << m.units.min(60)) - 1), 0, 0, 0])
                };
                Some(Event::Units { item: any(r, &items)?, mask })
            }
            90..=99 if self.edits => {
                let count = if r.chance(70) { 1 } else { r.range(2, 4) };
                let mut ids = ids;
                let mut ops = Vec::new();
                for _ in 0..count {
                    let op = self.op(r, pair, &ids);
                    if let Op::Create { node, .. } = op {
                        ids.push(node);
                    }
                    ops.push(op);
                }
                Some(Event::Edit(ops))
            }
            _ => None,
        }
    }

    fn op(&self, r: &mut Rng, pair: &Pair, ids: &[Id]) -> Op {
        let node = *r.pick(ids);
        let weight = if self.background && r.chance(10) { 0 } else { *r.pick(&self.weights) };
        match r.below(if self.policies.len() > 1 { 24 } else { 20 }) {
            0..=4 if ids.len() < self.nodes => {
                let index = u32::try_from(r.range(2, 2 + self.nodes as u64)).expect("small");
                let gen_ =
                    pair.model.gens.get(&index).copied().unwrap_or(0) + u32::from(!r.chance(5));
                let kind = if r.chance(60) { QUEUE } else { SCHED };
                let alg = *r.pick(if kind == QUEUE { &self.classes } else { &self.policies });
                Op::Create { node: id(index, gen_), parent: node, kind, alg }
            }
            0..=8 => Op::Reweight { node, weight },
            9..=10 => Op::Delete { node, drain: r.chance(60) },
            11..=12 if self.caps => Op::Cap {
                node,
                ppm: *r.pick(&[0, 50_000, 300_000, 333_333, 700_000]),
                burst: *r.pick(&[0, 1_000_000, 20_000_000]),
            },
            13..=14 => Op::Class { node, class: *r.pick(&self.classes) },
            15 => Op::Limit { node, members: r.below(5) },
            16 => Op::Reset { node },
            17 => Op::Raw {
                code: *r.pick(&[0, 10, 77]),
                node,
                parent: ROOT,
                a: r.bits(),
                b: r.bits(),
            },
            20..=21 => Op::Policy { node, policy: *r.pick(&self.policies) },
            22 => Op::Tune {
                node,
                which: r.range(1, 5),
                value: *r.pick(&[0, 2_000_000, 10_000_000, 1_000_000_001]),
            },
            23 => {
                Op::Param { node, which: 2, value: *r.pick(&[0, 1_000_000, 7_654_321, 30_000_000]) }
            }
            _ => Op::Move { node, parent: *r.pick(ids) },
        }
    }
}

/// A pair with some queues, so that a trace begins with something to schedule.
///
/// # Panics
/// When the core refuses.
pub fn seeded(pair: &mut Pair, r: &mut Rng, flavour: &Flavour) {
    let mut parents = vec![ROOT];
    for index in 2..=u32::try_from(2 + flavour.nodes / 2).expect("small") {
        let kind = if r.chance(65) { QUEUE } else { SCHED };
        let alg = *r.pick(if kind == QUEUE { &flavour.classes } else { &flavour.policies });
        let node = id(index, 1);
        let parent = *r.pick(&parents);
        let weight = *r.pick(&flavour.weights);
        let ops = vec![Op::Create { node, parent, kind, alg }, Op::Reweight { node, weight }];
        pair.apply(&Event::Edit(ops)).expect("a first tree");
        if kind == SCHED {
            parents.push(node);
        }
    }
    let queues: Vec<Id> =
        pair.model.nodes.iter().filter(|(_, n)| n.kind == QUEUE).map(|(&i, _)| i).collect();
    for _ in 0..flavour.items / 2 {
        let queue = if r.chance(10) { Q0 } else { *r.pick(&queues) };
        let weight = *r.pick(&flavour.item_weights);
        pair.apply(&Event::NewItem { queue, weight, flags: 0 }).expect("a first item");
    }
}
