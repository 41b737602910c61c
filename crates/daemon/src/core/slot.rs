// SPDX-License-Identifier: MIT OR Apache-2.0
//! One lock per resource. Whoever changes or asks a resource has all of it ([`Held`]) meanwhile,
//! also while its plane waits for somebody: the kernel's verifier, a block server that is stopped.
//! So that this costs the resource and nothing else:
//!
//! 1. A thread has at most one resource at a time. Who needs several takes them one by one, in
//!    order of number.
//! 2. The order of locks is: the change of the configuration that is under way (`Core::changes`),
//!    a resource, any other one of [`super::Core`]. The last are held for a few instructions: under
//!    them nothing is waited for, and no other lock is taken.
//! 3. Who waits for a resource waits until somebody has had it for [`PATIENCE`], and is then told
//!    so (EAGAIN). Where that has passed already he is told at once.
//! 4. Who asks a plane and must not be lost over it asks on another thread ([`Slot::ask`]).
//!
//! Rule 1 is checked in debug builds.

use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use reserv_model::{Name, NodeId, ResourceKind, Source, Tree};
use reserv_namespace::Resource;

use super::lock;
use super::threads::Placed;
use crate::begin;
use crate::engine::Engine;
use crate::held::{Held, ResourceState};
use crate::refusal::Refusal;

/// How long somebody may have a resource before others stop to wait for it.
pub const PATIENCE: Duration = reserv_facts::time::RESOURCE_MAX;

/// Where a resource is.
enum Place {
    Here(Box<Held>),
    /// Somebody has it, since then.
    Out(Instant),
    /// It is being brought up, since then.
    Coming(Instant),
    /// It is being taken down.
    Going,
    Gone,
}

struct State {
    place: Place,
    /// Threads that wait for another one: without any, waking them is a system call for nothing.
    waiting: usize,
}

/// What the kernel told of a resource while somebody had it.
pub enum News {
    /// This open file was closed.
    Closed(u64),
    /// Nobody refers to this fresh inode.
    Forgotten(u64),
}

/// A resource that is up, coming or going.
pub struct Slot {
    /// Its number.
    pub resource: Resource,
    /// Its directory.
    pub name: Name,
    /// What it counts or schedules; `None`: the CPU. A link's rate changes.
    on: Mutex<Option<Source>>,
    /// A tree without nodes under its name: what the mount's own directory needs of it.
    stub: Tree,
    state: Mutex<State>,
    changed: Condvar,
    /// Whether it is shown: it is up, or was before this worker.
    shown: Mutex<bool>,
    /// Where somebody may have gone since the last sweep began.
    entered: Mutex<BTreeSet<NodeId>>,
    news: Mutex<Vec<News>>,
    /// What `status` told of it last.
    last: Mutex<Option<ResourceState>>,
    /// Of a link: threads that process what comes in.
    pub(super) placed: Mutex<Placed>,
    wake_up: Sender<()>,
    wakes: Mutex<Option<Receiver<()>>>,
}

