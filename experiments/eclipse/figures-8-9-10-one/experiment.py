# SPDX-License-Identifier: MIT OR Apache-2.0
"""Figures 8 to 10 with one server for all sites, as in the paper: Apache, then nginx."""
import tempfile
from contextlib import ExitStack
from pathlib import Path

from harness.machine import NotRun
from harness.plot import Line, Plot
from harness.verdict import at_least, at_most
from four_sites import link, nginx, plan, servers
from four_sites.judge import theory_site1
from four_sites.reservations import Baseline

HALVES = {"E-F8": plan.BASELINE, "E-F9": plan.RESERVED, "E-F10": link.UNTAGGED}
SERVERS = "Apache", "nginx"
Q0 = "q0"


def sites_of(server, machine, scratch, slots, engine):
    """Sites, not started yet, whose containers are called as they are."""
    if server == "Apache":
        cgi = servers.prepare_scratch(machine.source.parent / "numbers", scratch)
        page, length = link.DOCUMENT
        return servers.of_one_server(plan.SITES, link.PORT, scratch, cgi, slots, engine,
                                     address=link.ADDRESS, page=page, length=length)
    return nginx.sites(plan.SITES, link.PORT, scratch, slots, engine, link.ADDRESS, link.DOCUMENT)


def half_run(machine, form, server, half):
    with ExitStack() as stack:
        spaces = stack.enter_context(link.Topology()).spaces
        folder = tempfile.TemporaryDirectory(prefix="reserv-documents-", dir="/run")
        scratch = Path(stack.enter_context(folder))
        scratch.chmod(0o755)
        if half == plan.BASELINE:
            link.first_come()
            baseline = Baseline(True)
            baseline.start()
            stack.callback(baseline.stop)
        else:
            rate = f"{link.RATE_MBIT}mbit"
            machine.reserv("up", "--driver", "full", "--net", link.DEV, "--rate", rate)
            machine.is_up = True
            stack.callback(machine.down)
        engine = half == plan.RESERVED
        slots = sum(plan.clients_at(max(form["points"]))) + plan.SPARE_SLOTS
        sites = sites_of(server, machine, scratch, slots, engine)
        nodes = [Q0] if half != plan.BASELINE else []
        if engine:
            for site in sites:
                machine.reserv("mk", "--container", site.host, "--share", plan.SITE_WEIGHT)
                nodes.append(site.host)
            machine.reserv("set", f"{link.DEV}/{Q0}", f"share={plan.Q0_WEIGHT}")
            # The CPU is not what is short here.
            machine.reserv("set", f"cpu/{Q0}", "share=1000")
        (sites[0].server.root / "document").write_bytes(bytes(link.DOCUMENT[1]))
        stack.callback(sites[0].server.stop)
        sites[0].server.start(0, [])
        for site in sites:
            site.wait_ready()
        title = f"{server}, {half}"
        measured = link.ramp(sites, spaces, nodes, form["points"], form["settle_s"],
                             form["window_s"], title)
        return {"server": server, "half": half, **measured}


def measure(machine, form):
    if servers.module() is None or nginx.module() is None:
        raise NotRun("the modules are not built: apt-get install apache2-dev nginx-dev, "
                     "then `make build`")
    return {f"{server} {name}": half_run(machine, form, server, half)
            for server in SERVERS for name, half in HALVES.items()}


def judge(data, band):
    checks = []
    for server in SERVERS:
        points = {name: data[f"{server} {name}"]["points"] for name in HALVES}
        ours = points["E-F9"]
        least = min((p for p in ours if p["n"] >= 4), key=lambda p: plan.shares(p)[0])
        checks.append(at_least(f"{server}, E-F9: site 1's part, at the least (n = {least['n']})",
                               plan.shares(least)[0], band["site1"]))
        rates = {p["n"]: p["bytes"][0] / p["seconds"] for p in ours}
        at_8, most = min(n for n in rates if n >= 8), max(rates)
        text = f"{server}, E-F9: site 1's rate at n = {most}, of that at n = {at_8}"
        checks.append(at_least(text, rates[most] / rates[at_8], band["kept"]))
        for name in "E-F8", "E-F10":
            off = {p["n"]: plan.shares(p)[0] - theory_site1(p["n"]) for p in points[name]}
            far = max(off, key=lambda n, off=off: abs(off[n]))
            text = f"{server}, {name}: site 1's part off 8/(8+3n), at the most (n = {far})"
            checks.append(at_most(text, abs(off[far]), band["follows"]))
        for name, half in points.items():
            checks.append(at_least(f"{server}, {name}: the link is used, at the least",
                                   min(map(link.used, half)), band["used"]))
        # The link's own count, whose first queue is q0: it has the handshakes.
        strays = [p["link_bytes"][0] / sum(p["link_bytes"]) for p in ours]
        checks.append(at_most(f"{server}, E-F9: of the link through q0, at the most", max(strays),
                              band["strays"]))
    errors = sum(row["not_2xx"] + row["socket_errors"] + row["timeouts"]
                 for half in data.values() for row in half["wrk"])
    return [*checks, at_most("answers that were none", errors, 0, "d")]


def rows(data):
    header = ["server", "figure", "n", *(f"site{k + 1}_mbit" for k in range(plan.SITES)),
              "theory_site1"]
    out = []
    for key, half in data.items():
        server, name = key.split()
        for p in half["points"]:
            each = (round(b * 8e-6 / p["seconds"], 2) for b in p["bytes"])
            out.append([server, name, p["n"], *each, round(theory_site1(p["n"]), 3)])
    return header, out


def plot(data):
    def part(key):
        return [(p["n"], plan.shares(p)[0]) for p in data[key]["points"]]
    names = {"E-F9": "with", "E-F8": "without", "E-F10": "module off"}
    lines = [Line(f"{server}, {text}", part(f"{server} {name}"))
             for server in SERVERS for name, text in names.items()]
    theory = [(n, theory_site1(n)) for n, _ in part("Apache E-F8")]
    return Plot("Site 1's part of a link of 100 Mbit/s, all four sites on one server",
                "clients of each other site, beside 8 of site 1", "of all sites' bytes",
                [*lines, Line("8 / (8 + 3 n)", theory, theory=True)])
