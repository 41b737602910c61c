// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every input that the fuzzer's target of disks (`fuzz/`) keeps, once: what was found stays found.

#[path = "../../../fuzz/src/disk.rs"]
mod disk;

#[test]
fn every_input_that_is_kept() {
    let folder = format!("{}/../../fuzz/corpus/disk", env!("CARGO_MANIFEST_DIR"));
    let files = std::fs::read_dir(&folder).unwrap();
    let inputs: Vec<_> = files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    assert!(inputs.len() >= 5, "{folder} has inputs");
    for input in inputs {
        disk::disk(&input);
    }
}
