// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tags' programs are told which queues a container owns: a thread that is bound to it opens,
//! accepts, connects and sends in those (bpf/tag/works.h).
//!
//! What they know is theirs and outlives the worker; a new one reads it. It is read again, too,
//! where a resource has come or gone, for they forget what they knew of one that goes.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use reserv_model::{ContainerId, Holds};
use reserv_namespace::Resource;
use reserv_plane::tag::{self, Owned, Wanted};

use super::{Room, cpu_key, key};
use crate::core::slot::Slot;
use crate::sync::lock;

/// What the programs were told, and when.
#[derive(Default)]
pub(super) struct Told {
    known: Option<Owned>,
    /// Of the book.
    version: Option<u64>,
    /// Each, and whether it was up.
    trees: Vec<(Weak<Slot>, bool)>,
}

impl Room {
    /// If that has changed, or could not be told before.
    pub(super) fn tell_queues(&self) {
        let trees = self.all_trees();
        let mut told = lock(&self.told_queues);
        let same_trees = trees.len() == told.trees.len()
            && trees.iter().zip(&told.trees).all(|((now, up), (before, was))| {
                std::ptr::eq(Arc::as_ptr(now), before.as_ptr()) && up == was
            });
        let version = self.book().version;
        if same_trees && told.version == Some(version) {
            return;
        }
        if !same_trees {
            told.known = None;
            told.trees = trees.iter().map(|(slot, up)| (Arc::downgrade(slot), *up)).collect();
        }
        told.version = match tag::tell_owned(&mut told.known, || self.queues(&self.all_trees())) {
            Ok(()) => Some(version),
            Err(error) => {
                tracing::warn!(%error, "what containers own is told to the tags' programs later");
                None
            }
        };
    }

    /// The trees, in order of number, and whether each is up: one that comes again under a new
    /// worker may take its time, and its programs run meanwhile.
    fn all_trees(&self) -> Vec<(Arc<Slot>, bool)> {
        self.core.slots().values().map(|slot| (slot.clone(), slot.is_up())).collect()
    }

    /// Of every container that holds threads and has a queue of the CPU, the others.
    fn queues(&self, trees: &[(Arc<Slot>, bool)]) -> Wanted {
        let cpu = cpu_key(&self.core);
        let is_cpu = |slot: &Slot| slot.resource == Resource::CPU;
        let others: Vec<_> = trees
            .iter()
            .filter(|(slot, up)| *up && slot.is_shown() && !is_cpu(slot))
            .map(|(slot, _)| key(slot))
            .collect();
        let moving = trees.iter().filter(|(_, up)| !up).map(|(slot, _)| slot.resource.number());
        let moving = moving.collect();
        if !trees.iter().any(|(slot, _)| is_cpu(slot)) {
            return Wanted::default(); // there is no CPU: nobody is bound
        }
        let book = self.book();
        let of = |id: ContainerId| {
            let nodes = others.iter().filter_map(|tree| Some((tree.0, book.node(id, tree)?)));
            (book.node(id, &cpu), nodes.collect::<BTreeMap<_, _>>())
        };
        let threads = book.all.iter().filter(|held| held.holds == Holds::Threads);
        let owned: Owned = threads
            .map(|held| of(held.id))
            .filter_map(|(cpu, nodes)| Some((cpu?, nodes)))
            .collect();
        Wanted { owned, moving }
    }
}
