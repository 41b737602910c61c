# SPDX-License-Identifier: MIT OR Apache-2.0
"""Programs of several queues that want more of a disk than there is, and what part each has, by the
server's count."""
import subprocess
import time

import live
from live import RESERV, check, compiled


ENOUGH = 500  # requests


class Ratios:
    """Of the disk of this name."""

    def __init__(self, disk, device=None):
        self.disk, self.device, self.load, self.program = disk, device or f"/dev/reserv/{disk}", [], compiled("diskload")

    def count(self, queue, what="service_bytes"):
        with open(f"{live.MOUNT}/{self.disk}/{queue}/backlog", encoding="ascii") as file:
            return int(next(line.split()[1] for line in file if line.startswith(f"{what} ")))

    def begin(self, queues, sizes="4096", threads=1, how="read", path=None, first=10):
        """One program (diskload) for each of them; returns when each has been served so many
        requests. `path`: the folder of the files that are written."""
        before = {queue: self.count(queue, "served") for queue in queues}
        for queue in queues:
            at = f"{path}/{queue}" if path else self.device
            command = [RESERV, "run", "--disk", f"{self.disk}/{queue}", "--", self.program, at, sizes, str(threads), "0", how]
            self.load.append(subprocess.Popen(command))
        end = time.monotonic() + 60
        while any(self.count(queue, "served") - then < first for queue, then in before.items()):
            if time.monotonic() > end or any(child.poll() is not None for child in self.load):
                raise RuntimeError(f"{queues} do not ask for anything")
            time.sleep(0.05)

    def end(self):
        for child in self.load:
            child.kill()
        for child in self.load:
            child.wait()
        self.load.clear()

    def idle(self, live, queues):
        """The programs end, and what they asked for is done."""
        self.end()
        live.wait("nothing waits any more", lambda: not any(self.count(q, "queued") + self.count(q, "running") for q in queues))

    def shares(self, queues, seconds):
        """Of each, and requests a second of all."""
        before, requests, began = [self.count(q) for q in queues], [self.count(q, "served") for q in queues], time.monotonic()
        time.sleep(seconds)
        # A disk of a busy machine may stand still: a share of few requests says nothing.
        def enough():
            return sum(self.count(q, "served") for q in queues) >= sum(requests) + ENOUGH

        while not enough() and time.monotonic() < began + 30:
            time.sleep(0.5)
        got, rate = [self.count(q) - then for q, then in zip(queues, before)], sum(self.count(q, "served") - then for q, then in zip(queues, requests))
        return [bytes_ / (sum(got) or 1) for bytes_ in got], rate / (time.monotonic() - began)

    def near(self, weights, seconds, text, points=1):
        """`weights`: of each queue. Checks, and answers the requests a second."""
        got, rate = self.shares(list(weights), seconds)
        wanted = [weight / sum(weights.values()) for weight in weights.values()]
        off = max(abs(g - w) for g, w in zip(got, wanted)) * 100
        check(off <= points, f"{text}, {':'.join(map(str, weights.values()))}: within {points} point{'s' * (points != 1)}",
              f"{' '.join(f'{g:.4f}' for g in got)}, {off:.2f} off, {rate:.0f} requests a second")
        return rate
