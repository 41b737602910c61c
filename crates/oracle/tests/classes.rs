// SPDX-License-Identifier: MIT OR Apache-2.0
//! Policies mtrls, wrr and prio, class edf, queues that compete as their items do: lockstep with
//! exact models, promises from observation, worked examples, bad input.

use reserv_oracle::core::{
    Build, Core, EDF, FIFO, Id, MTRLS, MUTANTS, ONE, Op, Params, Q0, QUEUE, ROOT, RR, Setup, WRR,
    id,
};
use reserv_oracle::{edf, mtrls, own, prio, theorem};

theorem!(own_weights_are_their_model, 150, own::lockstep);
theorem!(own_weights_give_each_item_its_share, 100, own::shares);
theorem!(own_weights_are_those_of_the_beginning, 100, own::pulses);
theorem!(mtrls_is_its_model, 1500, mtrls::lockstep);
theorem!(mtr_1_2_3_exact, 150, mtrls::exact);
theorem!(mtr_1_2_3_with_ticks, 150, mtrls::ticks);
theorem!(mtr_1_from_any_start_over_reweights, 150, mtrls::changes);
theorem!(wrr_is_its_model, 1000, mtrls::lockstep_wrr);
theorem!(wrr_waits_and_fairness, 150, mtrls::wrr);
theorem!(prio_is_its_model, 1500, prio::lockstep);
theorem!(prio_levels_turns_and_idle_class, 200, prio::promises);
theorem!(prio_decay_moves_one_level, 50, prio::band);
theorem!(edf_is_its_model, 1500, edf::lockstep);
theorem!(edf_misses_nothing_on_a_unit_of_its_own, 200, edf::alone);
theorem!(edf_below_a_share_is_late_by_the_supply_bound, 200, edf::below_sfq);
theorem!(edf_below_eevdf_misses_only_what_two_requests_behind_would, 200, edf::below_eevdf);
theorem!(edf_hogs_have_their_budgets_and_share_the_rest, 100, edf::budgets);
theorem!(edf_budget_has_no_way_round, 3, edf::no_way_round);
theorem!(edf_promises_what_is_guaranteed_and_no_more, 600, edf::guaranteed);
theorem!(edf_several_units_give_up_the_latest_deadline, 500, edf::victims);

#[test]
fn worked_examples() {
    assert_eq!(mtrls::example(Build::Real, MTRLS), "AABCCBCCAABB");
    assert_eq!(mtrls::example(Build::Real, WRR), "AABCCCCAABBC");
    assert_eq!(prio::example(Build::Real), "AABBCCBB");
    assert_eq!(edf::example(Build::Real), "ABBBACBBBACC");
}

/// What mtrls is for: a thread that sleeps and wakes loses nothing; under wrr it falls behind for
/// good.
#[test]
fn a_sleeper_keeps_its_share_under_mtrls_and_not_under_wrr() {
    let (kept, lost) =
        (mtrls::sleeper_behind(Build::Real, MTRLS), mtrls::sleeper_behind(Build::Real, WRR));
    println!("{kept:.2} and {lost:.2} turns behind");
    assert!(kept <= 0.25 && lost > 5.0, "{kept} {lost}");
}

const E: Id = id(2, 1);

fn one_item(class: u32) -> (Core, u32) {
    let mut core = Core::new(Setup::default());
    core.must(0, Op::Create { node: E, parent: ROOT, kind: QUEUE, alg: class });
    core.must(0, Op::Reweight { node: E, weight: 1_000_000_000 });
    core.must(0, Op::Reweight { node: Q0, weight: 1 });
    let item = core.item_new(E, ONE, 0).expect("an item");
    (core, item)
}

#[test]
fn parameters_out_of_range_are_refused() {
    const MS: u64 = 1_000_000;
    let (mut core, item) = one_item(EDF);
    let good =
        Params { weight: 7, priority: 3, period: 20 * MS, budget: 5 * MS, deadline: 10 * MS };
    assert_eq!(core.item_params(item, good, 0), Ok(()));
    let wrong = [
        Params { weight: 1_000_000_001, ..good },
        Params { priority: 101, ..good },
        Params { period: MS - 1, budget: MS / 2, deadline: 0, ..good },
        Params { period: 10_000 * MS + 1, deadline: 0, ..good },
        Params { deadline: 20 * MS + 1, ..good },
        Params { deadline: MS - 1, budget: MS / 2, ..good },
        Params { budget: 9_999, ..good },
        Params { budget: 10 * MS + 1, ..good },
        Params { budget: 20 * MS + 1, deadline: 0, ..good },
        Params { period: 0, ..good },
        Params { period: 0, deadline: 0, ..good },
        Params { period: u64::MAX, budget: u64::MAX, deadline: u64::MAX, ..good },
    ];
    for p in wrong {
        assert_eq!(core.item_params(item, p, 0), Err(-22), "{p:?}");
        core.check().expect("nothing changed");
    }
    assert_eq!(core.item(item).weight, 7);
    // The ends of the ranges.
    for (period, budget, deadline) in
        [(MS, MS, 0), (MS, 10_000, MS), (10_000 * MS, 10_000 * MS, 10_000 * MS)]
    {
        assert_eq!(core.item_params(item, Params { period, budget, deadline, ..good }, 0), Ok(()));
        core.wake(item, 5);
        assert_eq!(core.pick(0, 5), Some(item));
        core.settle(item, 1 << 50, true, 6);
        core.check().expect("sound");
        assert_eq!(core.pick(0, 1 << 52), Some(item));
        core.settle(item, 1, false, 1 << 52);
        core.check().expect("sound");
    }
    // What a class cannot keep is refused: by a change, and by a move.
    let second = core.item_new(E, ONE, 0).expect("an item");
    assert_eq!(core.item_params(second, good, 0), Err(-28));
    core.must(0, Op::Create { node: id(3, 1), parent: ROOT, kind: QUEUE, alg: FIFO });
    assert!(core.item_move(second, id(3, 1), 0, 0));
    assert_eq!(core.item_params(second, good, 0), Ok(()));
    assert!(!core.item_move(second, E, 0, 0), "no room for its budget");
    core.item_params(item, Params::default(), 0).expect("taken back");
    assert!(core.item_move(second, E, 0, 0));
    core.item_leave(second);
    core.item_leave(item);
    core.check().expect("sound");
}

