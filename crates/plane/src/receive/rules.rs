// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules about who comes, as `bpf/receive/rules.h` reads them: all addresses cut into ranges, each
//! with the rule that is asked first there, and behind each rule the one that is asked next. The
//! table is replaced as a whole. What a rule has let in and counted stands elsewhere, so that it
//! goes on when other rules change.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::os::fd::AsRawFd as _;

use reserv_facts::receive::{
    BURST, CHAIN_MAX, COUNTS_MAX, EDGES_MAX, NO_RULE, RULES_MAX, TICKS_NS,
};
use reserv_model::{ArrivalRule, ArrivalSample, Client, Prefix, Protocol};

use super::Entrance;
use super::abi::{RvEdge, RvLimit, RvRule, RvTable};
use crate::libbpf::os;
use crate::tag::compared;
use crate::{PlaneError, sys};

/// Of a second.
const NS: u64 = 1_000_000_000;

/// What a rule lets in.
fn limit(rule: &ArrivalRule, mark: u64) -> RvLimit {
    let Some((rate, burst)) = rule.arrival.limit else {
        return RvLimit { mark, ..RvLimit::default() };
    };
    let nothing = u32::from(rate.rate() == 0);
    // Rounded up, so that no more comes in than was said.
    let period = (u64::from(TICKS_NS) * NS).div_ceil(rate.rate().max(1));
    let credit = period * burst.map_or(BURST, reserv_model::Burst::packets);
    RvLimit { nothing, period, credit, mark, ..RvLimit::default() }
}

/// How a rule is known again, of those told at once: equal ones by their order.
fn marks(rules: &[ArrivalRule]) -> Vec<u64> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let mark = |rule: &ArrivalRule| {
        let text = format!("{rule:?}");
        let nth = seen.entry(text.clone()).or_default();
        *nth += 1;
        let mut hasher = DefaultHasher::new();
        (text, *nth).hash(&mut hasher);
        hasher.finish().max(1)
    };
    rules.iter().map(mark).collect()
}

fn encode(rule: &ArrivalRule, limit: u32) -> RvRule {
    let prefix = match rule.arrival.client {
        Client::Any => None,
        Client::In(prefix) | Client::Not(prefix) => Some(prefix),
    };
    let (address, mask) = prefix.map(compared).unwrap_or_default();
    let only = |there: bool| if there { 0xff } else { 0 };
    RvRule {
        address,
        mask,
        node: rule.queue.map_or(0, reserv_model::NodeId::pack),
        local_first: rule.packets.local_ports.first(),
        local_last: rule.packets.local_ports.last(),
        protocol: rule.packets.protocol.map_or(0, Protocol::number),
        protocol_mask: only(rule.packets.protocol.is_some()),
        version: prefix.map_or(0, |prefix| if prefix.address().is_ipv4() { 4 } else { 6 }),
        version_mask: only(prefix.is_some()),
        next: NO_RULE,
        limit: u16::try_from(limit).unwrap_or(NO_RULE),
        complement: matches!(rule.arrival.client, Client::Not(_)).into(),
        pad: [0; 3],
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(four) => four.to_bits().into(),
        IpAddr::V6(six) => six.to_bits(),
    }
}

/// The last address of a prefix.
fn last(prefix: Prefix) -> u128 {
    let width: u32 = if prefix.address().is_ipv4() { 32 } else { 128 };
    let rest = width - u32::from(prefix.length());
    number(prefix.address()) | 1_u128.checked_shl(rest).map_or(u128::MAX, |end| end - 1)
}

/// A rule of a table, by its index.
#[expect(clippy::cast_possible_truncation, reason = "as many as fit were checked before")]
const fn index(rule: usize) -> u16 {
    rule as u16
}

/// The order of those of one version of IP that are asked where no prefix fits: complements first,
/// the one that leaves out most before, then prefixes of all addresses.
fn rank(client: Client, four: bool) -> Option<u8> {
    match client {
        Client::Not(prefix) if prefix.address().is_ipv4() == four => Some(prefix.length()),
        Client::In(prefix) if prefix.address().is_ipv4() == four && prefix.length() == 0 => {
            Some(u8::MAX)
        }
        _ => None,
    }
}

