// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work whose end somebody else decides: words of who has a copy of another's descriptor (his exec
//! may hold it up, and whoever serves its file the close: [`crate::copier`]), a name service, a
//! look at what others have open. It is done on threads of its own that may be lost, never under a
//! lock and never by a thread that serves others.
//!
//! * An answer is bounded: who waits longer is told so (ETIMEDOUT), and what comes of the work
//!   later does nothing ([`Turn::take`] is had once, by the work or by the clock).
//! * The threads are bounded, for each user and for all, lost ones included: beyond it EAGAIN. So a
//!   process that blocks its reader costs its own user.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::begin;
use crate::refusal::Refusal;
use crate::sync::lock;

/// How long an answer may take.
pub const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Threads that work for one user, or are lost.
const OF_ONE_MAX: usize = 16;
/// The same of all users but root.
const OF_USERS_MAX: usize = 48;
/// And with root.
const OF_ALL_MAX: usize = 64;
const STACK: usize = 1 << 18;

type Late = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Shared {
    places: Mutex<BTreeMap<u32, usize>>,
    /// What is to be said, and when, if nobody has answered by then. What has ended is not there.
    due: Mutex<BTreeMap<(Instant, u64), Late>>,
    changed: Condvar,
}

impl Shared {
    /// That is said when its time has come, unless it is taken back by this key.
    fn wait_for(&self, late: Late) -> (Instant, u64) {
        let mut due = lock(&self.due);
        let number = due.last_key_value().map_or(0, |((_, number), _)| number + 1);
        let key = (Instant::now() + ANSWER_MAX, number);
        due.insert(key, late);
        self.changed.notify_one();
        key
    }
}

/// See the head of this file.
#[derive(Clone, Default)]
pub struct Asides(Arc<Shared>);

/// A thread's place, free again when it is dropped.
struct Place {
    shared: Arc<Shared>,
    uid: u32,
}

impl Place {
    fn take(shared: &Arc<Shared>, uid: u32) -> Result<Self, Refusal> {
        let mut places = lock(&shared.places);
        let all: usize = places.values().sum();
        let users = all - places.get(&0).copied().unwrap_or(0);
        let own = places.entry(uid).or_default();
        let free =
            if uid == 0 { all < OF_ALL_MAX } else { *own < OF_ONE_MAX && users < OF_USERS_MAX };
        if !free {
            if *own == 0 {
                places.remove(&uid);
            }
            return Err(Refusal {
                errno: libc::EAGAIN,
                text: "too many answers about other processes are still waited for".into(),
                hint: "they come when those processes go on, or whoever serves their files does"
                    .into(),
            });
        }
        *own += 1;
        Ok(Self { shared: shared.clone(), uid })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = lock(&self.shared.places);
        if let Some(own) = places.get_mut(&self.uid) {
            *own -= 1;
            if *own == 0 {
                places.remove(&self.uid);
            }
        }
    }
}

/// What only one may have: who does the work, or the clock.
pub struct Turn<T>(Arc<Mutex<Option<T>>>);

impl<T> Clone for Turn<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Turn<T> {
    /// Of this.
    pub fn new(token: T) -> Self {
        Self(Arc::new(Mutex::new(Some(token))))
    }

    /// `None`: it is too late, and nothing is to be done.
    pub fn take(&self) -> Option<T> {
        lock(&self.0).take()
    }
}

fn late() -> Refusal {
    let text =
        format!("no answer within {} s: the process or whoever serves its files is stuck", {
            ANSWER_MAX.as_secs()
        });
    Refusal::new(libc::ETIMEDOUT, text)
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), Refusal> {
    let thread = begin::thread_of(name, STACK, body);
    thread.map(drop).map_err(|error| Refusal::no_thread("ask on", &error))
}

impl Asides {
    /// With the thread that looks at the clock.
    pub fn begin() -> Result<Self, Refusal> {
        let shared = Arc::new(Shared::default());
        let of_clock = shared.clone();
        spawn("late", move || run_clock(&of_clock))?;
        Ok(Self(shared))
    }

