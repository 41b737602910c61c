# SPDX-License-Identifier: MIT OR Apache-2.0
"""The disk-bound form: the four companies read at random places of one disk with an arm, which is a
modelled one (`reserv disk attach --model spinning` over an empty file): it takes as long as such a
disk, and holds nothing. What a company had is what its process has read. While the disk's server
waits for a CPU the disk is idle, so that time is measured too. Measures; judges nothing."""

import mmap
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Callable

from . import plan
from .plan import RESERVED

DISK = "demodisk"
SIZE, BLOCK = 4 << 30, 16384
#: Readers that site 1 keeps all the time, each with one request at a time.
SITE1_READERS = 4

# Counts what it has read in a place of its own for each reader; more readers come by a line with
# their number.
READER = """
import mmap, os, random, sys, threading
device, counts, size, block, site = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
fd, had = os.open(device, os.O_RDONLY | os.O_DIRECT), 0
with open(counts, "r+b") as file:
    seen = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")
def work(number):
    dice, memory = random.Random(1000 * site + number), mmap.mmap(-1, block)
    while True:
        seen[number] += os.preadv(fd, [memory], dice.randrange(size // block) * block)
for line in sys.stdin:
    for number in range(had, int(line)):
        threading.Thread(target=work, args=(number,), daemon=True).start()
    had = max(had, int(line))
"""


class DiskError(Exception):
    """A reader ended."""


def waited_s(file: Path) -> float:
    """How long the processes of the server of this file have waited for a CPU."""
    ns = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if b"reserv-blockd" in words[0] and str(file).encode() in words:
                ns += int((process / "schedstat").read_text().split()[1])
        except OSError:
            pass  # It has ended, or this kernel does not count.
    return ns / 1e9


class Reader:
    """A company's program: `site` from 0."""

    def __init__(self, site: int, scratch: Path, prefix: list[str]):
        counts = scratch / f"site{site + 1}"
        counts.write_bytes(bytes(mmap.PAGESIZE))
        with counts.open("r+b") as file:
            self.counts = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")
        command = [*prefix, sys.executable, "-c", READER, f"/dev/reserv/{DISK}", str(counts), str(SIZE), str(BLOCK), str(site)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)

    def grow(self, readers: int) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{readers}\n")
        self.process.stdin.flush()

    def read(self) -> int:
        if self.process.poll() is not None:
            raise DiskError(f"a reader of the disk ended with {self.process.returncode}")
        return sum(self.counts)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def readers_at(n: int) -> tuple[int, ...]:
    return (SITE1_READERS,) + (n,) * (plan.SITES - 1)


def theory_site1(n: int) -> float:
    """Of one queue, first come, first served."""
    return SITE1_READERS / sum(readers_at(n))


def half_run(half: str, reserv: Callable[..., Any], reserv_program: str, points: list[int], settle_s: float, window_s: float,
             said: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """One ramp of the numbers of readers of sites 2 to 4. `reserv` calls the product."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reserv-disk-", dir="/run")))
        with (scratch / "disk").open("wb") as file:
            file.truncate(SIZE)
        # The CPU is not what is short here; its stock driver is there at once.
        reserv("up", "--driver", "stock")
        stack.callback(reserv, "down")
        reserv("disk", "attach", f"{DISK}={scratch}/disk", "--model", "spinning")
        if half == RESERVED:
            for site in range(plan.SITES):
                reserv("mk", f"{DISK}/q{site + 1}", "--share", str(plan.SITE_WEIGHT))
            reserv("set", f"{DISK}/q0", f"share={plan.Q0_WEIGHT}")
        readers: list[Reader] = []
        stack.callback(lambda: [reader.stop() for reader in readers])
        for site in range(plan.SITES):
            prefix = [reserv_program, "run", "--disk", f"{DISK}/q{site + 1}", "--"] if half == RESERVED else []
            readers.append(Reader(site, scratch, prefix))
        measured = []
        for n in points:
            for reader, wanted in zip(readers, readers_at(n)):
                reader.grow(wanted)
            # All of them read before anything is counted.
            begun = [reader.read() for reader in readers]
            end = time.monotonic() + 60
            while any(reader.read() == was for reader, was, wanted in zip(readers, begun, readers_at(n)) if wanted):
                if time.monotonic() > end:
                    raise DiskError("a reader of the disk does not begin")
                time.sleep(0.05)
            time.sleep(settle_s)
            begin = time.monotonic()
            before, waited = [reader.read() for reader in readers], waited_s(scratch / "disk")
            time.sleep(window_s)
            took = time.monotonic() - begin
            got = [reader.read() - was for reader, was in zip(readers, before)]
            measured.append({"n": n, "readers": list(readers_at(n)), "seconds": took, "bytes": got, "server_waited_s": waited_s(scratch / "disk") - waited})
            said(f"{half}, {n} readers each of sites 2-4: " + ", ".join(f"{b / BLOCK / took:.1f}" for b in got) + " requests/s")
        return {"half": half, "points": measured}


def rate(point: dict[str, Any], site: int) -> float:
    """Requests a second."""
    return float(point["bytes"][site] / BLOCK / point["seconds"])


def waited(point: dict[str, Any]) -> float:
    """The part of the time in which the server waited for a CPU; none where that was not measured,
    as in runs of before."""
    return min(float(point.get("server_waited_s", 0.0) / point["seconds"]), 0.99)


def steady_rate(point: dict[str, Any], site: int) -> float:
    """Requests a second, of the time in which the server did not wait for a CPU."""
    return rate(point, site) / (1 - waited(point))
