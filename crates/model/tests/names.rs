// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names and paths, at their bounds.

mod common;

use proptest::prelude::*;
use reserv_model::*;

#[test]
fn names_at_the_bound() {
    assert!(Name::new(&"x".repeat(NAME_MAX)).is_ok());
    assert_eq!(Name::new(&"x".repeat(NAME_MAX + 1)).unwrap_err().errno(), Errno::ENAMETOOLONG);
    assert_eq!(Name::new("").unwrap_err().errno(), Errno::EINVAL);
    for good in ["a", "_", "-", "0", "a.b", "Share", "q0", "share2", "a-"] {
        assert_eq!(Name::new(good).unwrap().as_str(), good);
    }
    for bad in [".", "..", ".x", "a/b", "/", "a b", "a\n", "ä", "a\0", "a:b", "~", "a\u{7f}"] {
        assert_eq!(Name::new(bad).unwrap_err().errno(), Errno::EINVAL, "{bad:?}");
    }
    for reserved in RESERVED_NAMES {
        assert!(Name::new(reserved).is_err(), "{reserved}");
    }
}

#[test]
fn names_are_ordered_as_people_count() {
    let sorted = [
        "-", "a", "q", "q0", "q1", "q01", "q2", "q2a", "q2b", "q10", "q10x1", "q10x11", "q100",
        "r0",
    ];
    let names: Vec<_> = sorted.iter().map(|n| Name::new(n).unwrap()).collect();
    let mut shuffled = names.clone();
    shuffled.reverse();
    shuffled.sort();
    // q1 and q01 are the same number: then bytes decide.
    let mut wanted = names;
    wanted.swap(4, 5);
    assert_eq!(shuffled, wanted);
}

#[test]
fn numbers_in_names() {
    let number = |text: &str| Name::new(text).unwrap().number_after('q');
    assert_eq!(number("q0"), Some(0));
    assert_eq!(number("q42"), Some(42));
    assert_eq!(number("q4294967295"), Some(u32::MAX));
    for other in ["q", "q00", "q01", "q1x", "r1", "Q1", "q4294967296", "q-1"] {
        assert_eq!(number(other), None, "{other}");
    }
    assert_eq!(Name::numbered('r', 7).as_str(), "r7");
}

#[test]
fn paths_at_the_bound() {
    let deep = |levels: usize| vec!["a"; levels].join("/");
    assert!(deep(DEPTH_MAX - 1).parse::<NodePath>().is_ok());
    assert_eq!(deep(DEPTH_MAX).parse::<NodePath>().unwrap_err().kind, ErrorKind::TooDeep);
    assert_eq!("".parse(), Ok(NodePath::root()));
    for bad in ["/", "/a", "a/", "a//b", "a/./b", "a/../b", "a/share", "a/ b"] {
        assert!(bad.parse::<NodePath>().is_err(), "{bad:?}");
    }
    let path: NodePath = "web/site1".parse().unwrap();
    let (parent, name) = path.split_last().unwrap();
    assert_eq!((parent.to_string().as_str(), name.as_str()), ("web", "site1"));
    assert_eq!(parent.join(name.clone()), path);
    assert_eq!(NodePath::root().split_last(), None);
}

#[test]
fn a_saved_name_is_checked_again() {
    assert!(serde_json::from_str::<Name>("\"web\"").is_ok());
    for bad in ["\"../x\"", "\"share\"", "\"\"", "1", "null"] {
        assert!(serde_json::from_str::<Name>(bad).is_err(), "{bad}");
    }
    assert!(serde_json::from_str::<NodePath>("\"a//b\"").is_err());
}

proptest! {
    #![proptest_config(common::config(1))]

    /// The order of names is total: antisymmetric, transitive, and equal only for equal names.
    #[test]
    fn the_order_is_an_order(texts in prop::collection::vec("[a-b0-2._-]{1,6}", 3)) {
        let names: Vec<Name> = texts.iter().filter_map(|t| Name::new(t).ok()).collect();
        for a in &names {
            for b in &names {
                prop_assert_eq!(a.cmp(b), b.cmp(a).reverse());
                prop_assert_eq!(a == b, a.cmp(b).is_eq());
                for c in &names {
                    prop_assert!(!(a <= b && b <= c) || a <= c);
                }
            }
        }
    }

    #[test]
    fn paths_survive_printing(names in prop::collection::vec("[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}", 0..15)) {
        let names: Vec<Name> = names.iter().filter_map(|n| Name::new(n).ok()).collect();
        let path = NodePath::from_iter(names);
        prop_assert_eq!(path.to_string().parse(), Ok(path));
    }
}
