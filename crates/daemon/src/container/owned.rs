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
use reserv_plane::tag::{self, Owned};

use super::{Room, cpu_key, key};
use crate::core::slot::Slot;
use crate::sync::lock;

/// What the programs were told, and when.
#[derive(Default)]
pub(super) struct Told {
    known: Option<Owned>,
    /// Of the book.
    version: Option<u64>,
    trees: Vec<Weak<Slot>>,
}

impl Room {
    /// If that has changed, or could not be told before.
    pub(super) fn tell_queues(&self) {
        let trees = self.trees();
        let mut told = lock(&self.told_queues);
        let same = |(now, before): (&Arc<Slot>, &Weak<Slot>)| {
            std::ptr::eq(Arc::as_ptr(now), before.as_ptr())
        };
        let same_trees = trees.len() == told.trees.len() && trees.iter().zip(&told.trees).all(same);
        let version = self.book().version;
        if same_trees && told.version == Some(version) {
            return;
        }
        if !same_trees {
            told.known = None;
            told.trees = trees.iter().map(Arc::downgrade).collect();
        }
        let wanted = self.queues(&trees);
        told.version = match tag::tell_owned(&mut told.known, &wanted) {
            Ok(()) => Some(version),
            Err(error) => {
                tracing::warn!(%error, "what containers own is told to the tags' programs later");
                None
            }
        };
    }

    /// Of every container that holds threads and has a queue of the CPU, the others.
    fn queues(&self, trees: &[Arc<Slot>]) -> Owned {
        let cpu = cpu_key(&self.core);
        let others: Vec<_> = trees
            .iter()
            .filter(|slot| slot.resource != Resource::CPU)
            .map(|slot| key(slot))
            .collect();
        if others.len() == trees.len() {
            return Owned::new(); // there is no CPU: nobody is bound
        }
        let book = self.book();
        let of = |id: ContainerId| {
            let nodes = others.iter().filter_map(|tree| Some((tree.0, book.node(id, tree)?)));
            (book.node(id, &cpu), nodes.collect::<BTreeMap<_, _>>())
        };
        book.all
            .iter()
            .filter(|held| held.holds == Holds::Threads)
            .map(|held| of(held.id))
            .filter_map(|(cpu, nodes)| Some((cpu?, nodes)))
            .filter(|(_, nodes)| !nodes.is_empty())
            .collect()
    }
}
