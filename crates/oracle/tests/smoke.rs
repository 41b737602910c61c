// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random events of every kind; the core's own invariants after each.
#![expect(clippy::cast_possible_truncation, reason = "small numbers")]

use reserv_oracle::core::*;
use reserv_oracle::rng::Rng;

#[test]
#[expect(clippy::too_many_lines, reason = "one arm for each kind of event")]
fn random_events() {
    for seed in 0..300 {
        let mut r = Rng::new(seed);
        let units = *r.pick(&[1u32, 1, 2, 4]);
        let mut c = Core::new(Setup { units, nodes: 32, items: 48, ..Setup::default() });
        if r.chance(30) {
            c.set(4_000_000, 50_000_000, 1_000_000);
        }
        let mut now = 1_000_000u64;
        let mut gens = [1u32; 32];
        let mut items: Vec<u32> = vec![];
        for step in 0..1500 {
            let nodes = c.nodes();
            let n = *r.pick(&nodes);
            now += r.below(3_000_000);
            let mut what = String::new();
            match r.below(28) {
                24 => {
                    let policy = *r.pick(&[0, 0, EEVDF, EEVDF, MTRLS, PRIO, WRR, 9]);
                    what = format!("policy {:x} {policy}", n.id);
                    let _ = c.edit(0, now, &[Op::Policy { node: n.id, policy }]);
                }
                25 => {
                    // Tunables of a node, and what it is to its parent.
                    let (code, which) =
                        *r.pick(&[(10, 1), (10, 2), (10, 3), (10, 5), (11, 1), (11, 2)]);
                    let value =
                        *r.pick(&[0, 1, 20, 50, 100_000, 5_000_000, 10_000_000_000, u64::MAX]);
                    what = format!("tune {:x} {code} {which} {value}", n.id);
                    let _ = c.edit(
                        0,
                        now,
                        &[Op::Raw { code, node: n.id, parent: 0, a: which, b: value }],
                    );
                }
                26..=27 => {
                    if !items.is_empty() {
                        let it = *r.pick(&items);
                        let period = *r.pick(&[0, 0, 1_000_000, 20_000_000, 10_000_000_000, 1]);
                        let p = Params {
                            weight: *r.pick(&[0, 1, 1000, 1_000_000_000]),
                            priority: *r.pick(&[0, 1, 50, 100, 101]),
                            period,
                            budget: period / r.range(1, 5),
                            deadline: if r.chance(30) { period / 2 } else { 0 },
                        };
                        what = format!("{it}: {p:?}");
                        let _ = c.item_params(it, p, now);
                    }
                }
                0..=1 => {
                    let i = r.range(2, 31) as u32;
                    let kind = r.range(1, 2) as u32;
                    let alg = if kind == SCHED {
                        *r.pick(&[0, EEVDF, MTRLS, PRIO, WRR])
                    } else {
                        r.below(5) as u32
                    };
                    let node = id(i, gens[i as usize] + 1);
                    what = format!("create {i} under {:x}", n.id);
                    let res = c.edit(
                        0,
                        now,
                        &[
                            Op::Create { node, parent: n.id, kind, alg },
                            Op::Reweight { node, weight: r.range(0, 5000) as u32 },
                        ],
                    );
                    if res.is_ok() {
                        gens[i as usize] += 1;
                    }
                }
                2 => {
                    what = format!("delete {:x}", n.id);
                    let _ = c.edit(0, now, &[Op::Delete { node: n.id, drain: r.chance(50) }]);
                }
                3 => {
                    let weight = *r.pick(&[0, 1, 10, 1000, 3333, 1_000_000_000]);
                    what = format!("reweight {:x} {weight}", n.id);
                    let _ = c.edit(0, now, &[Op::Reweight { node: n.id, weight }]);
                }
                4 => {
                    what = format!("cap {:x}", n.id);
                    let _ = c.edit(
                        0,
                        now,
                        &[Op::Cap {
                            node: n.id,
                            ppm: *r.pick(&[0, 0, 1, 100_000, 500_000]),
                            burst: *r.pick(&[0, 1, 10_000_000]),
                        }],
                    );
                }
                5 => {
                    what = format!("class {:x}", n.id);
                    let _ = c.edit(0, now, &[Op::Class { node: n.id, class: r.below(6) as u32 }]);
                }
                6 => {
                    let to = *r.pick(&nodes);
                    what = format!("move {:x} to {:x}", n.id, to.id);
                    let _ = c.edit(0, now, &[Op::Move { node: n.id, parent: to.id }]);
                }
                7 => {
                    let to = *r.pick(&nodes);
                    what = "batch".into();
                    let _ = c.edit(
                        0,
                        now,
                        &[
                            Op::Move { node: n.id, parent: to.id },
                            Op::Reweight { node: n.id, weight: 7 },
                            Op::Delete { node: to.id, drain: true },
                            Op::Limit { node: n.id, members: 3 },
                        ],
                    );
                }
                8..=9 => {
                    if n.kind == QUEUE
                        && let Some(i) =
                            c.item_new(n.id, r.range(1, 3000) as u32, r.below(4) as u32)
                    {
                        items.push(i);
                        what = format!("new item {i}");
                    }
                }
                10 => {
                    if !items.is_empty() {
                        let i = r.index(items.len());
                        let it = items[i];
                        what = format!("leave {it} state {}", c.item(it).state);
                        match c.item(it).state {
                            QUEUED => c.remove(it),
                            SERVICE => c.settle(it, 5, false, now),
                            _ => {}
                        }
                        c.item_leave(it);
                        items.swap_remove(i);
                    }
                }
                11..=12 => {
                    if !items.is_empty() {
                        let it = *r.pick(&items);
                        what = format!("item move {it} state {} to {:x}", c.item(it).state, n.id);
                        c.item_move(it, n.id, r.below(1_000_000), now);
                    }
                }
                13 => {
                    if !items.is_empty() {
                        let it = *r.pick(&items);
                        what = format!("units {it}");
                        let mask =
                            if r.chance(40) { None } else { Some([r.range(1, 15), 0, 0, 0]) };
                        c.item_units(it, mask);
                    }
                }
                14 => {
                    if !items.is_empty() {
                        let it = *r.pick(&items);
                        what = format!("item reweight {it}");
                        c.item_reweight(it, *r.pick(&[0, 1, 3, 1000, 88_000_000]));
                    }
                }
                15..=17 => {
                    if !items.is_empty() {
                        let it = *r.pick(&items);
                        if c.item(it).state == IDLE {
                            c.wake(it, now);
                            what = format!("wake {it}");
                        } else if c.item(it).state == QUEUED && r.chance(30) {
                            c.remove(it);
                            what = format!("remove {it}");
                        }
                    }
                }
                _ => {
                    let unit = r.below(units.into()) as u32;
                    let cur = items
                        .iter()
                        .copied()
                        .find(|&i| c.item(i).state == SERVICE && c.item(i).unit == unit);
                    if let Some(i) = cur {
                        let more = r.chance(70);
                        what = format!("settle {i} {more}");
                        c.settle(i, r.below(6_000_000), more, now);
                    } else {
                        let p = c.pick(unit, now);
                        what = format!("pick {p:?}");
                    }
                }
            }
            if let Err(e) = c.check() {
                panic!("seed {seed} step {step} units {units}: {what}: {e}");
            }
        }
    }
}
