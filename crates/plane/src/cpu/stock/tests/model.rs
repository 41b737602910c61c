// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random events against a naive model: a list of nodes, a map of tags, sums of service. It knows
//! nothing of cgroups; after every event the cgroups must show what it says.

use proptest::prelude::*;

use super::*;
use crate::Sample;

#[derive(Clone, Debug)]
struct N {
    id: NodeId,
    parent: NodeId,
    queue: bool,
    weight: u32,
    cap: Option<u64>,
    limit: usize,
    draining: bool,
    service: u64,
    reset: u64,
}

/// The naive tree. Tags of threads that are not in the map: q0.
#[derive(Clone, Debug)]
struct Naive {
    nodes: Vec<N>,
    used: BTreeMap<u32, u32>,
    tags: BTreeMap<i32, NodeId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kin {
    NoNode,
    Busy,
    Full,
    Unsupported,
    Invalid,
}

fn kin(error: &PlaneError) -> Kin {
    match error {
        PlaneError::NoNode(_) => Kin::NoNode,
        PlaneError::Busy(_) => Kin::Busy,
        PlaneError::Full(_) => Kin::Full,
        PlaneError::Unsupported(_) => Kin::Unsupported,
        PlaneError::Invalid(_) => Kin::Invalid,
        other => panic!("{other}"),
    }
}

impl Naive {
    fn new() -> Self {
        let n = |id, parent, queue| N {
            id,
            parent,
            queue,
            weight: 100_000,
            cap: None,
            limit: 0,
            draining: false,
            service: 0,
            reset: 0,
        };
        // The root is its own parent.
        let nodes = vec![n(NodeId::ROOT, NodeId::ROOT, false), n(NodeId::Q0, NodeId::ROOT, true)];
        Self { nodes, used: BTreeMap::new(), tags: BTreeMap::new() }
    }

    fn at(&self, node: NodeId) -> Result<usize, Kin> {
        self.nodes.iter().position(|n| n.id == node).ok_or(Kin::NoNode)
    }

    fn members(&self, node: NodeId) -> usize {
        self.tags.values().filter(|q| **q == node).count()
    }

    fn op(&mut self, op: &Op) -> Result<Outcome, Kin> {
        let fixed = |node: NodeId| node == NodeId::ROOT || node == NodeId::Q0;
        match *op {
            Op::Create { id, parent, kind } => {
                if let NodeKind::Queue(Class::Rr) = kind {
                    return Err(Kin::Unsupported);
                }
                let p = self.at(parent)?;
                let taken = self.nodes.iter().any(|n| n.id.index == id.index);
                if self.nodes[p].queue
                    || taken
                    || id.generation <= *self.used.get(&id.index).unwrap_or(&0)
                {
                    return Err(Kin::Invalid);
                }
                self.used.insert(id.index, id.generation);
                let queue = matches!(kind, NodeKind::Queue(_));
                let new = N {
                    id,
                    parent,
                    queue,
                    weight: 0,
                    cap: None,
                    limit: 0,
                    draining: false,
                    service: 0,
                    reset: 0,
                };
                self.nodes.push(new);
            }
            Op::Delete { id, mode } => {
                if fixed(id) {
                    return Err(Kin::Invalid);
                }
                let at = self.at(id)?;
                if self.nodes.iter().any(|n| n.parent == id && n.id != id) {
                    return Err(Kin::Busy);
                }
                match (mode, self.members(id)) {
                    (DeleteMode::Refuse, 1..) => return Err(Kin::Busy),
                    (DeleteMode::Drain, 1..) => {
                        self.nodes[at].draining = true;
                        return Ok(Outcome::Draining);
                    }
                    _ => {
                        self.tags.retain(|_, q| *q != id);
                        self.nodes.remove(at);
                    }
                }
            }
            Op::Reweight { id, weight } => {
                if id == NodeId::ROOT {
                    return Err(Kin::Invalid);
                }
                let at = self.at(id)?;
                self.nodes[at].weight = weight.milli();
            }
            Op::SetCap { id, cap } => {
                let at = self.at(id)?;
                if cap.is_some() && (fixed(id) || cap.is_some_and(|c| c.rate_ns_per_s < 1_000_000))
                {
                    return Err(Kin::Unsupported);
                }
                self.nodes[at].cap = cap.map(|c| c.rate_ns_per_s);
            }
            Op::Tune { .. } | Op::NodeParam { .. } => return Err(Kin::Unsupported),
            Op::SetLimit { id, members_max, .. } => {
                let at = self.at(id)?;
                if !self.nodes[at].queue {
                    return Err(Kin::Invalid);
                }
                if id == NodeId::Q0 && members_max > 0 {
                    return Err(Kin::Unsupported);
                }
                self.nodes[at].limit = members_max as usize;
            }
            Op::ResetCounters { id } => {
                let at = self.at(id)?;
                if !self.nodes[at].queue {
                    return Err(Kin::Invalid);
                }
                self.nodes[at].reset = self.nodes[at].service;
            }
            Op::Move { id, parent } => {
                let at = self.at(id)?;
                if id == NodeId::ROOT {
                    return Err(Kin::Invalid);
                }
                if id == NodeId::Q0 {
                    return Err(Kin::Unsupported);
                }
                if self.nodes[self.at(parent)?].queue || self.above(parent).contains(&id) {
                    return Err(Kin::Invalid);
                }
                self.nodes[at].parent = parent;
            }
            Op::SetClass { .. } | Op::SetPolicy { .. } => unreachable!("not among the events"),
        }
        Ok(Outcome::Done)
    }