#[cfg(debug_assertions)]
thread_local! {
    static HAS_ONE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Rule 1.
fn note(has: bool) {
    #[cfg(debug_assertions)]
    HAS_ONE.with(|one| {
        assert!(!(has && one.get()), "a thread takes a second resource");
        one.set(has);
    });
    let _ = has;
}

/// There is no such resource any more.
pub(super) fn is_gone() -> Refusal {
    Refusal::new(libc::ESTALE, "this resource is gone")
}

impl Slot {
    fn at(
        resource: Resource,
        name: &Name,
        on: Option<&Source>,
        place: Place,
        shown: bool,
    ) -> Arc<Self> {
        let (wake_up, wakes) = channel();
        Arc::new(Self {
            resource,
            name: name.clone(),
            on: Mutex::new(on.cloned()),
            stub: Tree::new(name.clone()),
            state: Mutex::new(State { place, waiting: 0 }),
            changed: Condvar::new(),
            shown: Mutex::new(shown),
            entered: Mutex::default(),
            news: Mutex::default(),
            last: Mutex::default(),
            placed: Mutex::default(),
            wake_up,
            wakes: Mutex::new(Some(wakes)),
        })
    }

    /// A resource that is up.
    pub fn up(resource: Resource, name: &Name, on: Option<&Source>, held: Held) -> Arc<Self> {
        Self::at(resource, name, on, Place::Here(Box::new(held)), true)
    }

    /// One that is being brought up; `shown`: it was there before.
    pub fn coming(resource: Resource, name: &Name, on: &Source, shown: bool) -> Arc<Self> {
        Self::at(resource, name, Some(on), Place::Coming(Instant::now()), shown)
    }

    /// What it counts or schedules; `None`: the CPU.
    pub fn on(&self) -> Option<Source> {
        lock(&self.on).clone()
    }

    /// It is another rate of the same link.
    pub fn becomes(&self, on: &Source) {
        *lock(&self.on) = Some(on.clone());
    }

    /// Whether it is beside the CPU.
    pub fn is_counting(&self) -> bool {
        lock(&self.on).is_some()
    }

    /// Whether it is a link that is scheduled.
    pub fn is_link(&self) -> bool {
        matches!(*lock(&self.on), Some(Source::Link { .. }))
    }

    /// What is tagged and served there.
    pub fn kind(&self) -> ResourceKind {
        lock(&self.on).as_ref().map_or(ResourceKind::Cpu, Source::kind)
    }

    /// Root and q0 under its name.
    pub fn stub(&self) -> &Tree {
        &self.stub
    }

    /// Whether there is such a resource, for who asks.
    pub fn is_shown(&self) -> bool {
        *lock(&self.shown)
    }

    /// Whether it is neither coming nor going.
    pub fn is_up(&self) -> bool {
        matches!(lock(&self.state).place, Place::Here(_) | Place::Out(_))
    }

    /// Whether it is being brought up: anew, or again under another worker.
    pub fn is_coming(&self) -> bool {
        matches!(lock(&self.state).place, Place::Coming(_))
    }

    /// Whether it will not come again.
    pub fn is_gone(&self) -> bool {
        matches!(lock(&self.state).place, Place::Gone)
    }

    fn set(&self, place: Place) {
        let mut state = lock(&self.state);
        state.place = place;
        if state.waiting > 0 {
            self.changed.notify_all();
        }
    }

    /// It is up.
    pub fn arrives(&self, held: Held) {
        *lock(&self.shown) = true;
        self.set(Place::Here(Box::new(held)));
    }

    /// It did not come up, or is down.
    pub fn ends(&self) {
        self.set(Place::Gone);
        self.wake();
    }

    fn late(&self, since: Instant, comes: bool) -> Refusal {
        let (name, seconds) = (&self.name, since.elapsed().as_secs());
        let text = if comes {
            format!("{name} is being brought up, since {seconds} s")
        } else {
            format!("{name} waits for its driver, since {seconds} s")
        };
        Refusal { errno: libc::EAGAIN, text, hint: "other resources are not concerned".into() }
    }

    /// The resource, when nobody else has it.
    pub fn held(self: &Arc<Self>) -> Result<Had, Refusal> {
        self.held_within(PATIENCE)
    }

    /// The same, for who waits until somebody has had it for so long.
    pub fn held_within(self: &Arc<Self>, patience: Duration) -> Result<Had, Refusal> {
        note(true);
        let had = self.take(patience);
        if had.is_err() {
            note(false);
        }
        had
    }

    fn take(self: &Arc<Self>, patience: Duration) -> Result<Had, Refusal> {
        let mut state = lock(&self.state);
        loop {
            let (since, comes) = match state.place {
                Place::Here(_) => {
                    let Place::Here(held) =
                        std::mem::replace(&mut state.place, Place::Out(Instant::now()))
                    else {
                        return Err(is_gone());
                    };
                    return Ok(Had { slot: self.clone(), held: Some(held) });
                }
                Place::Out(since) => (since, false),
                Place::Coming(since) => (since, true),
                Place::Going => {
                    let text = format!("{} is being taken down", self.name);
                    return Err(Refusal::new(libc::EBUSY, text));
                }
                Place::Gone => return Err(is_gone()),
            };
            let left = (since + patience).saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.late(since, comes));
            }
            state.waiting += 1;
            state =
                self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            state.waiting -= 1;
        }
    }

    /// Its engine, likewise.
    pub fn engine(self: &Arc<Self>) -> Result<HadEngine, Refusal> {
        self.held().map(HadEngine)
    }

    /// Asks on a thread that may be lost, and waits for at most so long. ETIMEDOUT: it may still be
    /// done.
    pub fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        most: Duration,
        work: impl FnOnce(&mut Had) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        self.begin(most, work)?.answer(most)
    }

    /// The first half of it, for who asks several.
    pub fn begin<T: Send + 'static>(
        self: &Arc<Self>,
        most: Duration,
        work: impl FnOnce(&mut Had) -> T + Send + 'static,
    ) -> Result<Asked<T>, Refusal> {
        let (tell, hear) = channel();
        let slot = self.clone();
        let body = move || {
            let _ = tell.send(slot.held_within(most.min(PATIENCE)).map(|mut had| work(&mut had)));
        };
        let begun = begin::thread("ask", body);
        begun.map_err(|error| Refusal::no_thread(&format!("ask {} on", self.name), &error))?;
        Ok(Asked { slot: self.clone(), hear })
    }

    /// Somebody may go to a node now, as `chdir(2)` asks: he is not yet where a sweep that is under
    /// way looks.
    pub fn enters(&self, node: NodeId) {
        lock(&self.entered).insert(node);
    }

    /// Where somebody may have gone since this was asked last.
    pub fn take_entered(&self) -> BTreeSet<NodeId> {
        std::mem::take(&mut lock(&self.entered))
    }

    /// For who has it next.
    pub fn tell(&self, news: News) {
        lock(&self.news).push(news);
    }

    /// What there is of it.
    pub fn take_news(&self) -> Vec<News> {
        std::mem::take(&mut lock(&self.news))
    }

    /// Whoever looks after it does so now.
    pub fn wake(&self) {
        let _ = self.wake_up.send(());
    }

    /// What wakes whoever looks after it: had once.
    pub fn wakes(&self) -> Option<Receiver<()>> {
        lock(&self.wakes).take()
    }

    /// What `status` told of it last.
    pub fn last(&self) -> Option<ResourceState> {
        lock(&self.last).clone()
    }

    /// Keeps what it tells now.
    pub fn keep(&self, state: &ResourceState) {
        *lock(&self.last) = Some(state.clone());
    }
}

