// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shares against fractions of 128 bits, and at the largest numbers.

mod common;

use proptest::prelude::*;
use reserv_model::*;

fn build(lines: &[(&str, &str, u32)]) -> Tree {
    let mut tree = Tree::new(Name::new("cpu").unwrap());
    for (path, kind, milli) in lines {
        let path: NodePath = path.parse().unwrap();
        let share = Share::of(Weight::from_milli(*milli).unwrap());
        let request = if path.to_string() == "q0" {
            Request::SetShare { node: path.into(), share }
        } else {
            let (parent, name) = path.split_last().unwrap();
            let kind =
                if *kind == "s" { Kind::Scheduler(Policy::Sfq) } else { Kind::Queue(Class::Ts) };
            Request::Create {
                parent: parent.into(),
                name: Some(name.clone()),
                kind: kind.into(),
                share: Some(share),
            }
        };
        let plan = tree.plan(&[request]).unwrap();
        tree.commit(&plan).unwrap();
    }
    tree
}

fn weight_share(tree: &Tree, id: NodeId) -> Ppm {
    Shares::all(tree).ppm(tree, id)
}

/// Of all nodes, in order of slot.
fn effective_shares(tree: &Tree, wants: impl Fn(NodeId) -> bool) -> Vec<(NodeId, Ppm)> {
    let shares = Shares::now(tree, wants);
    tree.iter().map(|n| (n.id, shares.ppm(tree, n.id))).collect()
}

fn ppm(tree: &Tree, want: &[&str], of: &str) -> u32 {
    let ids: Vec<_> = want.iter().map(|p| tree.resolve(&p.parse().unwrap()).unwrap()).collect();
    let id = tree.resolve(&of.parse().unwrap()).unwrap();
    Shares::now(tree, |n| ids.contains(&n)).ppm(tree, id)
}

#[test]
fn the_worked_example() {
    let tree = build(&[
        ("q0", "q", 100_000),
        ("web", "s", 300_000),
        ("web/a", "q", 1_000),
        ("web/b", "q", 2_000),
    ]);
    let all = ["q0", "web/a", "web/b"];
    assert_eq!(all.map(|p| ppm(&tree, &all, p)), [250_000, 250_000, 500_000]);
    assert_eq!(ppm(&tree, &all, "web"), 750_000);
    assert_eq!(ppm(&tree, &all, ""), 1_000_000);
    assert_eq!(all.map(|p| ppm(&tree, &["q0", "web/b"], p)), [250_000, 0, 750_000]);
    assert_eq!(all.map(|p| ppm(&tree, &["web/a", "web/b"], p)), [0, 333_333, 666_666]);
    assert_eq!(["", "q0", "web/a"].map(|p| ppm(&tree, &[], p)), [0, 0, 0], "nobody wants");
    assert_eq!(weight_share(&tree, tree.resolve(&"web/b".parse().unwrap()).unwrap()), 500_000);
}

#[test]
fn background_gets_what_is_left() {
    let tree = build(&[("q0", "q", 1), ("a", "q", 0), ("b", "q", 0), ("c", "q", 0)]);
    assert_eq!(ppm(&tree, &["q0", "a"], "a"), 0);
    assert_eq!(ppm(&tree, &["q0", "a"], "q0"), 1_000_000);
    assert_eq!(ppm(&tree, &["a"], "a"), 1_000_000);
    assert_eq!(ppm(&tree, &["a", "b", "c"], "b"), 333_333);
}

#[test]
fn four_sites_and_q0() {
    let sites = ["q1", "q2", "q3", "q4"];
    let mut lines = vec![("q0", "q", 40)];
    lines.extend(sites.map(|s| (s, "q", 240)));
    let tree = build(&lines);
    assert!(sites.iter().all(|s| ppm(&tree, &["q0", "q1", "q2", "q3", "q4"], s) == 240_000));
    assert_eq!(ppm(&tree, &["q0", "q1", "q2", "q3", "q4"], "q0"), 40_000);
}

