// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `status` tells.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reserv_model::Name;
use reserv_namespace::render_status;
use serde::Serialize;

use super::slot::Slot;
use super::{Core, Refusal, SHORT, lock, stopped};
use crate::held::ResourceState;

/// How long `status` waits for all resources together.
const STATUS_MAX: Duration = Duration::from_millis(700);

/// Something refused, for people who ask why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// Who asked.
    pub uid: u32,
    /// What was asked, as a path below the mount.
    pub what: String,
    /// Name of the errno.
    pub errno: i32,
    /// Why.
    pub text: String,
    /// What would be right.
    pub hint: String,
    /// Since the worker started, in ms.
    pub at_ms: u64,
}

/// All that `status` tells; the file is its text, the control socket gives it as JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Of reservd.
    pub version: &'static str,
    /// The worker.
    pub pid: u32,
    /// By name.
    pub resources: BTreeMap<Name, ResourceState>,
    /// Rules in force.
    pub rules: usize,
    /// How processes are watched for them: `events`, `scan`, `none`.
    pub watch: &'static str,
    /// The last refusals, newest last.
    pub refusals: Vec<Refused>,
}

impl Core {
    /// For the file and the control socket. What a resource told last stands there if it does not
    /// answer in time.
    pub fn status(&self) -> Result<Status, Refusal> {
        let slots = self.slots();
        if slots.is_empty() {
            return Err(stopped());
        }
        let until = Instant::now() + STATUS_MAX;
        let shown: Vec<Arc<Slot>> =
            slots.values().filter(|slot| slot.is_shown()).cloned().collect();
        let asked: Vec<_> =
            shown.iter().map(|slot| slot.begin(SHORT, |held| held.state())).collect();
        let mut resources = BTreeMap::new();
        for (slot, asked) in shown.iter().zip(asked) {
            let answer = match asked {
                Ok(asked) => asked.answer(until.saturating_duration_since(Instant::now())),
                // No thread is to be had: here, as long as that takes.
                Err(_) => slot.held_within(SHORT).map(|held| held.state()),
            };
            let mut state = match answer {
                Ok(state) => {
                    slot.keep(&state);
                    state
                }
                Err(refusal) => ResourceState::late(slot.last(), slot.on().as_ref(), &refusal),
            };
            state.limits.extend(slot.out_of_place());
            resources.insert(slot.name.clone(), state);
        }
        Ok(Status {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            resources,
            rules: self.rules().len(),
            watch: self.watched(),
            refusals: lock(&self.refusals).all(),
        })
    }
}

impl Status {
    /// The text of the `status` file for a user (`None`: root): the name space's lines, then what
    /// only the daemon knows. What others were refused, and which of their nodes lack something, is
    /// told to root.
    pub fn text(&self, user: Option<u32>) -> String {
        let shown: Vec<_> =
            self.resources.iter().map(|(name, state)| state.shown(name.as_str())).collect();
        let mut out = render_status(self.version, &shown);
        for (name, state) in &self.resources {
            out.push_str(&state.more(name.as_str(), user.is_none()));
        }
        let _ = writeln!(out, "rules {}\nwatch {}", self.rules, self.watch);
        for r in self.refusals.iter().filter(|r| user.is_none_or(|user| user == r.uid)) {
            // One line each, whatever names and words hold.
            let mut line = format!("{} ms: uid {}: {}: {}", r.at_ms, r.uid, r.what, r.text);
            if !r.hint.is_empty() {
                let _ = write!(line, " ({})", r.hint);
            }
            let _ = writeln!(out, "refused {}", line.replace(char::is_control, " "));
        }
        out
    }
}
