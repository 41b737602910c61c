// SPDX-License-Identifier: MIT OR Apache-2.0
//! Of the operations (operations.rs), those on nodes: made, deleted, moved, collected or not, and
//! who may do what with them.

use reserv_daemon::engine::{Engine, Origin, Tagged};
use reserv_model::{
    AccessChange, Caller, DeleteMode, Name, NewKind, NodeId, Party, Request, Right, Verb,
};

use reserv_plane::Target;

use crate::operations::{NODES, USERS, done};
use crate::oracle::{Place, RESOURCES};
use crate::world::{Checked, World, agree};

const LINES: usize = 10;
/// Until so many things were made nobody says who may use the CPU's queues, and those of one disk
/// for longer: who was let by a list may then have what no list speaks of.
const SILENT: [u64; RESOURCES] = [0, 9000, 0, 4000];

/// All but to pass rights on, which is crates/model/tests/domains.rs's.
const RIGHTS: [Right; 5] = [Right::Use, Right::Create, Right::Modify, Right::Delete, Right::Read];

impl World {
    /// mkdir and mk.
    pub(crate) fn create(&mut self, pid: i32) -> Checked {
        let (at, who) = (self.random.below(RESOURCES), self.oracle.processes[&pid].who.clone());
        if self.oracle.trees[at].places.len() >= NODES {
            return Ok(());
        }
        let (Some(parent), queue, name) = (self.parent(at), self.random.one_in(2), self.fresh())
        else {
            return Ok(());
        };
        let kind = if queue { NewKind::Queue(None) } else { NewKind::Scheduler(None) };
        let name = Name::new(&format!("x{name}")).ok();
        let create = Request::Create { parent: parent.into(), name, kind, share: None };
        let got = done(&self.engines[at].edit_by(&who, &[create], None));
        self.note("create", || format!("in {parent:?} of {at} by {who:?}: {got}"));
        agree(
            || format!("{who:?} makes a node in {parent:?} of {at}"),
            &got,
            &self.oracle.trees[at].may(&who, parent, Right::Create),
        )?;
        if got {
            self.made(at, parent, queue, false, &who)?;
        }
        Ok(())
    }

    pub(crate) fn delete(&mut self, pid: i32) -> Checked {
        let (at, who) = (self.random.below(RESOURCES), self.oracle.processes[&pid].who.clone());
        let places: Vec<Place> =
            self.oracle.trees[at].places.iter().filter(|p| !p.draining).cloned().collect();
        let Some(Place { id, queue, .. }) = self.random.of(&places) else { return Ok(()) };
        let mode = [DeleteMode::Refuse, DeleteMode::Flush, DeleteMode::Drain][self.random.below(3)];
        let [tags, default, child] = self.oracle.refs(at, id);
        let (tagged, listed) = (tags > 0, default + child > 0);
        let tree = &mut self.oracle.trees[at];
        let free = id != NodeId::ROOT && id != NodeId::Q0 && tree.children(id) == 0;
        // What refers to it would be in q0.
        let may_fall = tree.may(&who, NodeId::Q0, Right::Use) || !(tagged || listed);
        let wanted = free
            && tree.above(&who, id, Right::Delete)
            && !(queue && tagged && mode == DeleteMode::Refuse)
            && (may_fall || !queue);
        let got = done(&self.engines[at].edit_by(
            &who,
            &[Request::Delete { node: id.into(), mode }],
            None,
        ));
        if wanted && queue && tagged && mode == DeleteMode::Drain {
            if let Some(place) = tree.places.iter_mut().find(|p| p.id == id) {
                place.draining = true;
            }
        } else if wanted {
            self.oracle.gone(at, id);
        }
        self.note("delete", || format!("{id:?} of {at} {mode:?} by {who:?}: {got}"));
        agree(|| format!("{who:?} deletes {id:?} of {at} ({mode:?})"), &got, &wanted)
    }

    /// mv, by root.
    pub(crate) fn shift(&mut self) -> Checked {
        let at = self.random.below(RESOURCES);
        let tree = &self.oracle.trees[at];
        let leaves: Vec<NodeId> = tree
            .places
            .iter()
            .filter(|p| {
                p.id != NodeId::ROOT
                    && p.id != NodeId::Q0
                    && !p.draining
                    && tree.children(p.id) == 0
            })
            .map(|p| p.id)
            .collect();
        let (Some(id), Some(parent)) = (self.random.of(&leaves), self.parent(at)) else {
            return Ok(());
        };
        if id == parent {
            return Ok(());
        }
        let name = Name::new(&format!("x{}", self.fresh())).ok();
        self.engines[at]
            .edit(&[Request::Move { node: id.into(), parent: parent.into(), name }], None)
            .map_err(|e| e.to_string())?;
        self.note("move", || format!("{id:?} of {at} to {parent:?}"));
        let mut moved = false;
        if let Some(place) = self.oracle.trees[at].places.iter_mut().find(|p| p.id == id) {
            // Another name is no other place.
            moved = place.parent != Some(parent);
            place.parent = Some(parent);
        }
        if moved && !self.oracle.trees[at].said().is_empty() {
            self.oracle.trees[at].tell(id);
        }
        self.oracle.disown(at);
        Ok(())
    }

