// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the scheduling core (`sched/server.c`) for this machine.

use std::path::PathBuf;

fn main() {
    let root =
        PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../..");
    let sched = root.join("sched");
    println!("cargo::rerun-if-changed={}", sched.display());
    let mut build = cc::Build::new();
    build.file(sched.join("server.c")).opt_level(2);
    build.flag("-std=gnu11").flag("-Wall").flag("-Wextra").flag("-fno-strict-aliasing");
    build.compile("rs_server");
}
