// SPDX-License-Identifier: MIT OR Apache-2.0
//! Garbage collection against a naive oracle of the paper's rule: as long as there is one, a node
//! without children, with the flag on, that nobody refers to is struck off a list. The tree only
//! looks at nodes whose last reference or child has just gone. One million random operations of
//! clients that open, close, tag, untag, change directory, fork and die, and of daemons that die.

use std::collections::{BTreeMap, BTreeSet};

use reserv_model::*;

/// Nodes beyond which none is made: small trees meet more.
const NODES: usize = 28;
const CLIENTS: u64 = 6;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % n.max(1)
    }

    fn of<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.below(from.len())])
    }
}

/// The oracle: lists that are searched.
#[derive(Default)]
struct Naive {
    /// Node, parent, flag.
    nodes: Vec<(NodeId, NodeId, bool)>,
    /// Made by the configuration and not used yet.
    unused: Vec<NodeId>,
    /// Open file, its client, its node.
    files: Vec<(u64, u64, NodeId)>,
    /// Tags, lists and directories of clients.
    refs: Vec<(u64, NodeId)>,
}

impl Naive {
    fn garbage(&mut self) -> BTreeSet<NodeId> {
        let mut gone = BTreeSet::new();
        while let Some(at) = self.nodes.iter().position(|&(id, _, gc)| {
            gc && !self.nodes.iter().any(|&(_, parent, _)| parent == id)
                && !self.unused.contains(&id)
                && !self.files.iter().any(|&(_, _, node)| node == id)
                && !self.refs.iter().any(|&(_, node)| node == id)
        }) {
            gone.insert(self.nodes.remove(at).0);
        }
        gone
    }
}

