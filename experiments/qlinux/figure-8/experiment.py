# SPDX-License-Identifier: MIT OR Apache-2.0
"""What comes of a film's datagrams beside more and more floods, without and with a class of its
own."""
import time

from harness.link import PEER, Link
from harness.plot import Line, Plot
from harness.verdict import at_least, at_most

PORT, SENT, CAME, FLOODS = 10, 0, 4, 16
ROOM = 212992  # of a send buffer, as the kernel has it


def film(link, machine, seconds, floods, ours):
    """One point: what was sent, and what came of it."""
    running = [link.net_inf(FLOODS + i, 1000, "floods" if ours else None, ROOM) for i in range(floods)]
    machine.wait_for_counts([FLOODS + i for i in range(floods)])
    time.sleep(0.5)
    link.clear(CAME, 4)
    sender = link.load("stream", SENT, PEER, PORT, int(seconds), queue="film" if ours else None, count=2)
    sender.wait()
    time.sleep(1)  # what still waits
    packets, sent = machine.count(SENT), machine.count(SENT + 1)
    point = {"floods": floods, "sent": packets, "sent_bytes": sent, "came": machine.count(CAME), "came_bytes": machine.count(CAME + 1),
             "in_time_bytes": machine.count(CAME + 2), "delay_max_ms": machine.count(CAME + 3) / 1e6, "status": sender.returncode}
    link.stop([*running, sender])
    return point


def measure(machine, form):
    with Link(machine) as link:
        link.load("screen", CAME, PORT, count=4, beyond=True)
        link.baseline(100)
        baseline = [film(link, machine, form["seconds"], k, False) for k in form["floods"]]
        link.ours({"film": 100, "floods": 400})
        ours = [film(link, machine, form["seconds"], k, True) for k in form["floods"]]
    return {"baseline": baseline, "ours": ours, "seconds": form["seconds"]}


def rate(p):
    """The part of the film that was there within 200 ms."""
    return p["in_time_bytes"] / p["sent_bytes"]


def judge(data, band):
    ours, base = data["ours"], data["baseline"]
    least, lost = min(ours, key=rate), max(ours, key=lambda p: 1 - p["came"] / p["sent"])
    nominal = min(p["sent_bytes"] for p in ours + base) * 8 / data["seconds"] / 1.49e6
    return [at_least("the film is sent at its rate whoever else sends", nominal, 0.95),
            at_least(f"ours: of the film came in time, at the least (k = {least['floods']})", rate(least), band["rate"], ".4f"),
            at_most("ours: datagrams lost, at the most", 1 - lost["came"] / lost["sent"], band["loss"], ".4f"),
            at_least("baseline: without floods it is whole", rate(base[0]), 0.99, ".4f"),
            at_most(f"baseline: of the film came in time with {base[-1]['floods']} floods", rate(base[-1]), band["baseline_falls"], ".4f")]


def rows(data):
    return (["floods", "baseline_in_time", "baseline_lost", "baseline_delay_max_ms", "ours_in_time", "ours_lost", "ours_delay_max_ms"],
            [[b["floods"], *(v for p in (b, o) for v in (round(rate(p), 4), round(1 - p["came"] / p["sent"], 4), round(p["delay_max_ms"], 1)))]
             for b, o in zip(data["baseline"], data["ours"])])


def plot(data):
    mbit = lambda points: [(p["floods"], rate(p) * p["sent_bytes"] * 8 / data["seconds"] / 1e6) for p in points]  # noqa: E731
    return Plot("A film of 1.49 Mbit/s beside floods: what came within 200 ms", "floods", "Mbit/s",
                [Line("ours, weights 1 and 4", mbit(data["ours"])), Line("one queue", mbit(data["baseline"]))])
