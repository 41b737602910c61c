// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of nodes and paths of names.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::quoted;
use crate::{DEPTH_MAX, Error, ErrorKind};

/// Longest name, in bytes.
pub const NAME_MAX: usize = 64;

/// Names that no node may have, because a file of a reservation directory has or will have them.
pub const RESERVED_NAMES: [&str; 16] = [
    "share", "shares", "policy", "newqueue", "newsched", "stat", "cap", "tune", "gc", "access",
    "backlog", "dropped", "class", "members", "state", "mk",
];

/// A node's name: 1 to [`NAME_MAX`] bytes of `[A-Za-z0-9._-]`, not starting with a dot, not
/// reserved.
///
/// Ordered as people count: `q2` before `q10`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

impl Name {
    /// Checks the rules above.
    pub fn new(text: &str) -> Result<Self, Error> {
        let bad = |why: &str| {
            Err(Error::new(ErrorKind::Invalid, format!("{} {why}", quoted(text)))
                .hint("a name is 1 to 64 of A-Z a-z 0-9 . _ - and does not start with a dot"))
        };
        if text.len() > NAME_MAX {
            return Err(Error::new(
                ErrorKind::NameTooLong,
                format!("{} has {} bytes, a name at most {NAME_MAX}", quoted(text), text.len()),
            ));
        }
        if text.is_empty() {
            return bad("is an empty name");
        }
        if text.starts_with('.') {
            return bad("starts with a dot");
        }
        if let Some(c) =
            text.chars().find(|&c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')))
        {
            return bad(&format!("holds {}, which no name may", quoted(&c.to_string())));
        }
        if RESERVED_NAMES.contains(&text) {
            return bad("is the name of a file in every reservation");
        }
        Ok(Self(text.to_owned()))
    }

    /// The `number`th name of its kind: `q3`, `r0` (Eclipse/BSD §2.3).
    pub fn numbered(letter: char, number: u32) -> Self {
        debug_assert!(letter.is_ascii_alphabetic(), "a letter makes a name");
        Self(format!("{letter}{number}"))
    }

    /// The number in a numbered name: `number_after('q')` of `q3` is 3; `q03` and `q3x` have none.
    pub fn number_after(&self, letter: char) -> Option<u32> {
        let digits = self.0.strip_prefix(letter)?;
        let canonical = digits == "0" || !digits.starts_with('0');
        if !canonical || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        digits.parse().ok()
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        natural(self.0.as_bytes(), other.0.as_bytes()).then_with(|| self.0.cmp(&other.0))
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Runs of digits compare as numbers, all else by bytes. No other character of a name stands
/// between `0` and `9`, hence the order is transitive.
fn natural(mut a: &[u8], mut b: &[u8]) -> Ordering {
    fn digits(s: &[u8]) -> (&[u8], &[u8]) {
        s.split_at(s.iter().position(|c| !c.is_ascii_digit()).unwrap_or(s.len()))
    }
    fn value(s: &[u8]) -> &[u8] {
        &s[s.iter().position(|&c| c != b'0').unwrap_or(s.len())..]
    }
    loop {
        let (Some(&x), Some(&y)) = (a.first(), b.first()) else { return a.len().cmp(&b.len()) };
        let order = if x.is_ascii_digit() && y.is_ascii_digit() {
            let ((da, ra), (db, rb)) = (digits(a), digits(b));
            (a, b) = (ra, rb);
            let (va, vb) = (value(da), value(db));
            va.len().cmp(&vb.len()).then_with(|| va.cmp(vb))
        } else {
            (a, b) = (&a[1..], &b[1..]);
            x.cmp(&y)
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for Name {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        Self::new(text)
    }
}

impl TryFrom<String> for Name {
    type Error = Error;
    fn try_from(text: String) -> Result<Self, Error> {
        Self::new(&text)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

/// Names from a resource's root down to a node: `web/site1`; empty for the root itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodePath(Vec<Name>);

impl NodePath {
    /// The resource's root.
    pub const fn root() -> Self {
        Self(Vec::new())
    }

    /// From root to node.
    pub fn names(&self) -> &[Name] {
        &self.0
    }

    /// Path of the parent and last name; `None` for the root.
    pub fn split_last(&self) -> Option<(Self, &Name)> {
        let (name, parents) = self.0.split_last()?;
        Some((Self(parents.to_vec()), name))
    }

    /// Whether it is one of these, or below one.
    pub fn is_within<T>(&self, all: &BTreeMap<Self, T>) -> bool {
        let mut at = Some(self.clone());
        while let Some(here) = at {
            if all.contains_key(&here) {
                return true;
            }
            at = here.split_last().map(|(above, _)| above);
        }
        false
    }

    /// One level deeper.
    #[must_use]
    pub fn join(&self, name: Name) -> Self {
        let mut names = self.0.clone();
        names.push(name);
        Self(names)
    }

    /// Whether this is the resource's root.
    pub const fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<Name> for NodePath {
    fn from_iter<T: IntoIterator<Item = Name>>(names: T) -> Self {
        Self(names.into_iter().collect())
    }
}

impl FromStr for NodePath {
    type Err = Error;
    /// Names with one `/` between two; the empty text is the root.
    fn from_str(text: &str) -> Result<Self, Error> {
        if text.is_empty() {
            return Ok(Self::root());
        }
        let mut names = Vec::new();
        for word in text.split('/') {
            if names.len() + 1 == DEPTH_MAX {
                return Err(Error::new(
                    ErrorKind::TooDeep,
                    format!("{} has more than {DEPTH_MAX} levels", quoted(text)),
                ));
            }
            names.push(Name::new(word).map_err(|e| e.at(quoted(text)))?);
        }
        Ok(Self(names))
    }
}

impl fmt::Display for NodePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, name) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("/")?;
            }
            f.write_str(name.as_str())?;
        }
        Ok(())
    }
}

impl TryFrom<String> for NodePath {
    type Error = Error;
    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<NodePath> for String {
    fn from(path: NodePath) -> Self {
        path.to_string()
    }
}