#[test]
fn the_largest_numbers_are_exact() {
    // A chain of the deepest kind; at each level one sibling of the same, largest weight: 1/2 each
    // time, and 2^-15 at last.
    let mut lines: Vec<(String, &str, u32)> = Vec::new();
    let mut at = String::new();
    for level in 2..=DEPTH_MAX {
        let join =
            |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}/{name}") };
        if level > 2 {
            lines.push((join("w"), "q", 1_000_000_000));
        }
        lines.push((join("s"), if level == DEPTH_MAX { "q" } else { "s" }, 1_000_000_000));
        at = join("s");
    }
    lines.push(("q0".into(), "q", 1_000_000_000));
    let lines: Vec<_> = lines.iter().map(|(p, k, w)| (p.as_str(), *k, *w)).collect();
    let tree = build(&lines);
    let leaf = tree.resolve(&at.parse().unwrap()).unwrap();
    assert_eq!(tree.depth(leaf), DEPTH_MAX);
    assert_eq!(weight_share(&tree, leaf), 1_000_000 >> 15);
    let (_, share) =
        effective_shares(&tree, |_| true).into_iter().find(|(n, _)| *n == leaf).unwrap();
    assert_eq!(share, 30);
}

#[test]
fn the_longest_products_fit() {
    // The worst tree: all slots taken, as many siblings at each of 15 levels as there can be, all
    // of the largest weight.
    let mut saved = Tree::new(Name::new("cpu").unwrap()).snapshot();
    let levels = u32::try_from(DEPTH_MAX).unwrap() - 1;
    let per_level = (NODES_MAX - 2) / levels;
    let mut parent = NodeId::ROOT;
    let mut leaf = NodeId::Q0;
    for level in 1..=levels {
        for sibling in 0..per_level {
            let id = NodeId { index: u32::try_from(saved.slots.len()).unwrap(), generation: 1 };
            let interior = sibling == 0 && level < levels;
            let node = SavedNode {
                name: Name::numbered('n', sibling),
                parent: Some(parent),
                kind: if interior { Kind::Scheduler(Policy::Sfq) } else { Kind::Queue(Class::Ts) },
                share: Share::of(Weight::MAX),
                solved: None,
                cap: None,
                members_max: 0,
                bytes_max: 0,
                gc: false,
                tune: Tune::new(),
                draining: false,
                access: Vec::new(),
                maker: 0,
                through: None,
            };
            saved.slots.push(SavedSlot { generation: 1, node: Some(node) });
            leaf = id;
        }
        parent = NodeId { index: leaf.index + 1 - per_level, generation: 1 };
    }
    let tree = saved.restore().unwrap();
    assert_eq!(tree.depth(leaf), DEPTH_MAX);
    // (1/1092)^15 of a million is nothing; that it is computed without a carry lost is asserted
    // inside.
    assert_eq!(weight_share(&tree, leaf), 0);
    assert_eq!(
        Shares::now(&tree, |id| id == leaf).ppm(&tree, leaf),
        1_000_000,
        "alone it gets all"
    );
    let first = NodeId { index: 3, generation: 1 };
    assert_eq!(weight_share(&tree, first), 1_000_000 / per_level, "q0 hardly counts");
}

/// The same, recursively and in fractions of 128 bits, for trees whose products fit.
fn naive(
    tree: &Tree,
    node: &Node,
    wants: &dyn Fn(NodeId) -> bool,
    share: (u128, u128),
    out: &mut Vec<(NodeId, u32)>,
) {
    fn wanting(tree: &Tree, node: &Node, wants: &dyn Fn(NodeId) -> bool) -> bool {
        match node.kind {
            Kind::Queue(_) => wants(node.id),
            Kind::Scheduler(_) => {
                node.children.values().any(|c| wanting(tree, tree.get(*c).unwrap(), wants))
            }
        }
    }
    out.push((node.id, u32::try_from(share.0 * 1_000_000 / share.1).unwrap()));
    let children: Vec<_> = node.children.values().map(|c| tree.get(*c).unwrap()).collect();
    let active: Vec<_> =
        children.iter().filter(|c| share.0 > 0 && wanting(tree, c, wants)).collect();
    let sum: u128 = active.iter().map(|c| u128::from(c.weight.milli())).sum();
    for child in &children {
        let part = match (active.iter().any(|a| a.id == child.id), sum) {
            (false, _) => (0, 1),
            (true, 0) => (1, active.len() as u128),
            (true, sum) => (u128::from(child.weight.milli()), sum),
        };
        naive(tree, child, wants, (share.0 * part.0, share.1 * part.1), out);
    }
}

