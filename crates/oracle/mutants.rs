// SPDX-License-Identifier: MIT OR Apache-2.0
// Deliberately broken schedulers: each is the core with one text replaced. Included by build.rs, which makes
// them (and fails when a text does not occur exactly once), and by the tests, which must reject them.

/// One broken variant of the core.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// Short name; part of a symbol.
    pub name: &'static str,
    /// The mistake, in words.
    pub mistake: &'static str,
    /// File of `sched/` that is changed.
    pub file: &'static str,
    /// Text that is replaced; it occurs once.
    pub from: &'static str,
    /// What stands there instead.
    pub to: &'static str,
}

/// All of them.
pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "leaf_only",
        mistake: "charge only the leaf, not its ancestors",
        file: "tree.c",
        from: "\t\tpolicy_charge(t, p, n, work, forced);",
        to: "\t\tpolicy_charge(t, p, n, n == q ? work : 0, forced);",
    },
];
