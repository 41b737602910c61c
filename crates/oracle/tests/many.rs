// SPDX-License-Identifier: MIT OR Apache-2.0
//! What goes through all there is goes in pieces, or not far: so no section of a caller's lock is
//! as long as a tree can be large.

use reserv_oracle::core::{Core, FIFO, Id, ONE, Op, PRIO, QUEUE, ROOT, SCHED, SFQ, Setup, id};
use reserv_oracle::rng::Rng;

const MS: u64 = 1_000_000;
/// What a batch may move (`RS_WALKED_MAX`): nodes below what it names, and so much for each move,
/// here from below the root to depth 1; and slots that are looked at
/// for children with a place of before (`RS_PRIO_PIECE`).
const WALKED: u32 = 6400;
const MOVE: u32 = 12 + 8;
const PIECE: u32 = 256;
/// `enum rs_tune`
const DECAY: u64 = 5;

fn sched(core: &mut Core, index: u32, parent: Id, alg: u32) -> Id {
    let node = id(index, 1);
    core.must(0, Op::Create { node, parent, kind: SCHED, alg });
    node
}

fn queues(core: &mut Core, from: u32, many: u32, parent: Id) {
    for index in from..from + many {
        core.must(0, Op::Create { node: id(index, 1), parent, kind: QUEUE, alg: FIFO });
    }
}

/// A child of policy prio as the paper has it: usage halved whenever a period's worth has been
/// handed out, one level by it.
struct Child {
    usage: u64,
    at: u64,
    turn: u64,
}

impl Child {
    fn usage(&mut self, periods: u64) -> u64 {
        self.usage >>= (periods - self.at).min(63);
        self.at = periods;
        self.usage
    }

    /// Smaller first.
    fn place(&mut self, period: u64, periods: u64) -> (i64, u64) {
        let usage = self.usage(periods);
        (i64::from(usage > period) - i64::from(usage <= period / 4), self.turn)
    }
}

/// Among many children the halving of all usages reaches the last one some steps later, and then
/// each stands where it stands among few.
#[test]
fn many_children_have_their_places_after_a_few_steps() {
    for seed in 0..4 {
        let mut r = Rng::new(seed);
        let many = 600;
        let period = 10 * MS;
        let mut core = Core::new(Setup { nodes: 1024, items: 1024, ..Setup::default() });
        let top = sched(&mut core, 2, ROOT, PRIO);
        core.must(0, Op::Tune { node: top, which: DECAY, value: period });
        queues(&mut core, 3, many, top);
        let mut children = Vec::new();
        let mut of_item = std::collections::HashMap::new();
        for k in 0..many {
            let item = core.item_new(id(3 + k, 1), ONE, 0).expect("room");
            core.wake(item, 0);
            of_item.insert(item, k as usize);
            children.push(Child { usage: 0, at: 0, turn: u64::from(k) });
        }
        let slots = 3 + many;
        let (mut periods, mut spent, mut turn) = (0, 0, u64::from(many));
        let (mut since, mut exact) = (u32::MAX, 0);
        for step in 0..20_000 {
            let item = core.pick(0, step).expect("all want");
            let k = of_item[&item];
            if since >= slots.div_ceil(PIECE) {
                let place = children[k].place(period, periods);
                let first = children.iter_mut().map(|c| c.place(period, periods)).min();
                assert_eq!(Some(place), first, "seed {seed}, step {step}, {since} after a halving");
                exact += 1;
            }
            let work = if r.chance(5) { r.range(1, 30) * MS } else { r.range(1, 20_000) };
            core.settle(item, work, true, step);
            children[k].usage(periods);
            children[k].usage += work;
            turn += 1;
            children[k].turn = turn;
            spent += work;
            since = since.saturating_add(1);
            if spent >= period {
                periods += spent / period;
                spent %= period;
                since = 1;
            }
            if step % 500 == 0 {
                assert_eq!(core.check(), Ok(()));
            }
        }
        assert!(exact > 5000, "only {exact} steps were compared");
    }
}