    /// A node and all above it.
    fn above(&self, node: NodeId) -> Vec<NodeId> {
        let mut out = vec![node];
        while out.last() != Some(&NodeId::ROOT) {
            let at = self.at(*out.last().expect("not empty")).expect("a parent exists");
            out.push(self.nodes[at].parent);
        }
        out
    }

    fn apply(&mut self, ops: &[Op]) -> Result<Vec<Outcome>, Kin> {
        let mut new = self.clone();
        let outcomes = ops.iter().map(|op| new.op(op)).collect::<Result<_, _>>()?;
        *self = new;
        Ok(outcomes)
    }

    fn tag(&mut self, tids: &[i32], queue: NodeId) -> Result<(), Kin> {
        let at = self.at(queue)?;
        if !self.nodes[at].queue {
            return Err(Kin::Invalid);
        }
        if self.nodes[at].draining {
            return Err(Kin::Busy);
        }
        let new = tids.iter().filter(|t| self.tags.get(t) != Some(&queue)).count();
        let limit = self.nodes[at].limit;
        if queue == NodeId::Q0 {
            self.tags.retain(|t, _| !tids.contains(t));
            return Ok(());
        }
        if new > 0 && limit > 0 && self.members(queue) + new > limit {
            return Err(Kin::Full);
        }
        self.tags.extend(tids.iter().map(|t| (*t, queue)));
        Ok(())
    }

