// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which right a change needs, and how access lists change. The rules stand in `access.rs`.

use crate::access::{
    AccessChange, AccessEntry, Caller, ENTRIES_MAX, QUOTA_DEFAULT, Right, Rights, USE_RULES_MAX,
    Verb, Why,
};
use crate::edit::Edit;
use crate::{Error, ErrorKind, Node, NodeId, NodeRef, Request, Tree};

impl Tree {
    /// Refuses what somebody has no right to at a node.
    pub fn require(&self, who: &Caller, id: NodeId, right: Right) -> Result<(), Error> {
        let decision = self.decide(who, id, right);
        if decision.allowed {
            return Ok(());
        }
        let (word, at) = (right.word(), self.shown(id));
        let why = format!("uid {} has no right to {word} {at}: {}", who.uid, decision.words(self));
        Err(Error::new(ErrorKind::NotPermitted, why)
            .hint(format!("'reserv why {} {at}' says what decides", who.pid)))
    }

    /// The same for what a node is to its siblings: a right at its parent, or it is one's own.
    pub fn require_above(&self, who: &Caller, id: NodeId, right: Right) -> Result<(), Error> {
        let parent = self.get(id).and_then(|n| n.parent).unwrap_or(id);
        let own = self.decide(who, id, right);
        if own.allowed && own.why == Why::Maker { Ok(()) } else { self.require(who, parent, right) }
    }

    /// The node that a request names; `None` where it does not exist: that is the plan's to say.
    pub fn named(&self, node: &NodeRef) -> Option<NodeId> {
        match node {
            NodeRef::Id(id) => self.get(*id).map(|n| n.id),
            NodeRef::Path(path) => self.resolve(path).ok(),
            NodeRef::Child(parent, name) => self.child(*parent, name),
        }
    }

    /// Whether somebody may ask for this. What does not exist is refused by the plan, whoever asks.
    pub fn permit(&self, who: &Caller, request: &Request) -> Result<(), Error> {
        if who.uid == 0 {
            return Ok(());
        }
        let (node, right, above) = match request {
            Request::Create { parent, .. } => {
                let Some(parent) = self.named(parent) else { return Ok(()) };
                self.require(who, parent, Right::Create)?;
                return self.check_quota(who, parent, 1);
            }
            Request::Move { node, parent, .. } => {
                let (Some(node), Some(parent)) = (self.named(node), self.named(parent)) else {
                    return Ok(());
                };
                if self.get(node).and_then(|n| n.parent) == Some(parent) {
                    return self.require_above(who, node, Right::Modify);
                }
                self.require_above(who, node, Right::Delete)?;
                self.require(who, parent, Right::Create)?;
                let moved =
                    u32::try_from(self.iter().filter(|n| self.is_within(n.id, node)).count());
                return self.check_quota(who, parent, moved.unwrap_or(u32::MAX));
            }
            Request::SetTune { node, change } => {
                let Some(id) = self.named(node) else { return Ok(()) };
                if change.iter().any(|(key, _)| key.is_of_child()) {
                    self.require_above(who, id, Right::Modify)?;
                }
                if change.iter().all(|(key, _)| key.is_of_child()) {
                    return Ok(());
                }
                (node, Right::Modify, false)
            }
            Request::Delete { node, .. } | Request::Active { node } => (node, Right::Delete, true),
            Request::SetShare { node, .. }
            | Request::SetCap { node, .. }
            | Request::SetGc { node, .. }
            | Request::Rename { node, .. } => (node, Right::Modify, true),
            Request::SetClass { node, .. }
            | Request::SetPolicy { node, .. }
            | Request::SetLimit { node, .. }
            | Request::ResetCounters { node } => (node, Right::Modify, false),
            Request::SetAccess { node, .. } => (node, Right::Grant, false),
            // Nobody asks for it: it undoes what was permitted.
            Request::PutBackAccess { .. } => {
                return self.require(who, NodeId::ROOT, Right::Grant);
            }
            Request::SetPersonality { .. } => {
                return self.require(who, NodeId::ROOT, Right::Modify);
            }
        };
        let Some(id) = self.named(node) else { return Ok(()) };
        if above { self.require_above(who, id, right) } else { self.require(who, id, right) }
    }

