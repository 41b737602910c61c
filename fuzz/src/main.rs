// SPDX-License-Identifier: MIT OR Apache-2.0
//! All targets in one program of libFuzzer's: `RESERV_FUZZ_TARGET` says which.
#![no_main]

mod disk;
mod targets;

use std::sync::OnceLock;

unsafe extern "C" {
    fn reserv_fuzz_packets(data: *const u8, size: usize);
}

fn packets(data: &[u8]) {
    // SAFETY: it reads so many bytes from there.
    unsafe { reserv_fuzz_packets(data.as_ptr(), data.len()) }
}

fn chosen() -> fn(&[u8]) {
    static CHOSEN: OnceLock<fn(&[u8])> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let name = std::env::var("RESERV_FUZZ_TARGET").unwrap_or_default();
        let all = targets::ALL.iter().copied();
        let all = all.chain([("disk", disk::disk as fn(&[u8])), ("packets", packets)]);
        let found = all.into_iter().find(|(other, _)| *other == name);
        found.unwrap_or_else(|| panic!("RESERV_FUZZ_TARGET={name}: no such target")).1
    })
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| chosen()(data));
