// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the cgroups match a mirror.
//!
//! In this order, so that a failure can be undone and a reader never sees a thread without a queue:
//! 1. directories that are missing, parents first;
//! 2. attributes that differ;
//! 3. threads of moved nodes go to the new directory, those of deleted ones home;
//! 4. the caller writes down the counters of what is about to go;
//! 5. directories that are no longer wanted, children first.

use std::collections::BTreeMap;

use reserv_model::NodeId;

use super::cg::{Cg, gone, os};
use super::mirror::{Attr, Carried, Mirror};
use super::state::Leaving;
use crate::PlaneError;
use crate::cgroup::origin::Origins;
use crate::cgroup::parse_component;
use crate::cgroup::weights::Share;

/// A directory of ours as it is.
#[derive(Clone, Debug)]
pub(super) struct Actual {
    pub(super) id: NodeId,
    pub(super) scheduler: bool,
    pub(super) path: String,
    /// `None`: not known.
    pub(super) attr: Option<Attr>,
}

/// What happened, complete up to the step that failed.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) leaving: Vec<Leaving>,
    /// Threads sent home, with the queue they were in.
    pub(super) flushed: Vec<(i32, NodeId)>,
}

/// How often a directory is emptied again because somebody in it forked.
const ROUNDS: usize = 200;

/// Our directories, parents first; names that are not ours are left alone.
pub(super) fn scan(cg: &Cg) -> Result<Vec<Actual>, PlaneError> {
    let mut out = Vec::new();
    if cg.present() {
        let attr = cg.read_attr("");
        out.push(Actual { id: NodeId::ROOT, scheduler: true, path: String::new(), attr });
    }
    let mut at = 0;
    while let Some(path) = out.get(at).map(|a| a.path.clone()) {
        let mut names = Vec::new();
        // A crash may have left a directory in one hierarchy only.
        for dir in cg.dirs(&path) {
            match cg.kernel().list(&dir) {
                Ok(list) => names.extend(list),
                Err(e) if gone(&e) => {}
                Err(e) => return Err(os(format!("list {dir}"))(e)),
            }
        }
        names.sort();
        names.dedup();
        for name in names {
            if let Some((id, scheduler)) = parse_component(&name) {
                let path = format!("{path}/{name}");
                let attr = cg.read_attr(&path);
                out.push(Actual { id, scheduler, path, attr });
            }
        }
        at += 1;
    }
    Ok(out)
}

/// Whether our root has no directory below it, of whatever name.
pub(super) fn empty(cg: &Cg) -> bool {
    cg.dirs("").iter().all(|dir| cg.kernel().list(dir).map_or(true, |names| names.is_empty()))
}

/// See the module. `paths` and `attrs` are those of `desired`, of all nodes or of those that
/// `actual` is about.
#[expect(clippy::too_many_arguments, reason = "each is one side of the comparison")]
pub(super) fn sync(
    cg: &Cg,
    origins: &mut Origins,
    actual: &[Actual],
    desired: &Mirror,
    paths: &[(NodeId, String)],
    attrs: &BTreeMap<NodeId, Attr>,
    log: &mut Log,
    before_removal: &mut dyn FnMut(&Log) -> Result<(), PlaneError>,
) -> Result<(), PlaneError> {
    let known: BTreeMap<&str, &Actual> = actual.iter().map(|a| (a.path.as_str(), a)).collect();
    let wanted: BTreeMap<NodeId, &str> =
        paths.iter().map(|(id, path)| (*id, path.as_str())).collect();

    for (id, path) in paths {
        if known.get(path.as_str()).is_none_or(|a| a.attr.is_none()) {
            cg.make(path, desired.get(*id)?.scheduler)?;
        }
    }
    attributes(cg, &known, paths, attrs)?;

    let q0 = cg.dirs(&desired.path(NodeId::Q0)?);
    let surplus: Vec<&Actual> =
        actual.iter().filter(|a| wanted.get(&a.id).is_none_or(|path| *path != a.path)).collect();
    for a in &surplus {
        match wanted.get(&a.id) {
            Some(path) => migrate(cg, &a.path, &cg.dirs(path))?,
            None => flush(cg, origins, a, &q0, log)?,
        }
        // Of a deleted node too: should the batch be undone, it comes back with them.
        let carried = Carried {
            service_ns: cg.usage_ns(&a.path).unwrap_or(0),
            throttled_ns: cg.throttled_ns(&a.path).unwrap_or(0),
        };
        log.leaving.push(Leaving { id: a.id, path: a.path.clone(), carried });
    }
    if !log.leaving.is_empty() {
        before_removal(log)?;
    }
    for a in surplus.iter().rev() {
        let mut rounds = 0;
        while !cg.unmake(&a.path)? {
            rounds += 1;
            if rounds == ROUNDS {
                return Err(PlaneError::Busy(format!("{} does not become empty", a.path)));
            }
            match wanted.get(&a.id) {
                Some(path) => migrate(cg, &a.path, &cg.dirs(path))?,
                None => flush(cg, origins, a, &q0, log)?,
            }
        }
    }
    Ok(())
}

fn attributes(
    cg: &Cg,
    known: &BTreeMap<&str, &Actual>,
    paths: &[(NodeId, String)],
    attrs: &BTreeMap<NodeId, Attr>,
) -> Result<(), PlaneError> {
    let idle = cg.has_idle();
    let mut quotas = Vec::new();
    for (id, path) in paths {
        let Some(want) = attrs.get(id) else { continue };
        let have = known.get(path.as_str()).and_then(|a| a.attr);
        if have.map(|a| a.share) != Some(want.share) {
            let was_idle = have.is_none_or(|a| a.share == Share::Idle);
            cg.set_share(path, want.share, idle && was_idle)?;
        }
        let had = have.and_then(|a| a.quota);
        if had != want.quota {
            quotas.push((path, had, want.quota));
        }
    }
    // Where a child's quota may not exceed its parent's, several changes at once could pass through
    // a forbidden state: lift all of them first, which is always allowed, then set them from the
    // top down.
    if cg.flavour().quotas_nest() && quotas.len() > 1 {
        for (path, had, _) in &quotas {
            if had.is_some() {
                cg.set_quota(path, None)?;
            }
        }
    }
    for (path, _, want) in quotas {
        cg.set_quota(path, want)?;
    }
    Ok(())
}

/// Moves everybody from a directory until nobody is left.
pub(super) fn migrate(cg: &Cg, from: &str, to: &[String]) -> Result<(), PlaneError> {
    for _ in 0..ROUNDS {
        let tids = cg.tids(from)?;
        if tids.is_empty() {
            return Ok(());
        }
        for tid in tids {
            match cg.put_thread(to, tid) {
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => cg.kernel().pause(),
                Err(e) => return Err(os(format!("move thread {tid} from {from} to {}", to[0]))(e)),
                Ok(()) => {}
            }
        }
    }
    Err(PlaneError::Busy(format!("{from} does not become empty")))
}

fn flush(
    cg: &Cg,
    origins: &mut Origins,
    a: &Actual,
    q0: &[String],
    log: &mut Log,
) -> Result<(), PlaneError> {
    for _ in 0..ROUNDS {
        let tids = cg.tids(&a.path)?;
        if tids.is_empty() {
            return Ok(());
        }
        for tid in tids {
            log.flushed.push((tid, a.id));
            if !origins.release_thread(cg, tid, q0)? {
                cg.kernel().pause();
            }
        }
    }
    Err(PlaneError::Busy(format!("{} does not become empty", a.path)))
}
