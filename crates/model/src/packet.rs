// SPDX-License-Identifier: MIT OR Apache-2.0
//! What rules say about packets that leave by a link: ports, the other side's addresses, the
//! protocol. Local is this end's as the packet has it: of a forwarded packet its source.

use core::net::IpAddr;
use std::fmt;
use std::str::FromStr;

pub use reserv_facts::tag::PACKET_RULES_MAX;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Arrival, ArrivalRule, Error, ErrorKind, NodeId, NodePath, quoted};

fn refuse<T>(why: String, hint: &str) -> Result<T, Error> {
    Err(Error::new(ErrorKind::Invalid, why).hint(hint))
}

/// A port, or a range of them: `443`, `"8000-8999"`. From 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    first: u16,
    last: u16,
}

impl Ports {
    /// All that there are, and none: also packets whose port is not known.
    pub const ANY: Self = Self { first: 0, last: u16::MAX };

    /// From this one …
    pub const fn first(self) -> u16 {
        self.first
    }

    /// … to this one.
    pub const fn last(self) -> u16 {
        self.last
    }

    /// Whether this one is among them; 0: it is not known.
    pub const fn has(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }
}

impl FromStr for Ports {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let hint = "1 to 65535, or a range: 443, \"8000-8999\"";
        let one = |word: &str| match word.parse() {
            // The number parser takes a sign.
            Ok(port @ 1..) if word.bytes().all(|b| b.is_ascii_digit()) => Ok(port),
            _ => refuse(format!("{} is not a port", quoted(text)), hint),
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (one(first)?, one(last)?);
        if first > last {
            return refuse(format!("{} ends before it begins", quoted(text)), hint);
        }
        Ok(Self { first, last })
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

/// Addresses that begin alike: `"10.0.0.0/8"`, `"2001:db8::/32"`, `"192.0.2.7"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// The first of them.
    pub const fn address(self) -> IpAddr {
        self.address
    }

    /// How many bits are the same.
    pub const fn length(self) -> u8 {
        self.length
    }

    /// Whether an address is one of them.
    pub fn has(self, address: IpAddr) -> bool {
        let differ = bits(self.address) ^ bits(address);
        let shift = 128 - u32::from(self.length);
        self.address.is_ipv4() == address.is_ipv4() && differ.checked_shr(shift).unwrap_or(0) == 0
    }
}

impl From<IpAddr> for Prefix {
    fn from(address: IpAddr) -> Self {
        Self { address, length: width(address) }
    }
}

const fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The bits of an address, from the top.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(four) => u128::from(four.to_bits()) << 96,
        IpAddr::V6(six) => six.to_bits(),
    }
}

impl FromStr for Prefix {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let hint = "\"10.0.0.0/8\", \"2001:db8::/32\" or \"192.0.2.7\"";
        let (word, rest) =
            text.split_once('/').map_or((text, None), |(word, rest)| (word, Some(rest)));
        let Ok(address) = word.parse::<IpAddr>() else {
            return refuse(format!("{} is not an address", quoted(word)), hint);
        };
        let longest = width(address);
        let length = match rest {
            None => longest,
            Some(rest) => match rest.parse::<u8>() {
                Ok(length) if length <= longest && rest.bytes().all(|b| b.is_ascii_digit()) => {
                    length
                }
                _ => {
                    let why =
                        format!("{} is not a length of a prefix, 0 to {longest}", quoted(rest));
                    return refuse(why, hint);
                }
            },
        };
        if bits(address).checked_shl(length.into()).unwrap_or(0) != 0 {
            return refuse(format!("{} has bits beyond its /{length}", quoted(text)), hint);
        }
        Ok(Self { address, length })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// A protocol by its number in the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol(u8);

/// Those with a name; the first half has ports, in the first four bytes of its header.
const PROTOCOLS: [(&str, u8); 10] = [
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("sctp", 132),
    ("udplite", 136),
    ("icmp", 1),
    ("icmp6", 58),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
];
const WITH_PORTS: usize = 5;

impl Protocol {
    /// Its number.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Whether its packets have ports.
    pub fn has_ports(self) -> bool {
        PROTOCOLS[..WITH_PORTS].iter().any(|(_, number)| *number == self.0)
    }
}

impl FromStr for Protocol {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if let Some((_, number)) = PROTOCOLS.iter().find(|(name, _)| *name == text) {
            return Ok(Self(*number));
        }
        match text.parse() {
            Ok(number) if text.bytes().all(|b| b.is_ascii_digit()) => Ok(Self(number)),
            _ => {
                let names: Vec<&str> = PROTOCOLS.iter().map(|(name, _)| *name).collect();
                let hint = format!("{}, or a number up to 255", names.join(", "));
                refuse(format!("{} is not a protocol", quoted(text)), &hint)
            }
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match PROTOCOLS.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

/// A number or a text, as TOML and JSON have them; the word that is wrong stands in the error.
pub(crate) struct Word<T>(pub(crate) std::marker::PhantomData<T>, pub(crate) &'static str);

impl<T: FromStr<Err = Error>> Visitor<'_> for Word<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.1)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(|error: Error| E::custom(format_args!("{error} ({})", error.hint)))
    }
}

/// Types that are one word of a configuration.
macro_rules! words {
    ($($type:ty, $what:literal;)*) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_any($crate::packet::Word(std::marker::PhantomData, $what))
            }
        }
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }
    )*};
}
pub(crate) use words;
words! {
    Ports, "a port or a range of ports";
    Prefix, "an address or a prefix";
    Protocol, "a protocol";
}

