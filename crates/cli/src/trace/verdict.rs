// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether what a parent's policy, and a queue's class, promises held in a trace. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

use super::books::{Books, EDF, EEVDF, MTRLS, Node, PRIO, SFQ, slot};
use super::fair::Duo;
use super::rear::TICK_NS;

/// The turn of mtrls where none is set (sched/policy_mtrls.c).
const TURN_NS: u64 = 100_000_000;

/// HOLDS, BROKEN, or neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    /// The bound holds for every interval of the trace.
    Holds,
    /// It does not.
    Broken,
    /// It cannot be said; the reason stands beside.
    Unclear,
}

/// Whether the bound of its parent's policy holds for a node.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Verdict {
    pub(super) outcome: Outcome,
    /// The bound's name, or why there is none.
    pub(super) what: String,
    /// The sibling with which it comes closest to the bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) with: Option<String>,
    /// The largest difference of normalised service in any interval in which both wanted it, ns per
    /// weight of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) worst_ns: Option<u64>,
    /// What the theorem allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bound_ns: Option<u64>,
    /// Siblings with which it was compared.
    pub(super) compared: usize,
}

/// The node, or something below it, had a cap.
fn capped(books: &Books, id: u64) -> bool {
    books.nodes.get(&id).is_some_and(|n| n.capped)
        || books.nodes.iter().any(|(child, n)| {
            n.parent == id && *child != id && slot(*child) != 0 && capped(books, *child)
        })
}

fn unclear(what: impl Into<String>) -> Verdict {
    Verdict {
        outcome: Outcome::Unclear,
        what: what.into(),
        with: None,
        worst_ns: None,
        bound_ns: None,
        compared: 0,
    }
}

/// The verdict of a node by its parent's policy.
pub(super) fn judge(
    books: &Books,
    names: &BTreeMap<u64, String>,
    id: u64,
    doubt: Option<&str>,
) -> Verdict {
    let node = &books.nodes[&id];
    if let Some(doubt) = doubt {
        return unclear(doubt);
    }
    if slot(id) == 0 {
        return unclear("it has no siblings");
    }
    let Some(parent) = books.nodes.get(&node.parent) else {
        return unclear("its parent is not in the trace");
    };
    let name = match parent.alg {
        SFQ => "SFQ-1",
        EEVDF => "EV-1",
        MTRLS => "MTR-1, 2 and 3",
        PRIO => "prio's order",
        _ => return unclear("its parent's policy has no bound here yet"),
    };
    if books.cpus > 1 {
        return unclear(format!("{name}: of one CPU; there are {}", books.cpus));
    }
    if node.weight == 0 {
        return unclear("it is background");
    }
    if capped(books, id) {
        return unclear("a cap holds it back, or something below it");
    }
    if parent.changes > 0 {
        return unclear("its parent's policy, or what is tuned there, changed");
    }
    if !books.groups.contains_key(&node.parent) {
        return unclear("it never wanted service");
    }
    if parent.alg == SFQ {
        return sfq(books, names, id);
    }
    let Some((own, quantum)) = parent.tuned else {
        return unclear("the scheduler that was traced does not tell its tunables");
    };
    let mut findings = match parent.alg {
        EEVDF => eevdf(books, id, parent, own, quantum),
        MTRLS => mtrls(books, id, parent, own, quantum),
        _ => prio(books, id, quantum),
    };
    // The one that comes closest to its bound: seen / allowed, compared without dividing.
    findings.sort_by(|a, b| {
        (u128::from(b.seen) * u128::from(a.allowed))
            .cmp(&(u128::from(a.seen) * u128::from(b.allowed)))
    });
    let Some(worst) = findings.first() else {
        return unclear(if parent.alg == PRIO {
            "no sibling of a strictly lower level wanted service at the same time"
        } else {
            "no sibling wanted service at the same time"
        });
    };
    let mut verdict = Verdict {
        outcome: if worst.seen <= worst.allowed { Outcome::Holds } else { Outcome::Broken },
        what: worst.what.into(),
        with: None,
        worst_ns: Some(worst.seen),
        bound_ns: Some(worst.allowed),
        compared: findings.len(),
    };
    let disturbed = parent.forced > 0 || books.starved[0] != books.starved[1];
    if verdict.outcome == Outcome::Broken && disturbed {
        verdict.outcome = Outcome::Unclear;
        verdict.what += " (passed, but threads that the tree had not chosen were served)";
    }
    verdict
}

