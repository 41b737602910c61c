// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dependencies point one way (ARCHITECTURE.md, "Rooms"): between crates by their manifests,
//! between C folders by their includes; and pure crates have no clock, file, thread or hash order.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What each crate may use of ours. All may use the facts but the oracle, which says for itself
/// what is right. The cli uses plane for the tag call and for what `doctor` probes, and otherwise
/// speaks through files; plane uses blockd's structures, in which it talks with the server.
const MAY: &[(&str, &[&str])] = &[
    ("facts", &[]),
    ("disk-model", &[]),
    ("model", &["facts"]),
    ("namespace", &["facts", "model"]),
    ("blockd", &["facts", "disk-model"]),
    ("plane", &["facts", "model", "blockd"]),
    ("control", &["facts", "model"]),
    ("daemon", &["facts", "model", "control", "namespace", "plane"]),
    ("cli", &["facts", "model", "control", "plane"]),
    ("oracle", &["disk-model"]),
    ("client", &["facts", "control"]),
];

/// Pure crates.
const PURE: &[&str] = &["facts", "model", "namespace", "disk-model"];

/// What may not occur in them.
const IMPURE: &[&str] = &[
    "std::time::Instant",
    "SystemTime",
    "Instant::now",
    "HashMap",
    "HashSet",
    "std::fs",
    "std::net",
    "std::thread",
    "std::process",
    "std::env",
    "tracing::",
    "println!",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            files(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs" || e == "c" || e == "h") {
            out.push(path);
        }
    }
}

/// Names of our crates in the dependencies of a manifest; those for tests are no layer.
fn uses(manifest: &str) -> BTreeSet<String> {
    let mut section = "";
    let mut out = BTreeSet::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        } else if section == "[dependencies]" || section == "[build-dependencies]" {
            let key = line.split(['=', '.', ' ']).next().unwrap_or("");
            if let Some(name) = key.strip_prefix("reserv-") {
                out.insert(name.to_owned());
            }
        }
    }
    out
}

fn too_much(name: &str, manifest: &str) -> Vec<String> {
    let may = MAY
        .iter()
        .find(|m| m.0 == name)
        .unwrap_or_else(|| panic!("crate {name} has no layer in MAY"))
        .1;
    uses(manifest).into_iter().filter(|u| !may.contains(&u.as_str())).collect()
}

fn impure(text: &str) -> Vec<String> {
    let code = text.lines().filter(|l| !l.trim_start().starts_with("//"));
    code.filter(|l| IMPURE.iter().any(|w| l.contains(w))).map(str::to_owned).collect()
}

#[test]
fn crates_depend_downwards() {
    let mut seen = 0;
    for entry in fs::read_dir(root().join("crates")).expect("crates/") {
        let path = entry.expect("readable").path();
        let name = path.file_name().expect("named").to_string_lossy().into_owned();
        let Ok(manifest) = fs::read_to_string(path.join("Cargo.toml")) else { continue };
        let wrong = too_much(&name, &manifest);
        assert!(wrong.is_empty(), "crates/{name} uses {wrong:?}");
        seen += 1;
    }
    assert!(seen >= MAY.len(), "{seen} crates");
}

#[test]
fn a_dependency_upwards_is_seen() {
    assert_eq!(too_much("model", "[dependencies]\nreserv-plane.workspace = true\n"), ["plane"]);
    assert_eq!(too_much("plane", "[dependencies]\nreserv-daemon = { path = \"x\" }\n"), ["daemon"]);
    assert_eq!(impure("use std::collections::HashMap;").len(), 1);
    assert_eq!(impure("// no HashMap here").len(), 0);
}

#[test]
fn pure_crates_are_pure() {
    for name in PURE {
        let mut sources = Vec::new();
        files(&root().join("crates").join(name).join("src"), &mut sources);
        assert!(!sources.is_empty());
        for path in sources {
            let wrong = impure(&fs::read_to_string(&path).expect("readable"));
            assert!(wrong.is_empty(), "{}: {wrong:?}", path.display());
        }
    }
}

/// Words of code that read the environment.
const READS: &[&str] = &["env::var", "try_from_env", "getenv("];

/// Where it may be read: one place of each program, and of the library. The oracle is for tests
/// only.
fn may_read(path: &Path) -> bool {
    path.ends_with("settings.rs")
        || path.ends_with("client/src/place.rs")
        || path.ends_with("oracle/src/lib.rs")
}

/// Lines of a source that read the environment, or write one of our variables' names out.
fn environment(text: &str) -> Vec<&str> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.filter(|line| READS.iter().any(|word| line.contains(word)) || !variables(line).is_empty())
        .collect()
}

/// What looks like one and is none: the parameter of a request to PHP-FPM.
const PARAMETER: &str = "RESERV_CONTAINER";

/// Our variables, as they are named in code: `"RESERV_…"`.
fn variables(text: &str) -> Vec<&str> {
    let words = text.split('"').skip(1).step_by(2);
    let named = |word: &&str| {
        word.strip_prefix("RESERV_")
            .is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_uppercase() || b == b'_'))
    };
    words.filter(|word| *word != PARAMETER).filter(named).collect()
}

