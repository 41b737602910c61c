// SPDX-License-Identifier: MIT OR Apache-2.0
//! One resource: its tree, the journal of intents and the plane, kept in agreement.
//!
//! Every change, in this order: plan against the tree → intent into the journal → the plane applies the batch with the
//! record's number → commit to the tree → answer. An edit that the kernel does not need (a name, a flag) is a batch without
//! ops, so that the plane's number tells of every edit whether it happened. Killed anywhere, the next daemon decides:
//!
//! | killed | the plane's last number K | the next daemon |
//! |---|---|---|
//! | before the intent is written | last record | finds nothing |
//! | between intent and batch | last record − 1 | takes the last record back: it never happened |
//! | after the batch | last record | replays the record: it happened |
//!
//! A plane that keeps no number (stock) gets the last record's batch again, which must be idempotent there.
//!
//! The kernel sends requests again that a dead daemon took and did not answer. One whose edit happened is not carried out twice: the
//! record carries the request's number ([`Origin`]), and its answer is made from what exists.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use reserv_model::{
    Batch, Class, Edit, Error, ErrorKind, Kind, Name, NodeId, Op, Outcome, Record, Request, Rule, Share,
    Snapshot, Tree,
};
use reserv_plane::{Plane, PlaneError};
use serde::{Deserialize, Serialize};

use crate::journal::Journal;

/// Answered edits that are remembered: more than requests can be under way in the kernel at once.
const ANSWERED_MAX: usize = 4096;
/// The journal is compacted when it is this long, and not before it is four times as long as its snapshot.
const COMPACT_MIN: u64 = 1 << 20;
/// Ops in one batch when a tree is set up again.
const REBUILD_BATCH: usize = 100;
/// Numbers of fresh inodes that are taken at once.
const FRESH_BLOCK: u32 = 1 << 16;

/// Which request of the name space an edit answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The request's number in its session.
    pub unique: u64,
    /// The fresh inode that becomes the node which the edit makes.
    pub fresh: Option<u64>,
}

/// What the journal keeps beside the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Extras {
    /// Requests of this session whose edits happened, oldest first, with the node that was made.
    answered: VecDeque<(u64, Option<NodeId>)>,
    /// Fresh inodes of this session that were opened.
    fresh: BTreeMap<u64, NodeId>,
    /// No number of a fresh inode from here on was given out.
    fresh_end: u32,
    rules: Vec<Rule>,
}

/// One record of the journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Entry {
    /// All there is; the first record.
    Whole { tree: Snapshot, extras: Extras },
    /// An intent.
    Edit { record: Record, origin: Option<Origin> },
    /// A new mount: numbers of requests and fresh inodes begin anew.
    Session,
    /// A block of numbers of fresh inodes is taken.
    Fresh { end: u32 },
    /// Fresh inode that nobody refers to any more.
    Forgotten { fresh: u64 },
    /// The rules were replaced.
    Rules { rules: Vec<Rule> },
}

/// Why something was refused: an errno for the caller, words for people. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Refusal {
    /// Positive.
    pub errno: i32,
    /// What was wrong.
    pub text: String,
    /// What would be right; may be empty.
    pub hint: String,
}

impl Refusal {
    /// Without a hint.
    pub fn new(errno: i32, text: impl Into<String>) -> Self {
        Self { errno, text: text.into(), hint: String::new() }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self { errno: error.errno().code(), text: error.context, hint: error.hint }
    }
}

impl From<PlaneError> for Refusal {
    fn from(error: PlaneError) -> Self {
        let errno = match &error {
            PlaneError::NoNode(_) => libc::ESTALE,
            PlaneError::Busy(_) | PlaneError::Taken(_) => libc::EBUSY,
            PlaneError::Full(_) => libc::EAGAIN,
            PlaneError::Unsupported(_) => libc::EOPNOTSUPP,
            PlaneError::Invalid(_) => libc::EINVAL,
            PlaneError::NoProcess(_) => libc::ESRCH,
            PlaneError::Os { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
        };
        Self::new(errno, error.to_string())
    }
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Self {
        Self::new(error.raw_os_error().unwrap_or(libc::EIO), format!("journal: {error}"))
    }
}

/// What an edit did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Nodes that were made, in order.
    pub created: Vec<NodeId>,
}

/// How the engine came to its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// Root and q0.
    Empty,
    /// The tree that a dead daemon left running.
    Adopted,
    /// The tree of the journal, set up in a plane that had lost it.
    Rebuilt,
}

