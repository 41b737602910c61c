// SPDX-License-Identifier: MIT OR Apache-2.0
//! The compiler of C compares our numbers and layouts with those of the headers.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::call::{self, ThreadPage, ThreadParam};
use crate::tag::{self, Slot, rules};
use crate::tree::{self, RsBatch, RsOp};
use crate::{cpu, fuse, ino, listen, net, receive};

/// What the headers want to know before.
const TYPES: &str = "#include <stddef.h>\n#include <stdint.h>\n\
    typedef uint8_t u8; typedef uint16_t u16; typedef uint32_t u32; typedef uint64_t u64;\n\
    typedef int32_t s32; typedef int64_t s64;\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// As the compiler is told to read a header. Of `bpf/use.h` it reads what comes before the
/// functions, which only a program in the kernel can have.
fn said(header: &str) -> String {
    if header.starts_with('<') {
        return format!("#include {header}\n");
    }
    if header != "bpf/use.h" {
        return format!("#include \"{header}\"\n");
    }
    let text = fs::read_to_string(root().join(header)).expect("readable");
    format!("{}\n#endif\n", text.split("\nstatic ").next().expect("the first part"))
}

/// What the compiler says to these headers, one behind the other, if each expression is to be as
/// great as it says; nothing: they are.
fn differences(headers: &[&str], wanted: &[(String, i128)]) -> String {
    let mut source = TYPES.to_owned();
    source.extend(headers.iter().map(|header| said(header)));
    for (expression, value) in wanted {
        let value =
            u64::try_from(*value).map_or_else(|_| value.to_string(), |value| format!("{value}ULL"));
        writeln!(source, "_Static_assert(({expression}) == {value}, \"{expression}\");")
            .expect("a string");
    }
    let mut compiler = Command::new("cc")
        .args(["-std=gnu11", "-fsyntax-only", "-x", "c", "-I", ".", "-"])
        .current_dir(root())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("cc is there: build.rs of others needs it too");
    compiler.stdin.take().expect("piped").write_all(source.as_bytes()).expect("it reads");
    let done = compiler.wait_with_output().expect("it ends");
    let words = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success() || !words.is_empty());
    if done.status.success() { String::new() } else { words }
}