    /// The entry through which somebody makes nodes in `parent`; `None` for root.
    pub fn made_through(&self, who: &Caller, parent: NodeId) -> Option<u64> {
        match self.decide(who, parent, Right::Create).why {
            Why::Entry(_, entry) => Some(entry.id),
            _ => None,
        }
    }

    fn entry(&self, id: u64) -> Option<&AccessEntry> {
        self.iter().flat_map(|n| &n.access).find(|e| e.id == id)
    }

    /// An entry and those that it hangs on.
    fn chain(&self, id: Option<u64>) -> impl Iterator<Item = &AccessEntry> {
        std::iter::successors(id.and_then(|id| self.entry(id)), |e| {
            e.via.and_then(|via| self.entry(via))
        })
    }

    fn check_quota(&self, who: &Caller, parent: NodeId, more: u32) -> Result<(), Error> {
        for entry in self.chain(self.made_through(who, parent)) {
            let Some(quota) = entry.quota else { continue };
            let counts =
                |n: &&Node| n.through.is_some() && self.chain(n.through).any(|e| e.id == entry.id);
            let made = u32::try_from(self.iter().filter(counts).count()).unwrap_or(u32::MAX);
            if made.saturating_add(more) > quota {
                let why = format!("{made} nodes of {quota} are made through \"{entry}\"");
                return Err(
                    Error::new(ErrorKind::Full, why).hint("delete some, or ask for a larger quota")
                );
            }
        }
        Ok(())
    }

    /// A change of an access list as its writer may make it: with his uid, and the entry that he
    /// passes on.
    pub fn as_written_by(
        &self,
        who: &Caller,
        id: NodeId,
        mut change: AccessChange,
    ) -> Result<AccessChange, Error> {
        let refuse =
            |why: String, hint: &str| Err(Error::new(ErrorKind::NotPermitted, why).hint(hint));
        if change.by != 0 && change.by != who.uid {
            // What is read can be written back: this entry is there already, or nobody can make it
            // but who it names.
            let party = |e: &&AccessEntry| {
                e.by == change.by
                    && e.party == change.party
                    && e.allow
                    && e.rights.has_all(change.rights)
            };
            if who.uid == 0
                && change.verb == Verb::Allow
                && self.get(id).is_some_and(|n| n.access.iter().any(|e| party(&e)))
            {
                change.rights = Rights::default();
                return Ok(change);
            }
            return refuse(
                format!("only uid {} may make an entry in its own name", change.by),
                "leave the uid out",
            );
        }
        change.by = who.uid;
        if who.uid == 0 || change.verb == Verb::Remove {
            return Ok(change);
        }
        if change.verb == Verb::Deny {
            return refuse("only root denies".into(), "remove what you allowed");
        }
        let needed = change.rights.with(Right::Grant.into());
        let held = self.up(id).flat_map(|n| &n.access).filter(|e| e.allow && e.party.is(who));
        let denied =
            Right::ALL.into_iter().find(|r| needed.has(*r) && !self.decide(who, id, *r).allowed);
        if let Some(right) = denied {
            return self.require(who, id, right).map(|()| change);
        }
        match held.into_iter().find(|e| e.rights.implied().has_all(needed)) {
            Some(entry) => {
                change.via = Some(entry.id);
                Ok(change)
            }
            None => refuse(
                format!(
                    "uid {} may not delegate {needed}: no single entry gives it all of these and grant",
                    who.uid
                ),
                "ask for one entry with all of these rights and grant",
            ),
        }
    }

