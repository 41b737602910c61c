// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of a tree that users hold open: what of them the journal has, and the next worker knows.

use std::path::PathBuf;

use reserv_daemon::engine::Engine;
use reserv_daemon::fake::FakePlane;
use reserv_model::{Caller, Name, NewKind, NodeId, Request, ResourceKind};

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        // In RAM, as the real one: a rename onto a disk waits for it.
        let base = Some(PathBuf::from("/dev/shm"))
            .filter(|p| p.is_dir())
            .unwrap_or_else(std::env::temp_dir);
        let path = base.join(format!("reserv-open-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn engine(&self, adopted: bool) -> Engine {
        let path = self.0.join("plane");
        let plane = if adopted {
            FakePlane::adopt(&path).unwrap().unwrap()
        } else {
            FakePlane::start(&path).unwrap()
        };
        let cpu = (Name::new("cpu").unwrap(), ResourceKind::Cpu);
        Engine::open(&self.0.join("journal"), cpu, Box::new(plane), adopted).unwrap().0
    }

    fn journal(&self) -> u64 {
        std::fs::metadata(self.0.join("journal")).unwrap().len()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn user(uid: u32, groups: u32, pid: u32) -> Caller {
    let groups = (0..groups).map(|n| 100_000 + n).collect::<Vec<u32>>().into();
    Caller { uid, gid: uid, groups, pid, start: 7, unseen: false }
}

fn node(engine: &mut Engine, name: &str) -> NodeId {
    let name = Some(Name::new(name).unwrap());
    let kind = NewKind::Queue(None);
    let create = Request::Create { parent: NodeId::ROOT.into(), name, kind, share: None };
    engine.edit(&[create], None).unwrap().created[0]
}

#[test]
fn a_user_of_many_groups_fills_neither_the_journal_nor_anothers_places() {
    let dir = Dir::new("many");
    let mut engine = dir.engine(false);
    let mut open = Vec::new();
    for n in 0.. {
        let who = user(7, 65_536, 1 + n % 5);
        match engine.writes(u64::from(n), &who) {
            Ok(()) => open.push((u64::from(n), who)),
            Err(refusal) => {
                assert_eq!(refusal.errno, libc::EMFILE);
                assert!(refusal.text.contains("uid 7 take 8192 places"), "{refusal}");
                break;
            }
        }
    }
    assert_eq!(open.len(), 8192 - 65_536 / 16);
    assert!(dir.journal() < 5 << 20, "{}", dir.journal());
    assert_eq!(engine.admit_file(None, &user(7, 0, 1)).unwrap_err().errno, libc::EMFILE);
    engine.writes(1 << 20, &user(8, 3, 9)).expect("another");
    engine.writes(open[0].0, &open[0].1).expect("it is open, and its request is sent again");
    let made = node(&mut engine, "made");
    engine.opened(1 << 30, made, &Caller::root()).expect("root");
    drop(engine);
    let mut next = dir.engine(true);
    assert!(next.tree().get(made).is_some());
    for (handle, who) in &open {
        assert_eq!(next.writer(*handle).as_ref(), Some(who));
    }
    assert_eq!(next.writer(1 << 20), Some(user(8, 3, 9)));
    assert_eq!(next.writes(1 << 21, &user(7, 65_536, 1)).unwrap_err().errno, libc::EMFILE);
    for (handle, _) in &open {
        next.writes_no_more(*handle);
    }
    next.writes(1 << 21, &user(7, 65_536, 1)).expect("all others are closed");
    assert_eq!(next.writer(open[0].0), None);
    next.stop().unwrap();
}

#[test]
fn files_of_nodes_count_and_what_is_refused_keeps_nothing() {
    let dir = Dir::new("nodes");
    let mut engine = dir.engine(false);
    let id = node(&mut engine, "a");
    let (root, who) = (Caller::root(), user(12, 0, 1));
    let allow = "allow uid 12 use".parse().unwrap();
    engine.change_access(&[root], id, allow, None).unwrap();
    let last = 8192;
    for handle in 0..last {
        engine.opened(handle, id, &who).expect("there is room");
    }
    assert_eq!(engine.opened(last, id, &who).unwrap_err().errno, libc::EMFILE);
    assert!(!engine.has_open(last));
    engine.opened(0, id, &who).expect("that is open");
    engine.opened(last, id, &user(13, 0, 1)).expect("of who has no right there nothing is kept");
    engine.closed(5);
    engine.opened(last, id, &who).expect("one was closed");
    // From now on they stand in the journal.
    engine.edit(&[Request::SetGc { node: id.into(), gc: true }], None).unwrap();
    drop(engine);
    let next = dir.engine(true);
    assert!(next.has_open(0) && next.has_open(last) && !next.has_open(5));
    assert_eq!(next.admit_file(None, &who).unwrap_err().errno, libc::EMFILE);
}
