// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can be tested without the kernel: that both sides mean the same structures.

use super::{abi, load};

/// The table that the compiler of the programs wrote, against ours.
#[test]
fn both_sides_agree_on_every_size_and_offset() {
    crate::layout::agrees(load::OBJECT, abi::LAYOUT, "bpf/net/abi.h");
}

#[test]
fn a_qdisc_has_a_name_of_its_own_that_fits() {
    let (a, b) = (load::kind(&load::folder(1)), load::kind(&load::folder(2)));
    assert!(a.len() <= 15 && a != b, "{a} {b}");
}