fn wanted(tables: &[&[(&str, i128)]]) -> Vec<(String, i128)> {
    let numbers = tables.iter().copied().flatten();
    numbers.map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

fn sized(wanted: &mut Vec<(String, i128)>, expression: &str, value: usize) {
    wanted.push((expression.to_owned(), value as i128));
}

const TREE: &[&[(&str, i128)]] =
    &[tree::IN_C, tree::kind::IN_C, tree::op::IN_C, tree::tune::IN_C, tree::param::IN_C];

#[test]
fn the_tree_is_that_of_the_core() {
    let mut all = wanted(TREE);
    sized(&mut all, "sizeof(struct rs_op)", size_of::<RsOp>());
    sized(&mut all, "offsetof(struct rs_op, b)", offset_of!(RsOp, b));
    sized(&mut all, "offsetof(struct rs_op, undo)", offset_of!(RsOp, undo));
    sized(&mut all, "sizeof(struct rs_batch)", size_of::<RsBatch>());
    sized(&mut all, "offsetof(struct rs_batch, grants)", offset_of!(RsBatch, grants));
    sized(&mut all, "offsetof(struct rs_batch, op)", offset_of!(RsBatch, op));
    assert_eq!(differences(&["sched/sched.h", "sched/batch.h", "sched/disk/window.c"], &all), "");
}

#[test]
fn the_cpu_is_that_of_its_programs() {
    let calls: Vec<_> =
        call::fcntl::IN_C.iter().filter(|(name, _)| !name.ends_with("_QUEUE")).copied().collect();
    let words = &ino::IN_C[..ino::OF_CPU];
    let tables = [
        cpu::IN_C,
        cpu::to::IN_C,
        cpu::param::IN_C,
        cpu::tag::IN_C,
        cpu::tracing::IN_C,
        cpu::trace::IN_C,
        &calls,
        call::page::IN_C,
        words,
    ];
    let mut all = wanted(&tables);
    sized(&mut all, "sizeof(struct rc_page)", size_of::<ThreadPage>());
    sized(&mut all, "offsetof(struct rc_page, anchor[1].rate)", offset_of!(ThreadPage, since) - 8);
    sized(&mut all, "offsetof(struct rc_page, own)", offset_of!(ThreadPage, since));
    sized(&mut all, "offsetof(struct rc_page, log)", offset_of!(ThreadPage, log));
    sized(&mut all, "sizeof(struct rc_thread_param)", size_of::<ThreadParam>());
    sized(&mut all, "offsetof(struct rc_thread_param, prio)", offset_of!(ThreadParam, priority));
    sized(
        &mut all,
        "offsetof(struct rc_thread_param, budget_ns)",
        offset_of!(ThreadParam, budget_ns),
    );
    assert_eq!(differences(&["sched/sched.h", "sched/batch.h", "bpf/abi.h"], &all), "");
}

#[test]
fn a_link_is_that_of_its_programs() {
    assert_eq!(differences(&["bpf/net/abi.h"], &wanted(&[net::IN_C, net::what::IN_C])), "");
}

#[test]
fn an_entrance_is_that_of_its_programs() {
    // Of a lock the kernel's programs have their own.
    let header = "bpf/receive/abi.h";
    assert_eq!(
        differences(
            &["<linux/bpf.h>", header],
            &wanted(&[receive::IN_C, receive::what::IN_C, receive::tune::IN_C])
        ),
        ""
    );
}

#[test]
fn listeners_are_those_of_their_program() {
    assert_eq!(differences(&["bpf/listen/abi.h"], &wanted(&[listen::IN_C])), "");
}

#[test]
fn tags_are_those_of_their_programs() {
    let calls: Vec<_> =
        call::fcntl::IN_C.iter().filter(|(name, _)| name.ends_with("_QUEUE")).copied().collect();
    let mut all = wanted(&[
        tag::IN_C,
        tag::kind::IN_C,
        tag::object_kind::IN_C,
        tag::above_how::IN_C,
        tag::walked::IN_C,
        tag::what::IN_C,
        rules::IN_C,
        rules::names::IN_C,
        rules::may::IN_C,
        call::IN_C,
        &calls,
        &ino::IN_C[ino::OF_CPU..],
    ]);
    sized(&mut all, "sizeof(struct rt_slot)", size_of::<Slot>());
    sized(&mut all, "offsetof(struct rt_slot, bytes)", offset_of!(Slot, bytes));
    sized(&mut all, "offsetof(struct rt_slot, priority)", offset_of!(Slot, priority));
    assert_eq!(differences(&["bpf/use.h", "bpf/tag/abi.h"], &all), "");
}

#[test]
fn fuse_is_that_of_the_kernel() {
    let all = wanted(&[fuse::IN_C, fuse::code::IN_C, fuse::init::IN_C, fuse::open::IN_C]);
    assert_eq!(differences(&["<linux/fuse.h>"], &all), "");
}

#[test]
fn calls_are_those_of_the_library_for_c() {
    let header = "crates/client/include/reserv.h";
    let mut all = wanted(&[call::IN_C, call::fcntl::IN_C]);
    sized(&mut all, "sizeof(struct reserv_page)", size_of::<ThreadPage>());
    sized(&mut all, "offsetof(struct reserv_page, since)", offset_of!(ThreadPage, since));
    sized(&mut all, "offsetof(struct reserv_page, every)", offset_of!(ThreadPage, every));
    sized(&mut all, "offsetof(struct reserv_page, log)", offset_of!(ThreadPage, log));
    assert_eq!(differences(&[header], &all), "");
    let text = fs::read_to_string(root().join(header)).expect("readable");
    let there = text.matches("\n#define F_RESERV_").count() + text.matches("\n#define SO").count();
    assert_eq!(there, call::IN_C.len() + call::fcntl::IN_C.len(), "and there are no others");
}

#[test]
fn what_differs_is_named() {
    for (wrong, name) in [(("RS_OP_MOVE", 8), "RS_OP_MOVE"), (("RS_NO_SUCH", 8), "RS_NO_SUCH")] {
        let said = differences(&["sched/sched.h", "sched/batch.h"], &wanted(&[&[wrong]]));
        assert!(said.contains(name), "{said}");
    }
}
