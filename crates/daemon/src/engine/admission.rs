// SPDX-License-Identifier: MIT OR Apache-2.0
//! Deadlines that are kept are promised first: threads with period and budget come into an `edf`
//! queue only while their budgets per period fit together into what the queue is guaranteed
//! (`Tree::guarantee`), and no edit takes that away from them.
//!
//! Threads without a period are always let in; they run when none of the others wants. Parameters
//! live in the plane with their threads, so the sum is made anew from the members each time. What a
//! thread sets for itself by system call is asked about in the kernel, by the same rule
//! (sched/guarantee.c).

use reserv_model::{
    Amount, Class, Edit, Error, ErrorKind, Kind, NodeId, Plan, ThreadParams, Tree, promised,
};
use reserv_plane::Target;

use super::{Engine, Refusal};

fn is_edf(tree: &Tree, queue: NodeId) -> bool {
    tree.get(queue).is_some_and(|n| n.kind == Kind::Queue(Class::Edf))
}

fn too_much(tree: &Tree, queue: NodeId, wanted: u64, sure: u64) -> Refusal {
    let (at, wanted, sure) = (tree.shown(queue), Amount(wanted), Amount(sure));
    let why = format!("{at}: its threads' budgets need {wanted}, and it is guaranteed {sure}");
    Error::new(ErrorKind::Overcommitted, why)
        .hint("a smaller budget, a longer period, or a larger share on the way from the root to the queue")
        .into()
}

impl Engine {
    fn params_in(&self, queue: NodeId, except: &[i32]) -> Result<Vec<ThreadParams>, Refusal> {
        let members = self.plane().members(queue)?;
        Ok(members.into_iter().filter(|m| !except.contains(&m.tid)).map(|m| m.params).collect())
    }

    /// Whether these threads may be in this queue, with these parameters.
    fn admit(
        &self,
        queue: NodeId,
        tids: &[i32],
        params: Option<ThreadParams>,
    ) -> Result<(), Refusal> {
        if !is_edf(self.tree(), queue) {
            return Ok(());
        }
        let mut all = match params {
            Some(params) => vec![params],
            None => tids.iter().filter_map(|tid| self.plane().params_of(*tid).ok()).collect(),
        };
        if all.iter().all(|p| p.period_ns == 0) {
            return Ok(());
        }
        if queue == NodeId::Q0 {
            let why =
                "no deadline can be promised in q0: every thread without another queue is in it";
            return Err(Error::new(ErrorKind::Unsupported, why)
                .hint("make a queue of class edf")
                .into());
        }
        all.extend(self.params_in(queue, tids)?);
        let (wanted, sure) = (promised(&all), self.tree().guarantee(queue, self.tree().capacity()));
        if wanted > sure { Err(too_much(self.tree(), queue, wanted, sure)) } else { Ok(()) }
    }

    /// Tag threads with a queue, and set what one of them asks of it; all or nothing.
    pub fn tag(
        &mut self,
        target: Target,
        queue: NodeId,
        params: Option<ThreadParams>,
    ) -> Result<(), Refusal> {
        let tids = match target {
            Target::Thread(tid) => vec![tid],
            Target::Process(pid) => crate::process::threads(pid),
        };
        self.admit(queue, &tids, params)?;
        let (Target::Thread(tid), Some(params)) = (target, params) else {
            self.plane_mut().tag(target, queue)?;
            return Ok(());
        };
        let before = self.plane().tag_of(tid)?;
        if before != queue {
            self.plane_mut().tag(target, queue)?;
        }
        if let Err(error) = self.plane_mut().set_params(tid, &params) {
            if before != queue
                && let Err(error) = self.plane_mut().tag(target, before)
            {
                tracing::warn!(%error, tid, "a thread was not put back");
            }
            return Err(error.into());
        }
        Ok(())
    }

    /// Whether an edit could do that: there are queues of class edf, or it makes one of a queue.
    pub(crate) fn may_break_promises(&self, plan: &Plan) -> bool {
        let becomes = |e: &Edit| matches!(e, Edit::Class { class: Class::Edf, .. });
        let deadlines = self.tree().iter().any(|n| n.kind == Kind::Queue(Class::Edf));
        !plan.is_empty() && (deadlines || plan.edits().iter().any(becomes))
    }

    /// Refuses an edit that takes from a queue what its threads were promised.
    pub(crate) fn check_promises(&self, plan: &Plan) -> Result<(), Refusal> {
        if !self.may_break_promises(plan) {
            return Ok(());
        }
        let mut after = self.tree().clone();
        after.replay(&plan.record())?;
        for node in after.iter().filter(|n| n.id != NodeId::Q0 && is_edf(&after, n.id)) {
            let (id, capacity) = (node.id, self.tree().capacity());
            let sure = after.guarantee(id, capacity);
            if is_edf(self.tree(), id) && sure >= self.tree().guarantee(id, capacity) {
                continue;
            }
            if self.tree().get(id).is_none() {
                continue; // made by this plan: it has no members
            }
            let wanted = promised(&self.params_in(id, &[])?);
            if wanted > sure {
                return Err(too_much(&after, id, wanted, sure));
            }
        }
        Ok(())
    }

    /// The scheduler has come back: threads whose budgets their queues are not guaranteed any more
    /// (an edit meanwhile, fewer CPUs) have lost them. They are taken back, so that the thread
    /// reads what holds, and keep weight and priority. Answers who lost what.
    pub fn take_back_unkept(&mut self) -> Vec<String> {
        let queues: Vec<NodeId> =
            self.tree().iter().map(|n| n.id).filter(|&id| is_edf(self.tree(), id)).collect();
        let mut lost = Vec::new();
        for queue in queues {
            for member in self.plane().members(queue).unwrap_or_default() {
                let Ok(asked) = self.plane().params_of(member.tid) else { continue };
                if asked.period_ns == 0 || member.params.period_ns != 0 {
                    continue;
                }
                let rest = ThreadParams { period_ns: 0, budget_ns: 0, deadline_ns: 0, ..asked };
                if let Err(error) = self.plane_mut().set_params(member.tid, &rest) {
                    tracing::warn!(%error, tid = member.tid, "a budget that does not hold was not taken back");
                }
                let at = self.tree().shown(queue);
                lost.push(format!(
                    "{at}: thread {}, {} ms in {} ms",
                    member.tid,
                    ms(asked.budget_ns),
                    ms(asked.period_ns)
                ));
            }
        }
        lost
    }
}

#[expect(clippy::cast_precision_loss, reason = "periods are at most 10 s")]
fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}
