// SPDX-License-Identifier: MIT OR Apache-2.0
//! What resources there are: the one table of what differs between their kinds, and where a resource is found.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::quoted;
use crate::{Error, ErrorKind};

/// What a resource is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResourceKind {
    /// The processors: threads are tagged, service is CPU time.
    Cpu,
    /// A disk: descriptors of its files are tagged, service is bytes.
    Disk,
    /// A network interface: sockets are tagged, service is bytes.
    Link,
}

impl ResourceKind {
    /// The unit of service, as it ends the keys of `stat` and `backlog`.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Cpu => "ns",
            Self::Disk | Self::Link => "bytes",
        }
    }

    /// What is tagged with its queues.
    pub const fn tagged(self) -> &'static str {
        match self {
            Self::Cpu => "threads",
            Self::Disk => "descriptors of files",
            Self::Link => "sockets",
        }
    }
}

/// What a counting resource counts: `file:PATH`, the file system that PATH lies on, or `net:IFACE`, a network interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Source {
    /// Files of the file system that this absolute path lies on.
    File(String),
    /// Sockets over this interface.
    Net(String),
}

/// Longest name of an interface (Linux `IFNAMSIZ`, less its end).
const INTERFACE_MAX: usize = 15;

impl Source {
    /// Files are a disk's, sockets a link's.
    pub const fn kind(&self) -> ResourceKind {
        match self {
            Self::File(_) => ResourceKind::Disk,
            Self::Net(_) => ResourceKind::Link,
        }
    }
}

impl FromStr for Source {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = |why: &str| {
            Err(Error::new(ErrorKind::Invalid, format!("{}: {why}", quoted(text)))
                .hint("file:/mnt/x (the file system of that path) or net:eth0 (an interface)"))
        };
        if text.chars().any(char::is_control) {
            return bad("a control character");
        }
        match text.split_once(':') {
            Some(("file", path)) if path.starts_with('/') => Ok(Self::File(path.to_owned())),
            Some(("file", _)) => bad("the path does not start with /"),
            Some(("net", name)) if name.is_empty() || name.len() > INTERFACE_MAX => {
                bad("an interface has 1 to 15 bytes")
            }
            Some(("net", name)) if name.contains('/') || name.contains(char::is_whitespace) => {
                bad("no interface is called so")
            }
            Some(("net", name)) => Ok(Self::Net(name.to_owned())),
            _ => bad("neither file:PATH nor net:IFACE"),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{path}"),
            Self::Net(name) => write!(f, "net:{name}"),
        }
    }
}

impl TryFrom<String> for Source {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Source> for String {
    fn from(source: Source) -> Self {
        source.to_string()
    }
}
