// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduling core, as compiled for the host (`sched/host.c`), behind a safe face.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::NonNull;
use std::sync::Arc;

mod cello;
mod owner;
mod view;
mod window;
pub use cello::{Cello, View as CelloView};
pub use owner::Owner;
pub use view::*;
pub use window::{Ante, Window};

include!("../mutants.rs");

#[repr(C)]
struct RawTree {
    _opaque: [u8; 0],
}

type Edit = unsafe extern "C" fn(*mut RawTree, *mut RawBatch) -> c_int;

/// Table of functions of `sched/host.c`; same order.
#[repr(C)]
pub(crate) struct Api {
    bytes: u32,
    batch_bytes: u32,
    node_view_bytes: u32,
    item_view_bytes: u32,
    tree_view_bytes: u32,
    pad0: u32,
    create: unsafe extern "C" fn(u32, u32, u32, u64) -> *mut RawTree,
    destroy: unsafe extern "C" fn(*mut RawTree),
    set: unsafe extern "C" fn(*mut RawTree, u64, u64, u64),
    start_at: unsafe extern "C" fn(*mut RawTree, u64),
    edit: Edit,
    item_new: unsafe extern "C" fn(*mut RawTree, u64, u32, u32) -> u32,
    item_leave: unsafe extern "C" fn(*mut RawTree, u32),
    item_move: unsafe extern "C" fn(*mut RawTree, u32, u64, u64, u64) -> c_int,
    item_units: unsafe extern "C" fn(*mut RawTree, u32, u32, *const u64),
    item_reweight: unsafe extern "C" fn(*mut RawTree, u32, u32),
    wake: unsafe extern "C" fn(*mut RawTree, u32, u64),
    post: unsafe extern "C" fn(*mut RawTree, u32, u64) -> u32,
    drain: unsafe extern "C" fn(*mut RawTree),
    quiet: unsafe extern "C" fn(*mut RawTree, u32, u32, u64) -> c_int,
    remove: unsafe extern "C" fn(*mut RawTree, u32),
    pick: unsafe extern "C" fn(*mut RawTree, u32, u64) -> u32,
    begin: unsafe extern "C" fn(*mut RawTree, u32, u32),
    settle: unsafe extern "C" fn(*mut RawTree, u32, u64, u32, u64),
    preempts: unsafe extern "C" fn(*mut RawTree, u32, u32, u64) -> c_int,
    node_view: unsafe extern "C" fn(*mut RawTree, u64, *mut NodeView) -> c_int,
    node_id: unsafe extern "C" fn(*mut RawTree, u32) -> u64,
    item_view: unsafe extern "C" fn(*mut RawTree, u32, *mut ItemView),
    tree_view: unsafe extern "C" fn(*mut RawTree, *mut TreeView),
    reset: unsafe extern "C" fn(*mut RawTree),
    check: unsafe extern "C" fn(*mut RawTree, *mut c_char, u32) -> u32,
    item_params: unsafe extern "C" fn(*mut RawTree, u32, *const Params, u64) -> c_int,
    victim: unsafe extern "C" fn(*mut RawTree, u32) -> u32,
    own: unsafe extern "C" fn(*mut RawTree, u64),
    state: unsafe extern "C" fn(*mut RawTree, u32) -> u32,
    post_all: unsafe extern "C" fn(*mut RawTree, u32) -> u32,
    stay: unsafe extern "C" fn(*mut RawTree, u32, u32),
    stayed: unsafe extern "C" fn(*mut RawTree, u32),
    item_length: unsafe extern "C" fn(*mut RawTree, u32, u32),
    progress: unsafe extern "C" fn(*mut RawTree, u32),
    near: unsafe extern "C" fn(*mut RawTree, u32),
    lend: unsafe extern "C" fn(*mut RawTree, u32, u32, u64),
    arrive: unsafe extern "C" fn(*mut RawTree, u32, u32),
    item_request: unsafe extern "C" fn(*mut RawTree, u32, u32, u64, u64),
    device: unsafe extern "C" fn(*mut RawTree),
    cello_new: unsafe extern "C" fn(u32, u64) -> *mut cello::Raw,
    cello_free: unsafe extern "C" fn(*mut cello::Raw),
    cello_weight: unsafe extern "C" fn(*mut cello::Raw, u32, u32) -> c_int,
    cello_tune: unsafe extern "C" fn(*mut cello::Raw, u64, u32, u32) -> c_int,
    cello_arrive: unsafe extern "C" fn(*mut cello::Raw, u32, u64, u64, u64, u64) -> u32,
    cello_next: unsafe extern "C" fn(*mut cello::Raw, u64) -> u32,
    cello_done: unsafe extern "C" fn(*mut cello::Raw, u32, u64, u64) -> c_int,
    cello_view: unsafe extern "C" fn(*mut cello::Raw, *mut cello::View),
    window_new: unsafe extern "C" fn(u32, u32, u32) -> *mut window::RawWindow,
    window_free: unsafe extern "C" fn(*mut window::RawWindow),
    window_resize: unsafe extern "C" fn(*mut window::RawWindow, u32, u32) -> c_int,
    window_room: unsafe extern "C" fn(*mut window::RawWindow) -> u32,
    window_put: unsafe extern "C" fn(*mut window::RawWindow, u32, u64) -> c_int,
    window_next: unsafe extern "C" fn(*mut window::RawWindow) -> u32,
    window_done: unsafe extern "C" fn(*mut window::RawWindow),
    ante_new: unsafe extern "C" fn(*mut RawTree, u64) -> *mut window::RawAnte,
    ante_free: unsafe extern "C" fn(*mut window::RawAnte),
    ante_phantom: unsafe extern "C" fn(*mut window::RawAnte) -> u32,
    ante_until: unsafe extern "C" fn(*mut window::RawAnte) -> u64,
    ante_done: unsafe extern "C" fn(*mut RawTree, *mut window::RawAnte, u32, u64) -> c_int,
    ante_arrived: unsafe extern "C" fn(*mut RawTree, *mut window::RawAnte, u64) -> u32,
    ante_expire: unsafe extern "C" fn(*mut RawTree, *mut window::RawAnte, u64) -> u32,
    called: unsafe extern "C" fn(*mut RawTree, u32),
    edit_begin: Edit,
    change: unsafe extern "C" fn(*mut RawTree) -> c_int,
    units: unsafe extern "C" fn(*mut RawTree, u32),
}

