// SPDX-License-Identifier: MIT OR Apache-2.0
//! Resources go, one or all.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use reserv_facts::time::{STOP_ASK_MAX, STOP_RESOURCES_MAX};
use reserv_model::Name;
use reserv_namespace::Resource;

use super::slot::Slot;
use super::{Core, Refusal, lock};
use crate::begin;

/// Between two tries to get a thread.
const NO_THREAD_PAUSE: Duration = Duration::from_millis(10);

type Stopped = Result<(), Refusal>;

impl Core {
    /// Takes a counting resource down, with all that refers to it.
    pub fn take_down(&self, name: &Name) -> Result<(), Refusal> {
        match self.named(name).filter(|slot| slot.is_shown()) {
            Some(slot) if slot.is_counting() => self.stop_one(&slot),
            Some(_) => Err(Refusal {
                errno: libc::EINVAL,
                text: format!("{name} goes with everything else"),
                hint: "reserv down, without a name".into(),
            }),
            None => Err(Refusal::new(libc::ENOENT, format!("no resource {name} runs"))),
        }
    }

    pub(super) fn stop_one(&self, slot: &Arc<Slot>) -> Result<(), Refusal> {
        let (resource, counts) = (slot.resource, slot.is_counting());
        if let Some(does) = self.before_one_goes.get().filter(|_| counts) {
            does(slot);
        }
        let had = slot.held()?;
        if counts {
            had.engine.plane().may_stop()?;
            lock(&self.registry).going(resource, true)?;
        }
        let Some(held) = had.goes() else { return Ok(()) };
        held.stop().map_err(|(held, refusal)| {
            slot.stays(*held);
            refusal
        })?;
        self.take_out(slot, counts)
    }

    /// It is gone, or did not come.
    pub(super) fn take_out(&self, slot: &Arc<Slot>, entered: bool) -> Result<(), Refusal> {
        let mut registry = lock(&self.registry);
        let removed = if entered { registry.remove(slot.resource) } else { Ok(()) };
        self.change_slots(|slots| {
            slots.remove(&slot.resource);
        });
        drop(registry);
        if slot.is_shown() {
            lock(&self.gone).push(slot.name.clone());
        }
        slot.ends();
        Ok(removed?)
    }

    /// Gives the resources back to the kernel. A disk that is in use stays: either that is an
    /// error, and so does everything else, or (`leave`) it is left with its server, which goes on,
    /// and its journal: the next start adopts it. What does not answer, or is still coming, is left
    /// as well, and ended by the next start (but where it is to be left).
    pub fn stop(self: &Arc<Self>, leave: bool) -> Result<(), Refusal> {
        self.stopping.store(true, Ordering::SeqCst);
        let done = self.stop_all(leave);
        if done.is_err() {
            self.stopping.store(false, Ordering::SeqCst);
        }
        done
    }

    fn stop_all(self: &Arc<Self>, leave: bool) -> Result<(), Refusal> {
        let (slots, mut others) = (self.slots(), Vec::new());
        let mut left = Vec::new();
        let asked: Vec<_> = slots
            .values()
            .map(|slot| (slot, slot.begin(STOP_ASK_MAX, |held| held.engine.plane().may_stop())))
            .collect();
        let until = Instant::now() + STOP_ASK_MAX;
        for (slot, asked) in asked {
            match asked
                .and_then(|asked| asked.answer(until.saturating_duration_since(Instant::now())))
            {
                Ok(Ok(())) if slot.resource == Resource::CPU => {}
                Ok(Ok(())) => others.push(slot),
                Ok(Err(why)) if leave && slot.resource != Resource::CPU => {
                    leaves(slot, &why.to_string());
                }
                Ok(Err(why)) => return Err(why.into()),
                Err(refusal) if slot.resource == Resource::CPU => return Err(refusal),
                Err(refusal) => left.push((slot, refusal)),
            }
        }
        let going = |slot: &Arc<Slot>, going| lock(&self.registry).going(slot.resource, going);
        if !leave {
            left.iter().try_for_each(|(slot, _)| going(slot, true))?;
        }
        others.iter().try_for_each(|other| going(other, true))?;
        // The CPU first: where it does not go, nothing does.
        if let Some(cpu) = slots.get(&Resource::CPU)
            && let Err(refusal) = self.stop_one(cpu)
        {
            let back = left.iter().map(|(slot, _)| *slot).chain(others.iter().copied());
            back.into_iter().try_for_each(|other| going(other, false))?;
            return Err(refusal);
        }
        for (other, done) in self.stop_in_time(others) {
            match done {
                // Somebody began to use it just now.
                Err(refusal) if leave && refusal.errno == libc::EBUSY => {
                    going(other, false)?;
                    leaves(other, &refusal.text);
                }
                Err(refusal) if matches!(refusal.errno, libc::ETIMEDOUT | libc::EAGAIN) => {
                    left.push((other, refusal));
                }
                done => done?,
            }
        }
        for (slot, why) in left {
            leaves(slot, &why.text);
        }
        self.listening().end()?;
        // What is left goes on without us.
        self.change_slots(super::Slots::clear);
        let registry = lock(&self.registry);
        if registry.known().is_empty() {
            registry.end()?;
        }
        Ok(())
    }

    /// All at once, each on a thread that may be lost. One for which no thread is to be had in all
    /// that time stays: here nobody could stop waiting for it.
    fn stop_in_time<'s>(
        self: &Arc<Self>,
        slots: Vec<&'s Arc<Slot>>,
    ) -> Vec<(&'s Arc<Slot>, Stopped)> {
        let until = Instant::now() + STOP_RESOURCES_MAX;
        let begin = |slot: &Arc<Slot>| {
            let (tell, hear) = channel();
            let (core, of_thread) = (self.clone(), slot.clone());
            let body = move || {
                let _ = tell.send(core.stop_one(&of_thread));
            };
            let thread = begin::thread("stop one", body);
            thread.map(|_| hear)
        };
        let mut going: Vec<_> = slots.into_iter().map(|slot| (slot, begin(slot))).collect();
        // Before anybody is waited for: who hangs must not take the time of who has no thread yet.
        while going.iter().any(|(_, hear)| hear.is_err()) && Instant::now() < until {
            std::thread::sleep(NO_THREAD_PAUSE);
            for (slot, hear) in going.iter_mut().filter(|(_, hear)| hear.is_err()) {
                *hear = begin(slot);
            }
        }
        let end = |(slot, hear): (&'s Arc<Slot>, io::Result<Receiver<Stopped>>)| {
            let hear = match hear {
                Ok(hear) => hear,
                Err(error) => {
                    let what = format!("stop {} on", slot.name);
                    return (slot, Err(Refusal::no_thread(&what, &error)));
                }
            };
            let done = hear.recv_timeout(until.saturating_duration_since(Instant::now()));
            let late = |_| {
                let text =
                    format!("{} did not go within {} s", slot.name, STOP_RESOURCES_MAX.as_secs());
                Err(Refusal::new(libc::ETIMEDOUT, text))
            };
            (slot, done.unwrap_or_else(late))
        };
        going.into_iter().map(end).collect()
    }
}

fn leaves(slot: &Slot, why: &str) {
    let name = slot.name.as_str();
    tracing::warn!(name, why, "left as it is: it goes on without us, and the next start finds it");
}
