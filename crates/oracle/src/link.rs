// SPDX-License-Identifier: MIT OR Apache-2.0
//! A paced link in simulated time (one unit of work per unit of time), with flows of packets below
//! a tree; and the theorems of the policies for packets (docs/notes/algorithms.md §2.5), checked at
//! each departure from what is observed.

use std::collections::VecDeque;

use crate::core::{Build, Core, FIFO, Id, ONE, Op, QUEUE, ROOT, SCHED, Setup, WF2Q, WF2QP, id};
use crate::rng::Rng;

const TOP: Id = id(2, 1);
/// Tags are whole: one unit of V is W / 2^20 of work, and a decision compares two.
const ULPS: f64 = 4.0 / (1_u32 << 20) as f64;

#[expect(clippy::cast_precision_loss, reason = "work of a short trace")]
fn real(x: u64) -> f64 {
    x as f64
}

/// One packet that waits.
#[derive(Clone, Copy, Debug)]
struct Packet {
    length: u64,
    /// Latest departures by WF-2 and by WF-3.
    due: [f64; 2],
}

/// How a flow sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Conforming,
    Bursts,
    Greedy,
    Always,
}

#[derive(Debug)]
struct Flow {
    item: u32,
    weight: f64,
    /// Its share of the link, by the weights of all that exist; and the longest packet.
    share: f64,
    longest: u64,
    mode: Mode,
    next: u64,
    queue: VecDeque<Packet>,
    eat: Option<(f64, u64)>,
    /// Bound of its worst-case fair index, in work.
    alpha: f64,
    served: u64,
    /// Least `share · W - W_i` of its backlogged period.
    best: Option<f64>,
}

/// What a run measured, as parts of the bounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Worst {
    /// Lateness beyond EAT + l/r, in longest packets (WF-2).
    pub late: f64,
    /// B-WFI at departures, of its bound (WF-4, WF-5).
    pub index: f64,
    /// Behind and ahead of the fluid share, of the bounds (WF-1); only where all always send.
    pub behind: f64,
    /// See `behind`.
    pub ahead: f64,
}

impl Worst {
    fn max(&mut self, other: &Self) {
        self.late = self.late.max(other.late);
        self.index = self.index.max(other.index);
        self.behind = self.behind.max(other.behind);
        self.ahead = self.ahead.max(other.ahead);
    }
}

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Policy of all schedulers below the root.
    pub policy: u32,
    /// Levels below the root's only scheduler.
    pub levels: u64,
    /// Whether arrivals tell how far the packet on the wire is.
    pub clocked: bool,
    /// All flows always send.
    pub always: bool,
    /// Weights change now and then.
    pub reweights: bool,
}

struct Node {
    id: Id,
    parent: usize,
    weight: u32,
    flow: Option<usize>,
    longest: u64,
}

struct Bed {
    core: Core,
    nodes: Vec<Node>,
    flows: Vec<Flow>,
    plan: Plan,
    now: u64,
    total: u64,
    /// What rounding is worth, in work.
    eps: f64,
    /// The flow on the wire, since when, until when.
    wire: Option<(usize, u64, u64)>,
}

