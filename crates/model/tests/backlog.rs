// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits of backlogs against memory: the worked example, and random edits by several hands against
//! a sum made anew from all that was taken.

mod common;

use std::collections::BTreeMap;

use common::{at, doit, refused};
use num_bigint::BigUint;
use reserv_model::*;

const KIB: u64 = 1024;
const BACKLOG: Backlog = Backlog {
    budget: 600 * KIB,
    each: KIB,
    longest: 64 * KIB,
    most: 128 * KIB,
    usual: 1000,
    units: 65_000,
};

fn tree(backlog: Backlog) -> Tree {
    let mut tree = Tree::new(Name::new("eth0").unwrap());
    tree.set_backlog(Some(backlog));
    tree
}

fn mk(name: &str) -> Request {
    let name = Some(Name::new(name).unwrap());
    Request::Create { parent: NodeId::ROOT.into(), name, kind: NewKind::Queue(None), share: None }
}

fn limit(path: &str, members_max: u32) -> Request {
    Request::SetLimit { node: at(path), members_max, bytes_max: 0 }
}

#[test]
fn the_example_of_600_kib() {
    // Bytes: 32 KiB are 1025 packets at most, so 1000; 320 bytes are 11, and one packet always has
    // room.
    assert_eq!(
        [(0, 32 * 1024), (0, 320), (5, 320)].map(|(n, b)| BACKLOG.cost(n, b)),
        [(96 + 1000) * KIB, 320 + (64 + 11) * KIB, 320 + (64 + 5) * KIB]
    );
    assert_eq!([0, 1, 2, 3, 100].map(|n| BACKLOG.cost(n, 0) / KIB), [0, 65, 130, 195, 292]);
    let mut tree = tree(BACKLOG);
    doit(&mut tree, &[mk("a"), mk("b"), mk("c"), limit("a", 100), limit("b", 100)]);
    refused(
        &tree,
        &[limit("c", 1)],
        &["eth0/c: its limit of 1 packets may take 65KiB", "together 649KiB", "eth0 has 600KiB"],
    );
    // Together with what makes room; whichever comes first in the write.
    doit(&mut tree, &[limit("c", 100), limit("a", 0)]);
    refused(&tree, &[limit("a", 100)], &["eth0/a"]);
    doit(&mut tree, &[Request::Delete { node: at("c"), mode: DeleteMode::Flush }]);
    doit(&mut tree, &[limit("a", 100)]);
    // The queue that grew is named, not one that shrank; and lowering is always taken.
    refused(&tree, &[limit("a", 20), limit("b", 400)], &["eth0/b"]);
    doit(&mut tree, &[limit("b", 99)]);
}

#[test]
fn a_queue_that_drains_counts_until_it_is_gone() {
    let mut tree = tree(BACKLOG);
    doit(&mut tree, &[mk("a"), mk("b"), mk("c"), limit("a", 100), limit("b", 100)]);
    let drain = tree.plan(&[Request::Delete { node: at("a"), mode: DeleteMode::Drain }]).unwrap();
    let id = tree.resolve(&"a".parse().unwrap()).unwrap();
    tree.commit(&drain).unwrap();
    refused(&tree, &[limit("c", 100)], &["eth0/c"]);
    let gone = tree.plan_gone(&[id]);
    tree.commit(&gone).unwrap();
    doit(&mut tree, &[limit("c", 100)]);
}

#[test]
fn what_the_driver_holds_at_once_is_a_bound_too() {
    let mut tree = tree(Backlog { budget: u64::MAX, ..BACKLOG });
    doit(&mut tree, &[mk("a"), mk("b"), limit("a", 60_000)]);
    refused(
        &tree,
        &[limit("b", 5001)],
        &["eth0/b: with its limit of 5001", "are 65001", "eth0 holds 65000"],
    );
    doit(&mut tree, &[limit("b", 5000)]);
}

