// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is answered. Keys are only added: who reads an answer ignores those that it does not know.

use std::collections::BTreeMap;

use reserv_model::{Config, Name};
use serde::{Deserialize, Serialize};

/// Who answers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Version {
    /// Of reservd.
    pub version: String,
    /// The worker.
    pub pid: u32,
    /// Where its files are.
    pub mount: String,
    /// Device number of its files, as `stat(2)` has it; 0: they are not mounted yet.
    pub device: u64,
}

/// What is or would be changed, in words.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Changes {
    /// One for each.
    pub changes: Vec<String>,
}

/// What runs.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Saved {
    /// Without the resources that are missing.
    pub config: Config,
    /// Resources that gave no answer in time, and why.
    #[serde(default)]
    pub missing: BTreeMap<Name, String>,
}

/// All of it has been given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Stopped {
    /// True.
    pub stopped: bool,
}

/// What there is by a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Kind {
    /// Or a file.
    pub directory: bool,
    /// Its inode number, which says what it is (`reserv_facts::ino`).
    pub inode: u64,
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Text {
    /// All of it.
    pub text: String,
}

/// A directory.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Names {
    /// Names of what is no directory.
    pub files: Vec<String>,
    /// Names of directories.
    pub directories: Vec<String>,
    /// The inode number of each directory, in their order.
    pub inodes: Vec<u64>,
}

/// The change has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Done {
    /// True.
    pub done: bool,
}

impl Done {
    /// It has.
    pub const DONE: Self = Self { done: true };
}

/// Why something was refused.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Refused {
    /// As in errno(3).
    pub errno: i32,
    /// In words.
    pub text: String,
    /// What would be right; empty where nothing is known.
    #[serde(default)]
    pub hint: String,
}

/// A line that refuses.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Refusal {
    pub(crate) error: Refused,
}

impl Refused {
    /// As it is said.
    pub fn line(self) -> serde_json::Value {
        serde_json::json!(Refusal { error: self })
    }
}