    fn run(&mut self, tid: i32, ns: u64) {
        let queue = self.tags.get(&tid).copied().unwrap_or(NodeId::Q0);
        for node in self.above(queue) {
            let at = self.at(node).expect("it exists");
            self.nodes[at].service += ns;
        }
    }
}

/// The cgroups and the driver's answers show what the model says.
fn compare(fake: &Fake, plane: &Stock, naive: &Naive, kind: Kind) {
    let mut expected: Vec<&N> = naive.nodes.iter().collect();
    expected.sort_by_key(|n| n.id.index);
    let samples: Vec<Sample> = plane.sample().expect("sample");
    let got: Vec<_> = samples
        .iter()
        .map(|s| (s.id, s.service_ns, s.service_since_reset_ns, s.draining))
        .collect();
    let want: Vec<_> = expected
        .iter()
        .map(|n| (n.id.pack(), n.service, n.service - n.reset, n.draining))
        .collect();
    assert_eq!(got, want);
    let mut dirs = vec!["/reserv".to_owned()];
    for n in &expected {
        if n.id != NodeId::ROOT {
            let mut path = String::new();
            for above in naive.above(n.id).iter().rev().skip(1) {
                let queue = naive.nodes[naive.at(*above).expect("it exists")].queue;
                let letter = if queue { 'q' } else { 's' };
                path = format!("{path}/{letter}{}.{}", above.index, above.generation);
            }
            let g = group(fake, &format!("/reserv{path}"));
            assert_eq!(g.idle, n.weight == 0, "{path}");
            for sibling in expected
                .iter()
                .filter(|m| m.parent == n.parent && m.id != n.id && m.id != NodeId::ROOT)
            {
                let name = format!(
                    "{}{}.{}",
                    if sibling.queue { 'q' } else { 's' },
                    sibling.id.index,
                    sibling.id.generation
                );
                let other = group(
                    fake,
                    &format!("/reserv{}/{name}", path.rsplit_once('/').expect("a child").0),
                );
                if n.weight > 0 && sibling.weight > 0 {
                    let (a, b) = (u64::from(n.weight), u64::from(sibling.weight));
                    assert_eq!(
                        a * u64::from(other.weight),
                        b * u64::from(g.weight),
                        "{path} and {name}"
                    );
                }
            }
            let rate = |cap: u64| {
                if cap / 10_000 < 1000 { (cap / 1000, 1_000_000) } else { (cap / 10_000, 100_000) }
            };
            let tightest = naive
                .above(n.id)
                .iter()
                .filter_map(|x| naive.nodes[naive.at(*x).expect("it exists")].cap)
                .min();
            let effective = if kind == Kind::V2 { n.cap } else { n.cap.and(tightest) };
            let have = (g.quota >= 0).then(|| (g.quota.unsigned_abs(), g.period.unsigned_abs()));
            assert_eq!(have, effective.map(rate), "{path}");
            dirs.push(format!("/reserv{path}"));
        }
    }
    dirs.sort();
    for groups in &fake.world().groups {
        assert_eq!(
            groups.keys().filter(|k| k.starts_with("/reserv")).cloned().collect::<Vec<_>>(),
            dirs
        );
    }
    let tids: Vec<i32> = fake.world().threads.keys().copied().collect();
    for tid in &tids {
        assert_eq!(
            plane.tag_of(*tid).expect("alive"),
            naive.tags.get(tid).copied().unwrap_or(NodeId::Q0),
            "{tid}"
        );
    }
    for n in expected.iter().filter(|n| n.queue && n.id != NodeId::Q0) {
        let got: Vec<i32> = plane.members(n.id).expect("a queue").iter().map(|m| m.tid).collect();
        let mut want: Vec<i32> =
            naive.tags.iter().filter(|(_, q)| **q == n.id).map(|(tid, _)| *tid).collect();
        want.sort_by_key(|tid| (fake.world().threads[tid].tgid, *tid));
        assert_eq!(got, want);
    }
}

/// An event in four small numbers; `handle` finds a node of that slot, or a stale or unborn one.
#[expect(clippy::many_single_char_names, reason = "random numbers")]
fn event(fake: &Fake, plane: &mut Stock, naive: &mut Naive, e: (u8, u8, u8, u32)) {
    let (what, a, b, n) = e;
    // Mostly what makes sense: a live node, a scheduler as parent, a free slot with a new
    // generation.
    let handle = |naive: &Naive, slot: u8| match n >> 8 & 15 {
        0 => id(u32::from(slot % 9), 1 + n % 3),
        _ => naive.nodes[usize::from(slot) % naive.nodes.len()].id,
    };
    let x = handle(naive, a);
    let schedulers: Vec<NodeId> = naive.nodes.iter().filter(|n| !n.queue).map(|n| n.id).collect();
    let y = if n >> 12 & 7 < 1 {
        handle(naive, b)
    } else {
        schedulers[usize::from(b) % schedulers.len()]
    };
    let fresh = |naive: &Naive, slot: u8| {
        let free = (2..12).find(|slot| naive.nodes.iter().all(|n| n.id.index != *slot));
        let slot = free.filter(|_| n >> 16 & 7 > 0).unwrap_or(u32::from(slot));
        id(slot, naive.used.get(&slot).unwrap_or(&0) + u32::from(n >> 20 & 7 > 0))
    };
    let kind = match n % 9 {
        0 => NodeKind::Queue(Class::Rr),
        1..5 => NodeKind::Scheduler(Policy::Sfq),
        _ => NodeKind::Queue(Class::Ts),
    };
    let create = Op::Create { id: fresh(naive, a), parent: y, kind };
    let reweight = Op::Reweight { id: x, weight: weight(n % 40 * 250) };
    let mode = [DeleteMode::Refuse, DeleteMode::Drain, DeleteMode::Flush][(n % 3) as usize];
    let delete = Op::Delete { id: x, mode };
    let rate_ns_per_s =
        [500_000, 3_000_000, 40_000_000, 900_000_000, 2_500_000_000][(n % 5) as usize];
    let cap = Op::SetCap { id: x, cap: (n % 6 > 0).then_some(Cap { rate_ns_per_s, burst_ns: 0 }) };
    let hang = Op::Move { id: x, parent: y };
    let tids: Vec<i32> = fake.world().threads.keys().copied().collect();
    let tid = tids[n as usize % tids.len()];
    let process = fake.world().threads[&tid].tgid;
    let ops = match what % 16 {
        0 | 1 => vec![create],
        2 => vec![reweight],
        3 => vec![delete],
        4 => vec![cap],
        5 => vec![hang],
        6 => vec![create.clone(), reweight_of(&create, n), hang],
        7 => vec![hang, delete, create],
        8 => vec![
            Op::SetLimit { id: x, members_max: n % 4, bytes_max: 0 },
            Op::ResetCounters { id: x },
        ],
        9 => {
            let got = plane.tag(Target::Thread(tid), x).map(drop).map_err(|e| kin(&e));
            assert_eq!(got, naive.tag(&[tid], x));
            return;
        }
        10 => {
            let whole: Vec<i32> =
                tids.into_iter().filter(|t| fake.world().threads[t].tgid == process).collect();
            let got = plane.tag(Target::Process(process), x).map(drop).map_err(|e| kin(&e));
            assert_eq!(got, naive.tag(&whole, x));
            return;
        }
        11 | 12 => {
            fake.world().run(tid, 1000 * u64::from(n % 50));
            naive.run(tid, 1000 * u64::from(n % 50));
            return;
        }
        13 => {
            // A birth: the child is where its parent is. Not in a full queue's limit: births are
            // not refused.
            let new = 100 + i32::from(a) * 256 + i32::from(b);
            if !tids.contains(&new) {
                let (of, parent) = if n % 2 == 0 { (new, process) } else { (process, 1) };
                fake.world().spawn(new, of, parent, "");
                if let Some(queue) = naive.tags.get(&process).copied() {
                    naive.tags.insert(new, queue);
                }
            }
            return;
        }
        14 => {
            if tid >= 100 && tid != process {
                fake.world().threads.remove(&tid);
                naive.tags.remove(&tid);
            }
            let gone = plane.collect_drained().expect("collect");
            let empty = |naive: &Naive, n: &N| n.draining && naive.members(n.id) == 0;
            let mut want: Vec<NodeId> =
                naive.nodes.iter().filter(|n| empty(naive, n)).map(|n| n.id).collect();
            want.sort_by_key(|id| id.index);
            assert_eq!(gone, want);
            naive.nodes.retain(|n| !want.contains(&n.id));
            return;
        }
        _ => {
            *plane = adopt(fake);
            return;
        }
    };
    let got = apply(plane, &ops).map_err(|e| kin(&e));
    let want = naive.apply(&ops);
    assert_eq!(got, want, "{ops:?}");
    if let Ok(outcomes) = got {
        // The same batch once more is known, and changes nothing.
        let changes = fake.world().changes;
        let seq = plane.applied_seq().expect("never fails").expect("known");
        assert_eq!(plane.apply(&Batch { seq, ops }).expect("a replay"), outcomes);
        assert_eq!(fake.world().changes, changes);
    }
}

/// Gives the node that an op makes a weight.
fn reweight_of(create: &Op, n: u32) -> Op {
    let Op::Create { id, .. } = create else { unreachable!("it is one") };
    Op::Reweight { id: *id, weight: weight((1 + n % 40) * 250) }
}

fn play(kind: Kind, events: &[(u8, u8, u8, u32)]) {
    let fake = machine(kind);
    let mut plane = start(&fake);
    let mut naive = Naive::new();
    let homes: Vec<_> = [10, 11, 12, 20, 21, 22].map(|tid| (tid, place(&fake, tid))).into();
    for e in events {
        event(&fake, &mut plane, &mut naive, *e);
        compare(&fake, &plane, &naive, kind);
    }
    plane.stop().expect("stop");
    for (tid, home) in homes {
        assert_eq!(place(&fake, tid), home);
    }
    assert!(fake.world().groups.iter().all(|g| g.keys().all(|k| !k.contains("reserv"))));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn random_events_show_what_the_model_says(
        kind in prop::sample::select(KINDS.to_vec()),
        events in prop::collection::vec((0u8..16, 0u8..9, 0u8..9, any::<u32>()), 1..120),
    ) {
        play(kind, &events);
    }
}
