// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thousands of threads in one queue, bound to units: who goes first on a unit, how many places of
//! the queue's heap are looked at for it, and that all have their turn where that is not enough.

use std::collections::BTreeMap;

use reserv_oracle::core::{Build, Core, FIFO, Id, MUTANTS, ONE, Op, Q0, QUEUE, ROOT, Setup, id};
use reserv_oracle::rng::Rng;

const Q: u64 = 4_000_000;
/// `RS_FAR_PIECE`: places of a heap that one choice prepares. `RS_FAR_LOOKED`: that it looks at.
const PIECE: u32 = 4096;
const LOOKED: u32 = 1024;

fn only(unit: u32) -> [u64; 4] {
    let mut mask = [0; 4];
    mask[unit as usize / 64] = 1 << (unit % 64);
    mask
}

fn allows(mask: [u64; 4], unit: u32) -> bool {
    mask[unit as usize / 64] >> (unit % 64) & 1 == 1
}

fn core(build: Build, units: u32, items: u32) -> Core {
    Core::new(Setup { build, units, items, quantum: Q, ..Setup::default() })
}

fn bound(core: &mut Core, queue: Id, unit: u32, weight: u32) -> u32 {
    let item = core.item_new(queue, weight, 0).expect("room");
    core.item_units(item, Some(only(unit)));
    core.wake(item, 0);
    item
}

/// One below `n`.
fn number(r: &mut Rng, n: u32) -> u32 {
    u32::try_from(r.below(u64::from(n))).expect("below a u32")
}

/// One unit, or some, or all.
fn random_units(r: &mut Rng, units: u32) -> Option<[u64; 4]> {
    match r.below(12) {
        0 => None,
        1..=3 => {
            let mut mask = [0; 4];
            for _ in 0..3 {
                let unit = r.index(units as usize);
                mask[unit / 64] |= 1 << (unit % 64);
            }
            Some(mask)
        }
        // Some units are much asked for.
        4..=9 => Some(only(number(r, 2))),
        _ => Some(only(number(r, units))),
    }
}

/// A queue of class fifo against a list by arrival. Threads come, go, are bound to other units and
/// served; the choice is the first of the list that the unit may serve. Answers how many wait at
/// the end, and the most places that were looked at.
fn first_come(build: Build, seed: u64, units: u32) -> Result<(usize, u32), String> {
    let mut r = Rng::new(seed);
    let many = 3000u32;
    let mut core = core(build, units, 4096);
    let queue = id(2, 1);
    core.must(0, Op::Create { node: queue, parent: ROOT, kind: QUEUE, alg: FIFO });
    core.must(0, Op::Reweight { node: queue, weight: ONE });
    core.near(0);
    let mut masks = Vec::new();
    let mut place = vec![0u64; many as usize];
    let mut list = BTreeMap::new();
    let mut stamp = 0u64;
    for item in 0..many {
        assert_eq!(core.item_new(queue, ONE, 0), Some(item));
        let mask = random_units(&mut r, units);
        core.item_units(item, mask);
        masks.push(mask.unwrap_or([u64::MAX; 4]));
    }
    let mut serves = vec![None; units as usize];
    let (mut longest, mut ended) = (0, false);
    for step in 0..60_000u64 {
        let now = 1000 * step;
        let item = number(&mut r, many);
        let waits = place[item as usize] != 0;
        let runs = serves.contains(&Some(item));
        match r.below(12) {
            0..=7 if !waits && !runs => {
                core.wake(item, now);
                stamp += 1;
                place[item as usize] = stamp;
                list.insert(stamp, item);
            }
            8 if waits && r.chance(25) => {
                core.remove(item);
                list.remove(&place[item as usize]);
                place[item as usize] = 0;
            }
            9 => {
                let mask = random_units(&mut r, units);
                core.item_units(item, mask);
                masks[item as usize] = mask.unwrap_or([u64::MAX; 4]);
            }
            _ => {
                let among = if r.chance(50) { units } else { units.min(8) };
                let unit = number(&mut r, among);
                if let Some(before) = serves[unit as usize].take() {
                    core.settle(before, 1000, false, now);
                }
                let first = list.values().copied().find(|i| allows(masks[*i as usize], unit));
                let got = core.pick(unit, now);
                let looked = core.tree().looked;
                longest = longest.max(looked);
                // Units 64 apart are one to a search until it gets to a thread: it may end early.
                ended |= units > 64 && looked >= LOOKED;
                let right = if ended {
                    got.is_some() == first.is_some()
                        && got.is_none_or(|i| allows(masks[i as usize], unit))
                } else {
                    got == first
                };
                if !right {
                    let (at, of) = (format!("step {step}, unit {unit}"), units);
                    return Err(format!("{at} of {of}: {got:?}, and {first:?} is first"));
                }
                if let Some(i) = got {
                    list.remove(&place[i as usize]);
                    place[i as usize] = 0;
                    serves[unit as usize] = Some(i);
                }
            }
        }
        if step % 1000 == 0 {
            core.check()?;
        }
    }
    core.check()?;
    Ok((list.len(), longest))
}

