# SPDX-License-Identifier: MIT OR Apache-2.0
"""What an experiment does to a machine: loads, the product as anybody would use it, and the
baseline (the kernel's own scheduler, before Reserv is up, in the same boot). Everything that is
started is ended, by its own process."""

import json
import mmap
import os
import shutil
import signal
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
MOUNT = Path(os.environ.get("RESERV_MOUNT", "/reserv"))
CGROUPS = Path("/sys/fs/cgroup")
CALL_S_MAX = 300


class NotRun(Exception):
    """It cannot be run here; with the reason."""


class MachineError(Exception):
    """Something that must work did not."""


class Machine:
    """`with Machine(load, reserv) as m:`"""

    def __init__(self, load: Path, reserv: Path):
        self.reserv_program = reserv
        self.children: list[subprocess.Popen[str]] = []
        self.groups: list[Path] = []
        self.is_up = False
        self.path = Path(f"/dev/shm/reserv-experiment-{os.getpid()}")
        self.path.write_bytes(bytes(4096))
        self.load = self.source = load
        # In the guest it runs from memory: what the file server makes an exec wait is nobody's
        # cost.
        self.copies: list[Path] = []
        if "RESERV_GUEST" in os.environ:
            self.load = self.kept(load)
        self.file = self.path.open("r+b")
        self.words = mmap.mmap(self.file.fileno(), 4096)

    def kept(self, program: Path) -> Path:
        """A copy in memory."""
        self.copies.append(Path(f"{self.path}.{program.name}"))
        return Path(shutil.copy2(program, self.copies[-1]))

    def use(self, name: str) -> None:
        """From here on the load is another program of the experiments."""
        program = self.source.parent / name
        if not program.exists():
            raise NotRun(f"{name} is not built: it wants libreserv; run `make build`")
        self.load = self.kept(program) if "RESERV_GUEST" in os.environ else program

    def __enter__(self) -> "Machine":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self.down()
        for group in reversed(self.groups):
            try:
                group.rmdir()
            except OSError:
                pass
        self.words.close()
        self.file.close()
        self.path.unlink()
        for copy in self.copies:
            copy.unlink(missing_ok=True)

    # The product.

    def reserv(self, *words: object) -> str:
        done = subprocess.run([str(self.reserv_program), *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=CALL_S_MAX, check=False)
        if done.returncode:
            raise MachineError(f"reserv {' '.join(map(str, words))}: {done.returncode}: {(done.stderr or done.stdout).strip()[-500:]}")
        return done.stdout

    def up(self) -> None:
        """q0, where this harness is, has a large share: it sleeps while it measures."""
        self.reserv("up", "--driver", "full")
        self.is_up = True
        self.reserv("set", "q0", "share=1000")

    def down(self) -> None:
        if self.is_up:
            self.is_up = False
            self.reserv("down")

    def service_ns(self, path: str) -> int:
        for line in (MOUNT / "cpu" / path / "stat").read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == "service_ns":
                return int(value)
        raise MachineError(f"{path} has no counter")

    def trace(self, seconds: float) -> tuple["subprocess.Popen[str]", Path]:
        """A trace that runs beside what is measured; `traced` reads it."""
        path = Path(f"{self.path}.trace")
        child = subprocess.Popen([str(self.reserv_program), "trace", "-d", f"{seconds:.2f}s", "--json", "-o", str(path)],
                                 stdin=subprocess.DEVNULL, text=True)
        return child, path

    def traced(self, trace: tuple["subprocess.Popen[str]", Path]) -> dict[str, Any]:
        child, path = trace
        status = child.wait(timeout=CALL_S_MAX)
        if status not in (0, 1) or not path.exists():
            raise MachineError(f"reserv trace ended with {status}")
        report = json.loads(path.read_text())
        path.unlink()
        for node in report["nodes"]:
            for key in ("series_ns", "lag_ns", "intervals"):
                node.pop(key, None)
        return report

    # Loads.

    def command(self, *words: object, queue: str | None = None, container: str | None = None) -> list[str]:
        where = ["--cpu", queue] if queue else ["--in", container] if container else []
        prefix = [str(self.reserv_program), "run", *where, "--"] if where else []
        return [*prefix, str(self.load), *map(str, words)]

    def start(self, *words: object, queue: str | None = None, group: Path | None = None,
              read: bool = False, container: str | None = None) -> "subprocess.Popen[str]":
        child = subprocess.Popen(self.command(*words, queue=queue, container=container), stdin=subprocess.DEVNULL, text=True,
                                 stdout=subprocess.PIPE if read else subprocess.DEVNULL)
        if group:
            (group / "cgroup.procs").write_text(str(child.pid))
        self.children.append(child)
        return child

    def inf(self, slot: int, queue: str | None = None, group: Path | None = None) -> "subprocess.Popen[str]":
        """A loop that counts in a slot."""
        self.words[slot * 8:slot * 8 + 8] = bytes(8)
        return self.start("inf", self.path, slot, queue=queue, group=group)

    def count(self, slot: int) -> int:
        return struct.unpack_from("Q", self.words, slot * 8)[0]

    def wait_for_counts(self, slots: list[int], seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while any(self.count(slot) == 0 for slot in slots):
            if time.monotonic() > end:
                raise MachineError("a load did not begin")
            time.sleep(0.02)

    def run(self, *words: object, queue: str | None = None) -> str:
        done = subprocess.run(self.command(*words, queue=queue), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=CALL_S_MAX, check=False)
        if done.returncode:
            raise MachineError(f"load {' '.join(map(str, words))}: {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def end(self) -> None:
        for child in self.children:
            if child.poll() is None:
                child.send_signal(signal.SIGKILL)
        for child in self.children:
            child.wait()
        self.children = []

    def groups_beside(self, count: int) -> list[Path]:
        """The baseline of queues beside each other: cgroups of equal weights."""
        return [self.child_group(CGROUPS, f"experiment-{i}") for i in range(count)]

    def child_group(self, parent: Path, name: str) -> Path:
        try:
            (parent / "cgroup.subtree_control").write_text("+cpu")
        except OSError as error:
            raise NotRun(f"cgroup v2 with a cpu controller is missing: {error}") from error
        path = parent / name
        if not path.exists():
            path.mkdir()
            self.groups.append(path)
        return path

    def group(self, depth: int) -> Path:
        """The baseline's tree: a chain of cgroups with the CPU controller."""
        path = CGROUPS
        for level in range(depth):
            path = self.child_group(path, f"experiment-{level}")
        return path