/// All that a rule says about packets. What it names must all hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packets {
    /// The other side's.
    pub ports: Ports,
    /// This side's.
    pub local_ports: Ports,
    /// The other side; `None`: whoever.
    pub remote: Option<Prefix>,
    /// `None`: whatever.
    pub protocol: Option<Protocol>,
}

/// A rule about packets with the queue that it names, as a link's driver is told. The first that
/// matches wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRule {
    /// Which packets.
    pub packets: Packets,
    /// Where they go.
    pub queue: NodeId,
}

/// A rule about the packets of a link, as it is written: with the path of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleOfLink {
    /// Which packets.
    pub packets: Packets,
    /// Of what comes in; `None`: of what leaves, and of what comes in for nobody's queue.
    pub arrival: Option<Arrival>,
    /// Where they go; only of what comes in there may be none.
    pub queue: Option<NodePath>,
}

/// All rules about the packets of a link, as its driver is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketRules {
    /// In order.
    pub packets: Vec<PacketRule>,
    /// About who comes, in order.
    pub arrivals: Vec<ArrivalRule>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for text in ["1", "443", "65535", "8000-8999", "1-65535"] {
            assert_eq!(text.parse::<Ports>().unwrap().to_string(), text);
        }
        assert_eq!("7-7".parse::<Ports>().unwrap().to_string(), "7");
        for (text, shown) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("192.0.2.7", "192.0.2.7/32"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("::/0", "::/0"),
            ("::1", "::1/128"),
        ] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), shown);
        }
        for (text, shown) in
            [("tcp", "tcp"), ("6", "tcp"), ("0", "0"), ("255", "255"), ("icmp6", "icmp6")]
        {
            assert_eq!(text.parse::<Protocol>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn the_word_that_is_wrong_is_said() {
        let said = |error: Error| error.to_string();
        for word in
            ["", "0", "65536", "http", "-1", "+1", "1-", "-", "9-8", "1-2-3", " 1", "1 - 2", "0x50"]
        {
            assert!(said(word.parse::<Ports>().unwrap_err()).contains(&quoted(word)), "{word}");
        }
        for word in [
            "",
            "x",
            "10.0.0/8",
            "10.0.0.0/33",
            "10.0.0.1/8",
            "::1/64",
            "::/129",
            "::/",
            "10.0.0.0/+8",
            "[::]",
        ] {
            assert!(said(word.parse::<Prefix>().unwrap_err()).contains('"'), "{word}");
        }
        for word in ["", "TCP", "256", "-6", "tcp ", "ip"] {
            assert!(said(word.parse::<Protocol>().unwrap_err()).contains(word), "{word}");
        }
    }
}
