# SPDX-License-Identifier: MIT OR Apache-2.0
"""Loops a second against depth."""
import time

from harness.plot import Line, Plot
from harness.verdict import at_least


def rate(m, seconds):
    m.wait_for_counts([0])
    begin, before = time.monotonic(), m.count(0)
    time.sleep(seconds)
    return (m.count(0) - before) / (time.monotonic() - begin)


def measure(m, form):
    baseline, ours = {}, {}
    for depth in form["depths"]:
        m.inf(0, group=m.group(depth))
        baseline[depth] = rate(m, form["seconds"])
        m.end()
    m.up()
    for depth in form["depths"]:
        path = ""
        for level in range(depth - 1):
            path += f"d{depth}l{level}/"
            m.reserv("mk", path.rstrip("/"), "--sched", "--share", 1)
        m.reserv("mk", f"{path}leaf{depth}", "--share", 1)
        m.inf(0, queue=f"{path}leaf{depth}")
        ours[depth] = rate(m, form["seconds"])
        m.end()
    return {"baseline": baseline, "ours": ours}


def judge(data, band):
    checks = []
    for half in ("ours", "baseline"):
        depths = sorted(data[half], key=int)
        deep = data[half][depths[-1]] / data[half][depths[0]]
        checks.append(at_least(f"{half}: loops at depth {depths[-1]} of those at depth {depths[0]}", deep, band["deepest"], ".4f"))
    return checks


def rows(data):
    return (["depth", "ours_per_s", "eevdf_per_s", "ours_of_eevdf"],
            [[int(d), o, data["baseline"][d], o / data["baseline"][d]] for d, o in data["ours"].items()])


def plot(data):
    return Plot("Loops a second of a process below a chain of nodes", "depth", "loops per second",
                [Line(n, [(int(d), r) for d, r in data[h].items()]) for n, h in (("ours", "ours"), ("EEVDF in cgroups", "baseline"))])
