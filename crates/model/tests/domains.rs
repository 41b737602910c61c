// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random operations of several users and their processes against a naive oracle of the paper's
//! rules (Eclipse/BSD §2.7): a flat list of nodes and a flat list of entries, searched from one end
//! to the other.
//!
//! Processes fork, exec as another user, die and have their pids used again; they make, move and
//! delete nodes, change shares and lists, and tag themselves and descriptors, which they duplicate
//! and send. What the tree allows, and what the kernel's check would by the rules that it is told,
//! is what the oracle says; after every step. References are noted in [`World::refs`], for who
//! tests what refers to a node.

mod common;

use std::collections::BTreeMap;

use reserv_model::*;

/// `splitmix64`: the seed is printed, `DOMAINS_SEED` replays it.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) >> 33).unwrap() % n
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }
}

#[derive(Clone, Debug)]
struct Place {
    id: NodeId,
    parent: Option<NodeId>,
    queue: bool,
    maker: u32,
    through: Option<usize>,
}

/// An entry is its place in the list; one without rights is gone.
#[derive(Clone, Debug)]
struct Line {
    node: NodeId,
    allow: bool,
    party: Party,
    rights: Vec<Right>,
    quota: Option<u32>,
    by: u32,
    via: Option<usize>,
}

#[derive(Clone, Debug, Default)]
struct Naive {
    places: Vec<Place>,
    lines: Vec<Line>,
}

impl Naive {
    fn place(&self, id: NodeId) -> &Place {
        self.places.iter().find(|p| p.id == id).unwrap()
    }

    fn within(&self, id: NodeId, top: NodeId) -> bool {
        id == top || self.place(id).parent.is_some_and(|p| self.within(p, top))
    }

    fn meant(party: Party, who: &Caller) -> bool {
        !(party.uid.is_some_and(|u| u != who.uid)
            || party.gid.is_some_and(|g| g != who.gid && !who.groups.contains(&g))
            || party.process.is_some_and(|p| p.0 != who.pid || p.1 != who.start))
    }

    fn says(&self, allow: bool, who: &Caller, id: NodeId, right: Right) -> bool {
        let here =
            |l: &Line| l.allow == allow && l.rights.contains(&right) && self.within(id, l.node);
        self.lines.iter().any(|l| here(l) && Self::meant(l.party, who))
    }

    fn listed(&self, who: &Caller, id: NodeId, right: Right) -> bool {
        who.uid == 0 || !self.says(false, who, id, right) && self.says(true, who, id, right)
    }

    fn may(&self, who: &Caller, id: NodeId, right: Right) -> bool {
        let place = self.place(id);
        let made = |parent| place.maker == who.uid && self.listed(who, parent, Right::Create);
        let own = [Right::Modify, Right::Delete].contains(&right) && place.parent.is_some_and(made);
        let implied =
            || right == Right::Read && Right::to_act().any(|other| self.may(who, id, other));
        self.listed(who, id, right) || (own || implied()) && !self.says(false, who, id, right)
    }

    /// Whether somebody who is in these queues sees the totals of a node.
    fn sees(&self, who: &Caller, id: NodeId, within: &[NodeId]) -> bool {
        let shows = |below: NodeId| within.contains(&below) || self.may(who, below, Right::Read);
        self.place(id).parent.is_none()
            || self.places.iter().any(|p| self.within(p.id, id) && shows(p.id))
    }

    fn above(&self, who: &Caller, id: NodeId, right: Right) -> bool {
        let parent = self.place(id).parent;
        // One's own is only what one has no right to by a list; then the parent is not asked.
        let own = self.may(who, id, right) && !self.listed(who, id, right);
        own || self.may(who, parent.unwrap_or(id), right)
    }

    fn hangs_on(&self, line: Option<usize>, on: usize) -> bool {
        line.is_some_and(|l| {
            !self.lines[l].rights.is_empty() && (l == on || self.hangs_on(self.lines[l].via, on))
        })
    }

