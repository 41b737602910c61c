// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules about the packets of a link, as `bpf/tag/packets.h` reads them. A link's table is replaced
//! as a whole, and the kernel has no reader of the old one left when that is done.

use std::net::IpAddr;

use reserv_model::{PacketRule, Prefix};

use super::Tags;
use super::abi::{PACKET_RULES_MAX, RtPacketRule, RtPacketTable};
use super::load::os;
use crate::{PlaneError, sys};
use std::os::fd::AsRawFd as _;

/// An address in 16 bytes, and which of their bits are compared.
pub(crate) fn compared(prefix: Prefix) -> ([u64; 2], [u64; 2]) {
    let (address, length) = match prefix.address() {
        IpAddr::V4(four) => (four.to_ipv6_mapped(), 96 + u32::from(prefix.length())),
        IpAddr::V6(six) => (six, prefix.length().into()),
    };
    let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
    let halves = |bytes: [u8; 16]| {
        let (high, low) = bytes.split_at(8);
        [high, low].map(|half| u64::from_ne_bytes(half.try_into().unwrap_or_default()))
    };
    (halves(address.octets()), halves(mask.to_be_bytes()))
}

fn encode(rule: &PacketRule) -> RtPacketRule {
    let packets = &rule.packets;
    let (address, mask) = packets.remote.map(compared).unwrap_or_default();
    let only = |there: bool| if there { 0xff } else { 0 };
    RtPacketRule {
        address,
        mask,
        node: rule.queue.pack(),
        port_first: packets.ports.first(),
        port_last: packets.ports.last(),
        local_first: packets.local_ports.first(),
        local_last: packets.local_ports.last(),
        protocol: packets.protocol.map_or(0, reserv_model::Protocol::number),
        protocol_mask: only(packets.protocol.is_some()),
        version: packets.remote.map_or(0, |remote| if remote.address().is_ipv4() { 4 } else { 6 }),
        version_mask: only(packets.remote.is_some()),
        pad: [0; 4],
    }
}

impl Tags {
    /// The rules about the packets of a link, whole and in order, instead of those before.
    pub fn set_packet_rules(&self, resource: u8, rules: &[PacketRule]) -> Result<(), PlaneError> {
        if rules.len() > PACKET_RULES_MAX {
            let why = format!("{} rules about packets; at most {PACKET_RULES_MAX}", rules.len());
            return Err(PlaneError::Full(why));
        }
        let map = self.map("packet_rules")?;
        let key = u32::from(resource);
        if rules.is_empty() {
            return sys::remove(&map, &key).map(drop).map_err(os("forget rules about packets"));
        }
        let mut table = RtPacketTable {
            count: u32::try_from(rules.len()).unwrap_or_default(),
            pad: 0,
            rule: [RtPacketRule::default(); PACKET_RULES_MAX],
        };
        for (slot, rule) in table.rule.iter_mut().zip(rules) {
            *slot = encode(rule);
        }
        let inner = sys::new_array::<RtPacketTable>(c"packet_table")
            .map_err(os("make a table of rules"))?;
        sys::put(&inner, &0_u32, &table)
            .and_then(|()| sys::put(&map, &key, &inner.as_raw_fd()))
            .map_err(os("tell rules about packets"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naive(prefix: Prefix, of: IpAddr) -> bool {
        let bits = |a: IpAddr| -> Vec<bool> {
            let bytes = match a {
                IpAddr::V4(a) => a.octets().to_vec(),
                IpAddr::V6(a) => a.octets().to_vec(),
            };
            bytes.iter().flat_map(|b| (0..8).map(move |i| b >> (7 - i) & 1 == 1)).collect()
        };
        let (ours, theirs) = (bits(prefix.address()), bits(of));
        let length = usize::from(prefix.length());
        ours.len() == theirs.len() && ours[..length] == theirs[..length]
    }

    #[test]
    fn prefixes_are_compared_as_bit_by_bit() {
        let prefixes = [
            "0.0.0.0/0",
            "10.0.0.0/8",
            "10.128.0.0/9",
            "192.0.2.7",
            "::/0",
            "2001:db8::/33",
            "8000::/1",
            "::1",
        ];
        let addresses = [
            "10.1.2.3",
            "10.200.2.3",
            "11.0.0.0",
            "192.0.2.7",
            "192.0.2.6",
            "::1",
            "::",
            "2001:db8::7",
        ]
        .map(|a| a.parse::<IpAddr>().unwrap());
        for prefix in prefixes.map(|p| p.parse::<Prefix>().unwrap()) {
            let (address, mask) = compared(prefix);
            for of in addresses {
                let exact = Prefix::from(of);
                let (bytes, _) = compared(exact);
                let same = (0..2).all(|i| (address[i] ^ bytes[i]) & mask[i] == 0);
                // The version is compared beside it.
                let hit = same && prefix.address().is_ipv4() == of.is_ipv4();
                assert_eq!(hit, naive(prefix, of), "{prefix} {of}");
            }
        }
    }
}
