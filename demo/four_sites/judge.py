# SPDX-License-Identifier: MIT OR Apache-2.0
"""From the raw data to the table and the verdict. Pure: no file, no clock.

What is promised (Eclipse/BSD §4, in the words of our bars):

* with reservations, once sites 2..4 have a few clients each (n >= 4), every site gets at least its
  0.24 of the total, less 0.03 for measuring;
* with reservations, site 1 does not notice its neighbours grow: its rate at n=32 is at least 0.95
  of that at n=8;
* without, service follows the number of clients: site 1 gets 8/(8+3n), give or take 0.04.

A full run must show the first two with the whole 95 % confidence interval; a QUICK run is judged on
means, unless they are all but noise.

The stock driver's queues share what the machine's other cgroups leave them: a site's rate falls
with what others outside take of the servers' CPU. Where that changed between the two points, the
ratio of rates is neither held against the reservations nor taken for them: it is unclear."""

import math
from dataclasses import dataclass
from typing import Any

from . import disk_judge, link_judge, plan
from .stats import Estimate, mean_ci, ratio_ci, share_ci

SHARE_BAR = plan.SITE_WEIGHT / (plan.SITES * plan.SITE_WEIGHT + plan.Q0_WEIGHT) - 0.03
FEW_CLIENTS = 4
RATIO_BAR = 0.95
RATIO_POINTS = (32, 8)
THEORY_BAND = 0.04
#: A mean whose interval is wider to each side says nothing, not even in a QUICK run.
QUICK_HALF_MAX = 0.15
#: From this difference in what others outside Reserv took of the servers' CPU on, rates say nothing (stock driver).
OUTSIDE_MAX = 0.03
#: From this difference in the machine's own speed on, the ratio is corrected for it.
DRIFT_MAX = 0.02

HOLDS, UNCLEAR, FAILS = "holds", "unclear", "fails"
PASS, FAIL = "PASS", "FAIL"
EXIT_STATUS = {PASS: 0, FAIL: 1, UNCLEAR.upper(): 2}


@dataclass(frozen=True)
class Row:
    """One point of one half."""

    half: str
    n: int
    #: Per site: requests per second, and share of all sites' requests.
    rates: list[Estimate]
    shares: list[Estimate]
    total: Estimate
    work_us: float | None
    theory_site1: float


@dataclass(frozen=True)
class Check:
    what: str
    outcome: str
    found: str


@dataclass(frozen=True)
class Judgement:
    rows: list[Row]
    checks: list[Check]
    verdict: str
    sentence: str
    remarks: list[str]


def theory_site1(n: int) -> float:
    """Site 1's share when service follows the number of clients."""
    clients = plan.clients_at(n)
    return clients[0] / sum(clients)


def make_row(half: str, point: dict[str, Any]) -> Row:
    served: list[list[float]] = point["served"]
    totals = [sum(batch) for batch in zip(*served)]
    rates = [mean_ci([c / point["batch_s"] for c in site]) for site in served]
    shares = [share_ci(site, totals) if sum(totals) else Estimate(0.0, math.inf) for site in served]
    total = mean_ci([t / point["batch_s"] for t in totals])
    return Row(half, point["n"], rates, shares, total, point.get("work_us"), theory_site1(point["n"]))


def _outcome(value: Estimate, bar: float, quick: bool) -> str:
    if value.mean < bar:
        return FAILS
    if quick:
        return HOLDS if value.half <= QUICK_HALF_MAX else UNCLEAR
    return HOLDS if value.low >= bar else UNCLEAR


def _shares_check(rows: list[Row], quick: bool) -> Check:
    what = f"with: every site at least {SHARE_BAR:.2f} of the total for n >= {FEW_CLIENTS}"
    seen = [(share, row.n, site) for row in rows if row.n >= FEW_CLIENTS for site, share in enumerate(row.shares)]
    if not seen:
        return Check(what, FAILS, "no such point was measured")
    worst, n, site = min(seen, key=lambda s: s[0].mean if quick else s[0].low)
    outcomes = {_outcome(share, SHARE_BAR, quick) for share, _, _ in seen}
    outcome = next(o for o in (FAILS, UNCLEAR, HOLDS) if o in outcomes)
    return Check(what, outcome, f"the least: site {site + 1} at n={n}, {worst.mean:.3f} ± {worst.half:.3f}")


