// SPDX-License-Identifier: MIT OR Apache-2.0
//! Class edf in a trace: the jobs of its threads, and how late they are. Pure; shares no code with
//! the scheduler.
//!
//! A job is what a thread does from a wake-up to its next sleep. Where it is certain that a period
//! begins with it (no earlier one is under way, or the rule of constant-bandwidth servers gives a
//! new one) its deadline is known; it is judged if it wanted no more than the budget. Where a
//! thread's server stands when the trace begins is taken from the scheduler; what follows is not.
//!
//! Bound. Let U be the sum of budget / deadline over the queue's threads. What the queue received
//! is known, so is how far that fell behind U times the time in which it wanted service, from any
//! start: x. EDF makes no judged job later than (x + l) / U, with l the queue's longest step: what
//! is later is the fault of the order within the queue. Whether the queue got its share is its
//! parent's verdict.

use std::collections::BTreeMap;

const PPM: u128 = 1_000_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Param {
    pub(super) period: u64,
    pub(super) deadline: u64,
    pub(super) budget: u64,
}

impl Param {
    fn relative(&self) -> u64 {
        if self.deadline > 0 { self.deadline } else { self.period }
    }
}

#[derive(Clone, Copy, Debug)]
struct Job {
    /// None: not known.
    due: Option<u64>,
    had: u64,
    /// With more than this it is not judged.
    allowed: u64,
}

#[derive(Clone, Copy, Debug)]
enum Server {
    /// No period after this instant is one that began before.
    Unknown {
        ends: u64,
    },
    Known {
        due: u64,
        release: u64,
        left: i128,
    },
}

#[derive(Clone, Copy, Debug)]
struct Thread {
    param: Param,
    server: Server,
    told: bool,
    job: Option<Job>,
}

/// What is known of a queue's jobs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Jobs {
    pub(super) judged: u64,
    /// After their deadline, at all.
    pub(super) late: u64,
    pub(super) worst: u64,
    /// That wanted more than the budget.
    pub(super) over: u64,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: Jobs,
    threads: BTreeMap<u32, Param>,
    wants_since: Option<u64>,
    behind: i128,
    least: i128,
    worst: i128,
}

/// All queues of the class.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    threads: BTreeMap<u32, Thread>,
    queues: BTreeMap<u64, Queue>,
}

impl Queue {
    /// Parts per million, rounded up.
    fn demand(&self) -> u128 {
        self.threads
            .values()
            .map(|p| (u128::from(p.budget) * PPM).div_ceil(u128::from(p.relative().max(1))))
            .sum()
    }

    fn pass(&mut self, at: u64) {
        if let Some(since) = self.wants_since {
            self.behind +=
                i128::try_from(u128::from(at.saturating_sub(since)) * self.demand()).unwrap_or(0);
            self.worst = self.worst.max(self.behind - self.least);
            self.wants_since = Some(at);
        }
    }
}

impl Deadlines {
    /// What a thread asks for, from now on.
    pub(super) fn param(&mut self, tid: u32, param: Param, at: u64) {
        let server = Server::Unknown { ends: at + param.period };
        match self.threads.get_mut(&tid) {
            Some(thread) if thread.param == param => {}
            _ if param.period == 0 => drop(self.threads.remove(&tid)),
            _ => drop(self.threads.insert(tid, Thread { param, server, told: false, job: None })),
        }
    }

    /// Where its server stands, as the scheduler says when the trace begins, or parameters are set:
    /// deadline and next period, if it has had one, and what is left (none: it is served without
    /// budget).
    pub(super) fn server(&mut self, tid: u32, period: Option<(u64, u64)>, left: Option<i128>) {
        let Some(thread) = self.threads.get_mut(&tid).filter(|t| t.job.is_none() && !t.told) else {
            return;
        };
        thread.told = true;
        match (period, left) {
            (Some((due, release)), Some(left)) => {
                thread.server = Server::Known { due, release, left }
            }
            (None, _) => thread.server = Server::Known { due: 0, release: 0, left: 0 },
            _ => {}
        }
    }

