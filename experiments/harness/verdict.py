# SPDX-License-Identifier: MIT OR Apache-2.0
"""From checks to a verdict. The words, and the checks, are the demonstration's."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "demo"))

from four_sites.judge import FAIL, FAILS, HOLDS, PASS, UNCLEAR, Check  # noqa: E402

NOT_RUN = "NOT RUN"
#: As the tests do: 77 could not run.
EXIT_STATUS = {PASS: 0, FAIL: 1, UNCLEAR.upper(): 3, NOT_RUN: 77}


def verdict_of(checks: list[Check]) -> str:
    """No check at all is no pass."""
    outcomes = {c.outcome for c in checks}
    if FAILS in outcomes:
        return FAIL
    return UNCLEAR.upper() if UNCLEAR in outcomes or not checks else PASS


def within(what: str, value: float, low: float, high: float, form: str = ".3f") -> Check:
    found = f"{value:{form}} (from {low:{form}} to {high:{form}})"
    return Check(what, HOLDS if low <= value <= high else FAILS, found)


def at_least(what: str, value: float, low: float, form: str = ".3f") -> Check:
    return Check(what, HOLDS if value >= low else FAILS, f"{value:{form}} (at least {low:{form}})")


def at_most(what: str, value: float, high: float, form: str = ".3f") -> Check:
    return Check(what, HOLDS if value <= high else FAILS, f"{value:{form}} (at most {high:{form}})")


def traced(report: dict, paths: list[str]) -> Check:
    """The scheduler's own theorem on the events of the run."""
    what = f"SFQ-1 on the scheduler's own events, {len(paths)} nodes"
    nodes = {n["path"]: n for n in report["nodes"]}
    bad = [f"{p}: {nodes[p]['verdict']['what']}" for p in paths if nodes[p]["verdict"]["outcome"] == "broken"]
    unknown = [f"{p}: {nodes[p]['verdict']['what']}" for p in paths if nodes[p]["verdict"]["outcome"] == "unclear"]
    if bad or not all(nodes[p]["counted"] for p in paths):
        return Check(what, FAILS, "; ".join(bad) or "counters and records differ")
    if unknown:
        return Check(what, UNCLEAR, "; ".join(unknown))
    worst = max(nodes[p]["verdict"]["worst_ns"] / max(nodes[p]["verdict"]["bound_ns"], 1) for p in paths)
    return Check(what, HOLDS, f"at most {worst:.3f} of the bound, {report['events']} events, none lost")
