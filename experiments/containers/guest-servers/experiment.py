# SPDX-License-Identifier: MIT OR Apache-2.0
"""Three guest servers, an Apache each, with fixed shares of the CPU, and inside of each two sites,
while what is asked of them changes."""

import copy
import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from harness.machine import NotRun
from harness.plot import Line, Plot
from harness.verdict import at_least, at_most
from four_sites import plan, servers
from four_sites.clients import Clients
from four_sites.experiment import choose_cpus

#: Of the CPU, in percent: weight and cap of each guest.
SHARES = (50, 30, 20)
#: Of its two sites.
SITES = {"a": 3, "b": 1}
#: Who has how many clients: of site a, programs; of site b, programs and pages.
PHASES = (
    ("all overloaded", [(6, 3, 3)] * 3),
    ("guest 3 popular", [(6, 3, 3), (6, 3, 3), (18, 9, 9)]),
    ("guest 2 mostly pages", [(6, 3, 3), (2, 1, 12), (18, 9, 9)]),
    ("guest 1 idle", [(0, 0, 0), (2, 1, 12), (18, 9, 9)]),
)
BUSY = 1  # clients without whom a guest is idle
PAGE = b"p" * 1024


class Guest:
    """One server, and its clients by kind."""

    def __init__(self, m, number, stack, cpu):
        self.m, self.name = m, f"guest{number}"
        m.reserv("mk", "--container", "--sched", self.name, "--share", SHARES[number - 1])
        m.reserv("set", f"cpu/{self.name}", f"cap={SHARES[number - 1]}%")
        # Where Apache is started: it accepts connections there, and reads what is asked.
        m.reserv("mk", "--container", f"{self.name}/front", "--share", 4)
        for site, weight in SITES.items():
            m.reserv("mk", "--container", f"{self.name}/{site}", "--share", weight)
        scratch = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="reserv-guest-", dir="/run"))
        )
        cgi = servers.prepare_scratch(m.source.parent / "numbers", scratch)
        slots = max(sum(counts[number - 1]) for _, counts in PHASES) + plan.SPARE_SLOTS
        share = dict(zip(("site1", "site2"), (f"{self.name}/{site}" for site in SITES))).__getitem__
        [port] = servers.free_ports(1)
        sites = servers.of_one_server(2, port, scratch, cgi, slots, True, share)
        server = sites[0].server
        (server.root / "page").write_bytes(PAGE)
        stack.callback(server.stop)
        server.start(cpu, [str(m.reserv_program), "run", "--in", f"{self.name}/front", "--"])
        for site in sites:
            site.wait_ready()
        pages = copy.copy(sites[1])
        pages.page, pages.length = "/page", len(PAGE)
        self.kinds = [sites[0], sites[1], pages]
        self.clients = [[], [], []]

    def ask(self, counts, cpus, wrk):
        """So many clients of each kind from now on."""
        for of, running, wanted in zip(self.kinds, self.clients, counts):
            if sum(c.count for c in running) > wanted:
                for c in running:
                    c.interrupt()
                wrk += [c.result() for c in running]
                running.clear()
            more = wanted - sum(c.count for c in running)
            if more > 0:
                running.append(
                    Clients(
                        of,
                        more,
                        cpus,
                        0.5,
                        (str(self.m.reserv_program), "run", "--cpu", "clients", "--"),
                    )
                )

    def counted(self):
        return [
            self.m.service_ns(self.name),
            *(self.m.service_ns(f"{self.name}/{site}") for site in SITES),
        ]