#[test]
fn the_first_that_a_unit_may_serve_goes_first() {
    for (seed, units) in [(0, 2), (1, 8), (2, 64), (3, 200)] {
        let (wait, longest) = first_come(Build::Real, seed, units).expect("as the list says");
        println!("{units} units: {wait} wait, {longest} places at the most");
        assert!(wait > 500);
        assert!(units > 64 || longest < LOOKED, "no search ends early: {longest}");
    }
}

/// Four threads are bound to unit 0, which mostly serves another queue, and to unit 1 forty of
/// weight one and forty of weight three: these are ahead of virtual time, and share their unit by
/// weight.
fn shares_of_those_ahead(build: Build) -> Result<(), String> {
    let mut core = core(build, 2, 1024);
    core.near(0);
    let (each, quanta) = (40u32, 8000u32);
    let first = bound(&mut core, Q0, 1, ONE);
    for i in 1..2 * each {
        bound(&mut core, Q0, 1, if i % 2 == 0 { ONE } else { 3 * ONE });
    }
    for _ in 0..4 {
        bound(&mut core, Q0, 0, ONE);
    }
    let other = id(2, 1);
    core.must(0, Op::Create { node: other, parent: ROOT, kind: QUEUE, alg: FIFO });
    core.must(0, Op::Reweight { node: other, weight: 199 * ONE });
    bound(&mut core, other, 0, ONE);
    let mut served = vec![0u32; 2 * each as usize];
    let mut running = [None, None];
    for step in 1..=u64::from(quanta) {
        for unit in 0..2 {
            if let Some(item) = running[unit as usize].take() {
                core.settle(item, Q, true, step * Q);
            }
            running[unit as usize] = core.pick(unit, step * Q);
        }
        let item = running[1].ok_or("nobody is served")?;
        served[(item - first) as usize] += 1;
    }
    core.check()?;
    for (i, got) in served.iter().enumerate() {
        let weight = if i % 2 == 0 { 1.0 } else { 3.0 };
        let want = f64::from(quanta) * weight / f64::from(4 * each);
        if (f64::from(*got) - want).abs() > 0.05 * want + 2.0 {
            return Err(format!("weight {weight} had {got} quanta, {want} by its weight"));
        }
    }
    Ok(())
}

#[test]
fn those_ahead_share_their_unit_by_weight() {
    shares_of_those_ahead(Build::Real).expect("by weight");
}

