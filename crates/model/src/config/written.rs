// SPDX-License-Identifier: MIT OR Apache-2.0
//! A configuration as it stands in a file: links and disks have tables with words of their own.
//! `[count.NAME]` with `on = "link:…"` or `"disk:…"`, as it was before, goes on being read.
//!
//! ```toml
//! [link.eth0]
//! rate = "100mbit"             # as fast as the device takes packets where it is left out
//! interface = "eth0"           # the table's name where it is left out
//! driver = "auto"              # full or stock
//! receive = "tcx"              # or "xdp": what comes in is told apart too
//! receive_in = "web/site1"     # and processed by threads in this queue of the CPU
//! [link.eth0.nodes.web]        # all else as for the CPU
//! kind = "queue"
//! [disk.vdb]
//! path = "/dev/vdb"
//! depth = 8                    # requests at once
//! floor = "3MB/s"              # what it serves whatever is asked of it
//! front = "auto"               # ublk or fuse
//! model = "spinning"           # as slow as such a disk
//! driver = "auto"              # full or stock
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::words::{read_access, read_some_tune, write_access, write_some_tune};
use super::{Config, ContainerConfig, Driver, NodeConfig, ResourceConfig, is_default};
use crate::error::quoted;
use crate::{
    AccessChange, DiskModel, Error, ErrorKind, Front, Memory, Name, NodePath, Personality, Policy,
    Rate, Receive, Rule, Source, Tune,
};

/// See the head of this file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Written {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    backlog: Option<Memory>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cpu: Option<ResourceConfig>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    link: BTreeMap<Name, LinkTable>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    disk: BTreeMap<Name, DiskTable>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    count: BTreeMap<Name, ResourceConfig>,
    #[serde(default, rename = "container", skip_serializing_if = "BTreeMap::is_empty")]
    containers: BTreeMap<NodePath, ContainerConfig>,
    #[serde(default, rename = "rule", skip_serializing_if = "Vec::is_empty")]
    rules: Vec<Rule>,
}

/// A table with these keys, and those of any tree that is no CPU's.
macro_rules! table {
    ($(#[$outer:meta])* $name:ident { $($(#[$field:meta])* $key:ident: $type:ty,)+ }) => {
        $(#[$outer])*
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct $name {
            $($(#[$field])* $key: $type,)+
            #[serde(default, skip_serializing_if = "is_default")]
            driver: Driver,
            #[serde(default, skip_serializing_if = "is_default")]
            personality: Personality,
            #[serde(default, skip_serializing_if = "Option::is_none")]
            policy: Option<Policy>,
            #[serde(
                default,
                skip_serializing_if = "Option::is_none",
                serialize_with = "write_some_tune",
                deserialize_with = "read_some_tune"
            )]
            tune: Option<Tune>,
            #[serde(
                default,
                skip_serializing_if = "Vec::is_empty",
                serialize_with = "write_access",
                deserialize_with = "read_access"
            )]
            access: Vec<AccessChange>,
            #[serde(default)]
            nodes: BTreeMap<NodePath, NodeConfig>,
        }

        impl $name {
            fn tree(self, on: Source) -> ResourceConfig {
                let Self { personality, policy, tune, access, nodes, .. } = self;
                let driver = Driver::Auto;
                ResourceConfig { on: Some(on), driver, personality, policy, tune, access, nodes }
            }
        }
    };
}

table! {
    /// `[link.eth0]`
    LinkTable {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interface: Option<String>,
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            serialize_with = "write_rate",
            deserialize_with = "read_rate"
        )]
        rate: Option<Rate>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        receive: Option<Receive>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        receive_in: Option<NodePath>,
    }
}

table! {
    /// `[disk.vdb]`
    DiskTable {
        path: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        depth: Option<u32>,
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            serialize_with = "write_rate",
            deserialize_with = "read_rate"
        )]
        floor: Option<Rate>,
        #[serde(default, skip_serializing_if = "is_default")]
        front: Front,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<DiskModel>,
    }
}

#[expect(clippy::ref_option, reason = "serde's signature")]
fn write_rate<S: Serializer>(rate: &Option<Rate>, out: S) -> Result<S::Ok, S::Error> {
    out.collect_str(&rate.map_or_else(String::new, |rate| rate.to_string()))
}

fn read_rate<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Rate>, D::Error> {
    let text = String::deserialize(input)?;
    text.parse()
        .map(Some)
        .map_err(|error: Error| serde::de::Error::custom(format_args!("{error} ({})", error.hint)))
}