/// A batch moves so many nodes, with all that is below, and no more: a refused one has changed
/// nothing.
#[test]
fn a_batch_moves_so_many_nodes() {
    let mut core = Core::new(Setup { nodes: 16384, items: 16, ..Setup::default() });
    let [a, b, deep] = [2, 3, 4].map(|index| sched(&mut core, index, ROOT, SFQ));
    let small = sched(&mut core, 5, ROOT, SFQ);
    queues(&mut core, 100, WALKED - MOVE - 5, a);
    for index in 7..12 {
        sched(&mut core, index, a, SFQ);
    }
    queues(&mut core, 7000, WALKED - MOVE + 1, b);
    queues(&mut core, 14000, 50, small);
    let places =
        |core: &Core| core.nodes().iter().map(|n| (n.id, n.parent, n.depth)).collect::<Vec<_>>();
    let before = places(&core);
    let to = |node| Op::Move { node, parent: deep };
    let refused = core.edit(0, 0, &[to(b)]).expect_err("too many");
    assert_eq!((refused.error, refused.failed), (-16, 0), "EBUSY");
    assert_eq!(places(&core), before);
    let refused = core.edit(0, 0, &[to(small), to(a)]).expect_err("too many in all");
    assert_eq!((refused.error, refused.failed), (-16, 1));
    assert_eq!(places(&core), before);
    assert_eq!(core.check(), Ok(()));
    core.edit(0, 0, &[to(a)]).expect("as many as may be");
    core.edit(0, 0, &[to(small)]).expect("another batch");
    assert_eq!(core.check(), Ok(()));
    // To and fro, as far as it goes.
    let fro: Vec<Op> = (0..128)
        .map(|k| Op::Move { node: small, parent: if k % 2 == 0 { ROOT } else { deep } })
        .collect();
    core.edit(0, 0, &fro[..WALKED as usize / (MOVE as usize + 50)]).expect("many small ones");
    let refused = core.edit(0, 0, &fro).expect_err("more than that");
    assert_eq!(refused.error, -16);
    assert_eq!(core.check(), Ok(()));
}

/// Places whose masks promise more than there is are looked at in vain, so many in a section: then
/// the unit is to ask again, and finds what it may serve, if there is anything, after a few times.
#[test]
fn a_pick_ends_and_asks_again() {
    let mut core = Core::new(Setup { nodes: 512, items: 4096, units: 2, ..Setup::default() });
    let many = 200;
    queues(&mut core, 2, many, ROOT);
    let only = |unit: u32| Some([1 << unit, 0, 0, 0]);
    // In each more wait than are looked through one by one, for unit 1; and one for unit 0, which
    // then goes, and leaves the mask too large.
    let mut here = Vec::new();
    for k in 0..many {
        for n in 0..10 {
            let item = core.item_new(id(2 + k, 1), ONE, 0).expect("room");
            core.item_units(item, only(u32::from(n > 0)));
            core.wake(item, 0);
            if n == 0 {
                here.push(item);
            }
        }
    }
    for item in &here {
        core.remove(*item);
    }
    let last = core.item_new(id(2, 1), ONE, 0).expect("room");
    core.item_units(last, only(0));
    core.wake(last, 0);
    let mut asked = 0;
    let found = loop {
        asked += 1;
        let got = core.pick(0, 7);
        if got.is_some() || core.tree().next_ns != 7 {
            break got;
        }
        assert!(asked < many, "it ends");
    };
    assert_eq!(found, Some(last));
    println!("asked {asked} times");
    core.settle(last, MS, false, 8);
    loop {
        if core.pick(0, 9).is_none() && core.tree().next_ns != 9 {
            break;
        }
        asked += 1;
        assert!(asked < 2 * many, "nothing is left for it");
    }
    assert!(asked > 3, "it never asked again: {asked}");
    assert_eq!(core.check(), Ok(()));
}
