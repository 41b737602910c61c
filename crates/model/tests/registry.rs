// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers that stand in C and in Rust are the same.

use reserv_model::*;

const REGISTRY: &str = include_str!("../../../sched/registry.h");

/// The `X(number, name)` of the list that `#define head(X)` begins.
fn list(head: &str) -> Vec<(u8, String)> {
    let start = REGISTRY.find(&format!("#define {head}(X)")).expect("the list is there");
    let text = REGISTRY[start..].replace("\\\n", " ");
    let line = text.lines().next().expect("a line");
    let items = line.split("X(").skip(1).map(|item| {
        let (number, name) = item.split_once(')').expect("closed").0.split_once(',').expect("two");
        (number.trim().parse().expect("a number"), name.trim().to_owned())
    });
    items.collect()
}

#[test]
fn policies_and_classes_have_the_numbers_of_the_registry() {
    // What is no letter in C has a letter there.
    let policies: Vec<_> =
        Policy::ALL.iter().map(|p| (*p as u8, p.word().replace('+', "p"))).collect();
    let length = [
        list("RS_POLICIES_LENGTH"),
        list("RS_POLICIES_DISK"),
        list("RS_POLICIES_ARRIVE"),
        list("RS_POLICIES_BESIDE"),
    ]
    .concat();
    assert_eq!(policies, [list("RS_POLICIES_ANY"), length.clone()].concat());
    for policy in Policy::ALL {
        assert_eq!(policy.by_length(), length.iter().any(|l| l.0 == *policy as u8), "{policy}");
        assert_eq!(
            policy.of_disks(),
            [list("RS_POLICIES_DISK"), list("RS_POLICIES_BESIDE")]
                .concat()
                .iter()
                .any(|l| l.0 == *policy as u8),
            "{policy}"
        );
    }
    // A class that has a policy's name ends in c there, for functions need names of their own.
    let own = |class: &Class| Policy::ALL.iter().all(|p| p.word() != class.word());
    let name = |class: &Class| {
        if own(class) { class.to_string().replace('-', "_") } else { format!("{class}c") }
    };
    let classes: Vec<_> = Class::ALL.iter().map(|c| (*c as u8, name(c))).collect();
    let disk = [list("RS_CLASSES_DISK"), list("RS_CLASSES_BESIDE")].concat();
    let length = [list("RS_CLASSES_LENGTH"), disk.clone()].concat();
    assert_eq!(classes, [list("RS_CLASSES_ANY"), length.clone()].concat());
    for class in Class::ALL {
        assert_eq!(class.by_length(), length.iter().any(|l| l.0 == *class as u8), "{class}");
        assert_eq!(class.of_disks(), disk.iter().any(|l| l.0 == *class as u8), "{class}");
    }
}

#[test]
fn a_weight_of_one_is_that_of_the_core() {
    assert_eq!("1".parse::<Weight>().unwrap().milli(), reserv_facts::tree::WEIGHT_ONE);
}
