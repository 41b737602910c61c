// SPDX-License-Identifier: MIT OR Apache-2.0
//! What resources there are: the one table of what differs between their kinds, and where a
//! resource is found.

use std::fmt;
use std::str::FromStr;

use reserv_facts::tree::DISK_DEPTH_MAX;
use serde::{Deserialize, Serialize};

use crate::error::quoted;
use crate::kind::words;
use crate::{Driver, Error, ErrorKind, NodePath, Rate};

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
    /// Threads are served, and how long they will run is not known.
    pub const fn is_cpu(self) -> bool {
        matches!(self, Self::Cpu)
    }

    /// As `status` says it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Disk => "disk",
            Self::Link => "link",
        }
    }

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

/// What a resource beside the CPU stands on. Counting resources: `file:PATH`, the file system that
/// PATH lies on, or `net:IFACE`, a network interface. An interface that is scheduled: `link:IFACE`,
/// as fast as the device takes packets, or `link:IFACE@RATE`; with `/full` or `/stock` at the end
/// by that driver; `link+tcx:IFACE` or `link+xdp:IFACE` where what comes in is told apart too,
/// `link+in=PATH:IFACE` or `link+xdp+in=PATH:IFACE` where it is processed by threads in that queue
/// of the CPU. A disk that is scheduled: `disk:PATH`, a file or a block device, or
/// `disk+DEPTH:PATH`, with so many requests at once; `disk@RATE:PATH` or `disk+DEPTH@RATE:PATH`
/// where it serves so much whatever is asked of it; with `/ublk` or `/fuse` before the colon by
/// that front end, and with `/spinning` or `/flash` before that it takes as long as such a disk
/// would. `disk/stock:PATH` by the stock driver, `disk+1/stock:PATH` with one request at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Source {
    /// Files of the file system that this absolute path lies on.
    File(String),
    /// Sockets over this interface.
    Net(String),
    /// This interface, scheduled.
    Link {
        /// Its name.
        interface: String,
        /// How fast it is let send.
        rate: Option<Rate>,
        /// By which driver.
        driver: Driver,
        /// Where what comes in is told apart, if it is.
        receive: Option<Receive>,
        /// The queue of the CPU in which what comes in is processed, by threads; `None`: in
        /// softirqs.
        receive_in: Option<NodePath>,
    },
    /// This file or block device, scheduled.
    Disk {
        /// Its absolute path.
        path: String,
        /// Requests that it is given at once; 0: as many as the driver thinks best.
        depth: u32,
        /// What it serves per second whatever the requests are like: so much can be promised.
        floor: Option<Rate>,
        /// As slow as this one.
        model: Option<DiskModel>,
        /// What makes the device that programs use.
        front: Front,
        /// By which driver; the stock one has none of the above but a depth of 1.
        driver: Driver,
    },
}

/// What makes the device that programs use in a scheduled disk's place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Front {
    /// ublk where the kernel has it, else FUSE.
    #[default]
    Auto,
    /// ublk, or an error.
    Ublk,
    /// A file of FUSE with a loop device over it.
    Fuse,
}

impl Front {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Ublk => "ublk",
            Self::Fuse => "fuse",
        }
    }
}

words! {
    /// Where packets that come in are told apart.
    Receive, "place of an entrance":
    Tcx = 0 "tcx" "Behind the driver and what it puts together (GRO), at any interface.",
    Xdp = 1 "xdp" "In the driver, before a packet has memory of its own; not every driver can.",
}

words! {
    /// A disk that another one, or a file, is made as slow as.
    DiskModel, "model of a disk":
    Spinning = 0 "spinning" "One arm over turning platters: 7200 revolutions a minute.",
    Flash = 1 "flash" "Channels of flash.",
}

/// Longest name of an interface (Linux `IFNAMSIZ`, less its end).
const INTERFACE_MAX: usize = 15;

impl Source {
    /// Files are a disk's, sockets a link's.
    pub const fn kind(&self) -> ResourceKind {
        match self {
            Self::File(_) | Self::Disk { .. } => ResourceKind::Disk,
            Self::Net(_) | Self::Link { .. } => ResourceKind::Link,
        }
    }

    /// Whether it is only counted.
    pub const fn counts(&self) -> bool {
        !matches!(self, Self::Link { .. } | Self::Disk { .. })
    }

    /// What can be promised of it, in bytes per second: what it is let send, or what it serves
    /// whatever is asked of it. 0: nobody knows.
    pub fn promised(&self) -> u64 {
        match self {
            Self::Link { rate, .. } | Self::Disk { floor: rate, .. } => rate.map_or(0, Rate::bytes),
            Self::File(_) | Self::Net(_) => 0,
        }
    }

    /// The same, with what it leaves open of a link (rate, driver, entrance, threads) as `running` has it.
    #[must_use]
    pub fn filled(&self, running: &Self) -> Self {
        let mut filled = self.clone();
        if let (
            Self::Link { rate, driver, receive, receive_in, .. },
            Self::Link { rate: has, driver: by, receive: at, receive_in: place, .. },
        ) = (&mut filled, running)
        {
            *rate = rate.or(*has);
            *receive = receive.or(*at);
            *receive_in = receive_in.take().or_else(|| place.clone());
            if *driver == Driver::Auto {
                *driver = *by;
            }
        }
        filled
    }

