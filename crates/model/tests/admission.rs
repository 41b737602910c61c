// SPDX-License-Identifier: MIT OR Apache-2.0
//! Admission control: worked examples, and random edits of promises against a recheck of the whole
//! tree in exact fractions.

mod common;

use common::{at, doit, refused};
use num_rational::BigRational;
use reserv_model::*;

const CPU: u64 = 1_000_000_000;

fn tree(cpus: u64) -> Tree {
    let mut tree = Tree::new(Name::new("cpu").unwrap());
    tree.set_capacity(cpus * CPU);
    tree
}

fn mk(parent: &str, name: &str, kind: NewKind, share: &str) -> Request {
    let name = Some(Name::new(name).unwrap());
    Request::Create { parent: at(parent), name, kind, share: Some(share.parse().unwrap()) }
}

fn set(path: &str, share: &str) -> Request {
    Request::SetShare { node: at(path), share: share.parse().unwrap() }
}

const QUEUE: NewKind = NewKind::Queue(None);
const SCHED: NewKind = NewKind::Scheduler(None);

#[test]
fn the_example_of_two_cpus() {
    let mut tree = tree(2);
    doit(&mut tree, &[mk("", "web", SCHED, "300 1.5cpu")]);
    // Creation with weight 0 breaks nothing; with a weight it would.
    doit(&mut tree, &[mk("", "x", QUEUE, "0")]);
    let words =
        ["cpu/web: its minimum 1.5cpu", "weight 300 of 401", "cpu's 2cpu is 1.496259351cpu"];
    refused(&tree, &[set("x", "1")], &words);
    refused(&tree, &[mk("", "y", QUEUE, "1")], &words);
    refused(&tree, &[set("web", "300 1.500000001cpu")], &["1.500000001cpu", "300 of 400"]);
    // Children divide the minimum of their parent, whatever it happens to have.
    doit(&mut tree, &[mk("web", "a", QUEUE, "1 750ms/s"), mk("web", "b", QUEUE, "1 750ms/s")]);
    refused(&tree, &[set("web/b", "1.001")], &["cpu/web/a"]);
    refused(&tree, &[set("web", "300 1.4cpu")], &["cpu/web/a", "cpu/web's 1.4cpu is 700ms/s"]);
    refused(&tree, &[set("web", "299 1.5cpu")], &["cpu/web", "299 of 399"]);
    refused(&tree, &[set("q0", "101")], &["cpu/web"]);
    let shares = Shares::all(&tree);
    let b = tree.resolve(&"web/b".parse().unwrap()).unwrap();
    assert_eq!(shares.guarantee(&tree, b), 750_000_000);
    assert_eq!(tree.guarantee(b, 2 * CPU), 750_000_000);
    // Taken back from below, it is lowered above.
    doit(&mut tree, &[set("web/a", "1"), set("web", "300 750ms/s"), set("web/b", "1 375ms/s")]);
    doit(&mut tree, &[set("x", "1")]);
}

#[test]
fn exact_at_the_edge() {
    // 0.24 · 4 + 0.04 is exactly 1.
    let mut tree = tree(1);
    doit(&mut tree, &[set("q0", "0.04 40ms/s")]);
    let all: Vec<Request> =
        (0..4).map(|n| mk("", &format!("c{n}"), QUEUE, "0.24 240ms/s")).collect();
    doit(&mut tree, &all);
    refused(&tree, &[set("c0", "0.24 240000001ns/s")], &["cpu/c0"]);
    refused(&tree, &[mk("", "x", QUEUE, "0.001")], &["cpu/c0"]);
}

#[test]
fn weights_that_fit_in_no_order_fit_together() {
    let mut tree = tree(1);
    doit(&mut tree, &[mk("", "s", SCHED, "900 900ms/s")]);
    doit(&mut tree, &[mk("s", "a", QUEUE, "1 450ms/s"), mk("s", "b", QUEUE, "1 450ms/s")]);
    let (a, b) = (set("s/a", "2 600ms/s"), set("s/b", "1 300ms/s"));
    refused(&tree, std::slice::from_ref(&a), &["cpu/s/b"]);
    refused(
        &tree,
        &[set("s/b", "0.5 300ms/s"), set("s/a", "2 600ms/s"), set("s/b", "2 300ms/s")],
        &["cpu/s/a"],
    );
    let s = tree.resolve(&"s".parse().unwrap()).unwrap();
    let child = |name: &str, share: &str| Request::SetShare {
        node: NodeRef::Child(s, Name::new(name).unwrap()),
        share: share.parse().unwrap(),
    };
    doit(&mut tree, &[child("a", "2 600ms/s"), child("b", "1 300ms/s")]);
    assert_eq!(tree.plan(&[child("c", "1")]).unwrap_err().errno(), Errno::ENOENT);
    assert!(tree.plan(&[a, b]).unwrap().is_empty());
}