def measure(m, form):
    if servers.module() is None:
        raise NotRun("mod_reserv is not built: apt-get install apache2-dev, then `make build`")
    with ExitStack() as stack:
        cpu, client_cpus = choose_cpus()
        stack.callback(os.sched_setaffinity, 0, os.sched_getaffinity(0))
        os.sched_setaffinity(0, client_cpus)
        m.up()
        stack.callback(m.down)
        m.reserv("mk", "clients", "--share", 100)
        guests = [Guest(m, number, stack, cpu) for number in range(1, len(SHARES) + 1)]
        stack.callback(
            lambda: [c.kill() for guest in guests for running in guest.clients for c in running]
        )
        phases, wrk = [], []
        for name, counts in PHASES:
            for guest, wanted in zip(guests, counts):
                guest.ask(wanted, client_cpus, wrk)
            time.sleep(form["settle_s"])
            begin, before = time.monotonic(), [guest.counted() for guest in guests]
            time.sleep(form["window_s"])
            took, after = time.monotonic() - begin, [guest.counted() for guest in guests]
            phases.append(
                {
                    "name": name,
                    "clients": counts,
                    "seconds": took,
                    "cpu_ns": [
                        [now - was for now, was in zip(a, b)] for a, b in zip(after, before)
                    ],
                }
            )
            for guest in guests:
                for running in guest.clients:
                    for c in running:
                        c.check()
        for guest in guests:
            guest.ask((0, 0, 0), client_cpus, wrk)
        return {"phases": phases, "wrk": wrk}


def parts(phase):
    """Of the CPU, each guest's; of what a guest's sites have, the first one's."""
    whole = [ns[0] / phase["seconds"] / 1e9 for ns in phase["cpu_ns"]]
    return whole, [ns[1] / (ns[1] + ns[2]) if ns[1] + ns[2] else 0.0 for ns in phase["cpu_ns"]]


def judge(data, band):
    checks, inner = [], SITES["a"] / sum(SITES.values())
    for phase in data["phases"]:
        whole, inside = parts(phase)
        busy = [k for k, counts in enumerate(phase["clients"]) if sum(counts) >= BUSY]
        far = max(busy, key=lambda k: abs(whole[k] - SHARES[k] / 100))
        checks.append(
            at_most(
                f"{phase['name']}: a guest off its {SHARES[far]} % of the CPU, "
                f"at the most (guest {far + 1})",
                abs(whole[far] - SHARES[far] / 100),
                band["guest"],
                ".4f",
            )
        )
        # Who has fewer clients of a kind than turn it over may leave some of a site's part.
        loaded = [k for k in busy if min(phase["clients"][k][:2]) >= band["loaded"]]
        if loaded:
            far = max(loaded, key=lambda k: abs(inside[k] - inner))
            checks.append(
                at_most(
                    f"{phase['name']}: the first site off 3 of 4 parts of its guest's, "
                    f"at the most (guest {far + 1})",
                    abs(inside[far] - inner),
                    band["inside"],
                )
            )
    checks.append(at_least("phases", len(data["phases"]), len(PHASES), "d"))
    errors = sum(row["not_2xx"] + row["socket_errors"] + row["timeouts"] for row in data["wrk"])
    return [*checks, at_most("answers that were none", errors, 0, "d")]


def rows(data):
    out = []
    for phase in data["phases"]:
        whole, inside = parts(phase)
        out.append(
            [
                phase["name"].replace(" ", "_"),
                *(round(100 * x, 2) for x in whole),
                *(round(100 * x, 1) for x in inside),
            ]
        )
    return [
        "load",
        *(f"guest{k + 1}_percent" for k in range(3)),
        *(f"guest{k + 1}_site_a" for k in range(3)),
    ], out


def plot(data):
    line = lambda k: [
        (i + 1, 100 * parts(phase)[0][k]) for i, phase in enumerate(data["phases"])
    ]  # noqa: E731
    return Plot(
        "Three guest servers with 50, 30 and 20 % of a CPU: "
        + ", ".join(name for name, _ in PHASES),
        "load, in this order",
        "% of the CPU",
        [
            *(Line(f"guest {k + 1}", line(k)) for k in range(3)),
            *(
                Line(f"{share} %", [(1, share), (len(PHASES), share)], theory=True)
                for share in SHARES
            ),
        ],
    )