#[test]
fn where_the_budget_falls_only_what_makes_it_no_worse_is_taken() {
    let mut tree = tree(BACKLOG);
    doit(&mut tree, &[mk("a"), mk("b"), limit("a", 100), limit("b", 100)]);
    tree.set_backlog(Some(Backlog { budget: 100 * KIB, ..BACKLOG }));
    doit(&mut tree, &[limit("a", 50)]);
    refused(&tree, &[limit("a", 51)], &["eth0/a"]);
    doit(&mut tree, &[mk("c"), Request::Rename { node: at("a"), name: Name::new("x").unwrap() }]);
    // Nothing waits in a CPU's queues: their limit is one of threads.
    tree.set_backlog(None);
    doit(&mut tree, &[limit("x", 4_000_000)]);
}

#[test]
fn amounts_of_memory() {
    for (text, bytes, shown) in
        [("12.5%", 1 << 30, "12.5%"), ("256MiB", 256 << 20, "256MiB"), ("2048KiB", 2 << 20, "2MiB")]
    {
        let memory: Memory = text.parse().unwrap();
        assert_eq!((memory.bytes(8 << 30), memory.to_string().as_str()), (bytes, shown));
    }
    for bad in [
        "",
        "0",
        "1",
        "100%",
        "0%",
        "1KiB",
        "MiB",
        "-1MiB",
        "+1MiB",
        "1.5GiB",
        "1 GiB",
        "99999999999999999GiB",
        "1MB",
    ] {
        let error = bad.parse::<Memory>().unwrap_err().to_string();
        assert!(error.contains(&format!("{bad:?}")), "{error}");
    }
    let config: Config = toml::from_str("backlog = \"64MiB\"").unwrap();
    assert_eq!(config.backlog, Some(Memory::Bytes(64 << 20)));
    assert_eq!(toml::to_string(&config).unwrap().trim(), "backlog = \"64MiB\"");
    assert!(
        toml::from_str::<Config>("backlog = \"much\"").unwrap_err().to_string().contains("much")
    );
}

/// `splitmix64`: `BACKLOG_SEED` replays one.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// The rule by its words, in numbers that cannot overflow: what limits of packets and bytes may
/// take in bytes, and in packets.
fn naive(limits: impl Iterator<Item = (u32, u32)>, of: Backlog) -> (BigUint, BigUint) {
    let big = |n: u64| BigUint::from(n);
    limits.filter(|&limit| limit != (0, 0)).fold(
        (big(0), big(0)),
        |(memory, units), (packets, bytes)| {
            let mut count = if packets > 0 { big(packets.into()) } else { big(of.usual) };
            let mut most = big(of.most);
            if bytes > 0 {
                count = count.min(big(u64::from(bytes) / 32 + 1));
                most = big(bytes.into());
            }
            let data = (&count * big(of.longest)).min(most + big(of.longest));
            (memory + data + &count * big(of.each), units + count)
        },
    )
}

