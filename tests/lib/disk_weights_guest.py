# SPDX-License-Identifier: MIT OR Apache-2.0
"""The disk's stock driver (tests/lib/disk_weights.py) in the guest, by BFQ and by iocost, beside
the CPU's stock driver in the same hierarchy."""
import os
import subprocess

import disk_weights
from blockd import slow_disk
from disk_weights import Readers, elevator, near, place
from live import Live, check

TOP = "/sys/fs/cgroup"
SCRATCH = "/dev/shm"
SECONDS = 4


def put(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def qos(number):
    with open(f"{TOP}/io.cost.qos", encoding="ascii") as file:
        return [line.strip() for line in file if line.startswith(number + " ")]


def run():
    # The kernel loads BFQ by itself; the disk's former elevator is a module here.
    subprocess.run(["modprobe", "mq-deadline"], check=True)
    disk = slow_disk(1)
    put(f"/sys/block/{disk}/queue/scheduler", "mq-deadline")
    with open(f"{TOP}/cgroup.subtree_control", encoding="ascii") as file:
        controllers = file.read()
    with Live("stock", "--disk", f"/dev/{disk}", "--disk-driver", "stock", "--depth", "1") as live:
        disk_weights.run(live, disk, disk, SCRATCH, "io", SECONDS)
        check(elevator(disk) == "mq-deadline" and not disk_weights.left(TOP), "detached: the elevator is as it was, and no cgroup is left", elevator(disk))

        # iocost, which somebody has told that the disk does 800 requests a second: it goes before
        # BFQ, and stays as it is.
        with open(f"/sys/block/{disk}/dev", encoding="ascii") as file:
            number = file.read().strip()
        put(f"/sys/block/{disk}/queue/scheduler", "none")
        rates = "rbps=3276800 rseqiops=800 rrandiops=800 wbps=3276800 wseqiops=800 wrandiops=800"
        put(f"{TOP}/io.cost.model", f"{number} ctrl=user model=linear {rates}")
        put(f"{TOP}/io.cost.qos", f"{number} enable=1 ctrl=user rpct=0 wpct=0 min=100 max=100")
        before = qos(number)
        live.reserv("disk", "attach", f"/dev/{disk}", "--driver", "stock")
        said = live.status_text("disk")
        check("running, iocost on" in said and "io.weight" in said and elevator(disk) == "none", "where iocost is on it is iocost", said.strip())
        readers = Readers(f"/dev/{disk}", SCRATCH)
        first, second = readers.pids()
        for queue, weight, pid in ("a", 100, first), ("b", 400, second):
            live.mk(f"{disk}/{queue}", weight)
            live.reserv("tag", f"{disk}/{queue}", pid)
        near(readers.share(SECONDS / 2), 0.8, "1:4 by iocost", 0.05)

        # A process has one cgroup: the CPU's stock driver and the disk's exclude each other.
        live.mk("hot", 100)
        disk_weights.refused(live, "a tag of the CPU for who has one of the disk", "the disk's queue", "tag", "hot", first)
        live.reserv("tag", f"{disk}/q0", first)
        live.reserv("tag", "hot", first)
        disk_weights.refused(live, "and the other way round", "cpu/q0", "tag", f"{disk}/a", first)
        live.reserv("tag", "cpu/q0", first)
        live.reserv("tag", f"{disk}/a", first)
        check("-disk/q" in place(first, "io"), "taken from there it goes", place(first, "io"))
        readers.end()
    check(qos(number) == before and not disk_weights.left(TOP), "down: iocost is as it was, and no cgroup is left", qos(number))
    with open(f"{TOP}/cgroup.subtree_control", encoding="ascii") as file:
        check(file.read() == controllers, "and the controllers of the top", controllers.strip())
    os.unlink(f"{SCRATCH}/counters")
