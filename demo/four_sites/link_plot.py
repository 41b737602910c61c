# SPDX-License-Identifier: MIT OR Apache-2.0
"""The link-bound form's plot: site 1's part of the link. Pure; writes SVG."""

from typing import Any

from . import judge
from .link import RATE_MBIT
from .plan import BASELINE, RESERVED, shares
from .plot import COLOURS, GREY, GRID, INK, MARKS, mark, text

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 460, 80, 30, 84, 92


def draw(data: dict[str, Any], under: str) -> str:
    """Site 1's part of the link against n."""
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    most = max(p["n"] for half in data.values() for p in half["points"]) or 1

    def at(n: float, part: float) -> tuple[float, float]:
        return LEFT + width * n / most, TOP + height * (1 - part)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
           'font-family="DejaVu Sans, Helvetica, Arial, sans-serif">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           text(LEFT, 32, f"Site 1's part of a link of {RATE_MBIT} Mbit/s", 18, extra='font-weight="700"'), text(LEFT, 54, under, 12, colour=GREY)]
    for tick in range(0, 11, 2):
        x, y = at(0, tick / 10)
        out += [f'<line x1="{x}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="{GRID}"/>', text(x - 34, y + 4, f"{tick * 10} %", 12, colour=GREY)]
    for n in sorted({p["n"] for half in data.values() for p in half["points"]}):
        out.append(text(at(n, 0)[0] - 4, TOP + height + 18, str(n), 12, colour=GREY))
    out.append(text(LEFT, TOP + height + 40, "clients of each of sites 2-4; site 1 has 8", 12, colour=INK))
    theory = " ".join("%.1f,%.1f" % at(n, judge.theory_site1(n)) for n in range(most + 1))
    out.append(f'<polyline points="{theory}" fill="none" stroke="{INK}" stroke-dasharray="5 4"/>')
    for i, half in enumerate((BASELINE, RESERVED)):
        places = [at(p["n"], shares(p)[0]) for p in data[half]["points"]]
        out.append(f'<polyline points="{" ".join("%.1f,%.1f" % p for p in places)}" fill="none" stroke="{COLOURS[i]}" stroke-width="2"/>')
        out += [mark(MARKS[i], x, y, COLOURS[i], 5) for x, y in places]
        out.append(text(LEFT + 190 * i, HEIGHT - 18, f"{half} reservations", 13, colour=COLOURS[i]))
    out.append(text(LEFT + 400, HEIGHT - 18, "dashed: 8 / (8 + 3 n)", 13, colour=INK))
    return "\n".join([*out, "</svg>"]) + "\n"