/// One bound, in ns.
struct Finding {
    what: &'static str,
    seen: u64,
    allowed: u64,
}

fn ns(x: i64) -> u64 {
    u64::try_from(x).unwrap_or(0)
}

/// EV-1 (`lags.rs` has the bounds).
fn eevdf(books: &Books, id: u64, parent: &Node, lag: u64, quantum: u64) -> Vec<Finding> {
    let node = &books.nodes[&id];
    let Some(lags) = books.lags.get(&node.parent) else { return Vec::new() };
    let (Some((low, high)), true) = (lags.seen.get(&id), lags.most > 1) else { return Vec::new() };
    let q = parent.step_max.max(quantum);
    let request =
        if node.request == 0 || (lag > 0 && node.request > lag) { lag } else { node.request };
    // New weights are rounded, and requests go on at the old ones.
    let more = if books.nodes.values().any(|n| n.parent == node.parent && n.reweights > 0) {
        2 * q
    } else {
        0
    };
    vec![
        Finding { what: "EV-1, ahead of its fluid share", seen: ns(-low), allowed: 2 * q + more },
        Finding {
            what: "EV-1, behind its fluid share",
            seen: ns(*high),
            allowed: request.max(lags.most * q) + more,
        },
    ]
}

/// MTR-1, MTR-2, MTR-3 (`rear.rs`).
fn mtrls(books: &Books, id: u64, parent: &Node, turn: u64, quantum: u64) -> Vec<Finding> {
    let node = &books.nodes[&id];
    let Some(rear) = books.rears.get(&node.parent) else { return Vec::new() };
    let turn = if turn == 0 { TURN_NS } else { turn };
    let late = TICK_NS.max(parent.step_max.saturating_sub(quantum));
    let mut findings = Vec::new();
    for ((child, ..), worst) in &rear.worst {
        if *child == id && worst.weight > 0 && worst.children > 1 {
            let (seen, allowed) = worst.mtr_1(turn, late);
            findings.push(Finding { what: "MTR-1, behind a CPU of its own", seen, allowed });
            let (seen, allowed) = worst.mtr_3(turn, late);
            findings.push(Finding { what: "MTR-3, from wake-up to service", seen, allowed });
        }
    }
    // Pairs: |W_a/alpha_a − W_b/alpha_b| ≤ 2T + d/alpha_a + d/alpha_b; where weights changed
    // meanwhile alpha is not known there.
    if books.nodes.values().any(|n| n.parent == node.parent && (n.reweights > 0 || n.gone)) {
        return findings;
    }
    let Some(group) = books.groups.get(&node.parent) else { return findings };
    let total = i128::from(rear.total());
    for (duo, spread) in group.worst.iter().chain(&group.early) {
        let other = if duo.a == id { duo.b } else { duo.a };
        if (duo.a != id && duo.b != id) || capped(books, other) {
            continue;
        }
        // Of the smaller alpha's work, so that both are of a size that people know.
        let (a, b) = (i128::from(duo.weight_a), i128::from(duo.weight_b));
        let large = a.max(b);
        let allowed = 2 * i128::from(turn) * a * b / total + i128::from(late) * (a + b);
        let whole = |x: i128| u64::try_from(x / large).unwrap_or(u64::MAX);
        findings.push(Finding {
            what: "MTR-2, beside a sibling",
            seen: whole(*spread),
            allowed: whole(allowed),
        });
    }
    findings
}

/// Strict order (`level.rs`): the step under way, which ends at a tick.
fn prio(books: &Books, id: u64, quantum: u64) -> Vec<Finding> {
    let levels = books.levels.get(&books.nodes[&id].parent);
    let Some(seen) = levels.and_then(|l| l.passed.get(&id)).copied() else { return Vec::new() };
    let what = "prio's order, what lower levels had while it waited";
    vec![Finding { what, seen, allowed: quantum + TICK_NS }]
}

