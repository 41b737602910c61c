// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every input that the fuzzer's targets of disks (`fuzz/`) keep, once: what was found stays found.

#[path = "../../../fuzz/src/disk.rs"]
mod disk;
#[path = "../../../fuzz/src/ublk.rs"]
mod ublk;

fn each(name: &str, target: fn(&[u8])) {
    let folder = format!("{}/../../fuzz/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
    let files = std::fs::read_dir(&folder).unwrap();
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 5, "{folder} has inputs");
    for path in paths {
        println!("{}", path.display());
        target(&std::fs::read(path).unwrap());
    }
}

#[test]
fn every_request_that_is_kept() {
    each("disk", disk::disk);
}

#[test]
fn every_play_that_is_kept() {
    each("ublk", ublk::ublk);
}
