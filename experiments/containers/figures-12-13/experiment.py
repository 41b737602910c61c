# SPDX-License-Identifier: MIT OR Apache-2.0
"""Pages of an event server beside programs that it starts: throughput of the pages, and the CPU
time of all programs together."""

import os
import signal
import subprocess
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from harness.machine import MOUNT, MachineError, NotRun
from harness.plot import Line, Plot
from harness.verdict import at_least, at_most
from four_sites.reservations import Baseline
from four_sites.servers import free_ports

UNMODIFIED, ONE_QUEUE = "unmodified", "one queue"
#: Of the CPU, for all programs together.
LIMITS = {"limit 30 %": 0.30, "limit 10 %": 0.10}
CURVES = (UNMODIFIED, ONE_QUEUE, *LIMITS)
SENT = 8  # the counter's slot
#: Of each process of clients.
CONNECTIONS = 24


def start(m, words, cpu, container=None, read=False):
    child = subprocess.Popen(
        m.command(*words, container=container),
        stdin=subprocess.DEVNULL,
        text=True,
        stdout=subprocess.PIPE if read else subprocess.DEVNULL,
        process_group=0,
        preexec_fn=lambda: os.sched_setaffinity(0, {cpu}),
    )
    m.children.append(child)
    return child


def end(m):
    """Clients before who answers them, and the server with the programs that it started: else
    these go on beside the next curve."""
    for child in reversed(m.children):
        # Who has ended by himself has no group left.
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    m.end()


def served_by(m, curve, stack, up):
    """Where the server is, and its programs' parent."""
    if not up:
        baseline = Baseline(True)
        baseline.start()
        stack.callback(baseline.stop)
        return None, []
    m.up()
    stack.callback(m.down)
    if curve == ONE_QUEUE:
        m.reserv("mk", "--container", "web", "--share", 100)
        return "web", []
    m.reserv("mk", "--container", "--sched", "web", "--share", 100)
    m.reserv("mk", "--container", "web/pages", "--share", 100)
    m.reserv("mk", "--container", "--sched", "web/cgi", "--share", 100)
    m.reserv("set", "cpu/web/cgi", f"cap={LIMITS[curve]:.0%}")
    return "web/pages", [MOUNT / "container" / "web" / "cgi"]


def look(m, server, curve):
    """The instant, pages, the server's CPU time, and its programs' where there is a counter."""
    ran = int(Path(f"/proc/{server.pid}/schedstat").read_text().split()[0])
    return [time.monotonic(), m.count(SENT), ran, m.service_ns("web/cgi") if curve in LIMITS else 0]


def of_curve(m, form, curve):
    *client_cpus, cpu = sorted(os.sched_getaffinity(0))
    if not client_cpus:
        raise NotRun("two CPUs are needed: one for the server, one for its clients")
    with ExitStack() as stack:
        stack.callback(os.sched_setaffinity, 0, {*client_cpus, cpu})
        os.sched_setaffinity(0, set(client_cpus))
        container, parent = served_by(m, curve, stack, curve != UNMODIFIED)
        stack.callback(end, m)
        [port] = free_ports(1)
        page = Path(f"{m.path}.page")
        page.write_bytes(bytes(1024))
        stack.callback(page.unlink)
        words = ["serve", port, page, m.path, SENT, form["cgi_ms"], *parent]
        server = start(m, words, cpu, container, read=True)
        server.stdout.readline()
        for at in client_cpus:
            start(m, ["get", port, CONNECTIONS, "/"], at)
        points, had = [], 0
        for n in form["points"]:
            for _ in range(had, n):
                start(m, ["get", port, 1, "/cgi"], client_cpus[0])
            had = n
            time.sleep(form["settle_s"])
            looks = [look(m, server, curve)]
            for second in range(form["windows"]):
                time.sleep(max(looks[0][0] + second + 1 - time.monotonic(), 0))
                looks.append(look(m, server, curve))
            ended = [child.args for child in m.children if child.poll() is not None]
            if ended:
                raise MachineError(f"{curve}, {n} programs: ended: {ended}")
            points.append({"n": n, "looks": looks})
        return points