    /// Whether it is the same but for a link's rate, which can be another one while it runs.
    pub fn is_but_for_rate(&self, running: &Self) -> bool {
        let same = |mut source: Self| {
            source.set_rate(None);
            source
        };
        same(self.clone()) == same(running.clone())
    }

    /// How fast a link is let send.
    pub const fn rate(&self) -> Option<Rate> {
        match self {
            Self::Link { rate, .. } => *rate,
            _ => None,
        }
    }

    /// A link's other rate.
    pub const fn set_rate(&mut self, new: Option<Rate>) {
        if let Self::Link { rate, .. } = self {
            *rate = new;
        }
    }

    /// What is done with it, for people: `schedules eth0 at 100mbit`.
    pub fn words(&self) -> String {
        match self {
            Self::Link { interface, rate: Some(rate), .. } => {
                format!("schedules {interface} at {rate}")
            }
            Self::Link { interface, rate: None, .. } => format!("schedules {interface}"),
            Self::Disk { path, .. } => format!("schedules {path}"),
            Self::File(path) => format!("counts what is done on the file system of {path}"),
            Self::Net(interface) => format!("counts what is sent over {interface}"),
        }
    }

    /// The interface, if it is one.
    pub fn interface(&self) -> Option<&str> {
        match self {
            Self::File(_) | Self::Disk { .. } => None,
            Self::Net(name) | Self::Link { interface: name, .. } => Some(name),
        }
    }
}

