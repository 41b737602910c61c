// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine over the fake plane: whatever instant it is killed at, the next one finds each edit
//! whole or absent.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use reserv_daemon::engine::{Beginning, Engine, Origin};
use reserv_daemon::fake::FakePlane;
use reserv_model::{
    Batch, Caller, Cap, Class, DeleteMode, Name, NewKind, NodeId, Op, Outcome, Policy, Request,
    ResourceKind, Share, ThreadParams, Tree, Weight,
};
use reserv_plane::{
    Defaults, Descriptors, DriverInfo, Health, List, Lists, Member, Packets, Plane, PlaneError,
    Sample, Target, Threads, Upgrade,
};

struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        // In RAM, as the real one: a rename onto a disk waits for it.
        let base = Some(PathBuf::from("/dev/shm"))
            .filter(|p| p.is_dir())
            .unwrap_or_else(std::env::temp_dir);
        let path = base.join(format!("reserv-engine-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn copy(from: &Path) -> Self {
        let dir = Self::new();
        for name in ["journal", "plane"] {
            std::fs::copy(from.join(name), dir.0.join(name)).unwrap();
        }
        dir
    }

    fn journal(&self) -> PathBuf {
        self.0.join("journal")
    }

    fn plane(&self) -> PathBuf {
        self.0.join("plane")
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The two instants of an edit that matter: what a killed daemon would leave.
#[derive(Default)]
struct Instants {
    announced: Option<Dir>,
    applied: Option<Dir>,
    /// Times that all counters were asked for.
    samples: u32,
    /// What this process asks for by itself, one just before each batch that looks.
    asks: Vec<ThreadParams>,
    grants: u32,
    /// The scheduler came back, and no budget fits.
    unkept: bool,
}

/// Copies journal and plane just before and just after each batch.
struct Watched {
    plane: FakePlane,
    /// Answers as a plane that keeps no number.
    forgetful: bool,
    /// Deletes with members as a plane that dies, or fails, before it has moved them.
    half_flush: bool,
    dir: PathBuf,
    instants: Arc<Mutex<Instants>>,
}

impl Plane for Watched {
    fn info(&self) -> DriverInfo {
        self.plane.info()
    }
    fn apply(&mut self, batch: &Batch) -> Result<Vec<Outcome>, PlaneError> {
        let announced = Dir::copy(&self.dir);
        let mut batch = batch.clone();
        for op in batch.ops.iter_mut().filter(|_| self.half_flush) {
            if let Op::Delete { mode: mode @ DeleteMode::Flush, .. } = op {
                *mode = DeleteMode::Drain;
            }
        }
        let answer = self.plane.apply(&batch);
        let applied = Dir::copy(&self.dir);
        let mut instants = self.instants.lock().unwrap();
        instants.announced = Some(announced);
        instants.applied = answer.is_ok().then_some(applied);
        instants.samples = 0;
        answer
    }
    fn grants(&self) -> Result<u32, PlaneError> {
        Ok(2 * self.instants.lock().unwrap().grants + 1)
    }
    fn apply_if(&mut self, batch: &Batch, grants: u32) -> Result<Vec<Outcome>, PlaneError> {
        let asked = if grants == 0 { None } else { self.instants.lock().unwrap().asks.pop() };
        if let Some(params) = asked {
            self.plane.set_params(std::process::id().cast_signed(), &params)?;
            self.instants.lock().unwrap().grants += 1;
        }
        if grants != 0 && grants != self.grants()? {
            Err(PlaneError::Overtaken)
        } else {
            self.apply(batch)
        }
    }
    fn applied_seq(&self) -> Result<Option<u64>, PlaneError> {
        if self.forgetful { Ok(None) } else { self.plane.applied_seq() }
    }
    fn collect_drained(&mut self) -> Result<Vec<NodeId>, PlaneError> {
        self.plane.collect_drained()
    }
    fn sample(&self) -> Result<Vec<Sample>, PlaneError> {
        self.instants.lock().unwrap().samples += 1;
        self.plane.sample()
    }
    fn sample_one(&self, id: NodeId) -> Result<Sample, PlaneError> {
        self.plane.sample_one(id)
    }
    fn health(&mut self) -> Result<Health, PlaneError> {
        self.plane.health()
    }
    fn revive(&mut self) -> Result<(), PlaneError> {
        self.plane.revive()
    }
    fn stop(&mut self) -> Result<(), PlaneError> {
        self.plane.stop()
    }
    fn supports_policy(&self, _: Policy) -> bool {
        true
    }
    fn supports_class(&self, class: Class) -> bool {
        class != Class::Fifo
    }
}

impl Threads for Watched {
    fn set_params(&mut self, tid: i32, params: &ThreadParams) -> Result<(), PlaneError> {
        self.plane.set_params(tid, params)
    }
    fn params_of(&self, tid: i32) -> Result<ThreadParams, PlaneError> {
        self.plane.params_of(tid)
    }
    fn tag(&mut self, target: Target, queue: NodeId) -> Result<usize, PlaneError> {
        self.plane.tag(target, queue)
    }
    fn tag_of(&self, tid: i32) -> Result<NodeId, PlaneError> {
        self.plane.tag_of(tid)
    }
    fn members(&self, queue: NodeId) -> Result<Vec<Member>, PlaneError> {
        let mut members = self.plane.members(queue)?;
        if self.instants.lock().unwrap().unkept {
            for m in &mut members {
                m.params = ThreadParams::default();
            }
        }
        Ok(members)
    }
}

impl Lists for Watched {
    fn defaults(&self, pid: i32) -> Result<Defaults, PlaneError> {
        self.plane.defaults(pid)
    }
    fn set_default(&mut self, pid: i32, list: List, queue: NodeId) -> Result<(), PlaneError> {
        self.plane.set_default(pid, list, queue)
    }
}

impl Descriptors for Watched {}

impl Packets for Watched {}

impl Upgrade for Watched {}

fn cpu() -> (Name, ResourceKind) {
    (Name::new("cpu").unwrap(), ResourceKind::Cpu)
}

fn begin(dir: &Dir, instants: &Arc<Mutex<Instants>>) -> Engine {
    let plane = Watched {
        plane: FakePlane::start(&dir.plane()).unwrap(),
        forgetful: false,
        half_flush: false,
        dir: dir.0.clone(),
        instants: instants.clone(),
    };
    let (engine, beginning) = Engine::open(&dir.journal(), cpu(), Box::new(plane), false).unwrap();
    assert_eq!(beginning, Beginning::Empty);
    engine
}

fn adopt(dir: &Dir) -> Engine {
    let plane = FakePlane::adopt(&dir.plane()).unwrap().unwrap();
    let (engine, beginning) = Engine::open(&dir.journal(), cpu(), Box::new(plane), true).unwrap();
    assert_eq!(beginning, Beginning::Adopted);
    engine
}

fn queue(name: &str) -> Request {
    Request::Create {
        parent: NodeId::ROOT.into(),
        name: Some(Name::new(name).unwrap()),
        kind: NewKind::Queue(None),
        share: Some(Share::of(Weight::from_milli(24_000).unwrap())),
    }
}

/// Random requests about the nodes that exist; a good part is refused.
fn request(tree: &Tree, kind: u8, pick: u8, value: u32) -> Request {
    let ids: Vec<NodeId> = tree.iter().map(|n| n.id).collect();
    let id = ids[usize::from(pick) % ids.len()];
    let other = ids[value as usize % ids.len()];
    let node = id.into();
    match kind % 10 {
        0 | 1 => {
            Request::Create { parent: node, name: None, kind: NewKind::Queue(None), share: None }
        }
        2 => Request::Create {
            parent: node,
            name: None,
            kind: NewKind::Scheduler(None),
            share: None,
        },
        3 => Request::Delete {
            node,
            mode: if value.is_multiple_of(2) { DeleteMode::Drain } else { DeleteMode::Refuse },
        },
        4 => {
            Request::SetShare { node, share: Share::of(Weight::from_milli(value % 1000).unwrap()) }
        }
        5 => Request::SetCap {
            node,
            cap: Some(Cap { rate_ns_per_s: 1_000_000 + u64::from(value), burst_ns: 0 }),
        },
        6 => Request::SetClass {
            node,
            class: if value.is_multiple_of(2) { Class::Rr } else { Class::Fifo },
        },
        7 => Request::Move { node, parent: other.into(), name: None },
        8 => Request::Rename { node, name: Name::new(&format!("n{}", value % 5)).unwrap() },
        _ => Request::SetGc { node, gc: value.is_multiple_of(2) },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn an_edit_is_whole_or_absent_at_both_instants(
        steps in proptest::collection::vec((any::<u8>(), any::<u8>(), any::<u32>()), 1..60)
    ) {
        let dir = Dir::new();
        let instants = Arc::new(Mutex::new(Instants::default()));
        let mut engine = begin(&dir, &instants);
        let mut refused = 0;
        for (unique, (kind, pick, value)) in (2..).step_by(2).zip(steps) {
            let before = engine.tree().clone();
            let request = request(&before, kind, pick, value);
            *instants.lock().unwrap() = Instants::default();
            let origin = Some(Origin { unique, fresh: None });
            let answer = engine.edit(&[request], origin);
            let after = engine.tree().clone();
            after.check().unwrap();
            if answer.is_err() {
                prop_assert_eq!(&before, &after, "a refusal changes nothing");
                refused += 1;
            }
            let left = std::mem::take(&mut *instants.lock().unwrap());
            // A drained queue that goes at once is a second batch; the copies are of the last one
            // then.
            let twice = after.seq() == before.seq() + 2;
            if let Some(dir) = left.announced.filter(|_| !twice) {
                let next = adopt(&dir);
                prop_assert_eq!(next.tree(), &before, "announced only: absent");
                prop_assert_eq!(next.answered(unique), None);
            }
            if let Some(dir) = left.applied {
                let next = adopt(&dir);
                prop_assert_eq!(next.tree(), &after, "applied: whole");
                prop_assert!(next.answered(unique).is_some());
            }
        }
        drop(engine);
        let rest = adopt(&dir);
        prop_assert_eq!(rest.plane().sample().unwrap().len(), rest.tree().len());
        let _ = refused;
    }
}

#[test]
fn members_of_a_queue_that_was_deleted_with_them_are_moved_by_whoever_comes_next() {
    for dies in [false, true] {
        let dir = Dir::new();
        let instants = Arc::new(Mutex::new(Instants::default()));
        let mut plane = FakePlane::start(&dir.plane()).unwrap();
        let half = |plane| Watched {
            plane,
            forgetful: false,
            half_flush: true,
            dir: dir.0.clone(),
            instants: instants.clone(),
        };
        let me = std::process::id().cast_signed();
        let engine = if dies {
            // The daemon of before has told the plane, which had not moved anybody when both were
            // stopped.
            let mut engine =
                Engine::open(&dir.journal(), cpu(), Box::new(half(plane)), false).unwrap().0;
            let id = engine.edit(&[queue("a")], None).unwrap().created[0];
            engine.plane_mut().tag(Target::Thread(me), id).unwrap();
            engine
                .edit(&[Request::Delete { node: id.into(), mode: DeleteMode::Flush }], None)
                .unwrap();
            drop(engine);
            let left = instants.lock().unwrap().applied.take().unwrap();
            plane = FakePlane::adopt(&left.plane()).unwrap().unwrap();
            assert_eq!(plane.tag_of(me).unwrap(), id, "the batch left it where it was");
            let (engine, _) = Engine::open(&left.journal(), cpu(), Box::new(plane), true).unwrap();
            engine
        } else {
            let mut engine =
                Engine::open(&dir.journal(), cpu(), Box::new(half(plane)), false).unwrap().0;
            let id = engine.edit(&[queue("a")], None).unwrap().created[0];
            engine.plane_mut().tag(Target::Thread(me), id).unwrap();
            engine
                .edit(&[Request::Delete { node: id.into(), mode: DeleteMode::Flush }], None)
                .unwrap();
            engine
        };
        assert_eq!(engine.plane().tag_of(me).unwrap(), NodeId::Q0, "it is in q0 now");
        let mut engine = engine;
        let again = engine.edit(&[queue("a")], None).unwrap().created[0];
        assert_eq!(again.index, 2, "and the slot is free");
    }
}

#[test]
fn many_readers_share_a_survey_and_no_edit_or_tag_is_missed_by_one() {
    use reserv_namespace::{FileKind, View, render_read};
    let dir = Dir::new();
    let instants = Arc::new(Mutex::new(Instants::default()));
    let mut engine = begin(&dir, &instants);
    let stat = |engine: &mut Engine, node| {
        let (tree, survey) = engine.survey().unwrap();
        render_read(
            FileKind::Stat,
            &View {
                tree,
                node,
                survey,
                members: &[],
                dropped: &[],
                kind: ResourceKind::Cpu,
                capacity: 0,
            },
        )
        .unwrap()
    };
    let mut ids = Vec::new();
    for n in 0..500 {
        ids.extend(engine.edit(&[queue(&format!("a{n}"))], None).unwrap().created);
    }
    instants.lock().unwrap().samples = 0;
    for id in ids.iter().cycle().take(2000) {
        assert!(stat(&mut engine, *id).contains("members 0\n"));
    }
    let samples = instants.lock().unwrap().samples;
    assert!(samples * 4 < 2000, "{samples} surveys for 2000 readers");
    for (n, id) in ids.iter().take(50).enumerate() {
        // Each change of ours is seen by the very next reader.
        let me = std::process::id().cast_signed();
        engine.plane_mut().tag(Target::Thread(me), *id).unwrap();
        assert!(stat(&mut engine, *id).contains("members 1\n"), "a tag");
        let draining = Request::Delete { node: ids[499 - n].into(), mode: DeleteMode::Flush };
        engine.edit(&[draining], None).unwrap();
        let share = stat(&mut engine, *id);
        let all = 100_000 + 24_000 * (499 - n);
        assert!(
            share.starts_with(&format!("weight_share_ppm {}\n", 24_000_000_000 / all as u64)),
            "{share}"
        );
    }
}

#[test]
fn a_plane_that_keeps_no_number_gets_the_last_intent_again() {
    let dir = Dir::new();
    let instants = Arc::new(Mutex::new(Instants::default()));
    let mut engine = begin(&dir, &instants);
    engine.edit(&[queue("site1")], None).unwrap();
    let after = engine.tree().clone();
    let announced = instants.lock().unwrap().announced.take().unwrap();
    let plane = Watched {
        plane: FakePlane::adopt(&announced.plane()).unwrap().unwrap(),
        forgetful: true,
        half_flush: false,
        dir: announced.0.clone(),
        instants,
    };
    let (next, _) = Engine::open(&announced.journal(), cpu(), Box::new(plane), true).unwrap();
    assert_eq!(next.tree(), &after);
    assert_eq!(next.plane().sample().unwrap().len(), 3);
}

#[test]
fn a_plane_that_lost_everything_is_set_up_again_ids_included() {
    let dir = Dir::new();
    let mut engine = begin(&dir, &Arc::default());
    engine.edit(&[queue("a"), queue("b")], None).unwrap();
    let a = engine.tree().resolve(&"a".parse().unwrap()).unwrap();
    engine.edit(&[Request::Delete { node: a.into(), mode: DeleteMode::Refuse }], None).unwrap();
    engine.edit(&[queue("c")], None).unwrap();
    let b = engine.tree().resolve(&"b".parse().unwrap()).unwrap();
    let limit = Request::SetLimit { node: b.into(), members_max: 1, bytes_max: 0 };
    engine.edit(&[limit], None).unwrap();
    let tree = engine.tree().clone();
    drop(engine);
    std::fs::remove_file(dir.plane()).unwrap();
    let plane = FakePlane::start(&dir.plane()).unwrap();
    let (next, beginning) = Engine::open(&dir.journal(), cpu(), Box::new(plane), false).unwrap();
    assert_eq!(beginning, Beginning::Rebuilt);
    let nodes = |tree: &Tree| tree.snapshot().slots;
    assert_eq!(nodes(next.tree()), nodes(&tree));
    drop(next);
    let mut adopted = adopt(&dir);
    assert_eq!(nodes(adopted.tree()), nodes(&tree));
    let me = std::process::id().cast_signed();
    adopted.plane_mut().tag(Target::Thread(me), b).unwrap();
    let second = std::thread::spawn(move || {
        // SAFETY: no argument, no memory.
        let tid = unsafe { libc::gettid() };
        adopted.plane_mut().tag(Target::Thread(tid), b)
    });
    assert!(matches!(second.join().unwrap(), Err(PlaneError::Full(_))), "its limit is there");
}

#[test]
fn a_plane_without_its_journal_is_not_adopted() {
    let dir = Dir::new();
    let mut engine = begin(&dir, &Arc::default());
    engine.edit(&[queue("a")], None).unwrap();
    drop(engine);
    std::fs::remove_file(dir.journal()).unwrap();
    let plane = FakePlane::adopt(&dir.plane()).unwrap().unwrap();
    let Err(refusal) = Engine::open(&dir.journal(), cpu(), Box::new(plane), true) else {
        panic!("adopted")
    };
    assert!(refusal.text.contains("the plane is at edit 1"), "{refusal}");
}

#[test]
fn what_the_plane_refuses_leaves_no_trace() {
    let dir = Dir::new();
    let mut engine = begin(&dir, &Arc::default());
    engine.edit(&[queue("a")], None).unwrap();
    let a = engine.tree().resolve(&"a".parse().unwrap()).unwrap();
    let me = std::process::id().cast_signed();
    engine.plane_mut().tag(Target::Thread(me), a).unwrap();
    let refusal = engine
        .edit(&[Request::Delete { node: a.into(), mode: DeleteMode::Refuse }], None)
        .unwrap_err();
    assert_eq!(refusal.errno, libc::EBUSY);
    let refusal =
        engine.edit(&[Request::SetClass { node: a.into(), class: Class::Fifo }], None).unwrap_err();
    assert_eq!(refusal.errno, libc::EOPNOTSUPP);
    let tree = engine.tree().clone();
    drop(engine);
    let mut next = adopt(&dir);
    assert_eq!(next.tree(), &tree);
    next.edit(&[Request::Delete { node: a.into(), mode: DeleteMode::Drain }], None).unwrap();
    assert!(next.tree().get(a).unwrap().draining, "it has a member");
    next.plane_mut().tag(Target::Thread(me), NodeId::Q0).unwrap();
    next.collect().unwrap();
    assert!(next.tree().get(a).is_none(), "gone with the last member");
}

/// An edit and a thread's own call at the same instant: whichever is second is judged by what the
/// first has left.
#[test]
fn an_edit_that_a_budget_overtakes_is_thought_out_again() {
    let dir = Dir::new();
    let instants: Arc<Mutex<Instants>> = Arc::default();
    let mut engine = begin(&dir, &instants);
    engine.edit(&[queue("a"), queue("b")], None).unwrap();
    let a = engine.tree().resolve(&"a".parse().unwrap()).unwrap();
    let me = std::process::id().cast_signed();
    engine.edit(&[Request::SetClass { node: a.into(), class: Class::Edf }], None).unwrap();
    engine.tag(Target::Thread(me), a, None).unwrap();
    let budget = |ms| ThreadParams {
        period_ns: 1_000_000_000,
        budget_ns: ms * 1_000_000,
        ..ThreadParams::default()
    };
    let share = |milli| Request::SetShare {
        node: a.into(),
        share: Share::of(Weight::from_milli(milli).unwrap()),
    };
    // It has 24 of 148 of at least one CPU, and would have 12 of 136.
    instants.lock().unwrap().asks = vec![budget(1), budget(2)];
    engine.edit(&[share(12_000)], None).unwrap();
    assert_eq!(instants.lock().unwrap().grants, 2, "two tries were overtaken, the third was not");
    engine.edit(&[share(24_000)], None).unwrap();
    let before = engine.tree().clone();
    let all = engine.tree().guarantee(a, engine.tree().capacity()) / 1_000_000;
    instants.lock().unwrap().asks = vec![budget(all)];
    let refusal = engine.edit(&[share(12_000)], None).unwrap_err();
    assert_eq!(refusal.errno, libc::ENOSPC, "{refusal}");
    assert_eq!(engine.tree(), &before);
    engine.plane_mut().set_params(me, &budget(1)).unwrap();
    instants.lock().unwrap().asks = vec![budget(1); 100];
    let refusal = engine.edit(&[share(12_000)], None).unwrap_err();
    assert_eq!(refusal.errno, libc::EAGAIN, "it does not try for ever: {refusal}");
    assert!(instants.lock().unwrap().asks.len() > 80);
    instants.lock().unwrap().asks.clear();
    assert_eq!(engine.tree(), &before);
    drop(engine);
    assert_eq!(adopt(&dir).tree(), &before, "the journal knows nothing of it");
}

#[test]
fn budgets_that_do_not_fit_when_the_scheduler_is_back_are_taken_back_and_told() {
    let dir = Dir::new();
    let instants: Arc<Mutex<Instants>> = Arc::default();
    let mut engine = begin(&dir, &instants);
    engine.edit(&[queue("a")], None).unwrap();
    let a = engine.tree().resolve(&"a".parse().unwrap()).unwrap();
    let me = std::process::id().cast_signed();
    engine.edit(&[Request::SetClass { node: a.into(), class: Class::Edf }], None).unwrap();
    let params = ThreadParams {
        period_ns: 100_000_000,
        budget_ns: 1_500_000,
        priority: 7,
        ..ThreadParams::default()
    };
    engine.tag(Target::Thread(me), a, Some(params)).unwrap();
    assert!(engine.take_back_unkept().is_empty(), "it fits");
    assert_eq!(engine.plane().params_of(me).unwrap(), params);
    instants.lock().unwrap().unkept = true;
    assert_eq!(engine.take_back_unkept(), [format!("cpu/a: thread {me}, 1.5 ms in 100 ms")]);
    assert_eq!(
        engine.plane().params_of(me).unwrap(),
        ThreadParams { priority: 7, ..ThreadParams::default() }
    );
    assert!(engine.take_back_unkept().is_empty(), "told once");
}

#[test]
fn sessions_fresh_inodes_and_rules_survive_and_compaction_keeps_them() {
    let dir = Dir::new();
    let plane = FakePlane::start(&dir.plane()).unwrap();
    let (mut engine, _) = Engine::open(&dir.journal(), cpu(), Box::new(plane), false).unwrap();
    let rule: reserv_model::Rule = toml::from_str("match = { uid = 33 }\ncpu = \"a\"").unwrap();
    engine.set_rules(vec![rule.clone()]).unwrap();
    let first = engine.fresh_number().unwrap();
    let create = Request::Create {
        parent: NodeId::ROOT.into(),
        name: None,
        kind: NewKind::Queue(None),
        share: None,
    };
    let origin = Origin { unique: 8, fresh: Some(77) };
    let made = engine.edit(&[create], Some(origin)).unwrap().created[0];
    // Long enough for several compactions.
    for n in 1..9_000_u32 {
        let share = Share::of(Weight::from_milli(n).unwrap());
        engine.edit(&[Request::SetShare { node: made.into(), share }], None).unwrap();
    }
    assert!(std::fs::metadata(dir.journal()).unwrap().len() < 2 << 20);
    drop(engine);
    let mut next = adopt(&dir);
    assert_eq!(next.fresh_node(77), Some(made));
    assert_eq!(next.answered(8), Some(Some(made)));
    assert_eq!(next.rules(), [rule]);
    assert!(next.fresh_number().unwrap() > first);
    assert_eq!(next.tree().get(made).unwrap().weight.milli(), 8_999);
    next.new_session().unwrap();
    drop(next);
    let mut next = adopt(&dir);
    assert_eq!((next.fresh_node(77), next.answered(8)), (None, None));
    next.stop().unwrap();
    assert!(!dir.journal().exists() && !dir.plane().exists());
}

/// Who may set a node's flag, since that is inside its parent, and has no right at the node itself
/// keeps nothing by the file through which he sets it: nor does its end tell anything.
#[test]
fn a_flag_set_by_who_has_no_right_at_the_node_lets_it_go() {
    let (dir, instants) = (Dir::new(), Arc::default());
    let mut engine = begin(&dir, &instants);
    let a = engine.edit(&[queue("a")], None).unwrap().created[0];
    let (root, who) = (Caller::root(), Caller { uid: 12, ..Caller::root() });
    for (id, change) in [(NodeId::ROOT, "allow uid 12 modify"), (a, "deny uid 12 all")] {
        engine
            .change_access(std::slice::from_ref(&root), id, change.parse().unwrap(), None)
            .unwrap();
    }
    engine.opened(7, a, &who).unwrap();
    let flag = Request::SetGc { node: a.into(), gc: true };
    engine.edit_by(&who, &[flag], Some(Origin { unique: 8, fresh: None })).unwrap();
    engine.closed(7);
    let now = Duration::from_secs(1);
    let due = engine.due(now);
    engine.sweep(now, &due.nodes, &BTreeSet::new()).unwrap();
    assert!(engine.tree().get(a).is_none(), "{due:?}");
}
