// SPDX-License-Identifier: MIT OR Apache-2.0
//! Units: what is printed parses back, exactly; what makes no sense is refused with the word that
//! was wrong.

mod common;

use std::fmt::Debug;
use std::str::FromStr;

use proptest::prelude::*;
use reserv_model::*;

fn same<T: FromStr<Err = Error> + ToString + PartialEq + Debug + Copy>(value: T) {
    let text = value.to_string();
    assert_eq!(text.parse::<T>().as_ref(), Ok(&value), "{text}");
    assert_eq!(text.parse::<T>().unwrap().to_string(), text, "canonical");
}

proptest! {
    #![proptest_config(common::config(1))]

    #[test]
    fn weights_survive_printing(milli in 0..=1_000_000_000_u32) {
        same(Weight::from_milli(milli).unwrap());
    }

    #[test]
    fn amounts_survive_printing(ns in 0..=Cap::RATE_MAX, digits in 0..12_u32) {
        same(Amount(ns));
        same(Minimum(ns));
        // Numbers of all sizes, not only large ones.
        same(Amount(ns % 10_u64.pow(digits)));
    }

    #[test]
    fn durations_survive_printing(ns in any::<u64>(), digits in 0..19_u32) {
        same(Duration(ns));
        same(Duration(ns % 10_u64.pow(digits)));
    }

    #[test]
    fn caps_and_shares_survive_printing(
        rate in Cap::RATE_MIN..=Cap::RATE_MAX, burst in prop_oneof![Just(0), 0..=Cap::BURST_MAX],
        milli in 0..=1_000_000_000_u32, minimum in 0..=Cap::RATE_MAX,
    ) {
        let cap = Cap { rate_ns_per_s: rate, burst_ns: burst };
        same(cap);
        prop_assert_eq!(parse_cap(&show_cap(Some(cap))), Ok(Some(cap)));
        same(Share { minimum: Minimum(minimum), ..Share::of(Weight::from_milli(milli).unwrap()) });
        if let Some(fixed) = Fixed::from_ppm(milli % 1_000_001) {
            same(fixed);
            same(Share { minimum: Minimum(minimum), ..Share::fixed(fixed) });
        }
    }

    #[test]
    fn no_text_panics(text in ".{0,40}", words in "[0-9.=%a-z/ ]{0,24}") {
        for text in [text, words] {
            // What is taken prints as something that is taken as the same.
            if let Ok(w) = text.parse::<Weight>() { same(w); }
            if let Ok(a) = text.parse::<Amount>() { same(a); }
            if let Ok(d) = text.parse::<Duration>() { same(d); }
            if let Ok(c) = text.parse::<Cap>() { same(c); }
            if let Ok(s) = text.parse::<Share>() { same(s); }
            let _ = (Name::new(&text), text.parse::<NodePath>(), text.parse::<Class>(), text.parse::<Policy>());
        }
    }
}

#[test]
fn examples() {
    let milli = |text: &str| text.parse::<Weight>().unwrap().milli();
    assert_eq!(milli("24"), 24_000);
    assert_eq!(milli("0.24"), 240);
    assert_eq!(milli("0.001"), 1);
    assert_eq!(milli("1000000"), 1_000_000_000);
    assert_eq!(milli("007.100"), 7_100);
    // Four sites of 0.24 and q0 with 0.04 are exactly one (Eclipse/BSD §3).
    assert_eq!(4 * milli("0.24") + milli("0.04"), 1_000);

    let ns = |text: &str| text.parse::<Amount>().unwrap().0;
    assert_eq!(ns("0"), 0);
    assert_eq!(ns("250ms/s"), 250_000_000);
    assert_eq!(ns("25%"), 250_000_000);
    assert_eq!(ns("0.25cpu"), 250_000_000);
    assert_eq!(ns("1.5cpu"), 1_500_000_000);
    assert_eq!(ns("1.5s/s"), 1_500_000_000);
    assert_eq!(ns("150%"), 1_500_000_000);
    assert_eq!(ns("12us/s"), 12_000);
    assert_eq!(ns("7ns/s"), 7);
    assert_eq!(ns("0.0000001%"), 1);
    assert_eq!(ns("0.000000001cpu"), 1);
    assert_eq!(ns("8192cpu"), Cap::RATE_MAX);

    assert_eq!("20ms".parse(), Ok(Duration(20_000_000)));
    assert_eq!("0.1s".parse(), Ok(Duration(100_000_000)));
    assert_eq!(parse_cap("none"), Ok(None));
    assert_eq!(
        parse_cap(" 50%  burst 20ms "),
        Ok(Some(Cap { rate_ns_per_s: 500_000_000, burst_ns: 20_000_000 }))
    );
    assert_eq!("24".parse(), Ok(Share::of(Weight::from_milli(24_000).unwrap())));
    assert_eq!("24 0".parse(), Ok(Share::of(Weight::from_milli(24_000).unwrap())));
    assert_eq!("1 25%".parse::<Share>().unwrap().minimum, Minimum(250_000_000));
}

