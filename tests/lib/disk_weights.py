# SPDX-License-Identifier: MIT OR Apache-2.0
"""The disk's stock driver: processes in cgroups with weights, on an elevator that the kernel has.
Two programs read directly from a disk, with several requests waiting each; what they got they count
themselves. Shares are inexact: BOUND is what is asked of them, over seconds: whoever has the larger
weight gets more. BFQ gives each thread's requests up to an eighth of one, and on 6.12 it serves 1:4
as 3:5 for seconds (docs/notes/disk.md)."""
import mmap
import os
import struct
import subprocess
import sys
import time

from live import MOUNT, check, kill, ours

BOUND = 0.25
# argv: device, file of counters, slot. Four threads: with two BFQ is far off.
READER = """
import mmap, os, random, struct, sys, threading
fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
with open(sys.argv[2], "r+b") as file: counters = mmap.mmap(file.fileno(), 4096)
blocks = os.lseek(fd, 0, os.SEEK_END) // 4096
def work(thread):
    dice, memory, at, done = random.Random(thread), mmap.mmap(-1, 4096), int(sys.argv[3]) * 64 + thread * 8, 0
    while True:
        os.preadv(fd, [memory], dice.randrange(blocks) * 4096)
        done += 1
        struct.pack_into("Q", counters, at, done)
for thread in 1, 2, 3: threading.Thread(target=work, args=(thread,), daemon=True).start()
work(0)
"""


class Readers:
    """Two of them, on one device."""

    def __init__(self, device, scratch):
        self.file = f"{scratch}/counters"
        with open(self.file, "wb") as file:
            file.write(bytes(4096))
        with open(self.file, "r+b") as file:
            self.counters = mmap.mmap(file.fileno(), 4096)
        self.all = [subprocess.Popen([sys.executable, "-c", READER, device, self.file, str(slot)]) for slot in (0, 1)]
        while not all(self.counts()):
            if any(child.poll() is not None for child in self.all):
                raise RuntimeError("a reader has ended")
            time.sleep(0.05)

    def counts(self):
        return [sum(struct.unpack_from("4Q", self.counters, slot * 64)) for slot in (0, 1)]

    def pids(self):
        return [child.pid for child in self.all]

    def share(self, seconds):
        """The second one's."""
        before = self.counts()
        time.sleep(seconds)
        got = [now - then for now, then in zip(self.counts(), before)]
        return got[1] / (sum(got) or 1)

    def end(self):
        for child in self.all:
            child.kill()
        for child in self.all:
            child.wait()


def near(got, wanted, text, by=BOUND):
    check(abs(got - wanted) <= by, f"{text}: {wanted:g} within {by * 100:g} points", f"{got:.3f}")


def elevator(disk):
    with open(f"/sys/block/{disk}/queue/scheduler", encoding="ascii") as file:
        return file.read().split("[")[1].split("]")[0]


def place(pid, controller):
    """The cgroup of a process in the hierarchy that has this controller."""
    with open(f"/proc/{pid}/cgroup", encoding="ascii") as file:
        lines = [line.rstrip("\n").split(":", 2) for line in file]
    return next((path for _, names, path in lines if controller in names.split(",")), None) or next(path for _, names, path in lines if not names)


def backlog(path):
    with open(f"{MOUNT}/{path}/backlog", encoding="utf-8") as file:
        return {key: int(value.split()[0]) for key, value in (line.split(" ", 1) for line in file)}


def refused(live, text, word, *command):
    out = live.reserv(*command, ok=False)
    check(out.returncode != 0 and word in out.stderr, f"refused: {text}", (out.stderr.strip().splitlines() or ["nothing"])[0])


