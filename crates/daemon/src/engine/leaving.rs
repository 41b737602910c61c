// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nobody leaves his part of the tree by taking a queue away.
//!
//! What refers to a queue that goes falls to q0: threads and open files that are tagged with it,
//! processes' lists that name it, and whoever is born while it drains. Whoever may not use q0 could
//! leave his share and his cap that way. So he deletes only what nothing refers to. That nothing
//! does any more when it is carried out, the plane sees (threads and open files: a deletion of his
//! refuses members), and the lock (lists are set under it).

use reserv_model::{Caller, DeleteMode, Error, ErrorKind, NodeId, Request, Right, Tree};

use super::{Engine, Refusal};

/// Whether somebody may be in q0.
pub(crate) fn may_use_q0(tree: &Tree, who: &Caller) -> bool {
    who.uid == 0 || tree.decide(who, NodeId::Q0, Right::Use).allowed
}

impl Engine {
    /// Whether somebody may ask for this: by the lists, and by the rule above.
    pub fn permit(&self, who: &Caller, request: &Request) -> Result<(), Refusal> {
        self.tree.permit(who, request)?;
        let Request::Delete { node, mode } = request else { return Ok(()) };
        let Some(id) = self.tree.named(node).filter(|_| !may_use_q0(&self.tree, who)) else {
            return Ok(());
        };
        let refs = self.plane.refs(&[id])?.first().copied().unwrap_or_default();
        let fall = match mode {
            // That it is busy the plane says, as to everybody.
            DeleteMode::Refuse => refs.defaults + refs.child_defaults,
            DeleteMode::Drain | DeleteMode::Flush => refs.sum(),
        };
        if fall == 0 {
            return Ok(());
        }
        let why = format!(
            "{} threads, {} open files and {} lists of processes are in {}, and would be in q0, which uid {} \
             may not use",
            refs.threads,
            refs.descriptors,
            refs.defaults + refs.child_defaults,
            self.tree.shown(id),
            who.uid
        );
        Err(Error::new(ErrorKind::NotPermitted, why).hint("tag them elsewhere first").into())
    }

    /// What somebody asks for, so that nothing falls that was not there when it was permitted.
    pub(super) fn kept_in(&self, who: &Caller, requests: &[Request]) -> Vec<Request> {
        let mut requests = requests.to_vec();
        if !may_use_q0(&self.tree, who) {
            for request in &mut requests {
                if let Request::Delete { mode, .. } = request {
                    *mode = DeleteMode::Refuse;
                }
            }
        }
        requests
    }
}
