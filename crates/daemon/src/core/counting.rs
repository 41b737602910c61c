// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counting resources come: nobody else waits meanwhile.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use reserv_model::{ArrivalSample, Driver, Name, Rule, RuleOfLink, Source};
use reserv_namespace::resource_name_taken;
use serde::Serialize;

use super::slot::Slot;
use super::{Core, Refusal, SHORT, lock, rate, stopped};
use crate::begin;
use crate::drivers::Wanted;
use crate::held::Held;
use crate::registry::Known;

/// How long a start waits for what was up before. What takes longer comes up beside the others.
const KNOWN_MAX: Duration = Duration::from_secs(2);
/// Between tries of what gave no answer.
const AGAIN: Duration = Duration::from_secs(1);

/// What has come in over a link by a rule.
#[derive(Clone, Debug, Serialize)]
pub struct Came {
    /// Its number.
    rule: usize,
    link: Name,
    #[serde(flatten)]
    sample: ArrivalSample,
}

/// The rules about packets of a link.
fn packets_of(name: &Name, rules: &[Rule]) -> Vec<RuleOfLink> {
    rules.iter().filter_map(|rule| rule.of_link(name)).collect()
}

/// Tells a link the rules about packets that name its queues, if they are not those of before.
fn tell_packets(slot: &Arc<Slot>, before: &[Rule], rules: &[Rule]) -> Result<(), Refusal> {
    let ours = packets_of(&slot.name, rules);
    if !slot.is_link() || ours == packets_of(&slot.name, before) {
        return Ok(());
    }
    Ok(slot.engine()?.set_packet_rules(ours)?)
}

impl Core {
    /// What runs under this name, if it counts `on` (at another rate maybe); `None` if nothing is
    /// called so.
    pub(super) fn counting(&self, name: &Name, on: &Source) -> Result<Option<Arc<Slot>>, Refusal> {
        match self.named(name) {
            Some(slot) if slot.on().is_some_and(|has| on.is_but_for_rate(&has)) => Ok(Some(slot)),
            Some(slot) => {
                let counts = slot.on().map_or_else(
                    || "is no counting resource".to_owned(),
                    |on| format!("runs already, on {on}"),
                );
                let hint = format!(
                    "another name; or, to change what it is on: reserv save FILE, change its table there, reserv down {name}, reserv up --config FILE"
                );
                Err(Refusal { errno: libc::EBUSY, text: format!("{name} {counts}"), hint })
            }
            None => match resource_name_taken(name.as_str(), self.names().of()) {
                Some(why) => Err(Refusal::new(libc::EEXIST, format!("{name}: {why}"))),
                None => Ok(None),
            },
        }
    }

    /// Brings a counting resource up, with root and q0. One that runs and counts the same stays as
    /// it is. Answers whether it came.
    pub fn bring_up(self: &Arc<Self>, name: &Name, on: &Source) -> Result<bool, Refusal> {
        if self.counting(name, on)?.is_some_and(|slot| slot.is_up()) {
            return Ok(false);
        }
        reserv_plane::ahead::probe(on)?;
        let Some(slot) = self.enter(name, on)? else { return Ok(false) };
        let brought = self.begin_counting(&slot);
        if brought.is_err()
            && let Err(error) = self.take_out(&slot, true)
        {
            tracing::error!(%error, %name, "a resource that did not come up stays entered");
        }
        brought.map(|()| true)
    }

    /// A number for it, under which it is coming. `None`: it has come meanwhile.
    fn enter(&self, name: &Name, on: &Source) -> Result<Option<Arc<Slot>>, Refusal> {
        let mut registry = lock(&self.registry);
        if self.stopping.load(Ordering::SeqCst) {
            return Err(stopped());
        }
        match self.counting(name, on)? {
            Some(slot) if slot.is_up() => return Ok(None),
            Some(_) => {
                let text = format!("{name} is being brought up or taken down");
                return Err(Refusal::new(libc::EAGAIN, text));
            }
            None => {}
        }
        let known = registry.enter(name, on)?.and_then(|known| known.resource());
        let full = || Refusal::new(libc::ENOSPC, "there are as many resources as there can be");
        let resource = known.ok_or_else(full)?;
        let slot = Slot::coming(resource, name, on, false);
        self.change_slots(|slots| {
            slots.insert(resource, slot.clone());
        });
        Ok(Some(slot))
    }

