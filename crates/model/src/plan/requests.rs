// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one request changes, or why it is refused: without the promises, which are looked at when
//! all requests of a plan are known.

use super::{NodeRef, Request};
use crate::edit::Edit;
use crate::error::quoted;
use crate::{
    Amount, ChangedAccess, DEPTH_MAX, DeleteMode, Error, ErrorKind, Kind, Name, NewKind, Node,
    NodeId, Personality, Policy, ResourceKind, Share, Tree, TuneKey, Weight, check_tune,
    show_bytes,
};

impl Tree {
    fn find(&self, node: &NodeRef) -> Result<&Node, Error> {
        match node {
            NodeRef::Id(id) => self.node(*id),
            NodeRef::Path(path) => self.resolve(path).and_then(|id| self.node(id)),
            NodeRef::Child(parent, name) => {
                let parent = self.node(*parent)?;
                let child = parent.children.get(name).ok_or_else(|| {
                    let why = format!("no {} in {}", quoted(name.as_str()), self.shown(parent.id));
                    Error::new(ErrorKind::NotFound, why)
                })?;
                self.node(*child)
            }
        }
    }

    /// Find a node that may be changed in `what`.
    fn find_free(&self, node: &NodeRef, what: &str) -> Result<&Node, Error> {
        let node = self.find(node)?;
        if node.draining {
            let why = format!("{} is draining: no change of its {what}", self.shown(node.id));
            return Err(
                Error::new(ErrorKind::Busy, why).hint("it goes when its last member has left")
            );
        }
        Ok(node)
    }

    fn find_queue(&self, node: &NodeRef, what: &str) -> Result<&Node, Error> {
        let node = self.find_free(node, what)?;
        if node.kind.is_queue() {
            return Ok(node);
        }
        let why = format!("{} is a scheduler node and has no {what}", self.shown(node.id));
        Err(Error::new(ErrorKind::NotQueue, why).hint(format!("a queue has a {what}")))
    }

    fn find_scheduler(&self, node: &NodeRef, why: &str) -> Result<&Node, Error> {
        let node = self.find(node)?;
        if node.kind.is_scheduler() {
            return Ok(node);
        }
        Err(Error::new(
            ErrorKind::NotScheduler,
            format!("{} is a queue: {why}", self.shown(node.id)),
        ))
    }

    fn protect(&self, id: NodeId, root: &str, q0: &str) -> Result<(), Error> {
        let why = match id {
            NodeId::ROOT if !root.is_empty() => root,
            NodeId::Q0 if !q0.is_empty() => q0,
            _ => return Ok(()),
        };
        Err(Error::new(ErrorKind::Protected, format!("{}: {why}", self.shown(id))))
    }

