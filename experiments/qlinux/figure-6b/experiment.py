# SPDX-License-Identifier: MIT OR Apache-2.0
"""CPU time of two classes of short-lived processes."""
import os
import time

from harness.plot import Line, Plot
from harness.verdict import within

PAIRS = (1, 2, 4)
EACH = 4


def measure(m, form):
    data = {"ours": {}, "cpus": os.cpu_count()}
    m.up()
    for c in (0, 1):
        m.reserv("mk", f"c{c}", "--share", 1)
        for _ in range(EACH):
            m.start("op", "exec", 1_000_000_000, queue=f"c{c}")
    end = time.monotonic() + 60
    while any(m.service_ns(f"c{c}") < 50_000_000 for c in (0, 1)) and time.monotonic() < end:
        time.sleep(0.05)
    for weight in PAIRS:
        m.reserv("set", "c1", f"share={weight}")
        before = [m.service_ns("c0"), m.service_ns("c1")]
        time.sleep(form["seconds"])
        data["ours"][weight] = [m.service_ns("c0") - before[0], m.service_ns("c1") - before[1]]
    return data


def judge(data, band):
    return [within(f"ours: CPU time 1 : {w}", b / a / int(w), 1 - band["ratio"], 1 + band["ratio"], ".4f")
            for w, (a, b) in data["ours"].items()]


def rows(data):
    return ["weights", "c0_ns", "c1_ns", "ratio"], [[f"1:{w}", a, b, b / a] for w, (a, b) in data["ours"].items()]


def plot(data):
    return Plot("CPU time of the second class for one of the first", "weight of the second class", "ratio",
                [Line("ours", [(int(w), b / a) for w, (a, b) in data["ours"].items()]), Line("the weights", [(1, 1), (4, 4)], theory=True)])
