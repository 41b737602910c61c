// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the programs of the full CPU driver (`bpf/cpu`, with `sched/` in them), of a link (`bpf/net`, the same) and of the tags (`bpf/tag`) with
//! clang-22 and hands the object files to `cpu::full`, `net::full` and `tag`. Other releases of clang mis-compile arena code in larger programs.

use std::path::{Path, PathBuf};
use std::process::{Command, exit};
use std::{env, fs};

fn fail(why: &str) -> ! {
    println!("cargo::error={why}");
    exit(1)
}

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../..");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    for folder in ["bpf", "bpf/cpu", "bpf/net", "bpf/tag", "sched"] {
        println!("cargo::rerun-if-changed={}", root.join(folder).display());
    }
    println!("cargo::rerun-if-env-changed=RESERV_CLANG");
    let include = out.join("include/bpf");
    if let Err(why) = headers(&include) {
        fail(&format!("{}: {why}", include.display()));
    }
    for (name, object, options) in [
        ("cpu", "cpu", &[][..]),
        ("cpu", "cpu1", &["-DRC_ONE_CPU"]),
        ("net", "net", &[]),
        ("tag", "tag", &[]),
    ] {
        compile(&root, &out, name, object, options);
    }
}

/// `bpf/NAME/NAME.bpf.c` to `OBJECT.bpf.o`.
fn compile(root: &Path, out: &Path, name: &str, object: &str, options: &[&str]) {
    let clang = env::var("RESERV_CLANG").unwrap_or_else(|_| "clang-22".into());
    let source = format!("bpf/{name}/{name}.bpf.c");
    let arch = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("aarch64") => "arm64",
        Ok("riscv64") => "riscv",
        _ => "x86",
    };
    let built = Command::new(&clang)
        .args([
            "-target",
            "bpf",
            "-O2",
            "-g",
            "-mcpu=v4",
            "-fno-jump-tables",
            "-Wall",
            "-Wno-unused-function",
            "-Wno-ignored-attributes",
        ])
        .arg(format!("-D__TARGET_ARCH_{arch}"))
        .args(options)
        .arg("-I")
        .arg(out.join("include"))
        .arg(format!("-ffile-prefix-map={}=.", root.display()))
        .arg("-c")
        .arg(root.join(&source))
        .arg("-o")
        .arg(out.join(format!("{object}.bpf.o")))
        .output();
    match built {
        Ok(done) if done.status.success() => {
            for line in String::from_utf8_lossy(&done.stderr).lines() {
                println!("cargo::warning={line}");
            }
        }
        Ok(done) => fail(&format!("{clang} refused {source}:\n{}", String::from_utf8_lossy(&done.stderr))),
        Err(why) => fail(&format!(
            "{clang} could not be run ({why}); the kernel's programs need clang 22: 'make setup' or 'apt-get install clang-22', or set RESERV_CLANG"
        )),
    }
}

/// libbpf's own headers, as its crate carries them.
fn headers(folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    for (name, text) in libbpf_sys::API_HEADERS {
        fs::write(folder.join(name), text)?;
    }
    Ok(())
}
