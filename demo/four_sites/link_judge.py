# SPDX-License-Identifier: MIT OR Apache-2.0
"""From the raw data of the link-bound form to its checks and table. Pure: no file, no clock.

What is promised (Eclipse/BSD §4, figures 8 and 9): with reservations every site has at least its
0.24 of the link, less 0.03, once the others have a few clients each, and site 1 at the last point
has 0.95 of what it had at the first of these; without, a site's part follows its clients, give or
take 0.06 (TCP shares less exactly than a scheduler)."""

from typing import Any

from . import judge
from .link import DEV, RATE_MBIT, used
from .parts import Short, check
from .plan import BASELINE, RESERVED

THEORY_BAND = 0.06
#: Of the link's rate, in bytes that arrived with their headers.
USED_BAR = 0.90


def mbit(point: dict[str, Any], site: int) -> float:
    return point["bytes"][site] * 8e-6 / point["seconds"]


def short() -> Short:
    # Judge imports this module, and is whole when this is called.
    return Short("link", judge.FEW_CLIENTS, judge.RATIO_BAR, judge.theory_site1, "8/(8+3n)", THEORY_BAND, mbit)


def checks(data: dict[str, Any]) -> list["judge.Check"]:
    out = short().part_checks(data, "no such point was measured")
    if len(out) == 1:  # nothing was measured
        return out
    with_, without = (data[half]["points"] for half in (RESERVED, BASELINE))
    least = min(used(p) for p in with_ + without)
    out.append(check(f"link: its {RATE_MBIT} Mbit/s are used to {USED_BAR:.0%}", least >= USED_BAR, f"the least: {least:.3f}"))
    errors = sum(row["not_2xx"] + row["socket_errors"] + row["timeouts"] for half in data.values() for row in half["wrk"])
    out.append(check("link: every request answered", errors == 0, f"{errors} errors"))
    return out


def table(data: dict[str, Any]) -> list[str]:
    return short().table(data, f"Documents of 1.5 MB over a link of {RATE_MBIT} Mbit/s ({DEV}): Mbit/s of each site")


def sentence(data: dict[str, Any]) -> str:
    return short().sentence(data)