def _ratio_check(data: dict[str, Any], quick: bool) -> tuple[Check, float | None, list[str]]:
    what = f"with: site 1 at n={RATIO_POINTS[0]} at least {RATIO_BAR} of its rate at n={RATIO_POINTS[1]}"
    points = {p["n"]: p for p in data["halves"]["with"]["points"]}
    if not all(n in points and sum(points[n]["served"][0]) for n in RATIO_POINTS):
        return Check(what, FAILS, "the points were not measured"), None, []
    many, few = (points[n] for n in RATIO_POINTS)
    ratio = ratio_ci([c / many["batch_s"] for c in many["served"][0]], [c / few["batch_s"] for c in few["served"][0]])
    found = f"{ratio.mean:.3f} ± {ratio.half:.3f}"
    remarks = []
    if many.get("work_us") and few.get("work_us"):
        drift = many["work_us"] / few["work_us"]
        if abs(drift - 1) > DRIFT_MAX:
            ratio = Estimate(ratio.mean * drift, ratio.half * drift)
            found = f"{ratio.mean:.3f} ± {ratio.half:.3f} (as measured: {found})"
            remarks.append(
                f"The machine itself was {abs(drift - 1):.0%} {'slower' if drift > 1 else 'faster'} at "
                f"n={RATIO_POINTS[0]} than at n={RATIO_POINTS[1]} (CPU time that the same random numbers took); "
                "the ratio of site 1's rates is corrected for that.")
    outcome = _outcome(ratio, RATIO_BAR, quick)
    others = [_outside(data, point) for point in (few, many)]
    if outcome != HOLDS and others[1] - others[0] > OUTSIDE_MAX:
        outcome = UNCLEAR
        remarks.append(
            f"Work outside Reserv, which the stock driver cannot hold off, took {others[0]:.0%} of the servers' CPU at "
            f"n={RATIO_POINTS[1]} and {others[1]:.0%} at n={RATIO_POINTS[0]}: site 1's rates cannot be compared. Run it again "
            "when this machine has nothing else to do.")
    return Check(what, outcome, found), ratio.mean, remarks


def _services_ns(point: dict[str, Any]) -> list[int]:
    """What the scheduler itself counted for each site in the window."""
    before, after = point["counters"]["before"], point["counters"]["after"]
    return [int(after[name]["service_ns"]) - int(before[name]["service_ns"]) for name in before if name != "q0"]


def _outside(data: dict[str, Any], point: dict[str, Any]) -> float:
    """Which part of the servers' CPU others than the sites had, where those are not in the
    scheduler's tree."""
    if data["driver"] != "stock" or not point.get("counters") or "busy_s" not in point:
        return 0.0
    window_s = point["batch_s"] * len(point["served"][0])
    return max(point["busy_s"] - sum(_services_ns(point)) / 1e9, 0.0) / window_s


def _theory_check(rows: list[Row]) -> Check:
    what = f"without: site 1 gets 8/(8+3n) of the total, ± {THEORY_BAND:.2f}"
    worst = max(rows, key=lambda r: abs(r.shares[0].mean - r.theory_site1))
    off = worst.shares[0].mean - worst.theory_site1
    return Check(what, HOLDS if abs(off) <= THEORY_BAND else FAILS,
                 f"the farthest: n={worst.n}, {worst.shares[0].mean:.3f} where {worst.theory_site1:.3f} is expected")


def _honesty_check(data: dict[str, Any]) -> Check:
    """Clients and servers must agree on what happened, and every request must have been answered.
    """
    what = "every request answered; wrk's counts and the servers' logs agree"
    requests = 0
    for name, half in data["halves"].items():
        for site, row in enumerate(half["crosscheck"]):
            requests += row["wrk"]
            if row["wrk_errors"]:
                return Check(what, FAILS, f"{name}, site {site + 1}: {row['wrk_errors']} errors")
            if abs(row["wrk"] - row["log"]) > row["clients"]:
                return Check(what, FAILS, f"{name}, site {site + 1}: wrk {row['wrk']}, log {row['log']}")
        for point in half["points"]:
            for site, clients in enumerate(point["clients"]):
                if clients and not sum(point["served"][site]):
                    return Check(what, FAILS, f"{name}, n={point['n']}: site {site + 1} served nothing")
    return Check(what, HOLDS, f"{requests} requests")