/// What an item asks of its queue's class; 0: not set.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as in sched.h")]
pub struct Params {
    pub weight: u32,
    pub priority: u32,
    pub period: u64,
    pub budget: u64,
    pub deadline: u64,
}

unsafe extern "C" {
    safe fn rs_host_api() -> *const Api;
}

mod mutant_table {
    use super::Api;
    include!(concat!(env!("OUT_DIR"), "/mutant_table.rs"));
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawOp {
    code: u32,
    answer: i32,
    node: u64,
    parent: u64,
    a: u64,
    b: u64,
    undo: u64,
    undo2: u64,
}

#[repr(C)]
struct RawBatch {
    seq: u64,
    now: u64,
    count: u32,
    error: i32,
    failed: u32,
    grants: u32,
    op: [RawOp; BATCH_MAX],
}

/// An edit of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as in batch.h")]
pub enum Op {
    Create {
        node: Id,
        parent: Id,
        kind: u32,
        alg: u32,
    },
    Delete {
        node: Id,
        drain: bool,
    },
    Reweight {
        node: Id,
        weight: u32,
    },
    Cap {
        node: Id,
        ppm: u64,
        burst: u64,
    },
    Class {
        node: Id,
        class: u32,
    },
    Policy {
        node: Id,
        policy: u32,
    },
    Limit {
        node: Id,
        members: u64,
    },
    Reset {
        node: Id,
    },
    Move {
        node: Id,
        parent: Id,
    },
    Tune {
        node: Id,
        which: u64,
        value: u64,
    },
    Param {
        node: Id,
        which: u64,
        value: u64,
    },
    /// Anything, for malformed ones.
    Raw {
        code: u32,
        node: Id,
        parent: Id,
        a: u64,
        b: u64,
    },
}

impl Op {
    /// The node it is about.
    pub fn node(self) -> Id {
        self.raw().node
    }

