// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is asked.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hasher as _};

use reserv_model::{Config, Name, Personality, Rule, Source};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Numbers of changes that a client chooses are below it.
pub const NUMBER_END: u64 = 1 << 61;

/// What is no file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "request", rename_all = "lowercase", deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are those of the lines at the head of this crate")]
// The braces: of a variant without them serde would let unknown fields pass.
pub enum Command {
    /// Who answers.
    Version {},
    /// What reservd says of itself.
    Status {},
    /// What is to run.
    Up(Up),
    /// What runs, as a configuration.
    Save {},
    /// The rules of the configuration.
    Rules {},
    /// Give all back, or one resource.
    Down {
        #[serde(skip_serializing_if = "Option::is_none")]
        resource: Option<Name>,
    },
    /// Put this version's programs in the place of another's.
    Upgrade { resource: Name },
}

/// What is to run: a configuration, or what changes of the one that runs.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Up {
    /// All of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Box<Config>>,
    /// Makes new nodes, and the roots, its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub personality: Option<Personality>,
    /// The rules as the asking one saw them: refused (EAGAIN) where they are others by now. Of a
    /// configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules_were: Option<Vec<Rule>>,
    /// Resources that come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<BTreeMap<Name, Source>>,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
    /// What happens to members.
    #[serde(default)]
    pub mode: Mode,
}

/// What happens to members of queues that a configuration leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// With members the queue stays, and the whole is refused.
    #[default]
    Refuse,
    /// The queue goes with its last member.
    Drain,
    /// They go to q0.
    Flush,
}

/// A file operation. Paths are below the mount point: `cpu/web/share`; the mount itself is the
/// empty path.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(tag = "request", rename_all = "lowercase", deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are those of the lines at the head of this crate")]
pub enum Ask {
    /// Whether it is a directory.
    Kind { path: String },
    /// All of a file.
    Read { path: String },
    /// A directory.
    List { path: String },
    /// One write to a file.
    Write {
        path: String,
        text: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        number: Option<u64>,
        #[serde(default, skip_serializing_if = "is_false")]
        again: bool,
    },
    /// A scheduler node, as mkdir makes it.
    Mkdir {
        path: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        number: Option<u64>,
        #[serde(default, skip_serializing_if = "is_false")]
        again: bool,
    },
    /// A node goes.
    Rmdir {
        path: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        number: Option<u64>,
        #[serde(default, skip_serializing_if = "is_false")]
        again: bool,
    },
    /// A node is renamed or moved. Nothing is replaced.
    Rename {
        from: String,
        to: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        number: Option<u64>,
        #[serde(default, skip_serializing_if = "is_false")]
        again: bool,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// Of no other change, of whomever: the hasher's keys are the system's random bytes.
fn number() -> u64 {
    std::hash::RandomState::new().build_hasher().finish() % NUMBER_END
}

impl Ask {
    /// Whether a request of the control socket is one of these.
    pub fn is(value: &Value) -> bool {
        let words = ["kind", "read", "list", "write", "mkdir", "rmdir", "rename"];
        value.get("request").and_then(Value::as_str).is_some_and(|word| words.contains(&word))
    }

    /// See [`Ask::Kind`].
    pub fn kind(path: impl Into<String>) -> Self {
        Self::Kind { path: path.into() }
    }

    /// See [`Ask::Read`].
    pub fn read(path: impl Into<String>) -> Self {
        Self::Read { path: path.into() }
    }

    /// See [`Ask::List`].
    pub fn list(path: impl Into<String>) -> Self {
        Self::List { path: path.into() }
    }

    /// See [`Ask::Write`]; a number of its own, as with the other changes.
    pub fn write(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self::Write { path: path.into(), text: text.into(), number: Some(number()), again: false }
    }

    /// See [`Ask::Rmdir`].
    pub fn rmdir(path: impl Into<String>) -> Self {
        Self::Rmdir { path: path.into(), number: Some(number()), again: false }
    }

    /// See [`Ask::Rename`].
    pub fn rename(from: impl Into<String>, to: impl Into<String>) -> Self {
        Self::Rename { from: from.into(), to: to.into(), number: Some(number()), again: false }
    }

    /// Marks a change that has a number: it may have happened.
    pub(crate) fn asked_again(&mut self) {
        match self {
            Self::Write { number: Some(_), again, .. }
            | Self::Mkdir { number: Some(_), again, .. }
            | Self::Rmdir { number: Some(_), again, .. }
            | Self::Rename { number: Some(_), again, .. } => *again = true,
            _ => {}
        }
    }

    /// Whether it changes something.
    pub fn is_change(&self) -> bool {
        !matches!(self, Self::Kind { .. } | Self::Read { .. } | Self::List { .. })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_number_comes_twice() {
        let numbers: std::collections::BTreeSet<u64> = (0..1000).map(|_| number()).collect();
        assert!(numbers.len() == 1000 && numbers.iter().all(|number| *number < NUMBER_END));
    }

    #[test]
    fn requests_are_the_lines_that_are_documented() {
        let mut write =
            Ask::Write { path: "cpu/a".into(), text: "1".into(), number: Some(7), again: false };
        assert_eq!(
            json!(write),
            json!({"request": "write", "path": "cpu/a", "text": "1", "number": 7})
        );
        write.asked_again();
        assert_eq!(json!(write)["again"], true);
        let mut read = Ask::read("cpu/a");
        read.asked_again();
        assert_eq!(json!(read), json!({"request": "read", "path": "cpu/a"}));
        assert_eq!(json!(Command::Save {}), json!({"request": "save"}));
        assert_eq!(
            json!(Command::Up(Up::default())),
            json!({"request": "up", "dry_run": false, "mode": "refuse"})
        );
        for ask in
            [Ask::kind(""), read, Ask::list("cpu"), write, Ask::rmdir("a"), Ask::rename("a", "b")]
        {
            assert!(Ask::is(&json!(ask)));
            assert_eq!(serde_json::from_value::<Ask>(json!(ask)).unwrap(), ask);
        }
        assert!(!Ask::is(&json!(Command::Status {})));
        for wrong in [
            json!({"request": "read", "path": "a", "x": 1}),
            json!({"request": "save", "x": 1}),
            json!({"request": "upgrade"}),
            json!({"request": "up", "x": 1}),
        ] {
            assert!(serde_json::from_value::<Ask>(wrong.clone()).is_err());
            assert!(serde_json::from_value::<Command>(wrong).is_err());
        }
    }
}
