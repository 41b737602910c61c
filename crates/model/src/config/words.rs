// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shares, caps, tunables and access entries in a configuration: in the words that their files in
//! /reserv have.

use std::fmt;

use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serializer};

use crate::error::quoted;
use crate::{
    AccessChange, Cap, Error, ErrorKind, QUOTA_DEFAULT, Right, Share, Tune, Verb, parse_bytes,
    parse_cap, parse_tune, show_bytes, show_cap, tune_text,
};

pub(super) fn write_share<S: Serializer>(share: &Share, out: S) -> Result<S::Ok, S::Error> {
    if share.minimum.0 == 0 { out.collect_str(&share.part()) } else { out.collect_str(share) }
}

#[expect(clippy::ref_option, reason = "serde's signature")]
pub(super) fn write_cap<S: Serializer>(cap: &Option<Cap>, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&show_cap(*cap))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
pub(super) fn write_bytes<S: Serializer>(bytes: &u32, out: S) -> Result<S::Ok, S::Error> {
    out.collect_str(&show_bytes(*bytes))
}

pub(super) fn read_bytes<'de, D: Deserializer<'de>>(input: D) -> Result<u32, D::Error> {
    input.deserialize_any(Text(
        "a number of bytes: \"200kB\", \"128KiB\" or an integer",
        parse_bytes,
    ))
}

pub(super) fn write_tune<S: Serializer>(tune: &Tune, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&tune_text(tune))
}

#[expect(clippy::ref_option, reason = "serde's signature")]
pub(super) fn write_some_tune<S: Serializer>(
    tune: &Option<Tune>,
    out: S,
) -> Result<S::Ok, S::Error> {
    out.serialize_str(&tune.as_ref().map(tune_text).unwrap_or_default())
}

pub(super) fn write_access<S: Serializer>(
    access: &[AccessChange],
    out: S,
) -> Result<S::Ok, S::Error> {
    out.collect_seq(access.iter().map(ToString::to_string))
}

/// An entry of root's: what a configuration can say. Processes do not outlive one.
fn access_of(text: &str) -> Result<AccessChange, Error> {
    let mut change: AccessChange = text.parse()?;
    let wrong = |why: &str| Err(Error::new(ErrorKind::Invalid, format!("{}: {why}", quoted(text))));
    if change.verb == Verb::Remove || change.by != 0 {
        return wrong("a configuration has entries of root's that allow or deny");
    }
    if change.party.process.is_some() {
        return wrong("a process does not outlive a configuration")
            .map_err(|e| e.hint("name a uid or a gid"));
    }
    if change.verb == Verb::Allow && change.rights.has(Right::Create) {
        change.quota = change.quota.or(Some(QUOTA_DEFAULT));
    }
    Ok(change)
}

pub(super) fn read_access<'de, D: Deserializer<'de>>(
    input: D,
) -> Result<Vec<AccessChange>, D::Error> {
    use serde::de::Error as _;
    let texts = Vec::<String>::deserialize(input)?;
    let one = |text: &String| {
        access_of(text).map_err(|e| D::Error::custom(format_args!("{e} ({})", e.hint)))
    };
    texts.iter().map(one).collect()
}

#[expect(clippy::ref_option, reason = "serde's signature")]
pub(super) fn write_some_access<S: Serializer>(
    access: &Option<Vec<AccessChange>>,
    out: S,
) -> Result<S::Ok, S::Error> {
    write_access(access.as_deref().unwrap_or_default(), out)
}

pub(super) fn read_some_access<'de, D: Deserializer<'de>>(
    input: D,
) -> Result<Option<Vec<AccessChange>>, D::Error> {
    read_access(input).map(Some)
}

fn tune_of(text: &str) -> Result<Tune, Error> {
    if text.trim_ascii().is_empty() {
        return Ok(Tune::new());
    }
    Ok(parse_tune(text)?.into_iter().filter_map(|(key, value)| Some((key, value?))).collect())
}

pub(super) fn read_tune<'de, D: Deserializer<'de>>(input: D) -> Result<Tune, D::Error> {
    input.deserialize_any(Text("tunables: \"quantum 4ms lag 20ms\"", tune_of))
}

pub(super) fn read_some_tune<'de, D: Deserializer<'de>>(
    input: D,
) -> Result<Option<Tune>, D::Error> {
    read_tune(input).map(Some)
}

pub(super) fn read_share<'de, D: Deserializer<'de>>(input: D) -> Result<Share, D::Error> {
    input.deserialize_any(Text("a share: \"24\", \"0.24 0\", \"=25%\" or an integer", |t: &str| {
        t.parse()
    }))
}

pub(super) fn read_cap<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Cap>, D::Error> {
    input.deserialize_any(Text("a cap: \"1.5cpu\", \"250ms/s burst 20ms\" or \"none\"", parse_cap))
}

/// A value given as text; an integer counts as its digits.
struct Text<F>(&'static str, F);

impl<T, F: Fn(&str) -> Result<T, Error>> Visitor<'_> for Text<F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        self.1(text).map_err(|e| E::custom(format_args!("{e} ({})", e.hint)))
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<T, E> {
        match u64::try_from(number) {
            Ok(n) => self.visit_u64(n),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(number), &self)),
        }
    }
}
