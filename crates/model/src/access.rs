// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who may do what in a tree: access lists, and the reservation domain of a process (Eclipse/BSD
//! §2.7, §2.9).
//!
//! Every node has a list of entries: who (uid, gid, process, or a combination: all that is named
//! must hold), which rights, and by whom the entry was made. Rules, in this order:
//! 1. Root may do everything.
//! 2. An entry that denies a right, at the node or anywhere above, refuses it. Only root denies.
//! 3. An entry that allows it, at the node or above, gives it: what is given for a node is given
//!    for all below it.
//! 4. Who made a node may change and delete it while he may still make nodes there.
//! 5. Who may do anything else at a node may read it (`sight.rs` has what is seen without that
//!    right).
//! 6. Nobody else may. q0 is no exception: whoever could use it could leave the cap of the queue
//!    that he was put into.
//!
//! Rights are about what is inside a node. What a node is to its siblings (weight, minimum, cap,
//! name, being there) is inside its parent: so whoever is given `web` divides it as he likes and
//! cannot take more.
//!
//! Passing on: who has `grant` and the rights to be passed by one entry may allow others the same
//! or less, from then on and as long as that entry stands (`via`): what is taken from it is taken
//! from what hangs on it, at once. Who made an entry, and root, may take it back.
//!
//! A quota counts the nodes that were made through an entry, or through entries that hang on it.

use std::fmt;
use std::str::FromStr;

pub use reserv_facts::tag::rules::MAX as USE_RULES_MAX;
use serde::{Deserialize, Serialize};

use crate::error::quoted;
use crate::{Error, ErrorKind, Groups, Node, NodeId, Tree};

/// Most entries of one node.
pub const ENTRIES_MAX: usize = 64;
/// Nodes that may be made through an entry of root's that names no quota.
pub const QUOTA_DEFAULT: u32 = 1000;

/// One rule about the use of a queue as a tag, for the check where the tag is set. Rules are tried
/// in order: the first whose named conditions all hold decides; where none does, only root may use
/// the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UseRule {
    /// The file system uid of who sets the tag.
    pub uid: Option<u32>,
    /// The file system gid or one of the supplementary groups.
    pub gid: Option<u32>,
    /// The process, in the daemon's pid name space, with its start time as in `/proc/PID/stat`
    /// (field 22: the boot-time start of its first thread in units of 10 ms), so that a pid that is
    /// used again is somebody else.
    pub process: Option<(u32, u64)>,
    /// Whether they may.
    pub allow: bool,
}

/// What can be done with a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
pub enum Right {
    /// Tag with it, or with a queue below it.
    Use = 1,
    /// Make nodes in it.
    Create = 2,
    /// Change it inside: policy, class, the shares of its children.
    Modify = 4,
    /// Pass rights on.
    Grant = 8,
    /// Delete nodes in it.
    Delete = 16,
    /// See all that its files say, and what is below it. Any other right implies it.
    Read = 32,
}

impl Right {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Use, Self::Create, Self::Modify, Self::Grant, Self::Delete, Self::Read];

    /// Those by which something is done.
    pub fn to_act() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|right| *right != Self::Read)
    }

    /// As it stands in files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Use => "use",
            Self::Create => "create",
            Self::Modify => "modify",
            Self::Grant => "grant",
            Self::Delete => "delete",
            Self::Read => "read",
        }
    }
}

/// A set of rights; as text `use,create` or `all`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "u8", into = "u8")]
pub struct Rights(u8);

const RIGHTS_HINT: &str =
    "rights are read, use, create, modify, grant and delete, with commas between them, or all";

/// In a journal's number: who wrote it knew of reading. Without it, all that there was is all that
/// there is.
const KNOWS_READING: u8 = 64;

impl From<u8> for Rights {
    fn from(saved: u8) -> Self {
        let known = Self(saved & Self::ALL.0);
        let old = saved & KNOWS_READING == 0;
        if old && known.with(Right::Read.into()) == Self::ALL { Self::ALL } else { known }
    }
}

impl From<Rights> for u8 {
    fn from(rights: Rights) -> Self {
        rights.0 | KNOWS_READING
    }
}

impl Rights {
    /// All of them.
    pub const ALL: Self = Self(63);

