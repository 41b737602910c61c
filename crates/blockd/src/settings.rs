// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the environment says to the block server: read here only. People set nothing there; what
//! there is to choose reservd says as arguments (`main.rs`).

use reserv_facts::place::variable::BLOCKD_HELD;

/// What the keeper tells its worker, which this process is then: numbers of its descriptors (-1: no
/// FUSE session), whether there was a worker before, and who it is itself.
pub(crate) fn held() -> Option<String> {
    std::env::var(BLOCKD_HELD).ok()
}