/// A table as it is written: what TOML would read as two names is quoted.
fn called(table: &str, name: &Name) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let name = name.as_str();
    if name.chars().all(bare) { format!("{table}.{name}") } else { format!("{table}.{name:?}") }
}

/// What it stands on, if that can be: as it is written in `on`, which has its rules.
fn checked(table: &str, name: &Name, on: &Source) -> Result<Source, Error> {
    on.to_string()
        .parse::<Source>()
        .map_err(|error| error.hint("reserv(5), [link.NAME] and [disk.NAME]"))
        .and_then(|read| match on {
            _ if read == *on => Ok(read),
            // Other words of the source are read from its name.
            Source::Link { interface, .. } => {
                let why = format!("no interface is called {}", quoted(interface));
                Err(Error::new(ErrorKind::Invalid, why)
                    .hint("interface = \"eth0\"; rate, driver, receive and receive_in have lines of their own"))
            }
            _ => {
                let why = format!("{} is no disk's path", quoted(&on.to_string()));
                Err(Error::new(ErrorKind::Invalid, why)
                    .hint("path = \"/dev/vdb\"; depth, front and driver have lines of their own"))
            }
        })
        .map_err(|error| error.at(format_args!("[{}]", called(table, name))))
}

impl TryFrom<Written> for Config {
    type Error = Error;

    /// Its trees are not looked at: [`Config::check`].
    fn try_from(written: Written) -> Result<Self, Error> {
        let Written { backlog, cpu, link, disk, count, containers, rules } = written;
        let mut all = Self { backlog, cpu, count, containers, rules };
        for (name, mut table) in link {
            let on = Source::Link {
                interface: table.interface.take().unwrap_or_else(|| name.to_string()),
                rate: table.rate,
                driver: table.driver,
                receive: table.receive,
                receive_in: table.receive_in.take(),
            };
            let on = checked("link", &name, &on)?;
            all.add("link", name, table.tree(on))?;
        }
        for (name, mut table) in disk {
            if table.depth == Some(0) {
                let why = format!("[{}]: a depth is a number from 1 to 256", called("disk", &name));
                return Err(Error::new(ErrorKind::Invalid, why)
                    .hint("left out, it is as the driver thinks best"));
            }
            let on = Source::Disk {
                path: std::mem::take(&mut table.path),
                depth: table.depth.unwrap_or_default(),
                floor: table.floor,
                model: table.model,
                front: table.front,
                driver: table.driver,
            };
            let on = checked("disk", &name, &on)?;
            all.add("disk", name, table.tree(on))?;
        }
        Ok(all)
    }
}

impl Config {
    fn add(&mut self, table: &str, name: Name, tree: ResourceConfig) -> Result<(), Error> {
        // Of links and disks nobody knows here which of the two words they had.
        if self.count.contains_key(&name) {
            let why = format!("[{}]: another table is called {name} too", called(table, &name));
            return Err(Error::new(ErrorKind::Invalid, why)
                .hint("one table for each name, of [link.…], [disk.…] and [count.…]"));
        }
        self.count.insert(name, tree);
        Ok(())
    }
}

impl ResourceConfig {
    /// What its table is called in a file that is written.
    pub(super) fn table(&self, name: &Name) -> String {
        match self.on {
            Some(Source::Link { .. }) => called("link", name),
            Some(Source::Disk { .. }) => called("disk", name),
            _ => called("count", name),
        }
    }
}

impl From<&Config> for Written {
    fn from(config: &Config) -> Self {
        let mut written = Self {
            backlog: config.backlog,
            cpu: config.cpu.clone(),
            containers: config.containers.clone(),
            rules: config.rules.clone(),
            ..Self::default()
        };
        for (name, tree) in &config.count {
            let ResourceConfig { on, personality, policy, tune, access, nodes, .. } = tree.clone();
            match on {
                Some(Source::Link { interface, rate, driver, receive, receive_in }) => {
                    let interface = (interface != name.as_str()).then_some(interface);
                    let table = LinkTable {
                        interface,
                        rate,
                        receive,
                        receive_in,
                        driver,
                        personality,
                        policy,
                        tune,
                        access,
                        nodes,
                    };
                    written.link.insert(name.clone(), table);
                }
                Some(Source::Disk { path, depth, floor, model, front, driver }) => {
                    let depth = (depth > 0).then_some(depth);
                    let table = DiskTable {
                        path,
                        depth,
                        floor,
                        front,
                        model,
                        driver,
                        personality,
                        policy,
                        tune,
                        access,
                        nodes,
                    };
                    written.disk.insert(name.clone(), table);
                }
                _ => drop(written.count.insert(name.clone(), tree.clone())),
            }
        }
        written
    }
}
