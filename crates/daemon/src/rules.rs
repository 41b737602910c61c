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
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::unistd::{Gid, Group, Uid, User};
use reserv_model::{Principal, Rule, Subject};

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
    /// Tells a process from a later one of the same number: who it is to the kernel
    /// ([`process::identity`]), else its start time in clock ticks.
    pub started: u64,
    /// Names of its user and group, where somebody gave them.
    pub user: Option<String>,
    /// See there.
    pub group: Option<String>,
    /// All its groups, and those again that rules name, with that name.
    pub groups: Vec<(u32, Option<String>)>,
    /// The process, since before the rest was asked.
    pub held: Option<Arc<OwnedFd>>,
}

/// Flag of a kernel thread in `/proc/PID/stat`.
const PF_KTHREAD: u64 = 0x0020_0000;

impl Facts {
    /// Of a living process; `None` when it is gone or a kernel thread. Both `/proc` and whoever
    /// gives names may take for ever: not under a lock ([`crate::aside`]). `ruled`: the groups that
    /// rules name. A process may be in 65 536 groups, whose names nobody is asked for.
    pub fn of(pid: i32, names: &Names, ruled: &[String]) -> Option<Self> {
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
        let mut groups: Vec<_> = status.groups.iter().map(|gid| (*gid, None)).collect();
        groups.push((status.gids[1], None));
        let is_in = |name: &String| {
            let gid = names.gid(name)?;
            groups.iter().any(|(id, _)| *id == gid).then(|| (gid, Some(name.clone())))
        };
        groups.extend(ruled.iter().filter_map(is_in).collect::<Vec<_>>());
        Some(Self {
            user,
            group,
            groups,
            started: process::identity(held.as_fd()).unwrap_or(stat.started),
            held: Some(Arc::new(held)),
            status,
            cgroup: process::cgroup(pid).unwrap_or_default(),
            executable: name.strip_suffix(b" (deleted)").unwrap_or(name).to_owned(),
            parent: stat.parent,
        })
    }

    /// What of it an exec does not hold up: all but the file that it executes. For a process at
    /// which nobody can look, of a user whose name is known; `None` too where the kernel does not
    /// tell so who it is (before Linux 6.9).
    pub fn at_once(pid: i32, names: &Names, ruled: &[String]) -> Option<Self> {
        let held = process::hold(pid).ok()?;
        let started = process::identity(held.as_fd())?;
        let status = process::status(pid)?;
        if status.kernel? {
            return None;
        }
        let user = lock(&names.users).get(&status.uids[1])?.1.clone();
        let group = lock(&names.groups).get(&status.gids[1])?.1.clone();
        let mut groups: Vec<_> = status.groups.iter().map(|gid| (*gid, None)).collect();
        groups.push((status.gids[1], None));
        let gids = lock(&names.gids).clone();
        let known = ruled.iter().filter_map(|name| Some((gids.get(name)?.1?, Some(name.clone()))));
        let own: Vec<_> = known.filter(|(gid, _)| groups.iter().any(|(id, _)| id == gid)).collect();
        groups.extend(own);
        Some(Self {
            user,
            group,
            groups,
            started,
            parent: status.parent,
            cgroup: process::cgroup(pid).unwrap_or_default(),
            executable: Vec::new(),
            held: Some(Arc::new(held)),
            status,
        })
    }

    fn first(&self, rules: &[Rule]) -> Option<usize> {
        let (uid, gid) = (self.status.uids[1], self.status.gids[1]);
        let mut subject = Subject {
            uid,
            user: self.user.as_deref(),
            gid,
            group: self.group.as_deref(),
            groups: &self.groups,
            unit: process::unit(&self.cgroup),
            cgroup: &self.cgroup,
            command: &self.executable,
        };
        let matches = |subject: &Subject<'_>| rules.iter().position(|rule| rule.takes(subject));
        let by_executable = matches(&subject);
        subject.command = &self.status.name;
        // By its file and by the name that it goes by: interpreters and daemons differ in which one
        // tells.
        [by_executable, matches(&subject)].into_iter().flatten().min()
    }
}

/// What names are known of numbers, or numbers of names, and when that was asked.
type Known<K, V> = Mutex<BTreeMap<K, (Instant, Option<V>)>>;

