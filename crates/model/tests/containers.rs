// SPDX-License-Identifier: MIT OR Apache-2.0
//! Containers against a list that is searched naively and obeys the paper's words (§4.5, §4.6):
//! several users make, move, hold, bind, let go and die at random. After every step list and model
//! are the same, what was refused changed nothing, and the journal's text gives the same model.

use std::collections::BTreeSet;

use proptest::prelude::*;
use reserv_model::*;

const LIMITS: ContainerLimits = ContainerLimits { all: 14, of_user: 5 };
const TOP: ContainerId = ContainerId::TOP;

/// A container in the paper's words.
#[derive(Clone, Debug, PartialEq)]
struct Box_ {
    id: ContainerId,
    parent: Option<ContainerId>,
    name: String,
    holds: Holds,
    share: Share,
    gc: bool,
    maker: u32,
    /// Descriptors and threads, by the process that has them.
    held_by: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
struct Naive(Vec<Box_>);

impl Naive {
    fn at(&self, id: ContainerId) -> Option<usize> {
        self.0.iter().position(|b| b.id == id)
    }

    fn children(&self, parent: Option<ContainerId>) -> Vec<ContainerId> {
        self.0.iter().filter(|b| b.parent == parent).map(|b| b.id).collect()
    }

    fn named(&self, parent: Option<ContainerId>, name: &str) -> bool {
        self.0.iter().any(|b| b.parent == parent && b.name == name)
    }

    fn depth(&self, of: Option<ContainerId>) -> usize {
        of.map_or(1, |id| 1 + self.depth(self.0[self.at(id).unwrap()].parent))
    }

    fn height(&self, id: ContainerId) -> usize {
        1 + self.children(Some(id)).into_iter().map(|c| self.height(c)).max().unwrap_or(0)
    }

    fn below(&self, id: ContainerId, top: ContainerId) -> bool {
        id == top || self.0[self.at(id).unwrap()].parent.is_some_and(|p| self.below(p, top))
    }

    fn place(
        &self,
        parent: Option<ContainerId>,
        name: &str,
        height: usize,
    ) -> Result<(), ErrorKind> {
        if parent.is_some_and(|p| self.0[self.at(p).unwrap()].holds == Holds::Threads) {
            return Err(ErrorKind::NotScheduler);
        }
        if CONTAINER_FILES.contains(&name) {
            return Err(ErrorKind::Invalid);
        }
        if self.named(parent, name) {
            return Err(ErrorKind::Exists);
        }
        if self.depth(parent) + height > DEPTH_MAX {
            return Err(ErrorKind::TooDeep);
        }
        Ok(())
    }

    fn free(&self, parent: Option<ContainerId>) -> String {
        (0..100).map(|n| format!("c{n}")).find(|name| !self.named(parent, name)).unwrap()
    }
}

#[derive(Clone, Debug)]
enum Act {
    Create {
        by: u32,
        parent: usize,
        name: Option<usize>,
        parents: bool,
        gc: bool,
        minimum: bool,
    },
    Move {
        what: usize,
        parent: usize,
        name: Option<usize>,
    },
    Share {
        what: usize,
        weight: u32,
    },
    Gc {
        what: usize,
        gc: bool,
    },
    Delete {
        what: usize,
    },
    /// A descriptor or a thread of a process, and its end.
    Hold {
        what: usize,
        by: u32,
    },
    Drop {
        what: usize,
        by: u32,
    },
    Kill {
        by: u32,
    },
}

const NAMES: [&str; 4] = ["a", "b", "c0", "usage"];

fn act() -> impl Strategy<Value = Act> {
    let (what, by, name) = (0..20_usize, 0..3_u32, proptest::option::of(0..NAMES.len()));
    prop_oneof![
        6 => (by.clone(), what.clone(), name.clone(), any::<bool>(), any::<bool>(), 0..20_u32).prop_map(
            |(by, parent, name, parents, gc, m)| Act::Create { by, parent, name, parents, gc, minimum: m == 0 }
        ),
        4 => (what.clone(), what.clone(), name).prop_map(|(what, parent, name)| Act::Move { what, parent, name }),
        1 => (what.clone(), 0..9_u32).prop_map(|(what, weight)| Act::Share { what, weight }),
        1 => (what.clone(), any::<bool>()).prop_map(|(what, gc)| Act::Gc { what, gc }),
        1 => what.clone().prop_map(|what| Act::Delete { what }),
        3 => (what.clone(), by.clone()).prop_map(|(what, by)| Act::Hold { what, by }),
        3 => (what, by.clone()).prop_map(|(what, by)| Act::Drop { what, by }),
        1 => by.prop_map(|by| Act::Kill { by }),
    ]
}

/// Model and list, which are told the same.
struct Both {
    all: Containers,
    naive: Naive,
    gone: BTreeSet<ContainerId>,
    journal: Vec<String>,
}

impl Both {
    /// A container that is there, one that was, or none.
    fn pick(&self, what: usize) -> ContainerId {
        match what {
            0..=2 => TOP,
            3 => self.gone.last().copied().unwrap_or(TOP),
            _ if self.naive.0.is_empty() => TOP,
            _ => self.naive.0[what % self.naive.0.len()].id,
        }
    }