    /// Does `work` on a thread of its own, for this user. It takes `token` when it comes to what it
    /// does; if it does not in time, `too_late` has it. What comes back hangs up when the work is
    /// done. On error nothing is begun, and the token comes back.
    pub fn start<T: Send + 'static>(
        &self,
        uid: u32,
        token: T,
        too_late: impl FnOnce(T, Refusal) + Send + 'static,
        work: impl FnOnce(&Turn<T>) + Send + 'static,
    ) -> Result<Receiver<()>, (T, Refusal)> {
        let (ends, ended) = channel();
        let place = match Place::take(&self.0, uid) {
            Ok(place) => place,
            Err(refusal) => return Err((token, refusal)),
        };
        let turn = Turn::new(token);
        let (of_work, of_clock) = (turn.clone(), turn.clone());
        let say = move || {
            if let Some(token) = of_clock.take() {
                too_late(token, late());
            }
        };
        let key = self.0.wait_for(Box::new(say));
        let of_all = self.0.clone();
        let begun = spawn("aside", move || {
            work(&of_work);
            let ended = lock(&of_all.due).remove(&key);
            drop((ended, place, ends));
        });
        if let Err(refusal) = begun {
            let forgotten = lock(&self.0.due).remove(&key);
            drop(forgotten);
            return match turn.take() {
                Some(token) => Err((token, refusal)),
                None => Ok(ended),
            };
        }
        Ok(ended)
    }
}

/// How long one process may take to be looked at.
const LOOK_MAX: Duration = Duration::from_millis(500);

/// Looks at many processes, one after the other, on a thread that may be lost. Whoever blocks it is
/// left out then, and from then on until he lets it go: he costs himself only.
#[derive(Default)]
pub struct Looker {
    asides: Asides,
    /// Who blocks a thread, until it is set.
    stuck: Mutex<BTreeMap<i32, Arc<AtomicBool>>>,
}

impl Looker {
    /// What `look` sees of these processes. Not under a lock.
    pub fn each<T: Send + 'static>(
        &self,
        pids: &[i32],
        look: impl Fn(i32) -> Option<T> + Send + Sync + 'static,
    ) -> Vec<(i32, T)> {
        let look = Arc::new(look);
        lock(&self.stuck).retain(|_, gone_on| !gone_on.load(Ordering::SeqCst));
        let mut left: Vec<i32> = {
            let stuck = lock(&self.stuck);
            pids.iter().rev().filter(|pid| !stuck.contains_key(pid)).copied().collect()
        };
        let mut seen = Vec::new();
        while !left.is_empty() {
            let place = match Place::take(&self.asides.0, 0) {
                Ok(place) => place,
                Err(refusal) => {
                    tracing::warn!(%refusal, left = left.len(), "processes that were not looked at");
                    break;
                }
            };
            let (tell, hear) = channel();
            let (turns, look, gone_on) =
                (left.clone(), look.clone(), Arc::new(AtomicBool::new(false)));
            let of_thread = gone_on.clone();
            let begun = spawn("look", move || {
                for pid in turns.into_iter().rev() {
                    if tell.send(look(pid)).is_err() {
                        break;
                    }
                }
                of_thread.store(true, Ordering::SeqCst);
                drop(place);
            });
            if let Err(refusal) = begun {
                tracing::warn!(%refusal, left = left.len(), "processes that were not looked at");
                break;
            }
            while let Some(pid) = left.pop() {
                if let Ok(found) = hear.recv_timeout(LOOK_MAX) {
                    seen.extend(found.map(|found| (pid, found)));
                } else {
                    tracing::warn!(pid, "a process that blocks who looks at it is left out");
                    lock(&self.stuck).insert(pid, gone_on);
                    break;
                }
            }
        }
        seen
    }
}

