// SPDX-License-Identifier: MIT OR Apache-2.0
//! What rules say about packets that come in over a link with an entrance: from which clients, and
//! how many of them. Of the rules that a packet fits, the one with the longest prefix decides; then
//! a complement, the one that leaves out most first; then one for everybody. Among equals it is the
//! first.

use std::fmt;
use std::str::FromStr;

use reserv_facts::receive::{BURST_MAX, RATE_MAX};
pub use reserv_facts::receive::{CHAIN_MAX, RULES_MAX as ARRIVAL_RULES_MAX};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::packet::words;
use crate::{Client, Error, ErrorKind, NodeId, Packets, Protocol, quoted};

/// How many packets a second a rule lets in: `"100/s"`, or `"nothing"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LetIn(u64);

impl LetIn {
    /// Packets a second; 0: nothing.
    pub const fn rate(self) -> u64 {
        self.0
    }
}

/// How many of them may come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst(u64);

impl Burst {
    /// Packets.
    pub const fn packets(self) -> u64 {
        self.0
    }
}

fn number(word: &str, most: u64) -> Option<u64> {
    let digits = !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    word.parse().ok().filter(|n| digits && (1..=most).contains(n))
}

impl FromStr for LetIn {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self, Error> {
        if word == "nothing" {
            return Ok(Self(0));
        }
        let rate = number(word.strip_suffix("/s").unwrap_or(word), RATE_MAX);
        rate.map(Self).ok_or_else(|| {
            let why = format!("{} is no number of packets a second", quoted(word));
            let hint = format!("\"nothing\", or 1/s to {RATE_MAX}/s");
            Error::new(ErrorKind::Invalid, why).hint(hint)
        })
    }
}

impl fmt::Display for LetIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("nothing"),
            rate => write!(f, "{rate}/s"),
        }
    }
}

impl FromStr for Burst {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self, Error> {
        number(word, BURST_MAX).map(Self).ok_or_else(|| {
            let why = format!("{} is no number of packets", quoted(word));
            Error::new(ErrorKind::Invalid, why).hint(format!("1 to {BURST_MAX}"))
        })
    }
}

impl fmt::Display for Burst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

words! {
    Client, "a prefix of clients";
    LetIn, "a number of packets a second";
    Burst, "a number of packets";
}

/// A rule about who comes, as the entrance is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Who.
    pub client: Client,
    /// And how many packets, with how many at once; `None`: all.
    pub limit: Option<(LetIn, Option<Burst>)>,
}

/// What has come in by such a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ArrivalSample {
    /// Packets that it let in.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that it dropped.
    pub dropped: u64,
}

/// What such a rule says, as it is told apart from others: by this its counts go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrivalRule {
    /// Which ports of ours, and which protocol.
    pub packets: Packets,
    /// Who, and how many.
    pub arrival: Arrival,
    /// Whose they are; `None`: as without a rule.
    pub queue: Option<NodeId>,
}

impl ArrivalRule {
    /// Whether it fits a packet.
    pub fn fits(&self, from: core::net::IpAddr, port: u16, protocol: Protocol) -> bool {
        let with = match self.arrival.client {
            Client::Any => true,
            Client::In(prefix) => prefix.has(from),
            Client::Not(prefix) => {
                prefix.address().is_ipv4() == from.is_ipv4() && !prefix.has(from)
            }
        };
        let named = self.packets.protocol.is_none_or(|wanted| wanted == protocol);
        with && named && self.packets.local_ports.has(port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for text in ["nothing", "1/s", "100000000/s"] {
            assert_eq!(text.parse::<LetIn>().unwrap().to_string(), text);
        }
        assert_eq!("7".parse::<LetIn>().unwrap().to_string(), "7/s");
        assert_eq!("65536".parse::<Burst>().unwrap().to_string(), "65536");
        for text in ["any", "10.0.0.0/8", "not 10.0.0.0/8", "2001:db8::/32"] {
            assert_eq!(text.parse::<Client>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn the_word_that_is_wrong_is_said() {
        for word in ["", "0", "0/s", "/s", "+1", "-1", "1/m", "100000001", "all", "none"] {
            let said = word.parse::<LetIn>().unwrap_err().to_string();
            assert!(said.contains(&quoted(word)), "{word}: {said}");
        }
        for word in ["", "0", "65537", "1/s", "+1"] {
            let said = word.parse::<Burst>().unwrap_err().to_string();
            assert!(said.contains(&quoted(word)), "{word}: {said}");
        }
        for (text, word) in [
            ("", "\"\""),
            ("not", "\"not\""),
            ("not any", "\"any\""),
            ("not ::/0", "\"::/0\""),
            ("none", "\"none\""),
            ("10.0.0.1/8", "\"10.0.0.1/8\""),
            ("10.0.0.0/8 10.1.0.0/16", "\"8 10.1.0.0/16\""),
        ] {
            let said = text.parse::<Client>().unwrap_err().to_string();
            assert!(said.contains(word), "{text}: {said}");
        }
    }
}