def refusals(live, name, disk, scratch):
    """What the driver cannot do, by name; nothing of it changes anything."""
    queue = f"{name}/a"
    refused(live, "a cap", "caps", "set", queue, "cap=1MB/s")
    refused(live, "a minimum", queue, "set", queue, "share=100 8kbit")
    refused(live, "another policy", "cello", "set", name, "policy=cello")
    refused(live, "another class", "scan", "set", queue, "class=scan")
    refused(live, "a deadline", "deadline", "set", queue, "deadline=20ms")
    refused(live, "weights beyond the elevator's range", "1000 to 1", "set", queue, "share=0.3")
    refused(live, "a tag of an open file", "whole processes", "tag", queue, f"{os.getpid()}/0")
    refused(live, "a member left in a queue that goes", "has 1 member", "rm", f"{name}/b")
    refused(live, "to wait until its members have gone", "drain", "rm", "--drain", f"{name}/b")
    for text, word, options in (("a second disk", "only one disk", (f"/dev/{disk}",)), ("a file", "no block device", (f"{scratch}/counters",)),
                                ("a model of a disk", "no model", (f"/dev/{disk}", "--model", "flash")), ("a floor", "no minimums", (f"/dev/{disk}", "--floor", "1MB/s")),
                                ("a front end", "no front end", (f"/dev/{disk}", "--front", "fuse")), ("a depth of 4", "one request at a time", (f"/dev/{disk}", "--depth", "4"))):
        refused(live, text, word, "disk", "attach", f"other={options[0]}", "--driver", "stock", *options[1:])


def run(live, name, disk, scratch, controller, seconds, by=BOUND):
    """`live` has this disk by BFQ, under this name."""
    said = live.status_text("disk")
    check(f"{name}: running, bfq on /dev/{disk}, one request at a time" in said and "inexact" in said, "disk status names the mechanism and says that it is inexact", said.strip())
    state = live.status()["resources"][name]
    check(state["driver"] == "stock" and state["limits"][0].startswith("inexact"), "so does status")
    check(elevator(disk) == "bfq", "the disk has BFQ", elevator(disk))
    readers = Readers(f"/dev/{disk}", scratch)
    try:
        homes = [place(pid, controller) for pid in readers.pids()]
        first, second = readers.pids()
        # The weight in the first one's place, then in the other's: what decides is the queue, not
        # the program. (Equal weights BFQ keeps less than different ones.)
        for queue, weight, pid in ("b", 400, first), ("a", 100, second):
            live.mk(f"{name}/{queue}", weight)
            live.reserv("tag", f"{name}/{queue}", pid)
        time.sleep(seconds / 4)
        near(readers.share(seconds), 0.2, "1:4", by)
        live.reserv("tag", f"{name}/a", first)
        live.reserv("tag", f"{name}/b", second)
        check(place(second, controller).endswith(".1") and "-disk/q" in place(second, controller), "a queue is a cgroup", place(second, controller))
        time.sleep(seconds / 4)
        before, count = backlog(f"{name}/b")["service_bytes"], readers.counts()[1]
        near(readers.share(seconds), 0.8, "and the other way round", by)
        told, read = backlog(f"{name}/b")["service_bytes"] - before, (readers.counts()[1] - count) * 4096
        check(abs(told - read) < 0.1 * read, "its backlog counts what it was served", f"{told} and {read} bytes")
        refusals(live, name, disk, scratch)
        out = live.reserv("tag", "cpu/q0", second, ok=False)
        check(out.returncode == 0, "a tag of the CPU's q0 is no tag", out.stderr.strip())

        # reservd is killed: the kernel goes on, and the next one finds what there was.
        live.wait("keeper and worker of reservd are dead", lambda: not [kill(pid) for pid in ours()])
        check(elevator(disk) == "bfq" and "-disk/q" in place(second, controller), "elevator and cgroups outlive kill -9 of reservd")
        live.reserv("up", "--driver", live.driver, *live.up_args)
        check(live.status()["resources"][name]["beginning"] == "adopted", "the next one adopts the tree")
        near(readers.share(seconds), 0.8, "after all that and kill -9 of reservd", by)
        live.reserv("rm", "--flush", f"{name}/b")
        check(place(second, controller) == homes[1], "a member of a queue that is flushed is back where it came from", place(second, controller))
        live.reserv("disk", "detach", name)
        check([place(pid, controller) for pid in readers.pids()] == homes, "detached: all members are", homes)
        near(readers.share(seconds / 2), 0.5, "and without the driver they have the same", 0.1)
        check(all(child.poll() is None for child in readers.all), "no program saw an error")
    finally:
        readers.end()


def left(top):
    """Cgroups of ours at the top of a hierarchy."""
    return [entry for entry in os.listdir(top) if entry.endswith("-disk")]