    fn apply(&mut self, edit: &ContainerEdit) {
        self.all.apply(edit).unwrap();
        self.journal.push(serde_json::to_string(edit).unwrap());
    }

    /// What nobody refers to goes, and its children have no parent then.
    fn release(&mut self) {
        while let Some(at) = self.naive.0.iter().position(|b| b.gc && b.held_by.is_empty()) {
            let id = self.naive.0[at].id;
            for child in self.naive.children(Some(id)) {
                let edit = self.all.plan_orphan(child).unwrap();
                let name = self.naive.0[self.naive.at(child).unwrap()].name.clone();
                let name = if self.naive.named(None, &name) { self.naive.free(None) } else { name };
                let at = self.naive.at(child).unwrap();
                (self.naive.0[at].parent, self.naive.0[at].name) = (None, name);
                self.apply(&edit);
            }
            let edit = self.all.plan_delete(id).unwrap();
            self.apply(&edit);
            let at = self.naive.at(id).unwrap();
            self.naive.0.remove(at);
            self.gone.insert(id);
        }
    }

    fn create(&mut self, act: &Act) {
        let Act::Create { by, parent, name, parents, gc, minimum } = *act else { return };
        let parent = self.pick(parent);
        let holds = if parents { Holds::Containers } else { Holds::Threads };
        let mut share = Share::of(Weight::DEFAULT);
        if minimum {
            share.minimum = Minimum(1);
        }
        let new = NewContainer {
            name: name.map(|n| Name::new(NAMES[n]).unwrap()),
            holds,
            share,
            gc,
            maker: by,
        };
        let plan = self.all.plan_create(parent, new);
        let above = (parent != TOP).then_some(parent);
        let told = if above.is_some_and(|p| self.naive.at(p).is_none()) {
            // A slot's last container is gone, whoever asks for a number of it.
            Err(ErrorKind::Stale)
        } else {
            let name = name.map_or_else(|| self.naive.free(above), |n| NAMES[n].to_owned());
            let mine = self.naive.0.iter().filter(|b| b.maker == by).count();
            self.naive.place(above, &name, 1).and_then(|()| match () {
                () if minimum => Err(ErrorKind::Invalid),
                () if by != 0 && mine >= LIMITS.of_user as usize => Err(ErrorKind::Full),
                () if self.naive.0.len() + 1 >= LIMITS.all as usize => Err(ErrorKind::Full),
                () => Ok(name),
            })
        };
        let (edit, name) = match (plan, told) {
            (Ok(edit), Ok(name)) => (edit, name),
            (plan, told) => {
                assert_eq!(plan.map(drop).map_err(|e| e.kind), told.map(drop));
                return;
            }
        };
        let id = edit.id();
        assert!(!self.gone.contains(&id) && self.naive.at(id).is_none(), "a handle is used once");
        self.apply(&edit);
        // Who makes one has its descriptor.
        self.naive.0.push(Box_ {
            id,
            parent: above,
            name,
            holds,
            share,
            gc,
            maker: by,
            held_by: vec![by],
        });
    }

