// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arbitrary bytes into everything that takes bytes. Nothing panics; what is accepted is accepted
//! again in the form in which it is read; what is refused leaves the tree as it was and says why in
//! one line.
//!
//! Bounded by itself, in step with `PROPTEST_CASES`;
//! `RESERV_FUZZ_SECONDS=600 cargo test --release -p reserv-namespace --test fuzz` runs for long.
//! The seed is printed first; `RESERV_FUZZ_SEED` replays it.

#[path = "../../model/tests/common/mod.rs"]
mod common;
#[path = "../../../fuzz/src/written.rs"]
mod written;

use reserv_model::*;
use reserv_namespace::*;

use written::{Became, said, says_why, written};

/// xorshift64*: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % n
    }

    fn step(&mut self) -> common::Step {
        let (a, b) = (self.next().to_le_bytes(), self.next().to_le_bytes());
        let short = |b: [u8; 2]| u16::from_le_bytes(b);
        (
            a[7],
            short([a[5], a[6]]),
            short([a[3], a[4]]),
            u32::from_le_bytes([b[4], b[5], b[6], b[7]]),
        )
    }
}

/// Texts that are right or nearly so; what is tried is grown from them.
const SEEDS: [&str; 83] = [
    "24 0",
    "0.24",
    "1000000 0",
    "=25% 0",
    "10 250ms/s",
    "none",
    "1.5cpu",
    "25% burst 20ms",
    "0.001ms/s",
    "8192cpu burst 10s",
    "sfq",
    "ts",
    "rr",
    "fifo",
    "0",
    "1",
    "limit 16 0",
    "16",
    "16 5ms",
    "1234",
    "tid 7 pid 6",
    "self",
    "tid self",
    "allow uid 1000 use,create quota 8",
    "allow pid 7 start 9 all by 0",
    "deny gid 5 all tags fall",
    "deny everyone use",
    "remove everyone use",
    "q0 24 0",
    "q0 5\nq1 0",
    "=0.5%",
    "=99.9999% 0",
    "eevdf",
    "mtrls",
    "wf2q+",
    "prio",
    "edf",
    "drr",
    "yfq",
    "cello",
    "real-time",
    "round 500ms",
    "scan-edf",
    "batch 16 cost time",
    "anticipate 0ms deadline 20ms",
    "quantum 4ms",
    "quantum default lag default",
    "lag 20ms request 1ms",
    "turn 100ms",
    "decay 1s",
    "priority 50",
    "priority 0",
    "request 10ms",
    "epsilon 0.001",
    "tid 7 default",
    "tid 7 weight 2",
    "tid self priority 50",
    "tid 7 pid 6 period 33ms budget 10ms",
    "tid 7 period 33ms budget 10ms deadline 20ms",
    "weight 0.5 priority 1",
    "default",
    "drain",
    "draining",
    "active",
    "queue site1 50",
    "scheduler web",
    "queue q0 0 0",
    "/reserv/cpu/q0",
    "cpu/web/site1",
    "/reserv/cpu/q0 /reserv/cpu/q1",
    "q0",
    "web",
    "newqueue",
    "..",
    "\n",
    "\0",
    "\u{7f}",
    "ä",
    "443",
    "8000-8999",
    "10.0.0.0/8",
    "2001:db8::/32",
    "udplite",
];

/// A resource by its name, and what is there by a path.
fn bytes(random: &mut Random) -> Vec<u8> {
    let mut out = SEEDS[random.below(SEEDS.len())].as_bytes().to_vec();
    for _ in 0..random.below(6) {
        let at = random.below(out.len() + 1);
        let other = SEEDS[random.below(SEEDS.len())].as_bytes();
        match random.below(8) {
            0 => out.insert(at, random.next().to_le_bytes()[7]),
            1 => out.insert(at, b"0123456789.%= \t\n/"[random.below(17)]),
            2 if at < out.len() => drop(out.remove(at)),
            3 if at < out.len() => out[at] ^= 1 << random.below(8),
            4 => out.truncate(at),
            5 => drop(out.splice(at..at, other.iter().copied())),
            6 => out.extend([b" ", other].concat()),
            _ if random.below(50) == 0 => out = out.repeat(1 + random.below(2000)),
            _ => {}
        }
    }
    out
}

