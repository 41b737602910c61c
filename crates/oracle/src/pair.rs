// SPDX-License-Identifier: MIT OR Apache-2.0
//! Core and exact model side by side: every event goes to both, and everything observable is
//! compared.

use num_traits::{Signed, ToPrimitive};

use crate::core::{Core, Id, NodeView, Op, QUEUED, SERVICE, Setup};
use crate::model::{EEVDF, Model, Q, State, Verdict, q};

/// An event of a trace. Items are named by the order in which they were made.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "named as in sched.h")]
pub enum Event {
    Time(u64),
    Edit(Vec<Op>),
    NewItem { queue: Id, weight: u32, flags: u32 },
    Leave { item: u32 },
    Move { item: u32, to: Id, work: u64 },
    Units { item: u32, mask: Option<[u64; 4]> },
    ItemWeight { item: u32, weight: u32 },
    Wake { item: u32 },
    Remove { item: u32 },
    Pick { unit: u32 },
    Begin { item: u32, unit: u32 },
    Called { item: u32 },
    Settle { item: u32, work: u64, more: bool },
    Own { queue: Id },
}

/// Core and model.
#[derive(Debug)]
#[expect(missing_docs, reason = "two halves and a clock")]
pub struct Pair {
    pub core: Core,
    pub model: Model,
    pub now: u64,
    /// What each pick answered.
    pub picks: Vec<Option<u32>>,
}

impl Pair {
    /// Two empty trees.
    pub fn new(setup: Setup) -> Self {
        Self {
            core: Core::new(setup),
            model: Model::new(setup.units, setup.quantum),
            now: 1_000_000,
            picks: Vec::new(),
        }
    }

    /// Switch the starvation rule on.
    pub fn starve(&mut self, ns: u64, gap: u64) {
        self.core.set(self.model.quantum, ns, gap);
        self.model.starve_ns = ns;
        self.model.starve_gap_ns = gap;
    }

    /// One event, then a comparison of everything.
    pub fn apply(&mut self, event: &Event) -> Result<(), String> {
        self.event_and_check(event, true)
    }

    /// One event; the comparison only if asked for.
    pub fn event_and_check(&mut self, event: &Event, check: bool) -> Result<(), String> {
        self.event(event)?;
        if check { self.verify() } else { Ok(()) }
    }

    /// The core's own invariants, and everything observable.
    pub fn verify(&self) -> Result<(), String> {
        self.core.check()?;
        self.compare()
    }

    /// What the core says after the event, for what rounding decides.
    fn listen(&mut self) {
        self.model.told = self.core.nodes().iter().map(|n| (n.id, n.client != 0)).collect();
    }

    fn called(&mut self, item: u32) {
        self.core.called(item);
        self.model.called(item);
    }

