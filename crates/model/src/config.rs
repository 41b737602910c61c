// SPDX-License-Identifier: MIT OR Apache-2.0
//! A declarative tree: what `up --config` reads and `save` writes. The text (TOML) is read
//! elsewhere; here are its types, the difference to a running tree, and the reverse.
//!
//! ```toml
//! [cpu]
//! driver = "auto"              # auto, full or stock
//! personality = "default"      # default, qlinux, eclipse, rtss98 or containers: what is left out
//! policy = "sfq"               # of the resource's root; the personality's where it is left out
//! tune = "quantum 4ms"         # of the root, as in a tune file; the personality's where it is left out
//! [cpu.nodes.q0]
//! kind = "queue"
//! share = "100"                # weight and minimum, as in a share file; 100 where it is left out
//! [cpu.nodes."web"]            # path below /reserv/cpu; every parent has its own table
//! kind = "scheduler"
//! share = "50"                 # or a fixed share: "=25%"
//! tune = "quantum 2ms"         # what is not named has its default
//! cap = "1.5cpu"               # as in a cap file; none where it is left out
//! [cpu.nodes."web/site1"]
//! kind = "queue"
//! class = "ts"
//! members_max = 500            # 0 or left out: no limit; of a link most packets that wait
//! bytes_max = "128KiB"         # and most bytes
//! gc = false
//! access = ["allow uid 1000 use,create quota 8"]      # root's entries, as in an access file; [cpu] has such a list too
//! [count.disk]                 # a counting resource, /reserv/disk: brought up if it does not run
//! on = "file:/mnt/x"           # or "net:eth0"; links and disks have tables of their own in a file (`written.rs`), and stand here with a source of theirs, "link:eth0@100mbit"
//! [count.disk.nodes.web]       # all else as for the CPU
//! kind = "queue"
//! [container."web/site1"]      # made, or changed, in every resource; those that are left out stay
//! holds = "threads"            # or "containers"
//! share = "24"
//! access = ["allow uid 1000 use,create"]      # root's; left out: as they are
//! ```
//!
//! Nodes of the running tree that the configuration leaves out are deleted. An unknown key is an
//! error.

mod containers;
mod difference;
mod words;
mod written;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use containers::{ContainerConfig, OfContainers, nodes_of, requests_of, split};
pub use difference::{diff, diff_as_asked, difference_of_access, same_cap};
use words::{
    read_access, read_bytes, read_cap, read_share, read_some_tune, read_tune, write_access,
    write_bytes, write_cap, write_share, write_some_tune, write_tune,
};
pub use written::Written;

use crate::error::quoted;
use crate::{
    AccessChange, AccessEntry, Cap, Class, Error, ErrorKind, Kind, Memory, Name, NewKind, Node,
    NodePath, Personality, Policy, ResourceKind, Rule, RulePlace, Share, Source, Tree, Tune, Verb,
    Weight, check_tune,
};

/// A whole configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// What the limits of each resource's queues may take of the machine's memory. Left out: it
    /// stays as it is, an eighth at first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backlog: Option<Memory>,
    /// The CPU's tree. Left out: the CPU is not touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<ResourceConfig>,
    /// Counting resources, by name. Left out: what runs is not touched.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub count: BTreeMap<Name, ResourceConfig>,
    /// Containers, by path. Those that are left out stay as they are.
    #[serde(default, rename = "container", skip_serializing_if = "BTreeMap::is_empty")]
    pub containers: BTreeMap<NodePath, ContainerConfig>,
    /// Rules that tag processes, in order.
    #[serde(default, rename = "rule", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
}

/// Which driver to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Driver {
    /// Full where the kernel can, else stock.
    #[default]
    Auto,
    /// Our own scheduler, or an error.
    Full,
    /// What the stock kernel has.
    Stock,
}

/// One resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceConfig {
    /// What a counting resource counts; of no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<Source>,
    /// Which driver of the CPU to use; of no other.
    #[serde(default)]
    pub driver: Driver,
    /// What is left out below.
    #[serde(default, skip_serializing_if = "is_default")]
    pub personality: Personality,
    /// Of the root; the personality's where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// Of the root; the personality's where it is left out.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "write_some_tune",
        deserialize_with = "read_some_tune"
    )]
    pub tune: Option<Tune>,
    /// Of the root: root's entries.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        serialize_with = "write_access",
        deserialize_with = "read_access"
    )]
    pub access: Vec<AccessChange>,
    /// By path; parents come before what is below them.
    #[serde(default)]
    pub nodes: BTreeMap<NodePath, NodeConfig>,
}

