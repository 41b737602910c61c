// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules at work: who is considered when, and what becomes of him.

use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reserv_model::{NodeId, Rule};
use reserv_namespace::Resource;
use reserv_plane::{List, Target};

use super::slot::Had;
use super::{Core, Refusal, lock};
use crate::aside::Looker;
use crate::events::Subscription;
use crate::process;
use crate::rules::{Facts, Names, Rules};

/// How long a rule waits for a resource that is not the CPU.
const RULE_MAX: Duration = Duration::from_secs(2);

/// How processes are watched.
pub(super) struct Watch {
    rules: Mutex<Rules>,
    how: Mutex<How>,
    /// Looks at processes, which may block.
    looker: Looker,
    names: Arc<Names>,
}

struct How {
    word: &'static str,
    /// Where process events are asked for, if they come.
    events: Option<Subscription>,
}

impl Watch {
    pub(super) fn new(rules: &[Rule]) -> Self {
        let mut watched = Rules::default();
        watched.set(rules);
        Self {
            rules: Mutex::new(watched),
            how: Mutex::new(How { word: "none", events: None }),
            looker: Looker::default(),
            names: Arc::default(),
        }
    }
}

/// Both lists of a process, by a rule.
fn set_lists(held: &mut Had, pid: i32, rule: &Rule) -> Result<Option<NodeId>, Refusal> {
    let engine = &mut held.engine;
    let name = engine.tree().root().name.clone();
    let Some(path) = rule.queue(name.as_str()) else { return Ok(None) };
    let queue = engine.tree().resolve(path)?;
    engine.plane_mut().set_default(pid, List::Default, queue)?;
    engine.plane_mut().set_default(pid, List::Child, queue)?;
    Ok(Some(queue))
}

impl Core {
    /// How processes are watched, in a word.
    pub fn watched(&self) -> &'static str {
        lock(&self.watch.how).word
    }

    /// From now on processes are watched so.
    pub fn watch(&self, events: Option<Subscription>) {
        let word = if events.is_some() { "events" } else { "scan" };
        *lock(&self.watch.how) = How { word, events };
        self.listen();
    }

    /// Whether there are rules, and whether they need scans beside events.
    pub fn has_rules(&self) -> (bool, bool) {
        let rules = lock(&self.watch.rules);
        let (some, need) = (!rules.is_empty(), rules.need_scan());
        drop(rules);
        (some, need || lock(&self.watch.how).events.is_none())
    }

    /// These rules are in force; processes are considered anew.
    pub(super) fn enforce(&self, rules: &[Rule]) {
        *lock(&self.rules) = Arc::new(rules.to_vec());
        lock(&self.watch.rules).set(rules);
        self.listen();
    }

    /// Process events come as long as there are rules. A scan afterwards sees what happened before.
    fn listen(&self) {
        let on = !lock(&self.watch.rules).is_empty();
        let mut how = lock(&self.watch.how);
        if let Some(events) = &mut how.events
            && let Err(error) = events.listen(on)
        {
            tracing::warn!(%error, "process events cannot be asked for; scanning");
            *how = How { word: "scan", events: None };
        }
    }

    /// Applies the rules to processes, of which all is asked before anything is locked.
    pub fn consider(&self, pids: &[i32]) {
        if lock(&self.watch.rules).is_empty() {
            return;
        }
        let names = self.watch.names.clone();
        for (pid, facts) in self.watch.looker.each(pids, move |pid| Facts::of(pid, &names)) {
            self.consider_one(pid, &facts);
        }
    }

    fn consider_one(&self, pid: i32, facts: &Facts) {
        if pid == std::process::id().cast_signed() {
            return;
        }
        // What was asked was asked of this one.
        if facts.held.as_ref().is_some_and(|held| process::require_alive(held.as_fd(), pid).is_err()) {
            return;
        }
        let Ok(cpu) = self.cpu() else { return };
        let Ok(now) = cpu.plane().tag_of(pid) else { return };
        drop(cpu);
        let (turn, considered) = {
            let mut rules = lock(&self.watch.rules);
            (rules.turn(), rules.consider(pid, facts, now.pack(), NodeId::Q0.pack()))
        };
        let Some((number, rule)) = considered else { return };
        match self.apply_rule(pid, now, &rule) {
            Ok(queue) => {
                let mut rules = lock(&self.watch.rules);
                if rules.turn() == turn {
                    rules.applied(pid, facts, number, queue.unwrap_or(now).pack());
                }
            }
            Err(error) => tracing::debug!(pid, %error, "a rule was not applied"),
        }
    }

    /// Both lists, as `reserv run` does: what the process starts stays with it; and the tag of its
    /// threads, which is answered. A rule begins with the CPU, and waits for it; of another
    /// resource that does not answer it is tried again.
    fn apply_rule(&self, pid: i32, now: NodeId, rule: &Rule) -> Result<Option<NodeId>, Refusal> {
        let mut tagged = None;
        for slot in self.slots().values().filter(|slot| rule.queue(slot.name.as_str()).is_some()) {
            if slot.resource == Resource::CPU {
                let mut held = slot.held()?;
                if let Some(path) = rule.queue(slot.name.as_str()) {
                    let queue = held.engine.tree().resolve(path)?;
                    if held.engine.plane().tag_of(pid)? != now {
                        return Err(Refusal::new(libc::EAGAIN, "somebody has tagged it meanwhile"));
                    }
                    held.engine.tag(Target::Process(pid), queue, None)?;
                    tagged = Some(queue);
                }
                set_lists(&mut held, pid, rule)?;
            } else {
                let rule = rule.clone();
                slot.ask(RULE_MAX, move |held| set_lists(held, pid, &rule))??;
            }
        }
        Ok(tagged)
    }

    /// Applies the rules to all processes.
    pub fn scan(&self) {
        if lock(&self.watch.rules).is_empty() {
            return;
        }
        let living = process::all();
        lock(&self.watch.rules).retain(&living);
        self.consider(&living);
    }
}