proptest! {
    #![proptest_config(common::config(2))]

    #[test]
    fn shares_agree_with_plain_fractions(all in common::steps(60), mask in any::<u64>(), weights in any::<u64>()) {
        let mut tree = common::grown(&all);
        // Weights of at most 8 bits, so that 16 levels fit 128 bits in the denominator.
        let reweigh: Vec<_> = tree.iter().filter(|n| n.id != NodeId::ROOT).map(|n| {
            let milli = (weights >> (n.id.index % 56)) & 15;
            let milli = u32::try_from(milli).unwrap() + u32::from(n.id == NodeId::Q0);
            Request::SetShare { node: n.id.into(), share: Share::of(Weight::from_milli(milli).unwrap()) }
        }).collect();
        let plan = tree.plan(&reweigh).unwrap();
        tree.commit(&plan).unwrap();
        let wants = |id: NodeId| mask >> (id.index % 64) & 1 == 1;
        let any = tree.iter().any(|n| n.kind.is_queue() && wants(n.id));
        let mut wanted = Vec::new();
        naive(&tree, tree.root(), &wants, (u128::from(any), 1), &mut wanted);
        wanted.sort_unstable();
        let shares = effective_shares(&tree, wants);
        prop_assert_eq!(&shares, &wanted);
        // Children never have more than their parent, and lose less than one part each by rounding.
        for node in tree.iter().filter(|n| !n.children.is_empty()) {
            let share = |id: NodeId| u64::from(shares.iter().find(|(n, _)| *n == id).unwrap().1);
            let sum: u64 = node.children.values().map(|c| share(*c)).sum();
            let works = node.children.values().any(|c| share(*c) > 0);
            prop_assert!(sum <= share(node.id));
            prop_assert!(!works || sum + node.children.len() as u64 >= share(node.id));
        }
        // All want: the static share.
        let total = effective_shares(&tree, |_| true);
        let empty = |n: &Node| n.kind.is_scheduler() && !tree.walk().any(|(_, q)| q.kind.is_queue() && tree.is_within(q.id, n.id));
        if !tree.iter().any(empty) {
            for (id, share) in total {
                prop_assert_eq!(weight_share(&tree, id), share);
            }
        }
    }
}

/// What stands beside the tree is q0's, and by what wants there the others have less.
#[test]
fn beside_competitors() {
    let tree = build(&[
        ("q0", "q", 4_000),
        ("acme", "q", 24_000),
        ("web", "s", 72_000),
        ("web/a", "q", 1_000),
        ("web/b", "q", 3_000),
    ]);
    let id = |path: &str| tree.resolve(&path.parse().unwrap()).unwrap();
    let of = |shares: &Shares, paths: [&str; 4]| paths.map(|p| shares.ppm(&tree, id(p)));
    let paths = ["q0", "acme", "web/b", ""];
    let beside = |outside, inside| Beside { tree: 2400, outside, inside };
    let all = |outside| Shares::all(&tree).beside(&tree, beside(outside, false));
    assert_eq!(of(&all(100), paths), [40_000, 240_000, 540_000, 1_000_000]);
    assert_eq!(of(&all(600), paths), [200_000, 200_000, 450_000, 1_000_000]);
    let guaranteed = |outside, path| {
        let mut tree = tree.clone();
        tree.set_capacity(2_000_000_000);
        all(outside).guarantee(&tree, id(path)) / 1_000_000
    };
    assert_eq!(["", "q0", "acme", "web/b"].map(|p| guaranteed(600, p)), [2000, 400, 400, 900]);
    // Part of q0 is in the tree, with q0's weight there: 600 of 3000, and 4 of 100 of the rest.
    let both = Shares::all(&tree).beside(&tree, beside(600, true));
    assert_eq!(of(&both, paths), [232_000, 192_000, 432_000, 1_000_000]);
    // What a queue of the tree leaves is the tree's.
    let now = |outside, inside, who: &[&str]| {
        let who: Vec<_> = who.iter().map(|p| id(p)).collect();
        let shares = Shares::now(&tree, |n| who.contains(&n));
        of(&shares.beside(&tree, beside(outside, inside)), paths)
    };
    assert_eq!(now(600, false, &["q0", "acme"]), [200_000, 800_000, 0, 1_000_000]);
    assert_eq!(now(600, false, &["acme"]), [200_000, 800_000, 0, 1_000_000]);
    assert_eq!(now(600, false, &["q0"]), [1_000_000, 0, 0, 1_000_000]);
    assert_eq!(now(0, false, &["q0", "web/b"]), [0, 0, 1_000_000, 1_000_000]);
    assert_eq!(now(0, true, &["acme"]), [142_857, 857_142, 0, 1_000_000]);
    assert_eq!(now(0, false, &[]), [0, 0, 0, 0]);
}
