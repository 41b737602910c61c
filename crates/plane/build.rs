// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the programs of the full CPU driver (`bpf/cpu`, with `sched/` in them), of a link
//! (`bpf/net`, the same), of its entrance (`bpf/receive`), of listeners (`bpf/listen`) and of the
//! tags (`bpf/tag`) with clang-22 and hands the object files to `cpu::full`, `net::full`,
//! `receive`, `listen` and `tag`. Other releases of clang mis-compile arena code in larger
//! programs.
//!
//! An object is kept under the hash of all that it is made of, beside the profiles of the target
//! folder: the builds of several profiles compile it once.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::{Command, exit};
use std::{env, fs, io};

/// What the programs are made of, besides libbpf's headers.
const SOURCES: [&str; 7] =
    ["bpf", "bpf/cpu", "bpf/listen", "bpf/net", "bpf/receive", "bpf/tag", "sched"];

fn fail(why: &str) -> ! {
    println!("cargo::error={why}");
    exit(1)
}

/// What the programs say to each other without their lock (sched/post.c, `rc_nobody_waits`) relies
/// on the order in which x86 keeps reads and writes.
fn require_x86() {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    if arch != "x86_64" {
        fail(&format!(
            "Reserv's programs in the kernel are right on x86_64 only, and this build is for {arch}: \
             they rely on the order in which that processor keeps reads and writes of memory"
        ));
    }
}

fn main() {
    require_x86();
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../..");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    for folder in SOURCES {
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
        ("receive", "receive", &[]),
        ("listen", "listen", &[]),
    ] {
        compile(&root, &out, name, object, options);
    }
}

/// `bpf/NAME/NAME.bpf.c` to `OBJECT.bpf.o`.
fn compile(root: &Path, out: &Path, name: &str, object: &str, options: &[&str]) {
    let clang = env::var("RESERV_CLANG").unwrap_or_else(|_| "clang-22".into());
    let source = format!("bpf/{name}/{name}.bpf.c");
    let mut words = vec![
        "-target",
        "bpf",
        "-O2",
        "-g",
        "-mcpu=v4",
        "-fno-jump-tables",
        "-Wall",
        "-Wno-unused-function",
        "-Wno-ignored-attributes",
        "-D__TARGET_ARCH_x86",
    ];
    words.extend(options);
    let object = out.join(format!("{object}.bpf.o"));
    let kept = kept(root, out, &clang, &source, &words);
    if kept.as_ref().is_some_and(|kept| fs::copy(kept, &object).is_ok()) {
        return;
    }
    let built = Command::new(&clang)
        .args(&words)
        .arg("-I")
        .arg(out.join("include"))
        .arg(format!("-ffile-prefix-map={}=.", root.display()))
        .arg("-c")
        .arg(root.join(&source))
        .arg("-o")
        .arg(&object)
        .output();
    match built {
        Ok(done) if done.status.success() => {
            for line in String::from_utf8_lossy(&done.stderr).lines() {
                println!("cargo::warning={line}");
            }
            // A warning is to be seen by the next profile's build too.
            if let Some(kept) = kept.filter(|_| done.stderr.is_empty()) {
                keep(&object, &kept);
            }
        }
        Ok(done) => {
            fail(&format!("{clang} refused {source}:\n{}", String::from_utf8_lossy(&done.stderr)))
        }
        Err(why) => fail(&format!(
            "{clang} could not be run ({why}); the kernel's programs need clang 22: 'make setup' or 'apt-get install clang-22', or set RESERV_CLANG"
        )),
    }
}

/// Where the object of these sources, this compiler and its words is kept; `None` if they cannot
/// all be read.
fn kept(root: &Path, out: &Path, clang: &str, source: &str, words: &[&str]) -> Option<PathBuf> {
    let mut hash = DefaultHasher::new();
    Command::new(clang).arg("--version").output().ok()?.stdout.hash(&mut hash);
    (source, words, libbpf_sys::API_HEADERS).hash(&mut hash);
    for folder in SOURCES {
        let mut files: Vec<PathBuf> = fs::read_dir(root.join(folder))
            .ok()?
            .map(|e| e.map(|e| e.path()))
            .collect::<io::Result<_>>()
            .ok()?;
        files.retain(|file| file.is_file());
        files.sort();
        for file in files {
            (file.strip_prefix(root).ok()?, fs::read(&file).ok()?).hash(&mut hash);
        }
    }
    // TARGET/PROFILE/build/PACKAGE/out, where no triple is asked for; else it is one folder deeper.
    Some(out.ancestors().nth(4)?.join("bpf").join(format!("{:016x}.o", hash.finish())))
}

/// For the next profile's build, which may run now: it sees the whole file or none.
fn keep(object: &Path, kept: &Path) {
    let part = kept.with_extension(std::process::id().to_string());
    let put = kept.parent().map_or(Ok(()), fs::create_dir_all);
    let _ = put.and_then(|()| fs::copy(object, &part)).and_then(|_| fs::rename(&part, kept));
}

/// libbpf's own headers, as its crate carries them.
fn headers(folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    for (name, text) in libbpf_sys::API_HEADERS {
        fs::write(folder.join(name), text)?;
    }
    Ok(())
}
