# SPDX-License-Identifier: MIT OR Apache-2.0
"""A modelled disk with an arm, its counters, IO_inf, and figures 9a and 9b of QLinux, which are two
views of the same runs."""
import contextlib
import os
import subprocess
import sys
import time

from harness.machine import MOUNT, NotRun
from harness.plot import Line, Plot
from harness.verdict import at_least, at_most

DISK = "arm"
# IO_inf: so many requests at any time, each of that size, at random places, direct.
IO_INF = """
import mmap, os, random, sys, threading
path, size, at_once, seed = sys.argv[1], *map(int, sys.argv[2:])
fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
end = os.lseek(fd, 0, os.SEEK_END) // size
def work(seed):
    dice, memory = random.Random(seed), mmap.mmap(-1, size)
    while True:
        os.preadv(fd, [memory], dice.randrange(end) * size)
for k in range(1, at_once): threading.Thread(target=work, args=(seed * 100 + k,), daemon=True).start()
work(seed * 100)
"""
# Each film reads what a second of it needs, one request after another, from the begin of its second
# on; who is late goes on at once.
PLAYER = """
import json, mmap, os, sys, threading, time
path, films, rate, chunk, seconds = sys.argv[1], *map(int, sys.argv[2:])
fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
size = os.lseek(fd, 0, os.SEEK_END)
out = [[] for _ in range(films)]
begin = time.monotonic() + 0.2
def play(k):
    at, memory, got = size // films * k // chunk * chunk, memoryview(mmap.mmap(-1, chunk)), 0
    for second in range(seconds):
        due = begin + second
        time.sleep(max(0, due - time.monotonic()))
        while got < rate * (second + 1):
            n = os.preadv(fd, [memory], at)
            at, got = at + n, got + n
        out[k].append(time.monotonic() - due)
players = [threading.Thread(target=play, args=(k,)) for k in range(films)]
for p in players: p.start()
for p in players: p.join()
print(json.dumps({"took_s": out, "whole_s": time.monotonic() - begin}), flush=True)
"""
SIZE, AT_ONCE = 4096, 6


@contextlib.contextmanager
def disk(machine, policy, *up):
    """/dev/reserv/arm, 1 TB with an arm, one request at a time; `up`: what else there is."""
    file = f"/dev/shm/{DISK}.img"
    with open(file, "wb") as made:
        made.truncate(1 << 40)
    try:
        machine.reserv("up", "--driver", "stock", *up)
        machine.is_up = True
        try:
            machine.reserv("disk", "attach", f"{DISK}={file}", "--model", "spinning", "--policy", policy, "--depth", "1")
        except Exception as error:
            raise NotRun(f"no disk: {error}") from error
        yield f"/dev/reserv/{DISK}"
    finally:
        machine.down()
        os.unlink(file)


def start(machine, queue, program, *words):
    """A program whose requests are a queue's; without one it is started plainly, so q0's."""
    command = [sys.executable, "-c", program, *map(str, words)]
    if queue is not None:
        command = [str(machine.reserv_program), "run", "--disk", f"{DISK}/{queue}", "--", *command]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@contextlib.contextmanager
def programs():
    """A list of programs, which end with it."""
    running = []
    try:
        yield running
    finally:
        for program in running:
            program.kill()
        for program in running:
            program.wait()


def counted(queue):
    with open(MOUNT / DISK / queue / "backlog", encoding="ascii") as file:
        found = dict(line.split()[:2] for line in file)
    return {"bytes": int(found["service_bytes"]), "requests": int(found["served"]), "waiting": int(found["queued"])}


def looks(queues, seconds, step=1.0):
    """Counters, time after time."""
    begin, series = time.monotonic(), []
    while not series or series[-1]["at_s"] < seconds:
        series.append({"at_s": time.monotonic() - begin, **{q: counted(q) for q in queues}})
        time.sleep(step)
    return series


def gone(series, queue):
    """Requests of a queue between the first look and the last."""
    return series[-1][queue]["requests"] - series[0][queue]["requests"]


