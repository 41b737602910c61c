# SPDX-License-Identifier: MIT OR Apache-2.0
"""Progress of two loops over time, without and with weights."""
import time

from harness.plot import Line, Plot
from harness.verdict import traced, within

WEIGHTS = (1, 4)


def follow(m, seconds):
    start = time.monotonic()
    base = [m.count(0), m.count(1)]
    points = [[0.0, 0, 0]]
    while points[-1][0] < seconds:
        time.sleep(0.25)
        points.append([time.monotonic() - start, m.count(0) - base[0], m.count(1) - base[1]])
    return points


def measure(m, form):
    m.inf(0)
    m.inf(1)
    m.wait_for_counts([0, 1])
    baseline = follow(m, form["seconds"] / 2)
    m.end()
    m.up()
    for slot, weight in enumerate(WEIGHTS):
        m.reserv("mk", f"c{slot}", "--share", weight)
        m.inf(slot, queue=f"c{slot}")
    m.wait_for_counts([0, 1])
    trace = m.trace(form["seconds"])
    ours = follow(m, form["seconds"])
    return {"baseline": baseline, "ours": ours, "trace": m.traced(trace)}


def seconds_of(points):
    """[time, loops of each in the second before] at whole seconds."""
    out, last = [], points[0]
    for p in points[1:]:
        if p[0] - last[0] >= 0.999:
            out.append([p[0], (p[1] - last[1]) / (p[0] - last[0]), (p[2] - last[2]) / (p[0] - last[0])])
            last = p
    return out


def judge(data, band):
    ours, base = data["ours"], data["baseline"]
    ratio = ours[-1][2] / ours[-1][1]
    windows = [s[2] / s[1] for s in seconds_of(ours)]
    return [within("ours: loops 4 : 1 at the end", ratio / 4, 1 - band["ratio"], 1 + band["ratio"], ".4f"),
            within("ours: the second farthest from 4 : 1", max(windows, key=lambda r: abs(r / 4 - 1)) / 4, 1 - band["window_ratio"],
                   1 + band["window_ratio"], ".4f"),
            within("baseline: 1 : 1, whatever is wished", base[-1][2] / base[-1][1], 0.95, 1.05, ".4f"),
            traced(data["trace"], ["cpu/c0", "cpu/c1"])]


def rows(data):
    return (["time_s", "ours_c0", "ours_c1"], [[round(t, 3), a, b] for t, a, b in data["ours"]])


def plot(data):
    at = lambda points, i: [(p[0], p[i]) for p in points]  # noqa: E731
    return Plot("Progress of two infinite loops, weights 1 : 4", "seconds", "loops",
                [Line("ours, weight 1", at(data["ours"], 1)), Line("ours, weight 4", at(data["ours"], 2)),
                 Line("EEVDF, first", at(data["baseline"], 1)), Line("EEVDF, second", at(data["baseline"], 2))])