def _counters_remark(rows: list[Row], points: list[dict[str, Any]]) -> list[str]:
    """How far the scheduler's own counters are from what the clients got."""
    off, had = [], {}
    for row, point in zip(rows, points):
        if not point.get("counters"):
            continue
        service = _services_ns(point)
        had[row.n] = sum(service) / (1e9 * point["batch_s"] * len(point["served"][0]))
        if sum(service) > 0:
            off += [abs(ns / sum(service) - share.mean) for ns, share in zip(service, row.shares)]
    if not off:
        return []
    least = min(had, key=lambda n: had[n])
    return [f"The scheduler's own counters give the same shares of the sites' CPU time within {max(off):.3f}; all sites "
            f"together had at least {min(had[least], 1):.0%} of the servers' CPU (n={least}), the rest went to whatever else "
            "runs on this machine."]


def judge(data: dict[str, Any]) -> Judgement:
    quick = bool(data["quick"])
    rows = {name: [make_row(name, p) for p in half["points"]] for name, half in data["halves"].items()}
    shares = _shares_check(rows["with"], quick)
    ratio, ratio_mean, remarks = _ratio_check(data, quick)
    checks = [shares, ratio, _theory_check(rows["without"]), _honesty_check(data)]
    if "link" in data:
        checks += link_judge.checks(data["link"])
    else:
        remarks.append("The link-bound form was not measured in this run.")
    if "disk" in data:
        checks += disk_judge.checks(data["disk"])
    else:
        remarks.append("The disk-bound form was not measured in this run.")
    outcomes = {c.outcome for c in checks}
    verdict = FAIL if FAILS in outcomes else UNCLEAR.upper() if UNCLEAR in outcomes else PASS
    if quick:
        remarks.append("QUICK: short windows, judged on means; `make demo` measures longer and judges on intervals.")
    remarks += _counters_remark(rows["with"], data["halves"]["with"]["points"])
    first = {name: half[0] for name, half in rows.items()}
    if first["with"].n == first["without"].n == 0 and first["without"].total.mean > 0:
        alone = first["with"].rates[0].mean / first["without"].rates[0].mean
        drift = (first["with"].work_us or 1) / (first["without"].work_us or 1)
        remarks.append(f"Alone (n=0), site 1 may use what the others leave: with reservations it gets {alone:.2f} of its "
                       f"rate without (the same random numbers took {drift:.2f} of the CPU time).")
    return Judgement([*rows["without"], *rows["with"]], checks, verdict, _sentence(data, rows, checks, verdict,
                                                                                  ratio_mean), remarks)


def _sentence(data: dict[str, Any], rows: dict[str, list[Row]], checks: list[Check], verdict: str,
              ratio: float | None) -> str:
    one = {"apache": "one Apache for all sites, ", "nginx": "one nginx for all sites, "}
    server = one.get(data.get("server"), "")
    where = f"{server}{data['driver']} driver ({data['mechanism']}), kernel {data['environment']['kernel']}"
    if data["where"] != "here":
        where += f" in the {data['where']}"
    if verdict != PASS:
        bad = "; ".join(f"{c.what}: {c.outcome} ({c.found})" for c in checks if c.outcome != HOLDS)
        return f"{verdict}: {where}: {bad}."
    last = rows["without"][-1]
    least = min(s.mean for r in rows["with"] if r.n >= FEW_CLIENTS for s in r.shares)
    return (f"{verdict}: {where}: without reservations site 1 fell from {rows['without'][0].shares[0].mean:.0%} to "
            f"{last.shares[0].mean:.1%} of the service as its neighbours grew to {last.n} clients each; with them every "
            f"site kept at least {least:.1%} of it, and site 1 at n={RATIO_POINTS[0]} ran at {ratio:.2f} of its rate at "
            f"n={RATIO_POINTS[1]}." + (f" {link_judge.sentence(data['link'])}" if "link" in data else "")
            + (f" {disk_judge.sentence(data['disk'])}" if "disk" in data else ""))