impl Bed {
    fn new(build: Build, r: &mut Rng, plan: Plan) -> Self {
        let start = *r.pick(&[0, 0, u64::MAX - (1 << 24), (1 << 63) - (1 << 24)]);
        let mut core = Core::new(Setup { build, start, ..Setup::default() });
        core.must(0, Op::Create { node: TOP, parent: ROOT, kind: SCHED, alg: plan.policy });
        core.must(0, Op::Reweight { node: TOP, weight: ONE });
        let mut nodes = vec![Node { id: TOP, parent: 0, weight: ONE, flow: None, longest: 0 }];
        let scale = *r.pick(&[20, 1500, 65_536]);
        // A tag's unit is weight / 2^20 of work: large weights only for large packets.
        let heaviest = if scale == 20 { 9 } else { *r.pick(&[9, 9, 1000]) };
        let mut flows = Vec::new();
        let mut parents = vec![0];
        let mut index = 3;
        for level in 1..=plan.levels {
            let mut below = Vec::new();
            for &parent in &parents {
                for _ in 0..r.range(2, if plan.levels == 1 { 6 } else { 3 }) {
                    let node = id(index, 1);
                    index += 1;
                    let leaf = level == plan.levels || r.chance(25);
                    let (kind, alg) = if leaf { (QUEUE, FIFO) } else { (SCHED, plan.policy) };
                    let weight = u32::try_from(r.range(1, heaviest)).expect("small") * ONE;
                    core.must(0, Op::Create { node, parent: nodes[parent].id, kind, alg });
                    core.must(0, Op::Reweight { node, weight });
                    let mut flow = None;
                    let longest = if leaf { r.range(1, scale) } else { 0 };
                    if leaf {
                        flow = Some(flows.len());
                        let mode =
                            *r.pick(&[Mode::Conforming, Mode::Bursts, Mode::Greedy, Mode::Always]);
                        flows.push(Flow {
                            item: core.item_new(node, ONE, 0).expect("room"),
                            weight: 0.0,
                            share: 0.0,
                            longest,
                            mode: if plan.always { Mode::Always } else { mode },
                            next: if plan.always { 0 } else { r.below(10 * scale) },
                            queue: VecDeque::new(),
                            eat: None,
                            alpha: 0.0,
                            served: 0,
                            best: None,
                        });
                    } else {
                        below.push(nodes.len());
                    }
                    nodes.push(Node { id: node, parent, weight, flow, longest });
                }
            }
            parents = below;
        }
        for n in (1..nodes.len()).rev() {
            let (p, l) = (nodes[n].parent, nodes[n].longest);
            nodes[p].longest = nodes[p].longest.max(l);
        }
        let mut bed = Self { core, nodes, flows, plan, now: 0, total: 0, eps: 0.0, wire: None };
        bed.shares();
        bed
    }

    /// A node's part of its parent, and the longest packet among its siblings.
    fn part(&self, n: usize) -> (f64, u64) {
        let of = |k: &&Node| k.parent == self.nodes[n].parent && k.id != TOP;
        let sum: u64 = self.nodes.iter().filter(of).map(|k| u64::from(k.weight)).sum();
        let longest = self.nodes.iter().filter(of).map(|k| k.longest).max().unwrap_or(0);
        (f64::from(self.nodes[n].weight) / real(sum), longest)
    }

    /// Shares, and the bounds that follow from them (WF-4; below the root WF-5).
    fn shares(&mut self) {
        self.eps = ULPS * self.nodes.iter().map(|n| f64::from(n.weight)).sum::<f64>();
        for leaf in 1..self.nodes.len() {
            let Some(flow) = self.nodes[leaf].flow else { continue };
            let mut share = 1.0;
            let mut alpha = 0.0;
            let mut n = leaf;
            while n != 0 {
                let (part, longest) = self.part(n);
                let own = real(self.nodes[n].longest);
                // share of the leaf / share of n, so far
                alpha += share
                    * (own
                        + (real(longest) - own) * part
                        + if self.plan.clocked { 0.0 } else { real(longest) * part });
                share *= part;
                n = self.nodes[n].parent;
            }
            let f = &mut self.flows[flow];
            (f.share, f.alpha) = (share, alpha);
            f.weight = f64::from(self.nodes[leaf].weight);
            f.best = None;
        }
    }

    fn longest(&self) -> f64 {
        real(self.flows.iter().map(|f| f.longest).max().unwrap_or(0))
    }

