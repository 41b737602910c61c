# SPDX-License-Identifier: MIT OR Apache-2.0
"""Bursts and pauses beside two loops: behind the private CPU, and the wait for each burst."""
import json
import math

from harness.plot import Line, Plot
from harness.verdict import at_most

RUN_US, SLEEP_US = 5000, 20000
TURN_NS = 100_000_000
POLICIES = ("mtrls", "wrr")


def bursts(m, form, **where):
    child = m.start("bursts", form["bursts"], RUN_US, SLEEP_US, read=True, **where)
    text, _ = child.communicate(timeout=form["limit_s"])
    return json.loads(text)


def measure(m, form):
    groups = m.groups_beside(3)
    for slot in (0, 1):
        m.inf(slot, group=groups[slot])
    m.wait_for_counts([0, 1])
    data = {"eevdf": bursts(m, form, group=groups[2])}
    m.end()
    m.up()
    for policy in POLICIES:
        m.reserv("mk", policy, "--sched", "--policy", policy, "--share", 1000)
        for name in ("io", "b", "c"):
            m.reserv("mk", f"{policy}/{name}", "--share", 1)
        for slot, name in enumerate(("b", "c")):
            m.inf(slot, queue=f"{policy}/{name}")
        m.wait_for_counts([0, 1])
        data[policy] = bursts(m, form, queue=f"{policy}/io")
        m.end()
    return data


def behind(one):
    """Of a third of the time in which it wanted to run, in turns."""
    return (one["wanted_ns"] / 3 - one["had_ns"]) / TURN_NS


def wait_ms(one):
    """For the first and the last of a burst together: what a burst took, less the CPU time."""
    return (one["wanted_ns"] - one["had_ns"]) / one["bursts"] / 1e6


def ratio_of_waits(kept, lost):
    """Who never waited had no rival: there is nothing to compare with."""
    return wait_ms(kept) / wait_ms(lost) if wait_ms(lost) > 0 else math.inf


def judge(data, band):
    kept, lost = data["mtrls"], data["wrr"]
    return [at_most("mtrls: turns behind a CPU of its own, over all bursts", behind(kept), band["kept_turns"]),
            at_most("wrr: what it had, of a third of the time in which it wanted", lost["had_ns"] / (lost["wanted_ns"] / 3), band["lost_ratio"]),
            at_most("the mean wait of a burst under mtrls, of that under wrr", ratio_of_waits(kept, lost), band["delay_ratio"])]


def rows(data):
    return (["scheduler", "bursts", "had_ms", "wanted_ms", "turns_behind", "mean_wait_ms", "worst_first_wait_ms"],
            [[name, one["bursts"], one["had_ns"] / 1e6, one["wanted_ns"] / 1e6, behind(one), wait_ms(one), one["worst_ns"] / 1e6]
             for name, one in data.items()])


def plot(data):
    return Plot("Wait of a burst of 5 ms beside two loops: " + ", ".join(data), "scheduler, in this order", "ms",
                [Line("mean", [(i + 1, wait_ms(one)) for i, one in enumerate(data.values())]),
                 Line("longest for the first of it", [(i + 1, one["worst_ns"] / 1e6) for i, one in enumerate(data.values())])])
