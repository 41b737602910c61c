# SPDX-License-Identifier: MIT OR Apache-2.0
"""A decoder of 30 frames a second beside k loops."""
import json

from harness.plot import Line, Plot
from harness.verdict import at_least, at_most, within

PERIOD_US = 33_333
COST_US = 13_333


def decode(m, form, queue=None):
    return json.loads(m.run("frames", form["frames"], PERIOD_US, COST_US, queue=queue))


def half(m, form, decoder, others):
    out = {}
    for k in form["ks"]:
        for slot in range(k):
            m.inf(slot, queue=others)
        m.wait_for_counts(list(range(k)))
        out[k] = decode(m, form, decoder)
        m.end()
    return out


def measure(m, form):
    baseline = half(m, form, None, None)
    m.up()
    m.reserv("mk", "rt", "--share", 1, "--class", "sfq")
    m.reserv("mk", "be", "--share", 1, "--class", "ts")
    return {"baseline": baseline, "ours": half(m, form, "rt", "be")}


def fps(run):
    return run["frames"] / run["elapsed_ns"] * 1e9


def judge(data, band):
    ours, base = data["ours"], data["baseline"]
    ks = sorted(ours, key=int)
    checks = [at_least(f"ours: frame rate at k={ks[-1]} of that at k={ks[0]}", fps(ours[ks[-1]]) / fps(ours[ks[0]]), band["rate_k"]),
              at_most("ours: deadlines missed, the worst k", max(r["missed"] / r["frames"] for r in ours.values()), band["misses"])]
    for k in (ks[0], ks[-1]):
        expected = min(COST_US / PERIOD_US, 1 / (int(k) + 1))
        checks.append(within(f"baseline: the decoder's share at k={k}", base[k]["cpu_ns"] / base[k]["elapsed_ns"], expected - band["share"],
                             expected + band["share"]))
    return checks


def rows(data):
    return (["k", "ours_fps", "ours_missed", "ours_worst_ms", "eevdf_fps", "eevdf_missed", "eevdf_share"],
            [[int(k), fps(o), o["missed"] / o["frames"], o["worst_ns"] / 1e6, fps(b), b["missed"] / b["frames"],
              b["cpu_ns"] / b["elapsed_ns"]] for k, o in data["ours"].items() for b in [data["baseline"][k]]])


def plot(data):
    line = lambda h: [(int(k), fps(r)) for k, r in data[h].items()]  # noqa: E731
    return Plot("Frames a second of a decoder beside k loops", "k", "frames per second",
                [Line("ours", line("ours")), Line("EEVDF", line("baseline")), Line("wanted", [(1, 30), (10, 30)], theory=True)])