    /// A thread that wants when the trace begins: its job is not judged.
    pub(super) fn present(&mut self, tid: u32, queue: u64) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            let allowed = match thread.server {
                Server::Known { left, .. } => u64::try_from(left).unwrap_or(0),
                Server::Unknown { .. } => 0,
            };
            thread.job = Some(Job { due: None, had: 0, allowed });
            self.queues.entry(queue).or_default().threads.insert(tid, thread.param);
        }
    }

    /// The queue begins or ceases to want.
    pub(super) fn wants(&mut self, queue: u64, more: bool, at: u64) {
        let q = self.queues.entry(queue).or_default();
        q.pass(at);
        q.wants_since = more.then_some(at);
        (q.behind, q.least) = (0, 0);
    }

    /// It received `work`, until now.
    pub(super) fn served(&mut self, queue: u64, work: u64, at: u64) {
        if let Some(q) = self.queues.get_mut(&queue) {
            q.pass(at);
            q.behind -= i128::from(work) * PPM.cast_signed();
            q.least = q.least.min(q.behind);
        }
    }

    /// A thread wakes in a queue of the class.
    pub(super) fn wake(&mut self, tid: u32, queue: u64, at: u64) {
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        let q = self.queues.entry(queue).or_default();
        q.pass(at); // with what was asked for until now
        q.threads.insert(tid, thread.param);
        let p = thread.param;
        let fresh =
            |left: i128| Server::Known { due: at + p.relative(), release: at + p.period, left };
        let budget = i128::from(p.budget);
        let mut certain = true;
        thread.server = match thread.server {
            Server::Unknown { ends } if at >= ends + p.period => fresh(budget),
            // Who was in debt lately may have less.
            Server::Unknown { ends } => {
                certain = false;
                Server::Unknown { ends: ends.max(at + p.period) }
            }
            Server::Known { release, left, .. } if at >= release => {
                fresh(if left < 0 && at - release < p.period {
                    budget + left.max(-budget)
                } else {
                    budget
                })
            }
            Server::Known { due, release, left } => {
                let ahead = i128::from(due.saturating_sub(at));
                if left > 0 && left * i128::from(p.relative()) > ahead * budget {
                    if p.relative() == p.period {
                        fresh(budget)
                    } else {
                        Server::Known {
                            due,
                            release,
                            left: ahead * budget / i128::from(p.relative()),
                        }
                    }
                } else {
                    thread.server
                }
            }
        };
        thread.job = Some(match thread.server {
            Server::Known { due, left, .. } if certain => Job {
                due: (left > 0).then_some(due),
                had: 0,
                allowed: u64::try_from(left).unwrap_or(0),
            },
            _ => Job { due: None, had: 0, allowed: 0 },
        });
    }

    /// A step of it ended.
    pub(super) fn had(&mut self, tid: u32, work: u64) {
        if let Some(job) = self.threads.get_mut(&tid).and_then(|t| t.job.as_mut()) {
            job.had += work;
        }
    }

    /// It wants no longer, or the trace ends (`open`).
    pub(super) fn done(&mut self, tid: u32, queue: u64, at: u64, open: bool) {
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        let Some(job) = thread.job.take() else { return };
        let unknown = Server::Unknown { ends: at + thread.param.period };
        thread.server = match thread.server {
            Server::Known { due, release, left } if job.had <= job.allowed => {
                Server::Known { due, release, left: left - i128::from(job.had) }
            }
            _ => unknown,
        };
        let (Some(due), Some(q)) = (job.due, self.queues.get_mut(&queue)) else { return };
        if job.had > job.allowed {
            q.jobs.over += 1;
        } else if !open || at > due {
            q.jobs.judged += 1;
            q.jobs.late += u64::from(at > due);
            q.jobs.worst = q.jobs.worst.max(at.saturating_sub(due));
        }
    }

    /// Another queue: nothing is known of the job any more.
    pub(super) fn moved(&mut self, tid: u32, from: u64, at: u64) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.job = None;
            thread.server = Server::Unknown { ends: at + thread.param.period };
        }
        if let Some(q) = self.queues.get_mut(&from) {
            q.pass(at);
            q.threads.remove(&tid);
        }
    }

    /// The end of the trace.
    pub(super) fn close(&mut self, inside: impl Fn(u32) -> Option<u64>, at: u64) {
        let all: Vec<u32> = self.threads.keys().copied().collect();
        for tid in all {
            if let Some(queue) = inside(tid) {
                self.done(tid, queue, at, true);
            }
        }
        for q in self.queues.values_mut() {
            q.pass(at);
        }
    }

    /// Jobs of a queue, and how late they may be with steps of `longest`, ns; none: nobody in it
    /// has a deadline.
    pub(super) fn of(&self, queue: u64, longest: u64) -> Option<(Jobs, u64)> {
        let q = self.queues.get(&queue)?;
        let demand = i128::try_from(q.demand()).ok().filter(|d| *d > 0)?;
        let allowed = (q.worst + i128::from(longest) * PPM.cast_signed()) / demand;
        Some((q.jobs, u64::try_from(allowed).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const Q: u64 = 9;

    fn one(param: Param) -> Deadlines {
        let mut d = Deadlines::default();
        d.param(1, param, 0);
        d.server(1, Some((90, 90)), Some(0));
        d.wants(Q, true, 0);
        d
    }

    fn job(d: &mut Deadlines, from: u64, to: u64, work: u64) {
        d.wake(1, Q, from);
        d.had(1, work);
        d.served(Q, work, to);
        d.done(1, Q, to, false);
    }

    #[test]
    fn jobs_are_judged_from_the_first_period_that_is_certain() {
        let mut d = one(Param { period: 100, deadline: 0, budget: 10 });
        job(&mut d, 50, 60, 10); // the period under way has nothing left
        assert_eq!(d.of(Q, 0).unwrap().0.judged, 0);
        // More than was left: what follows is certain again after a pause.
        job(&mut d, 100, 110, 10);
        assert_eq!(d.of(Q, 0).unwrap().0.judged, 0);
        job(&mut d, 320, 330, 10);
        assert_eq!(d.of(Q, 0).unwrap().0.judged, 1);
        job(&mut d, 420, 520, 10);
        job(&mut d, 520, 630, 10);
        let jobs = d.of(Q, 0).unwrap().0;
        assert_eq!((jobs.judged, jobs.late, jobs.worst, jobs.over), (3, 1, 10, 0));
        // More than the budget: not judged, and its next period is not certain.
        job(&mut d, 650, 900, 11);
        job(&mut d, 905, 1200, 10);
        let jobs = d.of(Q, 0).unwrap().0;
        assert_eq!((jobs.judged, jobs.over), (3, 1));
    }

    #[test]
    fn within_a_period_the_rule_of_the_server_decides() {
        let mut d = one(Param { period: 100, deadline: 0, budget: 10 });
        job(&mut d, 200, 205, 4);
        // 6 left until 300, and no more than 7 may be claimed: the old deadline.
        job(&mut d, 230, 301, 1);
        assert_eq!(d.of(Q, 0).unwrap().0.late, 1);
        let mut d = one(Param { period: 100, deadline: 0, budget: 10 });
        job(&mut d, 200, 205, 4);
        // No more than 3 may be claimed until 300: a new period.
        job(&mut d, 270, 305, 1);
        let jobs = d.of(Q, 0).unwrap().0;
        assert_eq!((jobs.judged, jobs.late), (2, 0));
        // With an earlier deadline: as much as can be claimed until then, and no new period.
        let mut d = one(Param { period: 100, deadline: 50, budget: 10 });
        job(&mut d, 200, 205, 4);
        job(&mut d, 240, 251, 1);
        job(&mut d, 245, 252, 3);
        let jobs = d.of(Q, 0).unwrap().0;
        assert_eq!((jobs.judged, jobs.late, jobs.over), (2, 1, 1));
    }

    #[test]
    fn the_bound_is_what_the_queue_lacked() {
        let mut d = one(Param { period: 100, deadline: 0, budget: 50 });
        d.wake(1, Q, 0);
        // From 0 to 40 nothing, then all: it lacks 20 and then has it back.
        d.served(Q, 0, 40);
        d.served(Q, 60, 100);
        let (_, allowed) = d.of(Q, 5).unwrap();
        // 50 behind just before what came until 100 is told; and a step of 5; over a half.
        assert_eq!(allowed, 110);
        assert!(d.of(Q + 1, 5).is_none());
    }
}
