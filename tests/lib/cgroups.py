# SPDX-License-Identifier: MIT OR Apache-2.0
"""Cgroups of the guest (v2), and busy processes in them. What a process received is read from the
kernel's own books (schedstat), which are kept under every scheduler."""
import os
import subprocess
import time

from live import WORKLOAD, build_workload

ROOT = "/sys/fs/cgroup"


def put(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(str(text))


def get(path):
    with open(path, encoding="ascii") as file:
        return file.read()


class Cgroups:
    """Those that a test makes; all are removed at the end."""

    def __init__(self):
        self.made, self.hogs = [], []

    def __enter__(self):
        build_workload()
        # Sessions are groups of their own under the kernel's scheduler: not what is compared here.
        if os.path.exists("/proc/sys/kernel/sched_autogroup_enabled"):
            put("/proc/sys/kernel/sched_autogroup_enabled", 0)
        put(f"{ROOT}/cgroup.subtree_control", "+cpu")
        return self

    def __exit__(self, *exc):
        self.end(*self.hogs)
        while self.made:
            self.remove(self.made[-1])

    def make(self, path, inner=False, **settings):
        """`settings`: weight=300, idle=1, max='20000 100000'. `inner`: its children have the
        controller too."""
        os.mkdir(f"{ROOT}/{path}")
        self.made.append(path)
        for name, value in settings.items():
            self.set(path, name, value)
        if inner:
            put(f"{ROOT}/{path}/cgroup.subtree_control", "+cpu")

    def remove(self, path):
        for _ in range(500):  # the dead leave a moment later
            try:
                os.rmdir(f"{ROOT}/{path}")
                break
            except OSError:
                time.sleep(0.02)
        else:
            os.rmdir(f"{ROOT}/{path}")
        self.made.remove(path)

    @staticmethod
    def set(path, name, value):
        put(f"{ROOT}/{path}/cpu.{name}", value)

    @staticmethod
    def move(hog, path):
        put(f"{ROOT}/{path}/cgroup.procs" if path else f"{ROOT}/cgroup.procs", hog.pid)

    def hog(self, path):
        """A busy process in a cgroup ('': the root)."""
        return self.start(path, "spin", 1)

    def start(self, path, *args):
        hog = subprocess.Popen([WORKLOAD, *map(str, args)])
        self.hogs.append(hog)
        self.move(hog, path)
        return hog

    def end(self, *hogs):
        for hog in list(hogs):
            hog.kill()
            hog.wait()
            self.hogs.remove(hog)


def ran(hog):
    """Nanoseconds that its first thread ran."""
    return int(get(f"/proc/{hog.pid}/schedstat").split()[0])


def shares(hogs, seconds):
    """What each received of what all of them did, and how much of the time all did together."""
    start, before = time.monotonic(), [ran(hog) for hog in hogs]
    time.sleep(seconds)
    got, took = [ran(hog) - b for hog, b in zip(hogs, before)], time.monotonic() - start
    return [g / sum(got) for g in got], sum(got) / took / 1e9


def text(values):
    return " ".join(f"{v:.4f}" for v in values)