/// An answer that is waited for.
pub struct Asked<T> {
    slot: Arc<Slot>,
    hear: Receiver<Result<T, Refusal>>,
}

impl<T> Asked<T> {
    /// Waits for it.
    pub fn answer(self, most: Duration) -> Result<T, Refusal> {
        match self.hear.recv_timeout(most) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                let text =
                    format!("{} gave no answer within {} ms", self.slot.name, most.as_millis());
                Err(Refusal::new(libc::ETIMEDOUT, text))
            }
            Err(RecvTimeoutError::Disconnected) => Err(is_gone()),
        }
    }
}

/// A resource that this thread has.
pub struct Had {
    slot: Arc<Slot>,
    held: Option<Box<Held>>,
}

impl Had {
    /// It is being taken down: nobody else has it any more, unless it is put back.
    pub fn goes(mut self) -> Option<Held> {
        let held = self.held.take();
        self.slot.set(Place::Going);
        held.map(|held| *held)
    }
}

impl Slot {
    /// It stays after all.
    pub fn stays(&self, held: Held) {
        self.set(Place::Here(Box::new(held)));
    }
}

impl Deref for Had {
    type Target = Held;

    fn deref(&self) -> &Held {
        match &self.held {
            Some(held) => held,
            None => unreachable!("it is had until this is dropped"),
        }
    }
}

impl DerefMut for Had {
    fn deref_mut(&mut self) -> &mut Held {
        match &mut self.held {
            Some(held) => held,
            None => unreachable!("it is had until this is dropped"),
        }
    }
}

impl Drop for Had {
    fn drop(&mut self) {
        note(false);
        if let Some(held) = self.held.take() {
            let mut state = lock(&self.slot.state);
            state.place = Place::Here(held);
            if state.waiting > 0 {
                self.slot.changed.notify_one();
            }
        }
    }
}

/// The engine of a resource that this thread has.
pub struct HadEngine(Had);

