// SPDX-License-Identifier: MIT OR Apache-2.0
//! Units come and go while they serve (`rs_units` of sched/tree.c): whoever may be served is found,
//! and nothing is promised that is not there.

use reserv_oracle::core::{
    Build, Core, EEVDF, FIFO, IDLE, Id, MTRLS, MUTANTS, ONE, Op, PRIO, QUEUE, QUEUED, ROOT, RR,
    SCHED, SFQ, Setup, TS, WRR, id,
};
use reserv_oracle::rng::Rng;

const Q: u64 = 4_000_000;
const UNITS: u32 = 4;

/// A queue two levels down, with one item in service that any unit may serve, begun while there
/// was one unit, and two that wait and are bound to unit 0.
fn crowd() -> Core {
    let mut core = Core::new(Setup { units: 1, quantum: Q, ..Setup::default() });
    let (above, queue) = (id(2, 1), id(3, 1));
    core.must(0, Op::Create { node: above, parent: ROOT, kind: SCHED, alg: 0 });
    core.must(0, Op::Create { node: queue, parent: above, kind: QUEUE, alg: TS });
    for node in [above, queue] {
        core.must(0, Op::Reweight { node, weight: ONE });
    }
    let free = core.item_new(queue, ONE, 0).expect("room");
    core.wake(free, 0);
    for _ in 0..2 {
        let bound = core.item_new(queue, ONE, 0).expect("room");
        core.item_units(bound, Some([1, 0, 0, 0]));
        core.wake(bound, 0);
    }
    assert_eq!(core.pick(0, 1), Some(free));
    core
}

#[test]
fn a_unit_that_comes_finds_only_what_it_may_serve() {
    let mut core = crowd();
    core.units(2);
    core.check().expect("a sound tree");
    assert_eq!(core.pick(1, 2), None);
    core.check().expect("a sound tree");
}

/// What is known beside the core: who waits, and for which units.
struct Known {
    core: Core,
    rng: Rng,
    now: u64,
    /// Each item and the units it may use; 0: all.
    items: Vec<(u32, u64)>,
    /// How many units there have been at most: those above have gone, and still serve for a while.
    there: u32,
    /// What each unit serves.
    serves: [Option<u32>; UNITS as usize],
}

impl Known {
    fn new(build: Build, seed: u64, alg: u32) -> Self {
        let mut rng = Rng::new(seed);
        let setup = Setup { build, units: 1, items: 64, quantum: Q, ..Setup::default() };
        let mut core = Core::new(setup);
        let mut nodes: Vec<(Id, u32)> = vec![(ROOT, 0)];
        let mut queues = Vec::new();
        for index in 2..12 {
            let &(parent, depth) = rng.pick(&nodes);
            let node = id(index, 1);
            let kind = if index < 6 && depth < 3 { SCHED } else { QUEUE };
            let class = *rng.pick(&[TS, SFQ, RR, FIFO]);
            core.must(
                0,
                Op::Create { node, parent, kind, alg: if kind == SCHED { alg } else { class } },
            );
            core.must(0, Op::Reweight { node, weight: *rng.pick(&[ONE, 3 * ONE, 100 * ONE]) });
            if kind == SCHED {
                nodes.push((node, depth + 1));
            } else {
                queues.push(node);
            }
        }
        let mut items = Vec::new();
        for _ in 0..24 {
            let item = core.item_new(*rng.pick(&queues), ONE, 0).expect("room");
            items.push((item, 0));
        }
        Self { core, rng, now: 1, items, there: 1, serves: [None; UNITS as usize] }
    }

    fn bind(&mut self, of: usize) {
        let mask = if self.rng.chance(40) { 0 } else { self.rng.range(1, (1 << UNITS) - 1) };
        self.items[of].1 = mask;
        self.core.item_units(self.items[of].0, (mask != 0).then_some([mask, 0, 0, 0]));
    }

    /// Whether somebody waits whom the unit may serve.
    fn somebody(&self, unit: usize) -> bool {
        self.items.iter().any(|&(item, mask)| {
            self.core.item(item).state == QUEUED && (mask == 0 || mask >> unit & 1 == 1)
        })
    }

    fn step(&mut self) -> Result<(), String> {
        self.now += self.rng.below(Q);
        match self.rng.below(10) {
            0 => {
                let units = self.rng.range(1, u64::from(UNITS)).try_into().expect("few");
                self.there = self.there.max(units);
                self.core.units(units);
            }
            1..4 => {
                let of = self.rng.index(self.items.len());
                match self.core.item(self.items[of].0).state {
                    IDLE => self.core.wake(self.items[of].0, self.now),
                    QUEUED if self.rng.chance(30) => self.core.remove(self.items[of].0),
                    _ => self.bind(of),
                }
            }
            _ => {
                let unit = self.rng.index(self.there as usize);
                if let Some(item) = self.serves[unit].take() {
                    let (work, more) = (self.rng.below(Q), self.rng.chance(80));
                    self.core.settle(item, work, more, self.now);
                }
                let expected = self.somebody(unit);
                let got = self.core.pick(unit.try_into().expect("few"), self.now);
                if got.is_some() != expected {
                    return Err(format!("unit {unit}: served {got:?}, somebody waits: {expected}"));
                }
                if let Some(item) = got {
                    let mask = self.items.iter().find(|i| i.0 == item).expect("one of ours").1;
                    if mask != 0 && mask >> unit & 1 == 0 {
                        return Err(format!("unit {unit} serves whom only {mask:b} may"));
                    }
                }
                self.serves[unit] = got;
            }
        }
        self.core.check()
    }
}

fn run(build: Build, alg: u32, seed: u64) -> Result<(), String> {
    let mut known = Known::new(build, seed * 7919 + u64::from(alg), alg);
    (0..2000).try_for_each(|step| {
        known.step().map_err(|why| format!("policy {alg}, seed {seed}, step {step}: {why}"))
    })
}

const POLICIES: [u32; 5] = [0, EEVDF, MTRLS, PRIO, WRR];

#[test]
fn units_come_and_go_under_random_load() {
    for alg in POLICIES {
        for seed in 0..40 {
            run(Build::Real, alg, seed).unwrap_or_else(|why| panic!("{why}"));
        }
    }
}

#[test]
fn what_a_change_of_units_must_do_is_missed() {
    let mutants = MUTANTS.iter().enumerate().filter(|(_, m)| m.name.starts_with("units_"));
    let mut count = 0;
    for (i, m) in mutants {
        let mut all = POLICIES.iter().flat_map(|&alg| (0..40).map(move |seed| (alg, seed)));
        let found = all.find_map(|(alg, seed)| run(Build::Mutant(i), alg, seed).err());
        println!("{}: {found:?}", m.name);
        assert!(found.is_some(), "accepted: {} ({})", m.name, m.mistake);
        count += 1;
    }
    assert_eq!(count, 2);
}
