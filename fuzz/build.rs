// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is C: the kernel's parsers of packets that leave (src/packets.c) and come in
//! (src/receive.c), and mod_reserv's of a TLS client's first message (src/hello.c).

fn main() {
    println!("cargo::rerun-if-changed=../bpf");
    println!("cargo::rerun-if-changed=../servers/apache/hello.h");
    println!("cargo::rerun-if-changed=../tests/lib");
    for name in ["packets", "receive", "hello"] {
        println!("cargo::rerun-if-changed=src/{name}.c");
        cc::Build::new()
            .compiler("clang-22")
            .file(format!("src/{name}.c"))
            .flag("-fsanitize=fuzzer-no-link")
            .flag("-fno-strict-aliasing")
            .warnings(false)
            .compile(name);
    }
}
