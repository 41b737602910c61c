// SPDX-License-Identifier: MIT OR Apache-2.0
//! What outlives the worker of containers: `containers` in the run-time directory, a journal as
//! those of trees are.
//!
//! A change of a container is an edit in every tree. Which trees have made it, the trees know: each
//! keeps the number of the change with its edit ([`Origin`]). So the order is intent → an edit in
//! each tree → done, and killed anywhere the next worker reads an intent that has no end, and asks
//! each tree.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Instant;

use reserv_model::{ChangedAccess, ContainerEdit, ContainerId, Containers, Name, NodeId, Share};
use serde::{Deserialize, Serialize};

use super::files::Files;
use crate::engine::Origin;
use crate::journal::{Compaction, Journal};
use crate::refusal::Refusal;
use crate::seed::{self, OF_ROOT};

/// Answered requests that are remembered.
const ANSWERED_MAX: usize = 4096;
/// Numbers of fresh inodes that are taken at once.
const FRESH_BLOCK: u32 = 1 << 16;

/// A tree: the number of its resource, and the name. A number comes again after all others have
/// been used.
pub(super) type TreeKey = (u8, Name);

/// The request that a change answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Its number.
    pub unique: u64,
    /// The fresh inode that becomes the container which the change makes.
    pub fresh: Option<u64>,
}

/// An open file's handle as any request gives it.
#[derive(Clone, Copy)]
pub struct Plain {
    /// The request's number, and whether root asks.
    pub handle: u64,
    /// The request was sent to a worker that died.
    pub resent: bool,
}

/// Access lists of one tree that are changed.
pub(super) type Lists = Vec<ChangedAccess>;

/// What is done in every tree, as far as it takes to undo or to finish it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Doing {
    /// A node is made. Undone.
    Create,
    /// Shares are set. Undone: what they were.
    Share { before: Vec<(TreeKey, NodeId, Share)> },
    /// Nodes are moved. Undone: their parents and names, and shares.
    Move { before: Vec<(TreeKey, NodeId, NodeId, Name, Share)> },
    /// Access lists are changed. Undone: what it changed in them, and in those that hang on them.
    Access { before: Vec<(TreeKey, NodeId, Lists)> },
    /// Nodes are deleted. Finished, as far as nobody has come to them.
    Delete { id: ContainerId },
}

/// A change that has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Intent {
    /// That the trees know it by.
    pub(super) number: u64,
    pub(super) asked: Option<Asked>,
    pub(super) doing: Doing,
}

impl Intent {
    pub(super) fn origin(&self) -> Origin {
        Origin { unique: Origin::chosen(self.number), fresh: None }
    }
}

/// The container that a request made, if it made one.
#[derive(Clone, Copy)]
pub(super) struct Made(pub(super) Option<ContainerId>);

type OwnedNode = (ContainerId, TreeKey, NodeId);

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    all: Containers,
    nodes: Vec<OwnedNode>,
    carried: Vec<(ContainerId, Name, u64)>,
    handles: Vec<(u64, ContainerId)>,
    /// The users who opened them, but root.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    openers: Vec<(u64, u32)>,
    answered: VecDeque<(u64, Option<ContainerId>)>,
    fresh: Vec<(u64, ContainerId)>,
    fresh_end: u32,
    intent: Option<Intent>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unused: Vec<ContainerId>,
}

#[derive(Debug, Serialize, Deserialize)]
enum Entry {
    Whole(Box<Saved>),
    Begin(Intent),
    /// It has happened in all trees.
    Done {
        edit: Option<ContainerEdit>,
        nodes: Vec<OwnedNode>,
    },
    /// It has happened in none.
    Undone,
    /// Something that is no tree's.
    Edit {
        edit: ContainerEdit,
        asked: Option<Asked>,
    },
    /// The same for a node that was missing, by a worker of an earlier version.
    Node(ContainerId, TreeKey, NodeId),
    /// A tree is gone, with what is there.
    Down(TreeKey),
    /// What was used of a resource before its counters began anew.
    Carried(Name, Vec<(ContainerId, u64)>),
    Opened {
        handle: u64,
        id: ContainerId,
        /// By which user.
        #[serde(default)]
        uid: u32,
    },
    Closed {
        handle: u64,
    },
    Session,
    Fresh {
        end: u32,
    },
    Forgotten {
        fresh: u64,
    },
    /// It is not released before it has been used.
    Unused(ContainerId),
    /// It has been.
    Used(ContainerId),
}