    fn event(&mut self, event: &Event) -> Result<(), String> {
        let now = self.now;
        match *event {
            Event::Time(dt) => self.now += dt,
            Event::Edit(ref ops) => {
                let want = self.expect(ops);
                let got = self.core.edit(0, now, ops);
                self.listen();
                match (&want, &got) {
                    (None, Ok(_)) => {
                        // In the order of the core: the shape first.
                        let shape = |o: &Op| {
                            matches!(o, Op::Create { .. } | Op::Delete { .. } | Op::Move { .. })
                        };
                        for op in ops.iter().filter(|o| shape(o)) {
                            self.model.edit(*op, now);
                        }
                        for op in ops.iter().filter(|o| !shape(o)) {
                            // Of a node that another operation of the batch deleted, nothing is
                            // left to change.
                            if self.model.nodes.contains_key(&op.node()) {
                                self.model.edit(*op, now);
                            }
                        }
                    }
                    (Some(e), Err(r)) if *e == r.error => self.undone(&ops[..r.failed as usize]),
                    _ => return Err(format!("edit: {got:?}, expected error {want:?}")),
                }
            }
            Event::NewItem { queue, weight, flags } => {
                let takes = self.model.takes(queue);
                let got = self.core.item_new(queue, weight, flags);
                if takes != got.is_some() {
                    return Err(format!("new item: {got:?}, expected {takes}"));
                }
                if let Some(i) = got {
                    self.model.item_new(i, queue, weight, flags);
                }
            }
            Event::Leave { item } => {
                self.core.item_leave(item);
                self.listen();
                self.model.item_leave(item);
            }
            Event::Move { item, to, work } => {
                let got = self.core.item_move(item, to, work, now);
                self.listen();
                let want = self.model.item_move(item, to, work, now);
                if got != want {
                    return Err(format!("move: {got}, expected {want}"));
                }
            }
            Event::Units { item, mask } => {
                self.core.item_units(item, mask);
                self.listen();
                self.model.item_units(item, mask);
            }
            Event::ItemWeight { item, weight } => {
                self.core.item_reweight(item, weight);
                self.listen();
                self.model.item_reweight(item, weight);
            }
            Event::Wake { item } => {
                self.core.wake(item, now);
                self.listen();
                self.model.wake(item, now);
            }
            Event::Remove { item } => {
                self.core.remove(item);
                self.listen();
                self.model.remove(item);
            }
            Event::Pick { unit } => {
                let got = self.core.pick(unit, now);
                self.picks.push(got);
                self.listen();
                if let Verdict::Wrong(why) = self.model.judge(unit, now, got) {
                    return Err(why);
                }
                if let Some(item) = got {
                    self.model.begin(item, unit);
                } else if self.core.tree().next_ns != self.model.next_ns() {
                    let next = self.core.tree().next_ns;
                    return Err(format!("next {next}, expected {}", self.model.next_ns()));
                }
            }
            Event::Begin { item, unit } => {
                self.core.begin(item, unit);
                self.listen();
                self.model.begin(item, unit);
            }
            Event::Own { queue } => {
                self.core.own(queue);
                self.listen();
                self.model.own(queue);
            }
            Event::Called { item } => self.called(item),
            Event::Settle { item, work, more } => {
                self.core.settle(item, work, more, now);
                self.listen();
                self.model.settle(item, work, more, now);
            }
        }
        Ok(())
    }

    /// Both halves, for the report of a failure.
    pub fn dump(&self) -> String {
        use std::fmt::Write as _;
        let mut out = String::new();
        for n in self.core.nodes() {
            let e = self.model.nodes.get(&n.id);
            let _ = writeln!(
                out,
                "node {:x} in {:x} w {} kind {}.{} tag-v {} nsvc {} ready {} | model tag {:?} v {:?} seq {:?} ready {:?}",
                n.id,
                n.parent,
                n.weight,
                n.kind,
                n.alg,
                self.core.try_node(n.parent).map_or(0, |p| n.tag.wrapping_sub(p.v)).cast_signed(),
                n.nsvc,
                n.ready,
                e.and_then(|e| e.tag.as_ref()).and_then(ToPrimitive::to_f64),
                e.and_then(|e| e.v.to_f64()),
                e.map(|e| e.seq),
                e.map(|e| e.ready),
            );
        }
        for (i, e) in &self.model.items {
            let it = self.core.item(*i);
            let _ = writeln!(
                out,
                "item {i} in {:x} state {} tag-v {} | model {:?} tag {:?} seq {}",
                it.queue,
                it.state,
                it.tag.wrapping_sub(it.v).cast_signed(),
                e.state,
                e.tag.as_ref().and_then(ToPrimitive::to_f64),
                e.seq,
            );
        }
        out
    }

    /// A refused batch changes nothing, except that a node that had moved is a newcomer to its old
    /// parent.
    fn undone(&mut self, ops: &[Op]) {
        let mut undo = Vec::new();
        for op in ops {
            let (nodes, gens) = (&self.model.nodes, &self.model.gens);
            match *op {
                Op::Create { node, .. } => {
                    #[expect(clippy::cast_possible_truncation, reason = "the index half of an id")]
                    let index = node as u32;
                    undo.push((*op, None, gens.get(&index).copied()));
                }
                Op::Delete { node, .. } | Op::Move { node, .. } => {
                    undo.push((*op, nodes.get(&node).cloned(), None));
                }
                _ => continue,
            }
            self.model.edit(*op, self.now);
        }
        for (op, was, generation) in undo.into_iter().rev() {
            match (op, was) {
                (Op::Create { node, .. }, _) => {
                    self.model.nodes.remove(&node);
                    #[expect(clippy::cast_possible_truncation, reason = "the index half of an id")]
                    let index = node as u32;
                    match generation {
                        Some(g) => self.model.gens.insert(index, g),
                        None => self.model.gens.remove(&index),
                    };
                }
                (Op::Delete { node, .. }, Some(n)) => match self.model.nodes.get_mut(&node) {
                    Some(there) => there.dying = n.dying,
                    None => drop(self.model.nodes.insert(node, n)),
                },
                (Op::Move { node, .. }, Some(n)) => {
                    self.model.edit(Op::Move { node, parent: n.parent.expect("moved") }, self.now);
                }
                _ => {}
            }
        }
    }

