// SPDX-License-Identifier: MIT OR Apache-2.0
//! One resource: its tree, the journal of intents and the plane, kept in agreement.
//!
//! Every change, in this order: plan against the tree → intent into the journal → the plane applies
//! the batch with the record's number → commit to the tree → answer. An edit that the kernel does
//! not need (a name, a flag) is a batch without ops, so that the plane's number tells of every edit
//! whether it happened. Killed anywhere, the next daemon decides:
//!
//! | killed | the plane's last number K | the next daemon |
//! |---|---|---|
//! | before the intent is written | last record | finds nothing |
//! | between intent and batch | last record − 1 | takes the last record back: it never happened; but a deletion with members is carried out, because a plane that is not atomic may have moved some |
//! | after the batch | last record | replays the record: it happened |
//!
//! A plane that keeps no number (stock) gets the last record's batch again, which must be
//! idempotent there.
//!
//! The kernel sends requests again that a dead daemon took and did not answer. One whose edit
//! happened is not carried out twice: the record carries the request's number ([`Origin`]), and its
//! answer is made from what exists.

mod admission;
mod fresh;
mod garbage;
mod leaving;
mod number;
mod packets;
mod record;
mod uses;
mod whole;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use reserv_model::{
    Backlog, Batch, Caller, DeleteMode, Edit, Name, NodeId, NodeRef, Op, Outcome, Plan, Record,
    Request, ResourceKind, Rule, Tree,
};
use reserv_namespace::Survey;
use reserv_plane::{Plane, PlaneError, Upgraded, ahead};

pub use self::number::Tagged;
pub use self::record::Origin;
use self::record::{Entry, Extras, Told, corrupt, encode, flushes, from_nothing, tell};
use self::uses::{about_use, use_touched};
pub(crate) use self::whole::Undo;
use crate::collect::Collector;
use crate::journal::{Compaction, Journal};
use crate::refusal::Refusal;

/// What to do about a queue that has members.
const DELETE_HINT: &str = "drain it (--drain: deleted when its last member has left) or flush it (--flush: members go to q0, deleted now)";

/// Ops in one batch when a tree is set up again.
const REBUILD_BATCH: usize = 100;

/// Tries of an edit that threads overtake by asking for budgets.
const OVERTAKEN_MAX: u32 = 8;

/// Counters may be read again from the last survey while they are not older than this many times
/// the CPU time that it took …
const SURVEY_REST: u32 = 5;
/// … and than this. So a reader of all nodes costs one survey now and then, not one per node, and
/// few nodes are always read as they are.
const SURVEY_AGE_MAX: Duration = Duration::from_millis(20);

/// Reads a journal's records: for `fuzz/`.
#[doc(hidden)]
pub fn understands(payloads: &[Vec<u8>]) -> Result<(), Refusal> {
    tell(Name::new("cpu")?, payloads).map(drop)
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
    kind: ResourceKind,
    tree: Tree,
    journal: Journal,
    plane: Box<dyn Plane>,
    extras: Extras,
    fresh_next: u32,
    /// Names that were removed, with their parents, since [`Engine::take_removed`].
    removed: Vec<(NodeId, Name)>,
    /// When the journal is compacted.
    compaction: Compaction,
    /// The counters of all nodes, and until when they are taken for those of now. Void after any
    /// edit and any tag of ours.
    survey: Option<(Survey, Instant)>,
    /// Whether draining queues may have gone without our being told (see [`Engine::collect`]).
    missed: bool,
    /// What may be garbage.
    pub(crate) collector: Collector,
    /// Queues of which the plane could not be told who may use them.
    untold: BTreeSet<NodeId>,
    /// Rules about packets.
    packets: packets::Told,
}

