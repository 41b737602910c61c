// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every input that the fuzzer's targets (`fuzz/`) keep, once: what was found stays found.

#[path = "../../../fuzz/src/targets.rs"]
mod targets;

#[test]
fn every_input_that_is_kept() {
    for (name, target) in targets::ALL {
        let folder = format!("{}/../../fuzz/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
        let files = std::fs::read_dir(&folder).unwrap();
        let inputs: Vec<_> =
            files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
        assert!(inputs.len() >= 5, "{folder} has inputs");
        for input in inputs {
            target(&input);
        }
    }
}
