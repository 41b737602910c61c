// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that bind themselves by a page of their memory (bpf/page.h): what they write is read by
//! the next call that asks what they are bound to.

use std::collections::{BTreeMap, BTreeSet};

use reserv_facts::call::page::{PAGE_LOG, SLOT_BITS};
use reserv_facts::call::{Anchor, ThreadPage, fcntl};
use reserv_model::{NodeId, Right};

use crate::oracle::{CPU, What};
use crate::works::Bound;
use crate::world::{Checked, Random, World, agree};

const SLOT: u32 = fcntl::SLOT.cast_unsigned();
const PAGE: u32 = fcntl::PAGE.cast_unsigned();
const BOUND: u32 = fcntl::BOUND.cast_unsigned();

/// As many numbers are given a container; those above never are.
const NUMBERS: usize = 5;

/// What a process's numbers stand for, each with whether a list let it; and which of its threads
/// have a page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers {
    slots: BTreeMap<usize, (NodeId, bool)>,
    paged: BTreeSet<i32>,
}

impl Numbers {
    pub(crate) fn ends(&mut self, tid: i32) {
        self.paged.remove(&tid);
    }
}

/// The memory of threads' pages: it stays where it is until the end, as the programs may read it.
pub(crate) type Pages = BTreeMap<i32, Box<ThreadPage>>;

fn fresh() -> Box<ThreadPage> {
    Box::new(ThreadPage {
        size: ThreadPage::SIZE,
        which: 0,
        head: 0,
        anchor: [Anchor::default(); 2],
        since: 0,
        every: 0,
        log: [0; PAGE_LOG],
    })
}

impl World {
    /// F_RESERV_SLOT, by a container's descriptor.
    pub(crate) fn slot(&mut self, pid: i32, fd: i32) -> Checked {
        let p = &self.oracle.processes[&pid];
        let What::Container { queue, share } = self.oracle.files[&p.fds[&fd]].what else {
            return Ok(());
        };
        let tree = &self.oracle.trees[CPU];
        let place = tree.place(queue);
        if place.is_some_and(|place| place.draining) {
            return Ok(()); // what was told of it may be forgotten before it goes
        }
        let told = place.is_some_and(|place| place.told);
        let refused =
            share && !told && p.who.uid != 0 || told && !tree.may(&p.who, queue, Right::Use);
        let wanted = match place {
            _ if refused => -libc::EACCES,
            None => -libc::ESTALE,
            Some(_) => 1,
        };
        let number = 1 + self.random.below(NUMBERS);
        let got = self.kernel.k_fcntl(fd, SLOT, number as u64);
        self.note("slot", || format!("{number} of {pid} by {fd}: {got}"));
        if wanted == 1 {
            self.owner(pid).numbers.slots.insert(number, (queue, told));
        }
        agree(|| format!("{pid} gives number {number} the container of {fd}"), &got, &wanted)
    }

    /// A thread writes a few entries, and asks what it is bound to.
    pub(crate) fn page(&mut self, pid: i32, tid: i32, fd: i32) -> Checked {
        let at = std::ptr::from_mut(self.pages.entry(tid).or_insert_with(fresh).as_mut());
        let paged = self.oracle.processes[&pid].numbers.paged.contains(&tid);
        if !paged && !self.random.one_in(3) || self.random.one_in(8) {
            let got = self.kernel.k_fcntl(fd, PAGE, at as u64);
            self.owner(pid).numbers.paged.insert(tid);
            agree(|| format!("a page of {tid}"), &got, &1)?;
        }
        let given: Vec<usize> = self.oracle.processes[&pid].numbers.slots.keys().copied().collect();
        let any = |random: &mut Random| match random.of(&given) {
            Some(number) if !random.one_in(3) => number,
            _ => random.below(NUMBERS + 2),
        };
        let entries: Vec<usize> =
            (0..=self.random.below(3)).map(|_| any(&mut self.random)).collect();
        let drains = |id: NodeId| self.oracle.trees[CPU].place(id).is_some_and(|p| p.draining);
        let p = &self.oracle.processes[&pid];
        let (bound, before) = (self.oracle.bound(pid, tid), p.threads[&tid]);
        let named = entries.iter().filter_map(|number| p.numbers.slots.get(number));
        if named.map(|(queue, _)| *queue).chain(before).any(drains) {
            return Ok(()); // as above
        }
        let reads = p.numbers.paged.contains(&tid);
        let goes = entries.iter().rev().filter(|_| reads).find_map(|&number| {
            let back = bound.map_or(before.unwrap_or(NodeId::Q0), Bound::back);
            if number == 0 {
                let (to, may) = self.oracle.way_back(pid, back);
                return may.then_some((to, None));
            }
            let (queue, listed) = *p.numbers.slots.get(&number)?;
            let (tree, who) = (&self.oracle.trees[CPU], &p.who);
            let may =
                tree.place(queue).is_some_and(|p| !p.told || tree.may(who, queue, Right::Use));
            may.then_some((queue, Some(Bound::new(queue, back, listed))))
        });
        // SAFETY: The memory is ours, and the programs read it when they are called.
        unsafe {
            for number in &entries {
                let head = (*at).head;
                let entry = self.clock << SLOT_BITS | *number as u64;
                (*at).log[usize::try_from(head % PAGE_LOG as u64).unwrap_or(0)] = entry;
                (*at).head = head + 1;
            }
        }
        self.note("page", || format!("{tid} of {pid}: {entries:?}, {goes:?}"));
        if let Some((to, bound)) = goes {
            self.oracle.retag(pid, tid, to);
            if let Some(bound) = bound {
                self.owner(pid).bound.insert(tid, bound);
            }
        }
        let sort = match goes {
            Some((_, Some(_))) => "bound by its page",
            Some((_, None)) => "unbound by its page",
            None => "a page that names nothing",
        };
        *self.counts.entry(sort).or_default() += 1;
        let got = self.kernel.k_fcntl(fd, BOUND, 0);
        agree(|| format!("what {tid} of {pid} wrote: {entries:?}"), &got, &self.is_bound(pid, tid))
    }
}
