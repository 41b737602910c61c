// SPDX-License-Identifier: MIT OR Apache-2.0
//! `reserv up`: the trees as a configuration wants them, all or nothing.

use reserv_model::{Config, DeleteMode, Memory, Name, PACKET_RULES_MAX, Request, Source, Tree, diff};
use reserv_namespace::Resource;

use super::{Core, Refusal, stopped};
use crate::describe::describe;
use crate::held::Held;

/// What `up` does to one resource.
struct Job {
    /// `None`: it is brought up first, and counts that.
    resource: Option<Resource>,
    name: Name,
    on: Option<Source>,
    requests: Vec<Request>,
    words: Vec<String>,
}

impl Core {
    fn jobs(&self, config: &Config, mode: DeleteMode) -> Result<Vec<Job>, Refusal> {
        let mut jobs = Vec::new();
        let cpu = self.resources.get(&Resource::CPU).ok_or_else(stopped)?.engine.tree();
        let described = |tree: &Tree, requests: &[Request]| -> Vec<String> {
            requests.iter().map(|request| describe(tree, request)).collect()
        };
        if let Some(wanted) = &config.cpu {
            let requests = diff(cpu, wanted, mode)?;
            let words = described(cpu, &requests);
            let name = cpu.root().name.clone();
            jobs.push(Job { resource: Some(Resource::CPU), name, on: None, requests, words });
        }
        for (name, wanted) in &config.count {
            let Some(on) = &wanted.on else { continue };
            let resource = self.counting(name, on)?;
            let held = resource.and_then(|resource| self.resources.get(&resource));
            let (requests, words) = if let Some(held) = held {
                let requests = diff(held.engine.tree(), wanted, mode)?;
                let words = described(held.engine.tree(), &requests);
                (requests, words)
            } else {
                reserv_plane::count::probe(on)?;
                let mut new = Tree::new(name.clone());
                new.set_resource(on.kind());
                let requests = diff(&new, wanted, mode)?;
                new.plan(&requests)?;
                let mut words = vec![format!("bring up {name}, counting {on}")];
                words.extend(described(&new, &requests));
                (requests, words)
            };
            jobs.push(Job { resource, name: name.clone(), on: Some(on.clone()), requests, words });
        }
        Ok(jobs)
    }

    /// Makes the trees as the configuration wants them, all or nothing; answers the differences in
    /// words. The rules are in force then, and [`Core::scan`] applies them to who is there already.
    pub fn apply(
        &mut self,
        config: &Config,
        dry_run: bool,
        mode: DeleteMode,
    ) -> Result<Vec<String>, Refusal> {
        config.check()?;
        let was = crate::backlog::said();
        if config.backlog.is_none() || config.backlog == was {
            return self.apply_trees(config, dry_run, mode);
        }
        // Limits are admitted by what is to hold.
        self.set_backlog(config.backlog)?;
        let done = self.apply_trees(config, dry_run, mode);
        if dry_run || done.is_err() {
            self.set_backlog(was)?;
        }
        let shown = |memory: Option<Memory>| memory.unwrap_or(Memory::DEFAULT).to_string();
        let words = format!("backlog: {} instead of {}", shown(config.backlog), shown(was));
        done.map(|rest| std::iter::once(words).chain(rest).collect())
    }

    fn set_backlog(&mut self, memory: Option<Memory>) -> Result<(), Refusal> {
        crate::backlog::set(&self.settings.run, memory)
            .map_err(|error| Refusal::new(libc::EIO, format!("the file backlog: {error}")))?;
        self.engines().for_each(|(_, engine)| engine.measure_capacity());
        Ok(())
    }