#[test]
fn canonical_forms() {
    let show = |text: &str| text.parse::<Amount>().unwrap().to_string();
    assert_eq!(show("25%"), "250ms/s");
    assert_eq!(show("150%"), "1.5cpu");
    assert_eq!(show("1ns/s"), "0.000001ms/s");
    assert_eq!(show("0cpu"), "0");
    assert_eq!("24.500".parse::<Weight>().unwrap().to_string(), "24.5");
    assert_eq!(Duration(1_500_000_000).to_string(), "1.5s");
    assert_eq!("1cpu burst 0.5s".parse::<Cap>().unwrap().to_string(), "1cpu burst 500ms");
    assert_eq!(show_cap(None), "none");
}

/// Text, kind of error, and what the message must hold.
fn refused<T: FromStr<Err = Error> + Debug>(cases: &[(&str, &str)]) {
    for (text, holds) in cases {
        let error = text.parse::<T>().expect_err(text);
        assert!(error.context.contains(holds), "{text:?}: {error}");
        assert!(!error.hint.is_empty(), "{text:?} tells what would be right");
    }
}

#[test]
fn wrong_weights() {
    refused::<Weight>(&[
        ("", "not a weight"),
        ("-1", "\"-1\""),
        ("+1", "\"+1\""),
        ("1.", "\"1.\""),
        (".5", "\".5\""),
        ("1..2", "\"1..2\""),
        ("1e3", "\"1e3\""),
        ("0x10", "\"0x10\""),
        ("1,5", "\"1,5\""),
        ("1_000", "\"1_000\""),
        ("٣", "not a weight"),
        ("0.0001", "finer"),
        ("1000000.001", "too large"),
        ("1000001", "too large"),
        ("18446744073709551616", "too large"),
        ("99999999999999999999999999", "too large"),
        ("=25%", "only a weight"),
        ("heavy", "\"heavy\""),
    ]);
    let fixed = |ppm| Share::fixed(Fixed::from_ppm(ppm).unwrap());
    assert_eq!(
        ["=25%", "=25% 0", "=25.0%"].map(|t| t.parse::<Share>().unwrap()),
        [fixed(250_000); 3]
    );
    assert_eq!(
        ["=0.0001%", "=99.9999%"].map(|t| t.parse::<Share>().unwrap()),
        [fixed(1), fixed(999_999)]
    );
    assert_eq!(fixed(255_000).to_string(), "=25.5% 0");
    refused::<Share>(&[
        ("=0%", "more than nothing"),
        ("=100%", "less than all"),
        ("=0.00001%", "finer"),
        ("=25", "not a fixed share"),
        ("=%", "\"=%\""),
        ("=-1%", "\"=-1%\""),
        ("==25%", "\"==25%\""),
        ("25%", "\"25%\""),
        ("=25% =25%", "\"=25%\""),
    ]);
    assert_eq!(Weight::from_milli(1_000_000_001), None);
    assert!(Weight::try_from(1_000_000_001).is_err());
}

