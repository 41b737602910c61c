// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the property tests share: settings with a printed seed, and random requests.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::hash::{BuildHasher as _, Hasher as _};

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use reserv_model::{
    Cap, Class, DEPTH_MAX, DeleteMode, Errno, Fixed, Kind, Minimum, Name, NodeId, NodePath,
    NodeRef, Policy, Request, Share, Tree, TuneChange, TuneKey, Weight,
};

/// `PROPTEST_CASES` (or 256) cases divided by `cost`, at least 16. The seed is printed first;
/// `PROPTEST_RNG_SEED` replays it.
pub(crate) fn config(cost: u32) -> ProptestConfig {
    let base = ProptestConfig::default();
    let seed = match base.rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => seed(),
    };
    #[expect(clippy::disallowed_macros, reason = "a test says how to replay it")]
    {
        println!("replay with PROPTEST_RNG_SEED={seed} PROPTEST_CASES={}", base.cases);
    }
    ProptestConfig {
        cases: (base.cases / cost).max(16),
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..base
    }
}

/// A number nobody chose.
pub(crate) fn seed() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// A node by its path.
pub(crate) fn at(path: &str) -> NodeRef {
    path.parse::<NodePath>().unwrap().into()
}

/// Planned and done.
pub(crate) fn doit(tree: &mut Tree, requests: &[Request]) {
    let plan = tree.plan(requests).unwrap_or_else(|e| panic!("{e} ({})", e.hint));
    tree.commit(&plan).unwrap();
}

/// Refused with ENOSPC and these words, and nothing has changed.
pub(crate) fn refused(tree: &Tree, requests: &[Request], words: &[&str]) {
    let before = tree.clone();
    let error = tree.plan(requests).expect_err("it is refused");
    assert_eq!(error.errno(), Errno::ENOSPC, "{error}");
    for word in words {
        assert!(error.context.contains(word), "{word:?} in {error}");
    }
    assert!(!error.hint.is_empty() && !error.context.contains('\n'));
    assert_eq!(*tree, before);
}

/// One random decision: what, to whom, with what.
pub(crate) type Step = (u8, u16, u16, u32);

/// What there is to be promised.
pub(crate) const CAPACITY: u64 = 4_000_000_000;

/// Random decisions.
pub(crate) fn steps(max: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(any::<Step>(), 0..max)
}

/// Names of which some collide with numbered ones.
pub(crate) const NAMES: [&str; 12] =
    ["a", "b", "web", "q0", "q1", "q2", "r0", "r1", "q10", "x.y-z_", "Q", "q01"];

pub(crate) fn name(n: u32) -> Name {
    Name::new(NAMES[n as usize % NAMES.len()]).unwrap()
}

pub(crate) fn weight(n: u32) -> Weight {
    let milli = match n % 8 {
        0 => 0,
        1 => 1,
        2 => 1_000_000_000,
        3 => 100_000,
        _ => n / 8 % 1_000_000_001,
    };
    Weight::from_milli(milli).unwrap()
}

/// In a ninth of the cases with a minimum.
pub(crate) fn share(n: u32) -> Share {
    let minimum = Minimum(if n.is_multiple_of(9) { u64::from(n / 9) } else { 0 });
    // About a fifth are fixed shares, most of them small enough for several beside each other.
    match Fixed::from_ppm(n / 9 % 400_000 * 2) {
        Some(fixed) if n % 5 == 1 => Share { minimum, ..Share::fixed(fixed) },
        _ => Share { minimum, ..Share::of(weight(n / 9)) },
    }
}

/// In a few cases out of range.
pub(crate) fn cap(n: u32) -> Option<Cap> {
    let wide = u64::from(n);
    match n % 8 {
        0 | 1 => None,
        2 => Some(Cap { rate_ns_per_s: Cap::RATE_MIN, burst_ns: Cap::BURST_MAX }),
        3 => Some(Cap { rate_ns_per_s: wide * 4096, burst_ns: wide * 8 }),
        4 => Some(Cap { rate_ns_per_s: wide % 1_000_000, burst_ns: 0 }),
        _ => Some(Cap { rate_ns_per_s: wide.max(Cap::RATE_MIN), burst_ns: 0 }),
    }
}

pub(crate) fn kind(n: u32) -> Kind {
    if n.is_multiple_of(2) { Kind::Scheduler(policy(n / 2)) } else { Kind::Queue(class(n / 2)) }
}

pub(crate) fn policy(n: u32) -> Policy {
    // Those that every resource has.
    let of: Vec<Policy> = Policy::ALL.iter().copied().filter(|p| !p.by_length()).collect();
    of[n as usize % of.len()]
}

