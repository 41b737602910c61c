// SPDX-License-Identifier: MIT OR Apache-2.0
//! For which clients a listening socket is.
//!
//! ```text
//! listen = "none" | ["at" port] client {client} ["allow" uid {uid}]
//! client = prefix | "not" prefix | "any"
//! ```
//!
//! Several sockets may have one address and port. A client goes to the one with the longest prefix
//! that it is in; else to one whose complement it is in (`not`), the one that leaves out most
//! first; else to one for everybody (`any`, a prefix of length 0). `at`: not where the socket is
//! bound, but at this port, where another one is. `allow`: users that may join this one so.

use std::fmt;
use std::str::FromStr;

use reserv_facts::listen::{CLIENTS_MAX, USERS_MAX};

use crate::{Error, ErrorKind, Prefix, quoted};

/// Some clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// All that the socket can have.
    Any,
    /// Those of a prefix.
    In(Prefix),
    /// All others of its version of IP.
    Not(Prefix),
}

impl Client {
    fn of(not: bool, word: &str) -> Result<Self, Error> {
        if word == "any" && !not {
            return Ok(Self::Any);
        }
        let prefix: Prefix = word.parse()?;
        match (not, prefix.length()) {
            (true, 0) => Err(invalid(format!("not {} is nobody", quoted(word)))),
            (true, _) => Ok(Self::Not(prefix)),
            (false, _) => Ok(Self::In(prefix)),
        }
    }
}

impl FromStr for Client {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text.strip_prefix("not ") {
            Some(word) => Self::of(true, word),
            None => Self::of(false, text),
        }
    }
}

/// What is said of a socket. Without clients: it is as any other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listen {
    /// Where, if not where it is bound.
    pub port: Option<u16>,
    /// For whom.
    pub clients: Vec<Client>,
    /// Users who may join it.
    pub allowed: Vec<u32>,
}

const HINT: &str = "10.1.0.0/16, not 10.0.0.0/8, any, none; at 80 10.1.0.0/16";

fn invalid(why: String) -> Error {
    Error::new(ErrorKind::Invalid, why).hint(HINT)
}

/// A number in decimal digits only, and not with a sign.
fn number<T: FromStr>(word: &str) -> Option<T> {
    word.parse().ok().filter(|_| word.bytes().all(|b| b.is_ascii_digit()))
}

impl FromStr for Listen {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut words = text.split_ascii_whitespace().peekable();
        let mut is = Self::default();
        if words.peek() == Some(&"none") {
            words.next();
            return match words.next() {
                None => Ok(is),
                Some(word) => Err(invalid(format!("{} behind \"none\"", quoted(word)))),
            };
        }
        if words.next_if_eq(&"at").is_some() {
            let word = words.next().unwrap_or("");
            let port = number(word).filter(|port| *port > 0);
            let no_port = || invalid(format!("{} is not a port", quoted(word)));
            is.port = Some(port.ok_or_else(no_port)?);
        }
        while let Some(word) = words.next_if(|word| *word != "allow") {
            let not = word == "not";
            let word = if not { words.next().unwrap_or("") } else { word };
            let client = Client::of(not, word)?;
            if !is.clients.contains(&client) {
                is.clients.push(client);
            }
        }
        if is.clients.is_empty() {
            return Err(invalid(format!("{} says no clients", quoted(text))));
        }
        if is.clients.len() > CLIENTS_MAX {
            let why = format!("{} clients; a socket has at most {CLIENTS_MAX}", is.clients.len());
            return Err(invalid(why));
        }
        if words.next().is_some() {
            for word in words {
                let user = number(word)
                    .ok_or_else(|| invalid(format!("{} is no number of a user", quoted(word))))?;
                is.allowed.push(user);
            }
            if is.allowed.is_empty() || is.allowed.len() > USERS_MAX {
                return Err(invalid(format!("\"allow\" with 1 to {USERS_MAX} numbers of users")));
            }
        }
        Ok(is)
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::In(prefix) => write!(f, "{prefix}"),
            Self::Not(prefix) => write!(f, "not {prefix}"),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        words.extend(self.port.map(|port| format!("at {port}")));
        words.extend(self.clients.iter().map(ToString::to_string));
        if self.clients.is_empty() {
            words.push("none".into());
        }
        if !self.allowed.is_empty() {
            words.push("allow".into());
        }
        words.extend(self.allowed.iter().map(ToString::to_string));
        f.write_str(&words.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for text in [
            "none",
            "any",
            "10.1.0.0/16",
            "10.1.0.0/16 192.0.2.7/32 not 10.0.0.0/8",
            "at 80 2001:db8::/32",
            "at 80 any allow 1000 0",
        ] {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), text);
        }
        let twice: Listen = "any  any\t10.0.0.1 10.0.0.1/32".parse().unwrap();
        assert_eq!(twice.to_string(), "any 10.0.0.1/32");
    }

    #[test]
    fn the_word_that_is_wrong_is_said() {
        for (text, word) in [
            ("", "\"\""),
            ("none any", "\"any\""),
            ("any none", "\"none\""),
            ("at", "\"\""),
            ("at 0 any", "\"0\""),
            ("at +80 any", "\"+80\""),
            ("at 65536 any", "\"65536\""),
            ("at 80", "\"at 80\""),
            ("10.0.0.1/8", "\"10.0.0.1/8\""),
            ("not any", "\"any\""),
            ("not", "\"\""),
            ("not 0.0.0.0/0", "\"0.0.0.0/0\""),
            ("not not 10.0.0.0/8", "\"not\""),
            ("any allow", "\"allow\""),
            ("any allow root", "\"root\""),
            ("allow 1", "\"allow 1\""),
            ("10.1.0.0/16,10.2.0.0/16", "\"16,10.2.0.0/16\""),
        ] {
            let said = text.parse::<Listen>().unwrap_err().to_string();
            assert!(said.contains(word), "{text}: {said}");
        }
        let many = |n: usize| {
            let all: Vec<String> = (0..n).map(|i| format!("10.0.0.{i}")).collect();
            all.join(" ").parse::<Listen>()
        };
        assert!(many(CLIENTS_MAX).is_ok() && many(CLIENTS_MAX + 1).is_err());
    }
}
