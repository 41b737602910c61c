// SPDX-License-Identifier: MIT OR Apache-2.0
//! Edits: what the tree is told, what it knows nothing of, and what waits in a queue that goes.

use super::cello::in_tree;
use super::{Lane, Scheduler, index};
use crate::wire::{
    self, AUTO, Q0, ROUNDS, RsBatch, RsOp, TUNE_NS_MAX, WINDOW_MAX, delete, op, tune,
};

impl Scheduler {
    /// Policies and classes that are beside the tree have others in it.
    pub(super) fn alg_in_tree(kind: u64, alg: u64) -> u64 {
        match alg {
            _ if kind != u64::from(wire::SCHED) => in_tree(alg),
            alg if alg == u64::from(wire::CELLO) => 0,
            alg => alg,
        }
    }

    /// A tunable of ours, of which the tree knows nothing: 0, or a negative errno.
    fn check_tune(&self, batch: &RsBatch, i: usize) -> i32 {
        let RsOp { node, a, b, .. } = batch.op[i];
        let is_queue = |id: u64| {
            let made = |op: &RsOp| (op.code, op.node, op.a) == (op::CREATE, id, wire::QUEUE.into());
            batch.op[..i].iter().any(made)
                || self.book.get(id).is_some_and(|entry| entry.kind == wire::QUEUE)
        };
        let fine = match a {
            tune::BATCH => node == wire::ROOT && b <= WINDOW_MAX.into(),
            tune::ANTICIPATE => node == wire::ROOT && (b <= TUNE_NS_MAX || b == AUTO),
            tune::COST => node == wire::ROOT && b <= wire::cost::TIME,
            tune::DEADLINE => is_queue(node) && b <= TUNE_NS_MAX,
            tune::ROUND => node == wire::ROOT && (b == 0 || ROUNDS.contains(&b)),
            _ => false,
        };
        if fine { 0 } else { -libc::EINVAL }
    }

    /// An edit as the tree has it; an errno: of Cello for a node that is not the root, of limits.
    fn op_in_tree(mut op: RsOp) -> Result<RsOp, i32> {
        let (kind, alg) = match op.code {
            // A queue's members are its requests and its phantom: with a limit of one none would
            // ever be served.
            op::LIMIT if (op.a, op.b) != (0, 0) => return Err(-libc::EOPNOTSUPP),
            op::CREATE => (op.a, &mut op.b),
            op::CLASS => (wire::QUEUE.into(), &mut op.a),
            op::POLICY => (wire::SCHED.into(), &mut op.a),
            _ => return Ok(op),
        };
        let cello = kind == u64::from(wire::SCHED) && *alg == u64::from(wire::CELLO);
        if cello && (op.code, op.node) != (op::POLICY, wire::ROOT) {
            return Err(-libc::EINVAL);
        }
        *alg = Self::alg_in_tree(kind, *alg);
        Ok(op)
    }

    /// Caps are the tree's, and Cello's requests wait outside of it: which of the edits would make
    /// both, if any.
    fn cap_under_cello(&self, ops: &[RsOp]) -> Option<usize> {
        let mut cello = self.book.cello().is_some();
        let capped = self.book.entries().filter(|(_, entry)| entry.cap != 0);
        let mut capped: Vec<u64> = capped.map(|(_, entry)| entry.id).collect();
        let mut last = 0;
        for (i, edit) in ops.iter().enumerate() {
            match edit.code {
                op::POLICY if edit.node == wire::ROOT => {
                    (cello, last) = (edit.a == wire::CELLO.into(), i);
                }
                op::CAP | op::DELETE => {
                    capped.retain(|id| *id != edit.node);
                    if edit.code == op::CAP && edit.a != 0 {
                        capped.push(edit.node);
                        last = i;
                    }
                }
                _ => {}
            }
        }
        (cello && !capped.is_empty()).then_some(last)
    }

    /// A batch: 0, or the core's negative errno with nothing changed.
    pub fn edit(&mut self, batch: &mut RsBatch, now: u64) -> i32 {
        batch.now = now;
        let count = (batch.count as usize).min(wire::BATCH_MAX);
        if let Some(failed) = self.cap_under_cello(&batch.op[..count]) {
            (batch.error, batch.failed) = (-libc::EOPNOTSUPP, u32::try_from(failed).unwrap_or(0));
            return -libc::EOPNOTSUPP;
        }
        // What the tree is told, and where in the batch that stands.
        let mut told = RsBatch { count: 0, ..*batch };
        let mut places = Vec::with_capacity(count);
        for i in 0..count {
            let RsOp { code, node, a, .. } = batch.op[i];
            if code == op::TUNE && (tune::BATCH..=tune::ROUND).contains(&a) {
                let answer = self.check_tune(batch, i);
                if answer < 0 {
                    (batch.error, batch.failed) = (answer, u32::try_from(i).unwrap_or(0));
                    return answer;
                }
                batch.op[i].answer = 0;
            } else {
                match Self::op_in_tree(batch.op[i]) {
                    Ok(op) => told.op[places.len()] = op,
                    Err(error) => {
                        (batch.error, batch.failed) = (error, u32::try_from(i).unwrap_or(0));
                        return error;
                    }
                }
                places.push(i);
            }
            if code == op::DELETE && a == delete::DRAIN {
                self.let_go(node, now);
            }
        }
        told.count = u32::try_from(places.len()).unwrap_or(0);
        let answer = self.edit_tree(&mut told, now);
        for (k, &i) in places.iter().enumerate() {
            let RsOp { a, b, .. } = batch.op[i];
            batch.op[i] = RsOp { a, b, ..told.op[k] };
        }
        let failed = places.get(told.failed as usize).copied().unwrap_or(0);
        (batch.error, batch.failed) = (told.error, u32::try_from(failed).unwrap_or(0));
        if answer == 0 {
            self.book.write(batch);
            if self.book.cello().is_some() == self.cello.is_on() {
                self.retune();
            } else {
                self.switch(now);
            }
        }
        answer
    }

