# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs both halves in the same boot and makes the raw data. Judges nothing."""

import gzip
import os
import platform
import shutil
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from . import access_log, nginx, plan
from .clients import Clients
from .progress import Progress
from .reservations import Baseline, Reservations
from .servers import Site, free_ports, of_its_own, of_one_server, prepare_scratch

SCHEMA = 1
Half = Baseline | Reservations


class TooFewCpus(Exception):
    """The clients need a CPU that the servers do not use."""


def choose_cpus() -> tuple[int, set[int]]:
    """The servers' CPU (the last we may use) and the clients' CPUs (the others)."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise TooFewCpus("two CPUs are needed: one for the servers, one for the clients")
    return cpus[-1], set(cpus[:-1])


def now_us() -> int:
    return time.time_ns() // 1000


def busy_s(cpu: int) -> float:
    """Seconds that a CPU has worked since boot, for whomever."""
    for line in Path("/proc/stat").read_text().splitlines():
        name, *ticks = line.split()
        if name == f"cpu{cpu}":
            # user nice system idle iowait irq softirq steal; what follows is counted in user
            # already.
            return sum(int(t) for i, t in enumerate(ticks[:8]) if i not in (3, 4)) / os.sysconf("SC_CLK_TCK")
    return 0.0


class HalfRun:
    """One half: servers and clients up, one ramp, all down."""

    def __init__(self, half: Half, the_plan: plan.Plan, cgi: Path, out: Path, progress: Progress, *,
                 halves_before: int, halves: int, with_nginx: bool = False):
        self.half = half
        self.nginx = with_nginx
        self.plan = the_plan
        self.cgi = cgi
        self.out = out
        self.progress = progress
        self.halves_before = halves_before
        self.halves = halves
        self.server_cpu, self.client_cpus = choose_cpus()
        self.sites: list[Site] = []
        self.clients: list[Clients] = []
        self.work_s = the_plan.work_s

    def run(self) -> dict[str, Any]:
        with ExitStack() as stack:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reserv-demo-", dir="/run")))
            stack.callback(self._stop_all)
            notes = self.half.start()
            status = self.half.status() if isinstance(self.half, Reservations) else None
            for note in notes:
                self.progress.line(f"  {note}")
            self._start_servers(scratch)
            points = []
            previous = (0,) * plan.SITES
            for index, n in enumerate(self.plan.points):
                self._add_clients(previous, n)
                previous = plan.clients_at(n)
                points.append(self._point(n, index))
            crosscheck = self._stop_clients()
            for point in points:
                self._count(point)
            self._keep_logs()
            return {"notes": notes, "status": status, "points": points, "crosscheck": crosscheck}

    def _start_servers(self, scratch: Path) -> None:
        cgi = prepare_scratch(self.cgi, scratch)
        most = plan.clients_at(max(self.plan.points))
        if self.half.one_server:
            [port], slots = free_ports(1), sum(most) + plan.SPARE_SLOTS
            reserved = isinstance(self.half, Reservations)
            if self.nginx:
                self.sites = nginx.sites(plan.SITES, port, scratch, slots, reserved)
            else:
                self.sites = of_one_server(plan.SITES, port, scratch, cgi, slots, reserved)
            self.sites[0].server.start(self.server_cpu, [])
        else:
            self.sites = [of_its_own(site + 1, port, scratch, cgi, clients + plan.SPARE_SLOTS)
                          for site, (port, clients) in enumerate(zip(free_ports(plan.SITES), most))]
            for index, site in enumerate(self.sites):
                site.server.start(self.server_cpu, self.half.prefix(index))
        for site in self.sites:
            site.wait_ready()

    def _add_clients(self, previous: tuple[int, ...], n: int) -> None:
        reserved = isinstance(self.half, Reservations)
        for site, (before, after) in enumerate(zip(previous, plan.clients_at(n))):
            if after > before:
                spread = plan.round_s(site, n, self.work_s, reserved)
                self.clients.append(Clients(self.sites[site], after - before, self.client_cpus,
                                            min(spread, self.plan.settle_s_max / 2),
                                            self.half.clients_prefix()))

    def _settle_s(self, n: int) -> float:
        longest = max(plan.round_s(site, n, self.work_s, isinstance(self.half, Reservations))
                      for site in range(plan.SITES))
        return min(max(1.2 * longest, self.plan.settle_s_min), self.plan.settle_s_max)

    def _fraction(self, index: int) -> float:
        """How much of the whole run is done after this point, by the time that points are expected
        to take."""
        costs = [1.8 * self._settle_s(n) + self.plan.window_s for n in self.plan.points]
        return (self.halves_before * sum(costs) + sum(costs[:index + 1])) / (self.halves * sum(costs))

    def _wait(self, until: float, text: str) -> None:
        while (left := until - time.monotonic()) > 0:
            self.progress.moving(f"{self.half.name} n={text} {left:.0f} s")
            time.sleep(min(left, 1.0))
        for clients in self.clients:
            clients.check()

    def _point(self, n: int, index: int) -> dict[str, Any]:
        self._wait(time.monotonic() + self._settle_s(n), f"{n}: clients settle,")
        counters_before = self.half.counters()
        busy_before = busy_s(self.server_cpu)
        begin_us = now_us()
        end_us = begin_us + round(self.plan.batch_s * 1e6) * self.plan.batches
        self._wait(time.monotonic() + (end_us - now_us()) / 1e6, f"{n}: measuring,")
        busy = busy_s(self.server_cpu) - busy_before
        counters_after = self.half.counters()
        longest = max(access_log.longest_s(s.log.read(), begin_us, end_us) for s in self.sites)
        # Requests in flight at the end count by their part in the window: they end before anything
        # changes.
        self._wait(end_us / 1e6 - time.time() + time.monotonic() + 1.1 * longest + 0.1, f"{n}: last requests,")
        done = [access_log.completed(s.log.read(), begin_us, end_us) for s in self.sites]
        total = sum(done)
        if total:
            self.work_s = self.plan.window_s / total
        rates = " ".join(f"{d / self.plan.window_s:6.1f}" for d in done)
        self.progress.point(f"{self.half.name:>7}  n={n:<2}  requests/s of sites 1-4: {rates}   "
                            f"site 1: {100 * done[0] / max(total, 1):5.1f} %", self._fraction(index))
        return {"n": n, "clients": list(plan.clients_at(n)), "begin_us": begin_us, "batch_s": self.plan.batch_s,
                "completed": done, "busy_s": busy,
                "counters": {"before": counters_before, "after": counters_after} if counters_before else None}

    def _count(self, point: dict[str, Any]) -> None:
        """From the whole logs, when the last request of the half has ended."""
        requests = [site.log.requests for site in self.sites]
        begin_us, batch_us = point["begin_us"], round(self.plan.batch_s * 1e6)
        end_us = begin_us + batch_us * self.plan.batches
        point["served"] = [access_log.served(r, begin_us, batch_us, self.plan.batches) for r in requests]
        point["work_us"] = access_log.mean_work_us((r for site in requests for r in site), begin_us, end_us)

    def _stop_clients(self) -> list[dict[str, Any]]:
        """What wrk counted beside what the logs hold: they may differ by the requests in flight at
        the end."""
        for clients in self.clients:
            clients.check()
            clients.interrupt()
        rows = [{"clients": 0, "wrk": 0, "wrk_errors": 0, "log": 0} for _ in self.sites]
        for clients in self.clients:
            result = clients.result()
            row = rows[clients.site]
            row["clients"] += clients.count
            row["wrk"] += result["requests"]
            row["wrk_errors"] += result["not_2xx"] + result["socket_errors"] + result["timeouts"]
        self.clients = []
        for row, site in zip(rows, self.sites):
            # Less one: the request that showed that the server is ready.
            row["log"] = sum(r.good for r in site.log.read()) - 1
        return rows

    def _keep_logs(self) -> None:
        for site in self.sites:
            name = f"{self.half.name}-site{site.number}.log.gz"
            with site.log.path.open("rb") as log, gzip.open(self.out / name, "wb") as kept:
                shutil.copyfileobj(log, kept)

    def _stop_all(self) -> None:
        for clients in self.clients:
            clients.kill()
        try:
            for site in self.sites:
                site.server.stop()
        finally:
            self.half.stop()


def environment() -> dict[str, Any]:
    model = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    # Less the folders of one machine: the guest's init, and what follows ` -- `.
    words = Path("/proc/cmdline").read_text().partition(" -- ")[0].split()
    cmdline = " ".join(w for w in words if not w.startswith("init="))
    return {"kernel": platform.release(), "kernel_version": platform.version(), "cpu_model": model,
            "cpus": os.cpu_count(), "cmdline": cmdline, "python": platform.python_version(),
            "load_average": os.getloadavg()}