    /// Whether `more` nodes may be made through a line.
    fn fits(&self, through: Option<usize>, more: usize) -> bool {
        (0..self.lines.len()).filter(|&l| self.hangs_on(through, l)).all(|l| {
            let made = self.places.iter().filter(|p| self.hangs_on(p.through, l)).count();
            self.lines[l].quota.is_none_or(|quota| made + more <= quota as usize)
        })
    }

    /// The lines that give no more than what they hang on, which must stand at their node or above.
    fn settle(&mut self) {
        loop {
            let mut changed = false;
            for at in 0..self.lines.len() {
                let Some(via) = self.lines[at].via else { continue };
                let (line, from) = (&self.lines[at], &self.lines[via]);
                let stands = self.places.iter().any(|p| p.id == from.node)
                    && self.places.iter().any(|p| p.id == line.node)
                    && self.within(line.node, from.node)
                    && from.rights.contains(&Right::Grant);
                let has = |r: &Right| *r == Right::Read || from.rights.contains(r);
                let keep: Vec<Right> =
                    line.rights.iter().copied().filter(|r| stands && has(r)).collect();
                changed |= keep.len() != line.rights.len();
                self.lines[at].rights = keep;
            }
            if !changed {
                return;
            }
        }
    }
}

/// What refers to a queue, by whom.
#[derive(Clone, Debug, Default)]
struct Process {
    who: Caller,
    tag: Option<NodeId>,
    default: Option<NodeId>,
    child: Option<NodeId>,
    /// Descriptors: which open file each refers to.
    fds: Vec<usize>,
}

struct World {
    random: Random,
    tree: Tree,
    naive: Naive,
    /// Which line is which entry.
    ids: BTreeMap<u64, usize>,
    processes: Vec<Process>,
    /// Tags of open files, shared by all descriptors of each.
    files: Vec<Option<NodeId>>,
    clock: u64,
    allowed: usize,
    refused: usize,
    /// Entries passed on, and those that ended with what they hung on.
    passed: usize,
    ended: usize,
}

const USERS: [u32; 4] = [0, 11, 12, 13];
const PROCESSES: usize = 12;
const NODES: usize = 40;

impl World {
    fn new(seed: u64) -> Self {
        let tree = Tree::new(Name::new("cpu").unwrap());
        let place = |id, parent, queue| Place { id, parent, queue, maker: 0, through: None };
        let places =
            vec![place(NodeId::ROOT, None, false), place(NodeId::Q0, Some(NodeId::ROOT), true)];
        let naive = Naive { places, lines: Vec::new() };
        let processes = vec![Process {
            who: Caller { pid: 1, start: 1, ..Caller::root() },
            ..Process::default()
        }];
        Self {
            random: Random(seed),
            tree,
            naive,
            ids: BTreeMap::new(),
            processes,
            files: Vec::new(),
            clock: 1,
            allowed: 0,
            refused: 0,
            passed: 0,
            ended: 0,
        }
    }

    /// How many tags and lists name a node: of threads, files with a descriptor, default lists.
    fn refs(&self, id: NodeId) -> usize {
        let lists = self.processes.iter().flat_map(|p| [p.tag, p.default, p.child]);
        let open = |file: usize| self.processes.iter().any(|p| p.fds.contains(&file));
        let files =
            self.files.iter().enumerate().filter(|(file, _)| open(*file)).map(|(_, tag)| *tag);
        lists.chain(files).filter(|tag| *tag == Some(id)).count()
    }

    fn any_node(&mut self) -> NodeId {
        self.random.of(&self.naive.places).id
    }

    fn rights(&mut self) -> Vec<Right> {
        let mask = 1 + self.random.below(63);
        if self.random.below(3) == 0 {
            return Right::ALL.to_vec();
        }
        Right::ALL
            .into_iter()
            .enumerate()
            .filter(|(bit, _)| mask >> bit & 1 == 1)
            .map(|(_, r)| r)
            .collect()
    }

    fn party(&mut self) -> Party {
        let process = self.random.of(&self.processes).who;
        Party {
            uid: (self.random.below(3) > 0).then(|| self.random.of(&USERS[1..])),
            gid: (self.random.below(5) == 0)
                .then(|| 20 + u32::try_from(self.random.below(3)).unwrap()),
            process: (self.random.below(8) == 0).then_some((process.pid, process.start)),
        }
    }

