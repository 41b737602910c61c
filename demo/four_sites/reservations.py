# SPDX-License-Identifier: MIT OR Apache-2.0
"""The product, used as anybody would use it: up, mk, set, run, stat, down. And the baseline:
nothing of it."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from . import plan

ROOT = Path(__file__).resolve().parent.parent.parent
AUTOGROUP = Path("/proc/sys/kernel/sched_autogroup_enabled")
UP_S_MAX = 120.0
#: Exit status of `reserv` when nothing runs that it could ask.
NOT_RUNNING = 3


class ReservError(Exception):
    """`reserv` refused; with its words."""


def find_reserv() -> Path | None:
    """`RESERV` names it; else what `make build` left in this tree; else the installed one."""
    if named := os.environ.get("RESERV"):
        return Path(named)
    built = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "reserv"
    if built.exists():
        return built
    installed = shutil.which("reserv")
    return Path(installed) if installed else None


def full_runs_here() -> bool:
    """Whether this kernel has what the full driver needs, in `reserv doctor`'s judgement."""
    reserv = find_reserv()
    if reserv is None:
        return False
    done = subprocess.run([str(reserv), "doctor", "--json"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=UP_S_MAX, check=False)
    drivers = json.loads(done.stdout).get("drivers", []) if done.stdout.startswith("{") else []
    return any(d["name"] == "full" and d["usable"] for d in drivers)


def driver_of(status: dict[str, Any]) -> tuple[str, str]:
    """Name and mechanism of the CPU's driver, from `reserv status --json`."""
    cpu = status["resources"]["cpu"]
    return cpu["driver"], cpu["mechanism"]


class Baseline:
    """The kernel's own scheduler: no reservations, no cgroup weights, autogroup off."""

    name = "without"

    def __init__(self, one_server: bool) -> None:
        self.one_server = one_server
        self._autogroup: str | None = None

    def start(self) -> list[str]:
        """Returns what was done, in words."""
        notes = ["no cgroup weights"]
        if not AUTOGROUP.exists():
            return [*notes, "this kernel has no autogroup"]
        before = AUTOGROUP.read_text().strip()
        if before == "0":
            return [*notes, "autogroup is off"]
        try:
            AUTOGROUP.write_text("0")
        except OSError as error:
            return [*notes, f"autogroup could not be turned off ({error.strerror})"]
        self._autogroup = before
        return [*notes, "autogroup off"]

    def prefix(self, site: int) -> list[str]:
        del site
        return []

    def clients_prefix(self) -> tuple[str, ...]:
        return ()

    def counters(self) -> dict[str, Any] | None:
        return None

    def stop(self) -> None:
        if self._autogroup is not None:
            AUTOGROUP.write_text(self._autogroup)
            self._autogroup = None


class Reservations:
    """A queue q1..q4 for the server of each site, or a container site1..site4 for each site of one
    server; q0 for all the rest."""

    name = "with"

    def __init__(self, driver: str, cpus: set[int], reserv: Path, one_server: bool):
        self.reserv = reserv
        self.one_server = one_server
        self.driver = driver
        #: Where the daemon runs: off the servers' CPU.
        self.cpus = cpus
        self._up = False

    def _call(self, *words: str, timeout: float = UP_S_MAX) -> str:
        command = [str(self.reserv), *words]
        # The daemon inherits our output; a file cannot hold us up as a pipe would that it keeps
        # open.
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
                              check=False, preexec_fn=lambda: os.sched_setaffinity(0, self.cpus))
        if done.returncode != 0:
            raise ReservError(f"`reserv {' '.join(words)}` exited with {done.returncode}: "
                              f"{(done.stderr or done.stdout).strip()[-800:]}")
        return done.stdout

    #: For the link-bound form, which starts and stops the product by itself.
    call = _call

    def _status(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(self.reserv), "status"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=UP_S_MAX, check=False)

    def check(self) -> None:
        """Before anything is measured: whether `start` has a chance."""
        status = self._status()
        if status.returncode not in (0, NOT_RUNNING):
            raise ReservError(f"`reserv status` exited with {status.returncode}: {status.stderr.strip()[-800:]}")
        if status.returncode == 0:
            raise ReservError("Reserv runs here already; the demo wants a tree of its own: `reserv down` first "
                              "(`reserv save` keeps your tree)")

    def start(self) -> list[str]:
        self.check()
        self._call("up", "--driver", self.driver)
        self._up = True
        names = plan.reserved_names(self.one_server)
        self._call("mk", *(["--container"] if self.one_server else []), *names, "--share", str(plan.SITE_WEIGHT))
        self._call("mk", plan.CLIENTS_QUEUE, "--share", str(plan.CLIENTS_WEIGHT))
        self._call("set", "q0", f"share={plan.Q0_WEIGHT}")
        weights = ", ".join(f"{name} {plan.SITE_WEIGHT}" for name in names)
        return [f"weights in /reserv/cpu: {weights}, q0 {plan.Q0_WEIGHT}"]

    def status(self) -> dict[str, Any]:
        return json.loads(self._call("status", "--json"))

    def prefix(self, site: int) -> list[str]:
        return [str(self.reserv), "run", "--cpu", f"q{site + 1}", "--"]

    def clients_prefix(self) -> tuple[str, ...]:
        return (str(self.reserv), "run", "--cpu", plan.CLIENTS_QUEUE, "--")

    def counters(self) -> dict[str, Any]:
        """What the scheduler itself has counted for each queue: its `stat` file as it reads. Kept
        with the raw data."""
        mount = Path(os.environ.get("RESERV_MOUNT", "/reserv"))
        queues = ["q0", *plan.reserved_names(self.one_server)]
        return {q: dict(line.split(None, 1) for line in (mount / "cpu" / q / "stat").read_text().splitlines())
                for q in queues}

    def stop(self) -> None:
        if self._up:
            self._up = False
            self._call("down")
