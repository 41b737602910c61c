// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program of libFuzzer's for each target, all from this file: `Cargo.toml` names them, and the
//! name says which target it is. What a target does not reach is not in its program: libFuzzer
//! looks at the counters of all that is there after every input, which for the small targets cost
//! more than they do.
#![no_main]

mod disk;
#[allow(dead_code, reason = "each program has one target of these")]
mod targets;
#[allow(dead_code, reason = "as above")]
mod ublk;

unsafe extern "C" {
    fn reserv_fuzz_packets(data: *const u8, size: usize);
    fn reserv_fuzz_receive(data: *const u8, size: usize);
    fn reserv_fuzz_hello(data: *const u8, size: usize);
}

fn packets(data: &[u8]) {
    // SAFETY: it reads so many bytes from there.
    unsafe { reserv_fuzz_packets(data.as_ptr(), data.len()) }
}

fn receive(data: &[u8]) {
    // SAFETY: it reads so many bytes from there.
    unsafe { reserv_fuzz_receive(data.as_ptr(), data.len()) }
}

fn hello(data: &[u8]) {
    // SAFETY: it reads so many bytes from there.
    unsafe { reserv_fuzz_hello(data.as_ptr(), data.len()) }
}

/// Compared when it is compiled: the others are left out.
const fn is(target: &str) -> bool {
    let (name, prefix) = (env!("CARGO_BIN_NAME").as_bytes(), b"fuzz-".len());
    let target = target.as_bytes();
    if name.len() != prefix + target.len() {
        return false;
    }
    let mut at = 0;
    while at < target.len() {
        if name[prefix + at] != target[at] {
            return false;
        }
        at += 1;
    }
    true
}

macro_rules! chosen {
    ($data:ident: $($name:literal => $target:path),+ $(,)?) => {
        const { assert!($(is($name))||+, "no such target") };
        $(if const { is($name) } {
            $target($data);
        })+
    };
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    chosen!(data:
        "files" => targets::files,
        "config" => targets::config,
        "control" => targets::control_line,
        "listen" => targets::listen,
        "netlink" => targets::netlink,
        "requests" => targets::requests,
        "journal" => targets::journal,
        "disk" => disk::disk,
        "ublk" => ublk::ublk,
        "packets" => packets,
        "receive" => receive,
        "hello" => hello,
    );
});
