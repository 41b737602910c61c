# SPDX-License-Identifier: MIT OR Apache-2.0
"""A film that is read from the disk and sent over the link, in rounds of a second, beside IO_inf
and Net_inf."""
import json
import subprocess
import sys
import time

from harness.disks import DISK, IO_INF, SIZE, counted, disk, programs, start
from harness.link import DEV, PEER, RATE_MBIT, Link
from harness.plot import Line, Plot
from harness.verdict import at_least, at_most

PORT, RATE, CHUNK, DATAGRAM, AT_ONCE = 11, 187_500, 16_384, 8192, 2
ROOM = 212992  # of a send buffer, as the kernel has it
# Reads a second of the film, one request after another, and sends it; who is late goes on at once.
# Says when it began, and how much it sent.
SERVER = """
import json, mmap, os, socket, struct, sys, time
path, peer, port, rate, chunk, datagram, seconds = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.connect((peer, port))
memory, film, at, number = memoryview(mmap.mmap(-1, chunk)), b"", 0, 0
begin, took = time.monotonic(), []
for second in range(seconds):
    time.sleep(max(0, begin + second - time.monotonic()))
    since = time.monotonic()
    while len(film) < rate:
        at += os.preadv(fd, [memory], at)
        film += bytes(memory)
    took.append(time.monotonic() - since)
    for first in range(0, rate, datagram):
        part = film[first:min(first + datagram, rate)]
        out.send(struct.pack("II", number, second) + part[8:])
        number += 1
    film = film[rate:]
print(json.dumps({"begin": begin, "datagrams": number, "read_s": took}), flush=True)
"""
# Number, round, length and time of each datagram, until its input ends.
CLIENT = """
import json, select, socket, struct, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 33, 1 << 22)  # SO_RCVBUFFORCE: what is lost is lost on the way
s.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS: when the kernel had it
s.bind((sys.argv[1], int(sys.argv[2])))
behind = time.time() - time.monotonic()
print("ready", flush=True)
came = []
while True:
    ready = select.select([s, sys.stdin], [], [])[0]
    if s in ready:
        part, told = s.recvmsg(65536, 64)[:2]
        at, ns = struct.unpack("qq", told[0][2])
        came.append([*struct.unpack_from("II", part), len(part), at + ns / 1e9 - behind])
    elif ready:
        break
print(json.dumps(came), flush=True)
"""


def one(machine, link, device, ours, k, seconds):
    films, others = ("film", "others") if ours else ("all", "all")
    with programs() as running:
        running += [start(machine, others, IO_INF, device, SIZE, AT_ONCE, n) for n in range(k)]
        floods = [link.net_inf(n, 1000, "others" if ours else None, ROOM) for n in range(k)]
        machine.wait_for_counts(list(range(k)))
        while k and counted(others)["waiting"] < AT_ONCE * k - 1:
            time.sleep(0.1)
        client = subprocess.Popen(["ip", "netns", "exec", link.space, sys.executable, "-c", CLIENT, PEER, str(PORT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        running.append(client)
        client.stdout.readline()
        queues = ["--disk", f"{DISK}/{films}", *(["--net", f"{DEV}/film"] if ours else [])]
        server = subprocess.Popen([str(machine.reserv_program), "run", *queues, "--", sys.executable, "-c", SERVER, device, PEER, *map(str, (PORT, RATE, CHUNK, DATAGRAM, seconds))],
                                  stdout=subprocess.PIPE, text=True)
        running.append(server)
        told = json.loads(server.communicate()[0])
        time.sleep(2)  # what still waits
        came = json.loads(client.communicate()[0])
        link.stop(floods)
    rounds = [[(number, at - told["begin"]) for number, of, _, at in came if of == second] for second in range(seconds)]
    return {"others": k, "sent": told["datagrams"], "read_s": told["read_s"], "came": len({number for number, *_ in came}), "came_bytes": sum(length for _, _, length, _ in came), "whole_s": came[-1][3] - told["begin"] if came else None,
            "came_s": rounds}


def measure(machine, form):
    found = {"seconds": form["seconds"]}
    with Link(machine) as link:
        with disk(machine, "cello", "--net", DEV, "--rate", f"{RATE_MBIT}mbit") as device:
            machine.reserv("mk", f"{DISK}/film", "--share", 200, "--class", "real-time")
            machine.reserv("set", f"{DISK}/film", "deadline=50ms")
            machine.reserv("mk", f"{DISK}/others", "--share", 100, "--class", "interactive")
            machine.reserv("mk", f"{DEV}/film", "--share", 200)
            # Room for a round, which is sent at once: 128 KiB, what this link sends in 100 ms, is
            # less.
            machine.reserv("set", f"{DEV}/film", "limit=0 256KiB")
            machine.reserv("mk", f"{DEV}/others", "--share", 100)
            found["ours"] = [one(machine, link, device, True, k, form["seconds"]) for k in form["others"]]
        with disk(machine, "sfq") as device:
            machine.reserv("mk", f"{DISK}/all", "--share", 100, "--class", "fifo")
            link.baseline()
            found["baseline"] = [one(machine, link, device, False, k, form["seconds"]) for k in form["others"]]
    return found


def lost(point):
    return 1 - point["came"] / point["sent"]


def kept(point, seconds):
    """What came of the film's rate: of all its bytes, in the time until the last was there, which is at least as long as the film."""
    return point["came_bytes"] / RATE / max(point["whole_s"] or 0, seconds)


def apart(point):
    """Milliseconds between two datagrams of a round: the mean of the rounds' means, of those of
    which two came. None: there is no such round."""
    means = [(came[-1][1] - came[0][1]) / (len(came) - 1) for came in point["came_s"] if len(came) > 1]
    return 1000 * sum(means) / len(means) if means else None


def grown(points):
    """How far datagrams of a round are apart, with each load, of what they are without."""
    alone = apart(points[0])
    return {p["others"]: apart(p) and apart(p) / alone for p in points if p["others"]}


def judge(data, band):
    ours, base, seconds = data["ours"], data["baseline"], data["seconds"]
    worst = min(ours, key=lambda p: kept(p, seconds))
    theirs = grown(base)
    checks = [at_most("ours: datagrams lost, in all", sum(p["sent"] - p["came"] for p in ours), 0, "d"),
              at_least(f"ours: the film's rate, the worst (beside {worst['others']})", kept(worst, seconds), band["rate"]),
              at_most(f"one queue: the film's rate beside {base[-1]['others']}", kept(base[-1], seconds), band["baseline_falls"])]
    # Where so much is lost that no round of the baseline has two datagrams left, nothing can be
    # compared.
    compared = {k: value / theirs[k] for k, value in grown(ours).items() if theirs[k]}
    return [*checks, at_least("loads with which rounds can be compared", len(compared), 1, "d"),
            *(at_most(f"ours: how far datagrams of a round come apart, of what one queue makes of it, beside {k}", value, 1) for k, value in compared.items())]


def rows(data):
    out = [[how, p["others"], apart(p) and round(apart(p), 2), round(100 * lost(p), 2), round(kept(p, data["seconds"]) * 1.5, 4)] for how in ("ours", "baseline") for p in data[how]]
    return ["how", "others", "apart_ms", "lost_percent", "mbit_per_s"], out


def plot(data):
    mbit = lambda points: [(p["others"], kept(p, data["seconds"]) * 1.5) for p in points]  # noqa: E731
    return Plot("A film of 1.5 Mbit/s from the disk over the link", "IO_inf and Net_inf", "Mbit/s", [Line("Cello and H-SFQ, 1 : 2", mbit(data["ours"])), Line("one queue each", mbit(data["baseline"]))])
