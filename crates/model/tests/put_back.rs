// SPDX-License-Identifier: MIT OR Apache-2.0
//! A change of an access list is undone, and what others did to the list meanwhile stays.

use reserv_model::*;

fn entry(id: u64, allow: bool, uid: u32, right: Right) -> AccessEntry {
    AccessEntry {
        id,
        allow,
        party: Party { uid: Some(uid), ..Party::default() },
        rights: Rights::from(right),
        quota: None,
        by: 0,
        via: None,
    }
}

fn changed(before: &[AccessEntry], after: &[AccessEntry]) -> ChangedAccess {
    ChangedAccess { node: NodeId::ROOT, before: before.to_vec(), after: after.to_vec() }
}

#[test]
fn what_nobody_has_touched_is_as_it_was() {
    let (old, new) = (entry(1, true, 5, Right::Use), entry(2, false, 6, Right::Read));
    let wider = AccessEntry { rights: Rights::ALL, ..old.clone() };
    for (before, after) in [
        (vec![old.clone()], vec![]),
        (vec![], vec![new.clone()]),
        (vec![old.clone()], vec![wider.clone(), new.clone()]),
        (vec![old.clone(), new.clone()], vec![new.clone()]),
    ] {
        assert_eq!(changed(&before, &after).put_back(&after), before);
        let stays = changed(&before, &after).put_back(&before);
        assert_eq!(stays, before, "undone twice is undone once");
    }
}

#[test]
fn what_others_did_meanwhile_stays() {
    let (old, new) = (entry(1, true, 5, Right::Use), entry(2, true, 6, Right::Use));
    let given = changed(std::slice::from_ref(&old), &[old.clone(), new.clone()]);
    // Root denies, or takes back what stood there before.
    let denied = entry(3, false, 5, Right::Use);
    let now = [old.clone(), new.clone(), denied.clone()];
    assert_eq!(given.put_back(&now), [old.clone(), denied.clone()]);
    assert_eq!(
        given.put_back(std::slice::from_ref(&new)),
        [],
        "what was taken back is not given again"
    );
    // What the change made has been widened since: it is another's now.
    let wider = AccessEntry { rights: Rights::ALL, ..new };
    let now = [old.clone(), wider.clone()];
    assert_eq!(given.put_back(&now), now);
    // What the change took away comes back beside what came.
    let taken = changed(std::slice::from_ref(&old), &[]);
    assert_eq!(taken.put_back(std::slice::from_ref(&denied)), [old.clone(), denied]);
    // What it narrowed, and somebody took away altogether, stays away.
    let narrow = AccessEntry { rights: Rights::from(Right::Read), ..old.clone() };
    assert_eq!(changed(&[old], &[narrow]).put_back(&[]), []);
}