/// Scheduler or queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeKind {
    /// Has children.
    Scheduler,
    /// Has threads.
    Queue,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// Scheduler or queue.
    pub kind: NodeKind,
    /// As in a share file; a plain integer is taken as a weight.
    #[serde(
        default = "default_share",
        serialize_with = "write_share",
        deserialize_with = "read_share"
    )]
    pub share: Share,
    /// As in a cap file.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "write_cap",
        deserialize_with = "read_cap"
    )]
    pub cap: Option<Cap>,
    /// As in a tune file; what is not named has its default.
    #[serde(
        default,
        skip_serializing_if = "Tune::is_empty",
        serialize_with = "write_tune",
        deserialize_with = "read_tune"
    )]
    pub tune: Tune,
    /// Of a queue; the personality's where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// Of a scheduler; the personality's where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// Most members of a queue; 0 is no limit.
    #[serde(default, skip_serializing_if = "is_default")]
    pub members_max: u32,
    /// Most bytes that wait in a link's queue; 0 is no limit of its own.
    #[serde(
        default,
        skip_serializing_if = "is_default",
        serialize_with = "write_bytes",
        deserialize_with = "read_bytes"
    )]
    pub bytes_max: u32,
    /// Collect when nothing refers to it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gc: bool,
    /// Root's entries of its access list.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        serialize_with = "write_access",
        deserialize_with = "read_access"
    )]
    pub access: Vec<AccessChange>,
}