#[test]
fn amounts_of_a_link_are_rates() {
    for (text, bytes) in [
        ("10mbit", 1_250_000),
        ("8kbit", 1000),
        ("1.5mbit", 187_500),
        ("2MB/s", 2_000_000),
        ("400gbit", 50_000_000_000),
    ] {
        let minimum: Minimum = text.parse().unwrap();
        assert_eq!(
            (minimum.is_link(), minimum.per_second(), minimum.to_string().as_str()),
            (true, bytes, text)
        );
        let cap: Cap = text.parse().unwrap();
        assert_eq!(
            (cap.is_link(), cap.per_second(), cap.to_string().as_str()),
            (true, bytes, text)
        );
    }
    assert_eq!("10mbit burst 5ms".parse::<Cap>().unwrap().to_string(), "10mbit burst 5ms");
    assert!(!"1.5cpu".parse::<Cap>().unwrap().is_link());
    for bad in ["7kbit", "1bit", "bit", "10mbits", "1e3mbit"] {
        assert!(bad.parse::<Minimum>().is_err(), "{bad}");
    }
}

#[test]
fn wrong_amounts() {
    refused::<Amount>(&[
        ("", "not an amount"),
        ("250", "no unit"),
        ("0.5", "no unit"),
        ("00", "no unit"),
        ("250ms", "\"250ms\""),
        ("ms/s", "\"ms/s\""),
        ("1 cpu", "\"1 cpu\""),
        ("1CPU", "\"1CPU\""),
        ("-1cpu", "\"-1cpu\""),
        ("1.0000000001cpu", "finer"),
        ("1.5ns/s", "finer"),
        ("8192.000000001cpu", "more than 8192"),
        ("9999999999999999999cpu", "too large"),
    ]);
    refused::<Duration>(&[
        ("20", "no unit"),
        ("s", "\"s\""),
        ("1m", "\"1m\""),
        ("0.1ns", "finer"),
        ("", "not a"),
    ]);
}

#[test]
fn wrong_caps_and_shares() {
    refused::<Cap>(&[
        ("", "nothing"),
        ("0", "a cap of 0"),
        ("0.9ms/s", "a cap of 0.9ms/s"),
        ("1cpu burst", "without a duration"),
        ("1cpu 20ms", "\"20ms\""),
        ("1cpu burst 20ms more", "\"more\""),
        ("1cpu burst 10.1s", "a burst of 10.1s"),
        ("1cpu burst 20", "no unit"),
        ("none", "\"none\""),
        ("none none", "\"none\""),
    ]);
    refused::<Share>(&[
        ("", "nothing"),
        ("1 2", "no unit"),
        ("1 0 0", "\"0\" after"),
        ("x 0", "\"x\""),
        ("1 0 x", "\"x\""),
    ]);
    refused::<Class>(&[("TS", "\"TS\""), ("", "\"\""), ("scan_edf", "\"scan_edf\"")]);
    refused::<Policy>(&[("ts", "\"ts\""), ("wf3q", "\"wf3q\"")]);
}

#[test]
fn a_message_never_carries_what_it_quotes_raw() {
    let error = "\u{1b}[2J\n\0".parse::<Weight>().unwrap_err();
    assert!(!error.context.chars().any(char::is_control), "{error:?}");
    let long = "9".repeat(100_000);
    assert!(long.parse::<Weight>().unwrap_err().context.len() < 400);
}

#[test]
fn words_and_numbers_of_kinds() {
    for (number, class) in (0..).zip(Class::ALL) {
        assert_eq!((*class as u8, class.word().parse()), (number, Ok(*class)));
        assert_eq!(serde_json::to_string(class).unwrap(), format!("\"{class}\""));
    }
    // The core's numbers.
    let mut numbers = Vec::new();
    for policy in Policy::ALL {
        assert_eq!(policy.word().parse(), Ok(*policy));
        numbers.push(*policy as u8);
    }
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
}