    /// The edits that change a list.
    pub(crate) fn edits_for_access(
        &self,
        node: &Node,
        change: &AccessChange,
    ) -> Result<Vec<Edit>, Error> {
        let mut entries = node.access.clone();
        let mine =
            |e: &AccessEntry| e.party == change.party && (change.by == 0 || e.by == change.by);
        let take = |entries: &mut Vec<AccessEntry>, of: &dyn Fn(&AccessEntry) -> bool| {
            for entry in entries.iter_mut().filter(|e| of(e)) {
                entry.rights = entry.rights.without(change.rights);
            }
            entries.retain(|e| !e.rights.is_empty());
        };
        let allow = change.verb == Verb::Allow;
        match change.verb {
            _ if change.rights.is_empty() => return Ok(Vec::new()),
            Verb::Remove => {
                take(&mut entries, &mine);
                if entries == node.access {
                    let why = format!(
                        "{}: no entry of yours gives {} to {}",
                        self.shown(node.id),
                        change.rights,
                        change.party
                    );
                    return Err(Error::new(ErrorKind::NotFound, why).hint("read the access file"));
                }
            }
            Verb::Deny => take(&mut entries, &|e| e.allow && e.party == change.party),
            Verb::Allow => {
                take(&mut entries, &|e| change.by == 0 && !e.allow && e.party == change.party);
            }
        }
        if change.verb != Verb::Remove {
            let same = |e: &&mut AccessEntry| {
                e.allow == allow
                    && e.party == change.party
                    && e.by == change.by
                    && e.via == change.via
            };
            let quota = |rights: Rights, before: Option<u32>| {
                let usual =
                    (allow && change.by == 0 && rights.has(Right::Create)).then_some(QUOTA_DEFAULT);
                change.quota.or(before).or(usual)
            };
            if let Some(entry) = entries.iter_mut().find(same) {
                entry.rights = entry.rights.with(change.rights);
                entry.quota = quota(entry.rights, entry.quota);
            } else {
                entries.push(AccessEntry {
                    id: self.next_entry(),
                    allow,
                    party: change.party,
                    rights: change.rights,
                    quota: quota(change.rights, None),
                    by: change.by,
                    via: change.via,
                });
            }
        }
        if entries.len() > ENTRIES_MAX {
            let why = format!("{} already has {ENTRIES_MAX} entries", self.shown(node.id));
            return Err(Error::new(ErrorKind::Full, why).hint("a group can be named in one entry"));
        }
        Ok(if entries == node.access {
            Vec::new()
        } else {
            vec![Edit::Access { id: node.id, entries }]
        })
    }

    /// Numbers grow with the edits, so that none is used again after its entry is gone.
    fn next_entry(&self) -> u64 {
        let last = self.iter().flat_map(|n| &n.access).map(|e| e.id).max().unwrap_or(0);
        ((self.seq + 1) << 16).max(last + 1)
    }

    /// The edits that take from entries what the ones that they hang on no longer give; after a
    /// change of a list, or a move.
    pub(crate) fn prune_access(&self) -> Result<Vec<Edit>, Error> {
        let mut edits = Vec::new();
        // What stands on the way from the root to the node at hand: level, entries, rules about
        // use.
        let mut way: Vec<(usize, Vec<AccessEntry>, usize)> = Vec::new();
        for (level, node) in self.walk() {
            way.retain(|(above, ..)| *above < level);
            if node.access.is_empty() {
                continue;
            }
            let mut entries = node.access.clone();
            loop {
                let before = entries.clone();
                let held = |id: u64| {
                    let mut all = way.iter().flat_map(|(_, entries, _)| entries).chain(&before);
                    all.find(|e| e.id == id && e.allow && e.rights.has(Right::Grant))
                        .map(|e| e.rights.implied())
                };
                for entry in &mut entries {
                    if let Some(via) = entry.via {
                        entry.rights =
                            held(via).map_or(Rights::default(), |rights| entry.rights.both(rights));
                    }
                }
                entries.retain(|e| !e.rights.is_empty());
                if entries == before {
                    break;
                }
            }
            let above = way.last().map_or(0, |(.., rules)| *rules);
            let rules = above + entries.iter().filter(|e| e.rights.has(Right::Use)).count();
            // One is root's.
            if rules >= USE_RULES_MAX {
                let why = format!(
                    "{}: more than {USE_RULES_MAX} rules about its use, its own and those from above",
                    self.shown(node.id)
                );
                return Err(
                    Error::new(ErrorKind::Full, why).hint("a group can be named in one entry")
                );
            }
            if entries != node.access {
                edits.push(Edit::Access { id: node.id, entries: entries.clone() });
            }
            way.push((level, entries, rules));
        }
        Ok(edits)
    }
}
