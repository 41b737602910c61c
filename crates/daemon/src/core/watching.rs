// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules at work: who is considered when, and what becomes of him.

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reserv_model::{NewKind, NodeId, NodeRef, Request, Rule, RulePlace, Share, Weight};
use reserv_namespace::Resource;
use reserv_plane::{List, Target};

use super::slot::{Had, Slot};
use super::{Core, Refusal, SHORT, Slots, lock};
use crate::aside::Looker;
use crate::events::Subscription;
use crate::process;
use crate::rules::{Facts, Names, Rules};

/// How long a rule waits for a resource.
const RULE_MAX: Duration = Duration::from_secs(2);

/// How processes are watched.
pub(super) struct Watch {
    rules: Mutex<Rules>,
    how: Mutex<How>,
    /// Looks at processes, which may block.
    looker: Looker,
    /// Looks at what an exec does not hold up of those at whom the other cannot.
    at_once: Looker,
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
            at_once: Looker::default(),
            names: Arc::default(),
        }
    }
}

/// What a rule has for a process: the rule, and the name of the process's user.
type Fit = (Rule, Option<String>);

/// The queue that a rule has in a resource; one for each user is made when the first of his comes.
fn queue_of(held: &mut Had, (rule, user): &Fit) -> Result<NodeId, Refusal> {
    let tree = held.engine.tree();
    let place = rule.place(tree.root().name.as_str()).ok_or_else(Refusal::gone)?;
    let path = place.of(user.as_deref()).ok_or_else(Refusal::gone)?;
    let known = tree.resolve(&path);
    let (Err(_), RulePlace::EachUser(above), Some((_, name))) = (&known, place, path.split_last())
    else {
        return Ok(known?);
    };
    let parent = tree.resolve(above)?.into();
    let (name, kind) = (Some(name.clone()), NewKind::Queue(None));
    let share = Some(Share::of(Weight::DEFAULT));
    let wanted = [
        Request::Create { parent, name, kind, share },
        Request::SetGc { node: NodeRef::Path(path), gc: true },
    ];
    held.engine.edit(&wanted, None)?.created.first().copied().ok_or_else(Refusal::gone)
}

/// Both lists of a process.
fn set_lists(held: &mut Had, pid: i32, queue: NodeId) -> Result<(), Refusal> {
    let engine = &mut held.engine;
    engine.plane_mut().set_default(pid, List::Default, queue)?;
    engine.plane_mut().set_default(pid, List::Child, queue)?;
    Ok(())
}

/// The same by a rule, in the queue that it has there.
fn set_lists_by_rule(held: &mut Had, pid: i32, fit: &Fit) -> Result<(), Refusal> {
    let queue = queue_of(held, fit)?;
    set_lists(held, pid, queue)
}

/// The tag of its threads too, where it is still in the queue in which it was considered.
fn tag_by_rule(held: &mut Had, (pid, now): (i32, NodeId), fit: &Fit) -> Result<NodeId, Refusal> {
    if held.engine.plane().tag_of(pid)? != now {
        return Err(Refusal::new(libc::EAGAIN, "somebody has tagged it meanwhile"));
    }
    let queue = queue_of(held, fit)?;
    held.engine.tag(Target::Process(pid), queue, None)?;
    set_lists(held, pid, queue)?;
    Ok(queue)
}

/// [`set_lists_by_rule`] where the process has none of its own for this resource.
fn set_fresh_lists(held: &mut Had, pid: i32, fit: &Fit) -> Result<(), Refusal> {
    let lists = held.engine.plane().defaults(pid)?;
    if lists.default != NodeId::Q0 || lists.child != NodeId::Q0 {
        return Ok(());
    }
    set_lists_by_rule(held, pid, fit)
}