#[test]
fn the_environment_is_read_in_one_place_of_each_program() {
    let mut read = 0;
    for entry in fs::read_dir(root().join("crates")).expect("crates/") {
        let mut sources = Vec::new();
        files(&entry.expect("readable").path().join("src"), &mut sources);
        for path in sources {
            let text = fs::read_to_string(&path).expect("readable");
            if may_read(&path) {
                read += usize::from(!environment(&text).is_empty());
            } else if !path.ends_with("facts/src/place.rs") {
                assert_eq!(
                    environment(&text),
                    [""; 0],
                    "{}: settings.rs is for that",
                    path.display()
                );
            }
        }
    }
    // Of daemon, drivers, command line, block server; the library; the oracle.
    assert_eq!(read, 6);
    assert_eq!(environment("let x = std::env::var(NAME);").len(), 1);
    assert_eq!(environment("command.env(\"RESERV_RUN\", run);").len(), 1);
    assert_eq!(environment("const PASSED: &str = \"RESERV_CONTAINER\";").len(), 0);
    assert_eq!(
        environment("// env::var is read elsewhere\nlet x = \"RESERV_RUN is where\";").len(),
        0
    );
}

/// Each variable is said, with its meaning.
#[test]
fn the_table_of_variables_is_whole() {
    let facts = fs::read_to_string(root().join("crates/facts/src/place.rs")).expect("readable");
    let table = fs::read_to_string(root().join("docs/daemon.md")).expect("readable");
    let said: String = table.lines().filter(|line| line.starts_with("| `RESERV_")).collect();
    let wanted = variables(&facts);
    assert!(wanted.len() >= 18, "{wanted:?}");
    for name in &wanted {
        assert!(said.contains(&format!("`{name}`")), "docs/daemon.md lacks {name}");
    }
    assert_eq!(
        said.matches("`RESERV_").count(),
        wanted.len(),
        "docs/daemon.md has one that is nobody's"
    );
}

/// Modules of a crate, each with those that it uses by `crate::…`; its own tests are no layer.
fn modules(src: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut sources = Vec::new();
    files(src, &mut sources);
    let of = |path: &Path| {
        let first = path.strip_prefix(src).expect("below").components().next().expect("a name");
        Path::new(first.as_os_str()).with_extension("").to_string_lossy().into_owned()
    };
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in
        sources.iter().filter(|path| !path.ends_with("lib.rs") && !path.ends_with("main.rs"))
    {
        let text = fs::read_to_string(path).expect("readable");
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        found.entry(of(path)).or_default().extend(used(code));
    }
    for (name, uses) in &mut found {
        uses.remove(name);
    }
    found
}

/// The modules that a source names, one by one or in a list.
fn used(code: &str) -> BTreeSet<String> {
    let code: String = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let word = |text: &str| {
        text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>()
    };
    let mut found = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        let list = rest.strip_prefix('{').map(|list| list.split('}').next().unwrap_or_default());
        match list {
            Some(list) => found.extend(list.split(',').map(|item| word(item.trim()))),
            None => {
                found.insert(word(rest));
            }
        }
    }
    found
}

/// Modules that use each other in a circle: what is left when those are taken away, again and
/// again, that use none of the others.
fn circle(mut modules: BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    loop {
        let names: BTreeSet<String> = modules.keys().cloned().collect();
        for uses in modules.values_mut() {
            uses.retain(|used| names.contains(used));
        }
        modules.retain(|_, uses| !uses.is_empty());
        if modules.len() == names.len() {
            return names;
        }
    }
}

#[test]
fn modules_of_the_daemon_use_each_other_in_no_circle() {
    let daemon = modules(&root().join("crates/daemon/src"));
    assert!(daemon.len() > 20 && daemon["fs"].contains("engine"), "{daemon:?}");
    assert_eq!(circle(daemon.clone()), BTreeSet::new(), "and who uses them");
    let mut wrong = daemon;
    wrong.get_mut("engine").expect("there").extend(used("use crate::{fs, link};"));
    assert!(circle(wrong).contains("engine"));
}

#[test]
fn includes_stay_below() {
    for (folder, host_only) in
        [("sched", ["host.c", "check.c", "server.c"].as_slice()), ("bpf", &[])]
    {
        let mut sources = Vec::new();
        files(&root().join(folder), &mut sources);
        for path in sources {
            let file = path.file_name().expect("named").to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).expect("readable");
            for line in text.lines().filter(|l| l.starts_with("#include")) {
                let what = line.split(['"', '<', '>']).nth(1).unwrap_or("");
                let ok = match folder {
                    "sched" => {
                        (line.contains('"') && !what.contains('/'))
                            || what == "stdint.h"
                            || host_only.contains(&file.as_str())
                    }
                    _ => {
                        what.starts_with("bpf/")
                            || !what.contains("..")
                            || what.contains("sched/")
                            || { what.starts_with("../") && !what.contains("crates") }
                    }
                };
                assert!(ok, "{}: {line}", path.display());
            }
            if folder == "sched" && !host_only.contains(&file.as_str()) {
                for word in [
                    "bpf_map",
                    "bpf_get",
                    "bpf_probe",
                    "ktime",
                    "clock_gettime",
                    "malloc",
                    "printf",
                    "float ",
                    "double ",
                ] {
                    assert!(!text.contains(word), "{}: {word}", path.display());
                }
            }
        }
    }
}

/// Every source file says under which licence it is.
#[test]
fn licences() {
    for (folder, want) in
        [("bpf", "GPL-2.0-only"), ("sched", "GPL-2.0-only OR MIT"), ("crates", "MIT OR Apache-2.0")]
    {
        let mut sources = Vec::new();
        files(&root().join(folder), &mut sources);
        for path in sources {
            let text = fs::read_to_string(&path).expect("readable");
            let first =
                text.lines().take(3).find(|l| l.contains("SPDX-License-Identifier")).unwrap_or("");
            let id = first
                .split("SPDX-License-Identifier:")
                .nth(1)
                .unwrap_or("")
                .trim()
                .trim_end_matches("*/")
                .trim();
            let ok = id == want || (folder == "bpf" && id.starts_with(want));
            assert!(ok, "{}: {id}", path.display());
        }
    }
}
