# SPDX-License-Identifier: MIT OR Apache-2.0
"""Throughput and shares of two readers of the modelled disk, batch by batch."""
import os
import subprocess
import sys
import time

from harness.machine import MOUNT, NotRun
from harness.plot import Line, Plot
from harness.verdict import at_least, at_most

DISK, WEIGHTS, LARGEST = "arm", {"a": 100, "b": 300}, 65536
WINDOW_S = 1.0
READER = """
import mmap, os, random, sys, threading
path, largest, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
end = os.lseek(fd, 0, os.SEEK_END) // 4096 - largest // 4096
def work(seed):
    dice, memory = random.Random(seed), memoryview(mmap.mmap(-1, largest))
    while True:
        size = 4096 * dice.randint(1, largest // 4096)
        os.preadv(fd, [memory[:size]], dice.randrange(end) * 4096)
for seed in range(1, threads): threading.Thread(target=work, args=(seed,), daemon=True).start()
work(0)
"""


def counted(queue):
    with open(MOUNT / DISK / queue / "backlog", encoding="ascii") as file:
        found = dict(line.split()[:2] for line in file)
    return int(found["service_bytes"]), int(found["served"]), int(found["queued"])


def one(machine, batch, seconds):
    """The counters at the ends of windows."""
    machine.reserv("set", DISK, f"batch={batch}")
    time.sleep(2)
    start = time.monotonic()
    series = []
    while not series or series[-1]["at_s"] < seconds:
        time.sleep(WINDOW_S)
        now = {queue: counted(queue) for queue in WEIGHTS}
        series.append({"at_s": time.monotonic() - start, "bytes": {q: n[0] for q, n in now.items()}, "requests": {q: n[1] for q, n in now.items()},
                       "waiting": min(n[2] for n in now.values())})
    return {"batch": batch, "series": series}


def measure(machine, form):
    file = f"/dev/shm/{DISK}.img"
    with open(file, "wb") as made:
        made.truncate(1 << 40)
    readers = []
    try:
        machine.reserv("up", "--driver", "stock")
        machine.is_up = True
        try:
            machine.reserv("disk", "attach", f"{DISK}={file}", "--model", "spinning", "--policy", "yfq", "--depth", "1")
        except Exception as error:
            raise NotRun(f"no disk: {error}") from error
        for queue, weight in WEIGHTS.items():
            machine.reserv("mk", f"{DISK}/{queue}", "--share", weight)
            command = ["run", "--disk", f"{DISK}/{queue}", "--", sys.executable, "-c", READER, f"/dev/reserv/{DISK}", str(LARGEST), "48"]
            readers.append(subprocess.Popen([str(machine.reserv_program), *command]))
        while min(counted(queue)[2] for queue in WEIGHTS) < 32:
            time.sleep(0.1)
        return {"points": [one(machine, batch, form["seconds"]) for batch in form["batches"]], "weights": WEIGHTS, "largest": LARGEST}
    finally:
        for reader in readers:
            reader.kill()
        for reader in readers:
            reader.wait()
        machine.down()
        os.unlink(file)


def whole(point):
    """Bytes a second, the first queue's part, and the parts in windows."""
    first, last = point["series"][0], point["series"][-1]
    got = {q: last["bytes"][q] - first["bytes"][q] for q in first["bytes"]}
    windows = [{q: b["bytes"][q] - a["bytes"][q] for q in a["bytes"]} for a, b in zip(point["series"], point["series"][1:])]
    return sum(got.values()) / (last["at_s"] - first["at_s"]), got["a"] / sum(got.values()), windows


def lag(point, weights):
    """The most that a queue was ahead of its weight or behind it, in bytes, between any two looks.
    """
    part = weights["a"] / sum(weights.values())
    ahead = [look["bytes"]["a"] - part * sum(look["bytes"].values()) for look in point["series"]]
    return max(ahead) - min(ahead)


def judge(data, band):
    weights, points = data["weights"], data["points"]
    part = weights["a"] / sum(weights.values())
    rates = {p["batch"]: whole(p)[0] for p in points}
    off = max(points, key=lambda p: abs(whole(p)[1] - part))
    checks = [at_least("requests of both wait at every look, so that weights decide", min(s["waiting"] for p in points for s in p["series"]), 1, "d"),
              at_most(f"shares, from the weights' (b = {off['batch']} is the worst)", abs(whole(off)[1] - part), band["share"], ".4f"),
              at_least("throughput with b = 16, of that with b = 1", rates[16] / rates[1], band["gain_16"])]
    sizes = sorted(rates)
    for less, more in zip(sizes, sizes[1:]):
        checks.append(at_least(f"throughput with b = {more}, of that with b = {less}", rates[more] / rates[less], band["gain_step"]))
    for p in points:
        bound = band["window"] * (p["batch"] + 1) * data["largest"]
        checks.append(at_most(f"b = {p['batch']}: a queue is ahead or behind by, of {bound / 1e6:.2f} MB", lag(p, weights) / bound, 1.0))
    return checks


def rows(data):
    out = []
    for p in data["points"]:
        rate, part, windows = whole(p)
        parts = [w["a"] / (sum(w.values()) or 1) for w in windows]
        out.append([p["batch"], round(rate / 1e6, 3), round(part, 4), round(min(parts), 4), round(max(parts), 4), round(lag(p, data["weights"]) / 1e6, 3)])
    return ["batch", "MB_per_s", "share_of_a", "least_in_1_s", "most_in_1_s", "lag_MB"], out


def plot(data):
    points = [(p["batch"], whole(p)) for p in data["points"]]
    return Plot("YFQ's batches on the modelled disk", "batch", "MB/s",
                [Line("both queues", [(b, w[0] / 1e6) for b, w in points]), Line("the one with weight 1 of 4", [(b, w[0] * w[1] / 1e6) for b, w in points])])