/// The verdict of a queue by its own class: edf only.
pub(super) fn judge_class(books: &Books, id: u64, doubt: Option<&str>) -> Option<Verdict> {
    let node = &books.nodes[&id];
    if !node.queue || node.alg != EDF {
        return None;
    }
    let said = |what: &str| Some(unclear(format!("edf: {what}")));
    if let Some(doubt) = doubt {
        return said(doubt);
    }
    if node.changes > 0 {
        return said("its class changed");
    }
    let Some((jobs, allowed)) = books.deadlines.of(id, node.step_max) else {
        return said("none of its threads has a deadline");
    };
    let what = format!(
        "edf: {} of {} jobs that kept their budget were late ({} wanted more)",
        jobs.late, jobs.judged, jobs.over
    );
    if books.cpus > 1 {
        return Some(unclear(format!(
            "{what}; there is a bound for one CPU, and there are {}",
            books.cpus
        )));
    }
    if jobs.judged == 0 {
        return said("no job began with a period that is certain");
    }
    let mut verdict = unclear(what);
    verdict.outcome = if jobs.worst <= allowed { Outcome::Holds } else { Outcome::Broken };
    (verdict.worst_ns, verdict.bound_ns) = (Some(jobs.worst), Some(allowed));
    if verdict.outcome == Outcome::Broken && books.forced > 0 {
        verdict.outcome = Outcome::Unclear;
        verdict.what +=
            " (later than allowed, but threads that the tree had not chosen were served)";
    }
    Some(verdict)
}

/// SFQ-1.
fn sfq(books: &Books, names: &BTreeMap<u64, String>, id: u64) -> Verdict {
    let node = &books.nodes[&id];
    let step = |id: u64| books.nodes.get(&id).map_or(0, |n| n.step_max);
    // |W_a/w_a − W_b/w_b| ≤ l_a/w_a + l_b/w_b, times w_a·w_b. Tags have fractions of 2^-20: one ns more on each side.
    let bound = |duo: &Duo| {
        i128::from(step(duo.a) + 1) * i128::from(duo.weight_b)
            + i128::from(step(duo.b) + 1) * i128::from(duo.weight_a)
    };
    let mut worst: Option<(Duo, i128)> = None;
    let mut others = std::collections::BTreeSet::new();
    let Some(group) = books.groups.get(&node.parent) else {
        return unclear("it never wanted service");
    };
    for (duo, spread) in &group.worst {
        let other = if duo.a == id { duo.b } else { duo.a };
        if (duo.a != id && duo.b != id) || *spread == 0 || capped(books, other) {
            continue;
        }
        others.insert(other);
        // spread / bound, compared without dividing
        if worst.is_none_or(|(d, s)| spread * bound(&d) > s * bound(duo)) {
            worst = Some((*duo, *spread));
        }
    }
    // Before its first step a tag holds one that nobody saw: as long as the longest of all, or
    // three quanta.
    let long =
        i128::from(books.nodes.get(&node.parent).map_or(0, |p| p.step_max).max(3 * books.quantum));
    for (duo, spread) in &group.early {
        let other = if duo.a == id { duo.b } else { duo.a };
        if (duo.a == id || duo.b == id) && !capped(books, other) {
            let allowed = 2 * long * i128::from(duo.weight_a + duo.weight_b);
            if *spread > allowed {
                let mut verdict = unclear(
                    "SFQ-1: it, or a sibling, waited longer for its first step than any step explains",
                );
                verdict.outcome = Outcome::Broken;
                return verdict;
            }
        }
    }
    let Some((duo, spread)) = worst else {
        return unclear("no sibling wanted service at the same time");
    };
    let other = if duo.a == id { duo.b } else { duo.a };
    let normal = |x: i128| {
        u64::try_from(x * 1000 / (i128::from(duo.weight_a) * i128::from(duo.weight_b)))
            .unwrap_or(u64::MAX)
    };
    let holds = spread <= bound(&duo);
    let mut verdict = Verdict {
        outcome: if holds { Outcome::Holds } else { Outcome::Broken },
        what: "SFQ-1".into(),
        with: Some(names.get(&other).cloned().unwrap_or_else(|| format!("#{}", slot(other)))),
        worst_ns: Some(normal(spread)),
        bound_ns: Some(normal(bound(&duo))),
        compared: others.len(),
    };
    if !holds && books.starved[0] != books.starved[1] {
        verdict.outcome = Outcome::Unclear;
        verdict.what =
            "SFQ-1 does not hold, but threads that had waited too long were served out of order"
                .into();
    }
    if group.too_many && holds {
        verdict.outcome = Outcome::Unclear;
        verdict.what =
            "SFQ-1 holds as far as compared; more siblings wanted at once than are".into();
    }
    verdict
}
