// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests of the kernel's for a disk's file (FUSE), which nothing may make panic.
//! `crates/blockd/tests/corpora.rs` gives it every input that is kept in `corpus/disk`.

use std::fs::OpenOptions;

use reserv_blockd::front::fuse::Fuse;
use reserv_blockd::front::{Dataless, Shape};

/// One request. Answers go nowhere.
pub(crate) fn disk(data: &[u8]) {
    let Ok(nowhere) = OpenOptions::new().write(true).open("/dev/null") else { return };
    let shape = Shape {
        size: 1 << 30,
        block: 512,
        physical: 4096,
        rotational: false,
        dataless: Dataless { discard: true, unmap: true, zero: true },
        memory: 1,
        boundary: 0,
        copied: None,
        buffers: 0,
    };
    let _ = Fuse::new(nowhere.into(), &shape).understand(data);
}