const fn default_share() -> Share {
    Share::of(Weight::DEFAULT)
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Root's entries as a configuration has them.
pub fn listed_access(access: &[AccessEntry]) -> Vec<AccessChange> {
    let of_root = access.iter().filter(|e| e.by == 0 && e.party.process.is_none());
    let change = |e: &AccessEntry| AccessChange {
        verb: if e.allow { Verb::Allow } else { Verb::Deny },
        party: e.party,
        rights: e.rights,
        quota: e.quota,
        by: 0,
        via: None,
    };
    of_root.map(change).collect()
}

impl NodeConfig {
    /// A queue or scheduler with weight 100 and defaults.
    pub const fn new(kind: NodeKind) -> Self {
        Self {
            kind,
            share: default_share(),
            cap: None,
            tune: Tune::new(),
            class: None,
            policy: None,
            members_max: 0,
            bytes_max: 0,
            gc: false,
            access: Vec::new(),
        }
    }

    /// As the node is; its tunables as far as they count below a parent with the policy `above`.
    fn of(resource: ResourceKind, node: &Node, above: Option<Policy>) -> Self {
        let mut tune = node.tune.clone();
        tune.retain(|key, _| key.fits(resource, node.kind, above));
        let base = Self {
            share: node.share(),
            cap: node.cap,
            tune,
            gc: node.gc,
            access: listed_access(&node.access),
            ..Self::new(NodeKind::Queue)
        };
        match node.kind {
            Kind::Queue(class) => {
                let (members_max, bytes_max) = (node.members_max, node.bytes_max);
                Self { class: Some(class), members_max, bytes_max, ..base }
            }
            Kind::Scheduler(policy) => {
                Self { kind: NodeKind::Scheduler, policy: Some(policy), ..base }
            }
        }
    }

    /// Kind, as far as it is said.
    pub const fn new_kind(&self) -> NewKind {
        match self.kind {
            NodeKind::Scheduler => NewKind::Scheduler(self.policy),
            NodeKind::Queue => NewKind::Queue(self.class),
        }
    }

    fn check(&self, path: &NodePath) -> Result<(), Error> {
        let misplaced = match self.kind {
            NodeKind::Scheduler if self.class.is_some() => "a scheduler has a policy, no class",
            NodeKind::Scheduler if self.members_max > 0 => "a scheduler has no members",
            NodeKind::Scheduler if self.bytes_max > 0 => "nothing waits in a scheduler",
            NodeKind::Queue if self.policy.is_some() => "a queue has a class, no policy",
            _ => return Ok(()),
        };
        Err(Error::new(ErrorKind::Invalid, format!("{}: {misplaced}", quoted(&path.to_string()))))
    }
}

fn is_q0(path: &NodePath) -> bool {
    path.names().len() == 1 && path.names()[0].as_str() == "q0"
}

impl ResourceConfig {
    /// Whose tree it is.
    pub fn resource(&self) -> ResourceKind {
        self.on.as_ref().map_or(ResourceKind::Cpu, Source::kind)
    }

    /// Of the root.
    pub fn root_policy(&self) -> Policy {
        self.policy.unwrap_or(self.personality.root_policy(self.resource()))
    }

    /// Of the root.
    pub fn root_tune(&self) -> Tune {
        self.tune.clone().unwrap_or_else(|| {
            let mut tune = self.personality.tune(self.resource());
            tune.retain(|key, _| {
                key.fits(self.resource(), Kind::Scheduler(self.root_policy()), None)
            });
            tune
        })
    }

    /// Policy or class of a node, with what is left out. q0 keeps time sharing in every
    /// personality.
    pub fn kind_of(&self, path: &NodePath, node: &NodeConfig) -> Kind {
        let personality = if is_q0(path) { Personality::Default } else { self.personality };
        node.new_kind().or(personality, self.resource())
    }

    /// The policy that orders a node among its siblings.
    fn policy_above(&self, path: &NodePath) -> Policy {
        let parent = path.split_last().map(|(parent, _)| parent).unwrap_or_default();
        match self.nodes.get(&parent).map(|node| self.kind_of(&parent, node)) {
            Some(Kind::Scheduler(policy)) => policy,
            _ => self.root_policy(),
        }
    }

    fn check_tunables(&self, table: &str) -> Result<(), Error> {
        let set = |tune: &Tune| tune.iter().map(|(&key, &value)| (key, Some(value))).collect();
        let root = Kind::Scheduler(self.root_policy());
        check_tune(&set(&self.root_tune()), self.resource(), root, None)
            .map_err(|e| e.at(table))?;
        for (path, node) in &self.nodes {
            let (kind, above) = (self.kind_of(path, node), self.policy_above(path));
            check_tune(&set(&node.tune), self.resource(), kind, Some(above))
                .map_err(|e| e.at(quoted(&path.to_string())))?;
        }
        Ok(())
    }

    fn kind_at(&self, path: &NodePath) -> Option<NodeKind> {
        let q0 = is_q0(path);
        match self.nodes.get(path) {
            Some(node) => Some(node.kind),
            None if path.is_root() => Some(NodeKind::Scheduler),
            None if q0 => Some(NodeKind::Queue),
            None => None,
        }
    }

    /// `table` is what its table is called in a configuration.
    fn check(&self, table: &str) -> Result<(), Error> {
        for (path, node) in &self.nodes {
            let refuse = |why: String, hint: String| {
                Err(Error::new(ErrorKind::Invalid, format!("{}: {why}", quoted(&path.to_string())))
                    .hint(hint))
            };
            node.check(path)?;
            let Some((parent, name)) = path.split_last() else {
                return refuse(
                    "the resource itself is no node".into(),
                    "its policy stands in its own table".into(),
                );
            };
            match self.kind_at(&parent) {
                Some(NodeKind::Scheduler) => {}
                Some(NodeKind::Queue) => {
                    return refuse(
                        format!("{parent} is a queue"),
                        "only schedulers have children".into(),
                    );
                }
                None => {
                    return refuse(
                        "its parent is missing".into(),
                        format!("add [{table}.nodes.\"{parent}\"]"),
                    );
                }
            }
            if parent.is_root() && name.as_str() == "q0" && node.kind != NodeKind::Queue {
                return refuse("it is always a queue".into(), "kind = \"queue\"".into());
            }
        }
        self.check_tunables(table)
    }
}

impl Config {
    /// What cannot be seen from one value alone: parents, kinds, conditions and targets of rules.
    pub fn check(&self) -> Result<(), Error> {
        if let Some(cpu) = &self.cpu {
            cpu.check("cpu")?;
            if cpu.on.is_some() {
                return Err(Error::new(
                    ErrorKind::Invalid,
                    "cpu: \"on\" is of counting resources only",
                ));
            }
        }
        for (name, resource) in &self.count {
            let refuse = |why: &str, hint: &str| {
                Err(Error::new(ErrorKind::Invalid, format!("[{}]: {why}", resource.table(name)))
                    .hint(hint))
            };
            resource.check(&resource.table(name))?;
            if resource.on.is_none() {
                return refuse(
                    "what it counts is missing",
                    "on = \"file:/mnt/x\" or on = \"net:eth0\"",
                );
            }
            if resource.driver != Driver::Auto {
                return refuse("a counting resource has no driver to choose", "leave it out");
            }
        }
        self.check_containers()?;
        for (number, rule) in (1..).zip(&self.rules) {
            rule.check().map_err(|e| e.at(format_args!("rule {number}")))?;
            if rule.conditions.packets().is_some() {
                self.check_packets(rule).map_err(|e| e.at(format_args!("rule {number}")))?;
            }
            for (name, place) in &rule.queues {
                let wanted =
                    if name.as_str() == "cpu" { self.cpu.as_ref() } else { self.count.get(name) };
                let Some(resource) = wanted else { continue };
                let (path, kind, what) = match place {
                    RulePlace::Queue(path) => (path, NodeKind::Queue, "queue"),
                    RulePlace::EachUser(above) => (above, NodeKind::Scheduler, "scheduler"),
                };
                let of_container = || Some(self.containers.get(path)?.holds.node_kind());
                if resource.kind_at(path).or_else(of_container) != Some(kind) {
                    let why = format!(
                        "rule {number}: {} is no {what} of this configuration",
                        quoted(&path.to_string())
                    );
                    let table = if name.as_str() == "cpu" {
                        "cpu".to_owned()
                    } else {
                        resource.table(name)
                    };
                    let hint = format!("{name} names a {what}, as in [{table}.nodes.\"…\"]");
                    return Err(Error::new(ErrorKind::Invalid, why).hint(hint));
                }
            }
        }
        self.count.keys().try_for_each(|name| Rule::check_room(name, &self.rules))
    }

    /// What is said of a container's node is said of what the container has there.
    fn check_containers(&self) -> Result<(), Error> {
        let cpu = Name::new("cpu")?;
        let trees = self.cpu.iter().map(|tree| (&cpu, tree)).chain(&self.count);
        for (name, tree) in trees {
            for (path, container) in &self.containers {
                let wanted = container.holds.node_kind();
                if tree.nodes.get(path).is_some_and(|node| node.kind != wanted) {
                    let has = container.holds.word();
                    let why = format!("container {path}: {name}/{path} is no {has}");
                    return Err(Error::new(ErrorKind::Invalid, why).hint(format!(
                        "kind = \"{has}\", as it is the container's there; or another name"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Whether each resource that a rule names is there (`runs` knows) or is brought up.
    pub fn check_resources(&self, runs: impl Fn(&Name) -> bool) -> Result<(), Error> {
        let mut named = self.rules.iter().flat_map(Rule::resources);
        let there =
            |name: &Name| name.as_str() == "cpu" || self.count.contains_key(name) || runs(name);
        let Some(name) = named.find(|name| !there(name)) else { return Ok(()) };
        let why = format!("a rule names the resource {name}, which there is not");
        Err(Error::new(ErrorKind::NotFound, why).hint(
            "match, or the name of a resource that runs or that this configuration brings up",
        ))
    }

    /// Only links have packets.
    fn check_packets(&self, rule: &Rule) -> Result<(), Error> {
        for name in rule.queues.keys() {
            let on = self.count.get(name).and_then(|resource| resource.on.as_ref());
            if name.as_str() == "cpu" || on.is_some_and(|on| !matches!(on, Source::Link { .. })) {
                let why = format!("it is about packets, and {name} is no link that is scheduled");
                return Err(Error::new(ErrorKind::Invalid, why).hint("a link, as of [link.eth0]"));
            }
        }
        Ok(())
    }
}

/// The configuration that describes `tree`; draining queues are left out.
pub fn to_config(tree: &Tree, driver: Driver) -> ResourceConfig {
    let mut config = to_config_with_draining(tree, driver);
    for path in tree.iter().filter(|n| n.draining).filter_map(|n| tree.path(n.id)) {
        config.nodes.remove(&path);
    }
    config
}

/// The same with queues that drain as if they did not.
pub fn to_config_with_draining(tree: &Tree, driver: Driver) -> ResourceConfig {
    let nodes = tree.iter().filter(|n| n.parent.is_some());
    let (kind, personality) = (tree.root().kind, tree.personality());
    let policy = match kind {
        Kind::Scheduler(policy) => Some(policy),
        Kind::Queue(_) => None,
    };
    let mut tune = tree.root().tune.clone();
    tune.retain(|key, _| key.fits(tree.resource(), kind, None));
    // Where it says what would be so anyway, it is left out.
    let usual = ResourceConfig { personality, policy, ..ResourceConfig::default() }.root_tune();
    let tune = (tune != usual).then_some(tune);
    let nodes = nodes
        .filter_map(|n| {
            Some((tree.path(n.id)?, NodeConfig::of(tree.resource(), n, tree.policy_above(n.id))))
        })
        .collect();
    let access = listed_access(&tree.root().access);
    ResourceConfig { on: None, driver, personality, policy, tune, access, nodes }
}