/// One or two tunables, in an eighth of the cases with a value that none has.
pub(crate) fn tune(n: u32) -> TuneChange {
    let one = |n: u32| {
        let key = TuneKey::ALL[n as usize % TuneKey::ALL.len()];
        let value = match (n / 7 % 8, key) {
            (0, _) => Some(u64::MAX),
            (1, _) => None,
            (m, TuneKey::Priority) => Some(u64::from(m * 10)),
            (m, _) => Some(u64::from(m) * 10_000_000),
        };
        (key, value)
    };
    let (first, second) = (one(n), one(n / 64));
    if n.is_multiple_of(3) && first.0 != second.0 { vec![first, second] } else { vec![first] }
}

pub(crate) fn class(n: u32) -> Class {
    let of: Vec<Class> = Class::ALL.iter().copied().filter(|c| !c.by_length()).collect();
    of[n as usize % of.len()]
}

pub(crate) fn mode(n: u32) -> DeleteMode {
    [DeleteMode::Refuse, DeleteMode::Drain, DeleteMode::Flush][n as usize % 3]
}

/// A live node's handle or path; in about a tenth of the cases one that is not there.
pub(crate) fn node(tree: &Tree, n: u16) -> NodeRef {
    let nodes: Vec<_> = tree.iter().map(|n| n.id).collect();
    let id = nodes[n as usize / 20 % nodes.len()];
    match n % 20 {
        0 => NodeId { index: id.index, generation: id.generation.wrapping_add(1) }.into(),
        1 => NodePath::from_iter([name(u32::from(n / 20)), name(u32::from(n / 40))]).into(),
        2..10 => tree.path(id).unwrap().into(),
        _ => id.into(),
    }
}

/// Like [`node`], but in most cases a scheduler node: where something can be put.
pub(crate) fn scheduler(tree: &Tree, n: u16) -> NodeRef {
    let nodes: Vec<_> = tree.iter().filter(|n| n.kind.is_scheduler()).map(|n| n.id).collect();
    if n % 16 < 2 { node(tree, n / 16) } else { nodes[n as usize / 16 % nodes.len()].into() }
}

/// A chain of scheduler nodes below the root.
pub(crate) fn chain(levels: usize) -> Vec<Request> {
    let step = |level| Request::Create {
        parent: std::iter::repeat_n(name(1), level).collect::<NodePath>().into(),
        name: Some(name(1)),
        kind: Kind::Scheduler(Policy::Sfq).into(),
        share: None,
    };
    (0..levels).map(step).collect()
}

/// A request that may or may not make sense for `tree`. Creation is the most frequent.
pub(crate) fn request(tree: &Tree, (what, a, b, c): Step) -> Request {
    let (node, n) = (node(tree, a), c / 16);
    match what % 27 {
        0..9 => Request::Create {
            parent: scheduler(tree, a),
            name: (c % 4 > 0).then(|| name(u32::from(b))),
            kind: kind(n).into(),
            share: (c % 3 > 0).then(|| share(n)),
        },
        9 | 10 => Request::Delete { node, mode: mode(n) },
        11..14 => Request::SetShare { node, share: share(n) },
        14 => Request::SetCap { node, cap: cap(n) },
        15 => Request::SetClass { node, class: class(n) },
        16 => Request::SetPolicy { node, policy: policy(n) },
        24 => Request::SetPolicy { node: scheduler(tree, a), policy: policy(n) },
        25 | 26 => Request::SetTune { node, change: tune(n) },
        17 => Request::SetLimit { node, members_max: n % 3 * 100, bytes_max: 0 },
        18 => Request::ResetCounters { node },
        19 => Request::SetGc { node, gc: n.is_multiple_of(2) },
        20 => Request::Active { node },
        21 => Request::Rename { node, name: name(n) },
        _ => Request::Move {
            node,
            parent: scheduler(tree, b),
            name: c.is_multiple_of(2).then(|| name(n)),
        },
    }
}

/// The tree that random steps make of a new one; what is refused is left out.
pub(crate) fn grown(steps: &[Step]) -> Tree {
    let mut tree = Tree::new(Name::new("cpu").unwrap());
    tree.set_capacity(CAPACITY);
    let deep = steps.first().map_or(0, |s| usize::from(s.1) % 24).saturating_sub(8);
    let plan = tree.plan(&chain(deep.min(DEPTH_MAX - 1))).unwrap();
    tree.commit(&plan).unwrap();
    for step in steps {
        if let Ok(plan) = tree.plan(&[request(&tree, *step)]) {
            tree.commit(&plan).unwrap();
        }
    }
    tree
}
