// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is committed equals what is generated, and what is shown to users as an example works.

use std::fs;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn committed_man_pages_equal_the_generated() {
    let dir = tempfile::tempdir().unwrap();
    let mut names = reserv_cli::generate::man(dir.path()).unwrap();
    for name in &names {
        let committed = fs::read_to_string(repository().join("man").join(name)).unwrap_or_default();
        let generated = fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(
            committed == generated,
            "man/{name} is out of date: cargo run -p reserv-cli -- gen man man"
        );
    }
    let mut committed: Vec<String> = fs::read_dir(repository().join("man"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| {
            name.starts_with("reserv") && !name.starts_with("reservd") && name.ends_with(".1")
        })
        .collect();
    names.sort();
    committed.sort();
    assert_eq!(committed, names, "a page of a command that is gone");
}

#[test]
fn completions_of_all_shells_know_the_commands() {
    let dir = tempfile::tempdir().unwrap();
    let names = reserv_cli::generate::completions(dir.path()).unwrap();
    assert!(names.len() >= 4, "{names:?}");
    for name in names {
        let text = fs::read_to_string(dir.path().join(&name)).unwrap();
        for word in ["doctor", "dry-run", "completion"] {
            assert!(text.contains(word), "{name} lacks {word}");
        }
    }
}

#[test]
fn example_configurations_are_valid() {
    let mut seen = 0;
    for entry in fs::read_dir(repository().join("dist/examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "toml") {
            let text = fs::read_to_string(&path).unwrap();
            let config: reserv_model::Config =
                toml::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            config.check().unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            assert!(config.cpu.is_some());
            seen += 1;
        }
    }
    assert!(seen >= 2, "the examples were found");
}

#[test]
fn every_configuration_in_the_documentation_is_valid() {
    // In reserv(5) the example stands between .EX and .EE.
    let page = fs::read_to_string(repository().join("man/reserv.5")).unwrap();
    let mut seen = 0;
    for part in page.split("\n.EX\n").skip(1) {
        let text = part.split("\n.EE").next().unwrap().replace("\\-", "-").replace("\\(dq", "\"");
        if text.contains("[cpu") || text.contains("[[rule]]") {
            let written: reserv_model::Written =
                toml::from_str(&text).unwrap_or_else(|e| panic!("{text}\n{e}"));
            let config =
                reserv_model::Config::try_from(written).unwrap_or_else(|e| panic!("{text}\n{e}"));
            config.check().unwrap_or_else(|e| panic!("{text}\n{e}"));
            seen += 1;
        }
    }
    assert!(seen >= 1);
}