    fn moved(&mut self, what: usize, parent: usize, name: Option<usize>) {
        let (id, parent) = (self.pick(what), self.pick(parent));
        let plan = self.all.plan_move(id, parent, name.map(|n| Name::new(NAMES[n]).unwrap()));
        let above = (parent != TOP).then_some(parent);
        let told = match self.naive.at(id) {
            _ if id == TOP => Err(ErrorKind::Protected),
            None => Err(ErrorKind::Stale),
            Some(_) if above.is_some_and(|p| self.naive.at(p).is_none()) => Err(ErrorKind::Stale),
            Some(at) => {
                let own = &self.naive.0[at];
                let name = name.map_or_else(|| own.name.clone(), |n| NAMES[n].to_owned());
                if own.parent == above && own.name == name {
                    Ok(None)
                } else if above.is_some_and(|p| self.naive.below(p, id)) {
                    Err(ErrorKind::Loop)
                } else {
                    self.naive.place(above, &name, self.naive.height(id)).map(|()| Some((at, name)))
                }
            }
        };
        match (plan, told) {
            (Ok(Some(edit)), Ok(Some((at, name)))) => {
                self.apply(&edit);
                (self.naive.0[at].parent, self.naive.0[at].name) = (above, name);
            }
            (plan, told) => {
                assert_eq!(
                    plan.map(|p| p.is_some()).map_err(|e| e.kind),
                    told.map(|t| t.is_some())
                );
            }
        }
    }

    fn own<T: std::fmt::Debug>(
        &self,
        id: ContainerId,
        plan: Result<T, Error>,
    ) -> Option<(usize, T)> {
        match (plan, self.naive.at(id)) {
            (Ok(edit), Some(at)) => Some((at, edit)),
            (plan, _) => {
                let kind = if id == TOP { ErrorKind::Protected } else { ErrorKind::Stale };
                assert_eq!(plan.unwrap_err().kind, kind);
                None
            }
        }
    }

    fn step(&mut self, act: &Act) {
        match *act {
            Act::Create { .. } => self.create(act),
            Act::Move { what, parent, name } => self.moved(what, parent, name),
            Act::Share { what, weight } => {
                let (id, share) =
                    (self.pick(what), Share::of(Weight::from_milli(weight * 1000).unwrap()));
                if let Some((at, edit)) = self.own(id, self.all.plan_share(id, share)) {
                    self.apply(&edit);
                    self.naive.0[at].share = share;
                }
            }
            Act::Gc { what, gc } => {
                let id = self.pick(what);
                if let Some((at, edit)) = self.own(id, self.all.plan_gc(id, gc)) {
                    self.apply(&edit);
                    self.naive.0[at].gc = gc;
                }
            }
            Act::Delete { what } => {
                let id = self.pick(what);
                if self.naive.at(id).is_some() && !self.naive.children(Some(id)).is_empty() {
                    assert_eq!(self.all.plan_delete(id).unwrap_err().kind, ErrorKind::NotEmpty);
                } else if let Some((at, edit)) = self.own(id, self.all.plan_delete(id)) {
                    self.apply(&edit);
                    self.naive.0.remove(at);
                    self.gone.insert(id);
                }
            }
            Act::Hold { what, by } => {
                let id = self.pick(what);
                if let Some(at) = self.naive.at(id) {
                    self.naive.0[at].held_by.push(by);
                }
            }
            Act::Drop { what, by } => {
                let id = self.pick(what);
                if let Some(at) = self.naive.at(id)
                    && let Some(held) = self.naive.0[at].held_by.iter().position(|h| *h == by)
                {
                    self.naive.0[at].held_by.remove(held);
                }
            }
            Act::Kill { by } => {
                self.naive.0.iter_mut().for_each(|b| b.held_by.retain(|h| *h != by));
            }
        }
        self.release();
    }

