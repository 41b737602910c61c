# SPDX-License-Identifier: MIT OR Apache-2.0
"""Bytes of a web server's connections beside more and more floods, without and with a class of
their own."""
import random
import time
from pathlib import Path

from harness.link import PEER, RATE_MBIT, Link
from harness.plot import Line, Plot
from harness.verdict import at_least

PORT, WEB, CAME, FLOODS = 10, 0, 2, 16
ROOM = 212992  # of a send buffer, as the kernel has it
DEMAND = 6e6 / 8  # bytes per second
WARM = 1.0


def trace(seconds):
    """Lines `ms bytes`, the same each time."""
    dice, now, total, lines = random.Random(12), 0.0, 0, []
    mean = 9700
    while now < seconds:
        size = max(64, min(int(dice.lognormvariate(8.2, 1.4)), 1_000_000))
        lines.append(f"{int(now * 1000)} {size}")
        total += size
        now += dice.expovariate(DEMAND / mean)
    return "\n".join(lines) + "\n", total / seconds


def point(link, machine, seconds, floods, ours, path):
    running = [link.net_inf(FLOODS + i, 1000, "floods" if ours else None, ROOM) for i in range(floods)]
    machine.wait_for_counts([FLOODS + i for i in range(floods)])
    time.sleep(0.5)
    web = link.load("web", WEB, PEER, PORT, path, queue="web" if ours else None, count=2)
    machine.wait_for_counts([WEB])
    time.sleep(WARM)
    begin, came, served = time.monotonic(), machine.count(CAME), link.served("web") if ours else 0
    time.sleep(seconds - WARM)
    took = time.monotonic() - begin
    found = {"floods": floods, "seconds": took, "bytes": machine.count(CAME) - came, "link_bytes": (link.served("web") if ours else 0) - served,
             "begun": machine.count(WEB), "refused": machine.count(WEB + 1)}
    link.stop([*running, web])
    time.sleep(1)
    return found


def measure(machine, form):
    text, demand = trace(form["seconds"] + 1)
    path = Path(f"{machine.path}.trace")
    path.write_text(text)
    try:
        with Link(machine) as link:
            link.load("drain", CAME, PORT, beyond=True)
            link.baseline(100)
            baseline = [point(link, machine, form["seconds"], k, False, path) for k in form["floods"]]
            link.ours({"web": 100, "floods": 100})
            ours = [point(link, machine, form["seconds"], k, True, path) for k in form["floods"]]
    finally:
        path.unlink()
    return {"baseline": baseline, "ours": ours, "demand": demand}


def rate(p):
    return p["bytes"] / p["seconds"]


def judge(data, band):
    ours, base = data["ours"], data["baseline"]
    kept, plain = (rate(half[-1]) / rate(half[0]) for half in (ours, base))
    return [at_least("without floods the demand is met, ours", rate(ours[0]) / data["demand"], 0.9),
            at_least("without floods the demand is met, baseline", rate(base[0]) / data["demand"], 0.9),
            at_least(f"ours: kept with {ours[-1]['floods']} floods, beyond what the baseline keeps ({plain:.3f})", kept - plain, band["gain"]),
            at_least("ours: of the link, with the most floods", ours[-1]["link_bytes"] * 8 / ours[-1]["seconds"] / RATE_MBIT / 1e6, band["share"])]


def rows(data):
    return (["floods", "baseline_mbit", "ours_mbit", "ours_link_mbit", "baseline_refused", "ours_refused"],
            [[b["floods"], round(rate(b) * 8e-6, 3), round(rate(o) * 8e-6, 3), round(o["link_bytes"] * 8e-6 / o["seconds"], 3), b["refused"], o["refused"]]
             for b, o in zip(data["baseline"], data["ours"])])


def plot(data):
    mbit = lambda points: [(p["floods"], rate(p) * 8e-6) for p in points]  # noqa: E731
    return Plot("Documents of a web server beside floods, weights 1:1", "floods", "Mbit/s of documents",
                [Line("ours", mbit(data["ours"])), Line("one queue", mbit(data["baseline"]))])