    /// A request of somebody: the tree's answer is the oracle's.
    fn ask(&mut self, who: &Caller, request: Request, wanted: bool) -> bool {
        let got = self.tree.permit(who, &request);
        assert_eq!(got.is_ok(), wanted, "{who:?} {request:?}: {got:?}\n{}", self.shown());
        *(if wanted { &mut self.allowed } else { &mut self.refused }) += 1;
        if !wanted {
            return false;
        }
        let Ok(plan) = self.tree.plan(&[request]) else { return false };
        let plan = plan.made_by(&self.tree, who);
        self.tree.commit(&plan).unwrap();
        true
    }

    fn shown(&self) -> String {
        let line =
            |n: &Node| format!("{} maker {} {:?}\n", self.tree.shown(n.id), n.maker, n.access);
        self.tree.iter().map(line).collect()
    }

    fn create(&mut self, who: &Caller, parent: NodeId) {
        let through = self.tree.made_through(who, parent).map(|id| self.ids[&id]);
        let wanted = self.naive.may(who, parent, Right::Create) && self.naive.fits(through, 1);
        let queue = self.random.below(2) == 0;
        if self.naive.place(parent).queue || self.naive.places.len() >= NODES {
            return;
        }
        let kind = if queue { NewKind::Queue(None) } else { NewKind::Scheduler(None) };
        if self.ask(
            who,
            Request::Create { parent: parent.into(), name: None, kind, share: None },
            wanted,
        ) && let Some(new) =
            self.tree.iter().find(|n| self.naive.places.iter().all(|p| p.id != n.id))
        {
            let maker = who.uid;
            self.naive.places.push(Place {
                id: new.id,
                parent: Some(parent),
                queue,
                maker,
                through,
            });
        }
    }

    fn delete(&mut self, who: &Caller, id: NodeId) {
        let wanted = self.naive.above(who, id, Right::Delete);
        if self.ask(who, Request::Delete { node: id.into(), mode: DeleteMode::Flush }, wanted) {
            self.naive.places.retain(|p| p.id != id);
            for line in self.naive.lines.iter_mut().filter(|l| l.node == id) {
                line.rights.clear();
            }
            self.naive.settle();
            for tag in self
                .processes
                .iter_mut()
                .flat_map(|p| [&mut p.tag, &mut p.default, &mut p.child])
                .chain(&mut self.files)
            {
                *tag = tag.filter(|t| *t != id);
            }
            assert_eq!(self.refs(id), 0);
        }
    }

    fn shift(&mut self, who: &Caller, id: NodeId, parent: NodeId) {
        if self.naive.place(parent).queue || self.naive.place(id).parent.is_none() {
            return;
        }
        let within = self.naive.places.iter().filter(|p| self.naive.within(p.id, id)).count();
        let through = self.tree.made_through(who, parent).map(|id| self.ids[&id]);
        let wanted = if self.naive.place(id).parent == Some(parent) {
            self.naive.above(who, id, Right::Modify)
        } else {
            self.naive.above(who, id, Right::Delete)
                && self.naive.may(who, parent, Right::Create)
                && self.naive.fits(through, within)
        };
        let name = Some(Name::new(&format!("n{}", self.clock)).unwrap());
        if self.ask(who, Request::Move { node: id.into(), parent: parent.into(), name }, wanted) {
            self.naive.places.iter_mut().find(|p| p.id == id).unwrap().parent = Some(parent);
            self.naive.settle();
        }
    }

