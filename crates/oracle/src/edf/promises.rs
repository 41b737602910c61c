// SPDX-License-Identifier: MIT OR Apache-2.0
//! What class edf promises, from observation only.

use super::{
    Build, Core, E, EDF, FIFO, MS, Next, ONE, One, Op, Params, Q0, QUEUE, ROOT, Rng, SLICE_MIN,
    STEP, Setup, TS, id, real,
};

const EEVDF: u32 = 1;
const RUN: u64 = 3_000 * MS;

/// A periodic job stream: each period a piece of work, at most the budget for those that keep their
/// word.
#[derive(Clone, Copy, Debug)]
struct Stream {
    p: Params,
    first: u64,
    greedy: bool,
}

/// Random streams whose densities come to at most `ppm` parts per million of a unit, with periods
/// of up to `longest` ms.
fn streams(r: &mut Rng, ppm: u64, longest: u64) -> Vec<Stream> {
    let mut left = ppm;
    let mut out = Vec::new();
    for _ in 0..r.range(2, 5) {
        let part = r.range(left / 8, left / 2);
        let period = r.range(5, longest) * MS;
        let deadline =
            if r.chance(30) { r.range(period / MS / 2 + 1, period / MS) * MS } else { 0 };
        let span = if deadline == 0 { period } else { deadline };
        let budget = (span / 1000 * part / 1000).max(SLICE_MIN);
        let rate = (budget * 1_000_000).div_ceil(span);
        if rate > left {
            break;
        }
        left -= rate;
        let p = Params { period, budget, deadline, ..Params::default() };
        out.push(Stream { p, first: r.below(20) * MS, greedy: r.chance(25) });
    }
    out
}

/// Work that falls due within `t` of a moment, at most: a job of each stream begins there.
fn demand(streams: &[Stream], t: u64) -> u64 {
    let due = |p: &Params| if p.deadline == 0 { p.period } else { p.deadline };
    let jobs = |p: &Params| if t < due(p) { 0 } else { (t - due(p)) / p.period + 1 };
    streams.iter().map(|s| jobs(&s.p) * s.p.budget).sum()
}

/// How late a job is at most where the queue receives at least `share * t - behind` in any time t
/// (EDF is optimal: it is late only where more falls due than is supplied). 0: no deadline is
/// missed.
fn late(streams: &[Stream], share: f64, behind: f64) -> f64 {
    let due = streams.iter().flat_map(|s| {
        let first = if s.p.deadline == 0 { s.p.period } else { s.p.deadline };
        (0..RUN / s.p.period).map(move |k| first + k * s.p.period)
    });
    due.map(|t| (real(demand(streams, t)) + behind) / share - real(t)).fold(0.0, f64::max)
}

/// Beside the queue: nothing, or queues of hogs.
enum Beside {
    Nobody,
    /// One, of this weight.
    Sfq(u32),
    Eevdf,
}