    fn arrive(&mut self, k: usize, length: u64) {
        let most = self.longest();
        let extra = if self.plan.clocked { 0.0 } else { most };
        let now = real(self.now);
        let f = &mut self.flows[k];
        let eat = f.eat.map_or(now, |(e, l)| now.max(e + real(l) / f.share));
        f.eat = Some((eat, length));
        let waiting: u64 = f.queue.iter().map(|p| p.length).sum::<u64>() + length;
        let longest = real(f.longest);
        let due = [
            eat + real(length) / f.share + most + extra,
            now + (real(waiting) + longest) / f.share + most - longest + extra,
        ];
        f.queue.push_back(Packet { length, due });
        let (item, told) = (f.item, u32::try_from(length).expect("a packet"));
        let done = match self.wire {
            Some((_, since, _)) if self.plan.clocked => {
                u32::try_from(self.now - since).expect("a packet")
            }
            _ => u32::MAX,
        };
        self.core.progress(done);
        self.core.arrive(item, told);
        if f.queue.len() == 1 {
            self.core.item_length(item, told);
            self.core.wake(item, self.now);
        }
    }

    /// The packet on the wire has left.
    fn depart(&mut self, worst: &mut Worst) -> Result<(), String> {
        let Some((k, _, end)) = self.wire.take() else { return Ok(()) };
        self.now = end;
        let packet = self.flows[k].queue.pop_front().ok_or("an empty flow was served")?;
        let next = self.flows[k].queue.front().map(|p| u32::try_from(p.length).expect("a packet"));
        let item = self.flows[k].item;
        if let Some(next) = next {
            self.core.item_length(item, next);
        }
        self.core.settle(item, packet.length, next.is_some(), self.now);
        self.total += packet.length;
        let (total, now, most, eps) = (real(self.total), real(self.now), self.longest(), self.eps);
        let flat = self.plan.levels == 1;
        for (i, f) in self.flows.iter_mut().enumerate() {
            if i == k {
                f.served += packet.length;
            }
            let x = f.share * total - real(f.served);
            if i == k {
                if flat && !self.plan.reweights {
                    let extra = if self.plan.clocked { 0.0 } else { most };
                    worst.late = worst.late.max((now - packet.due[0] + extra + most) / most);
                    if now > packet.due[0] + eps {
                        return Err(format!(
                            "WF-2: flow {k} leaves {:.1} late",
                            now - packet.due[0]
                        ));
                    }
                    if now > packet.due[1] + eps {
                        return Err(format!(
                            "WF-3: flow {k} leaves {:.1} late",
                            now - packet.due[1]
                        ));
                    }
                }
                // Not of wf2q: a flow may wait here while the fluid system has nothing of it.
                if let Some(best) = f.best.filter(|_| self.plan.policy != WF2Q) {
                    worst.index = worst.index.max((x - best) / f.alpha);
                    if x - best > f.alpha + eps {
                        return Err(format!(
                            "WF-4/5: flow {k} is {:.1} behind, at most {:.1}",
                            x - best,
                            f.alpha
                        ));
                    }
                }
            }
            if self.plan.always && flat && !self.plan.reweights {
                let ahead = (1.0 - f.share) * real(f.longest);
                (worst.behind, worst.ahead) =
                    (worst.behind.max(x / most), worst.ahead.max(-x / ahead));
                if x > most + eps || -x > ahead + eps {
                    return Err(format!(
                        "WF-1: flow {i} is {x:.1} behind, at most {most:.1}, and {ahead:.1} ahead"
                    ));
                }
            }
            f.best = if f.queue.is_empty() { None } else { Some(f.best.map_or(x, |b| b.min(x))) };
        }
        Ok(())
    }

