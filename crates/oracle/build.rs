// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles `sched/` for the host: the core as it is, and every deliberately broken variant of `mutants.rs`. The variants are most of the
//! work: RESERV_MUTANTS=0 leaves them out, where nobody asks for them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, thread};

include!("mutants.rs");

fn compile(dir: &Path, name: &str, symbol: &str, strict: bool) {
    let mut build = cc::Build::new();
    build.file(dir.join("host.c")).define("RS_HOST_API", symbol);
    // The mutants are many, and run little.
    build.opt_level(if strict { 2 } else { 1 }).debug(strict);
    build.flag("-std=gnu11").flag("-Wall").flag("-Wextra").flag("-fno-strict-aliasing");
    if strict {
        build.flag("-Werror");
        if env::var_os("RESERV_SANITIZE").is_some() {
            build.flag("-fsanitize=address,undefined").flag("-fno-sanitize-recover=all");
        }
    } else {
        build.warnings(false).flag("-w");
    }
    build.compile(name);
}

/// The variant's sources, compiled.
fn mutant(sched: &Path, out: &Path, m: &Mutant) {
    let dir = out.join(m.name);
    fs::create_dir_all(dir.join("disk")).expect("OUT_DIR is writable");
    for entry in
        [sched.to_owned(), sched.join("disk")].iter().flat_map(|d| fs::read_dir(d).expect("sched/ is there"))
    {
        let path = entry.expect("readable").path();
        let name = path.strip_prefix(sched).expect("below it").to_string_lossy().into_owned();
        if !Path::new(&name).extension().is_some_and(|e| e == "c" || e == "h") {
            continue;
        }
        let mut text = fs::read_to_string(&path).expect("readable");
        if name == m.file {
            assert_eq!(text.matches(m.from).count(), 1, "mutant {}: text in {}", m.name, m.file);
            text = text.replace(m.from, m.to);
        }
        fs::write(dir.join(&name), text).expect("OUT_DIR is writable");
    }
    compile(&dir, &format!("rs_mutant_{}", m.name), &format!("rs_mutant_{}", m.name), false);
}

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let sched = root.join("../../sched");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));

    println!("cargo:rerun-if-changed=mutants.rs");
    println!("cargo:rerun-if-changed={}", sched.display());
    println!("cargo:rerun-if-env-changed=RESERV_SANITIZE");
    println!("cargo:rerun-if-env-changed=RESERV_MUTANTS");
    let mutants = if env::var("RESERV_MUTANTS").is_ok_and(|v| v == "0") { &[] } else { MUTANTS };
    compile(&sched, "rs_core", "rs_host_api", true);

    let mut table = String::from("unsafe extern \"C\" {\n");
    for m in mutants {
        writeln!(table, "    safe fn rs_mutant_{}() -> *const Api;", m.name).expect("a string");
    }
    table.push_str("}\npub(crate) static MUTANT_APIS: &[extern \"C\" fn() -> *const Api] = &[\n");
    for m in mutants {
        writeln!(table, "    rs_mutant_{},", m.name).expect("a string");
    }
    table.push_str("];\n");
    fs::write(out.join("mutant_table.rs"), table).expect("OUT_DIR is writable");

    let (next, jobs) = (AtomicUsize::new(0), thread::available_parallelism().map_or(1, usize::from));
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(m) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    mutant(&sched, &out, m);
                }
            });
        }
    });
    if env::var_os("RESERV_SANITIZE").is_some() {
        // rustc links without the compiler's default libraries.
        println!("cargo:rustc-link-arg=-lasan");
        println!("cargo:rustc-link-arg=-lubsan");
    }
}
