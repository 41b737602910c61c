# SPDX-License-Identifier: MIT OR Apache-2.0
"""What is the same where a link is short and where a disk is: whether every site has its part of
the bytes, its table and its sentence. Pure: no file, no clock."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import judge, plan
from .plan import BASELINE, RESERVED, shares


def check(what: str, good: bool, found: str) -> "judge.Check":
    return judge.Check(what, judge.HOLDS if good else judge.FAILS, found)


@dataclass(frozen=True)
class Short:
    """What is short: its name, and what is expected of it."""

    name: str
    #: From so many clients of each neighbour on, every site must have its part.
    few: int
    #: Site 1's rate at the last of these points, of that at the first.
    ratio_bar: float
    #: Site 1's part without reservations, also in words, and how far it may be off.
    theory_site1: Callable[[int], float]
    theory: str
    theory_band: float
    rate: Callable[[dict[str, Any], int], float]
    #: The rate that is compared between points, if that is another.
    steady_rate: Callable[[dict[str, Any], int], float] | None = None

    def part_checks(self, data: dict[str, Any], unmeasured: str) -> list["judge.Check"]:
        with_, without = (data[half]["points"] for half in (RESERVED, BASELINE))
        many = [p for p in with_ if p["n"] >= self.few]
        if not many:
            return [check(f"{self.name}, with: every site has its part", False, unmeasured)]
        part, n, site = min((share, p["n"], site) for p in many for site, share in enumerate(shares(p)))
        out = [check(f"{self.name}, with: every site at least {judge.SHARE_BAR:.2f} of the bytes for n >= {self.few}", part >= judge.SHARE_BAR,
                     f"the least: site {site + 1} at n={n}, {part:.3f}")]
        if len(many) > 1:
            compared = self.steady_rate or self.rate
            ratio = compared(many[-1], 0) / max(compared(many[0], 0), 1e-9)
            out.append(check(f"{self.name}, with: site 1 at n={many[-1]['n']} at least {self.ratio_bar} of its rate at n={many[0]['n']}", ratio >= self.ratio_bar,
                             f"{ratio:.3f}"))
        off, n = max((abs(shares(p)[0] - self.theory_site1(p["n"])), p["n"]) for p in without)
        out.append(check(f"{self.name}, without: site 1 gets {self.theory} of the bytes, ± {self.theory_band:.2f}", off <= self.theory_band,
                         f"the farthest: n={n}, off by {off:.3f}"))
        return out

    def table(self, data: dict[str, Any], heading: str) -> list[str]:
        lines = ["", heading, "   n  " + " ".join(f"{f'site {s + 1}':^9}" for s in range(plan.SITES)) + " | without: theory, site 1, %"]
        for half in BASELINE, RESERVED:
            lines.append(f" {half} reservations")
            for p in data[half]["points"]:
                theory = f"{100 * self.theory_site1(p['n']):5.1f}, {100 * shares(p)[0]:5.1f} measured" if half == BASELINE else ""
                lines.append(f"  {p['n']:2}  " + " ".join(f"{self.rate(p, s):9.2f}" for s in range(plan.SITES)) + f" | {theory}")
        return lines

    def sentence(self, data: dict[str, Any]) -> str:
        last = {half: data[half]["points"][-1] for half in (BASELINE, RESERVED)}
        return (f"Where the {self.name} is short, site 1 had {shares(last[BASELINE])[0]:.1%} of it without and {shares(last[RESERVED])[0]:.1%} with reservations at "
                f"n={last[RESERVED]['n']}.")