#[test]
fn background_caps_priorities_and_fixed_shares() {
    let mut tree = tree(4);
    refused(&tree, &[mk("", "z", QUEUE, "0 1ns/s")], &["cpu/z", "weight 0"]);
    refused(&tree, &[mk("", "f", QUEUE, "=25% 1000000001ns/s")], &["=25% of cpu's 4cpu is 1cpu"]);
    doit(&mut tree, &[mk("", "f", QUEUE, "=25% 1cpu"), mk("", "a", QUEUE, "100 1.5cpu")]);
    // q0 and a divide the 75% that are left; another fixed share takes from them.
    refused(&tree, &[mk("", "g", QUEUE, "=1%")], &["cpu/a", "beside fixed shares of 26%"]);
    refused(&tree, &[mk("", "x", QUEUE, "0.001")], &["cpu/a"]);
    let cap = |rate_ns_per_s| Request::SetCap {
        node: at("a"),
        cap: Some(Cap { rate_ns_per_s, burst_ns: 0 }),
    };
    refused(&tree, &[cap(1_499_999_999)], &["cpu/a: its cap 1499.999999ms/s"][..0]);
    doit(&mut tree, &[cap(1_500_000_000)]);
    let prio = Request::SetPolicy { node: NodeId::ROOT.into(), policy: Policy::Prio };
    refused(&tree, std::slice::from_ref(&prio), &["policy is prio"]);
    doit(&mut tree, &[set("f", "=25%"), set("a", "100")]);
    doit(&mut tree, &[prio]);
    refused(&tree, &[set("a", "100 1ns/s")], &["policy is prio"]);
}

#[test]
fn draining_nodes_hold_their_weight_until_they_are_gone() {
    let mut tree = tree(1);
    doit(&mut tree, &[mk("", "old", QUEUE, "100 500ms/s")]);
    let id = tree.resolve(&"old".parse().unwrap()).unwrap();
    doit(&mut tree, &[Request::Delete { node: at("old"), mode: DeleteMode::Drain }]);
    refused(&tree, &[mk("", "new", QUEUE, "100 500ms/s")], &["cpu/"]);
    let gone = tree.plan_gone(&[id]);
    tree.commit(&gone).unwrap();
    doit(&mut tree, &[mk("", "new", QUEUE, "100 500ms/s")]);
}

#[test]
fn capacity_that_falls_is_said_and_nothing_is_scaled() {
    let mut tree = tree(4);
    doit(&mut tree, &[mk("", "a", SCHED, "300 3cpu"), mk("a", "b", QUEUE, "1 3cpu")]);
    tree.set_capacity(2 * CPU);
    let a = tree.resolve(&"a".parse().unwrap()).unwrap();
    assert_eq!(tree.overcommitted(), [a]);
    assert_eq!(tree.node(a).unwrap().minimum, Minimum(3 * CPU), "nothing is scaled");
    // Nothing that makes it worse …
    refused(&tree, &[set("a", "299 3cpu")], &["cpu/a"]);
    refused(&tree, &[set("a", "300 3.1cpu")], &["cpu/a"]);
    refused(&tree, &[set("q0", "101")], &["cpu/a"]);
    refused(&tree, &[mk("", "x", QUEUE, "1")], &["cpu/a"]);
    refused(&tree, &[mk("", "x", QUEUE, "1 100ms/s")], &["cpu/"]);
    // … but what does not, or makes it better, is taken.
    doit(&mut tree, &[mk("", "x", QUEUE, "0"), mk("a", "c", QUEUE, "0")]);
    doit(&mut tree, &[set("q0", "90")]);
    doit(&mut tree, &[set("a/b", "1 1cpu"), set("a", "300 2.5cpu")]);
    assert_eq!(tree.overcommitted(), [a]);
    doit(&mut tree, &[set("a", "300 1.5cpu")]);
    assert!(tree.overcommitted().is_empty());
    tree.set_capacity(8 * CPU);
    doit(&mut tree, &[set("a", "300 4cpu")]);
}

