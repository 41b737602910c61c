// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;

use super::book::{Listener, kept, tables, told};
use super::socket::Socket;
use super::{OBJECT, abi};

/// The table that the compiler of the program wrote, against ours.
#[test]
fn both_sides_agree_on_every_size_and_offset() {
    crate::layout::agrees(OBJECT, abi::LAYOUT, "bpf/listen/abi.h");
}

fn listener(cookie: u64, versions: u8, port: u16, text: &str) -> Listener {
    let socket = Socket { cookie, inode: 7, protocol: 6, versions, local: [0; 16], port };
    Listener { socket, user: 1000, free: false, listen: text.parse().unwrap() }
}

fn book(all: &[Listener]) -> BTreeMap<u64, Listener> {
    all.iter().map(|one| (one.socket.cookie, one.clone())).collect()
}

#[test]
fn what_is_kept_is_told_again() {
    for text in ["any", "10.1.0.0/16 not 10.0.0.0/8 2001:db8::/32", "at 80 any allow 0 1001"] {
        let is = listener(9, 0x50, 8080, text);
        assert_eq!(told(9, &kept(&is)), is);
    }
}

#[test]
fn complements_come_before_everybody_and_who_leaves_out_most_first() {
    let all = book(&[
        listener(1, 0x10, 80, "any"),
        listener(2, 0x10, 80, "not 10.1.0.0/16"),
        listener(3, 0x10, 80, "not 10.0.0.0/8 10.1.2.0/24"),
        listener(4, 0x10, 8080, "at 80 10.1.2.0/24"),
    ]);
    let tables = tables(&all).unwrap();
    let order: Vec<(u32, u64)> =
        tables.rests.values().map(|rest| (rest.but_bits, rest.set.socket[0])).collect();
    assert_eq!(order, [(8, 3), (16, 2), (0, 1)]);
    let (_, own) = tables.doors.first_key_value().unwrap();
    assert_eq!((own.rests, own.set.count, tables.doors.len()), (3, 3, 1));
    let (key, set) = tables.clients.first_key_value().unwrap();
    assert_eq!((key.bits, key.door.port, set.bits), (160 + 24, 80, 24));
    assert_eq!((set.count, &set.socket[..2], set.joined, set.free), (2, &[3, 4][..], 0b10, 0));
}

#[test]
fn a_socket_of_both_versions_has_two_doors() {
    let all = book(&[listener(1, 0x50, 80, "any 10.0.0.0/8 2001:db8::/32")]);
    let tables = tables(&all).unwrap();
    assert_eq!((tables.doors.len(), tables.clients.len(), tables.rests.len()), (2, 2, 2));
    assert!(listener(1, 0x10, 80, "2001:db8::/32").check().is_err());
    assert!(listener(1, 0x40, 80, "not 10.0.0.0/8").check().is_err());
    assert!(listener(1, 0x50, 80, "not 10.0.0.0/8 any").check().is_ok());
}

#[test]
fn what_does_not_fit_is_refused() {
    let sockets = |n: u64| book(&(0..n).map(|i| listener(i, 0x10, 80, "any")).collect::<Vec<_>>());
    assert!(tables(&sockets(64)).is_ok() && tables(&sockets(65)).is_err());
    let not = |n: u64| {
        let one = |i| listener(i, 0x10, 80, &format!("not 10.{i}.0.0/16"));
        book(&(0..n).map(one).collect::<Vec<_>>())
    };
    assert!(tables(&not(9)).is_ok() && tables(&not(10)).is_err());
}

#[test]
fn who_has_joined_is_there_with_one_that_allows_it_only() {
    let joined = listener(5, 0x10, 8080, "at 80 10.0.0.0/8");
    let with = |others: &[Listener]| {
        let mut all = book(others);
        all.insert(5, joined.clone());
        tables(&all).unwrap().clients.values().map(|set| set.joined).sum::<u64>()
    };
    let of = |cookie, user, text| Listener { user, ..listener(cookie, 0x10, 80, text) };
    assert_eq!(with(&[of(1, 1000, "any")]), 1);
    assert_eq!(with(&[]), 0);
    assert_eq!(with(&[of(1, 1001, "any")]), 0);
    assert_eq!(with(&[of(1, 1001, "any allow 1000")]), 1);
    assert_eq!(with(&[of(1, 1000, "any"), of(2, 1001, "any")]), 0);
}