    fn apply_trees(
        &mut self,
        config: &Config,
        dry_run: bool,
        mode: DeleteMode,
    ) -> Result<Vec<String>, Refusal> {
        self.resources.values_mut().for_each(Held::try_again);
        let running =
            |name: &Name| self.resources.values().any(|held| held.engine.tree().root().name == *name);
        for name in config.rules.iter().flat_map(|rule| rule.queues.keys()) {
            if !config.count.contains_key(name) && !running(name) {
                let hint = "match, or the name of a resource that runs or that this configuration brings up"
                    .to_owned();
                return Err(Refusal {
                    errno: libc::ENOENT,
                    text: format!("a rule names the resource {name}, which there is not"),
                    hint,
                });
            }
        }
        self.check_packet_rules(config)?;
        let jobs = self.jobs(config, mode)?;
        for job in &jobs {
            if let Some(resource) = job.resource {
                self.engine(resource)?.check(&job.requests)?;
            }
        }
        let mut words: Vec<String> = jobs.iter().flat_map(|job| job.words.iter().cloned()).collect();
        let rules = self.cpu()?.rules();
        if config.rules != rules {
            words.push(format!("rules: {} instead of {}", config.rules.len(), rules.len()));
        }
        if dry_run {
            return Ok(words);
        }
        let before = self.save()?;
        for (at, job) in jobs.iter().enumerate() {
            if let Err(refusal) = self.carry_out(job, config) {
                return Err(self.undo(&jobs[..at], &before, refusal));
            }
        }
        // Those that the CPU's job has not put into the journal yet come last: until then a death leaves the old ones.
        if let Err(refusal) = self.tell_all_packets(&config.rules) {
            let refusal = self.undo(&jobs, &before, refusal);
            self.tell_all_packets(&before.rules)?;
            return Err(refusal);
        }
        if config.cpu.is_none() {
            self.cpu()?.set_rules(config.rules.clone())?;
        }
        let rules = self.cpu()?.rules().to_vec();
        self.rules.set(&rules);
        self.warn_of_rules(config);
        self.listen();
        Ok(words)
    }

    /// A rule about packets names links, and each link has room for so many. (What the configuration itself brings up it has checked itself.)
    fn check_packet_rules(&self, config: &Config) -> Result<(), Refusal> {
        let of_packets = || config.rules.iter().filter(|rule| rule.conditions.packets().is_some());
        for held in self.resources.values() {
            let name = &held.engine.tree().root().name;
            let count = of_packets().filter(|rule| rule.queues.contains_key(name)).count();
            let (errno, text) = if count > 0 && !matches!(held.on, Some(Source::Link { .. })) {
                (libc::EINVAL, format!("a rule is about packets, and {name} is no link that is scheduled"))
            } else if count > PACKET_RULES_MAX {
                (libc::ENOSPC, format!("{name} has more than {PACKET_RULES_MAX} rules about packets"))
            } else {
                continue;
            };
            return Err(Refusal::new(errno, text));
        }
        Ok(())
    }

    fn carry_out(&mut self, job: &Job, config: &Config) -> Result<(), Refusal> {
        let (resource, new) = match (job.resource, &job.on) {
            (Some(resource), _) => (resource, false),
            (None, Some(on)) => {
                self.bring_up(&job.name, on)?;
                (self.counting(&job.name, on)?.ok_or_else(stopped)?, true)
            }
            (None, None) => return Ok(()),
        };
        // The rules stand with the tree that they name queues of.
        let rules = if resource == Resource::CPU { config.rules.clone() } else { Vec::new() };
        let done = self.engine(resource)?.edit_whole(&job.requests, &rules);
        if new && done.is_err() {
            self.take_down(&job.name)?;
        }
        done
    }

    /// Undoes what was done to other resources before one refused.
    fn undo(&mut self, done: &[Job], before: &Config, refusal: Refusal) -> Refusal {
        let mut also = Vec::new();
        for job in done.iter().rev() {
            let undone = match job.resource {
                None => self.take_down(&job.name),
                Some(resource) => {
                    let was = if resource == Resource::CPU {
                        before.cpu.as_ref()
                    } else {
                        before.count.get(&job.name)
                    };
                    self.put_back(resource, was, before)
                }
            };
            also.extend(undone.err().map(|why| format!("; and {} was not put back: {why}", job.name)));
        }
        Refusal { text: format!("{refusal}{}", also.concat()), ..refusal }
    }

    fn put_back(
        &mut self,
        resource: Resource,
        was: Option<&reserv_model::ResourceConfig>,
        before: &Config,
    ) -> Result<(), Refusal> {
        let engine = self.engine(resource)?;
        let Some(was) = was else { return Ok(()) };
        let requests = diff(engine.tree(), was, DeleteMode::Flush)?;
        let rules = if resource == Resource::CPU { before.rules.clone() } else { Vec::new() };
        engine.edit_whole(&requests, &rules)
    }

    fn warn_of_rules(&self, config: &Config) {
        for (name, path) in config.rules.iter().flat_map(|rule| &rule.queues) {
            let tree =
                self.resources.values().map(|held| held.engine.tree()).find(|tree| tree.root().name == *name);
            if tree.is_some_and(|tree| tree.resolve(path).is_err()) {
                tracing::warn!(resource = %name, queue = %path, "a rule names a queue that does not exist");
            }
        }
    }
}
