# SPDX-License-Identifier: MIT OR Apache-2.0
"""The demonstration's link-bound form (demo/four_sites/link.py), with a third half: our qdisc and
nobody tagged."""
from harness.plot import Line, Plot
from harness.verdict import at_least, at_most
from four_sites import link, plan
from four_sites.judge import theory_site1
from four_sites.reservations import find_reserv

HALVES = {"E-F8": plan.BASELINE, "E-F9": plan.RESERVED, "E-F10": link.UNTAGGED}


def measure(machine, form):
    return {name: link.half_run(half, machine.reserv, str(find_reserv()), form["points"], form["settle_s"], form["window_s"]) for name, half in HALVES.items()}


def judge(data, band):
    points = {name: half["points"] for name, half in data.items()}
    least = min((p for p in points["E-F9"] if p["n"] >= 4), key=lambda p: plan.shares(p)[0])
    checks = [at_least(f"E-F9: site 1's part, at the least (n = {least['n']})", plan.shares(least)[0], band["site1"])]
    for name in "E-F8", "E-F10":
        off = {p["n"]: plan.shares(p)[0] - theory_site1(p["n"]) for p in points[name]}
        worst = max(off, key=lambda n: abs(off[n]))
        checks.append(at_most(f"{name}: site 1's part off 8/(8+3n), at the most (n = {worst})", abs(off[worst]), band["follows"]))
    for name, half in points.items():
        checks.append(at_least(f"{name}: the link is used, at the least", min(map(link.used, half)), band["used"]))
    # The link's own count, whose first queue is q0: a connection that lost its tag would have q0's
    # share beside its site's.
    strays = [p["link_bytes"][0] / sum(p["link_bytes"]) for p in points["E-F9"]]
    checks.append(at_most("E-F9: of the link through q0, at the most", max(strays), band["strays"]))
    errors = sum(row["not_2xx"] + row["socket_errors"] + row["timeouts"] for half in data.values() for row in half["wrk"])
    return [*checks, at_most("answers that were none", errors, 0, "d")]


def rows(data):
    header = ["n", *(f"{name}_site{site + 1}_mbit" for name in data for site in range(4)), "theory_site1"]
    out = []
    for same in zip(*(half["points"] for half in data.values())):
        out.append([same[0]["n"], *(round(b * 8e-6 / p["seconds"], 2) for p in same for b in p["bytes"]), round(theory_site1(same[0]["n"]), 3)])
    return header, out


def plot(data):
    part = lambda name: [(p["n"], plan.shares(p)[0]) for p in data[name]["points"]]  # noqa: E731
    return Plot("Site 1's part of a link of 100 Mbit/s, its 8 clients beside n of each of three others", "clients of each other site", "of all sites' bytes",
                [Line("with reservations (E-F9)", part("E-F9")), Line("without (E-F8)", part("E-F8")), Line("ours, nobody tagged (E-F10)", part("E-F10")),
                 Line("8 / (8 + 3 n)", [(n, theory_site1(n)) for n, _ in part("E-F8")], theory=True)])