/// Every promise of the whole tree by the definition, and what follows from them: each node's
/// effective guarantee.
fn recheck(tree: &Tree) -> Result<(), String> {
    let ratio = |n: u64, of: u64| BigRational::new(n.into(), of.into());
    let mut sure = std::collections::BTreeMap::from([(NodeId::ROOT, ratio(tree.capacity(), 1))]);
    for (_, node) in tree.walk() {
        let children: Vec<&Node> = tree.iter().filter(|n| n.parent == Some(node.id)).collect();
        let fixed: u64 = children.iter().filter_map(|c| c.fixed).map(|f| u64::from(f.ppm())).sum();
        let weights: u64 = children
            .iter()
            .filter(|c| c.fixed.is_none())
            .map(|c| u64::from(c.weight.milli()))
            .sum();
        let mut all = ratio(0, 1);
        for child in children {
            let part = match child.fixed {
                Some(f) => ratio(f.ppm().into(), 1_000_000),
                None if child.weight.milli() == 0 => ratio(0, 1),
                None => {
                    ratio(child.weight.milli().into(), weights)
                        * ratio(1_000_000 - fixed, 1_000_000)
                }
            };
            let minimum = ratio(child.minimum.0, 1);
            all += &minimum;
            if minimum > ratio(node.minimum.0, 1) * &part {
                return Err(format!("{}: {}", tree.shown(child.id), child.share()));
            }
            let has = &sure[&node.id] * part;
            if has < minimum {
                return Err(format!("{} has less than its minimum", tree.shown(child.id)));
            }
            sure.insert(child.id, has);
        }
        if all > ratio(node.minimum.0, 1) {
            return Err(format!("{} promises more than it has", tree.shown(node.id)));
        }
    }
    Ok(())
}

/// Requests that are admissible often enough: small weights, minimums that are parts of the
/// parent's.
fn request(tree: &Tree, (what, a, b, c): common::Step) -> Request {
    let nodes: Vec<&Node> = tree.iter().collect();
    let node = nodes[a as usize % nodes.len()];
    let schedulers: Vec<&Node> = nodes.iter().copied().filter(|n| n.kind.is_scheduler()).collect();
    let parent = schedulers[b as usize % schedulers.len()];
    let above = |n: &Node| n.parent.and_then(|p| tree.get(p)).map_or(0, |p| p.minimum.0);
    let share = |whole: u64| {
        let minimum = Minimum(match c % 5 {
            0 | 1 => 0,
            2 => whole / u64::from(2 + c / 5 % 8),
            3 => whole / u64::from(2 + c / 5 % 8) + 1,
            _ => (whole / 3).min(u64::from(c)),
        });
        match Fixed::from_ppm(c / 64 % 5 * 100_000) {
            Some(fixed) if c / 7 % 4 == 0 => Share { minimum, ..Share::fixed(fixed) },
            _ => Share { minimum, ..Share::of(Weight::from_milli(c / 11 % 9 * 1000).unwrap()) },
        }
    };
    match what % 12 {
        0..4 => Request::Create {
            parent: parent.id.into(),
            name: None,
            kind: if c % 3 == 0 { QUEUE } else { SCHED },
            share: (c % 4 > 0).then(|| share(parent.minimum.0)),
        },
        4..9 => Request::SetShare { node: node.id.into(), share: share(above(node)) },
        9 => Request::Delete { node: node.id.into(), mode: common::mode(c) },
        _ => Request::Move {
            node: node.id.into(),
            parent: parent.id.into(),
            name: Some(common::name(c)),
        },
    }
}

/// `splitmix64`: the seed is printed, `ADMISSION_SEED` replays it.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    #[expect(clippy::cast_possible_truncation, reason = "any bits will do")]
    fn step(&mut self) -> common::Step {
        let (a, b) = (self.next(), self.next());
        (a as u8, (a >> 8) as u16, (a >> 24) as u16, b as u32)
    }
}

