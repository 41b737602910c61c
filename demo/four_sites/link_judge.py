# SPDX-License-Identifier: MIT OR Apache-2.0
"""From the raw data of the link-bound form to its checks and table. Pure: no file, no clock.

What is promised (Eclipse/BSD §4, figures 8 and 9): with reservations every site has at least its 0.24 of the link, less 0.03, once the others have a few clients
each, and site 1 at the last point has 0.95 of what it had at the first of these; without, a site's part follows its clients, give or take 0.06 (TCP shares less exactly than a scheduler)."""

from typing import Any

from . import judge, plan
from .link import DEV, RATE_MBIT, RESERVED, BASELINE, shares, used

THEORY_BAND = 0.06
#: Of the link's rate, in bytes that arrived with their headers.
USED_BAR = 0.90


def mbit(point: dict[str, Any], site: int) -> float:
    return point["bytes"][site] * 8e-6 / point["seconds"]


def checks(data: dict[str, Any]) -> list["judge.Check"]:
    def check(what: str, good: bool, found: str) -> judge.Check:
        return judge.Check(what, judge.HOLDS if good else judge.FAILS, found)

    with_, without = (data[half]["points"] for half in (RESERVED, BASELINE))
    few = [p for p in with_ if p["n"] >= judge.FEW_CLIENTS]
    if not few:
        return [check("link, with: every site has its part", False, "no such point was measured")]
    part, n, site = min((share, p["n"], site) for p in few for site, share in enumerate(shares(p)))
    out = [check(f"link, with: every site at least {judge.SHARE_BAR:.2f} of the bytes for n >= {judge.FEW_CLIENTS}", part >= judge.SHARE_BAR,
                 f"the least: site {site + 1} at n={n}, {part:.3f}")]
    if len(few) > 1:
        ratio = mbit(few[-1], 0) / max(mbit(few[0], 0), 1e-9)
        out.append(check(f"link, with: site 1 at n={few[-1]['n']} at least {judge.RATIO_BAR} of its rate at n={few[0]['n']}", ratio >= judge.RATIO_BAR, f"{ratio:.3f}"))
    off, n = max((abs(shares(p)[0] - judge.theory_site1(p["n"])), p["n"]) for p in without)
    out.append(check(f"link, without: site 1 gets 8/(8+3n) of the bytes, ± {THEORY_BAND:.2f}", off <= THEORY_BAND, f"the farthest: n={n}, off by {off:.3f}"))
    least = min(used(p) for p in with_ + without)
    out.append(check(f"link: its {RATE_MBIT} Mbit/s are used to {USED_BAR:.0%}", least >= USED_BAR, f"the least: {least:.3f}"))
    errors = sum(row["not_2xx"] + row["socket_errors"] + row["timeouts"] for half in data.values() for row in half["wrk"])
    out.append(check("link: every request answered", errors == 0, f"{errors} errors"))
    return out


def table(data: dict[str, Any]) -> list[str]:
    lines = ["", f"Documents of 1.5 MB over a link of {RATE_MBIT} Mbit/s ({DEV}): Mbit/s of each site",
             "   n  " + " ".join(f"{f'site {s + 1}':^9}" for s in range(plan.SITES)) + " | without: theory, site 1, %"]
    for half in BASELINE, RESERVED:
        lines.append(f" {half} reservations")
        for p in data[half]["points"]:
            theory = f"{100 * judge.theory_site1(p['n']):5.1f}, {100 * shares(p)[0]:5.1f} measured" if half == BASELINE else ""
            lines.append(f"  {p['n']:2}  " + " ".join(f"{mbit(p, s):9.2f}" for s in range(plan.SITES)) + f" | {theory}")
    return lines


def sentence(data: dict[str, Any]) -> str:
    last = {half: data[half]["points"][-1] for half in (BASELINE, RESERVED)}
    return (f"Where the link is short, site 1 had {shares(last[BASELINE])[0]:.1%} of it without and {shares(last[RESERVED])[0]:.1%} with reservations at "
            f"n={last[RESERVED]['n']}.")
