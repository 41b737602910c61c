# SPDX-License-Identifier: MIT OR Apache-2.0
"""Four films from the disk, in rounds of a second, beside IO_inf."""
import json
import time

from harness.disks import DISK, IO_INF, PLAYER, SIZE, counted, disk, programs, start
from harness.plot import Line, Plot
from harness.verdict import at_least, at_most

FILMS, RATE, CHUNK, AT_ONCE = 4, 187_500, 16_384, 2


def one(machine, device, queues, others, seconds):
    """How long after its begin each second of each film was there."""
    films, rest = queues
    with programs() as running:
        running += [start(machine, rest, IO_INF, device, SIZE, AT_ONCE, k) for k in range(others)]
        if others:
            while counted(rest)["waiting"] < AT_ONCE * others - 1:
                time.sleep(0.1)
        before = counted(rest)["requests"]
        player = start(machine, films, PLAYER, device, FILMS, RATE, CHUNK, seconds)
        running.append(player)
        found = json.loads(player.communicate()[0])
        return {"others": others, "others_requests": counted(rest)["requests"] - before, **found}


def measure(machine, form):
    found = {"seconds": form["seconds"]}
    with disk(machine, "cello") as device:
        machine.reserv("mk", f"{DISK}/films", "--share", 300, "--class", "real-time")
        machine.reserv("set", f"{DISK}/films", "deadline=50ms")
        machine.reserv("mk", f"{DISK}/others", "--share", 100, "--class", "interactive")
        found["ours"] = [one(machine, device, ("films", "others"), k, form["seconds"]) for k in form["others"]]
    with disk(machine, "sfq") as device:
        machine.reserv("mk", f"{DISK}/all", "--share", 100, "--class", "fifo")
        found["baseline"] = [one(machine, device, ("all", "all"), k, form["seconds"]) for k in form["others"]]
    return found


def kept(point, seconds):
    """The films' rate, of theirs: seconds of film in the time until the last was there, which is at
    least as long as they are."""
    return seconds / max(point["whole_s"], seconds)


def missed(point):
    return sum(took > 1 for film in point["took_s"] for took in film)


def judge(data, band):
    worst = min(data["ours"], key=lambda p: kept(p, data["seconds"]))
    most = max(data["baseline"], key=lambda p: p["others"])
    return [at_least(f"Cello: the films' rate, the worst (beside {worst['others']})", kept(worst, data["seconds"]), band["rate"]),
            at_most("Cello: rounds missed, in all", sum(map(missed, data["ours"])), 0, "d"),
            at_least("the others are served too, where there are any", min(p["others_requests"] for p in data["ours"] if p["others"]), 1, "d"),
            at_most(f"one queue: the films' rate beside {most['others']}", kept(most, data["seconds"]), band["baseline_falls"])]


def rows(data):
    worst = lambda p: max(max(film) for film in p["took_s"])  # noqa: E731
    out = [[how, p["others"], round(kept(p, data["seconds"]), 4), missed(p), round(worst(p), 3), p["others_requests"] if how == "ours" else ""] for how in ("ours", "baseline") for p in data[how]]
    return ["how", "others", "rate_of_nominal", "rounds_missed", "longest_round_s", "requests_of_others"], out


def plot(data):
    mbit = lambda points: [(p["others"], kept(p, data["seconds"]) * 1.5) for p in points]  # noqa: E731
    return Plot("Each of four films of 1.5 Mbit/s beside IO_inf", "IO_inf", "Mbit/s", [Line("Cello, 3 : 1", mbit(data["ours"])), Line("one queue", mbit(data["baseline"]))])