/// See the head of this file.
pub struct Engine {
    tree: Tree,
    journal: Journal,
    plane: Box<dyn Plane>,
    extras: Extras,
    fresh_next: u32,
    /// Names that were removed, with their parents, since [`Engine::take_removed`].
    removed: Vec<(NodeId, Name)>,
    /// Length of the journal after its last compaction.
    compacted: u64,
}

fn resource() -> Name {
    Name::new("cpu").expect("\"cpu\" is a name")
}

fn encode(entry: &Entry) -> Result<Vec<u8>, Refusal> {
    serde_json::to_vec(entry).map_err(|e| Refusal::new(libc::EIO, format!("journal: {e}")))
}

impl Extras {
    fn note(&mut self, origin: Option<Origin>, made: Option<NodeId>) {
        let Some(origin) = origin else { return };
        if self.answered.len() == ANSWERED_MAX {
            self.answered.pop_front();
        }
        self.answered.push_back((origin.unique, made));
        if let (Some(fresh), Some(made)) = (origin.fresh, made) {
            self.fresh.insert(fresh, made);
        }
    }
}

fn made(record: &Record) -> Option<NodeId> {
    record.edits.iter().find_map(|edit| match edit {
        Edit::Create { id, .. } => Some(*id),
        _ => None,
    })
}

/// What the journal says, before it is compared with the plane.
struct Told {
    /// Without the last edit, if that is the journal's last record.
    tree: Tree,
    extras: Extras,
    /// The journal's last record, if it is an edit: it may not have happened.
    last: Option<(Record, Option<Origin>)>,
}

fn corrupt(why: impl std::fmt::Display) -> Refusal {
    Refusal::new(libc::EIO, format!("journal: {why}"))
}

fn tell(payloads: &[Vec<u8>]) -> Result<Told, Refusal> {
    let mut told = Told { tree: Tree::new(resource()), extras: Extras::default(), last: None };
    for payload in payloads {
        if let Some((record, origin)) = told.last.take() {
            told.tree.replay(&record)?;
            told.extras.note(origin, made(&record));
        }
        match serde_json::from_slice(payload).map_err(corrupt)? {
            Entry::Whole { tree, extras } => {
                told.tree = tree.restore()?;
                told.extras = extras;
            }
            Entry::Edit { record, origin } => told.last = Some((record, origin)),
            Entry::Session => {
                told.extras.answered.clear();
                told.extras.fresh.clear();
            }
            Entry::Fresh { end } => told.extras.fresh_end = end,
            Entry::Forgotten { fresh } => {
                told.extras.fresh.remove(&fresh);
            }
            Entry::Rules { rules } => told.extras.rules = rules,
        }
    }
    Ok(told)
}

/// The ops that make `tree` out of root and q0, ids included.
fn from_nothing(tree: &Tree) -> Vec<Op> {
    let mut ops = Vec::new();
    for (_, node) in tree.walk() {
        let id = node.id;
        if let (Some(parent), true) = (node.parent, id != NodeId::Q0) {
            ops.push(Op::Create { id, parent, kind: node.kind });
        } else {
            match node.kind {
                Kind::Queue(class) if class != Class::default() => ops.push(Op::SetClass { id, class }),
                Kind::Scheduler(policy) if policy != reserv_model::Policy::default() => {
                    ops.push(Op::SetPolicy { id, policy });
                }
                _ => {}
            }
        }
        if id != NodeId::ROOT && node.share() != Share::default() {
            ops.push(Op::Reweight { id, weight: node.weight });
        }
        if node.cap.is_some() {
            ops.push(Op::SetCap { id, cap: node.cap });
        }
        if node.members_max != 0 {
            ops.push(Op::SetLimit { id, members_max: node.members_max });
        }
    }
    ops
}

