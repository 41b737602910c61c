// SPDX-License-Identifier: MIT OR Apache-2.0
//! The window before a disk: its order and its bound from observation.

use crate::core::{Build, Window};
use crate::rng::Rng;

/// C-LOOK but for who waited too long; nobody waits for more than 3 size + slots others (of the
/// largest, where it is resized); as many as there is room for, from empty only where it is
/// drained.
pub fn promises(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0x3173);
    let mut size = r.range(1, 16);
    let mut slots = r.range(1, size.min(3));
    let (resized, mut most) = (r.chance(50), 3 * size + slots);
    let drain = r.chance(30);
    let small = |n: u64| u32::try_from(n).expect("small");
    let mut w = Window::new(build, small(size), small(slots), drain).ok_or("no window")?;
    // Item, sector, others that went out since, completions since.
    let mut waits: Vec<(u32, u64, u64, u64)> = Vec::new();
    let (mut out, mut arm, mut item, mut open) = (0, 0, 0, true);
    // Always something just above the arm; one far below it now and then.
    for step in 0..800 {
        if waits.is_empty() && out == 0 {
            open = true;
        }
        if resized && r.chance(2) {
            size = r.range(1, 16);
            slots = r.range(1, size.min(3));
            most = most.max(3 * size + slots);
            let wrong = [(0, 0), (size, 0), (size, size + 1), (257, 1)];
            if wrong.iter().any(|&(a, b)| w.resize(small(a), small(b)))
                || !w.resize(small(size), small(slots))
            {
                return Err(format!("step {step}: sizes"));
            }
        }
        let room = if drain && !open { 0 } else { size.saturating_sub(waits.len() as u64 + out) };
        if u64::from(w.room()) != room {
            return Err(format!("step {step}: room for {}, expected {room}", w.room()));
        }
        for _ in 0..room {
            let sector = if r.chance(15) { r.below(1000) } else { arm + r.below(50) };
            if !w.put(item, sector) {
                return Err(format!("step {step}: refused with room"));
            }
            waits.push((item, sector, 0, 0));
            item += 1;
        }
        if w.put(item, 0) {
            return Err(format!("step {step}: more than there is room for"));
        }
        if let Some(got) = w.next() {
            let at = waits.iter().position(|x| x.0 == got).ok_or("which request?")?;
            let (_, sector, others, passed) = waits.remove(at);
            let key = |s: u64| (s < arm, s);
            let first = waits.iter().all(|x| key(sector) <= key(x.1));
            if !first && passed < 2 * size {
                return Err(format!("step {step}: sector {sector} from {arm}, of {waits:?}"));
            }
            if others > most {
                return Err(format!("step {step}: {others} others went before sector {sector}"));
            }
            for x in &mut waits {
                x.2 += 1;
                if x.2 > most {
                    return Err(format!("step {step}: {} others went before sector {}", x.2, x.1));
                }
            }
            (arm, open) = (sector, false);
            out += 1;
        } else if out < slots && !waits.is_empty() {
            return Err(format!("step {step}: a slot is idle"));
        }
        if out >= slots || r.chance(50) && out > 0 {
            out -= 1;
            w.done();
            for x in &mut waits {
                x.3 += 1;
            }
        }
    }
    Ok(())
}

/// The example of window.c.
pub fn example(build: Build) -> Vec<u64> {
    let mut w = Window::new(build, 4, 1, false).expect("a window");
    let mut sectors = vec![30, 10, 40, 20];
    for (i, &s) in (0..).zip(&sectors) {
        w.put(i, s);
    }
    let mut out = Vec::new();
    for _ in 0..5 {
        let Some(i) = w.next() else { break };
        out.push(sectors[i as usize]);
        w.done();
        if sectors.len() == 4 {
            w.put(4, 5);
            sectors.push(5);
        }
    }
    out
}