/// Names of users and groups, by whoever needs one first. Kept for a while: who looks at all
/// processes asks once for each number; and a number may become another's.
#[derive(Debug, Default)]
pub struct Names {
    users: Known<u32, String>,
    groups: Known<u32, String>,
    /// Of groups that rules name.
    gids: Known<String, u32>,
}

/// How long an answer is good.
const KEPT: Duration = Duration::from_secs(60);
/// And that there is none: whoever gives names may begin after us.
const NONE_KEPT: Duration = Duration::from_secs(2);

/// From the table, which is locked for that only, else from whoever gives names.
fn known_of<K: Ord + Clone, V: Clone>(
    known: &Known<K, V>,
    of: &K,
    now: Instant,
    ask: impl FnOnce() -> Option<V>,
) -> Option<V> {
    let good = |(at, value): &&(Instant, Option<V>)| {
        now.saturating_duration_since(*at) < if value.is_some() { KEPT } else { NONE_KEPT }
    };
    if let Some((_, value)) = lock(known).get(of).filter(good) {
        return value.clone();
    }
    let value = ask();
    lock(known).insert(of.clone(), (now, value.clone()));
    value
}

impl Names {
    fn user(&self, uid: u32) -> Option<String> {
        known_of(&self.users, &uid, Instant::now(), || {
            User::from_uid(Uid::from_raw(uid)).ok()?.map(|user| user.name)
        })
    }

    fn group(&self, gid: u32) -> Option<String> {
        known_of(&self.groups, &gid, Instant::now(), || {
            Group::from_gid(Gid::from_raw(gid)).ok()?.map(|group| group.name)
        })
    }

    /// A group's number, as soon as there is such a group.
    fn gid(&self, name: &String) -> Option<u32> {
        known_of(&self.gids, name, Instant::now(), || {
            Some(Group::from_name(name).ok()??.gid.as_raw())
        })
    }
}

