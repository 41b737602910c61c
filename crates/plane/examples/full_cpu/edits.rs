// SPDX-License-Identifier: MIT OR Apache-2.0
//! Edits of the tree under load, and what must be refused.

use std::thread;
use std::time::{Duration, Instant};

use reserv_model::{Batch, Class, DeleteMode, Kind, NodeId, Op, Outcome, Policy};
use reserv_plane::{Plane as _, PlaneError, Target, Threads as _};

use crate::setup::{Answer, Load, Setup, check, near, settle, shares, weight};

/// Reweight, create, move and delete while everything is loaded.
pub(crate) fn run_edits() -> Answer {
    let mut s = Setup::new()?;
    let mut load = Load::default();
    let (a, b) = (s.queue(NodeId::ROOT, 100)?, s.queue(NodeId::ROOT, 100)?);
    load.hog(&mut s.plane.0, a)?;
    load.hog(&mut s.plane.0, b)?;
    let start = Instant::now();
    let mut edits = 0_u32;
    let mut made = Vec::new();
    while start.elapsed() < Duration::from_secs(5) {
        let parent = if edits.is_multiple_of(3) {
            s.make(NodeId::ROOT, Kind::Scheduler(Policy::Sfq), 1)?
        } else {
            NodeId::ROOT
        };
        let q = s.queue(parent, 1 + edits % 7)?;
        let hog_home = if parent == NodeId::ROOT { a } else { q };
        s.apply(vec![
            Op::Move { id: q, parent: NodeId::ROOT },
            Op::Reweight { id: q, weight: weight(3) },
        ])?;
        if edits.is_multiple_of(5) {
            s.plane.0.tag(Target::Process(i32::try_from(load.0[0].id())?), hog_home)?;
            s.apply(vec![Op::SetClass {
                id: hog_home,
                class: Class::ALL[(edits as usize / 5) % 4],
            }])?;
            s.plane.0.tag(Target::Process(i32::try_from(load.0[0].id())?), a)?;
        }
        made.push(q);
        if parent != NodeId::ROOT {
            made.push(parent);
        }
        if made.len() > 100 {
            let ops =
                made.drain(..).map(|id| Op::Delete { id, mode: DeleteMode::Refuse }).collect();
            s.apply(ops)?;
        }
        edits += 1;
        if s.next > 14_000 {
            break;
        }
    }
    println!("# {edits} rounds of 3 to 6 edits in {:.1} s", start.elapsed().as_secs_f64());
    s.health("after edits under load")?;
    s.apply(vec![Op::SetClass { id: a, class: Class::Ts }])?;
    settle();
    near(
        &shares(&s.plane.0, &[a, b], Duration::from_secs(5))?,
        &[0.5, 0.5],
        0.01,
        "shares hold after the edits",
    );

    // What must be refused, and changes nothing.
    let refused =
        |answer: Result<Vec<Outcome>, PlaneError>, what: &str| check(answer.is_err(), what);
    let before = s.plane.0.sample()?.len();
    let fresh = NodeId { index: s.next, generation: 1 };
    refused(
        s.apply(vec![Op::Reweight { id: fresh, weight: weight(1) }]),
        "an unknown node is refused",
    );
    refused(
        s.apply(vec![Op::Delete { id: a, mode: DeleteMode::Refuse }]),
        "a queue with members is not deleted",
    );
    refused(
        s.apply(vec![
            Op::Create { id: fresh, parent: NodeId::ROOT, kind: Kind::Queue(Class::Ts) },
            Op::Delete { id: NodeId::Q0, mode: DeleteMode::Drain },
        ]),
        "a batch with a bad edit is refused",
    );
    check(s.plane.0.sample()?.len() == before, "and nothing of it is in effect");
    let seq = s.seq;
    check(s.plane.0.applied_seq()?.is_some_and(|n| n < seq), "nor is its number");
    let old = s.plane.0.apply(&Batch { seq: 1, ops: Vec::new() });
    check(old.is_err(), "an old number is refused");
    // Draining and flushing.
    let outcome = s.apply(vec![Op::Delete { id: b, mode: DeleteMode::Drain }])?;
    check(outcome == [Outcome::Draining], "a queue with a member drains");
    let pid = i32::try_from(load.0[1].id())?;
    check(s.plane.0.tag(Target::Thread(pid), b).is_ok(), "its member may be tagged with it again");
    load.0[1].kill()?;
    load.0[1].wait()?;
    let mut gone = Vec::new();
    for _ in 0..200 {
        gone = s.plane.0.collect_drained()?;
        if !gone.is_empty() {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    check(gone == [b], "and is gone with it");
    check(s.plane.0.tag(Target::Thread(pid), b).is_err(), "a stale handle is an error");
    let outcome = s.apply(vec![Op::Delete { id: a, mode: DeleteMode::Flush }])?;
    check(outcome == [Outcome::Done], "a flushed queue goes at once");
    let pid = i32::try_from(load.0[0].id())?;
    check(s.plane.0.tag_of(pid)? == NodeId::Q0, "its member is in q0");
    Ok(())
}
