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
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::begin;
use crate::quiet::Quiet;
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
    fn of_users(&self) -> usize {
        users(&lock(&self.places))
    }

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
    /// Whose it is. Changed, and read, with the places locked.
    uid: AtomicU32,
}

impl Place {
    fn take(shared: &Arc<Shared>, uid: u32) -> Result<Self, Refusal> {
        let mut places = lock(&shared.places);
        let all: usize = places.values().sum();
        let users = users(&places);
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
        Ok(Self { shared: shared.clone(), uid: AtomicU32::new(uid) })
    }

    /// From now on it is somebody else's.
    fn move_to(&self, uid: u32) {
        let mut places = lock(&self.shared.places);
        give_back(&mut places, self.uid.swap(uid, Ordering::SeqCst));
        *places.entry(uid).or_default() += 1;
    }
}

/// How many all users but root have.
fn users(places: &BTreeMap<u32, usize>) -> usize {
    places.iter().filter(|(uid, _)| **uid != 0).map(|(_, own)| own).sum()
}

fn give_back(places: &mut BTreeMap<u32, usize>, uid: u32) {
    if let Some(own) = places.get_mut(&uid) {
        *own -= 1;
        if *own == 0 {
            places.remove(&uid);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = lock(&self.shared.places);
        give_back(&mut places, self.uid.load(Ordering::SeqCst));
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
/// Processes of one user that block who looks at them: with so many, no other of his is looked at.
const OF_ONE_STUCK_MAX: usize = 4;

/// Whose a process is by its effective uid: the folder's owner (Linux, `task_dump_owner`), which is
/// told at once, as the files in it may not be. `None`: it has ended.
fn owner(pid: i32) -> Option<u32> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(format!("/proc/{pid}")).ok().map(|folder| folder.uid())
}

/// What came of a look at processes. Who has ended is nowhere here.
#[derive(Debug, PartialEq, Eq)]
pub struct Looked<T> {
    /// What was seen.
    pub seen: Vec<(i32, T)>,
    /// Who blocks whoever looks at him.
    pub blocking: Vec<i32>,
    /// Whose user has too many that block.
    pub beside: Vec<i32>,
    /// Those for whom no thread was left, through no fault of theirs.
    pub without_room: Vec<i32>,
}

/// What a thread tells, its place, and what is set when it has ended.
type Sent<T> = (Receiver<Option<T>>, Arc<Place>, Arc<AtomicBool>);

struct Stuck {
    uid: u32,
    /// He has let the thread go.
    gone_on: Arc<AtomicBool>,
}

/// Looks at many processes, one after the other, on a thread that may be lost. Whoever blocks it is
/// left out then, and from then on until he lets it go. The thread is then one of his user's: with
/// [`OF_ONE_STUCK_MAX`] of them lost, no other process of that user is looked at. So he costs
/// himself only, and whoever asks is told at whom nobody looked.
pub struct Looker {
    asides: Asides,
    owner: fn(i32) -> Option<u32>,
    /// Who blocks a thread, until it goes on.
    stuck: Mutex<BTreeMap<i32, Stuck>>,
    /// How much is logged of whose processes.
    quiet: Mutex<Quiet>,
    since: Instant,
}

impl Default for Looker {
    fn default() -> Self {
        Self::of(owner)
    }
}

impl Looker {
    fn of(owner: fn(i32) -> Option<u32>) -> Self {
        let (asides, stuck, quiet) = (Asides::default(), Mutex::default(), Mutex::default());
        Self { asides, owner, stuck, quiet, since: Instant::now() }
    }

    /// One whose threads are all lost.
    #[cfg(test)]
    pub fn without_room() -> Self {
        let looker = Self::default();
        while let Ok(place) = Place::take(&looker.asides.0, 0) {
            std::mem::forget(place);
        }
        looker
    }

    /// Whether a line about a user's processes is logged: with how many before it that were not.
    fn says(&self, uid: u32) -> Option<u64> {
        let now = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        lock(&self.quiet).says(uid, now)
    }

    /// Takes out of `left` those at whom nobody is to look.
    fn leave_out<T>(&self, left: &mut Vec<(i32, u32)>, looked: &mut Looked<T>) {
        let full = self.asides.0.of_users() >= OF_USERS_MAX;
        let stuck = lock(&self.stuck);
        let mut of_users: BTreeMap<u32, usize> = BTreeMap::new();
        stuck.values().for_each(|one| *of_users.entry(one.uid).or_default() += 1);
        let of = |uid: u32| of_users.get(&uid).copied().unwrap_or(0);
        left.retain(|&(pid, uid)| {
            if stuck.contains_key(&pid) {
                looked.blocking.push(pid);
            } else if of(uid) >= OF_ONE_STUCK_MAX {
                looked.beside.push(pid);
            } else if full && uid != 0 {
                looked.without_room.push(pid);
            } else {
                return true;
            }
            false
        });
        // Whose user has made somebody wait comes last (the end of the list is taken first).
        left.sort_by_key(|(_, uid)| of(*uid) == 0);
    }

    /// A thread that looks at them from the last to the first.
    fn send<T: Send + 'static>(
        &self,
        turns: Vec<(i32, u32)>,
        look: &Arc<impl Fn(i32) -> Option<T> + Send + Sync + 'static>,
    ) -> Result<Sent<T>, Refusal> {
        let place = Arc::new(Place::take(&self.asides.0, 0)?);
        let (tell, hear) = channel();
        let gone_on = Arc::new(AtomicBool::new(false));
        let (look, of_thread) = (look.clone(), (place.clone(), gone_on.clone()));
        spawn("look", move || {
            for (pid, _) in turns.into_iter().rev() {
                if tell.send(look(pid)).is_err() {
                    break;
                }
            }
            let (place, gone_on) = of_thread;
            gone_on.store(true, Ordering::SeqCst);
            drop(place);
        })?;
        Ok((hear, place, gone_on))
    }

    /// What `look` sees of these processes. Not under a lock.
    pub fn each<T: Send + 'static>(
        &self,
        pids: &[i32],
        look: impl Fn(i32) -> Option<T> + Send + Sync + 'static,
    ) -> Looked<T> {
        let look = Arc::new(look);
        lock(&self.stuck).retain(|_, one| !one.gone_on.load(Ordering::SeqCst));
        let (mut left, mut looked) = (
            pids.iter()
                .rev()
                .filter_map(|pid| Some((*pid, (self.owner)(*pid)?)))
                .collect::<Vec<_>>(),
            Looked { seen: vec![], blocking: vec![], beside: vec![], without_room: vec![] },
        );
        loop {
            self.leave_out(&mut left, &mut looked);
            if left.is_empty() {
                break;
            }
            let (hear, place, gone_on) = match self.send(left.clone(), &look) {
                Ok(sent) => sent,
                Err(refusal) => {
                    if let Some(unsaid) = self.says(0) {
                        let left = left.len();
                        tracing::warn!(%refusal, left, unsaid, "processes that were not looked at");
                    }
                    looked.without_room.extend(left.iter().map(|(pid, _)| *pid));
                    break;
                }
            };
            while let Some((pid, was)) = left.pop() {
                if let Ok(found) = hear.recv_timeout(LOOK_MAX) {
                    looked.seen.extend(found.map(|found| (pid, found)));
                    continue;
                }
                let uid = (self.owner)(pid).unwrap_or(was);
                place.move_to(uid);
                if let Some(unsaid) = self.says(uid) {
                    let what = "a process that blocks who looks at it is left out";
                    tracing::warn!(pid, uid, unsaid, "{what}");
                }
                lock(&self.stuck).insert(pid, Stuck { uid, gone_on });
                looked.blocking.push(pid);
                break;
            }
        }
        if !looked.without_room.is_empty()
            && let Some(unsaid) = self.says(0)
        {
            let left = looked.without_room.len();
            tracing::warn!(left, unsaid, "no thread is left to look at some processes");
        }
        looked
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

    /// Of a hundred numbers each the same user, root of the first.
    fn owner_of(pid: i32) -> Option<u32> {
        u32::try_from(pid / 100).ok()
    }

    /// Blocks at some processes until the other end is dropped.
    fn blocks(
        at: impl Fn(i32) -> bool + Send + Sync + 'static,
    ) -> (std::sync::mpsc::Sender<()>, impl Fn(i32) -> Option<i32> + Clone + Send + Sync + 'static)
    {
        let (end, wait) = channel::<()>();
        let (wait, at) = (Arc::new(Mutex::new(wait)), Arc::new(at));
        let look = move |pid| {
            if at(pid) {
                let _ = lock(&wait).recv();
            }
            (pid % 100 != 4).then_some(pid * 10)
        };
        (end, look)
    }

    #[test]
    fn who_blocks_a_look_is_left_out_until_he_goes_on() {
        let looker = Looker::of(owner_of);
        let (end, look) = blocks(|pid| pid == 3);
        let found = looker.each(&[1, 2, 3, 4, 5], look.clone());
        assert_eq!((found.seen, found.blocking), (vec![(1, 10), (2, 20), (5, 50)], vec![3]));
        assert_eq!((found.beside, found.without_room), (vec![], vec![]));
        let begun = Instant::now();
        let found = looker.each(&[3, 5], look.clone());
        assert_eq!((found.seen, found.blocking), (vec![(5, 50)], vec![3]));
        assert!(begun.elapsed() < LOOK_MAX, "nobody waits for him a second time");
        drop(end);
        while looker.each(&[3], Some).seen.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(looker.each(&[3], look).seen, [(3, 30)]);
    }

    #[test]
    fn who_blocks_many_looks_costs_his_own_user() {
        let looker = Looker::of(owner_of);
        let (end, look) = blocks(|pid| (700..790).contains(&pid));
        // Between others, which come after the first.
        let pids: Vec<i32> = [1].into_iter().chain(700..800).chain([801, 802, 901]).collect();
        let found = looker.each(&pids, look.clone());
        assert_eq!(found.seen, [(1, 10), (801, 8010), (802, 8020), (901, 9010)]);
        assert_eq!(found.blocking, [700, 701, 702, 703]);
        assert_eq!(found.beside.len(), 96, "his others, even who would not block");
        assert_eq!(found.without_room, [0; 0]);
        let begun = Instant::now();
        let again = looker.each(&pids, look.clone());
        assert_eq!((again.seen.len(), again.beside.len()), (4, 96));
        assert!(begun.elapsed() < LOOK_MAX, "nobody waits again");
        let places = lock(&looker.asides.0.places).clone();
        assert_eq!(places.get(&7), Some(&OF_ONE_STUCK_MAX), "the lost threads are his");
        drop(end);
        while looker.each(&pids, look.clone()).seen.len() < 103 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn who_has_many_users_leaves_root_room_and_is_told_of() {
        let looker = Looker::of(owner_of);
        let (end, look) = blocks(|pid| (1000..3000).contains(&pid));
        let users = i32::try_from(OF_USERS_MAX / OF_ONE_STUCK_MAX).unwrap();
        let mut pids: Vec<i32> =
            (10..10 + users).flat_map(|user| (0..4).map(move |n| user * 100 + n)).collect();
        // Lost by hand, for a look at each takes its time.
        for &pid in &pids {
            let place = Place::take(&looker.asides.0, 0).unwrap();
            let user = owner_of(pid).unwrap();
            place.move_to(user);
            std::mem::forget(place);
            let gone_on = Arc::new(AtomicBool::new(false));
            lock(&looker.stuck).insert(pid, Stuck { uid: user, gone_on });
        }
        pids.extend([1, 5000]);
        let found = looker.each(&pids, look);
        assert_eq!((found.seen, found.without_room), (vec![(1, 10)], vec![5000]));
        drop(end);
    }

    #[test]
    fn whose_a_process_is_is_its_owner() {
        let own = std::process::id().cast_signed();
        assert_eq!(owner(own), Some(nix::unistd::geteuid().as_raw()));
        assert_eq!(owner(i32::MAX), None);
        assert_eq!(Looker::default().each(&[own, i32::MAX], Some).seen, [(own, own)]);
    }
}