/// What a rule did to a process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Done {
    started: u64,
    rule: Option<usize>,
    /// Of a rule with a queue for each user: whose it was.
    user: Option<String>,
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

    /// The groups that they name.
    pub fn groups_named(&self) -> Vec<String> {
        let name = |rule: &Rule| match &rule.conditions.group {
            Some(Principal::Name(name)) => Some(name.clone()),
            _ => None,
        };
        self.list.iter().filter_map(name).collect()
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
        let user = rule.and_then(|rule| self.user_of(rule, facts));
        let before = self.done.get(&pid).filter(|d| d.started == facts.started);
        if before.is_some_and(|d| d.rule == rule && d.user == user && d.whole) {
            return None;
        }
        let by_rule =
            |pid: i32| self.done.get(&pid).is_some_and(|d| d.rule.is_some() && d.queue == now);
        let free = now == q0 && before.is_none_or(|d| d.rule.is_none() || d.queue == q0);
        if !free && !by_rule(pid) && !by_rule(facts.parent) {
            return None;
        }
        let Some(index) = rule else {
            let started = facts.started;
            self.done.insert(pid, Done { started, rule: None, user, queue: now, whole: true });
            return None;
        };
        Some((index, self.list[index].clone()))
    }

    /// Whose queue a rule means, where it has one for each user.
    fn user_of(&self, rule: usize, facts: &Facts) -> Option<String> {
        self.list.get(rule).filter(|rule| rule.is_by_user()).and_then(|_| facts.user.clone())
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
        let (started, user) = (facts.started, self.user_of(rule, facts));
        self.done.insert(pid, Done { started, rule: Some(rule), user, queue, whole });
        if !whole {
            self.owed.insert(pid);
        }
    }

    /// Not all that rules ask for is known of these: they are considered anew at a scan.
    pub fn owe(&mut self, pids: impl IntoIterator<Item = i32>) {
        self.owed.extend(pids);
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
    fn a_name_is_kept_for_a_minute_and_that_there_is_none_for_moments() {
        let (known, from) = (Known::default(), Instant::now());
        let ask = |after: u64, name: Option<&'static str>| {
            known_of(&known, &1000_u32, from + Duration::from_secs(after), || name)
        };
        assert_eq!(ask(0, None), None);
        assert_eq!(ask(1, Some("anna")), None, "nobody is asked at each look");
        assert_eq!(ask(2, Some("anna")), Some("anna"), "who gives names has begun");
        assert_eq!(ask(61, Some("bert")), Some("anna"));
        assert_eq!(ask(62, Some("bert")), Some("bert"), "the number is another's by now");
    }

    #[test]
    fn the_first_match_wins_whether_by_name_or_by_file() {
        let mut rules = rules(&[
            ("uid = 33, command = \"php*\"", "php"),
            ("unit = \"web@*.service\"", "web"),
            ("uid = 33", "www"),
        ]);
        let mut queue = |f: &Facts| {
            rules.consider(9, f, 0, 0).map(|(_, r)| r.place("cpu").unwrap().to_string())
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
    fn of_groups_only_those_are_looked_up_that_rules_name() {
        let rules = rules(&[("group = \"no-such-group\", uid = 7", "a"), ("group = 5", "a")]);
        assert_eq!(rules.groups_named(), ["no-such-group"]);
        let own = nix::unistd::getegid();
        let Some(group) = Group::from_gid(own).unwrap() else { return };
        let names = Names::default();
        let asked = [group.name.clone(), "no-such-group".to_owned()];
        let facts = Facts::of(std::process::id().cast_signed(), &names, &asked).unwrap();
        let told: Vec<_> = facts.groups.iter().filter(|(_, name)| name.is_some()).collect();
        assert_eq!(told, [&(own.as_raw(), Some(group.name))]);
    }

    #[test]
    fn what_an_exec_does_not_hold_up_is_the_same_but_for_the_file() {
        let own = std::process::id().cast_signed();
        let names = Names::default();
        let held = process::hold(own).unwrap();
        if process::identity(held.as_fd()).is_none()
            || process::status(own).unwrap().kernel.is_none()
        {
            // A kernel that does not tell: then nothing is known of it so.
            assert!(Facts::at_once(own, &names, &[]).is_none());
            return;
        }
        assert!(Facts::at_once(own, &names, &[]).is_none(), "nobody's name is asked for");
        let whole = Facts::of(own, &names, &[]).unwrap();
        let at_once = Facts::at_once(own, &names, &[]).unwrap();
        assert_eq!((at_once.started, at_once.parent), (whole.started, whole.parent));
        assert_eq!((at_once.user, at_once.group), (whole.user, whole.group));
        assert_eq!((at_once.groups, at_once.cgroup), (whole.groups, whole.cgroup));
        assert!(at_once.executable.is_empty() && !whole.executable.is_empty());
        assert!(Facts::at_once(2, &names, &[]).is_none_or(|two| two.status.kernel == Some(false)));
    }

    #[test]
    fn who_was_not_looked_at_is_owed_a_scan() {
        let mut rules = rules(&[("uid = 33", "a")]);
        rules.owe([7, 8]);
        assert!(rules.need_scan());
        rules.retain(&[7]);
        assert!(!rules.need_scan());
    }

    #[test]
    fn who_becomes_another_user_is_considered_anew_where_each_has_a_queue() {
        let by_user = |rules: &[(&str, &str)]| {
            let mut rules = self::rules(rules);
            let of = |user: &str| Facts { user: Some(user.into()), ..facts(33, "x", "/") };
            let (n, _) = rules.consider(9, &of("anna"), 1, 1).unwrap();
            rules.applied(9, &of("anna"), (n, true), 10);
            assert_eq!(rules.consider(9, &of("anna"), 10, 1), None, "applied already");
            rules.consider(9, &of("bert"), 10, 1).is_some()
        };
        assert!(by_user(&[("uid = 33", "users/{user}")]));
        assert!(!by_user(&[("uid = 33", "users")]), "one queue for all");
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
            rules.consider(9, &f34, a, q0).unwrap().1.place("cpu").unwrap().to_string(),
            "b",
            "another rule now"
        );
        let child = Facts { parent: 9, ..f34.clone() };
        assert_eq!(
            rules.consider(10, &child, a, q0).unwrap().1.place("cpu").unwrap().to_string(),
            "b",
            "inherited from a rule"
        );
        assert_eq!(rules.consider(10, &child, b, q0), None, "inherited from a hand");
        let reborn = Facts { started: 6, ..f33.clone() };
        assert_eq!(
            rules.consider(9, &reborn, q0, q0).unwrap().1.place("cpu").unwrap().to_string(),
            "a",
            "a new process of the same number"
        );
    }
}
