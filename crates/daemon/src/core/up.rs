// SPDX-License-Identifier: MIT OR Apache-2.0
//! `reserv up`: the trees as a configuration wants them, all or nothing. One such change at a time;
//! resources are had one by one, so that edits of others go on.

use std::sync::Arc;

use reserv_model::{
    Config, DeleteMode, Memory, Name, OfContainers, Request, ResourceConfig, Rule, RulePlace,
    Source, Tree, diff, diff_as_asked, requests_of, split,
};
use reserv_namespace::Resource;
use reserv_plane::ahead::Ahead;

use super::also::{self, Also};
use super::owned::{self, with_of_users};
use super::slot::Slot;
use super::{Core, Refusal, SHORT, rate, stopped};
use crate::describe::describe;
use crate::drivers::is_fake;
use crate::engine::Undo;
use crate::held::Held;

/// What `up` does to one resource.
struct Job {
    /// `None`: it is brought up first, and counts that.
    slot: Option<Arc<Slot>>,
    name: Name,
    /// What it is on, or will be: a link's rate may be another one.
    on: Option<Source>,
    wanted: ResourceConfig,
    /// What is done when containers have their nodes.
    later: OfContainers,
    /// What it takes to make it what it was just before it was changed, and what it was on.
    before: Option<(Undo, Option<Source>)>,
    words: Vec<String>,
}

impl Core {
    fn jobs(
        &self,
        config: &Config,
        (mode, dry_run): (DeleteMode, bool),
        also: &dyn Also,
    ) -> Result<Vec<Job>, Refusal> {
        let mut jobs = Vec::new();
        if let Some(wanted) = &config.cpu {
            let slot = self.slot(Resource::CPU)?;
            let parts = split(wanted.clone(), &config.containers);
            jobs.push(self.job(&slot, parts, &config.rules, (mode, dry_run), also)?);
        }
        for (name, wanted) in &config.count {
            let Some(on) = &wanted.on else { continue };
            let (wanted, later) = split(wanted.clone(), &config.containers);
            if let Some(slot) = self.counting(name, on)? {
                jobs.push(self.job(
                    &slot,
                    (wanted, later),
                    &config.rules,
                    (mode, dry_run),
                    also,
                )?);
                continue;
            }
            let new = reserv_plane::ahead::tree(name, Some(on))?;
            let requests = diff(&new, &wanted, mode)?;
            let then = also.requests(None, &new)?;
            let of_owned = (requests.as_slice(), then.as_slice());
            let (last, said) = owned::requests_after(&new, of_owned, &later, mode)?;
            // A driver that stands for another in a test takes all.
            let driver = (!is_fake(&self.settings)).then(|| Ahead::of(on));
            also::check(&requests, (&then, &last), |requests| {
                let plan = new.plan(requests)?;
                driver.map_or(Ok(()), |driver| Ok(driver.check(&new, &plan)?))
            })?;
            let mut words = vec![format!("bring up {name}, counting {on}")];
            words.extend(described(&new, &requests));
            words.extend(said);
            let (name, on) = (name.clone(), Some(on.clone()));
            jobs.push(Job { slot: None, name, on, wanted, later, before: None, words });
        }
        Ok(jobs)
    }

    /// Begins the count of revivals anew, and what the rules did to processes. Refused where
    /// somebody else has the CPUs.
    pub fn try_again(&self) -> Result<(), Refusal> {
        let _changing = self.change()?;
        self.slot(Resource::CPU)?.held()?.require_ours()?;
        for slot in self.slots().values().filter(|slot| slot.is_shown()) {
            match slot.held() {
                Ok(mut held) => held.try_again(),
                Err(refusal) if slot.resource == Resource::CPU => return Err(refusal),
                Err(refusal) => tracing::warn!(%refusal, name = %slot.name, "not begun anew"),
            }
        }
        self.enforce(&self.rules());
        Ok(())
    }