/// Streams and hogs in one queue; nobody that keeps his word is later than the supply lets him be.
fn on_time(build: Build, seed: u64, beside: &Beside) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0xedf1);
    let tick = *r.pick(&[0, MS, 4 * MS]);
    let mut one = One::new(build, STEP, tick);
    let weights: Vec<u32> = match beside {
        Beside::Nobody => Vec::new(),
        Beside::Sfq(weight) => vec![*weight],
        Beside::Eevdf => {
            one.core.must(0, Op::Policy { node: ROOT, policy: EEVDF });
            (0..r.range(1, 10))
                .map(|_| ONE / 50 * u32::try_from(r.range(1, 10)).expect("small"))
                .collect()
        }
    };
    let share =
        f64::from(ONE) / (f64::from(ONE) + weights.iter().copied().map(f64::from).sum::<f64>());
    one.queue(E, ROOT, EDF, ONE);
    one.core.must(0, Op::Reweight { node: Q0, weight: 1 });
    let (part, longest) = match beside {
        Beside::Eevdf => (r.range(300_000, 990_000), *r.pick(&[60, 400])),
        _ => (990_000, 60),
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 10^6")]
    let mut streams = streams(&mut r, (share * real(part)) as u64, longest);
    // With ticks a budget that ends between two is overrun by one: who asks for less than that
    // would starve the rest.
    streams.retain(|s| tick == 0 || s.p.budget > tick);
    for s in &streams {
        let k = one.thread(E, s.first);
        let item = one.threads[k].item;
        one.core.item_params(item, s.p, 0).map_err(|e| format!("{:?}: {e}", s.p))?;
    }
    // Hogs without parameters in the same queue, and hogs beside it.
    let hogs = usize::try_from(r.range(1, 3)).expect("small");
    for _ in 0..hogs {
        one.thread(E, r.below(MS));
    }
    for (k, weight) in weights.iter().enumerate() {
        let node = id(3 + u32::try_from(k).expect("few"), 1);
        one.queue(node, ROOT, FIFO, *weight);
        one.thread(node, 0);
    }
    // What a step ends late at most: everything that is in service, once; a greedy one has its
    // overrun carried.
    let step = real(STEP.max(SLICE_MIN) + tick);
    let others = streams.iter().filter(|s| s.greedy).count();
    let mut late_by =
        if tick == 0 { real(SLICE_MIN) } else { real(tick) } * real(1 + others as u64);
    late_by += match beside {
        Beside::Nobody => 0.0,
        // SFQ-5 of the queue: l_other + l_own, and one own step at its rate.
        Beside::Sfq(_) => step * 2.0 + step / share,
        // EV-4: two requests behind at most, of whatever number of siblings.
        Beside::Eevdf => late(&streams, share, 2.0 * step),
    };
    let mut jobs: Vec<(u64, bool)> = streams.iter().map(|s| (s.first, false)).collect();
    let mut rng = Rng::new(seed ^ 0xedf2);
    let mut worst: Vec<Option<String>> = Vec::new();
    let what = |k: usize, now: u64| {
        let Some(s) = streams.get(k) else { return Next::Run(1 << 60) };
        let (begin, busy) = jobs[k];
        if !busy {
            jobs[k] = (begin, true);
            let work = if s.greedy {
                s.p.budget * rng.range(1, 5)
            } else {
                rng.range(s.p.budget / 2, s.p.budget)
            };
            return Next::Run(work);
        }
        // A job ended.
        let due = begin + if s.p.deadline == 0 { s.p.period } else { s.p.deadline };
        if !s.greedy && real(now) > real(due) + late_by {
            worst.push(Some(format!(
                "stream {k} {:?}: a job ends at {now}, due at {due}, at most {late_by:.0} late",
                s.p
            )));
        }
        let next = if s.greedy { now.max(begin + s.p.period) } else { begin + s.p.period };
        jobs[k] = (next, false);
        if next > now {
            return Next::SleepUntil(next);
        }
        jobs[k] = (next, true);
        Next::Run(rng.range(s.p.budget / 2, s.p.budget))
    };
    one.run(RUN, what, |_| Ok(()))?;
    one.core.check()?;
    if let Some(Some(e)) = worst.first() {
        return Err(format!("tick {tick} {e}; {streams:?}"));
    }
    // What is left over goes to those without parameters: they share the queue's rest.
    let rest: u64 = (streams.len()..streams.len() + hogs).map(|k| one.service(k)).sum();
    let asked: f64 = streams.iter().map(|s| real(s.p.budget) / real(s.p.period)).sum();
    if streams.iter().all(|s| !s.greedy)
        && real(rest) < (share * 0.98 - asked - 0.02) * real(one.now)
    {
        return Err(format!("threads without parameters had {rest} of {}", one.now));
    }
    Ok(())
}

/// On a unit of its own.
pub fn alone(build: Build, seed: u64) -> Result<(), String> {
    on_time(build, seed, &Beside::Nobody)
}

/// Below a share of a half or a third.
pub fn below_sfq(build: Build, seed: u64) -> Result<(), String> {
    on_time(build, seed, &Beside::Sfq([1000, 2000][usize::from(seed % 2 == 1)]))
}

/// Below a share of policy eevdf, beside up to ten busy siblings.
pub fn below_eevdf(build: Build, seed: u64) -> Result<(), String> {
    on_time(build, seed, &Beside::Eevdf)
}

/// Hogs, some with a budget, in one queue: each has its budget, and turns of what is left.
pub fn budgets(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0xedf5);
    let mut one = One::new(build, STEP, 0);
    one.queue(E, ROOT, EDF, ONE);
    one.core.must(0, Op::Reweight { node: Q0, weight: 1 });
    let mut asked = Vec::new();
    for _ in 0..r.range(2, 5) {
        let period = r.range(20, 100) * MS;
        let part = if r.chance(50) { r.range(5, 19) } else { 0 };
        let k = one.thread(E, r.below(MS));
        let p = Params { period, budget: period * part / 100, ..Params::default() };
        let p = if part == 0 { Params::default() } else { p };
        one.core.item_params(one.threads[k].item, p, 0).map_err(|e| format!("{p:?}: {e}"))?;
        asked.push(real(part) / 100.0);
    }
    one.run(4_000 * MS, |_, _| Next::Run(1 << 60), |_| Ok(()))?;
    let rest = (1.0 - asked.iter().sum::<f64>()) / real(asked.len() as u64);
    for (k, a) in asked.iter().enumerate() {
        let (got, want) = (real(one.service(k)) / real(one.now), a + rest);
        // A budget that comes while its thread waits for a turn costs it that turn; the others
        // gain.
        let (least, most) = if *a > 0.0 { (0.0, 1.1) } else { (0.98, 1.6) };
        if got < a + least * rest - 0.005 || got > a + most * rest + 0.005 {
            return Err(format!("hog {k} had {got:.3}, wanted {want:.3} of {asked:?}"));
        }
    }
    Ok(())
}

