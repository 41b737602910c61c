// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's parser of packets, as C of this machine (src/packets.c).

fn main() {
    println!("cargo::rerun-if-changed=src/packets.c");
    println!("cargo::rerun-if-changed=../bpf/tag");
    println!("cargo::rerun-if-changed=../tests/lib");
    cc::Build::new()
        .compiler("clang-22")
        .file("src/packets.c")
        .flag("-fsanitize=fuzzer-no-link")
        .flag("-fno-strict-aliasing")
        .warnings(false)
        .compile("packets");
}