impl Engine {
    /// Brings journal and plane together. `adopted` says whether the plane was found running or is new and empty.
    pub fn open(path: &Path, mut plane: Box<dyn Plane>, adopted: bool) -> Result<(Self, Beginning), Refusal> {
        let (mut journal, payloads) = Journal::open(path)?;
        let mut told = tell(&payloads)?;
        let had = told.tree.seq() > 0 || told.last.is_some();
        if adopted {
            let applied = plane.applied_seq()?;
            if let Some((record, origin)) = told.last.take() {
                let happened = match applied {
                    Some(k) => k >= record.seq,
                    None => plane.apply(&record.batch()).inspect_err(|error| {
                        tracing::warn!(%error, seq = record.seq, "the last intent was refused; taken back");
                    }).is_ok(),
                };
                if happened {
                    told.tree.replay(&record)?;
                    told.extras.note(origin, made(&record));
                } else {
                    tracing::info!(seq = record.seq, "the last intent did not happen; taken back");
                    journal.undo()?;
                }
            }
            if let Some(k) = applied.filter(|&k| k != told.tree.seq()) {
                let why = format!("the plane is at edit {k}, the journal at {}", told.tree.seq());
                return Err(Refusal {
                    errno: libc::ESTALE,
                    text: why,
                    hint: "the kernel's tree has to be set up again from the journal".into(),
                });
            }
        } else {
            // Nobody can say whether the last edit happened; it was asked for.
            if let Some((record, origin)) = told.last.take() {
                told.tree.replay(&record)?;
                told.extras.note(origin, made(&record));
            }
            if told.tree.seq() > 0 {
                let mut snapshot = told.tree.snapshot();
                for ops in from_nothing(&told.tree).chunks(REBUILD_BATCH) {
                    snapshot.seq += 1;
                    plane.apply(&Batch { seq: snapshot.seq, ops: ops.to_vec() })?;
                }
                if snapshot.seq == told.tree.seq() {
                    // Nothing but root and q0 as they begin: the plane still has to know the number.
                    plane.apply(&Batch { seq: snapshot.seq, ops: Vec::new() })?;
                }
                told.tree = snapshot.restore()?;
            }
        }
        let beginning = match (adopted, had) {
            (true, _) => Beginning::Adopted,
            (false, true) => Beginning::Rebuilt,
            (false, false) => Beginning::Empty,
        };
        let fresh_next = told.extras.fresh_end;
        let Told { tree, extras, .. } = told;
        let mut engine = Self { tree, journal, plane, extras, fresh_next, removed: Vec::new(), compacted: 0 };
        engine.compact()?;
        Ok((engine, beginning))
    }

    /// The tree as it is.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The plane, to ask.
    pub fn plane(&self) -> &dyn Plane {
        &*self.plane
    }

    /// The plane, for tags and health; edits go through [`Engine::edit`].
    pub fn plane_mut(&mut self) -> &mut dyn Plane {
        &mut *self.plane
    }

    fn append(&mut self, entry: &Entry) -> Result<(), Refusal> {
        self.journal.append(&encode(entry)?)?;
        Ok(())
    }

    fn compact(&mut self) -> Result<(), Refusal> {
        let whole = Entry::Whole { tree: self.tree.snapshot(), extras: self.extras.clone() };
        self.journal.replace(&encode(&whole)?)?;
        self.compacted = self.journal.len();
        Ok(())
    }

    fn compact_when_long(&mut self) {
        if self.journal.len() > COMPACT_MIN.max(4 * self.compacted)
            && let Err(error) = self.compact()
        {
            // The old journal still stands and grows on.
            tracing::error!(%error, "the journal was not compacted");
        }
    }

    /// Plans only: the requests would be accepted by the tree.
    pub fn check(&self, requests: &[Request]) -> Result<(), Refusal> {
        let plan = self.tree.plan(requests)?;
        self.check_classes(plan.edits())
    }

    fn check_classes(&self, edits: &[Edit]) -> Result<(), Refusal> {
        for edit in edits {
            let (Edit::Class { class, .. } | Edit::Create { kind: Kind::Queue(class), .. }) = edit else {
                continue;
            };
            if !self.plane.supports_class(*class) {
                let why = format!("the {} driver has no class {class}", self.plane.info().name);
                return Err(Error::new(ErrorKind::Unsupported, why).into());
            }
        }
        Ok(())
    }

    /// Carries requests out, all or none.
    pub fn edit(&mut self, requests: &[Request], origin: Option<Origin>) -> Result<Done, Refusal> {
        let plan = self.tree.plan(requests)?;
        self.check_classes(plan.edits())?;
        if plan.is_empty() {
            return Ok(Done::default());
        }
        let outcomes = self.carry_out(plan.record(), origin)?;
        let done = Done { created: plan.created().to_vec() };
        let gone = plan.drained(&outcomes);
        if !gone.is_empty() {
            self.forget_nodes(&gone)?;
        }
        self.compact_when_long();
        Ok(done)
    }