/// rr and fifo: a higher priority first, and at once when it wakes.
#[test]
fn priorities_of_threads() {
    for class in [RR, FIFO] {
        let (mut core, low) = one_item(class);
        let high = core.item_new(E, ONE, 0).expect("an item");
        let plain = core.item_new(E, ONE, 0).expect("an item");
        core.item_params(low, Params { priority: 49, ..Params::default() }, 0).expect("in range");
        core.item_params(high, Params { priority: 51, ..Params::default() }, 0).expect("in range");
        core.wake(low, 0);
        assert_eq!(core.pick(0, 0), Some(low));
        core.wake(plain, 0);
        assert!(core.preempts(plain, low, 0), "50 is the default");
        core.settle(low, 1, true, 1);
        core.wake(high, 1);
        assert_eq!(core.pick(0, 1), Some(high));
        core.settle(high, 1, true, 2);
        assert_eq!(core.pick(0, 2), Some(high));
        core.settle(high, 1, false, 3);
        assert_eq!(core.pick(0, 3), Some(plain));
        // Lowered while it waits: it goes behind.
        core.wake(high, 3);
        assert!(core.preempts(high, plain, 0));
        core.item_params(high, Params { priority: 1, ..Params::default() }, 3).expect("in range");
        assert!(!core.preempts(high, plain, 0));
        core.settle(plain, 1, false, 4);
        assert_eq!(core.pick(0, 4), Some(low));
        core.check().expect("sound");
    }
}

/// The promises by themselves are worth something: most broken schedulers fail what is observed,
/// without a model being asked. (`every_mutant_is_rejected` asks for all of them, by promise or by
/// model.)
#[test]
fn most_mutants_fail_what_is_observed() {
    type Promise = fn(Build, u64) -> Result<(), String>;
    let promises: &[Promise] = &[
        mtrls::exact,
        mtrls::ticks,
        mtrls::changes,
        mtrls::wrr,
        prio::promises,
        prio::band,
        edf::alone,
        edf::below_sfq,
        edf::below_eevdf,
        edf::budgets,
        edf::no_way_round,
        edf::guaranteed,
        edf::victims,
    ];
    let ours = |m: &&str| ["mtrls_", "wrr_", "prio_", "edf_"].iter().any(|p| m.starts_with(p));
    let (mut count, mut seen) = (0, 0);
    for (i, m) in MUTANTS.iter().enumerate().filter(|(_, m)| ours(&m.name)) {
        count += 1;
        let found = (0..25).find_map(|seed| {
            promises.iter().find_map(|p| p(Build::Mutant(i), seed).err().map(|e| (seed, e)))
        });
        seen += u32::from(found.is_some());
        println!("{}: {found:?}", m.name);
    }
    assert!(count >= 18 && seen >= 12, "{seen} of {count}");
}

/// One event more in the long mode.
fn depth(usual: usize) -> usize {
    usual + usize::from(std::env::var_os("RESERV_SOAK_SECONDS").is_some())
}

#[test]
fn every_sequence_of_two_queues_under_mtrls() {
    let count = mtrls::exhaustive(depth(11)).unwrap_or_else(|e| panic!("{e}"));
    println!("{count} sequences");
    assert!(count > 10_000);
}

#[test]
fn every_sequence_of_two_queues_under_prio() {
    let count = prio::exhaustive(depth(10)).unwrap_or_else(|e| panic!("{e}"));
    println!("{count} sequences");
    assert!(count > 10_000);
}

#[test]
fn every_sequence_of_two_threads_under_edf() {
    let count = edf::exhaustive(depth(8)).unwrap_or_else(|e| panic!("{e}"));
    println!("{count} sequences");
    assert!(count > 10_000);
}
