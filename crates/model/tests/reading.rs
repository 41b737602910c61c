// SPDX-License-Identifier: MIT OR Apache-2.0
//! The right to read: its place in lists, what it is in journals from before it, and what is seen
//! without it.

use reserv_model::{
    AccessChange, Caller, Name, NewKind, NodeId, NodeRef, Request, Right, Rights, Tree,
};

fn rights(text: &str) -> Rights {
    text.parse().unwrap()
}

/// cpu/a/b/q, cpu/a/c, cpu/d
struct Place {
    tree: Tree,
}

impl Place {
    fn new() -> Self {
        let mut place = Self { tree: Tree::new(Name::new("cpu").unwrap()) };
        for (parent, name, queue) in [
            ("", "a", false),
            ("a", "b", false),
            ("a/b", "q", true),
            ("a", "c", true),
            ("", "d", true),
        ] {
            let kind = if queue { NewKind::Queue(None) } else { NewKind::Scheduler(None) };
            let name = Some(Name::new(name).unwrap());
            place.edit(Request::Create {
                parent: place.at(parent).into(),
                name,
                kind,
                share: None,
            });
        }
        place
    }

    fn at(&self, path: &str) -> NodeId {
        let named =
            |at: NodeId, name: &str| self.tree.child(at, &Name::new(name).unwrap()).unwrap();
        path.split('/').filter(|name| !name.is_empty()).fold(NodeId::ROOT, named)
    }

    fn edit(&mut self, request: Request) {
        let plan = self.tree.plan(&[request]).unwrap();
        self.tree.commit(&plan).unwrap();
    }

    fn access(&mut self, path: &str, line: &str) {
        let change: AccessChange = line.parse().unwrap();
        self.edit(Request::SetAccess { node: NodeRef::Id(self.at(path)), change });
    }

    /// By path: nothing, totals or everything.
    fn seen(&self, uid: u32, within: &[&str]) -> String {
        let who = Caller { uid, gid: uid, pid: 7, ..Caller::default() };
        let within: Vec<NodeId> = within.iter().map(|path| self.at(path)).collect();
        let sight = self.tree.sight(&who, &within);
        let one = |path: &str| match (sight.is_whole(self.at(path)), sight.has(self.at(path))) {
            (true, true) => '+',
            (false, true) => '~',
            (false, false) => '-',
            (true, false) => '!',
        };
        ["", "a", "a/b", "a/b/q", "a/c", "d", "q0"].map(one).iter().collect()
    }
}

#[test]
fn without_an_entry_the_root_and_ones_own_queue() {
    let mut place = Place::new();
    assert_eq!(place.seen(5, &[]), "~------");
    assert_eq!(place.seen(5, &["q0"]), "~-----~", "q0 is a queue as any other");
    assert_eq!(place.seen(5, &["a/b/q", "d"]), "~~~~-~-", "and what is above");
    assert_eq!(place.seen(0, &[]), "+++++++");
    place.access("a/b", "allow uid 5 use");
    assert_eq!(place.seen(5, &[]), "~~++---", "use implies it, below too; totals above");
    assert_eq!(place.seen(6, &[]), "~------", "nobody else has it");
}

#[test]
fn one_entry_opens_and_one_denies() {
    let mut place = Place::new();
    place.access("", "allow everyone read");
    assert_eq!(place.seen(5, &[]), "+++++++");
    place.access("a", "deny uid 5 read");
    assert_eq!(place.seen(5, &[]), "+----++", "with all that is below");
    assert_eq!(place.seen(5, &["a/b/q"]), "+~~~-++", "what holds him up he sees the totals of");
    place.access("a/b", "allow uid 5 all");
    assert_eq!(
        place.seen(5, &[]),
        "+----++",
        "what stands above denies what other rights imply too"
    );
    place.access("a", "remove uid 5 read");
    place.access("", "remove everyone read");
    place.access("a/b", "deny uid 5 use");
    assert_eq!(place.seen(5, &[]), "~~++---", "a right that is left implies it");
    place.access("a/b", "remove uid 5 create,modify,grant,delete");
    assert_eq!(place.seen(5, &[]), "~~++---", "all had read in it by itself");
    place.access("a/b", "remove uid 5 read");
    assert_eq!(place.seen(5, &[]), "~------");
}

#[test]
fn who_cannot_be_seen_sees_the_root() {
    let mut place = Place::new();
    place.access("", "allow everyone read");
    let who = Caller { uid: 5, unseen: true, ..Caller::default() };
    let sight = place.tree.sight(&who, &[]);
    assert!(sight.has(NodeId::ROOT) && !sight.is_whole(NodeId::ROOT) && !sight.has(place.at("a")));
    assert!(sight.require(place.at("a")).is_err());
}

#[test]
fn whoever_may_pass_on_anything_passes_on_reading() {
    let mut place = Place::new();
    place.access("a", "allow uid 5 use,grant");
    let who = Caller { uid: 5, gid: 5, pid: 7, ..Caller::default() };
    let change = |line: &str| line.parse::<AccessChange>().unwrap();
    let may = |place: &Place, line| place.tree.as_written_by(&who, place.at("a"), change(line));
    assert!(may(&place, "allow uid 6 modify").is_err());
    let passed = may(&place, "allow uid 6 read").unwrap();
    place.edit(Request::SetAccess { node: place.at("a").into(), change: passed });
    assert_eq!(place.seen(6, &[]), "~++++--");
    place.access("a", "remove uid 5 grant");
    assert_eq!(place.seen(6, &[]), "~------", "it hangs on what it was passed on from");
}

#[test]
fn a_reader_keeps_nothing_from_being_collected() {
    let mut place = Place::new();
    place.access("", "allow everyone read");
    let who = Caller { uid: 5, gid: 5, pid: 7, ..Caller::default() };
    assert!(!place.tree.concerns(&who, place.at("d")));
    place.access("d", "allow uid 5 use");
    assert!(place.tree.concerns(&who, place.at("d")));
}

#[test]
fn journals_from_before_it_mean_what_they_meant() {
    let read = |number: &str| serde_json::from_str::<Rights>(number).unwrap();
    assert_eq!(read("31"), Rights::ALL, "all that there was");
    assert_eq!(read("3"), rights("use,create"));
    for text in ["all", "use,create,modify,grant,delete", "read", "use,read", "grant"] {
        let saved = serde_json::to_string(&rights(text)).unwrap();
        assert_eq!(read(&saved), rights(text), "{text}: {saved}");
        assert_eq!(rights(text).to_string(), text);
    }
    assert_eq!(rights("read,use,create,modify,grant,delete").to_string(), "all");
    assert!(Rights::ALL.has(Right::Read) && !rights("use").has(Right::Read));
    assert_eq!(rights("use").implied(), rights("use,read"));
    assert!(Rights::default().implied().is_empty());
}
