// SPDX-License-Identifier: MIT OR Apache-2.0
//! Both sides' structures.

use reserv_blockd::backend::Model;
use reserv_blockd::wire;
use reserv_model::{Class, DiskModel, Policy, TuneKey};

use crate::ops;

#[test]
fn a_batch_is_the_same_on_both_sides() {
    assert_eq!(size_of::<ops::RsBatch>(), size_of::<wire::RsBatch>());
    assert_eq!(size_of::<ops::RsOp>(), size_of::<wire::RsOp>());
    let numbers = [
        (ops::op::CREATE, wire::op::CREATE),
        (ops::op::DELETE, wire::op::DELETE),
        (ops::op::REWEIGHT, wire::op::REWEIGHT),
        (ops::op::CAP, wire::op::CAP),
        (ops::op::CLASS, wire::op::CLASS),
        (ops::op::POLICY, wire::op::POLICY),
        (ops::op::LIMIT, wire::op::LIMIT),
        (ops::op::RESET, wire::op::RESET),
        (ops::op::MOVE, wire::op::MOVE),
        (ops::op::TUNE, wire::op::TUNE),
        (ops::op::NODE_PARAM, wire::op::NODE_PARAM),
    ];
    assert!(numbers.iter().all(|(ours, theirs)| ours == theirs));
}

#[test]
fn words_and_numbers_are_the_same_on_both_sides() {
    for (key, number) in [
        (TuneKey::Batch, wire::tune::BATCH),
        (TuneKey::Anticipate, wire::tune::ANTICIPATE),
        (TuneKey::Cost, wire::tune::COST),
        (TuneKey::Deadline, wire::tune::DEADLINE),
        (TuneKey::Round, wire::tune::ROUND),
    ] {
        assert_eq!(key.code(), number);
    }
    assert_eq!(TuneKey::Anticipate.default_value(), wire::tune::AUTO);
    assert_eq!(
        ["bytes", "requests", "time"],
        [wire::cost::BYTES, wire::cost::REQUESTS, wire::cost::TIME]
            .map(|cost| TuneKey::Cost.show(cost))
            .each_ref()
            .map(String::as_str)
    );
    assert_eq!((Policy::Yfq as u8, Policy::Cello as u8), (wire::YFQ, wire::CELLO));
    for (class, number) in [
        (Class::Ts, wire::class::TS),
        (Class::Fifo, wire::class::FIFO),
        (Class::Scan, wire::class::SCAN),
        (Class::ScanEdf, wire::class::SCAN_EDF),
        (Class::Interactive, wire::class::INTERACTIVE),
        (Class::Throughput, wire::class::THROUGHPUT),
        (Class::RealTime, wire::class::REAL_TIME),
    ] {
        assert_eq!(class as u8, number);
    }
    for model in DiskModel::ALL {
        assert!(model.word().parse::<Model>().is_ok(), "{model}");
    }
}