struct Run {
    random: Random,
    tree: Tree,
    handles: Handles,
    /// What the journal has of them.
    journal: BTreeMap<u64, NodeId>,
    refs: BTreeMap<NodeId, u32>,
    unused: BTreeSet<NodeId>,
    triggers: BTreeSet<NodeId>,
    naive: Naive,
    next: u64,
    collected: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        Self {
            random: Random(seed | 1),
            tree: Tree::new(Name::new("cpu").unwrap()),
            handles: Handles::default(),
            journal: BTreeMap::new(),
            refs: BTreeMap::new(),
            unused: BTreeSet::new(),
            triggers: BTreeSet::new(),
            naive: Naive::default(),
            next: 1,
            collected: 0,
        }
    }

    fn edit(&mut self, request: Request) -> Option<Vec<NodeId>> {
        let plan = self.tree.plan(&[request]).ok()?;
        self.tree.commit(&plan).unwrap();
        Some(plan.created().to_vec())
    }

    fn others(&self) -> Vec<NodeId> {
        self.naive.nodes.iter().map(|(id, _, _)| *id).collect()
    }

    fn open(&mut self, client: u64, node: NodeId) {
        let handle = self.next;
        self.next += 1;
        self.handles.open(handle, node);
        if self.tree.may_be_garbage(node) {
            self.journal.insert(handle, node);
        }
        self.naive.files.push((handle, client, node));
    }

    fn close(&mut self, handle: u64) {
        self.journal.remove(&handle);
        if let Some(node) = self.handles.close(handle)
            && self.handles.count(node) == 0
        {
            self.triggers.insert(node);
        }
        self.naive.files.retain(|(h, _, _)| *h != handle);
    }

    fn refer(&mut self, client: u64, node: NodeId) {
        *self.refs.entry(node).or_default() += 1;
        self.unused.remove(&node);
        self.naive.refs.push((client, node));
        self.naive.unused.retain(|id| *id != node);
    }

    fn drop_ref(&mut self, at: usize) {
        let (_, node) = self.naive.refs.remove(at);
        let count = self.refs.get_mut(&node).unwrap();
        *count -= 1;
        if *count == 0 {
            self.refs.remove(&node);
            self.triggers.insert(node);
        }
    }

    /// Everything that a client holds goes with it.
    fn die(&mut self, client: u64) {
        let files: Vec<u64> =
            self.naive.files.iter().filter(|f| f.1 == client).map(|f| f.0).collect();
        for handle in files {
            self.close(handle);
        }
        while let Some(at) = self.naive.refs.iter().position(|r| r.0 == client) {
            self.drop_ref(at);
        }
    }

    fn make(&mut self, client: u64) {
        if self.naive.nodes.len() >= NODES {
            return;
        }
        let mut parents = vec![NodeId::ROOT];
        parents.extend(
            self.others().into_iter().filter(|id| self.tree.get(*id).unwrap().kind.is_scheduler()),
        );
        let parent = self.random.of(&parents).unwrap();
        let kind =
            if self.random.below(2) == 0 { NewKind::Scheduler(None) } else { NewKind::Queue(None) };
        let opened = self.random.below(4) > 0;
        let name = (!opened).then(|| Name::new(&format!("n{}", self.next)).unwrap());
        self.next += 1;
        let Some(made) =
            self.edit(Request::Create { parent: parent.into(), name, kind, share: None })
        else {
            return;
        };
        let id = made[0];
        assert_eq!(
            self.tree.get(id).unwrap().gc,
            opened,
            "the flag is on for nodes of newqueue and newsched"
        );
        self.naive.nodes.push((id, parent, opened));
        if opened {
            self.open(client, id);
        } else if self.random.below(3) == 0 {
            // By the configuration, with the flag on.
            self.edit(Request::SetGc { node: id.into(), gc: true });
            self.unused.insert(id);
            self.naive.nodes.last_mut().unwrap().2 = true;
            self.naive.unused.push(id);
        }
    }

    /// Through the file `gc`, which is open meanwhile.
    fn set_flag(&mut self, client: u64, id: NodeId) {
        let on = self.random.below(2) == 0;
        let handle = self.next;
        self.open(client, id);
        self.edit(Request::SetGc { node: id.into(), gc: on });
        if on {
            let known: Vec<u64> = self.handles.of(id).collect();
            self.journal.extend(known.into_iter().map(|handle| (handle, id)));
        } else {
            self.unused.remove(&id);
            self.naive.unused.retain(|n| *n != id);
        }
        self.naive.nodes.iter_mut().find(|n| n.0 == id).unwrap().2 = on;
        self.close(handle);
    }

    fn remove(&mut self, id: NodeId) {
        // As rmdir: refused while it has children or threads.
        if self.refs.contains_key(&id) {
            return;
        }
        let parent = self.tree.get(id).unwrap().parent.unwrap();
        if self.edit(Request::Delete { node: id.into(), mode: DeleteMode::Refuse }).is_some() {
            self.naive.nodes.retain(|n| n.0 != id);
            self.unused.remove(&id);
            self.naive.unused.retain(|n| *n != id);
            // Its files are still open; they are stale.
            self.triggers.insert(parent);
        }
    }

    fn move_to(&mut self, id: NodeId) {
        let Some(to) = self.random.of(&self.others()) else { return };
        let old = self.tree.get(id).unwrap().parent.unwrap();
        if self.edit(Request::Move { node: id.into(), parent: to.into(), name: None }).is_some() {
            self.naive.nodes.iter_mut().find(|n| n.0 == id).unwrap().1 = to;
            self.triggers.insert(old);
        }
    }

    /// The next daemon has the journal, and looks at everything.
    fn restart(&mut self) {
        self.handles = Handles::default();
        for (&handle, &node) in &self.journal {
            self.handles.open(handle, node);
        }
        // What was opened while the flag was off is asked of /proc; here the oracle is asked.
        for &(handle, _, node) in &self.naive.files {
            self.handles.open(handle, node);
        }
        self.triggers = self.others().into_iter().collect();
    }

    fn step(&mut self) {
        let client = self.random.next() % CLIENTS;
        let node = self.random.of(&self.others());
        match (self.random.below(24), node) {
            (0..5, _) => self.make(client),
            (5..8, Some(id)) => self.open(client, id),
            (8..13, _) => {
                let files: Vec<u64> = self.naive.files.iter().map(|f| f.0).collect();
                if let Some(handle) = self.random.of(&files) {
                    self.close(handle);
                }
            }
            (13..15, Some(id)) => self.refer(client, id),
            (15..18, _) if !self.naive.refs.is_empty() => {
                let at = self.random.below(self.naive.refs.len());
                self.drop_ref(at);
            }
            (18, Some(id)) => self.set_flag(client, id),
            (19, Some(id)) => self.remove(id),
            (20, Some(id)) => self.move_to(id),
            (21, _) => {
                // A fork: the child has the parent's files and tags.
                let child = self.random.next() % CLIENTS;
                let refs: Vec<NodeId> =
                    self.naive.refs.iter().filter(|r| r.0 == client).map(|r| r.1).take(3).collect();
                for id in refs {
                    self.refer(child, id);
                }
            }
            (22, _) => self.die(client),
            (23, _) if self.random.below(8) == 0 => self.restart(),
            _ => {}
        }
        self.collect();
    }

    fn collect(&mut self) {
        let triggers = std::mem::take(&mut self.triggers);
        let around = self.tree.around(triggers.iter().copied());
        let used = |id: NodeId| {
            assert!(around.contains(&id), "what refers to a node must be known before");
            self.handles.count(id) > 0 || self.refs.contains_key(&id) || self.unused.contains(&id)
        };
        let garbage = self.tree.garbage(triggers, used);
        for id in garbage.iter().copied() {
            // Children before their parents: each deletion is accepted.
            self.edit(Request::Delete { node: id.into(), mode: DeleteMode::Refuse }).unwrap();
        }
        self.collected += garbage.len() as u64;
        assert_eq!(garbage.into_iter().collect::<BTreeSet<_>>(), self.naive.garbage());
    }
}

