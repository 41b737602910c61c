// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules tag processes by who they are; the rules themselves (`[[rule]]` of the configuration) are
//! the model's.
//!
//! When: at `up` for all processes, then when a process execs, changes its ids or its name, and for
//! unit and cgroup (of whose changes the kernel tells nothing) at a scan. A rule applies once: when
//! another rule matches a process than before. It leaves alone whoever was tagged by hand, that is,
//! whose queue is neither q0 nor one that a rule gave to it or its parent; so `reserv run` and
//! later tags win. Kernel threads are not subject to rules.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex};

use nix::unistd::{Gid, Group, Uid, User};
use reserv_model::{Rule, Subject};

use crate::process;
use crate::sync::lock;

/// The facts about a process that rules look at.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Ids and name.
    pub status: process::Status,
    /// Path of its cgroup.
    pub cgroup: Vec<u8>,
    /// Last component of its executable's path; empty when unreadable.
    pub executable: Vec<u8>,
    /// Parent.
    pub parent: i32,
    /// Start time in clock ticks: tells a process from a later one of the same number.
    pub started: u64,
    /// Names of its user and group, where somebody gave them.
    pub user: Option<String>,
    /// See there.
    pub group: Option<String>,
    /// The process, since before the rest was asked.
    pub held: Option<Arc<OwnedFd>>,
}

/// Flag of a kernel thread in `/proc/PID/stat`.
const PF_KTHREAD: u64 = 0x0020_0000;

impl Facts {
    /// Of a living process; `None` when it is gone or a kernel thread. Both `/proc` and whoever
    /// gives names may take for ever: not under a lock ([`crate::aside`]).
    pub fn of(pid: i32, names: &Names) -> Option<Self> {
        let held = process::hold(pid).ok()?;
        let stat = process::Stat::of(pid)?;
        if stat.flags & PF_KTHREAD != 0 {
            return None;
        }
        let exe = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
        let name = exe
            .as_deref()
            .and_then(|path| path.file_name())
            .map(OsStrExt::as_bytes)
            .unwrap_or_default();
        let status = process::status(pid)?;
        let (user, group) = (names.user(status.uids[1]), names.group(status.gids[1]));
        Some(Self {
            user,
            group,
            held: Some(Arc::new(held)),
            status,
            cgroup: process::cgroup(pid).unwrap_or_default(),
            executable: name.strip_suffix(b" (deleted)").unwrap_or(name).to_owned(),
            parent: stat.parent,
            started: stat.started,
        })
    }

    fn first(&self, rules: &[Rule]) -> Option<usize> {
        let (uid, gid) = (self.status.uids[1], self.status.gids[1]);
        let mut subject = Subject {
            uid,
            user: self.user.as_deref(),
            gid,
            group: self.group.as_deref(),
            unit: process::unit(&self.cgroup),
            cgroup: &self.cgroup,
            command: &self.executable,
        };
        let matches =
            |subject: &Subject<'_>| rules.iter().position(|r| r.conditions.matches(subject));
        let by_executable = matches(&subject);
        subject.command = &self.status.name;
        // By its file and by the name that it goes by: interpreters and daemons differ in which one
        // tells.
        [by_executable, matches(&subject)].into_iter().flatten().min()
    }
}

/// Names of users and groups, looked up once each, by whoever needs one first.
#[derive(Debug, Default)]
pub struct Names {
    users: Mutex<BTreeMap<u32, Option<String>>>,
    groups: Mutex<BTreeMap<u32, Option<String>>>,
}

/// From the table, which is locked for that only, else from whoever gives names.
fn name_of(
    known: &Mutex<BTreeMap<u32, Option<String>>>,
    id: u32,
    ask: impl FnOnce() -> Option<String>,
) -> Option<String> {
    if let Some(name) = lock(known).get(&id) {
        return name.clone();
    }
    let name = ask();
    lock(known).insert(id, name.clone());
    name
}

impl Names {
    fn user(&self, uid: u32) -> Option<String> {
        name_of(&self.users, uid, || User::from_uid(Uid::from_raw(uid)).ok()?.map(|user| user.name))
    }

