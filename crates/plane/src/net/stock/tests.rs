// SPDX-License-Identifier: MIT OR Apache-2.0
//! What HTB would be told: that rates and quanta are the tree's shares.

use reserv_model::{Batch, Class, Kind, NodeId, Op, Policy, Weight};

use super::shape::{Limit, ROOT_MINOR, Shapes, minor, shapes};
use crate::PlaneError;
use crate::count::{Books, Seen};

const RATE: u64 = 1_250_000; // 10 Mbit/s
const LONGEST: u32 = 1514;

fn id(index: u32) -> NodeId {
    NodeId { index, generation: 1 }
}

/// Nodes by index, parent, queue or not, and weight.
fn tree(nodes: &[(u32, u32, bool, u32)]) -> Books {
    let mut books = Books::default();
    let ops = nodes.iter().flat_map(|&(index, parent, queue, weight)| {
        let kind =
            if queue { Kind::Queue(Class::default()) } else { Kind::Scheduler(Policy::default()) };
        let weight = Weight::from_milli(weight * 1000).expect("a weight");
        [
            Op::Create { id: id(index), parent: id(parent), kind },
            Op::Reweight { id: id(index), weight },
        ]
    });
    let batch = Batch { seq: 1, ops: ops.collect() };
    books.apply(&batch, &mut |_| Ok(Seen::default())).map(drop).expect("a batch");
    books
}

fn of(nodes: &[(u32, u32, bool, u32)]) -> Result<Shapes, PlaneError> {
    shapes(&tree(nodes), RATE, LONGEST, 131_072)
}

#[test]
fn rates_are_parts_of_their_parents() {
    let shapes =
        of(&[(2, 0, false, 200), (3, 2, true, 100), (4, 2, true, 300), (5, 0, true, 100)]).unwrap();
    let rate = |index| shapes[&minor(index)].rate;
    assert_eq!((rate(0), rate(1), rate(2), rate(5)), (RATE, RATE / 4, RATE / 2, RATE / 4));
    assert_eq!((rate(3), rate(4)), (RATE / 8, RATE * 3 / 8));
    assert_eq!((shapes[&3].parent, shapes[&2].parent, minor(0)), (2, ROOT_MINOR, ROOT_MINOR));
    assert!(shapes.values().all(|shape| shape.ceil == RATE), "what is left may be taken");
    let quantum = |index| u64::from(shapes[&minor(index)].quantum);
    assert_eq!((quantum(4), quantum(5)), (3 * quantum(3), 2 * quantum(3)));
    assert!(quantum(3) >= u64::from(LONGEST));
    assert_eq!((shapes[&3].limit, shapes[&2].limit), (Some(Limit::Bytes(131_072)), None));
}

#[test]
fn rounds_are_short_and_hold_large_packets_where_weights_let_them() {
    let shapes = shapes(&tree(&[(2, 0, true, 100)]), 125_000_000, LONGEST, 1 << 20).unwrap();
    assert_eq!(
        (shapes[&1].quantum, shapes[&2].quantum),
        (200_000, 200_000),
        "as much as the kernel likes"
    );
    let shapes = of(&[(2, 0, true, 100)]).unwrap();
    assert_eq!((shapes[&1].quantum, shapes[&2].quantum), (12_500, 12_500));
    let shapes = of(&[(2, 0, true, 1), (3, 0, true, 30)]).unwrap();
    assert_eq!((shapes[&2].quantum, shapes[&3].quantum), (1999, 59_976));
}

#[test]
fn background_comes_last_and_lives() {
    let shapes = of(&[(2, 0, false, 0), (3, 2, true, 100), (4, 0, true, 100)]).unwrap();
    assert_eq!((shapes[&3].priority, shapes[&3].rate), (7, 1));
    assert_eq!((shapes[&4].priority, shapes[&4].rate), (0, RATE / 2));
}

#[test]
fn what_htb_cannot_share_is_refused_in_words() {
    assert!(of(&[(2, 0, true, 13_000)]).is_ok(), "130 to 1");
    let error = of(&[(2, 0, true, 13_001)]).unwrap_err().to_string();
    assert!(error.contains("130 to 1") && error.contains("13001 and 100"), "{error}");
    let chain = |depth: u32| -> Vec<_> {
        (0..depth)
            .map(|i| (2 + i, if i == 0 { 0 } else { 1 + i }, i + 1 < depth, 100))
            .map(|(i, p, s, w)| (i, p, !s, w))
            .collect()
    };
    assert!(of(&chain(7)).is_ok());
    assert!(of(&chain(8)).unwrap_err().to_string().contains("8 levels"));
}
