// SPDX-License-Identifier: MIT OR Apache-2.0
//! Class drr: lockstep with the list of the paper (Shreedhar and Varghese, SIGCOMM'95) where a
//! quantum holds any packet, and its fairness from observation at any quantum.

use std::collections::VecDeque;

use crate::core::{Build, Core, DRR, Id, ONE, Op, QUEUE, ROOT, Setup, id};
use crate::rng::Rng;

const NODE: Id = id(2, 1);

struct Flow {
    item: u32,
    weight: u64,
    longest: u64,
    queue: VecDeque<u64>,
    served: u64,
    /// The model's.
    deficit: u64,
    visited: bool,
}

struct Bed {
    core: Core,
    flows: Vec<Flow>,
    quantum: u64,
    list: VecDeque<usize>,
    now: u64,
    serving: Option<usize>,
}

impl Bed {
    fn new(build: Build, r: &mut Rng, quantum: u64, longest: u64) -> Self {
        let mut core = Core::new(Setup { build, quantum, ..Setup::default() });
        core.must(0, Op::Create { node: NODE, parent: ROOT, kind: QUEUE, alg: DRR });
        core.must(0, Op::Reweight { node: NODE, weight: ONE });
        let mut flows = Vec::new();
        for _ in 0..r.range(2, 8) {
            let weight = r.range(1, 4);
            let item =
                core.item_new(NODE, u32::try_from(weight).expect("small") * ONE, 0).expect("room");
            let (longest, queue) = (r.range(1, longest), VecDeque::new());
            flows.push(Flow {
                item,
                weight,
                longest,
                queue,
                served: 0,
                deficit: 0,
                visited: false,
            });
        }
        Self { core, flows, quantum, list: VecDeque::new(), now: 0, serving: None }
    }

    fn told(length: u64) -> u32 {
        u32::try_from(length).expect("a packet")
    }

    fn arrive(&mut self, k: usize, length: u64) {
        let f = &mut self.flows[k];
        f.queue.push_back(length);
        if f.queue.len() == 1 {
            (f.deficit, f.visited) = (0, false);
            self.list.push_back(k);
            self.core.item_length(f.item, Self::told(length));
            self.core.wake(f.item, self.now);
        }
    }

    /// The next packet goes into service.
    fn pick(&mut self) -> Result<(), String> {
        let got = self.core.pick(0, self.now);
        self.serving = match got {
            Some(item) => {
                Some(self.flows.iter().position(|f| f.item == item).ok_or("which flow?")?)
            }
            None if self.flows.iter().any(|f| !f.queue.is_empty()) => {
                return Err("nothing is served".into());
            }
            None => None,
        };
        Ok(())
    }

    /// Who is to be served, by the list.
    fn expected(&mut self) -> Option<usize> {
        loop {
            let &k = self.list.front()?;
            let f = &mut self.flows[k];
            if !f.visited {
                f.deficit += self.quantum * f.weight;
                f.visited = true;
            }
            if f.queue[0] <= f.deficit {
                return Some(k);
            }
            f.visited = false;
            self.list.rotate_left(1);
        }
    }

    fn settle(&mut self) -> u64 {
        let Some(k) = self.serving.take() else { return 0 };
        let f = &mut self.flows[k];
        let length = f.queue.pop_front().expect("served");
        f.served += length;
        f.deficit = f.deficit.saturating_sub(length);
        let next = f.queue.front().copied();
        if let Some(next) = next {
            self.core.item_length(f.item, Self::told(next));
        }
        if next.is_none_or(|n| n > f.deficit) {
            f.visited = false;
            self.list.retain(|&x| x != k);
            if next.is_some() {
                self.list.push_back(k);
            }
        }
        self.now += length;
        self.core.settle(self.flows[k].item, length, next.is_some(), self.now);
        length
    }
}

/// The order of the paper's list, where a turn always sends something.
pub fn lockstep(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0xd77);
    let most = *r.pick(&[10, 1500]);
    let mut bed = Bed::new(build, &mut r, most + seed % 3, most);
    for step in 0..600 {
        if r.chance(55) {
            let k = r.index(bed.flows.len());
            let length = r.range(1, bed.flows[k].longest);
            bed.arrive(k, length);
        } else if bed.serving.is_some() {
            bed.settle();
        } else {
            let want = bed.expected();
            bed.pick()?;
            if bed.serving != want {
                return Err(format!(
                    "step {step}: flow {:?} is served, expected {want:?}",
                    bed.serving
                ));
            }
        }
        bed.core.check().map_err(|e| format!("step {step}: {e}"))?;
    }
    Ok(())
}

/// `|W_i / w_i - W_j / w_j| <= quantum + l_i / w_i + l_j / w_j` over any interval while others come
/// and go, where a turn holds any packet; a quantum more where not.
pub fn fair(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0xd78);
    let most = *r.pick(&[100, 9000]);
    let quantum = r.range(most / 20, 2 * most);
    let mut bed = Bed::new(build, &mut r, quantum, most);
    let turns = if bed.flows.iter().any(|f| quantum * f.weight < f.longest) { 2 } else { 1 };
    // The first two always send.
    let (mut low, mut high) = (f64::MAX, f64::MIN);
    #[expect(clippy::cast_precision_loss, reason = "a short trace")]
    let per = |work: u64, f: &Flow| work as f64 / f.weight as f64;
    for step in 0..1500 {
        for k in 0..bed.flows.len() {
            if (k < 2 && bed.flows[k].queue.len() < 3) || (k >= 2 && r.chance(10)) {
                let length = r.range(bed.flows[k].longest.div_ceil(3), bed.flows[k].longest);
                bed.arrive(k, length);
            }
        }
        bed.settle();
        let (a, b) = (&bed.flows[0], &bed.flows[1]);
        let apart = per(a.served, a) - per(b.served, b);
        (low, high) = (low.min(apart), high.max(apart));
        let bound = per(turns * quantum * a.weight, a) + per(a.longest, a) + per(b.longest, b);
        if high - low > bound + 1e-6 {
            return Err(format!("step {step}: {:.1} apart, at most {bound:.1}", high - low));
        }
        bed.pick()?;
    }
    bed.core.check()
}

/// The example of class_drr.c.
pub fn example(build: Build) -> String {
    let mut core = Core::new(Setup { build, quantum: 10, ..Setup::default() });
    core.must(0, Op::Create { node: NODE, parent: ROOT, kind: QUEUE, alg: DRR });
    core.must(0, Op::Reweight { node: NODE, weight: ONE });
    let flows = [6, 10].map(|length| {
        let item = core.item_new(NODE, ONE, 0).expect("room");
        core.item_length(item, length);
        core.wake(item, 0);
        (item, length)
    });
    let mut out = String::new();
    for _ in 0..13 {
        let item = core.pick(0, 0).expect("work");
        let length = if item == flows[0].0 { 6 } else { 10 };
        out.push(if item == flows[0].0 { 'A' } else { 'B' });
        core.settle(item, length, true, 0);
    }
    out
}