    /// Whether none is in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether a right is in it.
    pub const fn has(self, right: Right) -> bool {
        self.0 & right as u8 != 0
    }

    /// Whether all of these are.
    pub const fn has_all(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// With these too.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What both have.
    #[must_use]
    pub const fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// With what they imply: who may do anything may look.
    #[must_use]
    pub const fn implied(self) -> Self {
        if self.is_empty() { self } else { self.with(Self(Right::Read as u8)) }
    }

    /// Without these.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl From<Right> for Rights {
    fn from(right: Right) -> Self {
        Self(right as u8)
    }
}

impl FromStr for Rights {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        if text == "all" {
            return Ok(Self::ALL);
        }
        let one = |word: &str| {
            Right::ALL.into_iter().find(|r| r.word() == word).map(Self::from).ok_or_else(|| {
                Error::new(ErrorKind::Invalid, format!("{} is no right", quoted(word)))
                    .hint(RIGHTS_HINT)
            })
        };
        text.split(',').try_fold(Self::default(), |all, word| Ok(all.with(one(word)?)))
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ALL {
            return f.write_str("all");
        }
        let words: Vec<&str> =
            Right::ALL.into_iter().filter(|r| self.has(*r)).map(Right::word).collect();
        f.write_str(&words.join(","))
    }
}

/// Whom an entry is about: all that is named must hold; nothing named is everyone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Party {
    /// A user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// A group, the first or a supplementary one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
    /// A process: pid and start time, see [`UseRule::process`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<(u32, u64)>,
}

impl Party {
    /// Whether somebody is meant.
    pub fn is(&self, who: &Caller) -> bool {
        self.uid.is_none_or(|uid| uid == who.uid)
            && self.gid.is_none_or(|gid| gid == who.gid || who.groups.has(gid))
            && self.process.is_none_or(|process| process == (who.pid, who.start))
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        words.extend(self.uid.map(|uid| format!("uid {uid}")));
        words.extend(self.gid.map(|gid| format!("gid {gid}")));
        words.extend(self.process.map(|(pid, start)| format!("pid {pid} start {start}")));
        if words.is_empty() { f.write_str("everyone") } else { f.write_str(&words.join(" ")) }
    }
}

/// Who asks for something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// File system uid; 0 is root.
    pub uid: u32,
    /// File system gid.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Groups,
    /// Process.
    pub pid: u32,
    /// Its start time.
    pub start: u64,
    /// Groups and process are not known: it cannot be seen from where reservd is. What they may be
    /// denied for is not known either, so such a caller has no right but as root.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unseen: bool,
}

impl Caller {
    /// Root, of whom nothing else is asked.
    pub fn root() -> Self {
        Self::default()
    }
}

/// One entry of a node's access list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessEntry {
    /// Never used again in this tree.
    pub id: u64,
    /// Or deny.
    pub allow: bool,
    /// Whom.
    pub party: Party,
    /// What.
    pub rights: Rights,
    /// Most nodes that may be made through it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<u32>,
    /// The uid of who made it.
    pub by: u32,
    /// The entry that it was passed on from; `None`: root's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<u64>,
}

/// A node's list, as a change found it and as it left it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangedAccess {
    /// Whose list.
    pub node: NodeId,
    /// Before the change.
    pub before: Vec<AccessEntry>,
    /// After it.
    pub after: Vec<AccessEntry>,
}

impl ChangedAccess {
    /// What the list, as it is now, is without the change: of entries that it made or took away
    /// alone, and that nobody has changed since.
    #[must_use]
    pub fn put_back(&self, now: &[AccessEntry]) -> Vec<AccessEntry> {
        if now == self.after {
            return self.before.clone();
        }
        let made =
            |entry: &&AccessEntry| self.after.contains(entry) && !self.before.contains(entry);
        let mut entries: Vec<AccessEntry> =
            now.iter().filter(|entry| !made(entry)).cloned().collect();
        let known = |id: u64| now.iter().chain(&self.after).any(|entry| entry.id == id);
        entries.extend(self.before.iter().filter(|entry| !known(entry.id)).cloned());
        // One that it changed, and that is as it left it.
        for was in &self.before {
            let left = self.after.iter().find(|entry| entry.id == was.id && *entry != was);
            if left.is_some_and(|left| now.contains(left)) {
                entries.push(was.clone());
            }
        }
        entries.sort_by_key(|entry| entry.id);
        entries
    }
}

