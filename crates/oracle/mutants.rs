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
    Mutant {
        name: "newcomer_behind",
        mistake: "a child that wakes keeps an old tag instead of starting at v",
        file: "tags.c",
        from: "\t\tg->base = g->epoch != c->epoch ? c->v : from;",
        to: "\t\t(void)from;",
    },
    Mutant {
        name: "no_rescale",
        mistake: "a new weight without rescaling the residual",
        file: "tags.c",
        from: "\tg->base = c->v + d;",
        to: "\t(void)d;",
    },
    Mutant {
        name: "v_goes_back",
        mistake: "virtual time follows the last step dispatched, also backwards",
        file: "tags.c",
        from: "\tif (!rs_before(c->v, v))\n\t\treturn;",
        to: "",
    },
    Mutant {
        name: "second_best",
        mistake: "picks the second in the heap",
        file: "policy_sfq.c",
        from: "\tc = (struct rs_node RS_ARENA *)e[0].obj;\n\tif (rs_node_allows(c, unit))",
        to: "\tc = (struct rs_node RS_ARENA *)e[n > 1].obj;\n\tif (rs_node_allows(c, unit))",
    },
    Mutant {
        name: "no_weight",
        mistake: "charges the same at any weight",
        file: "tags.c",
        from: "\tg->rem = x % w;\n\tx /= w;",
        to: "\tg->rem = x % RS_WEIGHT_ONE;\n\tx /= RS_WEIGHT_ONE;",
    },
    Mutant {
        name: "short_reciprocal",
        mistake: "divides by a reciprocal with too few bits",
        file: "tags.c",
        from: "\tx /= w;",
        to: "\tx = (work >> 4) * ((1ULL << 24) / w);",
    },
    Mutant {
        name: "last_step_lost",
        mistake: "a step after which the thread blocks is not charged",
        file: "tree.c",
        from: "policy_charge(t, p, n, work, forced);",
        to: "policy_charge(t, p, n, more ? work : 0, forced);",
    },
    Mutant {
        name: "stale_tags",
        mistake: "finish tags older than half the circle are compared",
        file: "tags.c",
        from: "c->hi - g->hi >= 2 ||",
        to: "",
    },
    Mutant {
        name: "unsigned_compare",
        mistake: "tags are compared as plain numbers",
        file: "sched.h",
        from: "\treturn (s64)(a - b) < 0;",
        to: "\treturn a < b;",
    },
    Mutant {
        name: "cap_half_charged",
        mistake: "half of the work counts against a cap",
        file: "tree.c",
        from: "\t\t\tn->cap.tok -= work < RS_WORK_MAX ? work : RS_WORK_MAX;",
        to: "\t\t\tn->cap.tok -= work / 2;",
    },
    Mutant {
        name: "cap_lets_go_late",
        mistake: "a throttled node waits ten times too long",
        file: "tree.c",
        from: "\treturn c->at + wait;",
        to: "\treturn c->at + 10 * wait;",
    },
    Mutant {
        name: "wake_lost",
        mistake: "a wake-up is not told to the ancestors when the queue is deep",
        file: "tree.c",
        from: "\trs_item_in(t, it, RS_WHY_WAKE, now);\n\trs_refresh(t, it->queue);",
        to: "\trs_item_in(t, it, RS_WHY_WAKE, now);\n\tif (it->queue->depth < 2)\n\t\trs_refresh(t, it->queue);",
    },
    Mutant {
        name: "fifo_loses_place",
        mistake: "a thread of a FIFO queue goes to the rear when its quantum ends",
        file: "class_fifo.c",
        from: "\tif (why != RS_WHY_AGAIN)\n",
        to: "\t(void)why;\n",
    },
    Mutant {
        name: "starves",
        mistake: "nobody looks at who waited too long",
        file: "tree.c",
        from: "\tif (!t->starve_ns || !it)",
        to: "\tif (1 || !it)",
    },
    Mutant {
        name: "eager_background",
        mistake: "weight 0 is served as weight 1",
        file: "tree.c",
        from: "(c->weight ? 0 : RS_SEQ_BACKGROUND)",
        to: "(c->weight ? 0 : 0 * RS_SEQ_BACKGROUND)",
    },
    Mutant {
        name: "counter_skips_root",
        mistake: "the root's counter is not advanced",
        file: "tree.c",
        from: "\t\tn->service += work;",
        to: "\t\tn->service += n->parent ? work : 0;",
    },
    Mutant {
        name: "tight_hold",
        mistake: "several units: who cannot use his share is held close to v",
        file: "tags.c",
        from: "c->v - 4 * c->slow - nsvc * step",
        to: "c->v - step - nsvc * step",
    },
    Mutant {
        name: "no_reserve",
        mistake: "several units: nothing is charged in advance",
        file: "policy_sfq.c",
        from: "\treturn c->tag.base + rs_vwork(c->res, w);",
        to: "\treturn c->tag.base;",
    },
    Mutant {
        name: "late_urgent",
        mistake: "several units: a scheduler's place does not see that its first child is behind",
        file: "policy_sfq.c",
        from: "\tif (t->units > 1 && c->kind == RS_SCHED",
        to: "\tif (0 && c->kind == RS_SCHED",
    },
    Mutant {
        name: "forced_charged",
        mistake: "several units: what nobody else could have had is charged like the rest",
        file: "tree.c",
        from: "\t\t\tforced = rs_forced(p, unit);",
        to: "\t\t\tforced = 0 * rs_forced(p, unit);",
    },
    Mutant {
        name: "old_credit",
        mistake: "several units: what one thread could not use is credit for those who come later",
        file: "policy_sfq.c",
        from: "\tif (!c->weight || !c->runnable)\n\t\treturn;",
        to: "\tif (1)\n\t\treturn;",
    },
];