    /// The error a batch must end with, by the model's own reading of edit.c's contract.
    fn expect(&self, ops: &[Op]) -> Option<i32> {
        use crate::core::{QUEUE, SCHED};
        const ENOENT: i32 = -2;
        const EBUSY: i32 = -16;
        const EEXIST: i32 = -17;
        const EINVAL: i32 = -22;
        const ELOOP: i32 = -40;
        const ESTALE: i32 = -116;
        let mut m = self.model.clone();
        for op in ops {
            let node = op.node();
            #[expect(clippy::cast_possible_truncation, reason = "the two halves of an id")]
            let (index, gen_) = (node as u32, (node >> 32) as u32);
            if let Op::Create { parent, kind, alg, .. } = *op {
                let taken = m.nodes.keys().any(|k| k & 0xffff_ffff == u64::from(index));
                if index >= 64 || gen_ == 0 {
                    return Some(EINVAL);
                }
                let Some(p) = m.nodes.get(&parent) else { return Some(ENOENT) };
                if taken {
                    return Some(EEXIST);
                }
                if gen_ <= m.gens.get(&index).copied().unwrap_or(0) {
                    return Some(ESTALE);
                }
                let alg_ok = (kind == SCHED && alg < 2) || (kind == QUEUE && alg < 4);
                if p.kind != SCHED || m.path(parent).len() >= 16 || !alg_ok {
                    return Some(EINVAL);
                }
                m.edit(*op, self.now);
                continue;
            }
            let Some(n) = m.nodes.get(&node) else { return Some(ENOENT) };
            let bad = match *op {
                Op::Delete { drain, .. } => {
                    let members = m.items.values().any(|i| i.queue == node);
                    if index < 2 {
                        Some(EINVAL)
                    } else if !m.children(node).is_empty() || (members && !drain) {
                        Some(EBUSY)
                    } else {
                        None
                    }
                }
                Op::Reweight { weight, .. } => {
                    (n.parent.is_none() || weight > 1_000_000_000 || (index == 1 && weight == 0))
                        .then_some(EINVAL)
                }
                Op::Cap { ppm, burst, .. } => {
                    (n.parent.is_none() || ppm > 256_000_000 || burst > 1_000_000_000_000)
                        .then_some(EINVAL)
                }
                Op::Class { class, .. } => (n.kind != QUEUE || class > 3).then_some(EINVAL),
                Op::Policy { policy, .. } => (n.kind != SCHED || policy > 1).then_some(EINVAL),
                Op::Limit { members, .. } => (n.kind != QUEUE || members > 32768).then_some(EINVAL),
                Op::Move { parent, .. } => {
                    let to = m.nodes.get(&parent);
                    let height = m.nodes.keys().map(|&k| m.path(k)).filter(|p| p.contains(&node));
                    let height =
                        height.map(|p| p.iter().take_while(|&&x| x != node).count() + 1).max();
                    if n.parent.is_none() || index < 2 || to.is_none_or(|t| t.kind != SCHED) {
                        Some(EINVAL)
                    } else if n.parent == Some(parent) {
                        None
                    } else if m.path(parent).contains(&node) {
                        Some(ELOOP)
                    } else {
                        (m.path(parent).len() + height.unwrap_or(1) > 16).then_some(EINVAL)
                    }
                }
                Op::Tune { which, value, .. } => {
                    let most = if which == 1 { 1_000_000_000 } else { 1_000_000_000_000 };
                    (![1, 2, 3, 5].contains(&which)
                        || value > most
                        || (which > 1 && n.kind != SCHED))
                        .then_some(EINVAL)
                }
                Op::Param { which, value, .. } => {
                    let most = if which == 1 { 100 } else { 1_000_000_000_000 };
                    (!(1..=2).contains(&which) || value > most || n.parent.is_none())
                        .then_some(EINVAL)
                }
                Op::Raw { .. } => Some(EINVAL),
                Op::Reset { .. } | Op::Create { .. } => None,
            };
            if bad.is_some() {
                return bad;
            }
            m.edit(*op, self.now);
        }
        None
    }

