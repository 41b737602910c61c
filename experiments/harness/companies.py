# SPDX-License-Identifier: MIT OR Apache-2.0
"""Eclipse/BSD, section 3.2: one Apache has the sites 1 to 4 of four companies, a second one has
site 5, which is company 4's too, and whose clients become more and more. Figures 11 and 12 (CGI)
and 13 and 14 (documents over a link) are two views of this: `cgi` and `documents` measure, the rest
is the same for both."""

import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from harness.machine import Machine, NotRun
from harness.plot import Line, Plot
from harness.verdict import Check, at_least, at_most
from four_sites import access_log, link, servers
from four_sites.clients import Clients
from four_sites.experiment import choose_cpus, now_us
from four_sites.reservations import Baseline

COMPANIES, SITES = 4, 5
#: Clients that each of the sites 1 to 4 keeps.
CLIENTS = 8
WEIGHT, Q0_WEIGHT = 24, 4
#: How company 4's two sites are kept apart. PAPER: they are not, both are in its one container.
#: INSIDE: each has half of what the company has, a level further down.
WITHOUT, PAPER, INSIDE = "without", "with", "inside"
HALVES = (WITHOUT, PAPER, INSIDE)


def container(half: str, site: int) -> str:
    """In which a site, from 1 on, is served."""
    company = f"company{min(site, COMPANIES)}"
    return f"{company}/site{site}" if half == INSIDE and site >= COMPANIES else company


def clients_at(n: int) -> list[int]:
    return [CLIENTS] * COMPANIES + [n]


def expected(n: int) -> float:
    """A company's part of all, if each client has the same."""
    return CLIENTS / (COMPANIES * CLIENTS + n)


def make_containers(machine: Machine, half: str) -> None:
    for company in range(1, COMPANIES + 1):
        holds = ["--sched"] if half == INSIDE and company == COMPANIES else []
        machine.reserv("mk", "--container", *holds, f"company{company}", "--share", WEIGHT)
    if half == INSIDE:
        for site in (COMPANIES, SITES):
            machine.reserv("mk", "--container", container(half, site), "--share", 1)


def make_sites(
    machine: Machine,
    half: str,
    stack: ExitStack,
    cpu: int,
    slots: list[int],
    ports: list[int],
    program: Path,
    of: dict[str, Any],
) -> list[servers.Site]:
    """Both servers, started; `of`: address, page and length of an answer."""
    if servers.module() is None:
        raise NotRun("mod_reserv is not built: apt-get install apache2-dev, then `make build`")
    scratch = Path(
        stack.enter_context(tempfile.TemporaryDirectory(prefix="reserv-companies-", dir="/run"))
    )
    scratch.chmod(0o755)
    cgi = servers.prepare_scratch(program, scratch)
    share = lambda host: container(half, int(host[-1]))  # noqa: E731
    sites = servers.of_one_server(
        COMPANIES, ports[0], scratch, cgi, slots[0], half != WITHOUT, share, **of
    )
    sites.append(servers.of_its_own(SITES, ports[1], scratch, cgi, slots[1], **of))
    into = (
        [str(machine.reserv_program), "run", "--in", container(half, SITES), "--"]
        if half != WITHOUT
        else []
    )
    for server, prefix in ((sites[0].server, []), (sites[-1].server, into)):
        if of["page"] == link.DOCUMENT[0]:
            (server.root / "document").write_bytes(bytes(link.DOCUMENT[1]))
        stack.callback(server.stop)
        server.start(cpu, prefix)
    for site in sites:
        site.wait_ready()
    return sites


def ended(clients: list[Clients]) -> list[dict[str, Any]]:
    """What wrk counted."""
    for c in clients:
        c.check()
        c.interrupt()
    return [{"site": c.site + 1, **c.result()} for c in clients]


def prepare(machine: Machine, half: str, stack: ExitStack, *up: str) -> None:
    if half == WITHOUT:
        baseline = Baseline(True)
        baseline.start()
        stack.callback(baseline.stop)
        return
    machine.reserv("up", "--driver", "full", *up)
    machine.is_up = True
    stack.callback(machine.down)
    make_containers(machine, half)