    fn raw(self) -> RawOp {
        let (code, node, parent, a, b) = match self {
            Self::Create { node, parent, kind, alg } => {
                (1, node, parent, u64::from(kind), u64::from(alg))
            }
            Self::Delete { node, drain } => (2, node, 0, u64::from(drain), 0),
            Self::Reweight { node, weight } => (3, node, 0, u64::from(weight), 0),
            Self::Cap { node, ppm, burst } => (4, node, 0, ppm, burst),
            Self::Class { node, class } => (5, node, 0, u64::from(class), 0),
            Self::Policy { node, policy } => (6, node, 0, u64::from(policy), 0),
            Self::Limit { node, members } => (7, node, 0, members, 0),
            Self::Reset { node } => (8, node, 0, 0, 0),
            Self::Move { node, parent } => (9, node, parent, 0, 0),
            Self::Tune { node, which, value } => (10, node, 0, which, value),
            Self::Param { node, which, value } => (11, node, 0, which, value),
            Self::Raw { code, node, parent, a, b } => (code, node, parent, a, b),
        };
        RawOp { code, node, parent, a, b, ..RawOp::default() }
    }
}

/// Why a batch was refused: the errno, negative, and which operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "two words")]
pub struct Refused {
    pub error: i32,
    pub failed: u32,
}

/// A tree of the core, or of a broken variant of it.
pub struct Core {
    api: Functions,
    tree: NonNull<RawTree>,
    alive: Arc<Alive>,
}

/// The tree's memory, while a [`Core`] or an [`Owner`] looks at it.
struct Alive {
    api: Functions,
    tree: NonNull<RawTree>,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("tree", &self.tree()).finish_non_exhaustive()
    }
}

/// Which build of the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// The real one.
    Real,
    /// A mutant, by its place in `MUTANTS`.
    Mutant(usize),
}

/// The functions of the core, or of a broken variant: whoever takes one of them chooses it.
#[derive(Clone, Copy)]
struct Functions {
    table: &'static Api,
    /// 0: none; else the mutant's place and 1.
    mutant: u32,
}

impl std::ops::Deref for Functions {
    type Target = Api;

    fn deref(&self) -> &Api {
        if self.mutant != 0 {
            mutant_table::rs_mutants_choose(self.mutant);
        }
        self.table
    }
}

fn api_of(build: Build) -> Functions {
    let (api, mutant) = match build {
        Build::Real => (rs_host_api(), 0),
        Build::Mutant(n) => {
            assert!(n < MUTANTS.len());
            (mutant_table::rs_mutants_api(), u32::try_from(n).expect("few") + 1)
        }
    };
    // SAFETY: the function answers the address of a constant table.
    let api: &'static Api = unsafe { &*api };
    assert_eq!(api.bytes as usize, size_of::<Api>());
    assert_eq!(api.batch_bytes as usize, size_of::<RawBatch>());
    assert_eq!(api.node_view_bytes as usize, size_of::<NodeView>());
    assert_eq!(api.item_view_bytes as usize, size_of::<ItemView>());
    assert_eq!(api.tree_view_bytes as usize, size_of::<TreeView>());
    Functions { table: api, mutant }
}

/// How a tree is made.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "named as in sched.h")]
pub struct Setup {
    pub build: Build,
    pub nodes: u32,
    pub items: u32,
    pub units: u32,
    pub quantum: u64,
    /// Where every clock starts.
    pub start: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self { build: Build::Real, nodes: 64, items: 64, units: 1, quantum: 4_000_000, start: 0 }
    }
}

impl Core {
    /// An empty tree: the root and q0, the starvation rule switched off.
    ///
    /// # Panics
    /// When host.c and this file disagree about a structure, or memory is exhausted.
    pub fn new(setup: Setup) -> Self {
        let api = api_of(setup.build);
        // SAFETY: no preconditions; null is checked.
        let tree = unsafe { (api.create)(setup.nodes, setup.items, setup.units, setup.quantum) };
        let memory = NonNull::new(tree).expect("memory for a tree");
        let core = Self { api, tree: memory, alive: Arc::new(Alive { api, tree: memory }) };
        core.set(setup.quantum, 0, 0);
        if setup.start != 0 {
            // SAFETY: the tree lives.
            unsafe { (api.start_at)(tree, setup.start) };
        }
        core
    }