/// The ranges of one version, each with the rule that is asked first; the rules are put in order.
fn ranges(rules: &[ArrivalRule], table: &mut RvTable, four: bool, all: u16) -> Vec<(u128, u16)> {
    let mut rest: Vec<(u8, usize)> = rules
        .iter()
        .enumerate()
        .filter_map(|(at, rule)| Some((rank(rule.arrival.client, four)?, at)))
        .collect();
    rest.sort_unstable();
    let mut first = all;
    for (_, at) in rest.into_iter().rev() {
        table.rule[at].next = first;
        first = index(at);
    }
    let mut prefixes: BTreeMap<(u8, u128), (Prefix, Vec<usize>)> = BTreeMap::new();
    for (at, rule) in rules.iter().enumerate() {
        if let Client::In(prefix) = rule.arrival.client
            && prefix.address().is_ipv4() == four
            && prefix.length() > 0
        {
            let key = (prefix.length(), number(prefix.address()));
            prefixes.entry(key).or_insert_with(|| (prefix, Vec::new())).1.push(at);
        }
    }
    // Of those that have an address the longest is the last, by its first rule.
    let longest = |address: u128, below: u8, heads: &[(Prefix, u16)]| {
        let has = |prefix: &Prefix| number(prefix.address()) <= address && address <= last(*prefix);
        let found = heads.iter().rev().find(|(p, _)| p.length() < below && has(p));
        found.map_or(first, |(_, head)| *head)
    };
    let mut heads: Vec<(Prefix, u16)> = Vec::new();
    for (prefix, of_prefix) in prefixes.values() {
        let mut next = longest(number(prefix.address()), prefix.length(), &heads);
        for at in of_prefix.iter().rev() {
            table.rule[*at].next = next;
            next = index(*at);
        }
        heads.push((*prefix, next));
    }
    let ends = prefixes.values().flat_map(|(prefix, _)| {
        let after = last(*prefix).checked_add(1).filter(|end| !four || *end >> 32 == 0);
        [Some(number(prefix.address())), after]
    });
    let edges: BTreeSet<u128> = ends.flatten().chain([0]).collect();
    edges.into_iter().map(|edge| (edge, longest(edge, u8::MAX, &heads))).collect()
}

/// The table of these rules, which count at these places.
#[expect(clippy::large_stack_arrays, reason = "goes to the heap at once")]
pub(super) fn table(rules: &[ArrivalRule], counts: &[u32]) -> Result<Box<RvTable>, PlaneError> {
    if rules.len() > RULES_MAX {
        let why = format!("{} rules about who comes; at most {RULES_MAX}", rules.len());
        return Err(PlaneError::Full(why));
    }
    let mut table = Box::new(RvTable {
        edges4: 0,
        edges: 0,
        edge: [RvEdge::default(); EDGES_MAX],
        rule: [RvRule::default(); RULES_MAX],
    });
    for ((slot, rule), count) in table.rule.iter_mut().zip(rules).zip(counts) {
        *slot = encode(rule, *count);
    }
    let mut all = NO_RULE;
    for (at, _) in
        rules.iter().enumerate().rev().filter(|(_, rule)| rule.arrival.client == Client::Any)
    {
        table.rule[at].next = all;
        all = index(at);
    }
    let four = ranges(rules, &mut table, true, all);
    let six = ranges(rules, &mut table, false, all);
    table.edges4 = u32::try_from(four.len()).unwrap_or_default();
    table.edges = table.edges4 + u32::try_from(six.len()).unwrap_or_default();
    for (slot, (address, rule)) in table.edge.iter_mut().zip(four.iter().chain(&six)) {
        #[expect(clippy::cast_possible_truncation, reason = "its two halves")]
        let (high, low) = ((*address >> 64) as u64, *address as u64);
        *slot = RvEdge { high, low, rule: (*rule).into(), pad: 0 };
    }
    let of_four = four.iter().map(|range| (range, true));
    for ((address, first), is_four) in of_four.chain(six.iter().map(|range| (range, false))) {
        let asked = std::iter::successors(Some(*first), |rule| {
            table.rule.get(usize::from(*rule)).map(|rule| rule.next)
        });
        if asked.take_while(|rule| *rule != NO_RULE).nth(CHAIN_MAX).is_some() {
            #[expect(clippy::cast_possible_truncation, reason = "as long as the version has")]
            let from = if is_four {
                IpAddr::V4((*address as u32).into())
            } else {
                IpAddr::V6((*address).into())
            };
            let why = format!("more than {CHAIN_MAX} rules are about who comes from {from}");
            return Err(PlaneError::Full(why));
        }
    }
    Ok(table)
}