/// These tests are worth something only if they reject what is wrong.
#[test]
fn what_a_search_must_know_is_missed() {
    let mut count = 0;
    for (i, m) in MUTANTS.iter().enumerate().filter(|(_, m)| m.name.starts_with("far_")) {
        let build = Build::Mutant(i);
        let found = first_come(build, 1, 8).err().or_else(|| shares_of_those_ahead(build).err());
        println!("{}: {found:?}", m.name);
        assert!(found.is_some(), "accepted: {} ({})", m.name, m.mistake);
        count += 1;
    }
    assert_eq!(count, 3);
}

/// Beside twenty thousand threads of another unit one that sleeps and wakes is found at once; what
/// that needs is prepared in pieces, after each of which the unit is told to ask again.
#[test]
fn thousands_of_another_unit_are_not_gone_through() {
    for units in [2, 200] {
        let mut core = core(Build::Real, units, 32768);
        for _ in 0..20_000 {
            bound(&mut core, Q0, 0, ONE);
        }
        let mine = bound(&mut core, Q0, 1, ONE);
        let mut now = 1;
        let mut asked = 0;
        let mut got = core.pick(1, now);
        while got.is_none() {
            assert_eq!(core.tree().next_ns, now, "it is to ask again at once");
            asked += 1;
            assert!(asked <= 20_001 / PIECE, "{asked} pieces");
            core.check().expect("a sound tree");
            got = core.pick(1, now);
        }
        assert_eq!((got, asked), (Some(mine), 20_001 / PIECE));
        for _ in 0..1000 {
            now += 1000;
            core.settle(mine, 1000, false, now);
            assert_eq!(core.pick(1, now), None, "nobody else may be served there");
            assert!(core.tree().looked <= 64, "{} places", core.tree().looked);
            assert!(core.tree().next_ns != now);
            let other = core.pick(0, now).expect("somebody of the other unit");
            core.wake(mine, now);
            core.settle(other, Q, true, now);
            assert_eq!(core.pick(1, now), Some(mine));
            assert!(core.tree().looked <= 64, "{} places", core.tree().looked);
        }
        core.check().expect("a sound tree");
    }
}

/// Eight thousand threads of each of two units. Unit 0 mostly serves another queue, so those of
/// unit 1 are ahead of virtual time, and a search does not get through all of them. All have their
/// turn.
#[test]
fn all_have_their_turn_where_a_search_ends_early() {
    let mut core = core(Build::Real, 2, 32768);
    core.near(0);
    let other = id(2, 1);
    core.must(0, Op::Create { node: other, parent: ROOT, kind: QUEUE, alg: FIFO });
    core.must(0, Op::Reweight { node: other, weight: 9 * ONE });
    let many = 8000u32;
    bound(&mut core, other, 0, ONE);
    for _ in 0..many {
        bound(&mut core, Q0, 0, ONE);
    }
    let first = bound(&mut core, Q0, 1, ONE);
    for _ in 1..many {
        bound(&mut core, Q0, 1, ONE);
    }
    let mut served = vec![0u32; many as usize];
    let mut running = [None, None];
    let (mut now, mut cut, mut longest) = (0, 0, 0);
    let rounds = 30;
    while served.iter().sum::<u32>() < rounds * many {
        now += Q;
        for unit in 0..2 {
            if let Some(item) = running[unit as usize].take() {
                core.settle(item, Q, true, now);
            }
            running[unit as usize] = core.pick(unit, now);
            let looked = core.tree().looked;
            longest = longest.max(looked);
            cut += u32::from(unit == 1 && looked >= LOOKED);
        }
        if let Some(item) = running[1] {
            served[(item - first) as usize] += 1;
        }
    }
    let (least, most) = (served.iter().min(), served.iter().max());
    println!("{cut} searches ended early; turns of {rounds}: {least:?} to {most:?}");
    assert!(longest <= LOOKED + 2 && cut > rounds * many / 2, "{longest} places, {cut} early ends");
    assert!(served.iter().all(|s| *s >= rounds / 2 && *s <= 4 * rounds), "{least:?} to {most:?}");
    core.check().expect("a sound tree");
}
