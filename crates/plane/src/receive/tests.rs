// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{OBJECT, abi};

/// The table that the compiler of the programs wrote, against ours.
#[test]
fn both_sides_agree_on_every_size_and_offset() {
    crate::layout::agrees(OBJECT, abi::LAYOUT, "bpf/receive/abi.h");
}
