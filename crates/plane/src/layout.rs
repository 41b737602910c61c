// SPDX-License-Identifier: MIT OR Apache-2.0
//! What our programs and we both know of their structures: an object file carries a table of sizes
//! and offsets, each `abi.rs` has the same.

/// A size or an offset, as the table has it.
#[expect(clippy::cast_possible_truncation, reason = "sizes of small structures")]
pub(crate) const fn w(n: usize) -> u32 {
    n as u32
}

/// The table that the compiler of the programs wrote, against ours.
pub(crate) fn agrees(object: &[u8], ours: &[u32], header: &str) {
    let words: Vec<u8> = ours.iter().flat_map(|w| w.to_le_bytes()).collect();
    assert!(
        object.windows(words.len()).any(|w| w == words),
        "abi.rs and {header} differ: ours is {ours:?}"
    );
}