    /// Whether somebody may write this, and what it then does.
    fn change(&mut self, who: &Caller, id: NodeId) {
        let (mut id, mut party, mut rights) = (id, self.party(), self.rights());
        let verb = self.random.of(&[
            Verb::Allow,
            Verb::Allow,
            Verb::Allow,
            Verb::Remove,
            Verb::Remove,
            Verb::Deny,
        ]);
        if who.uid != 0 && verb == Verb::Allow {
            rights.truncate(2);
        }
        // Mostly what is there is taken back, some of it, and what was passed on before anything
        // else.
        let mut there: Vec<Line> =
            self.naive.lines.iter().filter(|l| !l.rights.is_empty()).cloned().collect();
        if there.iter().any(|l| l.via.is_some()) && self.random.below(2) == 0 {
            let from: Vec<usize> = there.iter().filter_map(|l| l.via).collect();
            there = from.into_iter().map(|via| self.naive.lines[via].clone()).collect();
        }
        if verb == Verb::Remove && !there.is_empty() {
            let line = self.random.of(&there);
            (id, party) = (line.node, line.party);
            if self.random.below(3) == 0 {
                rights = vec![Right::Grant];
            }
        }
        let quota = (verb == Verb::Allow && self.random.below(2) == 0)
            .then(|| u32::try_from(self.random.below(9)).unwrap());
        let text: Vec<&str> = rights.iter().map(|r| r.word()).collect();
        let change = AccessChange {
            verb,
            party,
            rights: text.join(",").parse().unwrap(),
            quota,
            by: 0,
            via: None,
        };
        assert_eq!(
            change.to_string().parse::<AccessChange>().unwrap(),
            change,
            "what is shown is understood"
        );
        let covers = |l: &Line| {
            l.allow
                && self.naive.within(id, l.node)
                && Naive::meant(l.party, who)
                && l.rights.contains(&Right::Grant)
                && rights.iter().all(|r| *r == Right::Read || l.rights.contains(r))
        };
        let from = self.naive.lines.iter().any(covers);
        let has_all = rights.iter().all(|r| self.naive.may(who, id, *r));
        let grant = self.naive.may(who, id, Right::Grant);
        let mut wanted = grant
            && match verb {
                _ if who.uid == 0 => true,
                Verb::Allow => from && has_all,
                Verb::Deny => false,
                Verb::Remove => true,
            };
        let request = |change| Request::SetAccess { node: id.into(), change };
        let answer = self
            .tree
            .permit(who, &request(change.clone()))
            .and_then(|()| self.tree.as_written_by(who, id, change));
        assert_eq!(
            answer.is_ok(),
            wanted,
            "{who:?} {verb:?} {party} {rights:?}: {answer:?}\n{}",
            self.shown()
        );
        if let Ok(change) = answer {
            let via = change.via;
            match self.tree.plan(&[request(change)]) {
                Ok(plan) => self.tree.commit(&plan).map(drop).unwrap(),
                // Too many entries or rules, or nothing to remove.
                Err(e) => {
                    assert!(matches!(e.kind, ErrorKind::Full | ErrorKind::NotFound), "{e}");
                    wanted = false;
                }
            }
            self.passed += usize::from(wanted && via.is_some());
            if wanted {
                self.changed(who, id, (verb, party, &rights, quota), via);
            }
        }
        *(if wanted { &mut self.allowed } else { &mut self.refused }) += 1;
    }