fn run_clock(shared: &Shared) {
    let mut due = lock(&shared.due);
    loop {
        let now = Instant::now();
        let next = due.first_key_value().map(|((at, _), _)| *at);
        match next {
            Some(at) if at <= now => {
                let late = due.pop_first();
                drop(due);
                if let Some((_, late)) = late {
                    late();
                }
                due = lock(&shared.due);
            }
            Some(at) => {
                let waited = shared.changed.wait_timeout(due, at - now);
                due = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            None => due = shared.changed.wait(due).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_ends_is_answered_and_costs_its_own_user() {
        let asides = Asides::begin().unwrap();
        let (tell, hear) = channel();
        let (end, wait) = channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        let begun = Instant::now();
        for n in 0..OF_ONE_MAX {
            let (tell, wait) = (tell.clone(), wait.clone());
            let work = move |turn: &Turn<usize>| {
                let _ = lock(&wait).recv();
                assert_eq!(turn.take(), None, "too late to do anything");
            };
            asides.start(7, n, move |n, why| tell.send((n, why.errno)).unwrap(), work).unwrap();
        }
        let refused = asides.start(7, 99, |_, _| {}, |_| {});
        assert_eq!(refused.map(drop).map_err(|(n, why)| (n, why.errno)), Err((99, libc::EAGAIN)));
        let told = tell.clone();
        let another = asides.start(
            8,
            0,
            |_, _| {},
            move |turn| told.send((turn.take().unwrap(), 0)).unwrap(),
        );
        assert!(another.is_ok());
        assert_eq!(hear.recv(), Ok((0, 0)), "another user is served");
        let mut late: Vec<_> = (0..OF_ONE_MAX).map(|_| hear.recv().unwrap()).collect();
        late.sort_unstable();
        assert_eq!(late, (0..OF_ONE_MAX).map(|n| (n, libc::ETIMEDOUT)).collect::<Vec<_>>());
        assert!(begun.elapsed() >= ANSWER_MAX);
        drop(end);
        while !lock(&asides.0.places).is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let again = asides.start(
            7,
            0,
            |_, _| {},
            move |turn| tell.send((turn.take().unwrap(), 1)).unwrap(),
        );
        assert!(again.is_ok());
        assert_eq!(hear.recv(), Ok((0, 1)), "and its places are free when they end");
    }

    #[test]
    fn what_ends_in_time_is_not_late() {
        let asides = Asides::begin().unwrap();
        let (tell, hear) = channel();
        let told = tell.clone();
        let work = move |turn: &Turn<u32>| told.send(turn.take()).unwrap();
        asides
            .start(0, 3, move |_, _| tell.send(None).unwrap(), work)
            .map_err(|(_, why)| why)
            .unwrap();
        assert_eq!(hear.recv().unwrap(), Some(3));
        let begun = Instant::now();
        for _ in 0..200 {
            let ended = asides
                .start(0, (), |(), _| {}, |turn| assert!(turn.take().is_some()))
                .map_err(|_| ())
                .unwrap();
            assert!(ended.recv().is_err(), "it hangs up");
        }
        let kept = lock(&asides.0.due).len();
        assert!(
            begun.elapsed() >= ANSWER_MAX || kept == 0,
            "{kept} that have ended are waited for"
        );
    }

    #[test]
    fn who_blocks_a_look_is_left_out_until_he_goes_on() {
        let looker = Looker::default();
        let (end, wait) = channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        let look = move |pid| {
            if pid == 3 {
                let _ = lock(&wait).recv();
            }
            (pid != 4).then_some(pid * 10)
        };
        let look = Arc::new(look);
        let again = look.clone();
        let seen = looker.each(&[1, 2, 3, 4, 5], move |pid| look(pid));
        assert_eq!(seen, [(1, 10), (2, 20), (5, 50)]);
        let begun = Instant::now();
        let once_more = again.clone();
        assert_eq!(looker.each(&[3, 5], move |pid| again(pid)), [(5, 50)]);
        assert!(begun.elapsed() < LOOK_MAX, "nobody waits for him a second time");
        drop(end);
        while looker.each(&[3], Some).is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(looker.each(&[3], move |pid| once_more(pid)), [(3, 30)]);
    }
}