/// See the head of this file.
pub(super) struct Book {
    path: PathBuf,
    /// None: there was no room for a new one, so it is made when it is first to be written.
    journal: Option<Journal>,
    compaction: Compaction,
    /// Counts the changes.
    pub(super) version: u64,
    pub(super) all: Containers,
    nodes: BTreeMap<ContainerId, BTreeMap<TreeKey, NodeId>>,
    carried: BTreeMap<(ContainerId, Name), u64>,
    files: Files,
    answered: VecDeque<(u64, Option<ContainerId>)>,
    fresh: BTreeMap<u64, ContainerId>,
    fresh_end: u32,
    fresh_next: u32,
    intent: Option<Intent>,
    /// Containers of the configuration that go when nothing refers to them, and to which nothing
    /// has yet.
    unused: BTreeSet<ContainerId>,
}

fn encode(entry: &Entry) -> Result<Vec<u8>, Refusal> {
    serde_json::to_vec(entry).map_err(|e| Refusal::new(libc::EIO, format!("containers: {e}")))
}

impl Book {
    /// Reads the file; none is an empty one.
    pub(super) fn open(path: &Path) -> Result<Self, Refusal> {
        let (journal, payloads) = match Journal::open(path) {
            Ok((journal, payloads)) => (Some(journal), payloads),
            Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => (None, Vec::new()),
            Err(error) => return Err(Refusal::unread(path, error)),
        };
        let mut book = Self::told(path, &payloads)?;
        book.journal = journal;
        // The old one says the same, none that there are no containers; and changes are refused
        // while there is no room for them.
        match book.compact() {
            Err(refusal) if !payloads.is_empty() || refusal.errno == libc::ENOSPC => {
                tracing::error!(%refusal, "the journal of containers was not compacted");
            }
            done => done?,
        }
        Ok(book)
    }

    /// What these say.
    fn told(path: &Path, payloads: &[Vec<u8>]) -> Result<Self, Refusal> {
        let mut book = Self {
            path: path.to_owned(),
            journal: None,
            compaction: Compaction::default(),
            version: 0,
            all: Containers::default(),
            nodes: BTreeMap::new(),
            carried: BTreeMap::new(),
            files: Files::default(),
            answered: VecDeque::new(),
            fresh: BTreeMap::new(),
            fresh_end: 0,
            fresh_next: 0,
            intent: None,
            unused: BTreeSet::new(),
        };
        for payload in payloads {
            let entry =
                serde_json::from_slice(payload).map_err(|why| Refusal::unreadable(path, why))?;
            book.take(entry).map_err(|why| Refusal::unreadable(path, why))?;
        }
        book.fresh_next = book.fresh_end;
        Ok(book)
    }

    fn journal(&mut self) -> Result<&mut Journal, Refusal> {
        let journal = match self.journal.take() {
            Some(journal) => journal,
            None => Journal::open(&self.path)?.0,
        };
        Ok(self.journal.insert(journal))
    }