impl Entrance {
    /// The rules about who comes, whole and in order, instead of those before. Those that stay go
    /// on with their counts and times.
    pub fn set_rules(&mut self, rules: &[ArrivalRule]) -> Result<(), PlaneError> {
        let there = self.marks()?;
        let wanted = marks(rules);
        let free: Vec<u32> =
            (0..COUNTS_MAX).filter(|at| !there.values().any(|p| p == at)).collect();
        let mut free = free.into_iter();
        let counts: Option<Vec<u32>> =
            wanted.iter().map(|mark| there.get(mark).copied().or_else(|| free.next())).collect();
        let Some(counts) = counts else {
            // Who died in the middle has left some: all begin anew.
            self.replace(&[], &[])?;
            there.values().try_for_each(|at| self.put_limit(*at, RvLimit::default()))?;
            return self.set_rules(rules);
        };
        // Before anything is changed: it may not fit.
        table(rules, &counts)?;
        for ((rule, mark), at) in rules.iter().zip(&wanted).zip(&counts) {
            if !there.contains_key(mark) {
                self.put_limit(*at, limit(rule, *mark))?;
            }
        }
        self.replace(rules, &counts)?;
        for (mark, at) in &there {
            if !wanted.contains(mark) {
                self.put_limit(*at, RvLimit::default())?;
            }
        }
        self.counted = counts;
        Ok(())
    }

    fn put_limit(&self, at: u32, limit: RvLimit) -> Result<(), PlaneError> {
        sys::put(&self.limits, &at, &limit).map_err(os("tell what a rule lets in"))
    }

    fn limit(&self, at: u32) -> Result<RvLimit, PlaneError> {
        let found = sys::get::<u32, RvLimit>(&self.limits, &at);
        Ok(found.map_err(os("look up what a rule lets in"))?.unwrap_or_default())
    }

    /// The rules that count now, with their places.
    fn marks(&self) -> Result<BTreeMap<u64, u32>, PlaneError> {
        let mut all = BTreeMap::new();
        for at in 0..COUNTS_MAX {
            let mark = self.limit(at)?.mark;
            if mark != 0 {
                all.insert(mark, at);
            }
        }
        Ok(all)
    }

    /// The kernel has no reader of the old table left when this is done.
    fn replace(&self, rules: &[ArrivalRule], counts: &[u32]) -> Result<(), PlaneError> {
        if rules.is_empty() {
            return sys::remove(&self.rules, &0_u32)
                .map(drop)
                .map_err(os("forget rules about who comes"));
        }
        let table = table(rules, counts)?;
        let inner = sys::new_array::<RvTable>(c"arrival_table")
            .map_err(os("make a table of rules about who comes"))?;
        sys::put(&inner, &0_u32, &*table)
            .and_then(|()| sys::put(&self.rules, &0_u32, &inner.as_raw_fd()))
            .map_err(os("tell rules about who comes"))
    }

    /// What has come in by each rule, in the order in which they were told.
    pub fn arrivals(&self) -> Vec<ArrivalSample> {
        let sample = |at: &u32| {
            let RvLimit { packets, bytes, dropped, .. } = self.limit(*at).unwrap_or_default();
            ArrivalSample { packets, bytes, dropped }
        };
        self.counted.iter().map(sample).collect()
    }
}

#[cfg(test)]
mod tests {
    use reserv_model::{Arrival, Packets, Ports};

    use super::*;

    fn rule(client: &str, port: &str, protocol: Option<&str>) -> ArrivalRule {
        let arrival = Arrival { client: client.parse().unwrap(), limit: None };
        let local_ports = if port.is_empty() { Ports::ANY } else { port.parse().unwrap() };
        let protocol = protocol.map(|p| p.parse().unwrap());
        let packets = Packets { ports: Ports::ANY, local_ports, remote: None, protocol };
        ArrivalRule { packets, arrival, queue: None }
    }

