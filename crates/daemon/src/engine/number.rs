// SPDX-License-Identifier: MIT OR Apache-2.0
//! A number means its process or thread as long as that lives, and then somebody else. What was
//! learnt of a number earlier (who is in a queue, whose list names it) is done to whom it was
//! learnt of, or to nobody.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use reserv_model::NodeId;
use reserv_plane::{List, PlaneError, Target};

use super::{Engine, Refusal};
use crate::process;

/// What a number has of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tagged {
    /// The thread is a member.
    Thread,
    /// A list of the process names it.
    List(List),
}

/// Whom a number means now, if he is one of those: `is` is asked once he is held, so that it was
/// about him. `None`: it means nobody, or somebody else.
pub(crate) fn held_if(
    tid: i32,
    is: impl FnOnce() -> Result<bool, PlaneError>,
) -> Result<Option<OwnedFd>, Refusal> {
    let held = match process::hold(tid) {
        Ok(held) => held,
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            return Err(Refusal::new(errno, format!("process or thread {tid}: {error}")));
        }
    };
    let is = match is() {
        Err(PlaneError::NoProcess(_)) => false,
        answer => answer?,
    };
    Ok((is && process::require_alive(held.as_fd(), tid).is_ok()).then_some(held))
}

impl Engine {
    /// Does something to who is held, by his number. Where he has ended by then it is taken back:
    /// the number may be somebody else's, and he was not meant.
    pub(crate) fn act_on_held(
        &mut self,
        (held, tid): (BorrowedFd<'_>, i32),
        act: impl FnOnce(&mut Self) -> Result<(), Refusal>,
        back: impl FnOnce(&mut Self) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        process::require_alive(held, tid)?;
        act(self)?;
        let Err(gone) = process::require_alive(held, tid) else { return Ok(()) };
        match back(self) {
            Err(refusal) if refusal.errno != libc::ESRCH => Err(refusal),
            _ => Err(gone.into()),
        }
    }

    /// Tags a thread that is held.
    pub(crate) fn tag_held(
        &mut self,
        (held, tid): (BorrowedFd<'_>, i32),
        queue: NodeId,
    ) -> Result<(), Refusal> {
        let tag = |engine: &mut Self, queue| -> Result<(), Refusal> {
            Ok(engine.plane_mut().tag(Target::Thread(tid), queue).map(drop)?)
        };
        self.act_on_held((held, tid), |engine| tag(engine, queue), |engine| tag(engine, NodeId::Q0))
    }

    /// Sets a list of a process that is held.
    pub(crate) fn list_held(
        &mut self,
        (held, pid): (BorrowedFd<'_>, i32),
        list: List,
        queue: NodeId,
    ) -> Result<(), Refusal> {
        let set = |engine: &mut Self, queue| -> Result<(), Refusal> {
            Ok(engine.plane_mut().set_default(pid, list, queue)?)
        };
        self.act_on_held((held, pid), |engine| set(engine, queue), |engine| set(engine, NodeId::Q0))
    }

    /// Moves a member of a queue to q0, or lets a list name that, if it is so still: who has the
    /// number by now, and is in another queue, stays in that.
    pub(crate) fn send_to_q0(
        &mut self,
        tid: i32,
        what: Tagged,
        from: NodeId,
    ) -> Result<(), Refusal> {
        let there = || {
            Ok(match what {
                // Who is in q0 already, by a plane that does not tell of queues that go, loses
                // nothing.
                Tagged::Thread => [from, NodeId::Q0].contains(&self.plane.tag_of(tid)?),
                Tagged::List(List::Default) => self.plane.defaults(tid)?.default == from,
                Tagged::List(List::Child) => self.plane.defaults(tid)?.child == from,
            })
        };
        let Some(held) = held_if(tid, there)? else { return Ok(()) };
        let held = (held.as_fd(), tid);
        let done = match what {
            Tagged::Thread => self.tag_held(held, NodeId::Q0),
            Tagged::List(list) => self.list_held(held, list, NodeId::Q0),
        };
        match done {
            Err(refusal) if refusal.errno == libc::ESRCH => Ok(()),
            done => done,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use reserv_model::{DeleteMode, NewKind, NodeId, Request, ResourceKind};
    use reserv_plane::{List, Target};

    use super::*;
    use crate::engine::Undo;
    use crate::fake::FakePlane;

    fn sleeper() -> (Child, i32) {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id().cast_signed();
        (child, pid)
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn engine(dir: &std::path::Path) -> (Engine, [NodeId; 2]) {
        let plane = FakePlane::start(&dir.join("plane")).unwrap();
        let of = (reserv_model::Name::new("cpu").unwrap(), ResourceKind::Cpu);
        let mut engine = Engine::open(&dir.join("journal"), of, Box::new(plane), false).unwrap().0;
        let queues = ["a", "b"].map(|name| {
            let queue = Request::Create {
                parent: NodeId::ROOT.into(),
                name: Some(reserv_model::Name::new(name).unwrap()),
                kind: NewKind::Queue(None),
                share: None,
            };
            engine.edit(&[queue], None).unwrap().created[0]
        });
        (engine, queues)
    }

    /// From now on a number stands for one who has ended; what is asked of it is answered by who
    /// has it now.
    fn number_of_another(tid: i32) {
        let (child, pid) = sleeper();
        let held = process::hold(pid).unwrap();
        end(child);
        process::pretend(tid, held);
    }

    #[test]
    fn who_has_a_number_by_now_is_not_tagged() {
        let dir = tempfile::tempdir().unwrap();
        let (mut engine, [a, b]) = engine(dir.path());
        let (child, pid) = sleeper();
        engine.plane_mut().tag(Target::Process(pid), a).unwrap();
        engine.send_to_q0(pid, Tagged::Thread, b).unwrap();
        assert_eq!(engine.plane().tag_of(pid).unwrap(), a, "he is in another queue");
        engine.send_to_q0(pid, Tagged::Thread, a).unwrap();
        assert_eq!(engine.plane().tag_of(pid).unwrap(), NodeId::Q0, "he is moved");
        engine.plane_mut().tag(Target::Process(pid), a).unwrap();
        number_of_another(pid);
        engine.send_to_q0(pid, Tagged::Thread, a).unwrap();
        assert_eq!(engine.plane().tag_of(pid).unwrap(), a, "he was not meant");
        end(child);
    }

    #[test]
    fn who_has_a_number_by_now_keeps_his_lists() {
        let dir = tempfile::tempdir().unwrap();
        let (mut engine, [a, b]) = engine(dir.path());
        let (child, pid) = sleeper();
        let list = Tagged::List(List::Child);
        engine.plane_mut().set_default(pid, List::Child, a).unwrap();
        engine.plane_mut().set_default(pid, List::Default, b).unwrap();
        engine.send_to_q0(pid, list, b).unwrap();
        assert_eq!(engine.plane().defaults(pid).unwrap().child, a, "it names another queue");
        engine.send_to_q0(pid, list, a).unwrap();
        let both = engine.plane().defaults(pid).unwrap();
        assert_eq!((both.default, both.child), (b, NodeId::Q0), "it falls, alone");
        engine.plane_mut().set_default(pid, List::Child, a).unwrap();
        number_of_another(pid);
        engine.send_to_q0(pid, list, a).unwrap();
        assert_eq!(engine.plane().defaults(pid).unwrap().child, a, "he was not meant");
        end(child);
    }

    #[test]
    fn who_ends_while_it_is_asked_is_nobody() {
        let (child, pid) = sleeper();
        let asked = || {
            end(child);
            Ok(true)
        };
        assert!(held_if(pid, asked).unwrap().is_none(), "the answer may be about another");
        let (child, pid) = sleeper();
        assert!(held_if(pid, || Ok(false)).unwrap().is_none(), "he is not one of those");
        assert!(held_if(pid, || Ok(true)).unwrap().is_some(), "he lives and is");
        end(child);
    }

    #[test]
    fn who_ends_while_he_is_tagged_is_put_back() {
        let dir = tempfile::tempdir().unwrap();
        let (mut engine, _) = engine(dir.path());
        let (child, pid) = sleeper();
        let held = process::hold(pid).unwrap();
        let mut back = false;
        let kill = |_: &mut Engine| {
            end(child);
            Ok(())
        };
        let done = engine.act_on_held((held.as_fd(), pid), kill, |_| {
            back = true;
            Ok(())
        });
        assert_eq!((done.map_err(|refusal| refusal.errno), back), (Err(libc::ESRCH), true));
        let done = engine.act_on_held((held.as_fd(), pid), |_| panic!("he is dead"), |_| Ok(()));
        assert_eq!(done.map_err(|refusal| refusal.errno), Err(libc::ESRCH));
    }

    #[test]
    fn an_undo_restores_those_whom_it_was_learnt_of() {
        let dir = tempfile::tempdir().unwrap();
        let (mut engine, [a, b]) = engine(dir.path());
        let children = [sleeper(), sleeper(), sleeper()];
        for (_, pid) in &children {
            engine.plane_mut().tag(Target::Process(*pid), a).unwrap();
            engine.plane_mut().set_default(*pid, List::Child, a).unwrap();
        }
        let flush = Request::Delete { node: a.into(), mode: DeleteMode::Flush };
        let undo = Undo::new(&engine, std::slice::from_ref(&flush)).unwrap();
        engine.edit(&[flush], None).unwrap();
        let [(_, same), (_, other), (_, dead)] = &children;
        // As in the journal of a daemon that has died since: its number was another's then.
        let undo = undo.told_of_another(*other);
        number_of_another(*dead);
        engine.plane_mut().tag(Target::Process(*other), b).unwrap();
        engine.take_back(&undo).unwrap();
        let a = engine.tree().resolve(&"a".parse().unwrap()).unwrap();
        let now = [same, other, dead].map(|pid| {
            let plane = engine.plane();
            (plane.tag_of(*pid).unwrap(), plane.defaults(*pid).unwrap().child)
        });
        assert_eq!(now[0], (a, a), "he is where he was");
        assert_eq!(now[1].0, b, "who has the number by now stays where he is");
        assert_ne!(now[1].1, a, "and has his list");
        assert!(now[2].0 != a && now[2].1 != a, "who has ended meanwhile is nobody: {now:?}");
        for (child, _) in children {
            end(child);
        }
    }
}