#[test]
fn every_promise_holds_after_every_accepted_sequence() {
    #[expect(clippy::disallowed_methods, reason = "a test is replayed by a variable")]
    let seed = std::env::var("ADMISSION_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or_else(common::seed);
    #[expect(clippy::disallowed_macros, reason = "a test says how to replay it")]
    {
        println!("replay with ADMISSION_SEED={seed}");
    }
    let mut random = Random(seed);
    let (mut taken, mut promised, mut broken) = (0, 0, 0);
    for run in 0..24 {
        let mut tree = tree(1 + run % 8);
        for _ in 0..150 {
            let together = if random.next().is_multiple_of(4) { 1 + random.next() % 4 } else { 1 };
            let requests: Vec<Request> =
                (0..together).map(|_| request(&tree, random.step())).collect();
            let before = tree.clone();
            match tree.plan(&requests) {
                Ok(plan) => {
                    tree.commit(&plan).unwrap();
                    taken += 1;
                    assert_eq!(recheck(&tree), Ok(()), "{requests:?}");
                }
                Err(error) => {
                    assert_eq!(tree, before, "what is refused changes nothing");
                    // What is refused for a promise would have broken one, and nothing else was
                    // wrong.
                    if error.kind == ErrorKind::Overcommitted
                        && error.context.contains("would not be kept")
                    {
                        let plan = tree.plan_part(&requests).unwrap();
                        let mut without = tree.clone();
                        without.commit(&plan).unwrap();
                        assert!(recheck(&without).is_err(), "{error}: {requests:?}");
                        broken += 1;
                    }
                }
            }
            promised += tree.iter().filter(|n| n.parent.is_some() && n.minimum.0 > 0).count();
        }
        let text = serde_json::to_string(&tree.snapshot()).unwrap();
        let restored = serde_json::from_str::<Snapshot>(&text).unwrap().restore().unwrap();
        assert_eq!(restored, tree);
    }
    assert!(
        taken > 500 && broken > 50 && promised > 1000,
        "{taken} taken, {broken} refused, {promised} promises"
    );
}

#[test]
fn a_link_promises_its_rate_in_bits() {
    let mut tree = Tree::new(Name::new("eth0").unwrap());
    tree.set_capacity(1_250_000);
    assert_eq!(tree.root().minimum.to_string(), "10mbit");
    let make = |share: &str| Request::Create {
        parent: NodeId::ROOT.into(),
        name: Some(Name::new("a").unwrap()),
        kind: NewKind::Queue(None),
        share: Some(share.parse().unwrap()),
    };
    for (share, says) in [
        ("300 8mbit", "300 of 400 of eth0's 10mbit is 7.5mbit"),
        ("300 100ms/s", "is an amount of CPU"),
    ] {
        let error = tree.plan(&[make(share)]).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    tree.plan(&[make("300 7500kbit")]).unwrap();
    // A disk's in bytes, as people write them.
    tree.set_resource(ResourceKind::Disk);
    tree.set_capacity(2_000_000);
    let error = tree.plan(&[make("300 1.6MB/s")]).unwrap_err().to_string();
    assert!(error.contains("300 of 400 of eth0's 2MB/s is 1.5MB/s"), "{error}");
}

#[test]
fn a_smaller_capacity_keeps_what_is_promised_or_is_refused() {
    let mut tree = Tree::new(Name::new("eth0").unwrap());
    tree.set_capacity(1_250_000);
    let (name, share) = (Some(Name::new("a").unwrap()), Some("300 7500kbit".parse().unwrap()));
    let kind = NewKind::Queue(None);
    let make = Request::Create { parent: NodeId::ROOT.into(), name, kind, share };
    tree.commit(&tree.plan(&[make]).unwrap()).unwrap();
    tree.admit_capacity(1_250_000).unwrap();
    let error = tree.admit_capacity(1_249_999).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Overcommitted);
    assert!(error.context.starts_with("eth0/a: its minimum 7.5mbit"), "{error}");
    assert!(tree.admit_capacity(0).is_err(), "nobody knows how much there is: nothing is promised");
    assert_eq!(tree.capacity(), 1_250_000, "it was only asked");
}