    /// The gc file is written.
    pub(crate) fn flag(&mut self, pid: i32) -> Checked {
        let (at, who, gc) = (
            self.random.below(RESOURCES),
            self.oracle.processes[&pid].who.clone(),
            self.random.one_in(2),
        );
        let places: Vec<NodeId> = self.oracle.trees[at]
            .places
            .iter()
            .filter(|p| p.id.index > 1 && !p.draining)
            .map(|p| p.id)
            .collect();
        let Some(id) = self.random.of(&places) else { return Ok(()) };
        let (handle, unique) = (self.fresh(), self.fresh());
        let engine = &mut self.engines[at];
        engine.opened(handle, id, &who).map_err(|e| e.to_string())?;
        let got = done(&engine.edit_by(
            &who,
            &[Request::SetGc { node: id.into(), gc }],
            Some(Origin { unique, fresh: None }),
        ));
        engine.closed(handle);
        self.note("gc", || format!("{gc} of {id:?} of {at} by {who:?}: {got}"));
        agree(
            || format!("{who:?} sets the flag of {id:?} of {at}"),
            &got,
            &self.oracle.trees[at].above(&who, id, Right::Modify),
        )?;
        if got && let Some(place) = self.oracle.trees[at].places.iter_mut().find(|p| p.id == id) {
            place.gc = gc;
        }
        Ok(())
    }

    fn party(&mut self) -> Party {
        let all: Vec<Caller> = self.oracle.processes.values().map(|p| p.who.clone()).collect();
        let process =
            self.random.of(&all).filter(|_| self.random.one_in(6)).map(|who| (who.pid, who.start));
        Party {
            uid: (!self.random.one_in(4)).then(|| USERS[1 + self.random.below(3)]),
            gid: self
                .random
                .one_in(5)
                .then(|| 20 + u32::try_from(self.random.below(3)).unwrap_or(0)),
            process,
        }
    }

    /// allow, deny and remove, sometimes with the tags.
    pub(crate) fn access(&mut self, pid: i32) -> Checked {
        let at = self.random.below(RESOURCES);
        if self.count < SILENT[at] {
            return Ok(());
        }
        let who = if self.random.one_in(2) {
            Caller::root()
        } else {
            self.oracle.processes[&pid].who.clone()
        };
        let places: Vec<NodeId> =
            self.oracle.trees[at].places.iter().filter(|p| !p.draining).map(|p| p.id).collect();
        let (Some(mut node), mut party) = (self.random.of(&places), self.party()) else {
            return Ok(());
        };
        let mut verb =
            [Verb::Allow, Verb::Allow, Verb::Allow, Verb::Deny, Verb::Remove][self.random.below(5)];
        let lines = self.oracle.trees[at].lines.clone();
        if lines.len() >= LINES {
            verb = Verb::Remove;
        }
        if verb == Verb::Remove {
            let Some(line) = self.random.of(&lines) else { return Ok(()) };
            (node, party) = (line.node, line.party);
        }
        let mask = self.random.below(32);
        let chosen = |bit: usize| bit == 0 && mask & 1 == 0 || mask >> bit & 1 == 1;
        let mut rights: Vec<Right> = RIGHTS
            .into_iter()
            .enumerate()
            .filter(|(bit, _)| chosen(*bit))
            .map(|(_, r)| r)
            .collect();
        if verb == Verb::Remove && self.random.one_in(2) {
            rights = RIGHTS.to_vec();
        }
        let words: Vec<&str> = rights.iter().map(|r| r.word()).collect();
        let Ok(packed) = words.join(",").parse() else { return Ok(()) };
        let there = |l: &crate::oracle::Line| {
            l.node == node && l.party == party && l.rights.iter().any(|r| rights.contains(r))
        };
        let wanted = who.uid == 0 && (verb != Verb::Remove || lines.iter().any(there));
        let change = AccessChange { verb, party, rights: packed, quota: None, by: 0, via: None };
        let got = self.engines[at].change_access(std::slice::from_ref(&who), node, change, None);
        self.note("access", || {
            format!("{verb:?} {party} {rights:?} at {node:?} of {at} by {who:?}: {got:?}")
        });
        agree(|| format!("a list is changed: {got:?}"), &got.is_ok(), &wanted)?;
        if wanted {
            self.oracle.trees[at].change(node, verb, party, &rights);
            self.oracle.disown(at);
            if self.random.one_in(4) && verb != Verb::Allow {
                self.fall(at, node)?;
            }
        }
        Ok(())
    }

    /// … tags fall
    fn fall(&mut self, at: usize, node: NodeId) -> Checked {
        self.note("fall", || format!("{node:?} of {at}"));
        let lives = &self.oracle.processes;
        let (all, who) =
            (|| lives.keys().copied().collect(), |pid| Some(lives.get(&pid)?.who.clone()));
        if !self.broken("nothing falls") {
            // Its processes are played: nobody can hold them.
            let send = |engine: &mut Engine, tid: i32, what: Tagged, _| {
                let plane = engine.plane_mut();
                match what {
                    Tagged::Thread => plane.tag(Target::Thread(tid), NodeId::Q0).map(drop)?,
                    Tagged::List(list) => plane.set_default(tid, list, NodeId::Q0)?,
                }
                Ok(())
            };
            self.engines[at].fall_among(node, all, who, send).map_err(|e| e.to_string())?;
        }
        self.oracle.fall(at, node);
        Ok(())
    }
}
