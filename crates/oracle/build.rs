// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles `sched/` for the host: the core as it is, and once more with every deliberately broken
//! variant of `mutants.rs`, one of which is chosen at run time. RESERV_MUTANTS=0 leaves them out.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

include!("mutants.rs");

fn compile(dir: &Path, name: &str, symbol: &str, strict: bool) {
    let mut build = cc::Build::new();
    build.file(dir.join("host.c")).define("RS_HOST_API", symbol);
    // The mutants run little.
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

/// A function of the core that mutants change: its head's lines, its name, and where it stands.
struct Function {
    from: usize,
    to: usize,
    head: String,
    name: String,
}

/// The function around this place. The core is written as the kernel is: `{` and `}` stand alone.
fn function(text: &str, at: usize) -> Option<Function> {
    let open = text[..at].rfind("\n{\n")?;
    let to = open + text[open..].find("\n}\n")? + "\n}\n".len();
    let mut from = open;
    loop {
        from = text[..from].rfind('\n')?;
        if !text[from + 1..].starts_with(['\t', ' ']) {
            break;
        }
    }
    from += 1;
    let head = text[from..open].to_owned();
    // RS_FN_PTR(type, name, parameters, arguments), RS_FN_VOID(name, parameters, arguments), or the
    // name before the parameters.
    let name = if let Some(rest) = head.strip_prefix("RS_FN_PTR(") {
        rest.split(',').nth(1)?.trim()
    } else if let Some(rest) = head.strip_prefix("RS_FN_VOID(") {
        rest.split(',').next()?
    } else {
        head.split('(').next()?.rsplit([' ', '*']).next()?
    };
    let name = name.to_owned();
    (at < to).then_some(Function { from, to, head, name })
}

/// The words by which a function with this head passes its parameters on.
fn arguments(head: &str) -> Vec<&str> {
    let list = &head[head.find('(').expect("a head") + 1..head.rfind(')').expect("a head")];
    list.split(',').filter_map(|p| p.rsplit([' ', '*']).next()).filter(|p| *p != "void").collect()
}

/// The function with this mutant's change, or as it is, under another name.
fn copy(f: &Function, text: &str, suffix: &str, change: Option<&Mutant>) -> String {
    let body = &text[f.from + f.head.len()..f.to];
    let body = change.map_or_else(|| body.to_owned(), |m| body.replace(m.from, m.to));
    format!("{}{body}\n", f.head.replacen(&f.name, &format!("{}{suffix}", f.name), 1))
}

/// What stands in the function's place: it chooses one of the copies.
fn chooser(f: &Function, mutants: &[(usize, &Mutant)]) -> String {
    let of_a_macro = f.head.strip_prefix("RS_FN_PTR(").map(|rest| (rest, true));
    let of_a_macro =
        of_a_macro.or_else(|| f.head.strip_prefix("RS_FN_VOID(").map(|rest| (rest, false)));
    let (head, call) = if let Some((rest, pointer)) = of_a_macro {
        let kind = if pointer {
            rest.split(',').next().expect("a type").to_owned() + " *"
        } else {
            "void ".to_owned()
        };
        let (parameters, rest) =
            rest.split_once('(').and_then(|(_, r)| r.split_once("),")).expect("lists");
        (
            format!("RS_INLINE {kind}{}({parameters})", f.name),
            rest.trim().trim_end_matches(')').to_owned() + ")",
        )
    } else {
        (f.head.clone(), format!("({})", arguments(&f.head).join(", ")))
    };
    let mut out = format!("{head}\n{{\n\tswitch (rs_mutant) {{\n");
    for (k, _) in mutants {
        writeln!(out, "\tcase {k}: return {}_broken_{k}{call};", f.name).expect("a string");
    }
    writeln!(out, "\tdefault: return {}_right{call};\n\t}}\n}}", f.name).expect("a string");
    out
}

/// The file with every mutant of it: of each function that one changes there is a copy a mutant,
/// and which of them runs is chosen at run time, by `rs_mutant` (0: as it is).
fn with_mutants(name: &str, text: &str) -> String {
    let mut functions: Vec<(Function, Vec<(usize, &Mutant)>)> = Vec::new();
    for (i, m) in MUTANTS.iter().enumerate().filter(|(_, m)| m.file == name) {
        assert_eq!(text.matches(m.from).count(), 1, "mutant {}: text in {}", m.name, m.file);
        let at = text.find(m.from).expect("once");
        let f = function(text, at).unwrap_or_else(|| panic!("mutant {}: in a function", m.name));
        assert!(at + m.from.len() <= f.to, "mutant {}: in one function", m.name);
        match functions.iter_mut().find(|(other, _)| other.from == f.from) {
            Some((_, of)) => of.push((i + 1, m)),
            None => functions.push((f, vec![(i + 1, m)])),
        }
    }
    functions.sort_by_key(|(f, _)| f.from);
    let (mut out, mut at) = (String::new(), 0);
    for (f, mutants) in &functions {
        out.push_str(&text[at..f.from]);
        out.push_str(&copy(f, text, "_right", None));
        for (k, m) in mutants {
            out.push_str(&copy(f, text, &format!("_broken_{k}"), Some(m)));
        }
        out.push_str(&chooser(f, mutants));
        at = f.to;
    }
    out.push_str(&text[at..]);
    out
}

/// The switch, and what sets it. Each thread has its own: tests run side by side.
const SWITCH: &str = "static __thread unsigned rs_mutant;\n\
    void rs_mutants_choose(unsigned);\n\
    void rs_mutants_choose(unsigned k)\n{\n\trs_mutant = k;\n}\n";

/// One object with all broken variants.
fn mutants(sched: &Path, out: &Path) {
    let dir = out.join("broken");
    fs::create_dir_all(dir.join("disk")).expect("OUT_DIR is writable");
    for entry in [sched.to_owned(), sched.join("disk")]
        .iter()
        .flat_map(|d| fs::read_dir(d).expect("sched/ is there"))
    {
        let path = entry.expect("readable").path();
        let name = path.strip_prefix(sched).expect("below it").to_string_lossy().into_owned();
        if !Path::new(&name).extension().is_some_and(|e| e == "c" || e == "h") {
            continue;
        }
        let mut text = with_mutants(&name, &fs::read_to_string(&path).expect("readable"));
        if name == "host.c" {
            text.insert_str(0, SWITCH);
        }
        fs::write(dir.join(&name), text).expect("OUT_DIR is writable");
    }
    compile(&dir, "rs_mutants", "rs_mutants_api", false);
}

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let sched = root.join("../../sched");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));

    println!("cargo:rerun-if-changed=mutants.rs");
    println!("cargo:rerun-if-changed={}", sched.display());
    println!("cargo:rerun-if-env-changed=RESERV_SANITIZE");
    println!("cargo:rerun-if-env-changed=RESERV_MUTANTS");
    compile(&sched, "rs_core", "rs_host_api", true);
    let table = if env::var("RESERV_MUTANTS").is_ok_and(|v| v == "0") {
        "pub(crate) fn rs_mutants_api() -> *const Api { panic!(\"built without mutants\") }\n\
         pub(crate) fn rs_mutants_choose(_: u32) {}\n"
    } else {
        mutants(&sched, &out);
        "unsafe extern \"C\" {\n    pub(crate) safe fn rs_mutants_api() -> *const Api;\n    \
         pub(crate) safe fn rs_mutants_choose(mutant: u32);\n}\n"
    };
    fs::write(out.join("mutant_table.rs"), table).expect("OUT_DIR is writable");
    if env::var_os("RESERV_SANITIZE").is_some() {
        // rustc links without the compiler's default libraries.
        println!("cargo:rustc-link-arg=-lasan");
        println!("cargo:rustc-link-arg=-lubsan");
    }
}