    fn edit_tree(&mut self, batch: &mut RsBatch, now: u64) -> i32 {
        let count = batch.count as usize;
        // Each once: its phantom is given back once, and lent once where the batch is refused.
        let again = |i: usize| {
            batch.op[..i].iter().any(|edit| {
                (edit.code, edit.node, edit.a) == (op::DELETE, batch.op[i].node, delete::NOW)
            })
        };
        let flushed: Vec<usize> = (0..count)
            .filter(|&i| batch.op[i].code == op::DELETE && batch.op[i].a == delete::NOW)
            .filter(|&i| self.tree.kind(batch.op[i].node) == u32::from(wire::QUEUE))
            .filter(|&i| !again(i))
            .collect();
        for &i in &flushed {
            // What waits leaves after the batch: until then the queue drains. One that drains
            // already would go with its phantom, whatever becomes of the batch.
            let node = batch.op[i].node;
            if self.book.get(node).is_some_and(|entry| entry.dying == 0) {
                self.take_back(node, now);
            }
            batch.op[i].a = 1;
        }
        let answer = self.tree.edit(batch);
        if answer < 0 {
            for &i in &flushed {
                let node = batch.op[i].node;
                if self.book.get(node).is_some_and(|entry| entry.dying == 0) {
                    self.lend(node);
                }
                batch.op[i].a = delete::NOW;
            }
            return answer;
        }
        for &i in &flushed {
            self.take_back(batch.op[i].node, now);
            self.hand_over(batch.op[i].node, now);
            batch.op[i].answer = 0;
            batch.op[i].a = delete::NOW;
        }
        for i in 0..count {
            let RsOp { code, node, a, answer, .. } = batch.op[i];
            if code == op::CREATE && a == u64::from(wire::QUEUE) && self.tree.kind(node) != 0 {
                self.lanes[index(node)] = Lane::default();
                self.costs.begin(index(node));
                self.lend(node);
            }
            debug_assert!(answer >= 0, "a batch in effect");
        }
        0
    }

    /// What waits in a queue that goes stands at the end of q0, in its order.
    fn hand_over(&mut self, from: u64, now: u64) {
        let mut items: Vec<u32> = (0..u32::try_from(self.waiting.len()).unwrap_or(0))
            .filter(|&i| self.waiting[i as usize].as_ref().is_some_and(|w| w.queue == from))
            .collect();
        items.sort_by_key(|&i| self.waiting[i as usize].as_ref().map(|w| w.request.handle));
        self.let_go(Q0, now);
        let mut left = Lane::default();
        for waiting in self.cello.waiting_mut().filter(|waiting| waiting.queue == from) {
            waiting.queue = Q0;
            left.queued += 1;
            left.bytes += u64::from(waiting.request.len);
        }
        for (queue, sign) in [(from, -1), (Q0, 1)] {
            let lane = &mut self.lanes[index(queue)];
            lane.queued = lane.queued.wrapping_add_signed(sign * left.queued.cast_signed());
            lane.bytes = lane.bytes.wrapping_add_signed(i64::from(sign) * left.bytes.cast_signed());
        }
        for item in items {
            if self.tree.change_queue(item, Q0, now)
                && let Some(waiting) = &mut self.waiting[item as usize]
            {
                waiting.queue = Q0;
                let bytes = u64::from(waiting.request.len);
                let lane = &mut self.lanes[index(from)];
                lane.queued -= 1;
                lane.bytes -= bytes;
                let lane = &mut self.lanes[index(Q0)];
                lane.queued += 1;
                lane.bytes += bytes;
            }
        }
    }

    /// A draining queue goes, if nothing waits in it: 0, or a negative errno.
    pub fn collect(&mut self, id: u64, now: u64) -> i32 {
        let draining = self.book.get(id).is_some_and(|entry| entry.dying != 0);
        if !draining {
            return -libc::ESTALE;
        }
        if self.lanes[index(id)].queued > 0 {
            return -libc::EBUSY;
        }
        self.take_back(id, now);
        self.book.forget(id);
        self.retune();
        0
    }
}