    fn changed(
        &mut self,
        who: &Caller,
        id: NodeId,
        (verb, party, rights, quota): (Verb, Party, &[Right], Option<u32>),
        via: Option<u64>,
    ) {
        let via = via.map(|via| self.ids[&via]);
        let root = who.uid == 0;
        for line in self.naive.lines.iter_mut().filter(|l| l.node == id && l.party == party) {
            let taken = match verb {
                Verb::Remove => root || line.by == who.uid,
                Verb::Deny => line.allow,
                Verb::Allow => root && !line.allow,
            };
            if taken {
                line.rights.retain(|r| !rights.contains(r));
            }
        }
        if verb != Verb::Remove {
            let allow = verb == Verb::Allow;
            let same = |l: &Line| {
                l.node == id
                    && l.allow == allow
                    && l.party == party
                    && l.by == who.uid
                    && l.via == via
            };
            let at = self
                .naive
                .lines
                .iter()
                .position(|l| same(l) && !l.rights.is_empty())
                .unwrap_or_else(|| {
                    self.naive.lines.push(Line {
                        node: id,
                        allow,
                        party,
                        rights: Vec::new(),
                        quota: None,
                        by: who.uid,
                        via,
                    });
                    self.naive.lines.len() - 1
                });
            let line = &mut self.naive.lines[at];
            let had = line.rights.clone();
            line.rights.extend(rights.iter().filter(|r| !had.contains(r)));
            let usual =
                (allow && root && line.rights.contains(&Right::Create)).then_some(QUOTA_DEFAULT);
            line.quota = quota.or(line.quota).or(usual);
            let news = self
                .tree
                .get(id)
                .unwrap()
                .access
                .iter()
                .filter(|e| !self.ids.contains_key(&e.id))
                .map(|e| e.id);
            let news: Vec<u64> = news.collect();
            self.ids.extend(news.into_iter().map(|new| (new, at)));
        }
        let hanging = |naive: &Naive| {
            naive.lines.iter().filter(|l| l.via.is_some() && !l.rights.is_empty()).count()
        };
        let before = hanging(&self.naive);
        self.naive.settle();
        self.ended += before - hanging(&self.naive);
    }

    /// What the kernel would say to a tag.
    fn kernel(&self, who: &Caller, id: NodeId) -> bool {
        let rules = self.tree.use_rules(id);
        assert!(rules.len() <= USE_RULES_MAX);
        let meant = |r: &&UseRule| Party { uid: r.uid, gid: r.gid, process: r.process }.is(who);
        who.uid == 0 || rules.iter().find(meant).is_some_and(|r| r.allow)
    }

    fn tag(&mut self, at: usize, id: NodeId) {
        if !self.naive.place(id).queue {
            return;
        }
        let wanted = self.naive.may(&self.processes[at].who, id, Right::Use);
        assert_eq!(
            self.kernel(&self.processes[at].who, id),
            wanted,
            "{:?} at {id:?}\n{}",
            self.processes[at].who,
            self.shown()
        );
        *(if wanted { &mut self.allowed } else { &mut self.refused }) += 1;
        if !wanted {
            return;
        }
        let which = self.random.below(4);
        let process = &mut self.processes[at];
        match (which, process.fds.last()) {
            (0, Some(&file)) => self.files[file] = Some(id),
            (1, _) => process.default = Some(id),
            (2, _) => process.child = Some(id),
            _ => process.tag = Some(id),
        }
    }

    fn process(&mut self, at: usize) {
        match self.random.below(7) {
            // The child's lists are the parent's child default; descriptors are shared.
            0 | 1 if self.processes.len() < PROCESSES => {
                self.clock += 1;
                let mut child = self.processes[at].clone();
                (child.tag, child.default) = (child.child.or(child.tag), child.child);
                // Pids are used again, start times are not.
                child.who.pid =
                    (2..1000).find(|pid| self.processes.iter().all(|p| p.who.pid != *pid)).unwrap();
                child.who.start = self.clock;
                self.processes.push(child);
            }
            // Another user's program: pid and start stay.
            2 if at > 0 => {
                let who = &mut self.processes[at].who;
                who.uid = self.random.of(&USERS);
                who.gid = 20 + u32::try_from(self.random.below(3)).unwrap();
                who.groups = if self.random.below(2) == 0 {
                    vec![20 + u32::try_from(self.random.below(3)).unwrap()]
                } else {
                    Vec::new()
                }
                .into();
            }
            3 if at > 0 => drop(self.processes.remove(at)),
            4 => {
                let tag = self.processes[at].default;
                self.files.push(tag);
                let file = self.files.len() - 1;
                self.processes[at].fds.push(file);
            }
            5 => {
                let to = self.random.below(self.processes.len());
                let sent = self.processes[at].fds.last().copied();
                self.processes[to].fds.extend(sent);
            }
            _ => drop(self.processes[at].fds.pop()),
        }
        self.processes[0].fds.truncate(4);
        let fds: usize = self.processes.iter().map(|p| p.fds.len()).sum();
        if fds > 200 {
            self.processes.iter_mut().for_each(|p| p.fds.clear());
            self.files.clear();
        }
    }