    fn group(&self, gid: u32) -> Option<String> {
        name_of(&self.groups, gid, || {
            Group::from_gid(Gid::from_raw(gid)).ok()?.map(|group| group.name)
        })
    }
}

/// What a rule did to a process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Done {
    started: u64,
    rule: Option<usize>,
    queue: u64,
    /// Nothing of it is left to be done.
    whole: bool,
}

/// The rules, and what they did.
#[derive(Debug, Default)]
pub struct Rules {
    list: Vec<Rule>,
    done: BTreeMap<i32, Done>,
    /// Processes of which a resource has not done its part. No event tells of them again.
    owed: BTreeSet<i32>,
    /// Another one after each [`Rules::set`].
    turn: u64,
}

impl Rules {
    /// Takes rules, of which those about packets are the kernel's business (`core/counting.rs`);
    /// processes are considered anew.
    pub fn set(&mut self, rules: &[Rule]) {
        let list =
            rules.iter().filter(|rule| rule.conditions.packets().is_none()).cloned().collect();
        *self = Self { list, turn: self.turn + 1, ..Self::default() };
    }

    /// What numbers of rules are good for: until it is another one.
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether something matters that only a scan finds: changes of a cgroup, or what is owed.
    pub fn need_scan(&self) -> bool {
        !self.owed.is_empty()
            || self
                .list
                .iter()
                .any(|r| r.conditions.unit.is_some() || r.conditions.cgroup.is_some())
    }

    /// What to do with a process that is in queue `now` (`q0` packed likewise): the number of the
    /// rule, to call [`Rules::applied`] with, and the rule. `None`: leave it alone.
    pub fn consider(
        &mut self,
        pid: i32,
        facts: &Facts,
        now: u64,
        q0: u64,
    ) -> Option<(usize, Rule)> {
        let rule = facts.first(&self.list);
        let before = self.done.get(&pid).filter(|d| d.started == facts.started);
        if before.is_some_and(|d| d.rule == rule && d.whole) {
            return None;
        }
        let by_rule =
            |pid: i32| self.done.get(&pid).is_some_and(|d| d.rule.is_some() && d.queue == now);
        let free = now == q0 && before.is_none_or(|d| d.rule.is_none() || d.queue == q0);
        if !free && !by_rule(pid) && !by_rule(facts.parent) {
            return None;
        }
        let Some(index) = rule else {
            self.done
                .insert(pid, Done { started: facts.started, rule: None, queue: now, whole: true });
            return None;
        };
        Some((index, self.list[index].clone()))
    }

    /// The rule for a process of which it is not known in which queue it is: one that no rule has
    /// touched, so that nothing of what it has is a rule's.
    pub fn untouched(&mut self, pid: i32, facts: &Facts) -> Option<Rule> {
        let before = self.done.get(&pid).filter(|d| d.started == facts.started);
        if before.is_some() {
            return None;
        }
        let rule = self.list[facts.first(&self.list)?].clone();
        self.owed.insert(pid);
        Some(rule)
    }

    /// A rule's tag was set (or the process was found there already). Where it is not `whole`, a
    /// resource did not answer, and the rule is tried again as long as the process stays there.
    pub fn applied(&mut self, pid: i32, facts: &Facts, (rule, whole): (usize, bool), queue: u64) {
        self.done.insert(pid, Done { started: facts.started, rule: Some(rule), queue, whole });
        if !whole {
            self.owed.insert(pid);
        }
    }