impl fmt::Display for AccessEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.allow { "allow" } else { "deny" };
        write!(f, "{verb} {} {}", self.party, self.rights)?;
        if let Some(quota) = self.quota {
            write!(f, " quota {quota}")?;
        }
        if self.by == 0 { Ok(()) } else { write!(f, " by {}", self.by) }
    }
}

/// What is done to a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verb {
    /// Give rights to whom is named; takes them out of root's denial of the same.
    Allow,
    /// Refuse them, whatever else stands; takes them out of what allows the same at this node.
    Deny,
    /// Take them out of entries: one's own, for root all.
    Remove,
}

/// A change of one list. As text `allow uid 1000 use,create quota 8`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessChange {
    /// What is done.
    pub verb: Verb,
    /// Whom it is about. A process without a start time (0) is the one that lives now: the daemon
    /// fills it in.
    pub party: Party,
    /// Which rights.
    pub rights: Rights,
    /// Most nodes that may be made.
    pub quota: Option<u32>,
    /// The uid of who makes it.
    pub by: u32,
    /// The entry that is passed on.
    pub via: Option<u64>,
}

const CHANGE_HINT: &str = "allow, deny or remove; everyone, or uid N, gid N, pid N; rights: allow uid 1000 use,create quota 8";

impl FromStr for AccessChange {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = |why: String| Err(Error::new(ErrorKind::Invalid, why).hint(CHANGE_HINT));
        let mut words = text.split_ascii_whitespace().peekable();
        let verb = match words.next().unwrap_or_default() {
            "allow" => Verb::Allow,
            "deny" => Verb::Deny,
            "remove" => Verb::Remove,
            word => return bad(format!("{} is not allow, deny or remove", quoted(word))),
        };
        let number = |what: &str, word: Option<&str>, max: u64| {
            let word = word.unwrap_or_default();
            let digits = !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
            word.parse::<u64>().ok().filter(|n| digits && *n <= max).ok_or_else(|| {
                Error::new(ErrorKind::Invalid, format!("{} is not a {what}", quoted(word)))
                    .hint(CHANGE_HINT)
            })
        };
        #[expect(clippy::cast_possible_truncation, reason = "at most the type's largest value")]
        let small = |what: &str, word: Option<&str>, max: u32| {
            number(what, word, max.into()).map(|n| n as u32)
        };
        let mut party = Party::default();
        if words.next_if_eq(&"everyone").is_none() {
            loop {
                let again = match words.peek() {
                    Some(&"uid") => party.uid.is_some(),
                    Some(&"gid") => party.gid.is_some(),
                    Some(&"pid") => party.process.is_some(),
                    _ => break,
                };
                let word = words.next().unwrap_or_default();
                if again {
                    return bad(format!("{} stands twice", quoted(word)));
                }
                match word {
                    "uid" => party.uid = Some(small("uid", words.next(), u32::MAX - 1)?),
                    "gid" => party.gid = Some(small("gid", words.next(), u32::MAX - 1)?),
                    _ => {
                        let pid = small("pid", words.next(), 1 << 22)?;
                        let start = match words.next_if_eq(&"start") {
                            Some(_) => number("start time", words.next(), u64::MAX)?,
                            None => 0,
                        };
                        party.process = Some((pid, start));
                    }
                }
            }
            if party == Party::default() {
                let word = words.next().unwrap_or_default();
                return bad(format!("{} says nobody", quoted(word)));
            }
        }
        let Some(rights) = words.next() else { return bad("no rights".into()) };
        let rights = rights.parse()?;
        let quota = match words.next_if_eq(&"quota") {
            Some(_) if verb == Verb::Allow => Some(small("quota", words.next(), crate::NODES_MAX)?),
            Some(_) => return bad("a quota goes with allow".into()),
            None => None,
        };
        let by = match words.next_if_eq(&"by") {
            Some(_) => small("uid", words.next(), u32::MAX - 1)?,
            None => 0,
        };
        match words.next() {
            Some(word) => bad(format!("{} at the end", quoted(word))),
            None => Ok(Self { verb, party, rights, quota, by, via: None }),
        }
    }
}