/// What this thread has used of a CPU: unlike the clock it does not count what others do meanwhile.
fn cpu_time() -> Duration {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Whether this version reads a tree's journal; nothing is changed.
pub fn readable(path: &Path) -> Result<(), Refusal> {
    let payloads = Journal::read(path).map_err(|error| Refusal::unread(path, error))?;
    let told = Name::new("cpu").map_err(Refusal::from).and_then(|name| tell(name, &payloads));
    told.map(drop).map_err(|why| Refusal::unreadable(path, why))
}

impl Engine {
    /// Brings journal and plane of the resource `name` together. `adopted` says whether the plane
    /// was found running or is new and empty.
    pub fn open(
        path: &Path,
        (name, kind): (Name, ResourceKind),
        mut plane: Box<dyn Plane>,
        adopted: bool,
    ) -> Result<(Self, Beginning), Refusal> {
        let (mut journal, payloads) =
            Journal::open(path).map_err(|error| Refusal::unread(path, error))?;
        let mut told = tell(name, &payloads).map_err(|why| Refusal::unreadable(path, why))?;
        let had = told.tree.seq() > 0 || told.last.is_some();
        let last: Vec<Edit> =
            told.last.iter().flat_map(|(record, _)| about_use(&told.tree, &record.edits)).collect();
        if adopted {
            let mut applied = plane.applied_seq()?;
            if let Some((record, origin)) = told.last.take() {
                let happened = match applied {
                    Some(k) if k >= record.seq => true,
                    Some(_) if !flushes(&record) => false,
                    _ => plane.apply(&record.batch()).inspect_err(|error| {
                        tracing::warn!(%error, seq = record.seq, "the last intent was refused; taken back");
                    }).is_ok(),
                };
                if applied.is_some() {
                    // A flush that had not happened has now.
                    applied = plane.applied_seq()?;
                }
                if happened {
                    told.tree.replay(&record)?;
                    told.extras.note(origin, &record);
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
                told.extras.note(origin, &record);
            }
            if told.tree.seq() > 0 {
                let mut snapshot = told.tree.snapshot();
                for ops in from_nothing(&told.tree).chunks(REBUILD_BATCH) {
                    snapshot.seq += 1;
                    plane.apply(&Batch { seq: snapshot.seq, ops: ops.to_vec() })?;
                }
                if snapshot.seq == told.tree.seq() {
                    // Nothing but root and q0 as they begin: the plane still has to know the
                    // number.
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
        let Told { mut tree, mut extras, .. } = told;
        tree.set_resource(kind);
        let mut queues: Vec<NodeId> = tree
            .iter()
            .filter(|n| n.kind.is_queue() && !tree.use_rules(n.id).is_empty())
            .map(|n| n.id)
            .collect();
        // The last intent's may have been told ahead of it.
        queues.extend(use_touched(&tree, &last).into_iter().filter(|id| tree.get(*id).is_some()));
        let collector = Collector::taken_over(&tree, &mut extras.collect);
        let mut engine = Self {
            kind,
            tree,
            journal,
            plane,
            extras,
            fresh_next,
            removed: Vec::new(),
            compaction: Compaction::default(),
            survey: None,
            missed: true,
            collector,
            untold: BTreeSet::new(),
            packets: packets::Told::default(),
        };
        engine.measure_capacity();
        engine.tell_use_again(&queues);
        match engine.compact() {
            // The old journal says the same, and edits are refused while there is no room for them.
            Err(refusal) if adopted => tracing::error!(%refusal, "the journal was not compacted"),
            done => done?,
        }
        if engine.unfinished().is_some() {
            tracing::warn!("the last daemon died in the middle of a large change; undoing it");
            if let Err(error) = engine.undo_whole() {
                tracing::error!(%error, "not all of it was undone");
            }
        }
        if adopted {
            engine.tell_entries();
            engine.flush_left()?;
        }
        Ok((engine, beginning))
    }

    /// What the resource is.
    pub const fn kind(&self) -> ResourceKind {
        self.kind
    }

    /// Looks how much of the resource there is to be promised: nothing where nobody knows.
    pub fn measure_capacity(&mut self) {
        self.set_capacity(match self.kind {
            ResourceKind::Cpu => reserv_plane::ahead::cpu_capacity(),
            ResourceKind::Disk | ResourceKind::Link => self.plane.capacity(),
        });
        let budget = crate::backlog::budget();
        self.tree.set_backlog(self.plane.backlog().map(|backlog| Backlog { budget, ..backlog }));
    }

    /// The tree as it is.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Tells the tree what there is to be promised.
    pub fn set_capacity(&mut self, ns_per_s: u64) {
        if self.tree.capacity() == ns_per_s {
            return;
        }
        self.tree.set_capacity(ns_per_s);
        self.survey = None;
        for id in self.tree.overcommitted() {
            let node = self.tree.shown(id);
            tracing::warn!(node, capacity_ns = ns_per_s, "its minimum is more than there is");
        }
    }

    /// The plane, to ask.
    pub fn plane(&self) -> &dyn Plane {
        &*self.plane
    }

    /// The plane, for tags and health; edits go through [`Engine::edit`].
    pub fn plane_mut(&mut self) -> &mut dyn Plane {
        self.survey = None;
        &mut *self.plane
    }

    /// The counters of all nodes, with the tree that they are of. Made anew after an edit or a tag
    /// through us, and when they are older than [`SURVEY_REST`] times what they took, or
    /// [`SURVEY_AGE_MAX`].
    pub fn survey(&mut self) -> Result<(&Tree, &Survey), Refusal> {
        if self.survey.as_ref().is_none_or(|(_, until)| Instant::now() >= *until) {
            let before = cpu_time();
            let survey = Survey::new(&self.tree, self.plane.sample()?);
            let rest = (cpu_time().saturating_sub(before) * SURVEY_REST).min(SURVEY_AGE_MAX);
            self.survey = Some((survey, Instant::now() + rest));
        }
        let (survey, _) =
            self.survey.as_ref().ok_or_else(|| Refusal::new(libc::EIO, "no counters"))?;
        Ok((&self.tree, survey))
    }

    /// What flushing left, of ours or of a daemon that died in the middle of it: members of queues
    /// that are deleted go to q0.
    fn flush_left(&mut self) -> Result<(), Refusal> {
        for sample in self.plane.sample()?.iter().filter(|s| s.draining) {
            let id = NodeId::unpack(sample.id);
            if self.tree.get(id).is_some() {
                continue;
            }
            // Who is in a queue that drains cannot make more of them there.
            for member in self.plane.members(id).unwrap_or_default() {
                if let Err(refusal) = self.send_to_q0(member.tid, Tagged::Thread, id) {
                    tracing::warn!(%refusal, tid = member.tid, "a member of a deleted queue stays in it");
                }
            }
        }
        Ok(())
    }

    fn append(&mut self, entry: &Entry) -> Result<(), Refusal> {
        self.journal.append(&encode(entry)?)?;
        Ok(())
    }

    fn compact(&mut self) -> Result<(), Refusal> {
        let whole =
            Entry::Whole { tree: self.tree.snapshot(), extras: Box::new(self.extras.clone()) };
        self.journal.replace(&encode(&whole)?)?;
        self.compaction.done(self.journal.len());
        Ok(())
    }

    fn compact_when_long(&mut self) {
        let now = Instant::now();
        if self.compaction.is_due(self.journal.len(), now)
            && let Err(error) = self.compact()
        {
            self.compaction.failed(now);
            // The old journal still stands and grows on.
            tracing::error!(%error, "the journal was not compacted");
        }
    }

    /// Plans only: the requests would be accepted by the tree. Answers how many ops they make.
    pub fn check(&self, requests: &[Request]) -> Result<usize, Refusal> {
        let plan = self.tree.plan(requests)?;
        self.check_driver(&plan)?;
        self.check_promises(&plan)?;
        Ok(plan.ops().len())
    }

    /// Whether all requests can be carried out, and all promises are kept, where there is so much
    /// to be promised and queues hold so much.
    pub fn check_at(
        &self,
        capacity: u64,
        backlog: Option<Backlog>,
        requests: &[Request],
    ) -> Result<(), Refusal> {
        let budget = self.tree.backlog().map_or(0, |backlog| backlog.budget);
        let mut then = self.tree.clone();
        then.set_capacity(capacity.max(self.tree.capacity()));
        let plan = then.plan(requests)?;
        self.check_driver(&plan)?;
        then.replay(&plan.record())?;
        then.admit_capacity(capacity)?;
        Ok(then.admit_backlog(backlog.map(|backlog| Backlog { budget, ..backlog }))?)
    }

    /// The driver is told what it has to know of the personality.
    pub fn tell_personality(&mut self) -> Result<(), Refusal> {
        let yes = self.tree.personality().binds_children();
        Ok(self.plane.set_binds_children(yes)?)
    }

    /// Whether the driver has the mechanisms that an edit needs.
    fn check_words(&self, edits: &[Edit]) -> Result<(), Refusal> {
        Ok(ahead::words(
            || self.plane.info().name,
            self.kind,
            edits,
            |class| self.plane.supports_class(class),
            |policy| self.plane.supports_policy(policy),
        )?)
    }

    /// Whether the driver has all that a plan needs.
    fn check_driver(&self, plan: &Plan) -> Result<(), Refusal> {
        self.check_words(plan.edits())?;
        ahead::ops(&plan.ops(), |op| self.plane.lacks(op))?;
        if self.plane.info().name == "stock" {
            ahead::stock_tree(&self.tree, plan)?;
        }
        Ok(())
    }

    /// Whether the queues that are deleted without a word about their members have none: what the
    /// driver asks when it deletes them, for who only wants to know.
    pub fn check_deleted(&self, requests: &[Request]) -> Result<(), Refusal> {
        for request in requests {
            let Request::Delete { node: NodeRef::Id(id), mode: DeleteMode::Refuse } = request
            else {
                continue;
            };
            if !self.tree.get(*id).is_some_and(|node| node.kind.is_queue()) {
                continue;
            }
            let members = self.plane.members(*id)?.len();
            if members > 0 {
                let noun = if members == 1 { "member" } else { "members" };
                let text = format!("busy: {} has {members} {noun}", self.tree.shown(*id));
                let hint = DELETE_HINT.to_owned();
                return Err(Refusal { errno: libc::EBUSY, text, hint });
            }
        }
        Ok(())
    }

    /// Carries requests out, all or none.
    pub fn edit(&mut self, requests: &[Request], origin: Option<Origin>) -> Result<Done, Refusal> {
        let plan = self.tree.plan(requests)?;
        self.carry_out_plan(&plan, origin)
    }

    /// The same on behalf of somebody, as far as he may.
    pub fn edit_by(
        &mut self,
        who: &Caller,
        requests: &[Request],
        origin: Option<Origin>,
    ) -> Result<Done, Refusal> {
        requests.iter().try_for_each(|request| self.permit(who, request))?;
        let plan = self.tree.plan(&self.kept_in(who, requests))?.made_by(&self.tree, who);
        self.carry_out_plan(&plan, origin)
    }

    /// The same where it was permitted before: who made the new nodes is noted all the same.
    pub fn edit_made_by(
        &mut self,
        maker: &Caller,
        requests: &[Request],
        origin: Option<Origin>,
    ) -> Result<Done, Refusal> {
        let plan = self.tree.plan(requests)?.made_by(&self.tree, maker);
        self.carry_out_plan(&plan, origin)
    }

    /// The same for a part of a change that was checked as a whole.
    pub(crate) fn edit_part(&mut self, requests: &[Request]) -> Result<(), Refusal> {
        let plan = self.tree.plan_part(requests)?;
        self.carry_out_plan(&plan, None).map(drop)
    }

    fn carry_out_plan(&mut self, plan: &Plan, origin: Option<Origin>) -> Result<Done, Refusal> {
        self.check_words(plan.edits())?;
        if self.kind == ResourceKind::Link && self.plane.info().name == "stock" {
            // The driver would refuse it too, and knows no names.
            ahead::stock_tree(&self.tree, plan)?;
        }
        if plan.is_empty() {
            return Ok(Done::default());
        }
        let outcomes = self.carry_out_promised(plan, origin)?;
        if plan.left_members(&outcomes)
            && let Err(error) = self.flush_left()
        {
            tracing::warn!(%error, "members of a deleted queue stay in it");
        }
        let done = Done { created: plan.created().to_vec() };
        let gone = plan.drained(&outcomes);
        if !gone.is_empty()
            && let Err(error) = self.forget_nodes(&gone)
        {
            // The edit has happened all the same.
            tracing::warn!(%error, "drained queues are forgotten later");
            self.missed = true;
        }
        self.compact_when_long();
        Ok(done)
    }

    /// Where an edit could take from a queue what its threads were promised, no thread is promised
    /// anything between the question and the edit.
    fn carry_out_promised(
        &mut self,
        plan: &Plan,
        origin: Option<Origin>,
    ) -> Result<Vec<Outcome>, Refusal> {
        for _ in 0..OVERTAKEN_MAX {
            let grants = if self.may_break_promises(plan) { self.plane.grants()? } else { 0 };
            self.check_promises(plan)?;
            if let Some(outcomes) = self.carry_out(plan.record(), origin, grants)? {
                return Ok(outcomes);
            }
        }
        Err(PlaneError::Overtaken.into())
    }

    /// None: nothing has happened, because [`Plane::grants`] is not `grants` any more.
    fn carry_out(
        &mut self,
        record: Record,
        origin: Option<Origin>,
        grants: u32,
    ) -> Result<Option<Vec<Outcome>>, Refusal> {
        let batch = record.batch();
        let entry = Entry::Edit { record, origin };
        self.append(&entry)?;
        let Entry::Edit { record, .. } = entry else { return Err(corrupt("not an edit")) };
        self.survey = None;
        let touched = match self.tell_use(&record) {
            Ok(touched) => touched,
            Err(refusal) => {
                self.journal.undo()?;
                return Err(refusal);
            }
        };
        match self.plane.apply_if(&batch, grants) {
            Ok(outcomes) => {
                for edit in &record.edits {
                    if let Edit::Delete { id, .. } | Edit::Gone { id } = edit
                        && let Some(node) = self.tree.get(*id)
                        && let Some(parent) = node.parent
                    {
                        self.removed.push((parent, node.name.clone()));
                    }
                }
                self.collector.before(&self.tree, &record);
                self.tree.replay(&record)?;
                self.extras.note(origin, &record);
                self.may_go(&record, origin.is_some());
                self.disown(&record);
                let made =
                    |e: &Edit| matches!(*e, Edit::Create { id, .. } if touched.contains(&id));
                let made: Vec<NodeId> =
                    record.edits.iter().filter(|e| made(e)).map(Edit::id).collect();
                self.tell_use_again(&made);
                self.tell_packets_again();
                if record.edits.iter().any(|e| matches!(e, Edit::Personality { .. }))
                    && let Err(refusal) = self.tell_personality()
                {
                    tracing::error!(%refusal, "the driver does not know the new personality");
                }
                Ok(Some(outcomes))
            }
            Err(error) => {
                self.journal.undo()?;
                let touched: Vec<NodeId> =
                    touched.into_iter().filter(|id| self.tree.get(*id).is_some()).collect();
                self.tell_use_again(&touched);
                if matches!(error, PlaneError::Overtaken) {
                    Ok(None)
                } else {
                    Err(self.named(error, &record))
                }
            }
        }
    }

    /// A driver knows nodes by handle only ("2.1"): here they get the names by which the caller
    /// knows them.
    /// Words in which nodes are called by their names, where the driver had their numbers.
    pub fn with_names(&self, text: &str) -> String {
        let named = |word: &str| {
            let bare = word.trim_end_matches([':', ',']);
            let (index, generation) = bare.split_once('.')?;
            let id = NodeId { index: index.parse().ok()?, generation: generation.parse().ok()? };
            Some(word.replacen(bare, &self.tree.shown(self.tree.get(id)?.id), 1))
        };
        let words = text.split(' ').map(|word| named(word).unwrap_or_else(|| word.to_owned()));
        words.collect::<Vec<_>>().join(" ")
    }

    fn named(&self, error: PlaneError, record: &Record) -> Refusal {
        let busy = matches!(error, PlaneError::Busy(_));
        let mut refusal = Refusal::from(error);
        for id in record.edits.iter().map(Edit::id).filter(|id| self.tree.get(*id).is_some()) {
            let (handle, name) = (format!("{}.{}", id.index, id.generation), self.tree.shown(id));
            let words = refusal.text.split(' ').map(|word| {
                let bare = word.trim_end_matches([':', ',']);
                if bare == handle { word.replacen(bare, &name, 1) } else { word.to_owned() }
            });
            refusal.text = words.collect::<Vec<_>>().join(" ");
        }
        let refused = |edit: &&Edit| matches!(edit, Edit::Delete { mode: DeleteMode::Refuse, .. });
        let deleted: Vec<String> =
            record.edits.iter().filter(refused).map(|edit| self.tree.shown(edit.id())).collect();
        if busy && !deleted.is_empty() {
            match &deleted[..] {
                names if names.iter().any(|name| refusal.text.contains(name)) => {}
                [name] => refusal.text = format!("{name}: {}", refusal.text),
                names => refusal.text = format!("one of {}: {}", names.join(", "), refusal.text),
            }
            DELETE_HINT.clone_into(&mut refusal.hint);
        }
        refusal
    }

    fn forget_nodes(&mut self, gone: &[NodeId]) -> Result<(), Refusal> {
        let plan = self.tree.plan_gone(gone);
        if !plan.is_empty() {
            self.carry_out(plan.record(), None, 0)?;
        }
        Ok(())
    }

    /// The names that were removed since the last call. The kernel knows of those that it removed
    /// itself (`rmdir`).
    pub fn take_removed(&mut self) -> Vec<(NodeId, Name)> {
        std::mem::take(&mut self.removed)
    }

    /// A name that the kernel may know was moved away without its knowledge.
    pub fn moved(&mut self, parent: NodeId, name: Name) {
        self.removed.push((parent, name));
    }

    /// Takes note of queues that have drained meanwhile.
    pub fn collect(&mut self) -> Result<(), Refusal> {
        let mut gone = self.plane.collect_drained()?;
        // After a crash between the plane's report and our record, or a failure to write it, nobody
        // reports again: ask.
        if self.missed {
            for node in self.tree.iter().filter(|n| n.draining) {
                if matches!(self.plane.sample_one(node.id), Err(PlaneError::NoNode(_))) {
                    gone.push(node.id);
                }
            }
        }
        self.missed = true;
        self.forget_nodes(&gone)?;
        self.missed = false;
        Ok(())
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

    /// Puts the plane's programs of this version in the place of another's, with the tree of the
    /// journal; `None`: they are this version's already.
    pub fn upgrade(&mut self) -> Result<Option<Upgraded>, Refusal> {
        let draining = self.tree.iter().filter(|node| node.draining);
        let drain: Vec<Op> =
            draining.map(|node| Op::Delete { id: node.id, mode: DeleteMode::Drain }).collect();
        // Who drains must be there before the batch.
        let mut batches: Vec<Batch> = [from_nothing(&self.tree), drain]
            .iter()
            .flat_map(|ops| ops.chunks(REBUILD_BATCH))
            .map(|ops| Batch { seq: 0, ops: ops.to_vec() })
            .collect();
        // The number is that of the edit that is in effect, which the next daemon compares with the
        // journal's.
        batches.push(Batch { seq: self.tree.seq(), ops: Vec::new() });
        let done = self.plane.upgrade(&batches)?;
        self.survey = None;
        self.missed = true;
        Ok(done)
    }

    /// Gives the resource back; it is of no use afterwards. The journal goes last: killed before,
    /// the next daemon finds the plane gone or adopts it.
    pub fn stop(&mut self) -> Result<(), Refusal> {
        self.plane.stop()?;
        if let Err(error) = self.journal.remove() {
            tracing::warn!(%error, "the journal was not removed");
        }
        Ok(())
    }
}
