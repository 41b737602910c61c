# SPDX-License-Identifier: MIT OR Apache-2.0
"""The link-bound form: four Apache servers, one per company, send documents of 1.5 MB over one link
of 100 Mbit/s; the clients are real wrk processes, each company's in a network name space of its own
behind a bridge. What each company had is what its name space's interface received. Measures; judges
nothing."""

import os
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Callable

from . import plan
from .clients import Clients
from .plan import BASELINE, RESERVED
from .servers import Site, of_its_own

DEV, ADDRESS, PORT = "rsvl0", "10.82.0.1", 8081
RATE_MBIT = 100
DOCUMENT = "/document", 1_500_000
#: A packet of several segments is at most this long, with and without reservations: 0.7 ms of the link.
PACKET_MAX = 9000
MOUNT = Path(os.environ.get("RESERV_MOUNT", "/reserv"))
#: Reserves nothing; a queue for each company; our qdisc and everything in q0.
UNTAGGED = "untagged"


class LinkError(Exception):
    """A tool did not do what it must."""


def tool(line: str) -> None:
    done = subprocess.run(line.split(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LinkError(f"{line}: {done.stderr.strip()}")


class Topology:
    """The servers' interface, a bridge beyond it, and behind that a name space for each company's
    clients."""

    def __init__(self, sites: int = plan.SITES) -> None:
        self.switch = f"rsvl{os.getpid()}"
        self.spaces = [f"{self.switch}c{site + 1}" for site in range(sites)]

    def __enter__(self) -> "Topology":
        for space in (self.switch, *self.spaces):
            tool(f"ip netns add {space}")
        inside = f"ip -n {self.switch}"
        for line in (f"ip link add {DEV} type veth peer name up0 netns {self.switch}", f"ip link set {DEV} gso_max_size {PACKET_MAX}",
                     f"ip addr add {ADDRESS}/24 dev {DEV}", f"ip link set {DEV} up", f"{inside} link add br0 type bridge",
                     f"{inside} link set up0 master br0", f"{inside} link set up0 up", f"{inside} link set br0 up"):
            tool(line)
        for site, space in enumerate(self.spaces):
            for line in (f"{inside} link add p{site} type veth peer name eth0 netns {space}", f"{inside} link set p{site} master br0",
                         f"{inside} link set p{site} up", f"ip -n {space} addr add 10.82.0.{site + 11}/24 dev eth0", f"ip -n {space} link set eth0 up",
                         f"ip -n {space} link set lo up"):
                tool(line)
        return self

    def __exit__(self, *_: object) -> None:
        for space in (*self.spaces, self.switch):
            subprocess.run(["ip", "netns", "del", space], check=False)
        subprocess.run(["ip", "link", "del", DEV], stderr=subprocess.DEVNULL, check=False)


def first_come() -> None:
    """The baseline: a first-come queue below a token bucket."""
    tool(f"tc qdisc add dev {DEV} root handle 1: "
         f"tbf rate {RATE_MBIT}mbit burst 100000 limit 10000000")
    tool(f"tc qdisc add dev {DEV} parent 1:1 pfifo limit 1000")


def received(clients: Clients) -> int:
    """Bytes that came to the name space of these clients."""
    for line in Path(f"/proc/{clients.process.pid}/net/dev").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == "eth0":
            return int(numbers.split()[0])
    raise LinkError("a name space has lost its interface")


def served(queue: str) -> int:
    for line in (MOUNT / DEV / queue / "backlog").read_text().splitlines():
        key, _, value = line.partition(" ")
        if key == "service_bytes":
            return int(value)
    raise LinkError(f"{queue} has no counter")


def queues(half: str) -> list[str]:
    return ["q0", *(f"q{site + 1}" for site in range(plan.SITES))] if half == RESERVED else ["q0"]


def half_run(half: str, reserv: Callable[..., Any], reserv_program: str, points: list[int], settle_s: float, window_s: float,
             said: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """One ramp of the numbers of clients of sites 2 to 4. `reserv` calls the product."""
    with ExitStack() as stack:
        spaces = stack.enter_context(Topology()).spaces
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reserv-link-", dir="/run")))
        scratch.chmod(0o755)
        if half == BASELINE:
            first_come()
        else:
            # The CPU is not what is short here; its stock driver is there at once.
            reserv("up", "--driver", "stock", "--net", DEV, "--rate", f"{RATE_MBIT}mbit")
            stack.callback(reserv, "down")
        if half == RESERVED:
            for queue in queues(half)[1:]:
                reserv("mk", f"{DEV}/{queue}", "--share", str(plan.SITE_WEIGHT))
            reserv("set", f"{DEV}/q0", f"share={plan.Q0_WEIGHT}")
        cpus = os.sched_getaffinity(0)
        sites: list[Site] = []
        stack.callback(lambda: [site.server.stop() for site in sites])
        for site, most in enumerate(plan.clients_at(max(points))):
            made = of_its_own(site + 1, PORT + site, scratch, scratch / "none", most + plan.SPARE_SLOTS, ADDRESS, *DOCUMENT)
            (made.server.root / "document").write_bytes(bytes(DOCUMENT[1]))
            sites.append(made)
            made.server.start(min(cpus), [reserv_program, "run", "--net", f"{DEV}/q{site + 1}", "--"] if half == RESERVED else [])
        for made in sites:
            made.wait_ready()
        return {"half": half, **ramp(sites, spaces, queues(half) if half != BASELINE else [], points, settle_s, window_s, half, said)}


def ramp(sites: list[Site], spaces: list[str], nodes: list[str], points: list[int], settle_s: float, window_s: float, title: str,
         said: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """More and more clients of the sites 2 to 4, each site's in its name space. `nodes`: of the
    link, whose bytes are counted."""
    cpus = os.sched_getaffinity(0)
    with ExitStack() as stack:
        clients: list[Clients] = []
        stack.callback(lambda: [c.kill() for c in clients])
        before, measured = (0,) * plan.SITES, []
        first: dict[int, Clients] = {}
        for n in points:
            for site, (had, wanted) in enumerate(zip(before, plan.clients_at(n))):
                if wanted > had:
                    clients.append(Clients(sites[site], wanted - had, cpus, settle_s / 2, ("ip", "netns", "exec", spaces[site])))
                    first.setdefault(site, clients[-1])
            before = plan.clients_at(n)
            time.sleep(settle_s)
            begin = time.monotonic()
            counts = {site: received(c) for site, c in first.items()}
            served_before = [served(q) for q in nodes]
            time.sleep(window_s)
            took = time.monotonic() - begin
            got = [received(first[site]) - counts[site] if site in first else 0 for site in range(plan.SITES)]
            by_link = [served(q) - b for q, b in zip(nodes, served_before)]
            for c in clients:
                c.check()
            measured.append({"n": n, "clients": list(plan.clients_at(n)), "seconds": took, "bytes": got, "link_bytes": by_link})
            said(f"{title}, {n} clients each of sites 2-4: " + ", ".join(f"{b * 8e-6 / took:.1f}" for b in got) + " Mbit/s")
        errors = []
        for c in clients:
            c.interrupt()
        for c in clients:
            found = c.result()
            errors.append({"site": c.site + 1, **found})
        return {"points": measured, "wrk": errors}


def used(point: dict[str, Any]) -> float:
    """Of the link."""
    return sum(point["bytes"]) * 8e-6 / point["seconds"] / RATE_MBIT