    /// Brings counting resources up, all or none; answers which, in words.
    pub fn bring_up_all(
        self: &Arc<Self>,
        count: &BTreeMap<Name, Source>,
        dry_run: bool,
    ) -> Result<Vec<String>, Refusal> {
        let _changing = self.change()?;
        let (mut new, mut rates) = (Vec::new(), Vec::new());
        for (name, on) in count {
            let runs = self.named(name).filter(|slot| slot.is_up());
            let Some((slot, has)) = runs.and_then(|slot| Some((slot.clone(), slot.on()?))) else {
                self.counting(name, on)?;
                new.push((name, on));
                continue;
            };
            // Who names an interface alone takes it as it runs.
            let on = on.filled(&has);
            self.counting(name, &on)?;
            if on != has {
                rate::check(&*slot.engine()?, &on, &[])?;
                rates.push((slot, has, on));
            }
        }
        let words: Vec<String> = (new.iter())
            .map(|(name, on)| format!("bring up {name}, counting {on}"))
            .chain(rates.iter().map(|(slot, was, on)| rate::words(&slot.name, was, on)))
            .collect();
        if dry_run {
            new.iter().try_for_each(|(_, on)| reserv_plane::ahead::probe(on))?;
            return Ok(words);
        }
        for (at, (slot, _, on)) in rates.iter().enumerate() {
            if let Err(refusal) = self.change_rate(slot, on) {
                return Err(self.rates_back(&rates[..at], refusal));
            }
        }
        for (at, (name, on)) in new.iter().enumerate() {
            if let Err(refusal) = self.bring_up(name, on) {
                let mut refusal = refusal;
                for (name, _) in &new[..at] {
                    if let Err(why) = self.take_down(name) {
                        let _ = write!(refusal.text, "; and {name} is still there: {why}");
                    }
                }
                return Err(self.rates_back(&rates, refusal));
            }
        }
        Ok(words)
    }

    fn rates_back(&self, changed: &[(Arc<Slot>, Source, Source)], refusal: Refusal) -> Refusal {
        let mut text = refusal.text.clone();
        for (slot, was, _) in changed {
            if let Err(why) = self.change_rate(slot, was) {
                let _ = write!(text, "; and the rate of {} was not put back: {why}", slot.name);
            }
        }
        Refusal { text, ..refusal }
    }

    /// What it takes time to do: nothing is locked meanwhile.
    fn begin_counting(self: &Arc<Self>, slot: &Arc<Slot>) -> Result<(), Refusal> {
        let Some(on) = &slot.on() else { return Ok(()) };
        // Where no thread is to be had for it there is no use in beginning.
        self.look_after(slot)?;
        let (name, known) = (&slot.name, slot.is_shown());
        let wanted = Wanted::Count { name: name.clone(), resource: slot.resource, on: on.clone() };
        let mut held = Held::begin(&self.settings, &wanted, name, Driver::Auto)?;
        if known && self.new_mount {
            held.engine.new_session()?;
        }
        let dev = self.mount.load(Ordering::SeqCst);
        if dev != 0 {
            held.tell_mount(dev)?;
        }
        let rules = self.rules();
        if matches!(on, Source::Link { .. })
            && let Err(error) = held.engine.set_packet_rules(packets_of(name, &rules))
        {
            tracing::error!(%error, %name, "the rules about packets could not be told");
        }
        slot.arrives(held);
        // Who changed them meanwhile has not seen this one.
        let now = self.rules();
        if !Arc::ptr_eq(&rules, &now)
            && let Err(refusal) = tell_packets(slot, &[], &now)
        {
            tracing::error!(%refusal, %name, "the rules about packets could not be told");
        }
        Ok(())
    }