    fn carry_out(&mut self, record: Record, origin: Option<Origin>) -> Result<Vec<Outcome>, Refusal> {
        let batch = record.batch();
        let made = made(&record);
        let entry = Entry::Edit { record, origin };
        self.append(&entry)?;
        let Entry::Edit { record, .. } = entry else { return Err(corrupt("not an edit")) };
        match self.plane.apply(&batch) {
            Ok(outcomes) => {
                for edit in &record.edits {
                    if let Edit::Delete { id, .. } | Edit::Gone { id } = edit
                        && let Some(node) = self.tree.get(*id)
                        && let Some(parent) = node.parent
                    {
                        self.removed.push((parent, node.name.clone()));
                    }
                }
                self.tree.replay(&record)?;
                self.extras.note(origin, made);
                Ok(outcomes)
            }
            Err(error) => {
                self.journal.undo()?;
                Err(error.into())
            }
        }
    }

    fn forget_nodes(&mut self, gone: &[NodeId]) -> Result<(), Refusal> {
        let plan = self.tree.plan_gone(gone);
        if !plan.is_empty() {
            self.carry_out(plan.record(), None)?;
        }
        Ok(())
    }

    /// The names that were removed since the last call. The kernel knows of those that it removed itself (`rmdir`).
    pub fn take_removed(&mut self) -> Vec<(NodeId, Name)> {
        std::mem::take(&mut self.removed)
    }

    /// Takes note of queues that have drained meanwhile.
    pub fn collect(&mut self) -> Result<(), Refusal> {
        let mut gone = self.plane.collect_drained()?;
        // After a crash between the plane's report and our record nobody reports again: ask for each.
        for node in self.tree.iter().filter(|n| n.draining) {
            if matches!(self.plane.sample_one(node.id), Err(PlaneError::NoNode(_))) {
                gone.push(node.id);
            }
        }
        self.forget_nodes(&gone)
    }

    /// If the edit of this request happened before its answer was given: the node that it made, if any.
    pub fn answered(&self, unique: u64) -> Option<Option<NodeId>> {
        self.extras.answered.iter().rev().find(|(u, _)| *u == unique).map(|(_, made)| *made)
    }

    /// A new mount: what requests and inodes of an earlier one meant is void.
    pub fn new_session(&mut self) -> Result<(), Refusal> {
        self.append(&Entry::Session)?;
        self.extras.answered.clear();
        self.extras.fresh.clear();
        Ok(())
    }

    /// A number for a fresh inode that this and earlier daemons have not used (until 2³² are used up).
    pub fn fresh_number(&mut self) -> Result<u32, Refusal> {
        if self.fresh_next == self.extras.fresh_end {
            let end = self.extras.fresh_end.wrapping_add(FRESH_BLOCK);
            self.append(&Entry::Fresh { end })?;
            self.extras.fresh_end = end;
            self.compact_when_long();
        }
        let number = self.fresh_next;
        self.fresh_next = self.fresh_next.wrapping_add(1);
        Ok(number)
    }

    /// The node that a fresh inode became when it was opened.
    pub fn fresh_node(&self, fresh: u64) -> Option<NodeId> {
        self.extras.fresh.get(&fresh).copied()
    }

    /// Nobody refers to this inode any more.
    pub fn forget_fresh(&mut self, fresh: u64) {
        if self.extras.fresh.remove(&fresh).is_some()
            && let Err(error) = self.append(&Entry::Forgotten { fresh })
        {
            tracing::warn!(%error, "a forgotten inode stays in the journal");
        }
        self.compact_when_long();
    }

    /// The rules of the configuration.
    pub fn rules(&self) -> &[Rule] {
        &self.extras.rules
    }

    /// Replaces the rules.
    pub fn set_rules(&mut self, rules: Vec<Rule>) -> Result<(), Refusal> {
        if rules != self.extras.rules {
            self.append(&Entry::Rules { rules: rules.clone() })?;
            self.extras.rules = rules;
        }
        Ok(())
    }

    /// Gives the resource back. The journal goes last: killed before, the next daemon finds the plane gone or adopts it.
    pub fn stop(mut self) -> Result<(), (Box<Self>, Refusal)> {
        if let Err(error) = self.plane.stop() {
            return Err((Box::new(self), error.into()));
        }
        if let Err(error) = self.journal.remove() {
            tracing::warn!(%error, "the journal was not removed");
        }
        Ok(())
    }
}