def measure(m, form):
    m.use("webserver")
    return {curve: of_curve(m, form, curve) for curve in CURVES}


def rates(p):
    """Pages a second, and parts of the CPU: the server's, all programs'."""
    first, last = p["looks"][0], p["looks"][-1]
    took = last[0] - first[0]
    server = (last[2] - first[2]) / took / 1e9
    programs = (last[3] - first[3]) / took / 1e9 if last[3] else (1 - server if p["n"] else 0.0)
    return (last[1] - first[1]) / took, server, programs


def windows(p):
    return [(b[3] - a[3]) / (b[0] - a[0]) / 1e9 for a, b in zip(p["looks"], p["looks"][1:])]


def alone(points):
    return next(rates(p)[0] for p in points if p["n"] == 0)


def judge(data, band):
    most, checks = alone(data[UNMODIFIED]), []
    for curve, limit in LIMITS.items():
        beside = [p for p in data[curve] if p["n"]]
        far = max(beside, key=lambda p: abs(rates(p)[2] - limit))
        checks.append(
            at_most(
                f"{curve}: CPU of all programs off it, at the most (n = {far['n']})",
                abs(rates(far)[2] - limit),
                band["limit"],
                ".4f",
            )
        )
        checks.append(
            at_most(
                f"{curve}: in a window of a second, at the most",
                max(max(windows(p)) for p in beside) - limit,
                band["window"],
                ".4f",
            )
        )
        pages = [rates(p)[0] for p in beside]
        checks.append(
            at_least(
                f"{curve}: pages, of those without programs",
                min(pages) / alone(data[curve]),
                band["pages"][curve],
            )
        )
        checks.append(
            at_least(
                f"{curve}: pages without programs, of the unmodified system's",
                alone(data[curve]) / most,
                band["alone"],
            )
        )
        checks.append(
            at_most(
                f"{curve}: pages, spread over 1 to {beside[-1]['n']} programs",
                (max(pages) - min(pages)) * len(pages) / sum(pages),
                band["spread"],
            )
        )
    off = {
        p["n"]: abs(rates(p)[0] / alone(data[ONE_QUEUE]) - 1 / (p["n"] + 1))
        for p in data[ONE_QUEUE]
    }
    worst = max(off, key=lambda n: off[n])
    checks.append(
        at_most(
            f"one queue: pages off 1/(n+1) of those without programs, at the most (n = {worst})",
            off[worst],
            band["follows"],
        )
    )
    behind = max(
        rates(q)[0] / alone(data[ONE_QUEUE]) - rates(p)[0] / most
        for p, q in zip(data[UNMODIFIED], data[ONE_QUEUE])
    )
    return [
        *checks,
        at_most("unmodified: pages behind one queue's, at the most", behind, band["behind"]),
    ]


def rows(data):
    out = []
    for curve, points in data.items():
        for p in points:
            pages, server, programs = rates(p)
            out.append(
                [
                    curve.replace(" ", "_"),
                    p["n"],
                    round(pages, 1),
                    round(pages / alone(data[UNMODIFIED]), 4),
                    round(100 * server, 2),
                    round(100 * programs, 2),
                ]
            )
    return [
        "system",
        "programs",
        "pages_per_s",
        "of_most",
        "server_percent",
        "programs_percent",
    ], out


def plot(data):
    most = alone(data[UNMODIFIED])
    return Plot(
        "Pages of a server beside programs that it started",
        "programs at a time",
        "of the pages of the unmodified system without programs",
        [
            *(
                Line(curve, [(p["n"], rates(p)[0] / most) for p in points])
                for curve, points in data.items()
            ),
            Line("1/(n+1)", [(p["n"], 1 / (p["n"] + 1)) for p in data[UNMODIFIED]], theory=True),
        ],
    )