    fn take(&mut self, entry: Entry) -> Result<(), Refusal> {
        self.version += 1;
        match entry {
            Entry::Whole(saved) => {
                self.all = saved.all;
                self.files = Files::default();
                let openers: BTreeMap<u64, u32> = saved.openers.into_iter().collect();
                for (handle, id) in saved.handles {
                    let uid = openers.get(&handle).copied().unwrap_or(0);
                    self.files.opened(handle, (id, uid));
                }
                self.answered = saved.answered;
                self.fresh = saved.fresh.into_iter().collect();
                self.fresh_end = saved.fresh_end;
                self.intent = saved.intent;
                self.unused = saved.unused.into_iter().collect();
                self.carried =
                    saved.carried.into_iter().map(|(id, name, n)| ((id, name), n)).collect();
                self.nodes.clear();
                self.own(saved.nodes);
            }
            Entry::Begin(intent) => self.intent = Some(intent),
            Entry::Done { edit, nodes } => {
                let asked = self.intent.take().and_then(|intent| intent.asked);
                match &edit {
                    Some(edit) => self.apply(edit, asked)?,
                    None => self.answer(asked, None),
                }
                self.own(nodes);
            }
            Entry::Undone => self.intent = None,
            Entry::Edit { edit, asked } => self.apply(&edit, asked)?,
            Entry::Node(id, tree, node) => self.own(vec![(id, tree, node)]),
            Entry::Down(tree) => {
                for nodes in self.nodes.values_mut() {
                    nodes.remove(&tree);
                }
            }
            Entry::Carried(name, amounts) => {
                for (id, amount) in amounts {
                    *self.carried.entry((id, name.clone())).or_default() += amount;
                }
            }
            Entry::Opened { handle, id, uid } => self.files.opened(handle, (id, uid)),
            Entry::Closed { handle } => self.files.closed(handle),
            Entry::Session => {
                self.files = Files::default();
                self.fresh.clear();
                self.answered.retain(|(unique, _)| Origin::is_chosen(*unique));
            }
            Entry::Fresh { end } => self.fresh_end = end,
            Entry::Forgotten { fresh } => {
                self.fresh.remove(&fresh);
            }
            Entry::Unused(id) => {
                self.unused.insert(id);
            }
            Entry::Used(id) => {
                self.unused.remove(&id);
            }
        }
        Ok(())
    }

    fn own(&mut self, nodes: Vec<OwnedNode>) {
        for (id, tree, node) in nodes {
            self.nodes.entry(id).or_default().insert(tree, node);
        }
    }

    fn apply(&mut self, edit: &ContainerEdit, asked: Option<Asked>) -> Result<(), Refusal> {
        let id = edit.id();
        let parent = self.all.get(id).and_then(|held| held.parent);
        self.all.apply(edit)?;
        let made = matches!(edit, ContainerEdit::Create { .. }).then_some(id);
        if let ContainerEdit::Delete { .. } = edit {
            self.nodes.remove(&id);
            self.carried.retain(|(of, _), _| *of != id);
            self.files.gone(id);
            let left = parent.and_then(|parent| self.all.get(parent));
            if let Some(parent) = left.filter(|parent| parent.children.is_empty()) {
                self.unused.remove(&parent.id);
            }
        }
        if let ContainerEdit::Delete { .. } | ContainerEdit::Gc { gc: false, .. } = edit {
            self.unused.remove(&id);
        }
        self.answer(asked, made);
        Ok(())
    }

    fn answer(&mut self, asked: Option<Asked>, made: Option<ContainerId>) {
        let Some(asked) = asked else { return };
        if self.answered.len() == ANSWERED_MAX {
            self.answered.pop_front();
        }
        self.answered.push_back((asked.unique, made));
        if let (Some(fresh), Some(made)) = (asked.fresh, made) {
            self.fresh.insert(fresh, made);
        }
    }

    fn compact(&mut self) -> Result<(), Refusal> {
        let nodes = self
            .nodes
            .iter()
            .flat_map(|(id, nodes)| nodes.iter().map(|(tree, node)| (*id, tree.clone(), *node)));
        let openers = self.files.iter().map(|(handle, (_, uid))| (handle, uid));
        let openers = openers.filter(|(_, uid)| *uid != 0);
        let saved = Saved {
            all: self.all.clone(),
            nodes: nodes.collect(),
            carried: self.carried.iter().map(|((id, name), n)| (*id, name.clone(), *n)).collect(),
            handles: self.files.iter().map(|(handle, (id, _))| (handle, id)).collect(),
            openers: openers.collect(),
            answered: self.answered.clone(),
            fresh: self.fresh.iter().map(|(fresh, id)| (*fresh, *id)).collect(),
            fresh_end: self.fresh_end,
            intent: self.intent.clone(),
            unused: self.unused.iter().copied().collect(),
        };
        let journal = self.journal()?;
        journal.replace(&encode(&Entry::Whole(Box::new(saved)))?)?;
        let length = journal.len();
        self.compaction.done(length);
        Ok(())
    }