    /// Which rule put which process into which queue, for who asks: the rule's place among those
    /// about processes.
    pub fn put(&self) -> impl Iterator<Item = (i32, usize, u64)> + '_ {
        self.done.iter().filter_map(|(pid, done)| Some((*pid, done.rule?, done.queue)))
    }

    /// A scan begins, which considers all: forgets the dead, and what was owed.
    pub fn retain(&mut self, living: &[i32]) {
        self.owed.clear();
        self.done.retain(|pid, _| living.binary_search(pid).is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &[(&str, &str)]) -> Rules {
        let list = text.iter().map(|(conditions, queue)| {
            toml::from_str(&format!("match = {{ {conditions} }}\ncpu = \"{queue}\"")).unwrap()
        });
        let mut rules = Rules::default();
        rules.set(&list.collect::<Vec<_>>());
        rules
    }

    fn facts(uid: u32, name: &str, cgroup: &str) -> Facts {
        let status = process::Status { uids: [uid; 4], name: name.into(), ..Default::default() };
        let user = Names::default().user(uid);
        Facts { status, cgroup: cgroup.into(), parent: 1, started: 5, user, ..Default::default() }
    }

    #[test]
    fn the_first_match_wins_whether_by_name_or_by_file() {
        let mut rules = rules(&[
            ("uid = 33, command = \"php*\"", "php"),
            ("unit = \"web@*.service\"", "web"),
            ("uid = 33", "www"),
        ]);
        let mut queue = |f: &Facts| {
            rules.consider(9, f, 0, 0).map(|(_, r)| r.queue("cpu").unwrap().to_string())
        };
        assert_eq!(queue(&facts(33, "php-fpm", "/")).as_deref(), Some("php"));
        let by_file = Facts { executable: b"php8.2".into(), ..facts(33, "worker", "/") };
        assert_eq!(queue(&by_file).as_deref(), Some("php"));
        assert_eq!(
            queue(&facts(33, "apache2", "/system.slice/web@1.service")).as_deref(),
            Some("web")
        );
        assert_eq!(queue(&facts(33, "apache2", "/")).as_deref(), Some("www"));
        assert_eq!(queue(&facts(34, "php-fpm", "/")), None);
    }

    #[test]
    fn what_a_rule_has_touched_is_left_alone_while_its_queue_is_not_known() {
        let mut rules = rules(&[("uid = 33", "a")]);
        let f = facts(33, "x", "/");
        assert!(!rules.need_scan());
        assert!(rules.untouched(9, &f).is_some() && rules.need_scan());
        rules.retain(&[9]);
        assert!(!rules.need_scan() && rules.untouched(9, &facts(1, "x", "/")).is_none());
        rules.applied(9, &f, (0, true), 10);
        assert_eq!(rules.put().collect::<Vec<_>>(), [(9, 0, 10)]);
        assert!(rules.untouched(9, &f).is_none());
        assert!(rules.untouched(9, &Facts { started: 6, ..f }).is_some(), "another process");
    }

    #[test]
    fn users_are_known_by_name() {
        let mut rules = rules(&[("uid = \"root\"", "a")]);
        assert!(rules.consider(9, &facts(0, "x", "/"), 1, 1).is_some());
        assert!(rules.consider(10, &facts(33, "x", "/"), 1, 1).is_none());
    }

    #[test]
    fn a_rule_applies_once_and_leaves_hand_made_tags_alone() {
        let mut rules = rules(&[("uid = 33", "a"), ("uid = 34", "b")]);
        let (q0, a, b, hand) = (1, 10, 11, 12);
        let f33 = facts(33, "x", "/");
        assert_eq!(rules.consider(9, &f33, hand, q0), None, "tagged by hand before");
        let (n, _) = rules.consider(9, &f33, q0, q0).unwrap();
        rules.applied(9, &f33, (n, false), a);
        assert!(rules.consider(9, &f33, a, q0).is_some(), "a resource did not answer");
        rules.applied(9, &f33, (n, true), a);
        assert_eq!(rules.consider(9, &f33, a, q0), None, "applied already");
        assert_eq!(rules.consider(9, &f33, q0, q0), None, "moved back by hand");
        let f34 = facts(34, "x", "/");
        assert_eq!(rules.consider(9, &f34, hand, q0), None, "moved by hand, then changed its uid");
        assert_eq!(
            rules.consider(9, &f34, a, q0).unwrap().1.queue("cpu").unwrap().to_string(),
            "b",
            "another rule now"
        );
        let child = Facts { parent: 9, ..f34.clone() };
        assert_eq!(
            rules.consider(10, &child, a, q0).unwrap().1.queue("cpu").unwrap().to_string(),
            "b",
            "inherited from a rule"
        );
        assert_eq!(rules.consider(10, &child, b, q0), None, "inherited from a hand");
        let reborn = Facts { started: 6, ..f33.clone() };
        assert_eq!(
            rules.consider(9, &reborn, q0, q0).unwrap().1.queue("cpu").unwrap().to_string(),
            "a",
            "a new process of the same number"
        );
    }
}
