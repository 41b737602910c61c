// SPDX-License-Identifier: MIT OR Apache-2.0
//! A link's other rate, while it runs.
//!
//! The order: what is promised is looked at, the registry says the new rate, the kernel is told.
//! Who dies in between leaves the registry's word, which the next daemon's plane catches up with
//! when it is adopted; so a rate that was answered for is never lost, and one that was not is
//! either rate.
//!
//! With edits of the tree beside it (a configuration), more comes before them and less after them,
//! so that the minimums fit at each instant.

use std::sync::Arc;

use reserv_model::{Name, Request, Source};

use super::slot::Slot;
use super::{Core, Refusal, lock};
use crate::engine::Engine;
use crate::held::Held;

/// A source without the words of how it is scheduled: `50mbit`.
fn shown(on: &Source) -> String {
    on.rate().map_or_else(|| "none".to_owned(), |rate| rate.to_string())
}

/// The difference in words.
pub(super) fn words(name: &Name, was: &Source, on: &Source) -> String {
    format!("the rate of {name}: {} instead of {}", shown(on), shown(was))
}

/// Whether requests can be carried out beside this rate.
pub(super) fn check(engine: &Engine, on: &Source, requests: &[Request]) -> Result<(), Refusal> {
    engine.check_at(on.promised(), engine.plane().backlog_at(on.rate()), requests)?;
    Ok(engine.plane().may_have_rate(on.rate())?)
}

impl Core {
    /// Gives a link that this thread has the rate of `on`. On error it has the old one.
    fn put_rate(&self, slot: &Slot, held: &mut Held, on: &Source) -> Result<(), Refusal> {
        let Some(was) = held.on.clone().filter(|was| was != on) else { return Ok(()) };
        lock(&self.registry).becomes(slot.resource, on)?;
        if let Err(refusal) = held.set_rate(on) {
            if let Err(error) = lock(&self.registry).becomes(slot.resource, &was) {
                tracing::error!(%error, name = %slot.name, "the former rate is not entered again");
            }
            return Err(refusal);
        }
        slot.becomes(on);
        Ok(())
    }

    /// Edits, with the rate of `on` before or after them. On error all is as before, but for edits
    /// that are done and are undone by who asked.
    pub(super) fn with_rate(
        &self,
        slot: &Slot,
        held: &mut Held,
        on: Option<&Source>,
        edit: impl FnOnce(&mut Held) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let was = held.on.clone();
        let (Some(was), Some(on)) = (was.as_ref(), on) else { return edit(held) };
        if on.promised() < was.promised() {
            edit(held)?;
            held.engine.check_at(on.promised(), held.engine.plane().backlog_at(on.rate()), &[])?;
            return self.put_rate(slot, held, on);
        }
        if on != was {
            // What was admitted since it was looked at counts too.
            held.engine.check_at(on.promised(), held.engine.plane().backlog_at(on.rate()), &[])?;
        }
        self.put_rate(slot, held, on)?;
        edit(held).map_err(|refusal| match self.put_rate(slot, held, was) {
            Ok(()) => refusal,
            Err(why) => {
                let text = format!("{refusal}; and the rate was not put back: {why}");
                Refusal { text, ..refusal }
            }
        })
    }

    /// A link that runs has another rate from now on.
    pub(super) fn change_rate(&self, slot: &Arc<Slot>, on: &Source) -> Result<(), Refusal> {
        let mut held = slot.held()?;
        check(&held.engine, on, &[])?;
        self.put_rate(slot, &mut held, on)
    }
}