/// Who asks for more than budget and wants all of it gets his budget in each period, and beyond
/// that a turn like those without parameters; changing queue, class or parameters gives no budget
/// back.
pub fn no_way_round(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0xedf3);
    let mut one = One::new(build, STEP, 0);
    one.queue(E, ROOT, EDF, ONE);
    one.queue(id(3, 1), ROOT, EDF, ONE);
    one.core.must(0, Op::Reweight { node: Q0, weight: 1 });
    let p = Params { period: 20 * MS, budget: 4 * MS, ..Params::default() };
    let greedy = one.thread(E, 0);
    let item = one.threads[greedy].item;
    one.core.item_params(item, p, 0).map_err(|e| format!("{e}"))?;
    for _ in 0..4 {
        one.thread(E, 0);
    }
    let mut events = 0;
    one.run(
        2_000 * MS,
        |_, _| Next::Run(1 << 60),
        |m| {
            events += 1;
            if m.serving.is_some_and(|s| s.0 == greedy) {
                return Ok(());
            }
            match events % 4 {
                0 => {
                    m.core.item_move(item, id(3, 1), 0, m.now);
                    m.core.item_move(item, E, 0, m.now);
                }
                1 => {
                    let _ = m.core.item_params(
                        item,
                        Params { period: 10_000 * MS, budget: 5 * MS, ..p },
                        m.now,
                    );
                    m.core.item_params(item, p, m.now).map_err(|e| format!("{e}"))?;
                }
                2 => {
                    m.core.must(m.now, Op::Class { node: E, class: TS });
                    m.core.must(m.now, Op::Class { node: E, class: EDF });
                }
                _ => {
                    let _ = m.core.item_params(item, Params::default(), m.now);
                    m.core.item_params(item, p, m.now).map_err(|e| format!("{e}"))?;
                }
            }
            Ok(())
        },
    )?;
    // A fifth is its budget; of the rest it has a fifth, among five. Each class change makes it the
    // last.
    let (got, most) = (real(one.service(greedy)), real(one.now) * (0.2 + 0.8 / 5.0));
    let _ = r.bits();
    if got > most * 1.02 + real(STEP) || got < real(one.now) * 0.19 {
        return Err(format!("it had {got:.0} of {}, at most {most:.0}", one.now));
    }
    Ok(())
}

/// Several busy units: the one that serves the latest deadline is given up, among those that the
/// thread may use.
pub fn victims(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0xedf4);
    let units = u32::try_from(r.range(2, 8)).expect("small");
    // Their numbers are anything below 256.
    let (apart, first) = (r.range(1, 31), r.range(0, 31));
    let number = |unit: u32| {
        u32::try_from(first).expect("small") + unit * u32::try_from(apart).expect("small")
    };
    let mut core = Core::new(Setup { build, units, ..Setup::default() });
    core.must(0, Op::Create { node: E, parent: ROOT, kind: QUEUE, alg: EDF });
    core.must(0, Op::Reweight { node: E, weight: ONE });
    core.must(0, Op::Reweight { node: Q0, weight: 1 });
    let mut due = Vec::new();
    for unit in 0..units {
        let item = core.item_new(E, ONE, 0).ok_or("no item")?;
        let period = r.range(10, 90) * MS;
        let p = Params { period, budget: MS, ..Params::default() };
        if r.chance(80) {
            core.item_params(item, p, 0).map_err(|e| format!("{e}"))?;
            due.push(period);
        } else {
            due.push(u64::MAX);
        }
        core.wake(item, 0);
        if core.pick(number(unit), 0) != Some(item) {
            return Err(format!("unit {} does not serve the only one that waits", number(unit)));
        }
    }
    let item = core.item_new(E, ONE, 0).ok_or("no item")?;
    let period = r.range(10, 90) * MS;
    core.item_params(item, Params { period, budget: MS, ..Params::default() }, 0)
        .map_err(|e| format!("{e}"))?;
    let mask = r.range(1, (1 << units) - 1);
    let mut words = [0; 4];
    for unit in (0..units).filter(|u| mask >> u & 1 == 1) {
        words[number(unit) as usize / 64] |= 1 << (number(unit) % 64);
    }
    core.item_units(item, Some(words));
    core.wake(item, 0);
    let may = (0..units).filter(|u| mask >> u & 1 == 1 && due[*u as usize] > period);
    let want = may.map(|u| due[u as usize]).max();
    let got = core.victim(item).map(|u| {
        let unit = (0..units).find(|unit| number(*unit) == u).expect("one of them");
        (mask >> unit & 1, due[unit as usize])
    });
    if got != want.map(|d| (1, d)) {
        return Err(format!("gives up {got:?}, wanted {want:?} of {due:?} in {mask:x}"));
    }
    Ok(())
}