    /// The edits of one request; none when all is as asked for.
    pub(super) fn edits_for(&self, request: &Request) -> Result<Vec<Edit>, Error> {
        let one = |changed: bool, edit: Edit| if changed { vec![edit] } else { Vec::new() };
        Ok(match *request {
            Request::Create { ref parent, ref name, kind, share } => {
                return self.edits_for_create(parent, name.as_ref(), kind, share);
            }
            Request::Delete { ref node, mode } => self.edits_for_delete(node, mode)?,
            Request::Active { ref node } => {
                self.find_free(node, "state")?;
                Vec::new()
            }
            Request::SetShare { ref node, share } => {
                let node = self.find(node)?;
                self.check_share(node.id, share)?;
                one(node.share() != share, Edit::Share { id: node.id, share })
            }
            Request::SetCap { ref node, cap } => {
                let node = self.find(node)?;
                if let Some(cap) = cap {
                    let q0 =
                        "init, the kernel's own work and reservd run here and cannot be capped";
                    self.protect(node.id, "the resource itself has no cap", q0)?;
                    self.check_unit(cap.is_link(), Amount(cap.rate_ns_per_s))?;
                    cap.check().map_err(|e| e.at(self.shown(node.id)))?;
                }
                one(node.cap != cap, Edit::Cap { id: node.id, cap })
            }
            Request::SetClass { ref node, class } => {
                let node = self.find_queue(node, "class")?;
                self.check_known(Kind::Queue(class))?;
                one(node.kind != Kind::Queue(class), Edit::Class { id: node.id, class })
            }
            Request::SetPolicy { ref node, policy } => {
                let node = self.find_scheduler(node, "it has a class, no policy")?;
                self.check_known(Kind::Scheduler(policy))?;
                Self::check_place(policy, node.id)?;
                one(node.kind != Kind::Scheduler(policy), Edit::Policy { id: node.id, policy })
            }
            Request::SetPersonality { personality } => self.edits_for_personality(personality),
            Request::SetTune { ref node, ref change } => {
                let node = self.find_free(node, "tunables")?;
                let above = self.policy_above(node.id);
                check_tune(change, self.resource(), node.kind, above)
                    .map_err(|e| e.at(self.shown(node.id)))?;
                let new = change.iter().filter(|(key, value)| node.tune.get(key) != value.as_ref());
                new.map(|&(key, value)| Edit::Tune { id: node.id, key, value }).collect()
            }
            Request::SetLimit { ref node, members_max, bytes_max } => {
                let node = self.find_queue(node, "limit")?;
                if bytes_max > 0 && self.is_cpu() {
                    let bytes = show_bytes(bytes_max);
                    let why = format!("{bytes}: a CPU queue has no limit of enqueued service");
                    return Err(
                        Error::new(ErrorKind::Unsupported, why).hint("leave it out, or write 0")
                    );
                }
                if members_max > 0 && self.is_cpu() {
                    self.protect(
                        node.id,
                        "",
                        "it takes every thread that has no other queue, without limit",
                    )?;
                }
                let changed = (node.members_max, node.bytes_max) != (members_max, bytes_max);
                one(changed, Edit::Limit { id: node.id, members_max, bytes_max })
            }
            Request::ResetCounters { ref node } => {
                let node = self.find_queue(node, "backlog")?;
                vec![Edit::Reset { id: node.id }]
            }
            Request::SetGc { ref node, gc } => {
                let node = self.find(node)?;
                if gc {
                    self.protect(
                        node.id,
                        "the resource is never collected",
                        "it is never collected",
                    )?;
                }
                one(node.gc != gc, Edit::Gc { id: node.id, gc })
            }
            Request::SetAccess { ref node, ref change } => {
                self.edits_for_access(self.find(node)?, change)?
            }
            Request::PutBackAccess { ref lists } => {
                let edit = |list: &ChangedAccess| {
                    let node = self.get(list.node)?;
                    let entries = list.put_back(&node.access);
                    (entries != node.access).then_some(Edit::Access { id: list.node, entries })
                };
                lists.iter().filter_map(edit).collect()
            }
            Request::Rename { ref node, ref name } => {
                let node = self.find_free(node, "name")?;
                self.edits_for_move(node, node.parent, name)?
            }
            Request::Move { ref node, ref parent, ref name } => {
                let node = self.find_free(node, "place")?;
                let parent = self.find_scheduler(parent, "nothing can be put into it")?;
                self.edits_for_move(node, Some(parent.id), name.as_ref().unwrap_or(&node.name))?
            }
        })
    }

    fn check_share(&self, id: NodeId, share: Share) -> Result<(), Error> {
        self.protect(id, "a resource's own share is read-only", "")?;
        if id == NodeId::Q0 && share.fixed.is_none() && share.weight == Weight::BACKGROUND {
            let why = "q0 serves init and the kernel's own work: its weight must be positive";
            return Err(Error::new(ErrorKind::Invalid, why).hint("at least 0.001"));
        }
        if share.minimum.0 == 0 {
            return Ok(());
        }
        self.check_unit(share.minimum.is_link(), Amount(share.minimum.0))
    }

    /// CPU time is the CPU's, bits are the others'.
    fn check_unit(&self, link: bool, amount: Amount) -> Result<(), Error> {
        if link != self.is_cpu() {
            return Ok(());
        }
        let (why, hint) = if link {
            ("is an amount of a link's, and this is the CPU", "250ms/s, 1.5cpu or 25%")
        } else {
            ("is an amount of CPU, and this is none", "of a link: 10mbit")
        };
        Err(Error::new(ErrorKind::Invalid, format!("{amount} {why}")).hint(hint))
    }

    fn check_name_free(&self, parent: &Node, name: &Name) -> Result<(), Error> {
        let Some(&taken) = parent.children.get(name) else { return Ok(()) };
        let state =
            if self.get(taken).is_some_and(|n| n.draining) { " and is draining" } else { "" };
        Err(Error::new(ErrorKind::Exists, format!("{} exists{state}", self.shown(taken))))
    }

    fn too_deep(&self, parent: NodeId) -> Error {
        let why =
            format!("below {} there would be more than {DEPTH_MAX} levels", self.shown(parent));
        Error::new(ErrorKind::TooDeep, why)
    }

    /// Policies and classes that the resource's program does not have are refused before it is
    /// asked.
    fn check_known(&self, kind: Kind) -> Result<(), Error> {
        let (what, by_length, of_disks, of_cpu) = match kind {
            Kind::Scheduler(p) => (
                format!("policy {p}"),
                p.by_length(),
                p.of_disks(),
                "sfq, eevdf, mtrls, prio or wrr",
            ),
            Kind::Queue(c) => {
                (format!("class {c}"), c.by_length(), c.of_disks(), "ts, sfq, rr, fifo or edf")
            }
        };
        let refused =
            |why: String, hint: String| Err(Error::new(ErrorKind::Unsupported, why).hint(hint));
        if by_length && self.is_cpu() {
            let why = format!(
                "{what} goes by how long the next step will be, which nobody knows of a thread"
            );
            let whose = if of_disks { "disks" } else { "links" };
            return refused(why, format!("it is for {whose}; for the CPU: {of_cpu}"));
        }
        if of_disks && self.resource() == ResourceKind::Link {
            return refused(
                format!("{what} goes by places on a disk, and this is a link"),
                Policy::WORDS.into(),
            );
        }
        Ok(())
    }