    /// Makes the trees, and what it wants besides, as the configuration says, all or nothing;
    /// answers the differences in words. The rules are in force then, and [`Core::scan`] applies
    /// them to who is there already.
    pub fn apply(
        self: &Arc<Self>,
        config: &Config,
        also: &dyn Also,
        dry_run: bool,
        mode: DeleteMode,
    ) -> Result<Vec<String>, Refusal> {
        self.apply_if(None, config, also, dry_run, mode)
    }

    /// The same, refused where the rules are not what the asking one saw.
    pub fn apply_if(
        self: &Arc<Self>,
        rules_were: Option<&[Rule]>,
        config: &Config,
        also: &dyn Also,
        dry_run: bool,
        mode: DeleteMode,
    ) -> Result<Vec<String>, Refusal> {
        config.check()?;
        let _changing = self.change()?;
        if rules_were.is_some_and(|were| were != self.rules().as_slice()) {
            let text = "the rules were changed by somebody else meanwhile";
            return Err(Refusal::new(libc::EAGAIN, text));
        }
        if config.cpu.is_some() {
            self.slot(Resource::CPU)?.held()?.require_ours()?;
        }
        let was = crate::backlog::said();
        if config.backlog.is_none() || config.backlog == was {
            return self.apply_trees(config, also, dry_run, mode);
        }
        // Limits are admitted by what is to hold.
        self.set_backlog(config.backlog)?;
        let done = self.apply_trees(config, also, dry_run, mode);
        if dry_run || done.is_err() {
            self.set_backlog(was)?;
        }
        let shown = |memory: Option<Memory>| memory.unwrap_or(Memory::DEFAULT).to_string();
        let words = format!("backlog: {} instead of {}", shown(config.backlog), shown(was));
        done.map(|rest| std::iter::once(words).chain(rest).collect())
    }

    /// Whoever does not answer learns of it when he is looked after next.
    fn set_backlog(&self, memory: Option<Memory>) -> Result<(), Refusal> {
        crate::backlog::set(&self.settings.run, memory)
            .map_err(|error| Refusal::new(libc::EIO, format!("the file backlog: {error}")))?;
        for slot in self.slots().values() {
            if let Ok(mut held) = slot.held_within(SHORT) {
                held.engine.measure_capacity();
            }
        }
        Ok(())
    }

    fn apply_trees(
        self: &Arc<Self>,
        config: &Config,
        also: &dyn Also,
        dry_run: bool,
        mode: DeleteMode,
    ) -> Result<Vec<String>, Refusal> {
        let slots = self.slots();
        let shown = || slots.values().filter(|slot| slot.is_shown());
        for slot in shown() {
            if let Ok(mut held) = slot.held_within(SHORT) {
                held.try_again();
            }
        }
        config.check_resources(|name| shown().any(|slot| slot.name == *name))?;
        shown().try_for_each(|slot| check_packet_rules(slot, config))?;
        let mut jobs = self.jobs(config, (mode, dry_run), also)?;
        let of_job = |slot: &Slot| jobs.iter().any(|job| job.name == slot.name);
        self.check_others(also, of_job)?;
        let mut words: Vec<String> =
            jobs.iter().flat_map(|job| job.words.iter().cloned()).collect();
        let before = self.rules();
        if config.rules != *before {
            words.push(format!("rules: {} instead of {}", config.rules.len(), before.len()));
        }
        words.extend(also.words()?);
        if dry_run {
            return Ok(words);
        }
        for at in 0..jobs.len() {
            if let Err(refusal) = self.carry_out(&mut jobs[at], config, mode) {
                return Err(self.undo(&jobs[..at], refusal));
            }
        }
        // The CPU's job has put them into the journal already. What is made last undoes itself, all
        // before it is undone here.
        let alone = |rules: &[Rule]| match config.cpu {
            Some(_) => Ok(()),
            None => self.cpu()?.set_rules(rules.to_vec()),
        };
        let told = self
            .tell_all_packets(&before, &config.rules)
            .and_then(|()| alone(&config.rules))
            .and_then(|()| also.carry_out())
            .and_then(|undo| self.carry_out_later(&jobs, mode).map_err(undo));
        if let Err(refusal) = told {
            let refusal = self.undo(&jobs, refusal);
            let undone = [self.tell_all_packets(&config.rules, &before), alone(&before)];
            let not = undone.into_iter().filter_map(Result::err);
            let not = not.map(|why| format!("; and the rules were not put back: {why}"));
            let text = format!("{refusal}{}", not.collect::<String>());
            return Err(Refusal { text, ..refusal });
        }
        self.enforce(&config.rules);
        self.warn_of_rules(config);
        Ok(words)
    }