    /// Quantum and starvation rule.
    pub fn set(&self, quantum: u64, starve_ns: u64, starve_gap_ns: u64) {
        // SAFETY: the tree lives as long as self; so in all methods below.
        unsafe { (self.api.set)(self.tree.as_ptr(), quantum, starve_ns, starve_gap_ns) }
    }

    /// A batch of edits.
    ///
    /// # Panics
    /// With more than `BATCH_MAX` operations.
    pub fn edit(&mut self, seq: u64, now: u64, ops: &[Op]) -> Result<Vec<i32>, Refused> {
        self.edit_if(0, seq, now, ops)
    }

    /// The same while the tree's `grants` are these; 0: whatever they are.
    ///
    /// # Panics
    /// With more than `BATCH_MAX` operations.
    pub fn edit_if(
        &mut self,
        grants: u32,
        seq: u64,
        now: u64,
        ops: &[Op],
    ) -> Result<Vec<i32>, Refused> {
        self.apply(self.api.edit, grants, seq, now, ops)
    }

    fn apply(
        &mut self,
        edit: Edit,
        grants: u32,
        seq: u64,
        now: u64,
        ops: &[Op],
    ) -> Result<Vec<i32>, Refused> {
        assert!(ops.len() <= BATCH_MAX);
        let mut batch = Box::new(RawBatch {
            seq,
            now,
            count: u32::try_from(ops.len()).expect("checked"),
            error: 0,
            failed: 0,
            grants,
            op: [RawOp::default(); BATCH_MAX],
        });
        for (raw, op) in batch.op.iter_mut().zip(ops) {
            *raw = op.raw();
        }
        // SAFETY: the batch is valid for the call.
        let answer = unsafe { edit(self.tree.as_ptr(), &raw mut *batch) };
        assert_eq!(answer, batch.error);
        if answer == 0 {
            Ok(batch.op[..ops.len()].iter().map(|o| o.answer).collect())
        } else {
            Err(Refused { error: answer, failed: batch.failed })
        }
    }

    /// The same without what comes afterwards in pieces: [`Core::change`] is one of them.
    pub fn edit_begin(&mut self, seq: u64, now: u64, ops: &[Op]) -> Result<Vec<i32>, Refused> {
        self.apply(self.api.edit_begin, 0, seq, now, ops)
    }

    /// One piece. Is there more?
    pub fn change(&mut self) -> bool {
        // SAFETY: as above.
        unsafe { (self.api.change)(self.tree.as_ptr()) != 0 }
    }

    /// Whether some scheduler's policy is changing.
    pub fn changing(&self) -> bool {
        self.tree().changes != 0
    }

    /// One edit that must succeed.
    ///
    /// # Panics
    /// When it is refused.
    pub fn must(&mut self, now: u64, op: Op) -> i32 {
        match self.edit(0, now, &[op]) {
            Ok(answers) => answers[0],
            Err(e) => panic!("{op:?}: {e:?}"),
        }
    }

    /// A new item in a queue; none when the queue does not take it.
    pub fn item_new(&mut self, queue: Id, weight: u32, flags: u32) -> Option<u32> {
        // SAFETY: as above.
        let i = unsafe { (self.api.item_new)(self.tree.as_ptr(), queue, weight, flags) };
        (i != u32::MAX).then_some(i)
    }

    fn known(&self, item: u32) -> u32 {
        assert!(item < self.tree().items_used, "item {item}");
        item
    }

    /// An idle item leaves the tree.
    pub fn item_leave(&mut self, item: u32) {
        // SAFETY: as above; the item is one of the tree's. So in all methods below.
        unsafe { (self.api.item_leave)(self.tree.as_ptr(), self.known(item)) }
    }

    /// Move an item to another queue.
    pub fn item_move(&mut self, item: u32, to: Id, work: u64, now: u64) -> bool {
        // SAFETY: as above.
        unsafe { (self.api.item_move)(self.tree.as_ptr(), self.known(item), to, work, now) != 0 }
    }

