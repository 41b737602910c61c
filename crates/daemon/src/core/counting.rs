// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counting resources come and go.

use std::collections::BTreeMap;

use reserv_model::{Name, Rule, Source};
use reserv_namespace::{Resource, resource_name_taken};

use super::{Core, Refusal};
use crate::drivers::Wanted;
use crate::held::Held;

impl Core {
    /// What runs under this name, if it counts `on`; `None` if nothing is called so.
    pub(super) fn counting(&self, name: &Name, on: &Source) -> Result<Option<Resource>, Refusal> {
        let found = self.resources.iter().find(|(_, held)| held.engine.tree().root().name == *name);
        match found {
            Some((resource, held)) if held.on.as_ref() == Some(on) => Ok(Some(*resource)),
            Some((_, held)) => {
                let counts = held.on.as_ref().map_or_else(
                    || "is no counting resource".to_owned(),
                    |on| format!("runs already, on {on}"),
                );
                let hint = "another name, or take it down first: reserv down NAME".to_owned();
                Err(Refusal { errno: libc::EBUSY, text: format!("{name} {counts}"), hint })
            }
            None => match resource_name_taken(name.as_str(), self.trees()) {
                Some(why) => Err(Refusal::new(libc::EEXIST, format!("{name}: {why}"))),
                None => Ok(None),
            },
        }
    }

    /// Brings a counting resource up, with root and q0. One that runs and counts the same stays as it is. Answers whether it came.
    pub fn bring_up(&mut self, name: &Name, on: &Source) -> Result<bool, Refusal> {
        if self.counting(name, on)?.is_some() {
            return Ok(false);
        }
        reserv_plane::count::probe(on)?;
        let known = self.registry.enter(name, on)?.and_then(|known| known.resource());
        let full = || Refusal::new(libc::ENOSPC, "there are as many resources as there can be");
        let resource = known.ok_or_else(full)?;
        let brought = self.begin_counting(resource, name, on);
        if brought.is_err()
            && let Err(error) = self.registry.remove(resource)
        {
            tracing::error!(%error, %name, "a resource that did not come up stays entered");
        }
        brought.map(|()| true)
    }

    /// Brings counting resources up, all or none; answers which, in words.
    pub fn bring_up_all(
        &mut self,
        count: &BTreeMap<Name, Source>,
        dry_run: bool,
    ) -> Result<Vec<String>, Refusal> {
        let mut new = Vec::new();
        for (name, on) in count {
            if self.counting(name, on)?.is_none() {
                new.push((name, on));
            }
        }
        for (at, (name, on)) in new.iter().enumerate() {
            if dry_run {
                reserv_plane::count::probe(on)?;
            } else if let Err(refusal) = self.bring_up(name, on) {
                for (name, _) in &new[..at] {
                    self.take_down(name)?;
                }
                return Err(refusal);
            }
        }
        Ok(new.iter().map(|(name, on)| format!("bring up {name}, counting {on}")).collect())
    }

    pub(super) fn begin_counting(
        &mut self,
        resource: Resource,
        name: &Name,
        on: &Source,
    ) -> Result<(), Refusal> {
        let wanted = Wanted::Count { name: name.clone(), resource, on: on.clone() };
        let mut held = Held::begin(&self.settings, &wanted, name, reserv_model::Driver::Auto)?;
        if let Some(dev) = self.mount {
            held.engine.plane_mut().set_mount(dev)?;
        }
        self.resources.insert(resource, held);
        let rules = self.cpu()?.rules().to_vec();
        if let Err(refusal) = self.tell_packets(resource, &rules) {
            tracing::error!(%refusal, %name, "the rules about packets could not be told");
        }
        Ok(())
    }

    /// Tells a link the rules about packets that name its queues.
    pub(super) fn tell_packets(&mut self, resource: Resource, rules: &[Rule]) -> Result<(), Refusal> {
        let Some(held) = self.resources.get_mut(&resource) else { return Ok(()) };
        if !matches!(held.on, Some(Source::Link { .. })) {
            return Ok(());
        }
        let name = held.engine.tree().root().name.clone();
        let ours = rules
            .iter()
            .filter_map(|rule| Some((rule.conditions.packets()?, rule.queue(name.as_str())?.clone())));
        Ok(held.engine.set_packet_rules(ours.collect())?)
    }

    /// Tells all links.
    pub(super) fn tell_all_packets(&mut self, rules: &[Rule]) -> Result<(), Refusal> {
        let all: Vec<Resource> = self.resources.keys().copied().collect();
        all.into_iter().try_for_each(|resource| self.tell_packets(resource, rules))
    }

    /// What a dead daemon had, or was about to have or to end.
    pub(super) fn bring_up_known(&mut self) -> Result<(), Refusal> {
        for known in self.registry.known().to_vec() {
            let Some(resource) = known.resource() else { continue };
            let name = &known.name;
            let wanted = Wanted::Count { name: name.clone(), resource, on: known.on.clone() };
            let brought = if known.going {
                Held::end_what_is_left(&self.settings, &wanted).map(|()| false)
            } else {
                self.begin_counting(resource, name, &known.on).map(|()| true)
            };
            match brought {
                Ok(true) => {}
                Ok(false) => self.registry.remove(resource)?,
                Err(refusal) => {
                    tracing::error!(%refusal, %name, "a resource did not come up again; its tree is lost");
                    match Held::end_what_is_left(&self.settings, &wanted) {
                        // It is mounted, or its server is another version's: it goes on without us.
                        Err(again) if matches!(known.on, Source::Disk { .. }) => {
                            tracing::error!(refusal = %again, %name, "left as it is");
                        }
                        done => {
                            done?;
                            self.registry.remove(resource)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes a counting resource down, with all that refers to it.
    pub fn take_down(&mut self, name: &Name) -> Result<(), Refusal> {
        let found = self.resources.iter().find(|(_, held)| held.engine.tree().root().name == *name);
        let resource = match found {
            Some((resource, held)) if held.on.is_some() => *resource,
            Some(_) => {
                let text = format!("{name} goes with everything else");
                return Err(Refusal {
                    errno: libc::EINVAL,
                    text,
                    hint: "reserv down, without a name".into(),
                });
            }
            None => return Err(Refusal::new(libc::ENOENT, format!("no resource {name} runs"))),
        };
        self.stop_one(resource)
    }

    /// Puts the programs of this version in the place of those that schedule a resource; what that lost, or nothing if they are this version's already.
    pub fn upgrade(&mut self, name: &Name) -> Result<Option<reserv_plane::Upgraded>, Refusal> {
        let found = self.resources.values_mut().find(|held| held.engine.tree().root().name == *name);
        let held = found.ok_or_else(|| Refusal::new(libc::ENOENT, format!("no resource {name} runs")))?;
        let done = held.engine.upgrade()?;
        held.try_again();
        Ok(done)
    }

    pub(super) fn stop_one(&mut self, resource: Resource) -> Result<(), Refusal> {
        if resource != Resource::CPU {
            if let Some(held) = self.resources.get(&resource) {
                held.engine.plane().may_stop()?;
            }
            self.registry.going(resource, true)?;
        }
        let Some(held) = self.resources.remove(&resource) else { return Ok(()) };
        let name = held.engine.tree().root().name.clone();
        held.stop().map_err(|(held, refusal)| {
            self.resources.insert(resource, *held);
            refusal
        })?;
        if resource != Resource::CPU {
            self.registry.remove(resource)?;
        }
        self.gone.push(name);
        Ok(())
    }
}