impl fmt::Display for AccessChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.verb {
            Verb::Allow => "allow",
            Verb::Deny => "deny",
            Verb::Remove => "remove",
        };
        write!(f, "{verb} {} {}", self.party, self.rights)?;
        self.quota.map_or(Ok(()), |quota| write!(f, " quota {quota}"))
    }
}

/// Why somebody may do something, or may not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// He is root.
    Root,
    /// This entry of this node.
    Entry(NodeId, AccessEntry),
    /// He made the node.
    Maker,
    /// His groups and his process are not known.
    Unseen,
    /// No entry allows it.
    Nobody,
}

/// An answer with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether he may.
    pub allowed: bool,
    /// The rule that decides.
    pub why: Why,
}

impl Decision {
    /// In words, without line breaks.
    pub fn words(&self, tree: &Tree) -> String {
        match &self.why {
            Why::Root => "root may do everything".into(),
            Why::Entry(at, entry) => format!("{}: {entry}", tree.shown(*at)),
            Why::Maker => "he made it".into(),
            Why::Unseen => "reservd cannot see the process that asks".into(),
            Why::Nobody => "no entry allows it".into(),
        }
    }
}

impl Tree {
    /// A node and what is above it, up to the root.
    pub fn up(&self, id: NodeId) -> impl Iterator<Item = &Node> {
        std::iter::successors(self.get(id), |n| n.parent.and_then(|p| self.get(p)))
    }

    /// By the entries alone.
    fn listed(&self, who: &Caller, id: NodeId, right: Right) -> Option<(NodeId, &AccessEntry)> {
        let find = |allow: bool| {
            self.up(id).find_map(|n| {
                let meant =
                    |e: &&AccessEntry| e.allow == allow && e.rights.has(right) && e.party.is(who);
                n.access.iter().find(meant).map(|e| (n.id, e))
            })
        };
        find(false).or_else(|| find(true))
    }

    /// Whether somebody has a right at a node, and by what rule.
    pub fn decide(&self, who: &Caller, id: NodeId, right: Right) -> Decision {
        let yes = |why| Decision { allowed: true, why };
        if who.uid == 0 {
            return yes(Why::Root);
        }
        if who.unseen {
            return Decision { allowed: false, why: Why::Unseen };
        }
        let found = self.listed(who, id, right);
        if let Some((at, entry)) = found {
            return Decision { allowed: entry.allow, why: Why::Entry(at, entry.clone()) };
        }
        let made = |n: &Node| n.maker == who.uid && n.parent.is_some();
        if matches!(right, Right::Modify | Right::Delete)
            && let Some(node) = self.get(id).filter(|n| made(n))
            && let Some(parent) = node.parent
            && self.listed(who, parent, Right::Create).is_some_and(|(_, e)| e.allow)
        {
            return yes(Why::Maker);
        }
        if right == Right::Read
            && let Some(other) =
                Right::to_act().map(|r| self.decide(who, id, r)).find(|d| d.allowed)
        {
            return other;
        }
        Decision { allowed: false, why: Why::Nobody }
    }

    /// Whether somebody may do anything with a node. Who only looks, if that, refers to it in vain:
    /// he keeps nothing that would be collected.
    pub fn concerns(&self, who: &Caller, id: NodeId) -> bool {
        Right::to_act().any(|right| self.decide(who, id, right).allowed)
    }

    /// The rules about the use of a queue, as the kernel's check wants them: what is inherited is
    /// in them.
    pub fn use_rules(&self, id: NodeId) -> Vec<UseRule> {
        let mut rules: Vec<UseRule> = Vec::new();
        for allow in [false, true] {
            for entry in self.up(id).flat_map(|n| &n.access) {
                let Party { uid, gid, process } = entry.party;
                let rule = UseRule { uid, gid, process, allow };
                if entry.allow == allow && entry.rights.has(Right::Use) && !rules.contains(&rule) {
                    rules.push(rule);
                }
            }
        }
        if rules.iter().any(|rule| !rule.allow) {
            rules.insert(0, UseRule { uid: Some(0), gid: None, process: None, allow: true });
        }
        rules
    }
}
