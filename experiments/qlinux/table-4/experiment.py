# SPDX-License-Identifier: MIT OR Apache-2.0
"""ns of each operation, without and with ours."""
from harness.plot import Line, Plot
from harness.verdict import HOLDS, FAILS, Check

# Name, operations at scale 1, the paper's microseconds (QLinux, Linux).
OPS = (("null", 5000, 1, 1), ("fork", 60, 400, 400), ("exec", 30, 2000, 2000), ("ctx2", 1000, 4, 1), ("ctx16", 12, 286, 283),
       ("udp", 400, 47, 53), ("create", 300, 21, 21), ("delete", 300, 2, 2))
QUANTUM_US = 4000
SERIES = 3


def half(m, scale, queue):
    """The best of some series, as lmbench does."""
    return {name: min(float(m.run("op", name, n * scale, queue=queue)) for _ in range(SERIES)) for name, n, *_ in OPS}


def measure(m, form):
    baseline = half(m, form["scale"], None)
    m.up()
    m.reserv("mk", "bench", "--share", 1000)
    return {"baseline": baseline, "ours": half(m, form["scale"], "bench")}


def judge(data, band):
    checks = []
    for name, *_ in OPS:
        ours, base = data["ours"][name], data["baseline"][name]
        found = f"{ours:.0f} ns, baseline {base:.0f} ns: {ours / base:.3f}"
        if name.startswith("ctx"):
            allowed = max(band["switch_us"] * 1000, band["switch_quantum"] * QUANTUM_US * 1000)
            good, what = ours - base <= allowed, f"{name}: at most {allowed:.0f} ns more"
        else:
            good, what = ours / base <= 1 + band["others"], f"{name}: at most {band['others']:.0%} more"
        checks.append(Check(what, HOLDS if good else FAILS, found))
    return checks


def rows(data):
    return (["operation", "ours_ns", "eevdf_ns", "ratio", "paper_qlinux_us", "paper_linux_us"],
            [[name, data["ours"][name], data["baseline"][name], data["ours"][name] / data["baseline"][name], q, linux]
             for name, _, q, linux in OPS])


def plot(data):
    return Plot("Cost of " + ", ".join(o[0] for o in OPS) + ": ours for one of EEVDF's", "operation, in this order", "ratio",
                [Line("ours", [(i + 1, data["ours"][o[0]] / data["baseline"][o[0]]) for i, o in enumerate(OPS)]),
                 Line("equal", [(1, 1), (len(OPS), 1)], theory=True)])