    /// The units an item may use; none: all.
    pub fn item_units(&mut self, item: u32, mask: Option<[u64; 4]>) {
        let words = mask.unwrap_or([u64::MAX; 4]);
        // SAFETY: as above; four words are read.
        unsafe {
            (self.api.item_units)(
                self.tree.as_ptr(),
                self.known(item),
                u32::from(mask.is_none()),
                words.as_ptr(),
            );
        }
    }

    /// The tree has so many units from now on.
    pub fn units(&mut self, units: u32) {
        // SAFETY: as above.
        unsafe { (self.api.units)(self.tree.as_ptr(), units) }
    }

    /// Change an item's weight.
    pub fn item_reweight(&mut self, item: u32, weight: u32) {
        // SAFETY: as above.
        unsafe { (self.api.item_reweight)(self.tree.as_ptr(), self.known(item), weight) }
    }

    /// All that an item asks of its queue's class.
    pub fn item_params(&mut self, item: u32, params: Params, now: u64) -> Result<(), i32> {
        // SAFETY: as above; the parameters are read.
        let answer = unsafe {
            (self.api.item_params)(self.tree.as_ptr(), self.known(item), &raw const params, now)
        };
        if answer == 0 { Ok(()) } else { Err(answer) }
    }

    /// A queue competes as its items do from now on: its weight is that of who is runnable in it.
    pub fn own(&mut self, queue: Id) {
        assert!(self.try_node(queue).is_some_and(|n| n.kind == QUEUE), "queue {queue:x}");
        // SAFETY: as above; the node exists.
        unsafe { (self.api.own)(self.tree.as_ptr(), queue) }
    }

    /// Several busy units: the one whose item a queued item should displace.
    pub fn victim(&self, item: u32) -> Option<u32> {
        // SAFETY: as above.
        unsafe { (self.api.victim)(self.tree.as_ptr(), self.known(item)) }.checked_sub(1)
    }

    /// An idle item wants service.
    pub fn wake(&mut self, item: u32, now: u64) {
        // SAFETY: as above.
        unsafe { (self.api.wake)(self.tree.as_ptr(), self.known(item), now) }
    }

    /// An idle item wants service, and is in its queue when [`Core::drain`] has been called.
    pub fn post(&mut self, item: u32, now: u64) -> bool {
        // SAFETY: as above.
        unsafe { (self.api.post)(self.tree.as_ptr(), self.known(item), now) != 0 }
    }

    /// What was posted wakes, in that order.
    pub fn drain(&mut self) {
        // SAFETY: as above.
        unsafe { (self.api.drain)(self.tree.as_ptr()) }
    }

    /// Whether an idle item, when it wakes, surely does not displace one in service for `ran`.
    pub fn wakes_quietly(&mut self, item: u32, cur: u32, ran: u64) -> bool {
        // SAFETY: as above.
        unsafe { (self.api.quiet)(self.tree.as_ptr(), self.known(item), self.known(cur), ran) != 0 }
    }

    /// How long an item's next step will be.
    pub fn item_length(&mut self, item: u32, length: u32) {
        // SAFETY: as above.
        unsafe { (self.api.item_length)(self.tree.as_ptr(), self.known(item), length) }
    }

    /// What a disk's request is: its length, its first sector, when it is due (0: never).
    pub fn item_request(&mut self, item: u32, length: u32, sector: u64, due_at: u64) {
        // SAFETY: as above.
        unsafe {
            (self.api.item_request)(self.tree.as_ptr(), self.known(item), length, sector, due_at);
        }
    }

    /// The units are slots of one device, before anything else happens.
    pub fn device(&mut self) {
        // SAFETY: as above.
        unsafe { (self.api.device)(self.tree.as_ptr()) }
    }

    /// Several units, just before `settle` of `item`: so much of that step was done by `to`, idle
    /// and of the same queue.
    pub fn lend(&mut self, item: u32, to: u32, lent: u64) {
        // SAFETY: as above.
        unsafe { (self.api.lend)(self.tree.as_ptr(), self.known(item), self.known(to), lent) }
    }

    /// Several units: how often in a row a queue's first item is passed over for one that was last
    /// on the unit.
    pub fn near(&mut self, near: u32) {
        // SAFETY: as above.
        unsafe { (self.api.near)(self.tree.as_ptr(), near) }
    }