impl Core {
    /// How processes are watched, in a word.
    pub fn watched(&self) -> &'static str {
        lock(&self.watch.how).word
    }

    /// By process: the rule that put it where it was left, by its number, and that queue of the
    /// CPU. It may have been moved since. `None`: the CPU's tree is somebody's for longer than we
    /// wait.
    pub fn applied_rules(&self) -> Option<BTreeMap<i32, (usize, String)>> {
        let numbers: Vec<usize> = (1..)
            .zip(self.rules().iter())
            .filter(|(_, rule)| rule.conditions.packets().is_none())
            .map(|(number, _)| number)
            .collect();
        let put: Vec<_> = lock(&self.watch.rules).put().collect();
        let Ok(slot) = self.slot(Resource::CPU) else { return Some(BTreeMap::new()) };
        let held = slot.held_within(SHORT).ok()?;
        let known = |(pid, rule, queue): (i32, usize, u64)| {
            let queue = held.engine.tree().get(NodeId::unpack(queue))?.id;
            Some((pid, (*numbers.get(rule)?, held.engine.tree().shown(queue))))
        };
        Some(put.into_iter().filter_map(known).collect())
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

    /// Applies the rules to processes, of which all is asked before anything is locked. Never to
    /// this one: who looks is a new thread, and the kernel tells that it was given a name, so a
    /// look at ourselves would be followed by the next one for ever.
    pub fn consider(&self, pids: &[i32]) {
        let own = std::process::id().cast_signed();
        let others: Vec<i32> = pids.iter().copied().filter(|pid| *pid != own).collect();
        if others.is_empty() || lock(&self.watch.rules).is_empty() {
            return;
        }
        let (names, groups) = (self.watch.names.clone(), lock(&self.watch.rules).groups_named());
        let (known, ruled) = (names.clone(), groups.clone());
        let looked = self.watch.looker.each(&others, move |pid| Facts::of(pid, &names, &groups));
        for (pid, facts) in looked.seen {
            self.consider_one(pid, &facts);
        }
        // Who blocks waits until he goes on; others of his user, and who finds no room, do not.
        let beside: Vec<i32> = looked.beside.into_iter().chain(looked.without_room).collect();
        let at_once = move |pid| Facts::at_once(pid, &known, &ruled);
        for (pid, facts) in self.watch.at_once.each(&beside, at_once).seen {
            self.consider_one(pid, &facts);
        }
        lock(&self.watch.rules).owe(looked.blocking.into_iter().chain(beside));
    }

    fn consider_one(&self, pid: i32, facts: &Facts) {
        // What was asked was asked of this one.
        if facts
            .held
            .as_ref()
            .is_some_and(|held| process::require_alive(held.as_fd(), pid).is_err())
        {
            return;
        }
        let asked = self
            .slot(Resource::CPU)
            .and_then(|cpu| cpu.ask(RULE_MAX, move |held| held.engine.plane().tag_of(pid)));
        let now = match asked {
            Ok(Ok(now)) => now,
            Ok(Err(_)) => return,
            Err(refusal) => {
                tracing::debug!(pid, %refusal, "a rule goes on without the CPU");
                return self.consider_without_cpu(pid, facts);
            }
        };
        let (turn, considered) = {
            let mut rules = lock(&self.watch.rules);
            (rules.turn(), rules.consider(pid, facts, now.pack(), NodeId::Q0.pack()))
        };
        let Some((number, rule)) = considered else { return };
        let fit = (rule, facts.user.clone());
        let (queue, whole) = match self.apply_rule(pid, now, &fit) {
            Ok(done) => done,
            Err(error) => return tracing::debug!(pid, %error, "a rule was not applied"),
        };
        let mut rules = lock(&self.watch.rules);
        if rules.turn() == turn {
            rules.applied(pid, facts, (number, whole), queue.unwrap_or(now).pack());
        }
    }

    /// The CPU does not answer, so in which queue a process is nobody knows. Links and disks do not
    /// wait: what no rule and no hand has touched there is done now, and all of the rule when the
    /// CPU answers.
    fn consider_without_cpu(&self, pid: i32, facts: &Facts) {
        let Some(rule) = lock(&self.watch.rules).untouched(pid, facts) else { return };
        let fit = (rule, facts.user.clone());
        for slot in self.ruled(&fit.0).filter(|slot| slot.resource != Resource::CPU) {
            let fit = fit.clone();
            let done = slot.ask(RULE_MAX, move |held| set_fresh_lists(held, pid, &fit));
            if let Err(error) = done.and_then(|done| done) {
                tracing::debug!(pid, name = %slot.name, %error, "a rule was not applied");
            }
        }
    }

    /// The resources of which a rule names a queue.
    fn ruled(&self, rule: &Rule) -> impl Iterator<Item = Arc<Slot>> {
        let slots = Slots::clone(&self.slots());
        let named = |slot: &Arc<Slot>| rule.is_about(&slot.name);
        slots.into_values().filter(named).collect::<Vec<_>>().into_iter()
    }

    /// Both lists, as `reserv run` does: what the process starts stays with it; and the tag of its
    /// threads, which is answered, and whether all is done: a resource that does not answer costs
    /// its own part.
    fn apply_rule(
        &self,
        pid: i32,
        now: NodeId,
        fit: &Fit,
    ) -> Result<(Option<NodeId>, bool), Refusal> {
        let (mut tagged, mut whole) = (None, true);
        for slot in self.ruled(&fit.0) {
            let own = fit.clone();
            let done = if slot.resource == Resource::CPU {
                slot.ask(RULE_MAX, move |held| tag_by_rule(held, (pid, now), &own).map(Some))
            } else {
                slot.ask(RULE_MAX, move |held| set_lists_by_rule(held, pid, &own).map(|()| None))
            };
            match done {
                Ok(done) => tagged = done?.or(tagged),
                Err(error) => {
                    tracing::debug!(pid, name = %slot.name, %error, "a part of a rule is late");
                    whole = false;
                }
            }
        }
        Ok((tagged, whole))
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