    /// Into the journal, then into effect.
    fn note(&mut self, entry: Entry) -> Result<(), Refusal> {
        let journal = self.journal()?;
        journal.append(&encode(&entry)?)?;
        let length = journal.len();
        self.take(entry)?;
        let now = Instant::now();
        if self.compaction.is_due(length, now)
            && let Err(error) = self.compact()
        {
            self.compaction.failed(now);
            tracing::error!(%error, "the journal of containers was not compacted");
        }
        Ok(())
    }

    /// The same where the next worker only knows less.
    fn note_if_possible(&mut self, entry: Entry) {
        if let Err(refusal) = self.note(entry) {
            tracing::warn!(%refusal, "not in the journal of containers");
        }
    }

    /// A change that has no end yet.
    pub(super) fn intent(&self) -> Option<&Intent> {
        self.intent.as_ref()
    }

    /// A change begins.
    pub(super) fn begin(&mut self, intent: Intent) -> Result<(), Refusal> {
        self.note(Entry::Begin(intent))
    }

    /// It has happened in all trees.
    pub(super) fn done(
        &mut self,
        edit: Option<ContainerEdit>,
        nodes: Vec<OwnedNode>,
    ) -> Result<(), Refusal> {
        self.note(Entry::Done { edit, nodes })
    }

    /// It has happened in none.
    pub(super) fn undone(&mut self) -> Result<(), Refusal> {
        self.note(Entry::Undone)
    }

    /// A change that concerns no tree.
    pub(super) fn edit(
        &mut self,
        edit: ContainerEdit,
        asked: Option<Asked>,
    ) -> Result<(), Refusal> {
        self.note(Entry::Edit { edit, asked })
    }

    /// These trees are there: of others nothing is owned.
    pub(super) fn keep_trees(&mut self, there: &BTreeSet<TreeKey>) -> Result<(), Refusal> {
        let known: BTreeSet<TreeKey> =
            self.nodes.values().flat_map(BTreeMap::keys).cloned().collect();
        known.difference(there).try_for_each(|tree| self.note(Entry::Down(tree.clone())))
    }

    /// The node that a container owns in a tree.
    pub(super) fn node(&self, id: ContainerId, tree: &TreeKey) -> Option<NodeId> {
        if id == ContainerId::TOP {
            return Some(NodeId::ROOT);
        }
        self.nodes.get(&id)?.get(tree).copied()
    }

    /// The container that owns a node in a tree.
    pub(super) fn owner(&self, tree: &TreeKey, node: NodeId) -> Option<ContainerId> {
        let mut all = self.nodes.iter();
        all.find(|(_, nodes)| nodes.get(tree) == Some(&node)).map(|(id, _)| *id)
    }

    /// All nodes in a tree that are some container's, with its share.
    pub(super) fn owned_in(&self, tree: &TreeKey) -> BTreeMap<NodeId, Share> {
        let of = |(id, nodes): (&ContainerId, &BTreeMap<TreeKey, NodeId>)| {
            Some((*nodes.get(tree)?, self.all.get(*id)?.share))
        };
        self.nodes.iter().filter_map(of).collect()
    }

    /// What was used of a resource before its counters began anew.
    pub(super) fn carried(&self, id: ContainerId, resource: &Name) -> u64 {
        self.carried.get(&(id, resource.clone())).copied().unwrap_or(0)
    }

    /// Resources that a container used before their counters began anew.
    pub(super) fn carried_of(&self, id: ContainerId) -> impl Iterator<Item = &Name> {
        self.carried.keys().filter(move |(of, _)| *of == id).map(|(_, name)| name)
    }

    /// The counters of a resource begin anew.
    pub(super) fn carry(&mut self, resource: Name, used: Vec<(ContainerId, u64)>) {
        self.note_if_possible(Entry::Carried(resource, used));
    }

    /// Whether a user may have one more file open.
    pub(super) fn admit_file(&self, uid: u32) -> Result<(), Refusal> {
        self.files.admit(uid)
    }

    /// A file of a container was opened, by a user.
    pub(super) fn opened(&mut self, handle: u64, id: ContainerId, uid: u32) -> Result<(), Refusal> {
        if self.files.get(handle) == Some((id, uid)) {
            return Ok(());
        }
        self.admit_file(uid)?;
        self.note(Entry::Opened { handle, id, uid })
    }