    /// What is to be done to a resource that runs, if it can be.
    fn job(
        &self,
        slot: &Arc<Slot>,
        (wanted, later): (ResourceConfig, OfContainers),
        rules: &[Rule],
        (mode, dry_run): (DeleteMode, bool),
        also: &dyn Also,
    ) -> Result<Job, Refusal> {
        let engine = slot.engine()?;
        let with_owned = self.with_owned(slot.resource, engine.tree(), wanted.clone(), &later);
        let with_owned = with_of_users(rules, engine.tree(), with_owned);
        let requests = diff_as_asked(engine.tree(), &with_owned, mode)?;
        let then = also.requests(Some(slot), engine.tree())?;
        let of_owned = (requests.as_slice(), then.as_slice());
        let (last, said) = owned::requests_after(engine.tree(), of_owned, &later, mode)?;
        let has = slot.on();
        let (mut words, mut on) = (Vec::new(), has.clone());
        if let (Some(wanted), Some(has)) = (&wanted.on, &has)
            && wanted != has
        {
            on = Some(wanted.clone());
            words.push(rate::words(&slot.name, has, wanted));
            let check = |requests: &[Request]| rate::check(&engine, wanted, requests);
            also::check(&requests, (&then, &last), check)?;
        } else {
            let check = |requests: &[Request]| engine.check(requests).map(drop);
            also::check(&requests, (&then, &last), check)?;
        }
        if dry_run {
            engine.check_deleted(&requests)?;
        }
        words.extend(described(engine.tree(), &requests));
        words.extend(said);
        let (slot, name) = (Some(slot.clone()), slot.name.clone());
        Ok(Job { slot, name, on, wanted, later, before: None, words })
    }

    /// What is said of containers' nodes, when they are there: of all trees or of none.
    fn carry_out_later(&self, jobs: &[Job], mode: DeleteMode) -> Result<(), Refusal> {
        let mut done: Vec<(Arc<Slot>, Undo)> = Vec::new();
        for job in jobs.iter().filter(|job| !job.later.is_empty()) {
            let one = || -> Result<_, Refusal> {
                let slot = self.named(&job.name).ok_or_else(stopped)?;
                let mut held = slot.held()?;
                let requests = requests_of(held.engine.tree(), &job.later, mode)?;
                let undo = Undo::new(&held.engine, &requests)?;
                let rules = held.engine.rules().to_vec();
                held.engine.edit_whole(&requests, &rules)?;
                drop(held);
                Ok((slot, undo))
            };
            match one() {
                Ok(one) => done.push(one),
                Err(refusal) => {
                    let put_back = |(slot, undo): &(Arc<Slot>, Undo)| {
                        let undone = slot.held().and_then(|mut held| held.engine.take_back(undo));
                        let why = undone.err()?;
                        Some(format!("; and {} was not put back: {why}", slot.name))
                    };
                    let not: String = done.iter().rev().filter_map(put_back).collect();
                    let text = format!("{}{not}", refusal.text);
                    return Err(Refusal { text, ..refusal });
                }
            }
        }
        Ok(())
    }