    /// What has come in by the rules about who comes, by the number of the rule; and the links that
    /// have such rules and are busy, of which it is not told.
    pub fn arrivals(&self) -> (Vec<Came>, Vec<Name>) {
        let (mut all, mut busy) = (Vec::new(), Vec::new());
        for slot in self.slots().values().filter(|slot| slot.is_up() && slot.is_link()) {
            let rules = self.rules();
            let mut numbers = (1..)
                .zip(rules.iter())
                .filter(|(_, rule)| {
                    rule.of_link(&slot.name).is_some_and(|of_link| of_link.arrival.is_some())
                })
                .peekable();
            let link = slot.name.clone();
            if numbers.peek().is_none() {
                continue;
            }
            let Ok(held) = slot.held_within(SHORT) else {
                busy.push(link);
                continue;
            };
            let counted = numbers.zip(held.engine.arrivals());
            all.extend(counted.filter_map(|((rule, _), sample)| {
                Some(Came { rule, link: link.clone(), sample: sample? })
            }));
        }
        (all, busy)
    }

    /// Tells all links.
    pub(super) fn tell_all_packets(&self, before: &[Rule], rules: &[Rule]) -> Result<(), Refusal> {
        let slots = self.slots();
        slots.values().filter(|s| s.is_up()).try_for_each(|slot| tell_packets(slot, before, rules))
    }

    /// What a dead daemon had, or was about to have or to end: each on a thread of its own, so that
    /// what one waits for is waited for by no other.
    pub(super) fn bring_up_known(self: &Arc<Self>) {
        let (done, wait) = channel::<()>();
        let all = lock(&self.registry).known().to_vec();
        for known in all {
            let Some(resource) = known.resource() else { continue };
            let slot = Slot::coming(resource, &known.name, &known.on, !known.going);
            self.change_slots(|slots| {
                slots.insert(resource, slot.clone());
            });
            let (core, of_thread) = (self.clone(), done.clone());
            let (slot_, known_) = (slot.clone(), known.clone());
            let body = move || {
                core.bring_up_again(&slot_, &known_);
                drop(of_thread);
            };
            if begin::thread("again", body).is_err() {
                self.bring_up_again(&slot, &known);
            }
        }
        drop(done);
        // It hangs up when all have ended.
        let until = Instant::now() + KNOWN_MAX;
        let _ = wait.recv_timeout(until.saturating_duration_since(Instant::now()));
    }

    /// Whoever gives no answer now may give one later.
    fn begin_again(self: &Arc<Self>, slot: &Arc<Slot>) -> Result<(), Refusal> {
        loop {
            match self.begin_counting(slot) {
                Err(refusal)
                    if refusal.errno == libc::ETIMEDOUT
                        && !self.stopping.load(Ordering::SeqCst) =>
                {
                    tracing::warn!(%refusal, name = %slot.name, "not up again yet");
                    std::thread::sleep(AGAIN);
                }
                done => return done,
            }
        }
    }

    fn bring_up_again(self: &Arc<Self>, slot: &Arc<Slot>, known: &Known) {
        let (name, resource) = (&known.name, slot.resource);
        let wanted = Wanted::Count { name: name.clone(), resource, on: known.on.clone() };
        let ended = if known.going {
            Held::end_what_is_left(&self.settings, &wanted)
        } else {
            let Err(refusal) = self.begin_again(slot) else { return };
            tracing::error!(%refusal, %name, "a resource did not come up again; its tree is lost");
            Held::end_what_is_left(&self.settings, &wanted)
        };
        // Mounted, or its server is another version's: it goes on without us.
        if let Err(again) = &ended {
            tracing::error!(refusal = %again, %name, "left as it is");
        }
        if let Err(refusal) = self.take_out(slot, ended.is_ok()) {
            tracing::error!(%refusal, %name, "what is gone stays entered");
        }
    }

    /// Puts the programs of this version in the place of those that schedule a resource; what that
    /// lost, or nothing if they are this version's already.
    pub fn upgrade(&self, name: &Name) -> Result<Option<reserv_plane::Upgraded>, Refusal> {
        let found = self.named(name).filter(|slot| slot.is_shown());
        let slot =
            found.ok_or_else(|| Refusal::new(libc::ENOENT, format!("no resource {name} runs")))?;
        let mut held = slot.held()?;
        let done = held.engine.upgrade()?;
        held.try_again();
        Ok(done)
    }
}