    /// How much of the step in service is done, for who wakes next; `u32::MAX`: not known.
    pub fn progress(&mut self, done: u32) {
        // SAFETY: as above.
        unsafe { (self.api.progress)(self.tree.as_ptr(), done) }
    }

    /// Work has come for an item's queue.
    pub fn arrive(&mut self, item: u32, work: u32) {
        // SAFETY: as above.
        unsafe { (self.api.arrive)(self.tree.as_ptr(), self.known(item), work) }
    }

    /// A waiting item wants service no longer.
    pub fn remove(&mut self, item: u32) {
        // SAFETY: as above.
        unsafe { (self.api.remove)(self.tree.as_ptr(), self.known(item)) }
    }

    /// A unit is free.
    pub fn pick(&mut self, unit: u32, now: u64) -> Option<u32> {
        // SAFETY: as above.
        let i = unsafe { (self.api.pick)(self.tree.as_ptr(), unit, now) };
        (i != u32::MAX).then_some(i)
    }

    /// A waiting item goes into service without being asked for.
    pub fn begin(&mut self, item: u32, unit: u32) {
        // SAFETY: as above.
        unsafe { (self.api.begin)(self.tree.as_ptr(), self.known(item), unit) }
    }

    /// The thread of an item in service asked for more to do.
    pub fn called(&mut self, item: u32) {
        // SAFETY: as above.
        unsafe { (self.api.called)(self.tree.as_ptr(), self.known(item)) }
    }

    /// A step ended.
    pub fn settle(&mut self, item: u32, work: u64, more: bool, now: u64) {
        // SAFETY: as above.
        unsafe {
            (self.api.settle)(self.tree.as_ptr(), self.known(item), work, u32::from(more), now);
        }
    }

    /// Whether a queued item should displace one in service.
    pub fn preempts(&self, item: u32, cur: u32, ran: u64) -> bool {
        // SAFETY: as above.
        unsafe {
            (self.api.preempts)(self.tree.as_ptr(), self.known(item), self.known(cur), ran) != 0
        }
    }

    /// A node; none when the id is stale.
    pub fn try_node(&self, id: Id) -> Option<NodeView> {
        let mut view = NodeView::default();
        // SAFETY: as above; the view is written.
        (unsafe { (self.api.node_view)(self.tree.as_ptr(), id, &raw mut view) } != 0)
            .then_some(view)
    }

    /// A node that exists.
    ///
    /// # Panics
    /// When it does not.
    pub fn node(&self, id: Id) -> NodeView {
        self.try_node(id).expect("a node")
    }

    /// All nodes.
    pub fn nodes(&self) -> Vec<NodeView> {
        (0..self.tree().nodes_used)
            // SAFETY: as above.
            .filter_map(|i| self.try_node(unsafe { (self.api.node_id)(self.tree.as_ptr(), i) }))
            .collect()
    }

    /// An item.
    pub fn item(&self, item: u32) -> ItemView {
        let mut view = ItemView::default();
        // SAFETY: as above; the view is written.
        unsafe { (self.api.item_view)(self.tree.as_ptr(), self.known(item), &raw mut view) };
        view
    }

    /// The tree.
    pub fn tree(&self) -> TreeView {
        let mut view = TreeView::default();
        // SAFETY: as above; the view is written.
        unsafe { (self.api.tree_view)(self.tree.as_ptr(), &raw mut view) };
        view
    }

    /// Forget the volatile half.
    pub fn reset(&mut self) {
        // SAFETY: as above.
        unsafe { (self.api.reset)(self.tree.as_ptr()) }
    }

    /// Every structural invariant.
    pub fn check(&self) -> Result<(), String> {
        let mut text = [0 as c_char; 256];
        // SAFETY: as above; text has the size that is told.
        let line = unsafe { (self.api.check)(self.tree.as_ptr(), text.as_mut_ptr(), 256) };
        if line == 0 {
            return Ok(());
        }
        // SAFETY: snprintf ended it with a zero.
        let text = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy();
        Err(format!("check.c:{line}: {text}"))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        // SAFETY: created by create, destroyed once.
        unsafe { (self.api.destroy)(self.tree.as_ptr()) }
    }
}