    fn compare(&self) {
        let all = &self.all;
        assert_eq!(all.iter().count(), self.naive.0.len());
        for b in &self.naive.0 {
            let held = all.get(b.id).unwrap();
            assert_eq!(held.parent, Some(b.parent.unwrap_or(TOP)));
            let shown = (held.name.as_str(), held.holds, held.share, held.gc, held.maker);
            assert_eq!(shown, (b.name.as_str(), b.holds, b.share, b.gc, b.maker));
            let children: BTreeSet<_> = held.children.values().copied().collect();
            assert_eq!(children, self.naive.children(Some(b.id)).into_iter().collect());
            let path = all.path(b.id).unwrap();
            assert_eq!(all.resolve(&path).unwrap(), b.id, "{path}");
            assert!(all.up(b.id).last().is_some_and(|last| last.id == TOP), "below the top");
        }
        assert!(self.gone.iter().all(|id| all.get(*id).is_none()), "a handle is never another's");
        let walked: Vec<_> = all.walk().into_iter().map(|held| held.id).collect();
        assert_eq!(walked.len(), self.naive.0.len());
        for (at, id) in walked.iter().enumerate() {
            let parent = all.get(*id).unwrap().parent.unwrap();
            assert!(parent == TOP || walked[..at].contains(&parent), "parents first");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn containers_are_what_the_paper_says(acts in proptest::collection::vec(act(), 1..120)) {
        let mut both =
            Both { all: Containers::new(LIMITS), naive: Naive::default(), gone: BTreeSet::new(), journal: Vec::new() };
        let mut middle = None;
        for (at, act) in acts.iter().enumerate() {
            both.step(act);
            both.compare();
            if at == acts.len() / 2 {
                middle = Some((serde_json::to_string(&both.all).unwrap(), both.journal.len()));
            }
        }
        // From the beginning, and from a snapshot in the middle.
        let (snapshot, done) = middle.unwrap();
        let middle: Containers = serde_json::from_str(&snapshot).unwrap();
        for (mut again, from) in [(Containers::default(), 0), (middle, done)] {
            for edit in &both.journal[from..] {
                again.apply(&serde_json::from_str(edit).unwrap()).unwrap();
            }
            prop_assert_eq!(serde_json::to_string(&again).unwrap(), serde_json::to_string(&both.all).unwrap());
            let ours: Vec<_> = both.all.iter().collect();
            prop_assert!(again.iter().eq(ours.into_iter()));
        }
    }
}

fn new(name: &str, holds: Holds) -> NewContainer {
    let name = Some(Name::new(name).unwrap());
    NewContainer { name, holds, share: Share::of(Weight::DEFAULT), gc: false, maker: 0 }
}

#[test]
fn nobody_is_above_himself() {
    let mut all = Containers::default();
    let mut at = TOP;
    let mut made = Vec::new();
    for name in ["a", "b", "c"] {
        let edit = all.plan_create(at, new(name, Holds::Containers)).unwrap();
        all.apply(&edit).unwrap();
        at = edit.id();
        made.push(at);
    }
    for parent in &made {
        let refused = all.plan_move(made[0], *parent, None).unwrap_err();
        assert_eq!((refused.kind, refused.errno()), (ErrorKind::Loop, Errno::ELOOP));
    }
    assert!(all.plan_move(made[2], made[0], None).unwrap().is_some());
    assert_eq!(all.path(made[2]).unwrap().to_string(), "a/b/c");
}

#[test]
fn levels_are_bounded_where_a_whole_branch_moves() {
    let mut all = Containers::default();
    let mut ends = Vec::new();
    for first in ["x", "y"] {
        let mut at = TOP;
        for level in 0..DEPTH_MAX / 2 {
            let name = if level == 0 { first } else { "n" };
            let edit = all.plan_create(at, new(name, Holds::Containers)).unwrap();
            all.apply(&edit).unwrap();
            at = edit.id();
        }
        ends.push(at);
    }
    let y = all.resolve(&"y".parse().unwrap()).unwrap();
    assert_eq!(all.plan_move(y, ends[0], None).unwrap_err().kind, ErrorKind::TooDeep);
    let up = all.get(ends[0]).unwrap().parent.unwrap();
    assert!(all.plan_move(y, up, None).unwrap().is_some(), "one level less fits");
}

#[test]
fn what_does_not_fit_together_is_no_snapshot() {
    let mut all = Containers::default();
    for (parent, name) in [("", "web"), ("web", "a")] {
        let parent = all.resolve(&parent.parse().unwrap()).unwrap();
        let edit = all.plan_create(parent, new(name, Holds::Containers)).unwrap();
        all.apply(&edit).unwrap();
    }
    let text = serde_json::to_string(&all).unwrap();
    assert!(serde_json::from_str::<Containers>(&text).is_ok());
    let of = |index: u32| format!(r#""parent":{{"index":{index},"generation":1}}"#);
    for (from, to) in [
        (of(0), of(2)),                         // web below a below web
        (of(1), of(3)),                         // below nobody
        (of(0), r#""parent":null"#.to_owned()), // a second top
        (r#""name":"web","#.to_owned(), r#""name":"c/d","#.to_owned()), // no name
        (
            r#""generation":1,"held":{"id":{"index":1"#.to_owned(),
            r#""generation":2,"held":{"id":{"index":1"#.to_owned(),
        ),
    ] {
        let wrong = text.replacen(&from, &to, 1);
        assert_ne!(wrong, text, "{from}");
        assert!(serde_json::from_str::<Containers>(&wrong).is_err(), "{wrong}");
    }
}