    fn step(&mut self) {
        let at = self.random.below(self.processes.len());
        let (who, id, other) = (self.processes[at].who.clone(), self.any_node(), self.any_node());
        match self.random.below(16) {
            0 | 1 => self.process(at),
            2..5 => self.create(&who, id),
            5 => self.delete(&who, id),
            6 => self.shift(&who, id, other),
            7..10 => self.change(&who, id),
            10..14 => self.tag(at, id),
            14 => {
                let wanted = self.naive.above(&who, id, Right::Modify);
                let share = Share::of(Weight::from_milli(5000).unwrap());
                self.ask(&who, Request::SetShare { node: id.into(), share }, wanted);
            }
            _ => {
                let wanted = self.naive.may(&who, id, Right::Modify);
                self.ask(&who, Request::ResetCounters { node: id.into() }, wanted);
            }
        }
        let (who, id) = (self.random.of(&self.processes).who, self.any_node());
        for right in Right::ALL {
            let decision = self.tree.decide(&who, id, right);
            assert_eq!(
                decision.allowed,
                self.naive.may(&who, id, right),
                "{who:?} {right:?} {id:?}: {decision:?}\n{}",
                self.shown()
            );
        }
        self.look(&who, id);
    }

    /// What somebody sees who is himself in some of the queues.
    fn look(&mut self, who: &Caller, id: NodeId) {
        if who.uid == 0 {
            return;
        }
        let queues: Vec<NodeId> =
            self.naive.places.iter().filter(|p| p.queue).map(|p| p.id).collect();
        let within: Vec<NodeId> =
            (0..self.random.below(3)).map(|_| self.random.of(&queues)).collect();
        let sight = self.tree.sight(who, &within);
        let (whole, totals) =
            (self.naive.may(who, id, Right::Read), self.naive.sees(who, id, &within));
        let shown = || format!("{who:?} in {within:?} looks at {id:?}\n{}", self.shown());
        assert_eq!((sight.is_whole(id), sight.has(id)), (whole, totals), "{}", shown());
        assert_eq!(sight.require(id).is_ok(), totals, "{}", shown());
    }

    /// Everything that has ended is forgotten, so that the lists stay short; and the tree is what
    /// its snapshot says.
    fn tidy(&mut self) {
        self.tree.check().unwrap();
        let text = serde_json::to_string(&self.tree.snapshot()).unwrap();
        self.tree = serde_json::from_str::<Snapshot>(&text).unwrap().restore().unwrap();
        if self.naive.lines.len() > 300 {
            let counts = (self.allowed, self.refused, self.passed, self.ended);
            *self = Self::new(self.random.0);
            (self.allowed, self.refused, self.passed, self.ended) = counts;
        }
    }
}

/// 15 000 operations, or `DOMAINS_OPERATIONS` of them (a million in tests/soak/domains_million).
#[test]
#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a test is replayed by variables, and says how"
)]
fn random_operations_by_several_users() {
    let number = |name: &str| std::env::var(name).ok().and_then(|s| s.parse().ok());
    let seed = number("DOMAINS_SEED").unwrap_or_else(common::seed);
    let operations = number("DOMAINS_OPERATIONS").unwrap_or(15_000);
    println!("replay with DOMAINS_SEED={seed} DOMAINS_OPERATIONS={operations}");
    let mut world = World::new(seed);
    for operation in 0..operations {
        world.step();
        if operation % 200 == 0 {
            world.tidy();
        }
    }
    let World { passed, ended, .. } = world;
    println!(
        "{operations} operations: {} allowed, {} refused, {passed} passed on, {ended} ended with that",
        world.allowed, world.refused
    );
    let tenth = usize::try_from(operations).unwrap() / 20;
    let part = usize::try_from(operations).unwrap() / 1000;
    assert!(passed > part && ended > part / 4, "{passed} passed on, {ended} ended");
    assert!(
        world.allowed > tenth && world.refused > tenth,
        "{} allowed, {} refused",
        world.allowed,
        world.refused
    );
}
