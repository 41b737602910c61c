# SPDX-License-Identifier: MIT OR Apache-2.0
"""Shares of two loops for three pairs of weights."""
import time

from harness.plot import Line, Plot
from harness.verdict import traced, within

PAIRS = (1, 2, 4)


def interval(m, seconds):
    before = [m.count(0), m.count(1)]
    time.sleep(seconds)
    return [m.count(0) - before[0], m.count(1) - before[1]]


def measure(m, form):
    data = {"plain": None, "cgroups": {}, "ours": {}, "trace": {}}
    top = m.group(1)
    (top / "cgroup.subtree_control").write_text("+cpu")
    groups = [top / f"c{i}" for i in (0, 1)]
    for slot, group in enumerate(groups):
        group.mkdir(exist_ok=True)
        m.groups.append(group)
        m.inf(slot, group=group)
    m.wait_for_counts([0, 1])
    for weight in PAIRS:
        (groups[0] / "cpu.weight").write_text("100")
        (groups[1] / "cpu.weight").write_text(str(100 * weight))
        data["cgroups"][weight] = interval(m, form["seconds"])
    m.end()
    m.up()
    for slot in (0, 1):
        m.reserv("mk", f"c{slot}", "--share", 1)
        m.inf(slot, queue=f"c{slot}")
    m.wait_for_counts([0, 1])
    for weight in PAIRS:
        m.reserv("set", "c1", f"share={weight}")
        trace = m.trace(form["seconds"])
        data["ours"][weight] = interval(m, form["seconds"])
        data["trace"][weight] = m.traced(trace)
    return data


def judge(data, band):
    checks = []
    for weight, (one, two) in data["ours"].items():
        checks.append(within(f"ours: loops 1 : {weight}", two / one / int(weight), 1 - band["ratio"], 1 + band["ratio"], ".4f"))
        checks.append(traced(data["trace"][weight], ["cpu/c0", "cpu/c1"]))
    return checks


def rows(data):
    return (["weights", "ours_c0", "ours_c1", "ours_ratio", "cgroups_c0", "cgroups_c1", "cgroups_ratio"],
            [[f"1:{w}", a, b, b / a, *data["cgroups"][w], data["cgroups"][w][1] / data["cgroups"][w][0]]
             for w, (a, b) in data["ours"].items()])


def plot(data):
    ratio = lambda half: [(int(w), b / a) for w, (a, b) in data[half].items()]  # noqa: E731
    return Plot("Loops of the second class for one of the first", "weight of the second class (the first has 1)", "ratio of loops",
                [Line("ours", ratio("ours")), Line("EEVDF in cgroups", ratio("cgroups")),
                 Line("the weights", [(1, 1), (4, 4)], theory=True)])