#[test]
fn random_limits_against_a_naive_sum() {
    #[expect(clippy::disallowed_methods, reason = "a test is replayed by a variable")]
    let seed = std::env::var("BACKLOG_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or_else(common::seed);
    #[expect(clippy::disallowed_macros, reason = "a test says how to replay it")]
    {
        println!("replay with BACKLOG_SEED={seed}");
    }
    let mut dice = Random(seed);
    let (mut taken, mut broken) = (0, 0);
    for _ in 0..60 {
        let mut of = Backlog {
            budget: 1 << (16 + dice.below(16)),
            each: 1 + dice.below(2048),
            longest: 1 + dice.below(70_000),
            most: if dice.below(4) == 0 { u64::MAX } else { dice.below(1 << 20) },
            usual: if dice.below(4) == 0 { u64::MAX } else { 1 + dice.below(1000) },
            units: 1 + dice.below(10_000),
        };
        let mut tree = tree(of);
        // By id: a limit stands as long as its queue.
        let mut limits: BTreeMap<NodeId, (u32, u32)> = BTreeMap::new();
        for _ in 0..120 {
            if dice.below(25) == 0 {
                of.budget = 1 << (16 + dice.below(16));
                tree.set_backlog(Some(of));
            }
            let queues: Vec<NodeId> = tree
                .iter()
                .filter(|n| n.kind.is_queue() && n.id != NodeId::Q0 && !n.draining)
                .map(|n| n.id)
                .collect();
            let mut after = limits.clone();
            let mut requests = Vec::new();
            let mut grows = Vec::new();
            for _ in 0..=dice.below(3) {
                let what = dice.below(8);
                if queues.is_empty() || what == 0 {
                    requests.push(Request::Create {
                        parent: NodeId::ROOT.into(),
                        name: None,
                        kind: NewKind::Queue(None),
                        share: None,
                    });
                    continue;
                }
                let id = queues[usize::try_from(dice.below(queues.len() as u64)).unwrap()];
                if what == 1 && requests.is_empty() {
                    let mode =
                        if dice.below(2) == 0 { DeleteMode::Drain } else { DeleteMode::Flush };
                    if mode == DeleteMode::Flush {
                        after.remove(&id);
                    }
                    requests.push(Request::Delete { node: id.into(), mode });
                    break;
                }
                let members_max = match dice.below(5) {
                    0 => 0,
                    1 => u32::MAX >> dice.below(20),
                    _ => u32::try_from(dice.below(400)).unwrap(),
                };
                let bytes_max = if dice.below(3) == 0 {
                    u32::try_from(dice.below(1 << 18)).unwrap()
                } else {
                    0
                };
                after.insert(id, (members_max, bytes_max));
                requests.push(Request::SetLimit { node: id.into(), members_max, bytes_max });
            }
            for (id, limit) in &after {
                let costs = |limit: (u32, u32)| naive(std::iter::once(limit), of);
                let (now, was) =
                    (costs(*limit), limits.get(id).map_or_else(|| costs((0, 0)), |&l| costs(l)));
                if now.0 > was.0 || now.1 > was.1 {
                    grows.push(*id);
                }
            }
            let (memory, units) = naive(after.values().copied(), of);
            let fits = memory <= of.budget.into() && units <= of.units.into();
            let before = tree.clone();
            match tree.plan(&requests) {
                Ok(plan) => {
                    assert!(
                        fits || grows.is_empty(),
                        "seed {seed}: {requests:?} was taken: {memory} of {of:?}"
                    );
                    tree.commit(&plan).unwrap();
                    limits = after;
                    taken += 1;
                }
                Err(error) => {
                    assert_eq!(
                        error.kind,
                        ErrorKind::Overcommitted,
                        "seed {seed}: {requests:?}: {error}"
                    );
                    assert!(
                        !fits && !grows.is_empty(),
                        "seed {seed}: {requests:?} was refused: {error}"
                    );
                    assert!(
                        grows.iter().any(|&id| error.context.starts_with(&tree.shown(id))),
                        "{error}"
                    );
                    assert_eq!(tree, before);
                    broken += 1;
                }
            }
            let (memory, units) = naive(limits.values().copied(), of);
            let (found, found_units) = tree.backlog_promised();
            let most = BigUint::from(u64::MAX);
            assert_eq!(
                (BigUint::from(found), BigUint::from(found_units)),
                (memory.min(most.clone()), units.min(most))
            );
        }
    }
    assert!(taken > 2000 && broken > 500, "{taken} taken, {broken} refused");
}

#[test]
fn limits_that_fit_may_not_fit_where_queues_hold_more() {
    let mut tree = tree(BACKLOG);
    doit(&mut tree, &[mk("a"), mk("b")]);
    doit(&mut tree, &[limit("a", 100), limit("b", 100)]);
    tree.admit_backlog(Some(BACKLOG)).unwrap();
    tree.admit_backlog(Some(Backlog { most: 64 * KIB, ..BACKLOG })).unwrap();
    let error = tree.admit_backlog(Some(Backlog { most: 256 * KIB, ..BACKLOG })).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Overcommitted);
    tree.admit_backlog(None).unwrap();
    // What was too much before, and is no more, is not refused.
    tree.set_backlog(Some(Backlog { budget: KIB, ..BACKLOG }));
    tree.admit_backlog(Some(Backlog { budget: KIB, ..BACKLOG })).unwrap();
}
