// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can be tested without the kernel: that both sides mean the same structures.

use std::collections::BTreeSet;

use super::{abi, load};

/// The table that the compiler of the programs wrote, against ours.
#[test]
fn both_sides_agree_on_every_size_and_offset() {
    crate::layout::agrees(load::OBJECT, abi::LAYOUT, "bpf/net/abi.h");
}

#[test]
fn a_qdisc_has_a_name_of_its_own_that_fits() {
    let kinds: BTreeSet<String> =
        (1..16).flat_map(load::folders).map(|folder| load::kind(&folder)).collect();
    assert!(kinds.len() == 30 && kinds.iter().all(|kind| kind.len() <= 15), "{kinds:?}");
}
