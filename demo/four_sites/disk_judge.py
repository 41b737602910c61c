# SPDX-License-Identifier: MIT OR Apache-2.0
"""From the raw data of the disk-bound form to its checks, table and plot. Pure: no file, no clock.

What is promised: with reservations every site has at least its 0.24 of what the disk serves, less
0.03, however many readers the others have, and site 1 at the last point 0.90 of what it had at the
first (an arm's times are random); without, in one queue, a site's part follows its readers, give or
take 0.04; and the disk serves at least 0.90 with reservations of what it serves without.

Rates are of the time in which the disk's server did not wait for a CPU: on a busy machine the
modelled disk stands idle meanwhile, in either half, and that is no cost of reservations. Where it
waited for more than a tenth of the time, a fall says nothing."""

from typing import Any

from . import judge
from .disk import SITE1_READERS, rate, steady_rate, theory_site1, waited
from .parts import Short, check
from .plan import BASELINE, RESERVED, SITES, shares
from .plot import COLOURS, GREY, GRID, INK, text

THEORY_BAND = 0.04
RATIO_BAR = 0.90
TOTAL_BAR = 0.90
#: From this part of the time on in which the server waited for a CPU, a fall says nothing.
WAITED_MAX = 0.10

SHORT = Short("disk", SITE1_READERS, RATIO_BAR, theory_site1, "4/(4+3n)", THEORY_BAND, rate, steady_rate)


def total(point: dict[str, Any]) -> float:
    return sum(steady_rate(point, site) for site in range(SITES))


def total_check(data: dict[str, Any]) -> "judge.Check":
    pairs = list(zip(data[BASELINE]["points"], data[RESERVED]["points"]))
    without, with_ = min(pairs, key=lambda pair: total(pair[1]) / max(total(pair[0]), 1e-9))
    ratio, idle = total(with_) / max(total(without), 1e-9), max(waited(p) for p in (without, with_))
    outcome = judge.HOLDS if ratio >= TOTAL_BAR else judge.UNCLEAR if idle > WAITED_MAX else judge.FAILS
    waits = f"its server waited for a CPU {idle:.1%} of the time" if "server_waited_s" in with_ else "how long its server waited for a CPU was not measured"
    return judge.Check(f"disk, with: it serves at least {TOTAL_BAR:.2f} of what it serves without", outcome, f"the least: n={with_['n']}, {ratio:.3f}; {waits}")


def checks(data: dict[str, Any]) -> list["judge.Check"]:
    unmeasured = "no such points were measured"
    with_, without = ([p["n"] for p in data[half]["points"]] for half in (RESERVED, BASELINE))
    if with_ != without:
        return [check("disk, with: every site has its part", False, unmeasured)]
    return [*SHORT.part_checks(data, unmeasured), total_check(data)]


def table(data: dict[str, Any]) -> list[str]:
    return SHORT.table(data, "Reads of 16 KiB at random places of a modelled disk with an arm: requests per second of each site")


def sentence(data: dict[str, Any]) -> str:
    return SHORT.sentence(data)


WIDTH, HEIGHT, LEFT, TOP, BAR, GAP = 860, 360, 80, 84, 46, 34


def draw(data: dict[str, Any], under: str) -> str:
    """What each site has of the disk, a bar for each point, one site on top of the other."""
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
           'font-family="DejaVu Sans, Helvetica, Arial, sans-serif">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           text(LEFT, 32, "Whose the reads of a disk with an arm are", 18, extra='font-weight="700"'), text(LEFT, 54, under, 12, colour=GREY)]
    height = HEIGHT - TOP - 80
    for tick in range(0, 101, 25):
        y = TOP + height * (1 - tick / 100)
        out += [f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - 30}" y2="{y:.1f}" stroke="{GRID}"/>', text(LEFT - 46, y + 4, f"{tick} %", 12, colour=GREY)]
    x = float(LEFT + GAP)
    for half in BASELINE, RESERVED:
        begin = x
        for point in data[half]["points"]:
            y = float(TOP + height)
            for site, share in enumerate(shares(point)):
                y -= height * share
                colour = COLOURS[0] if site == 0 else (GREY, GRID, GREY)[site - 1]
                out.append(f'<rect class="part" x="{x:.1f}" y="{y:.1f}" width="{BAR}" height="{height * share:.1f}" fill="{colour}" stroke="white"/>')
            out.append(text(x, TOP + height + 18, f"n={point['n']}", 12, colour=GREY))
            x += BAR + GAP
        out.append(text(begin, TOP + height + 38, f"{half} reservations", 13, colour=INK))
        x += 3 * GAP
    out += [f'<rect x="{LEFT}" y="{HEIGHT - 28}" width="12" height="12" fill="{COLOURS[0]}"/>', text(LEFT + 18, HEIGHT - 18, f"site 1, {SITE1_READERS} readers; grey: sites 2-4, n readers each", 13, colour=INK)]
    return "\n".join([*out, "</svg>"]) + "\n"