impl Deref for HadEngine {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.0.engine
    }
}

impl DerefMut for HadEngine {
    fn deref_mut(&mut self) -> &mut Engine {
        &mut self.0.engine
    }
}

#[cfg(test)]
mod tests {
    use reserv_model::{Driver, ResourceKind};

    use super::*;
    use crate::fake::FakePlane;

    const SHORT: Duration = Duration::from_millis(50);
    /// No wait that is tested comes near it.
    const LONG: Duration = Duration::from_secs(4);

    fn held(dir: &std::path::Path, name: &Name) -> Held {
        let plane = Box::new(FakePlane::start(&dir.join(format!("{name}.plane"))).unwrap());
        let journal = dir.join(format!("{name}.journal"));
        let identity = (name.clone(), ResourceKind::Cpu);
        let (engine, beginning) = Engine::open(&journal, identity, plane, false).unwrap();
        Held::new(engine, beginning, Driver::Auto, None)
    }

    fn in_a_place(test: impl FnOnce(&Arc<Slot>, &Arc<Slot>, Held)) {
        let dir = tempfile::tempdir().unwrap();
        let [a, b, c] = ["a", "b", "c"].map(|name| Name::new(name).unwrap());
        let up = |number, name| {
            Slot::up(Resource::new(number).unwrap(), name, None, held(dir.path(), name))
        };
        test(&up(1, &a), &up(2, &b), held(dir.path(), &c));
    }

    fn refused<T>(got: Result<T, Refusal>) -> i32 {
        got.map(drop).unwrap_err().errno
    }

    #[test]
    fn who_waits_for_a_resource_is_told_in_time_and_another_one_is_had() {
        in_a_place(|a, b, _| {
            let had = a.held().unwrap();
            std::thread::scope(|scope| {
                let elsewhere = scope.spawn(|| {
                    let begun = Instant::now();
                    assert_eq!(refused(a.held_within(SHORT)), libc::EAGAIN);
                    assert!(begun.elapsed() < LONG);
                    assert_eq!(refused(a.ask(SHORT, |_| ())), libc::EAGAIN);
                    assert!(b.held().is_ok(), "another one");
                    assert!(
                        b.ask(LONG, |held| held.engine.tree().len()).is_ok_and(|nodes| nodes == 2)
                    );
                });
                elsewhere.join().unwrap();
                let waits = scope.spawn(|| a.held_within(LONG).map(drop));
                std::thread::sleep(SHORT);
                drop(had);
                assert!(waits.join().unwrap().is_ok(), "who waits has it next");
            });
        });
    }

    #[test]
    fn who_asks_is_not_lost_with_whoever_answers() {
        in_a_place(|a, _, _| {
            let (end, wait) = channel::<()>();
            let asked = a.begin(LONG, move |_| wait.recv()).unwrap();
            assert_eq!(refused(asked.answer(SHORT)), libc::ETIMEDOUT);
            assert_eq!(refused(a.held_within(SHORT)), libc::EAGAIN, "he has it still");
            drop(end);
            assert!(a.held_within(LONG).is_ok(), "until he is answered");
        });
    }

    #[test]
    fn what_comes_is_waited_for_and_what_goes_is_not() {
        in_a_place(|a, _, held| {
            let new = Slot::coming(a.resource, &a.name, &"net:lo".parse().unwrap(), false);
            assert!(!new.is_shown() && !new.is_up());
            assert_eq!(refused(new.held_within(Duration::ZERO)), libc::EAGAIN);
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| new.held_within(LONG).map(drop));
                std::thread::sleep(SHORT);
                new.arrives(held);
                assert!(waits.join().unwrap().is_ok());
            });
            assert!(new.is_shown() && new.is_up());
            let held = new.held().unwrap().goes().unwrap();
            assert!(!new.is_up());
            assert_eq!(refused(new.held()), libc::EBUSY);
            new.stays(held);
            assert!(new.held().unwrap().goes().is_some());
            new.ends();
            assert_eq!((refused(new.held()), new.is_gone()), (libc::ESTALE, true));
        });
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "a thread takes a second resource")]
    fn nobody_has_two() {
        in_a_place(|a, b, _| {
            let _one = a.held().unwrap();
            let _other = b.held();
        });
    }
}