impl FromStr for Source {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = |why: &str| {
            Err(Error::new(ErrorKind::Invalid, format!("{}: {why}", quoted(text)))
                .hint("file:/mnt/x (the file system of that path), net:eth0 (an interface), link:eth0 or link:eth0@100mbit (one that is scheduled), link:eth0@100mbit/stock (by the stock driver), link+tcx:eth0 or link+xdp:eth0 (what comes in too), link+in=web/site1:eth0 (that is processed in that queue of the CPU), disk:/dev/vdb, disk+4:/dev/vdb or disk@24mbit:/dev/vdb (a disk that is scheduled), disk/fuse:/dev/vdb (by that front end, ublk or fuse), disk/spinning:/srv/x.img (a file as slow as such a disk), disk/stock:/dev/vdb (by the stock driver)"))
        };
        if text.chars().any(char::is_control) {
            return bad("a control character");
        }
        match text.split_once(':') {
            Some((kind, path))
                if kind
                    .strip_prefix("disk")
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', '@', '/'])) =>
            {
                if !path.starts_with('/') {
                    return bad("the path does not start with /");
                }
                let (kind, driver) = match (kind.strip_suffix("/stock"), kind.strip_suffix("/full"))
                {
                    (Some(kind), _) => (kind, Driver::Stock),
                    (_, Some(kind)) => (kind, Driver::Full),
                    _ => (kind, Driver::Auto),
                };
                let (kind, front) = match (kind.strip_suffix("/ublk"), kind.strip_suffix("/fuse")) {
                    (Some(kind), _) => (kind, Front::Ublk),
                    (_, Some(kind)) => (kind, Front::Fuse),
                    _ => (kind, Front::Auto),
                };
                let (kind, model) = match kind.split_once('/') {
                    Some((kind, model)) => (kind, Some(model.parse()?)),
                    None => (kind, None),
                };
                let (kind, floor) = match kind.split_once('@') {
                    Some((kind, rate)) => (kind, Some(rate.parse()?)),
                    None => (kind, None),
                };
                let depth = match kind.strip_prefix("disk+") {
                    None if kind == "disk" => 0,
                    None => return bad("a front end is ublk or fuse"),
                    Some(number) => match number.parse() {
                        Ok(depth @ 1..=DISK_DEPTH_MAX) => depth,
                        _ => return bad("a depth is a number from 1 to 256"),
                    },
                };
                if driver == Driver::Stock {
                    if front != Front::Auto {
                        return bad(
                            "the stock driver has no front end: programs go on using the device itself",
                        );
                    }
                    if model.is_some() {
                        return bad("the stock driver has no model of a disk: the full driver has");
                    }
                    if floor.is_some() {
                        return bad(
                            "the stock driver promises no minimums, so it takes no floor: the full driver does",
                        );
                    }
                    if depth > 1 {
                        return bad(
                            "the stock driver gives the disk one request at a time (a depth of 1) or leaves it to the kernel (no depth)",
                        );
                    }
                }
                Ok(Self::Disk { path: path.to_owned(), depth, floor, front, model, driver })
            }
            Some(("file", path)) if path.starts_with('/') => Ok(Self::File(path.to_owned())),
            Some(("file", _)) => bad("the path does not start with /"),
            Some((kind, rest)) if kind == "net" || kind.split('+').next() == Some("link") => {
                let (kind, receive_in) = match kind.split_once("+in=") {
                    Some((_, "")) => return bad("a queue of the CPU, as web/site1"),
                    Some((kind, queue)) => (kind, Some(queue.parse()?)),
                    None => (kind, None),
                };
                let (kind, receive) = match kind.split_once('+') {
                    Some((kind, at)) => (kind, Some(at.parse()?)),
                    None => (kind, None),
                };
                let (rest, driver) = match rest.rsplit_once('/') {
                    Some((rest, "full")) if kind == "link" => (rest, Driver::Full),
                    Some((rest, "stock")) if kind == "link" => (rest, Driver::Stock),
                    Some((_, "s")) | None => (rest, Driver::Auto),
                    Some(_) if kind == "link" => return bad("a driver of a link is full or stock"),
                    Some(_) => (rest, Driver::Auto),
                };
                let (name, rate) = match rest.rsplit_once('@') {
                    Some((name, rate)) if kind == "link" => (name, Some(rate.parse()?)),
                    _ => (rest, None),
                };
                if name.is_empty() || name.len() > INTERFACE_MAX {
                    return bad("an interface has 1 to 15 bytes");
                }
                if name.contains(['/', '@']) || name.contains(char::is_whitespace) {
                    return bad("no interface is called so");
                }
                let interface = name.to_owned();
                Ok(if kind == "net" {
                    Self::Net(interface)
                } else {
                    Self::Link { interface, rate, driver, receive, receive_in }
                })
            }
            _ => bad("none of file:PATH, net:IFACE, link:IFACE, disk:PATH"),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{path}"),
            Self::Net(name) => write!(f, "net:{name}"),
            Self::Link { interface, rate, driver, receive, receive_in } => {
                f.write_str("link")?;
                if let Some(at) = receive {
                    write!(f, "+{at}")?;
                }
                if let Some(queue) = receive_in {
                    write!(f, "+in={queue}")?;
                }
                write!(f, ":{interface}")?;
                if let Some(rate) = rate {
                    write!(f, "@{}", rate.bare())?;
                }
                match driver {
                    Driver::Auto => Ok(()),
                    Driver::Full => f.write_str("/full"),
                    Driver::Stock => f.write_str("/stock"),
                }
            }
            Self::Disk { path, depth, floor, front, model, driver } => {
                f.write_str("disk")?;
                if *depth > 0 {
                    write!(f, "+{depth}")?;
                }
                if let Some(floor) = floor {
                    write!(f, "@{}", floor.bare())?;
                }
                if let Some(model) = model {
                    write!(f, "/{model}")?;
                }
                if *front != Front::Auto {
                    write!(f, "/{}", front.name())?;
                }
                match driver {
                    Driver::Auto => {}
                    Driver::Full => f.write_str("/full")?,
                    Driver::Stock => f.write_str("/stock")?,
                }
                write!(f, ":{path}")
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_print_as_they_parse() {
        for text in [
            "file:/mnt/x@y",
            "disk:/dev/vdb",
            "disk+4:/srv/a:b",
            "disk@24mbit:/dev/vdb",
            "disk+4@24mbit:/srv/a@b:c",
            "disk/ublk:/dev/vdb",
            "disk+4@24mbit/fuse:/dev/vdb",
            "disk/stock:/dev/vdb",
            "disk+1/stock:/dev/vdb",
            "disk+4/ublk/full:/dev/vdb",
            "net:eth0",
            "link:eth0",
            "link:eth0.7@100mbit",
            "link:wlan0@1.5mbit",
            "disk@3MB:/dev/vdb",
            "link:eth0@1mbit/stock",
            "link:eth0/full",
            "link+in=web/site1:eth0@1mbit/full",
            "link+xdp+in=net:eth0",
        ] {
            let source: Source = text.parse().unwrap();
            assert_eq!(source.to_string(), text);
            assert_eq!(source.counts(), text.starts_with("file:") || text.starts_with("net:"));
        }
        for bad in [
            "link:",
            "link:@1mbit",
            "link:eth0@",
            "link:eth0@fast",
            "link:a@b@1mbit",
            "net:a@1mbit",
            "link:a/b",
            "link:eth0@1mbit/auto",
            "net:eth0/stock",
            "disk:vdb",
            "disk+0:/dev/vdb",
            "disk+257:/dev/vdb",
            "disk+x:/dev/vdb",
            "disk@:/dev/vdb",
            "disk/loop:/dev/vdb",
            "disk/:/dev/vdb",
            "disk+4/nbd:/dev/vdb",
            "disk@4@5mbit:/dev/vdb",
            "disk+2/stock:/dev/vdb",
            "disk@24mbit/stock:/dev/vdb",
            "disk/fuse/stock:/dev/vdb",
            "disk/flash/stock:/dev/vdb",
            "disk/stock/full:/dev/vdb",
            "link:eth0@1mbit\n",
            "link+in=:eth0",
            "link+in=/x:eth0",
            "link+in=x+xdp:eth0",
            "net+in=x:eth0",
        ] {
            assert!(bad.parse::<Source>().is_err(), "{bad}");
        }
    }
}