    /// As the program looks it up.
    fn found(table: &RvTable, rules: &[ArrivalRule], from: IpAddr, port: u16) -> Option<usize> {
        let tcp: Protocol = "tcp".parse().unwrap();
        let four = from.is_ipv4();
        let edges = if four {
            &table.edge[..table.edges4 as usize]
        } else {
            &table.edge[table.edges4 as usize..table.edges as usize]
        };
        let begins = |edge: &RvEdge| u128::from(edge.high) << 64 | u128::from(edge.low);
        let at = edges.partition_point(|edge| begins(edge) <= number(from)) - 1;
        let mut next = u16::try_from(edges[at].rule).unwrap();
        for _ in 0..CHAIN_MAX {
            let is = table.rule.get(usize::from(next))?;
            if rules[usize::from(next)].fits(from, port, tcp) {
                return Some(next.into());
            }
            next = is.next;
        }
        None
    }

    /// By the definition.
    fn naive(rules: &[ArrivalRule], from: IpAddr, port: u16) -> Option<usize> {
        let tcp: Protocol = "tcp".parse().unwrap();
        let order = |client: Client| match client {
            Client::In(prefix) if prefix.length() > 0 => (0, 255 - prefix.length()),
            Client::Not(prefix) => (1, prefix.length()),
            Client::In(_) => (2, 0),
            Client::Any => (3, 0),
        };
        let fitting = rules.iter().enumerate().filter(|(_, rule)| rule.fits(from, port, tcp));
        fitting.min_by_key(|(at, rule)| (order(rule.arrival.client), *at)).map(|(at, _)| at)
    }

    #[test]
    fn the_longest_prefix_that_fits_decides() {
        let clients = [
            "10.0.0.0/8",
            "10.1.0.0/16",
            "10.1.0.0/16",
            "10.1.2.3",
            "255.255.255.255",
            "128.0.0.0/1",
            "0.0.0.0/0",
            "not 10.0.0.0/8",
            "not 10.1.0.0/16",
            "any",
            "2001:db8::/32",
            "2001:db8:1::/48",
            "ffff::/16",
            "not 2001:db8::/32",
            "::/0",
        ];
        let addresses = [
            "0.0.0.0",
            "9.255.255.255",
            "10.0.0.0",
            "10.1.0.0",
            "10.1.2.3",
            "10.1.2.4",
            "10.255.255.255",
            "11.0.0.0",
            "127.255.255.255",
            "128.0.0.0",
            "255.255.255.254",
            "255.255.255.255",
            "::",
            "2001:db8::1",
            "2001:db8:1::1",
            "2001:db9::",
            "ffff:ffff::",
        ]
        .map(|a| a.parse::<IpAddr>().unwrap());
        let mut dice: u64 = 7;
        let mut roll = |n: usize| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (dice >> 33) as usize % n
        };
        for _ in 0..300 {
            let rules: Vec<ArrivalRule> = (0..roll(12))
                .map(|_| {
                    let port = ["", "", "80", "81"][roll(4)];
                    let protocol = [None, None, Some("tcp"), Some("udp")][roll(4)];
                    rule(clients[roll(clients.len())], port, protocol)
                })
                .collect();
            let counts: Vec<u32> = (0..).take(rules.len()).collect();
            let table = table(&rules, &counts).unwrap();
            for from in addresses {
                for port in [0, 80, 82] {
                    let wanted = naive(&rules, from, port);
                    assert_eq!(
                        found(&table, &rules, from, port),
                        wanted,
                        "{from} {port} {rules:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let many = |n: usize, of: &dyn Fn(usize) -> String| {
            let rules: Vec<ArrivalRule> = (0..n).map(|i| rule(&of(i), "", None)).collect();
            table(&rules, &vec![0; n]).is_ok()
        };
        let apart = |i: usize| format!("10.{}.{}.0/24", i / 128, i % 128 * 2);
        assert!(many(RULES_MAX, &apart) && !many(RULES_MAX + 1, &apart));
        let same = |_: usize| "10.0.0.0/8".to_owned();
        assert!(many(CHAIN_MAX, &same) && !many(CHAIN_MAX + 1, &same));
    }

    #[test]
    fn a_rule_is_known_again_among_others() {
        let (a, b) = (rule("10.0.0.0/8", "", None), rule("10.0.0.0/8", "80", None));
        let marks_of = |rules: &[ArrivalRule]| marks(rules);
        assert_eq!(marks_of(&[a, b])[1], marks_of(&[b])[0]);
        let twice = marks_of(&[a, a]);
        assert_ne!(twice[0], twice[1]);
    }
}