def cgi_half(machine: Machine, half: str, form: dict[str, Any]) -> dict[str, Any]:
    with ExitStack() as stack:
        cpu, client_cpus = choose_cpus()
        # Reservd, too, is off the servers' CPU.
        stack.callback(os.sched_setaffinity, 0, os.sched_getaffinity(0))
        os.sched_setaffinity(0, client_cpus)
        prepare(machine, half, stack)
        if half != WITHOUT:
            machine.reserv("set", "q0", f"share={Q0_WEIGHT}")
        program = machine.source.parent / "numbers"
        slots = [COMPANIES * CLIENTS + 4, max(form["points"]) + 4]
        sites = make_sites(
            machine,
            half,
            stack,
            cpu,
            slots,
            servers.free_ports(2),
            program,
            {"address": "127.0.0.1", "page": "/numbers", "length": 1024},
        )
        clients: list[Clients] = []
        stack.callback(lambda: [c.kill() for c in clients])
        had, points, work_s = [0] * SITES, [], 0.035
        batch_us = round(form["batch_s"] * 1e6)
        for n in form["points"]:
            # How long a request of company 4 takes, at its slowest.
            parts = {
                WITHOUT: COMPANIES * CLIENTS + n,
                PAPER: COMPANIES * (CLIENTS + n),
                INSIDE: 2 * COMPANIES * max(CLIENTS, n),
            }
            round_s = parts[half] * work_s
            for site, (before, wanted) in enumerate(zip(had, clients_at(n))):
                if wanted > before:
                    clients.append(
                        Clients(sites[site], wanted - before, client_cpus, min(round_s, 6.0))
                    )
            had = clients_at(n)
            time.sleep(max(1.2 * round_s, 0.6))
            counted = counters(machine, half)
            begin_us = now_us()
            end_us = begin_us + batch_us * form["batches"]
            time.sleep((end_us - now_us()) / 1e6)
            counted = [now - was for now, was in zip(counters(machine, half), counted)]
            longest = max(access_log.longest_s(s.log.read(), begin_us, end_us) for s in sites)
            # Requests in flight count by their part of the window.
            time.sleep(1.1 * longest + 0.1)
            for c in clients:
                c.check()
            points.append(
                {
                    "n": n,
                    "begin_us": begin_us,
                    "seconds": form["batch_s"] * form["batches"],
                    "cpu_ns": counted,
                }
            )
            work_s = points[-1]["seconds"] / max(
                sum(access_log.completed(s.log.read(), begin_us, end_us) for s in sites), 1
            )
        wrk = ended(clients)
        for point in points:
            point["served"] = [
                access_log.served(s.log.read(), point["begin_us"], batch_us, form["batches"])
                for s in sites
            ]
            point["amount"] = [sum(batches) for batches in point["served"]]
        return {"half": half, "points": points, "wrk": wrk}


def counters(machine: Machine, half: str) -> list[int]:
    """The scheduler's own, of each company."""
    return (
        [machine.service_ns(f"company{k + 1}") for k in range(COMPANIES)] if half != WITHOUT else []
    )


def document_half(machine: Machine, half: str, form: dict[str, Any]) -> dict[str, Any]:
    with ExitStack() as stack:
        spaces = stack.enter_context(link.Topology(SITES)).spaces
        if half == WITHOUT:
            link.first_come()
        prepare(machine, half, stack, "--net", link.DEV, "--rate", f"{link.RATE_MBIT}mbit")
        if half != WITHOUT:
            machine.reserv("set", f"{link.DEV}/q0", f"share={Q0_WEIGHT}")
            # The CPU is not what is short here.
            machine.reserv("set", "cpu/q0", "share=1000")
        cpus = os.sched_getaffinity(0)
        slots = [COMPANIES * CLIENTS + 4, max(form["points"]) + 4]
        sites = make_sites(
            machine,
            half,
            stack,
            min(cpus),
            slots,
            [link.PORT, link.PORT + 1],
            machine.source.parent / "numbers",
            {"address": link.ADDRESS, "page": link.DOCUMENT[0], "length": link.DOCUMENT[1]},
        )
        clients: list[Clients] = []
        stack.callback(lambda: [c.kill() for c in clients])
        had, points, first = [0] * SITES, [], {}
        # Of every node that holds packets, q0 first.
        nodes = (
            list(dict.fromkeys(["q0", *(container(half, k + 1) for k in range(SITES))]))
            if half != WITHOUT
            else []
        )
        for n in form["points"]:
            for site, (before, wanted) in enumerate(zip(had, clients_at(n))):
                if wanted > before:
                    clients.append(
                        Clients(
                            sites[site],
                            wanted - before,
                            cpus,
                            form["settle_s"] / 2,
                            ("ip", "netns", "exec", spaces[site]),
                        )
                    )
                    first.setdefault(site, clients[-1])
            had = clients_at(n)
            time.sleep(form["settle_s"])
            begin = time.monotonic()
            counts, served = {s: link.received(c) for s, c in first.items()}, [
                link.served(node) for node in nodes
            ]
            time.sleep(form["window_s"])
            took = time.monotonic() - begin
            got = [link.received(first[s]) - counts[s] if s in first else 0 for s in range(SITES)]
            served = [link.served(node) - was for node, was in zip(nodes, served)]
            for c in clients:
                c.check()
            points.append({"n": n, "seconds": took, "amount": got, "link_bytes": served})
        return {"half": half, "points": points, "wrk": ended(clients)}