#[derive(Debug, Default)]
struct Counts {
    accepted: u64,
    refused: u64,
    planned: u64,
}

/// Writes `text` into one file of one node, and counts what became of it.
fn write(tree: &mut Tree, row: &Entry, id: NodeId, text: &[u8], counts: &mut Counts) {
    let became = written(tree, row, id, text);
    counts.refused += u64::from(became == Became::Refused);
    counts.accepted += u64::from(became != Became::Refused);
    counts.planned += u64::from(became == Became::Planned);
}

/// What `members` would read for a thread with these parameters is accepted, and means the same.
fn members(random: &mut Random, text: &[u8]) {
    let Ok(Command::Tag { params: Some(params), .. }) =
        parse_write(FileKind::Members, NodeId::Q0, text)
    else {
        return;
    };
    let tree = Tree::new(Name::new("cpu").unwrap());
    let survey = Survey::default();
    let tid = u32::try_from(1 + random.below(1000)).unwrap();
    let members = [Member { pid: 1, tid, params }];
    let view = View {
        tree: &tree,
        node: NodeId::Q0,
        survey: &survey,
        members: &members,
        dropped: &[],
        kind: ResourceKind::Cpu,
        capacity: 0,
    };
    let read = render_read(FileKind::Members, &view).unwrap();
    let again = parse_write(FileKind::Members, NodeId::Q0, read.as_bytes()).unwrap();
    let wanted = (!params.is_default()).then_some(params);
    assert_eq!(
        again,
        Command::Tag { queue: NodeId::Q0, who: Who::Thread { tid, pid: Some(1) }, params: wanted }
    );
}

fn round(random: &mut Random, tree: &mut Tree, counts: &mut Counts) {
    let text = bytes(random);
    let nodes: Vec<_> = tree.iter().map(|n| n.id).collect();
    let id = nodes[random.below(nodes.len())];
    let place = Place::of_node(tree.get(id).unwrap());
    let rows: Vec<_> = place.files().collect();
    let row = rows[random.below(rows.len())];
    write(tree, row, id, &text, counts);
    members(random, &text);

    said(tree, &text);
    let trees = |r| (r == Resource::CPU).then_some(&*tree);
    let ino = Ino(random.next() >> random.below(64));
    if let Some(object) = ino.object() {
        assert_eq!(Ino::from(object), ino);
        let _ = (attributes(object, trees), list(object, trees));
    }
    let dir = Ino::of_node(Resource::CPU, id, FileKind::SchedulerDir).object().unwrap();
    match lookup(dir, &text, trees) {
        Ok(found) => assert!(attributes(found, trees).is_ok() || Place::of(dir) != Some(place)),
        Err(e) => says_why(&e),
    }
}

#[test]
#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "settings, seed and count of a test"
)]
fn arbitrary_bytes() {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let seed = number("RESERV_FUZZ_SEED").unwrap_or_else(common::seed) | 1;
    println!("replay with RESERV_FUZZ_SEED={seed}");
    #[expect(clippy::disallowed_types, reason = "how long a test runs is no part of the crate")]
    let end = number("RESERV_FUZZ_SECONDS")
        .map(|s| std::time::Instant::now() + std::time::Duration::from_secs(s));
    let least = 200 * number("PROPTEST_CASES").unwrap_or(256) / 256 + 1;
    let (mut random, mut counts, mut rounds) = (Random(seed), Counts::default(), 0);
    #[expect(clippy::disallowed_types, reason = "as above")]
    while rounds < least || end.is_some_and(|end| std::time::Instant::now() < end) {
        let steps: Vec<_> = (0..random.below(40)).map(|_| random.step()).collect();
        let mut tree = common::grown(&steps);
        for _ in 0..160 {
            round(&mut random, &mut tree, &mut counts);
        }
        rounds += 1;
    }
    println!("{rounds} trees, {counts:?}");
    // The seeds are near enough to the grammar that both ways are walked.
    assert!(
        counts.accepted > rounds && counts.refused > rounds && counts.planned > rounds,
        "{counts:?}"
    );
}
