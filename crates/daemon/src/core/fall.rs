// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who may no longer use his queue goes back to q0. Whose a process is, is looked up while nothing
//! is locked, for the look may block.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use reserv_model::{Caller, NodeId};
use reserv_namespace::Resource;

use super::{Core, Refusal};
use crate::engine::Engine;
use crate::process;
use crate::rights::process_as_caller;

/// Looks for who has come since the one before: children of those who are about to fall.
const LOOKS_MAX: u32 = 8;

/// Of whom nothing can be known, because whoever looks at him is held up. He has no right that not
/// everybody has: else he would keep by that what was taken from him.
fn unseen() -> Caller {
    Caller { uid: u32::MAX, gid: u32::MAX, unseen: true, ..Caller::default() }
}

impl Core {
    /// Brings threads, descriptors and lists that may no longer use their queue, at or below a
    /// node, back to q0.
    pub fn fall(&self, resource: Resource, top: NodeId) -> Result<(), Refusal> {
        let mut known: BTreeMap<i32, Option<Caller>> = BTreeMap::new();
        for look in 0..=LOOKS_MAX {
            let all = process::all();
            let unknown: RefCell<BTreeSet<i32>> = RefCell::default();
            let who = |pid: i32| match known.get(&pid) {
                Some(who) => who.clone(),
                None if look == LOOKS_MAX => Some(unseen()),
                None => {
                    unknown.borrow_mut().insert(pid);
                    None
                }
            };
            self.engine(resource)?.fall_among(top, || all, who, Engine::send_to_q0)?;
            let pids: Vec<i32> = unknown.into_inner().into_iter().collect();
            if pids.is_empty() {
                break;
            }
            let looked = self.looker.each(&pids, |pid| Some(process_as_caller(pid)));
            known.extend(pids.iter().map(|pid| (*pid, Some(unseen()))));
            // `None`: he has ended.
            known.extend(looked);
        }
        Ok(())
    }
}
