// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{abi, kernel_dev, load};

/// The table that the compiler of the programs wrote, against ours.
#[test]
fn both_sides_agree_on_every_size_and_offset() {
    crate::layout::agrees(load::OBJECT, abi::LAYOUT, "bpf/tag/abi.h");
    const { assert!(abi::NODES_MAX >= reserv_model::NODES_MAX) };
}

#[test]
fn device_numbers_as_the_kernel_packs_them() {
    assert_eq!(kernel_dev(libc::makedev(8, 17)), 0x80_0011);
    assert_eq!(kernel_dev(libc::makedev(0, 0x1234)), 0x1234);
}