    /// Every observable, and how far each start tag is ahead of its virtual time.
    pub fn compare(&self) -> Result<(), String> {
        let m = &self.model;
        let slack = m.drift;
        let nodes = self.core.nodes();
        if nodes.len() != m.nodes.len() {
            return Err(format!("{} nodes, expected {}", nodes.len(), m.nodes.len()));
        }
        for n in &nodes {
            let Some(e) = m.nodes.get(&n.id) else {
                return Err(format!("node {:x} is not in the model", n.id));
            };
            let nsvc = m.in_service(n.id);
            let (ready, runnable) =
                if e.parent.is_none() { (false, false) } else { (e.ready, e.runnable) };
            let got =
                (n.parent, n.kind, n.alg, n.weight, n.dying != 0, n.service, n.served, n.cap_ppm);
            let want = (
                e.parent.unwrap_or(0),
                e.kind,
                e.alg,
                e.weight,
                e.dying,
                e.service,
                e.served,
                e.cap_ppm,
            );
            if got != want {
                return Err(format!("node {:x}: {got:?}, expected {want:?}", n.id));
            }
            let got = (n.nsvc, n.res, n.ready != 0, n.runnable != 0, n.throttled != 0);
            let want = (nsvc.0, nsvc.1, ready, runnable, e.due.is_some());
            if got != want {
                return Err(format!("node {:x}: {got:?}, expected {want:?}", n.id));
            }
            if n.cap_ppm > 0 && i128::from(n.cap_tok) != e.tok.div_euclid(1_000_000) {
                return Err(format!("node {:x}: {} tokens, expected {}", n.id, n.cap_tok, e.tok));
            }
            if let (Some(p), true) = (e.parent, m.units == 1 && runnable && e.weight > 0) {
                let tag = e.tag.clone().expect("runnable");
                ahead(
                    &format!("node {:x}", n.id),
                    n.tag.wrapping_sub(virtual_time(&nodes, p)),
                    &(tag - &m.nodes[&p].v),
                    slack,
                )?;
                let estimate = m.nodes[&p].ev.estimate(n.id);
                if m.nodes[&p].alg == EEVDF && estimate != Some(n.request) {
                    return Err(format!(
                        "node {:x}: request {}, expected {estimate:?}",
                        n.id, n.request
                    ));
                }
            }
        }
        for (&i, e) in &m.items {
            let it = self.core.item(i);
            let state = match e.state {
                State::Idle => 1,
                State::Queued => QUEUED,
                State::Service => SERVICE,
            };
            if (it.state, it.queue, it.service, it.weight) != (state, e.queue, e.service, e.weight)
            {
                return Err(format!("item {i}: {it:?}, expected {e:?}"));
            }
        }
        let poison = self.core.tree().poison;
        if poison == 0 { Ok(()) } else { Err(format!("poison {poison}")) }
    }
}

/// The core brings virtual time up to date only when it is asked for: the least tag that waits, if
/// nothing is served.
#[expect(clippy::cast_possible_wrap, reason = "tags are compared modulo 2^64")]
fn virtual_time(nodes: &[NodeView], parent: Id) -> u64 {
    let p = nodes.iter().find(|n| n.id == parent).expect("a parent");
    if p.alg == EEVDF {
        return p.v;
    }
    let ready = nodes.iter().filter(|n| n.parent == parent && n.ready != 0 && n.weight > 0);
    let least = ready.map(|n| n.key.wrapping_sub(p.v) as i64).min().unwrap_or(0);
    if p.nsvc == 0 && least > 0 { p.v.wrapping_add(least.cast_unsigned()) } else { p.v }
}

fn ahead(what: &str, core: u64, model: &Q, slack: u64) -> Result<(), String> {
    #[expect(clippy::cast_possible_wrap, reason = "tags are compared modulo 2^64")]
    let core = core as i64;
    let model = model * q(1u64 << 20, 1000);
    if (q(core, 1) - &model).abs() > q(slack, 1) {
        return Err(format!("{what}: {core} tag units ahead of v, expected {:?}", model.to_f64()));
    }
    Ok(())
}
