// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who may no longer use his queue goes back to q0. Whose a process is, is looked up while nothing
//! is locked, for the look may block: by what an exec does not hold up. Its start time may be held
//! up, and is asked of those alone whom an access list names. That is done before a right is taken
//! back, so that where nobody can be looked at, nothing has changed.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use reserv_model::{Caller, NodeId, Party};
use reserv_namespace::Resource;

use super::{Core, Refusal};
use crate::aside::Looker;
use crate::engine::Engine;
use crate::process;
use crate::rights::process_at_once;

/// Looks for who has come since the one before: children of those who are about to fall.
const LOOKS_MAX: u32 = 8;

/// Of whom nothing can be known, because whoever looks at him is held up. He has no right that not
/// everybody has: else he would keep by that what was taken from him.
fn unseen() -> Caller {
    Caller { uid: u32::MAX, gid: u32::MAX, unseen: true, ..Caller::default() }
}

/// Start times of processes that access lists name. `None`: he blocks who looks at him.
#[derive(Clone, Debug, Default)]
pub struct Starts(BTreeMap<i32, Option<u64>>);

impl Starts {
    /// Learns those of them that are not known. EAGAIN where nobody could look at one.
    fn learn(&mut self, looker: &Looker, pids: impl Iterator<Item = i32>) -> Result<(), Refusal> {
        let new: Vec<i32> = pids.filter(|pid| !self.0.contains_key(pid)).collect();
        let found = looker.each(&new, process::start_time);
        self.0.extend(found.seen.into_iter().map(|(pid, start)| (pid, Some(start))));
        let blocking = found.blocking.into_iter().chain(found.beside);
        self.0.extend(blocking.map(|pid| (pid, None)));
        if found.without_room.is_empty() { Ok(()) } else { Err(no_room()) }
    }

    /// With it, where a list names him.
    fn of(&self, who: Caller, named: &BTreeSet<i32>) -> Caller {
        let pid = who.pid.cast_signed();
        match self.0.get(&pid) {
            Some(Some(start)) => Caller { start: *start, ..who },
            None if !named.contains(&pid) => who,
            // Whom the list means he may be, or not.
            _ => Caller { unseen: true, ..who },
        }
    }
}

/// The processes that access lists name which say who may use what is at or below a node.
fn named(engine: &Engine, top: NodeId) -> BTreeSet<i32> {
    let tree = engine.tree();
    let about = tree.iter().filter(|n| tree.is_within(n.id, top) || tree.is_within(top, n.id));
    let parties = about.flat_map(|n| &n.access).filter_map(|entry| entry.party.process);
    parties.map(|(pid, _)| pid.cast_signed()).collect()
}

fn no_room() -> Refusal {
    Refusal {
        errno: libc::EAGAIN,
        text: "nobody can look at some processes, so whether they may stay is not known".into(),
        hint: "without tags fall the right is taken back, and what is tagged stays so".into(),
    }
}

impl Core {
    /// What is to be known before a right is taken back from a party, with `tags fall`, at these
    /// nodes: EAGAIN where it cannot be.
    pub fn before_fall(
        &self,
        nodes: &[(Resource, NodeId)],
        party: &Party,
    ) -> Result<Starts, Refusal> {
        let mut pids: BTreeSet<i32> =
            party.process.iter().map(|(pid, _)| pid.cast_signed()).collect();
        for (resource, top) in nodes {
            pids.extend(named(&*self.engine(*resource)?, *top));
        }
        let mut starts = Starts::default();
        starts.learn(&self.looker, pids.into_iter())?;
        Ok(starts)
    }

    /// Brings threads, descriptors and lists that may no longer use their queue, at or below a
    /// node, back to q0. Of whom nobody can know whose he is, for lack of room, nothing is moved,
    /// and EAGAIN says so.
    pub fn fall(&self, resource: Resource, top: NodeId, mut starts: Starts) -> Result<(), Refusal> {
        let mut known: BTreeMap<i32, Option<Caller>> = BTreeMap::new();
        let mut room = true;
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
            let mut engine = self.engine(resource)?;
            engine.fall_among(top, || all, who, Engine::send_to_q0)?;
            let named = named(&engine, top);
            drop(engine);
            let pids: Vec<i32> = unknown.into_inner().into_iter().collect();
            if pids.is_empty() {
                break;
            }
            let about = pids.iter().copied().filter(|pid| named.contains(pid));
            room &= starts.learn(&self.looker, about).is_ok();
            let looked = self.at_once.each(&pids, process_at_once);
            room &= looked.without_room.is_empty();
            // `None`: he has ended, or stays.
            known.extend(pids.iter().map(|pid| (*pid, None)));
            let blocking = looked.blocking.into_iter().chain(looked.beside);
            known.extend(blocking.map(|pid| (pid, Some(unseen()))));
            let seen = looked.seen.into_iter();
            known.extend(seen.map(|(pid, who)| (pid, Some(starts.of(who, &named)))));
        }
        if room { Ok(()) } else { Err(no_room()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_named_has_his_start_time_or_no_right() {
        let who = |pid: u32| Caller { uid: 7, pid, ..Caller::default() };
        let starts = Starts(BTreeMap::from([(5, Some(77)), (6, None)]));
        let named = BTreeSet::from([5, 6, 8]);
        let of = |pid: u32| starts.of(who(pid), &named);
        assert_eq!((of(5).start, of(5).unseen), (77, false));
        assert!(of(6).unseen && of(8).unseen, "he blocks; he was not looked at");
        assert_eq!(of(9), who(9), "no list is about him");
    }

    #[test]
    fn without_room_for_who_is_named_nothing_is_known_of_him() {
        let own = std::process::id().cast_signed();
        let mut starts = Starts::default();
        let refused = starts.learn(&Looker::without_room(), [own].into_iter());
        assert_eq!(refused.map_err(|refusal| refusal.errno), Err(libc::EAGAIN));
        assert!(starts.0.is_empty());
        let looker = Looker::default();
        starts.learn(&looker, [own, i32::MAX].into_iter()).unwrap();
        assert_eq!(starts.0, BTreeMap::from([(own, process::start_time(own))]));
        starts.learn(&Looker::without_room(), [own].into_iter()).unwrap();
    }
}