def two_classes(machine, form):
    """Cello with shares for throughput-intensive of so many per cent, and the same two programs in
    one queue in the order of sectors and of arrival."""
    found = {"ours": [], "baseline": {}}
    with disk(machine, "cello") as device, programs() as running:
        machine.reserv("mk", f"{DISK}/one", "--share", 100, "--class", "interactive")
        machine.reserv("mk", f"{DISK}/two", "--share", 100, "--class", "throughput")
        machine.reserv("mk", f"{DISK}/film", "--share", 0, "--class", "real-time")
        running += [start(machine, q, IO_INF, device, SIZE, AT_ONCE, k) for k, q in enumerate(("one", "two"))]
        while min(counted(q)["waiting"] for q in ("one", "two")) < AT_ONCE - 2:
            time.sleep(0.1)
        for percent in form["percents"]:
            machine.reserv("set", f"{DISK}/one", f"share={100 - percent}")
            machine.reserv("set", f"{DISK}/two", f"share={percent}")
            time.sleep(2)
            found["ours"].append({"percent": percent, "series": looks(("one", "two"), form["seconds"])})
    for order in ("scan", "fifo"):
        with disk(machine, "sfq") as device, programs() as running:
            machine.reserv("mk", f"{DISK}/all", "--share", 100, "--class", order)
            running += [start(machine, "all", IO_INF, device, SIZE, AT_ONCE, k) for k in range(2)]
            while counted("all")["waiting"] < 2 * AT_ONCE - 3:
                time.sleep(0.1)
            time.sleep(2)
            found["baseline"][order] = looks(("all",), form["seconds"])
    return found


def fraction(point):
    one, two = gone(point["series"], "one"), gone(point["series"], "two")
    return two / (one + two)


def rate(series, *queues):
    """Requests a second."""
    return sum(gone(series, q) for q in queues) / (series[-1]["at_s"] - series[0]["at_s"])


def waiting(points):
    return at_least("requests of both wait at every look, so that weights decide", min(look[q]["waiting"] for p in points for look in p["series"] for q in ("one", "two")), 1, "d")


def judge_fraction(data, band):
    off = max(data["ours"], key=lambda p: abs(fraction(p) - p["percent"] / 100))
    return [waiting(data["ours"]), at_most(f"requests of class 2, from its share (the worst, {off['percent']} %)", abs(fraction(off) - off["percent"] / 100), band["share"], ".4f")]


def judge_total(data, band):
    plain = rate(data["baseline"]["fifo"], "all")
    return [waiting(data["ours"])] + [at_least(f"class 2 at {p['percent']} %: requests served, of what one first-come queue serves", rate(p["series"], "one", "two") / plain, band["total"]) for p in data["ours"]]


def rows(data):
    out = [[p["percent"], round(fraction(p), 4), round(rate(p["series"], "one"), 2), round(rate(p["series"], "two"), 2), round(rate(p["series"], "one", "two"), 2)] for p in data["ours"]]
    return ["share_of_2", "requests_of_2", "one_per_s", "two_per_s", "all_per_s"], out + [[order, "", "", "", round(rate(s, "all"), 2)] for order, s in data["baseline"].items()]


def plot_fraction(data):
    return Plot("Requests of class 2 by its share of the disk", "share, %", "% of requests",
                [Line("Cello", [(p["percent"], 100 * fraction(p)) for p in data["ours"]]), Line("its share", [(p["percent"], p["percent"]) for p in data["ours"]])])


def plot_total(data):
    flat = lambda order: [(p["percent"], rate(data["baseline"][order], "all")) for p in data["ours"]]  # noqa: E731
    return Plot("Requests served by both classes", "share of class 2, %", "requests/s",
                [Line("Cello", [(p["percent"], rate(p["series"], "one", "two")) for p in data["ours"]]), Line("one queue, first come", flat("fifo")), Line("one queue, in the order of sectors", flat("scan"))])