    /// One queue for the whole disk has no place below others.
    fn check_place(policy: Policy, id: NodeId) -> Result<(), Error> {
        if policy != Policy::Cello || id == NodeId::ROOT {
            return Ok(());
        }
        let why = "policy cello puts all of a disk's requests into one queue: it is the disk's own, not one of a node in it";
        Err(Error::new(ErrorKind::Unsupported, why)
            .hint("set it on the disk itself; below it sfq, wf2q+ or yfq"))
    }

    fn edits_for_create(
        &self,
        parent: &NodeRef,
        name: Option<&Name>,
        kind: NewKind,
        share: Option<Share>,
    ) -> Result<Vec<Edit>, Error> {
        let kind = kind.or(self.personality, self.resource);
        self.check_known(kind)?;
        let parent = self.find_scheduler(parent, "nothing can be made in it")?;
        let numbered = name.is_none();
        let name = name.cloned().unwrap_or_else(|| parent.next_name(kind));
        self.check_name_free(parent, &name)?;
        if self.depth(parent.id) >= DEPTH_MAX {
            return Err(self.too_deep(parent.id));
        }
        let id = self.next_id()?;
        if let Kind::Scheduler(policy) = kind {
            Self::check_place(policy, id)?;
        }
        let mut edits = vec![Edit::Create { id, parent: parent.id, name, kind }];
        if let Some(share) = share {
            self.check_share(id, share)?;
            if share != Share::default() {
                edits.push(Edit::Share { id, share });
            }
        }
        if numbered {
            edits.push(Edit::Gc { id, gc: true });
        }
        Ok(edits)
    }

    /// New nodes are other ones from now on; of what is there only the root changes.
    fn edits_for_personality(&self, personality: Personality) -> Vec<Edit> {
        let (root, id) = (self.root(), NodeId::ROOT);
        let mut edits = Vec::new();
        if self.personality != personality {
            edits.push(Edit::Personality { personality });
        }
        let policy = personality.root_policy(self.resource);
        if root.kind != Kind::Scheduler(policy) {
            edits.push(Edit::Policy { id, policy });
        }
        let tune = personality.tune(self.resource);
        for key in TuneKey::ALL.into_iter().filter(|k| !k.is_of_child()) {
            let value = tune.get(&key).copied();
            if root.tune.get(&key).copied() != value {
                edits.push(Edit::Tune { id, key, value });
            }
        }
        edits
    }

    fn edits_for_delete(&self, node: &NodeRef, mode: DeleteMode) -> Result<Vec<Edit>, Error> {
        let node = self.find(node)?;
        self.protect(node.id, "a resource cannot be deleted", "it cannot be deleted")?;
        if !node.children.is_empty() {
            let why = format!("{} has {} children", self.shown(node.id), node.children.len());
            return Err(Error::new(ErrorKind::NotEmpty, why).hint("delete them first"));
        }
        Ok(match mode {
            // Only queues have members to wait for.
            DeleteMode::Drain if node.kind.is_queue() => {
                if node.draining {
                    Vec::new()
                } else {
                    vec![Edit::Drain { id: node.id }]
                }
            }
            DeleteMode::Drain | DeleteMode::Refuse | DeleteMode::Flush => {
                let mode = if mode == DeleteMode::Drain { DeleteMode::Refuse } else { mode };
                vec![Edit::Delete { id: node.id, mode }]
            }
        })
    }

    fn edits_for_move(
        &self,
        node: &Node,
        parent: Option<NodeId>,
        name: &Name,
    ) -> Result<Vec<Edit>, Error> {
        let q0 = "it keeps its place and name";
        self.protect(node.id, "a resource keeps its place and name", q0)?;
        let Some(parent) = parent else { return Ok(Vec::new()) };
        let same_parent = node.parent == Some(parent);
        if same_parent && node.name == *name {
            return Ok(Vec::new());
        }
        if self.is_within(parent, node.id) {
            let why =
                format!("{} cannot be moved into {}", self.shown(node.id), self.shown(parent));
            return Err(
                Error::new(ErrorKind::Invalid, why).hint("a node does not fit below itself")
            );
        }
        self.check_name_free(self.node(parent)?, name)?;
        if same_parent {
            return Ok(vec![Edit::Rename { id: node.id, name: name.clone() }]);
        }
        if self.depth(parent) + self.height(node.id) > DEPTH_MAX {
            return Err(self.too_deep(parent));
        }
        Ok(vec![Edit::Move { id: node.id, parent, name: name.clone() }])
    }
}
