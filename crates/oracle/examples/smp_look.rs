// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scratch.
use reserv_oracle::core::*;
use reserv_oracle::smp::*;
use reserv_oracle::rng::Rng;
const QN: u64 = 4_000_000;
fn show(name: &str, m: &mut Machine, nodes: &[Id], quanta: u64) {
    m.run(50 * QN);
    let before: Vec<u64> = nodes.iter().map(|&n| m.service(n)).collect();
    m.run(quanta * QN);
    let ideal = m.ideal();
    print!("{name}: ");
    for (i, n) in nodes.iter().enumerate() {
        print!(" {:.4}/{:.4}", (m.service(*n) - before[i]) as f64 / (quanta * QN) as f64, ideal[n]);
    }
    println!(" wasted {} sections/switch {:.2}", m.wasted, m.cost.sections as f64 / m.cost.switches as f64);
    if let Err(e) = m.core.check() { println!("  CHECK {e}"); }
}
fn main() {
    // weight 10 with one thread beside 1, 1 on 4
    let mut m = Machine::new(Build::Real, 4, QN, 1);
    let a = m.queue(ROOT, 10_000); let b = m.queue(ROOT, 1000); let c = m.queue(ROOT, 1000);
    m.thread(a, Habit::Hog, None); for q in [b, c] { for _ in 0..4 { m.thread(q, Habit::Hog, None); } }
    show("10:1:1 one thread", &mut m, &[a, b, c], 1000);
    // late arrival
    let d = m.queue(ROOT, 1000); let t = m.thread(d, Habit::Hog, None);
    m.run(10 * QN);
    println!("late arrival: wait {} q, served {}", m.worst_wait(t) / QN, m.served(t) / QN);
    show("after arrival", &mut m, &[a, b, c, d], 1000);
    // 2 cpu: 1,10, then 1
    let mut m = Machine::new(Build::Real, 2, QN, 1);
    let a = m.queue(ROOT, 1000); let b = m.queue(ROOT, 10_000);
    let ta = m.thread(a, Habit::Hog, None); m.thread(b, Habit::Hog, None);
    m.run(1000 * QN);
    let c = m.queue(ROOT, 1000); let tc = m.thread(c, Habit::Hog, None);
    m.run(100 * QN);
    println!("starve case: a waits {:.1} q, c {:.1} q", m.worst_wait(ta) as f64 / QN as f64, m.worst_wait(tc) as f64 / QN as f64);
    show("1,10,1", &mut m, &[a, b, c], 1000);
    // affinity
    let mut m = Machine::new(Build::Real, 2, QN, 1);
    let qs: Vec<Id> = (0..4).map(|_| m.queue(ROOT, 24_000)).collect();
    let t0 = m.thread(Q0, Habit::Hog, Some(2)); let t1 = m.thread(Q0, Habit::Hog, Some(1));
    m.reweight(Q0, 4000);
    for &q in &qs { m.thread(q, Habit::Hog, Some(1)); }
    m.run(2000 * QN);
    println!("affinity w4: q0 on cpu1 {} on cpu0 {} worst wait {} q; others {:?}", m.served(t0) / QN, m.served(t1) / QN, m.worst_wait(t1) / QN, qs.iter().map(|&q| m.service(q) / QN).collect::<Vec<_>>());
    let mut m = Machine::new(Build::Real, 2, QN, 1);
    let q1 = m.queue(ROOT, 1000); m.reweight(Q0, 1000);
    let t0 = m.thread(Q0, Habit::Hog, Some(2)); let t1 = m.thread(Q0, Habit::Hog, Some(1));
    m.thread(q1, Habit::Hog, Some(1));
    m.run(2000 * QN);
    println!("affinity 1:1: q0 on cpu1 {} on cpu0 {} worst wait {} q; q1 {}", m.served(t0) / QN, m.served(t1) / QN, m.worst_wait(t1) / QN, m.service(q1)/QN);
    for kind in ["flat", "ample", "nested"] {
    for units in [2u32, 3, 4, 8, 16, 64] {
        let mut worst = 0f64; let mut wasted = 0; let mut at = String::new(); let mut sum = 0f64; let mut count = 0; let mut over = 0;
        let runs = if units > 8 { 8 } else { 40 };
        for seed in std::env::var("ONLY").map_or(0..runs, |s| { let s: u64 = s.parse().unwrap(); s..s + 1 }) {
            let mut r = Rng::new(seed);
            let mut m = Machine::new(Build::Real, units, QN, seed);
            let mut parents = vec![ROOT]; let mut leaves = vec![];
            if kind != "flat" { for _ in 0..r.range(1, 3) { let p = *r.pick(&parents); let w = *r.pick(&[1000, 2000, 5000, 10_000]); parents.push(m.sched(p, w)); } }
            for _ in 0..r.range(2, u64::from(units) + 4) { let p = *r.pick(&parents); let w = *r.pick(&[1000, 1000, 2000, 5000, 10_000, 50_000]); leaves.push(m.queue(p, w)); }
            for &q in &leaves { for _ in 0..(if kind == "ample" { u64::from(units) } else { r.range(1, 4) }) { m.thread(q, Habit::Hog, None); } }
            m.run(100 * QN);
            let before: Vec<u64> = leaves.iter().map(|&n| m.service(n)).collect();
            m.run(1000 * QN);
            let ideal = m.ideal();
            for (i, n) in leaves.iter().enumerate() {
                let got = (m.service(*n) - before[i]) as f64 / (1000 * QN) as f64;
                let e = ((got - ideal[n]).abs() - 0.003).max(0.0) / ideal[n];
                if std::env::var("ONLY").is_ok() { let v = m.core.node(*n); println!("  leaf {:x} in {:x} w {} threads {} got {got:.4} ideal {:.4} tag-v {} q/w nsvc {}", n, v.parent, v.weight, v.members, ideal[n], (v.tag.wrapping_sub(m.core.node(v.parent).v) as i64) as f64 * f64::from(v.weight) / (QN << 20) as f64, v.nsvc); }
                sum += e; count += 1; if e > 0.01 { over += 1; }
                if e > worst { worst = e; at = format!("seed {seed}: {got:.4} ideal {:.4}", ideal[n]); }
            }
            wasted += m.wasted;
        }
        println!("{kind} P={units}: worst relative error {:.4} ({at}), mean {:.4}, over 1%: {over} of {count}, wasted {wasted}", worst, sum / f64::from(count));
    }
    }
}