    fn gap(&self, r: &mut Rng, k: usize, length: u64) -> u64 {
        let f = &self.flows[k];
        let gap = match f.mode {
            Mode::Conforming => real(length) / f.share * r.pick(&[1.0, 1.0, 1.5, 3.0]),
            Mode::Bursts if r.chance(80) => 0.0,
            Mode::Bursts => real(f.longest) / f.share * 8.0,
            Mode::Greedy => real(length) / f.share * 0.7,
            // As fast as the link: there is always something.
            Mode::Always => real(length) * 0.9,
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a short time")]
        let gap = gap.ceil() as u64;
        gap
    }

    fn run(&mut self, r: &mut Rng, steps: usize) -> Result<Worst, String> {
        let mut worst = Worst::default();
        for k in 0..self.flows.len() {
            // All are there before the first packet leaves.
            for _ in 0..if self.plan.always { 3 } else { 0 } {
                let length = r.range(1, self.flows[k].longest);
                self.arrive(k, length);
            }
        }
        for step in 0..steps {
            let (k, at) =
                self.flows.iter().map(|f| f.next).enumerate().min_by_key(|x| x.1).expect("flows");
            let said = |e: String| format!("step {step}: {e}");
            if let Some((_, _, end)) = self.wire
                && end <= at
            {
                self.depart(&mut worst).map_err(said)?;
                if self.plan.reweights && r.chance(4) {
                    let n = 1 + r.index(self.nodes.len() - 1);
                    let weight = u32::try_from(r.range(1, 9)).expect("small") * ONE;
                    self.core.must(self.now, Op::Reweight { node: self.nodes[n].id, weight });
                    self.nodes[n].weight = weight;
                    self.shares();
                }
            } else {
                self.now = self.now.max(at);
                let longest = self.flows[k].longest;
                let least = if r.chance(50) { 1 } else { longest.div_ceil(2) };
                let length = r.range(least, longest);
                self.flows[k].next = at + self.gap(r, k, length);
                if self.flows[k].queue.len() < 40 {
                    self.arrive(k, length);
                }
            }
            if self.wire.is_none() {
                match self.core.pick(0, self.now) {
                    Some(item) => {
                        let k =
                            self.flows.iter().position(|f| f.item == item).ok_or("which flow?")?;
                        let length =
                            self.flows[k].queue.front().ok_or("an empty flow was picked")?.length;
                        self.wire = Some((k, self.now, self.now + length));
                    }
                    None if self.flows.iter().any(|f| !f.queue.is_empty()) => {
                        return Err(said("the link is idle, though packets wait".into()));
                    }
                    None => {}
                }
            }
            if step % 64 == 0 {
                self.core.check().map_err(said)?;
            }
        }
        Ok(worst)
    }
}

/// One plan, one seed.
pub fn run(build: Build, seed: u64, plan: Plan) -> Result<Worst, String> {
    let mut r = Rng::new(seed ^ 0x11a4 ^ u64::from(plan.policy) << 32);
    Bed::new(build, &mut r, plan).run(&mut r, 1200).map_err(|e| format!("{plan:?}: {e}"))
}

const FLAT: Plan =
    Plan { policy: WF2QP, levels: 1, clocked: true, always: false, reweights: false };

/// All plans of a policy. Answers what was measured.
fn plans(build: Build, seed: u64, policy: u32) -> Result<Worst, String> {
    let mut worst = Worst::default();
    for plan in [
        FLAT,
        Plan { clocked: false, ..FLAT },
        Plan { always: true, ..FLAT },
        Plan { levels: 2, ..FLAT },
        Plan { levels: 3, clocked: false, ..FLAT },
    ] {
        worst.max(&run(build, seed, Plan { policy, ..plan })?);
    }
    Ok(worst)
}

/// WF-1 to WF-5 for wf2q+.
pub fn wf2qp(build: Build, seed: u64) -> Result<(), String> {
    plans(build, seed, WF2QP).map(drop)
}

/// WF-1 to WF-3 for wf2q, and that it serves whoever waits at all depths.
pub fn wf2q(build: Build, seed: u64) -> Result<(), String> {
    plans(build, seed, WF2Q).map(drop)
}

/// WF-4 and WF-5 with new weights, from the moment of the change.
pub fn wf2qp_reweights(build: Build, seed: u64) -> Result<(), String> {
    for levels in [1, 2] {
        run(build, seed, Plan { levels, reweights: true, ..FLAT })?;
    }
    Ok(())
}

/// The worst of some seeds, for people to read.
pub fn measured(seeds: std::ops::Range<u64>, plan: Plan) -> Result<Worst, String> {
    let mut worst = Worst::default();
    for seed in seeds {
        worst.max(&run(Build::Real, seed, plan)?);
    }
    Ok(worst)
}
