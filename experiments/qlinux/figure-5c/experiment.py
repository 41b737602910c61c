# SPDX-License-Identifier: MIT OR Apache-2.0
"""Rates before, during and after a suspension."""
import signal
import time

from harness.plot import Line, Plot
from harness.verdict import at_most, within

PHASES = ("before", "suspended", "after")


def follow(m, seconds, second):
    """Progress every 100 ms; [begin, end] of each phase."""
    start = time.monotonic()
    base = [m.count(0), m.count(1)]
    points, marks = [], []

    def until(fraction):
        marks.append(time.monotonic() - start)
        while time.monotonic() - start < seconds * fraction:
            points.append([time.monotonic() - start, m.count(0) - base[0], m.count(1) - base[1]])
            time.sleep(0.1)

    until(5 / 14)
    second.send_signal(signal.SIGSTOP)
    until(10 / 14)
    second.send_signal(signal.SIGCONT)
    until(1)
    points.append([time.monotonic() - start, m.count(0) - base[0], m.count(1) - base[1]])
    return {"points": points, "marks": [*marks, time.monotonic() - start]}


def measure(m, form):
    m.inf(0)
    second = m.inf(1)
    m.wait_for_counts([0, 1])
    baseline = follow(m, form["seconds"] / 2, second)
    m.end()
    m.up()
    for slot in (0, 1):
        m.reserv("mk", f"c{slot}", "--share", 1)
    m.inf(0, queue="c0")
    second = m.inf(1, queue="c1")
    m.wait_for_counts([0, 1])
    return {"baseline": baseline, "ours": follow(m, form["seconds"], second)}


def rates(half, slot):
    """Loops a second in each phase. The first sample of a phase begins it, so the switch itself
    lies outside."""
    out = []
    for begin, end in zip(half["marks"], half["marks"][1:]):
        inside = [p for p in half["points"] if begin <= p[0] <= end + 0.02]
        out.append((inside[-1][1 + slot] - inside[0][1 + slot]) / (inside[-1][0] - inside[0][0]))
    return out


def judge(data, band):
    checks = []
    for half in ("ours", "baseline"):
        before, during, after = rates(data[half], 0)
        stopped = rates(data[half], 1)
        width = band["slope"] if half == "ours" else 0.1
        checks += [within(f"{half}: the first progresses at twice its rate while the second is suspended", during / before,
                          2 * (1 - width), 2 * (1 + width), ".4f"),
                   within(f"{half}: and as before afterwards", after / before, 1 - width, 1 + width, ".4f"),
                   at_most(f"{half}: the suspended one stands", stopped[1] / stopped[0], 0.01, ".4f"),
                   within(f"{half}: and goes on as before", stopped[2] / stopped[0], 1 - width, 1 + width, ".4f")]
    return checks


def rows(data):
    return (["phase", "ours_first_per_s", "ours_second_per_s", "eevdf_first_per_s", "eevdf_second_per_s"],
            [[PHASES[i], *(rates(data[half], slot)[i] for half in ("ours", "baseline") for slot in (0, 1))] for i in range(3)])


def plot(data):
    points = data["ours"]["points"]
    return Plot("Progress of two equal loops; the second is suspended for a while", "seconds", "loops",
                [Line("first", [(p[0], p[1]) for p in points]), Line("second", [(p[0], p[2]) for p in points])])
