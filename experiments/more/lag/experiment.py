# SPDX-License-Identifier: MIT OR Apache-2.0
"""Lags of siblings, from the trace."""
from harness.plot import Line, Plot
from harness.verdict import at_most, traced

WEIGHTS = (1, 2, 3, 5, 8)
PATHS = [f"cpu/w{w}" for w in WEIGHTS]


def measure(m, form):
    m.up()
    slots = []
    for slot, weight in enumerate(WEIGHTS):
        m.reserv("mk", f"w{weight}", "--share", weight)
        m.inf(slot, queue=f"w{weight}")
        slots.append(slot)
    m.start("frames", 1_000_000, 11_000, 700, queue="w2")
    m.start("frames", 1_000_000, 7_000, 300, queue="w8")
    m.wait_for_counts(slots)
    return {"trace": m.traced(m.trace(form["seconds"]))}


def bound_ns(nodes, path):
    """From SFQ-1: lag_i = w_i * (mean of W/w - W_i/w_i), so at most w_i times the largest
    difference to any sibling."""
    mine = nodes[path]
    siblings = [n for p, n in nodes.items() if p.startswith("cpu/") and p != path]
    return max(mine["step_max_ns"] + n["step_max_ns"] * mine["weight_milli"] / n["weight_milli"] for n in siblings)


def judge(data, band):
    del band
    nodes = {n["path"]: n for n in data["trace"]["nodes"]}
    checks = [traced(data["trace"], PATHS)]
    for path in PATHS:
        lag = max(abs(nodes[path]["behind_max_ns"]), abs(nodes[path]["ahead_max_ns"]))
        # A sleeper that comes and goes takes its lag away, and the others divide it: twice the
        # bound of a set that stays.
        checks.append(at_most(f"{path}: the largest lag, of the bound", lag / (2 * bound_ns(nodes, path)), 1.0))
    return checks


def rows(data):
    out = []
    for n in data["trace"]["nodes"]:
        for low, count in n["lag_histogram"]:
            out.append([n["path"], low, count])
    return ["node", "lag_from_ns", "services"], out


def plot(data):
    lines = []
    for n in data["trace"]["nodes"]:
        if n["path"] in PATHS[1:]:
            total = sum(c for _, c in n["lag_histogram"]) or 1
            low = min((lo for lo, _ in n["lag_histogram"]), default=0)
            lines.append(Line(n["path"], [((lo - 0) / 1e6, c / total) for lo, c in n["lag_histogram"]] or [(low, 0)]))
    return Plot("Lag against the fluid share, at each service", "lag, ms (positive: behind)", "part of all", lines)