#[test]
#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "settings and seed of a test"
)]
fn a_million_operations_as_the_naive_oracle() {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let seed = number("RESERV_COLLECT_SEED").unwrap_or(0x5eed_0f9a_7ba6_e123);
    let operations = number("RESERV_COLLECT_OPERATIONS").unwrap_or(1_000_000);
    println!("replay with RESERV_COLLECT_SEED={seed} RESERV_COLLECT_OPERATIONS={operations}");
    let mut done = 0;
    let mut collected = 0;
    while done < operations {
        let mut run = Run::new(seed.wrapping_add(done));
        for _ in 0..20_000.min(operations - done) {
            run.step();
            done += 1;
        }
        // Everybody dies: what is left has its flag off, was never used, or is above such a node.
        (0..CLIENTS).for_each(|client| run.die(client));
        run.collect();
        assert!(
            run.handles.iter().next().is_none() && run.refs.is_empty() && run.journal.is_empty()
        );
        collected += run.collected;
    }
    assert!(
        collected > operations / 50,
        "{collected} collected: the test does not do what it says"
    );
}

#[test]
fn a_subtree_goes_and_what_is_above_it() {
    let mut tree = Tree::new(Name::new("cpu").unwrap());
    let make = |tree: &mut Tree, parent: NodeId, kind| {
        let plan = tree
            .plan(&[Request::Create { parent: parent.into(), name: None, kind, share: None }])
            .unwrap();
        tree.commit(&plan).unwrap();
        plan.created()[0]
    };
    let (sched, queue) = (NewKind::Scheduler(None), NewKind::Queue(None));
    let top = make(&mut tree, NodeId::ROOT, sched);
    let middle = make(&mut tree, top, sched);
    let (a, b) = (make(&mut tree, middle, queue), make(&mut tree, middle, queue));
    let beside = make(&mut tree, top, queue);
    assert_eq!(
        tree.garbage([middle], |_| false),
        [a, b, middle],
        "the subtree, and not what has more below it"
    );
    assert_eq!(tree.garbage([middle], |id| id == a), [b], "what is used stays, with all above it");
    assert_eq!(tree.garbage([beside], |id| id == a || id == b), [beside]);
    assert_eq!(
        tree.garbage([a, b, beside], |_| false),
        [a, b, beside, middle, top],
        "up to the root, which stays"
    );
    assert_eq!(
        tree.garbage([NodeId::ROOT, NodeId::Q0], |_| false),
        [],
        "root and q0 are never garbage"
    );
    let plan = tree.plan(&[Request::SetGc { node: middle.into(), gc: false }]).unwrap();
    tree.commit(&plan).unwrap();
    assert_eq!(tree.garbage([a, beside], |_| false), [a, beside], "the flag is off");
    let plan = tree.plan(&[Request::Delete { node: a.into(), mode: DeleteMode::Drain }]).unwrap();
    tree.commit(&plan).unwrap();
    assert_eq!(tree.garbage([a, b], |_| false), [b], "what drains goes with its last member");
}