    fn carry_out(
        self: &Arc<Self>,
        job: &mut Job,
        config: &Config,
        mode: DeleteMode,
    ) -> Result<(), Refusal> {
        let slot = match (&job.slot, &job.on) {
            (Some(slot), _) => slot.clone(),
            (None, Some(on)) => {
                self.bring_up(&job.name, on)?;
                self.counting(&job.name, on)?.ok_or_else(stopped)?
            }
            (None, None) => return Ok(()),
        };
        // The rules stand with the tree that they name queues of.
        let rules = if slot.resource == Resource::CPU { config.rules.clone() } else { Vec::new() };
        let mut held = slot.held()?;
        let was = held.on.clone();
        let mut before = None;
        let wanted = job.wanted.clone();
        let wanted = self.with_owned(slot.resource, held.engine.tree(), wanted, &job.later);
        let wanted = with_of_users(&config.rules, held.engine.tree(), wanted);
        let mut make = |held: &mut Held| {
            // What drained may be gone already, and nobody has noticed.
            held.engine.collect()?;
            let requests = diff_as_asked(held.engine.tree(), &wanted, mode)?;
            // Others may have changed it since it was looked at.
            before = Some((Undo::new(&held.engine, &requests)?, was.clone()));
            held.engine.edit_whole(&requests, &rules)
        };
        let mut edited = false;
        let done = self.with_rate(&slot, &mut held, job.on.as_ref(), |held| {
            let done = match make(held) {
                // Or it went in between.
                Err(refusal) if refusal.errno == libc::ENOENT && mode == DeleteMode::Flush => {
                    make(held)
                }
                done => done,
            };
            edited = done.is_ok();
            done
        });
        drop(held);
        job.before = before;
        let done = done.map_err(|refusal| {
            if edited && job.slot.is_some() {
                self.undo(std::slice::from_ref(job), refusal)
            } else {
                refusal
            }
        });
        if job.slot.is_none() && done.is_err() {
            self.take_down(&job.name)?;
        }
        done
    }

    /// Undoes what was done to other resources before one refused.
    fn undo(&self, done: &[Job], refusal: Refusal) -> Refusal {
        let mut also = Vec::new();
        for job in done.iter().rev() {
            let undone = match &job.slot {
                None => self.take_down(&job.name),
                Some(slot) => self.put_back(slot, job.before.as_ref()),
            };
            also.extend(
                undone.err().map(|why| format!("; and {} was not put back: {why}", job.name)),
            );
        }
        Refusal { text: format!("{refusal}{}", also.concat()), ..refusal }
    }

    fn put_back(
        &self,
        slot: &Arc<Slot>,
        was: Option<&(Undo, Option<Source>)>,
    ) -> Result<(), Refusal> {
        let Some((undo, on)) = was else { return Ok(()) };
        let mut held = slot.held()?;
        self.with_rate(slot, &mut held, on.as_ref(), |held| held.engine.take_back(undo))
    }

    fn warn_of_rules(&self, config: &Config) {
        for (name, place) in config.rules.iter().flat_map(|rule| &rule.queues) {
            let (RulePlace::Queue(path) | RulePlace::EachUser(path)) = place;
            let held = self.named(name).and_then(|slot| slot.held_within(SHORT).ok());
            if held.is_some_and(|held| held.engine.tree().resolve(path).is_err()) {
                tracing::warn!(resource = %name, %place, "a rule names a node that does not exist");
            }
        }
    }
}

fn described(tree: &Tree, requests: &[Request]) -> Vec<String> {
    requests.iter().map(|request| describe(tree, request)).collect()
}

/// A rule about packets names links, and each link has room for so many. (What the configuration
/// itself brings up it has checked itself.)
fn check_packet_rules(slot: &Slot, config: &Config) -> Result<(), Refusal> {
    let name = &slot.name;
    if slot.is_link() {
        return Ok(Rule::check_room(name, &config.rules)?);
    }
    let mut of_packets = config.rules.iter().filter(|rule| rule.conditions.packets().is_some());
    if of_packets.any(|rule| rule.queues.contains_key(name)) {
        let text = format!("a rule is about packets, and {name} is no link that is scheduled");
        return Err(Refusal::new(libc::EINVAL, text));
    }
    Ok(())
}