def cgi(machine: Machine, form: dict[str, Any]) -> dict[str, Any]:
    return {half: cgi_half(machine, half, form) for half in HALVES}


def documents(machine: Machine, form: dict[str, Any]) -> dict[str, Any]:
    return {half: document_half(machine, half, form) for half in HALVES}


def parts(point: dict[str, Any]) -> list[float]:
    """Of all that was had: the five sites, then company 4."""
    total = sum(point["amount"]) or 1
    each = [amount / total for amount in point["amount"]]
    return [*each, sum(each[COMPANIES - 1 :])]


def rate(point: dict[str, Any]) -> float:
    """Of the least of the companies 1 to 3."""
    return min(point["amount"][: COMPANIES - 1]) / point["seconds"]


def judge(data: dict[str, Any], band: dict[str, Any], names: tuple[str, str]) -> list[Check]:
    """`names`: of the figures without and with reservations."""
    without, checks = data[WITHOUT]["points"], []
    off = {
        (p["n"], k): abs(parts(p)[k] - expected(p["n"]))
        for p in without
        for k in range(COMPANIES - 1)
    }
    worst = max(off, key=lambda at: off[at])
    checks.append(
        at_most(
            f"{names[0]}: companies 1 to 3 off 8/(32+n), at the most "
            f"(site {worst[1] + 1}, n = {worst[0]})",
            off[worst],
            band["follows"],
        )
    )
    for half in (PAPER, INSIDE):
        name = names[1] if half == PAPER else f"{names[1]} with a level more"
        points = data[half]["points"]
        companies = {
            (p["n"], k): parts(p)[k if k < COMPANIES - 1 else SITES]
            for p in points
            for k in range(COMPANIES)
        }
        least = min(companies, key=lambda at: companies[at])
        checks.append(
            at_least(
                f"{name}: a company's part, at the least (company {least[1] + 1}, n = {least[0]})",
                companies[least],
                band["company"],
            )
        )
        rates = {p["n"]: rate(p) for p in points}
        at_8, most = min(n for n in rates if n >= CLIENTS), max(rates)
        checks.append(
            at_least(
                f"{name}: rate of companies 1 to 3 at n = {most}, of that at n = {at_8}",
                rates[most] / rates[at_8],
                band["kept"],
            )
        )
        if half == PAPER:
            off4 = {
                p["n"]: abs(
                    parts(p)[COMPANIES - 1] - parts(p)[SITES] * CLIENTS / (CLIENTS + p["n"])
                )
                for p in points
            }
            far = max(off4, key=lambda n: off4[n])
            checks.append(
                at_most(
                    f"{name}: site 4 off company 4's part by 8/(8+n), at the most (n = {far})",
                    off4[far],
                    band["site4"],
                )
            )
        else:
            fourth = {p["n"]: parts(p)[COMPANIES - 1] for p in points}
            low = min(fourth, key=lambda n: fourth[n])
            checks.append(
                at_least(
                    f"{name}: site 4 keeps half of its company's, at the least (n = {low})",
                    fourth[low],
                    band["site4_inside"],
                )
            )
    errors = sum(
        row["not_2xx"] + row["socket_errors"] + row["timeouts"]
        for half in data.values()
        for row in half["wrk"]
    )
    return [*checks, at_most("answers that were none", errors, 0, "d")]


def rows(data: dict[str, Any], unit: str, scale: float) -> tuple[list[str], list[list[Any]]]:
    out = []
    for half in data.values():
        for p in half["points"]:
            each = [
                amount * scale / p["seconds"]
                for amount in (*p["amount"], sum(p["amount"][COMPANIES - 1 :]))
            ]
            out.append(
                [half["half"], p["n"], *(round(x, 2) for x in each), round(expected(p["n"]), 3)]
            )
    return [
        "reservations",
        "n",
        *(f"site{k + 1}_{unit}" for k in range(SITES)),
        f"company4_{unit}",
        "8/(32+n)",
    ], out


def plot(data: dict[str, Any], title: str, of: str) -> Plot:
    def line(half: str, k: int) -> list[tuple[float, float]]:
        return [(p["n"], parts(p)[k]) for p in data[half]["points"]]

    return Plot(
        title,
        "clients of site 5, beside 8 of each of the others",
        f"of all {of}",
        [
            Line("company 1, with", line(PAPER, 0)),
            Line("company 4, with", line(PAPER, SITES)),
            Line("site 4, with", line(PAPER, 3)),
            Line("site 4, a level more", line(INSIDE, 3)),
            Line("company 1, without", line(WITHOUT, 0)),
            Line(
                "8/(32+n)",
                [(p["n"], expected(p["n"])) for p in data[WITHOUT]["points"]],
                theory=True,
            ),
        ],
    )