    /// See [`super::Room::handle`]. Of 65535 open ones, or where it has no node, the plain one.
    pub(super) fn handle(&self, id: ContainerId, cpu: &TreeKey, plain: Plain) -> u64 {
        let Some(node) = self.node(id, cpu) else { return plain.handle };
        // As with fresh inodes: who is sent again gets what he had.
        let first = u16::try_from(plain.handle >> 1 & 0xffff).unwrap_or(0);
        let places = (0..=u16::MAX).map(|n| first.wrapping_add(n)).filter(|which| *which != 0);
        places
            .map(|which| seed::handle(node, which) | plain.handle & OF_ROOT)
            .find(|handle| plain.resent || self.files.get(*handle).is_none())
            .unwrap_or(plain.handle)
    }

    /// It was closed; answers of which container.
    pub(super) fn closed(&mut self, handle: u64) -> Option<ContainerId> {
        let (id, _) = self.files.get(handle)?;
        self.note_if_possible(Entry::Closed { handle });
        Some(id)
    }

    /// The configuration has made it, to be released when nothing refers to it: not before
    /// something has.
    pub(super) fn keep_unused(&mut self, id: ContainerId) -> Result<(), Refusal> {
        self.note(Entry::Unused(id))
    }

    /// Something refers to it, or did to the last one below it.
    pub(super) fn used(&mut self, id: ContainerId) {
        if self.unused.contains(&id) {
            self.note_if_possible(Entry::Used(id));
        }
    }

    /// Whether nothing has referred to it yet.
    pub(super) fn is_unused(&self, id: ContainerId) -> bool {
        self.unused.contains(&id)
    }

    /// Containers that have open files.
    pub(super) fn open_ones(&self) -> BTreeSet<ContainerId> {
        self.files.iter().map(|(_, (id, _))| id).collect()
    }

    /// Whether somebody has a file of it open.
    pub(super) fn is_open(&self, id: ContainerId) -> bool {
        self.files.iter().any(|(_, (of, _))| of == id)
    }

    /// If this request's change happened: the container that it made, if any.
    pub(super) fn answered(&self, unique: u64) -> Option<Made> {
        self.answered.iter().rev().find(|(of, _)| *of == unique).map(|(_, made)| Made(*made))
    }

    /// A new mount: what requests and inodes of an earlier one meant is void.
    pub(super) fn new_session(&mut self) -> Result<(), Refusal> {
        if self.files.is_empty() && self.fresh.is_empty() && self.answered.is_empty() {
            return Ok(());
        }
        self.note(Entry::Session)
    }

    /// A number for a fresh inode that no worker has used.
    pub(super) fn fresh_number(&mut self) -> Result<u32, Refusal> {
        if self.fresh_next == self.fresh_end {
            let end = self.fresh_end.wrapping_add(FRESH_BLOCK);
            self.note(Entry::Fresh { end })?;
        }
        let number = self.fresh_next;
        self.fresh_next = self.fresh_next.wrapping_add(1);
        Ok(number)
    }

    /// What a fresh inode has become.
    pub(super) fn fresh(&self, ino: u64) -> Option<ContainerId> {
        self.fresh.get(&ino).copied()
    }

    /// Nobody refers to this inode any more.
    pub(super) fn forget(&mut self, fresh: u64) {
        if self.fresh.contains_key(&fresh) {
            self.note_if_possible(Entry::Forgotten { fresh });
        }
    }
}

/// Whether this version reads what another worker left; nothing is changed.
pub fn readable(run: &Path) -> Result<(), Refusal> {
    let path = run.join(FILE);
    let payloads = Journal::read(&path).map_err(|error| Refusal::unread(&path, error))?;
    Book::told(&path, &payloads).map(drop)
}

/// There is nothing to hold containers any more.
pub fn end(run: &Path) {
    let path = run.join(FILE);
    if let Err(error) = std::fs::remove_file(&path)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(%error, path = %path.display(), "not removed");
    }
}

/// The file in the run-time directory.
pub(super) const FILE: &str = "containers";
