// SPDX-License-Identifier: MIT OR Apache-2.0
//! Both sides' words.

use reserv_blockd::backend::Model;
use reserv_facts::tree::cost;
use reserv_model::{DiskModel, TuneKey};

#[test]
fn words_are_the_same_on_both_sides() {
    assert_eq!(
        ["bytes", "requests", "time"],
        [cost::BYTES, cost::REQUESTS, cost::TIME]
            .map(|cost| TuneKey::Cost.show(cost))
            .each_ref()
            .map(String::as_str)
    );
    for model in DiskModel::ALL {
        assert!(model.word().parse::<Model>().is_ok(), "{model}");
    }
}
