// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classes scan and scan-edf: a naive model in lockstep, their promises, their examples.

use crate::core::{Build, Core, Id, ONE, Op, QUEUE, ROOT, SCAN, SCAN_EDF, Setup, id};
use crate::rng::Rng;

const NODE: Id = id(2, 1);
const MS: u64 = 1_000_000;

fn core_of(build: Build, class: u32, units: u32) -> Core {
    let mut core = Core::new(Setup { build, units, items: 256, ..Setup::default() });
    if units > 1 {
        core.device();
    }
    core.must(0, Op::Create { node: NODE, parent: ROOT, kind: QUEUE, alg: class });
    core.must(0, Op::Reweight { node: NODE, weight: ONE });
    core
}

#[derive(Clone, Debug)]
struct Request {
    item: u32,
    sector: u64,
    due: u64,
    /// scan: belongs to the next sweep.
    next: bool,
}

/// Requests of a queue as the arm finds them: it goes up, takes what is above it, and turns back
/// when nothing is left there.
#[derive(Debug, Default)]
struct Model {
    waits: Vec<Request>,
    /// Nothing below this is taken in this sweep.
    arm: u64,
}

impl Model {
    fn add(&mut self, item: u32, sector: u64, due: u64) {
        let next = sector < self.arm;
        self.waits.push(Request { item, sector, due, next });
    }

    /// Those that may come next.
    fn best(&self, class: u32) -> Vec<u32> {
        let dated = class == SCAN_EDF && self.waits.iter().any(|r| r.due > 0);
        let key = |r: &Request| {
            if dated { (r.due / (10 * MS), 0, r.sector) } else { (0, u64::from(r.next), r.sector) }
        };
        let of: Vec<&Request> = self.waits.iter().filter(|r| !dated || r.due > 0).collect();
        let Some(least) = of.iter().map(|r| key(r)).min() else { return Vec::new() };
        of.iter().filter(|r| key(r) == least).map(|r| r.item).collect()
    }

    fn take(&mut self, item: u32) {
        let at = self.waits.iter().position(|r| r.item == item).expect("waits");
        let r = self.waits.remove(at);
        if r.due > 0 {
            return;
        }
        if r.next {
            for w in self.waits.iter_mut().filter(|w| w.due == 0) {
                w.next = false;
            }
        }
        self.arm = r.sector + 1;
    }
}

/// Random requests: who is served is one of those that the model would serve.
pub fn lockstep(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0x5ca);
    let class = if seed.is_multiple_of(2) { SCAN } else { SCAN_EDF };
    let units = *r.pick(&[1, 4]);
    let mut core = core_of(build, class, units);
    let mut model = Model::default();
    let mut serving = vec![None; units as usize];
    let most = *r.pick(&[20, 1 << 40]);
    let mut now = 0;
    for step in 0..500 {
        now += r.below(8 * MS);
        if r.chance(50) && model.waits.len() < 100 {
            let item = core.item_new(NODE, ONE, 0).ok_or("no item")?;
            let due = if class == SCAN_EDF && r.chance(70) { now + r.below(100 * MS) } else { 0 };
            let sector = r.below(most);
            core.item_request(item, 8, sector, due);
            core.wake(item, now);
            model.add(item, sector, due);
        } else if r.chance(5) && !model.waits.is_empty() {
            let at = r.index(model.waits.len());
            core.remove(model.waits.remove(at).item);
        } else {
            let unit = r.below(units.into());
            let slot = usize::try_from(unit).expect("small");
            if let Some(item) = serving[slot].take() {
                core.settle(item, 8, false, now);
                core.item_leave(item);
            } else {
                let want = model.best(class);
                serving[slot] = core.pick(u32::try_from(unit).expect("small"), now);
                match serving[slot] {
                    Some(item) if want.contains(&item) => model.take(item),
                    None if want.is_empty() => {}
                    got => {
                        return Err(format!(
                            "step {step}: {got:?} is served, of {want:?}: {model:?}"
                        ));
                    }
                }
            }
        }
        core.check().map_err(|e| format!("step {step}: {e}"))?;
    }
    Ok(())
}

/// While it waits, a request of class scan sees the arm turn back once at most. One of class
/// scan-edf sees none served that is due 10 ms later.
pub fn promises(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0x5cb);
    let class = if seed.is_multiple_of(2) { SCAN } else { SCAN_EDF };
    let mut core = core_of(build, class, 1);
    // Item, sector, due, how often the arm has turned back since.
    let mut waits: Vec<(u32, u64, u64, u32)> = Vec::new();
    let mut last = 0;
    for step in 0..1000u64 {
        while waits.len() < 8 || r.chance(40) && waits.len() < 60 {
            let item = core.item_new(NODE, ONE, 0).ok_or("no item")?;
            let (sector, due) =
                (r.below(1000), if class == SCAN { 0 } else { step * MS + r.range(1, 200 * MS) });
            core.item_request(item, 8, sector, due);
            core.wake(item, step);
            waits.push((item, sector, due, 0));
        }
        let item = core.pick(0, step).ok_or("idle")?;
        let at = waits.iter().position(|w| w.0 == item).ok_or("which item?")?;
        let (_, sector, due, _) = waits.remove(at);
        for w in &mut waits {
            w.3 += u32::from(sector < last);
            if class == SCAN && w.3 > 1 {
                return Err(format!(
                    "step {step}: the arm has turned back twice past sector {}",
                    w.1
                ));
            }
            if class == SCAN_EDF && due >= w.2 + 10 * MS {
                return Err(format!("step {step}: {due} is served, {} waits", w.2));
            }
        }
        last = sector;
        core.settle(item, 8, false, step);
        core.item_leave(item);
    }
    Ok(())
}

/// The examples of class_scan.c and class_scan_edf.c: sectors in the order of service.
pub fn examples(build: Build) -> (Vec<u64>, Vec<u64>) {
    let add = |core: &mut Core, sector, due| {
        let item = core.item_new(NODE, ONE, 0).expect("room");
        core.item_request(item, 8, sector, due * MS);
        core.wake(item, 0);
        (item, sector)
    };
    let serve = |core: &mut Core, all: &[(u32, u64)]| {
        let item = core.pick(0, 0).expect("work");
        core.settle(item, 8, false, 0);
        all.iter().find(|x| x.0 == item).expect("known").1
    };
    let mut core = core_of(build, SCAN, 1);
    let mut all = vec![add(&mut core, 39, 0)];
    serve(&mut core, &all);
    all.extend([50, 10, 90].map(|s| add(&mut core, s, 0)));
    let mut scan = vec![serve(&mut core, &all)];
    all.extend([45, 60].map(|s| add(&mut core, s, 0)));
    scan.extend((0..4).map(|_| serve(&mut core, &all)));
    let mut core = core_of(build, SCAN_EDF, 1);
    let all = [(25, 10), (12, 90), (18, 40), (0, 5)].map(|(due, s)| add(&mut core, s, due));
    (scan, (0..4).map(|_| serve(&mut core, &all)).collect())
}
