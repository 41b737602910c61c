# SPDX-License-Identifier: MIT OR Apache-2.0
"""The plot: request rate of every site against n, without and with reservations. Pure; writes SVG.

Everything drawn as a point, a line or a bar is measured. The one thing that is not, what theory
expects of site 1, is dashed and labelled as theory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from . import plan

if TYPE_CHECKING:  # judge imports disk_judge, which imports this
    from .judge import Judgement, Row

WIDTH, HEIGHT = 1120, 600
TOP, BOTTOM, LEFT, RIGHT, GAP = 118, 92, 76, 34, 56
PANEL_W = (WIDTH - LEFT - RIGHT - GAP) / 2
PANEL_H = HEIGHT - TOP - BOTTOM
INK, GREY, GRID = "#222222", "#7a7a7a", "#e4e4e4"
#: Of what is not measured; dashed, too.
THEORY = "#333333"
#: Okabe and Ito's colours, which stay apart for colour-blind eyes, with different marks besides.
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7")
MARKS = ("circle", "square", "triangle", "diamond")
#: Where sites get the same service their marks would hide each other: sites 2..4 are set aside by so many pixels.
ASIDE = (0.0, -7.0, 7.0, 14.0)


def nice_step(top: float, ticks: int) -> float:
    """A step of 1, 2 or 5 times a power of ten that gives at most `ticks` steps up to `top`."""
    raw = top / ticks
    power = 10.0 ** math.floor(math.log10(raw))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= raw * (1 - 1e-9))


def mark(kind: str, x: float, y: float, colour: str, size: float) -> str:
    if kind == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}" fill="{colour}"/>'
    if kind == "square":
        s = size * 0.9
        return f'<rect x="{x - s:.1f}" y="{y - s:.1f}" width="{2 * s:.1f}" height="{2 * s:.1f}" fill="{colour}"/>'
    s = size * 1.2
    corners = {"triangle": [(0, -s), (s, s * 0.8), (-s, s * 0.8)], "diamond": [(0, -s), (s, 0), (0, s), (-s, 0)]}[kind]
    return (f'<polygon points="{" ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)}" '
            f'fill="{colour}"/>')


def text(x: float, y: float, words: str, size: int = 14, anchor: str = "start", colour: str = INK,
         extra: str = "") -> str:
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}" {extra}>'
            f'{escape(words)}</text>')


class Panel:
    """One half."""

    def __init__(self, rows: list[Row], left: float, n_max: int, rate_max: float):
        self.rows = rows
        self.left = left
        self.n_max = n_max
        self.rate_max = rate_max

    def x(self, n: float) -> float:
        return self.left + 20 + (PANEL_W - 40) * n / self.n_max

    def y(self, rate: float) -> float:
        return TOP + PANEL_H * (1 - min(rate, self.rate_max) / self.rate_max)

    def frame(self, title: str, subtitle: str, labels: bool) -> list[str]:
        out = [text(self.left, TOP - 32, title, 17, extra='font-weight="600"'),
               text(self.left, TOP - 12, subtitle, 13, colour=GREY)]
        step = nice_step(self.rate_max, 6)
        for i in range(int(self.rate_max / step + 1e-9) + 1):
            y = self.y(i * step)
            out.append(f'<line x1="{self.left:.1f}" x2="{self.left + PANEL_W:.1f}" y1="{y:.1f}" y2="{y:.1f}" '
                       f'stroke="{GRID if i else INK}" stroke-width="1"/>')
            if labels:
                out.append(text(self.left - 9, y + 5, f"{i * step:g}", 13, "end"))
        for n in (r.n for r in self.rows):
            out.append(f'<line x1="{self.x(n):.1f}" x2="{self.x(n):.1f}" y1="{TOP + PANEL_H:.1f}" '
                       f'y2="{TOP + PANEL_H + 5:.1f}" stroke="{INK}"/>')
            out.append(text(self.x(n), TOP + PANEL_H + 21, str(n), 13, "middle"))
        out.append(text(self.left + PANEL_W / 2, TOP + PANEL_H + 44, "n: clients of each of sites 2, 3 and 4", 14,
                        "middle"))
        return out

    def theory(self, points: list[tuple[float, float]], label: str) -> list[str]:
        """`points`: (n, requests per second)."""
        path = " ".join(f"{self.x(n):.1f},{self.y(r):.1f}" for n, r in points)
        style = f'fill="none" stroke="{THEORY}" stroke-width="1.2" stroke-dasharray="5 5"'
        right, y = self.left + PANEL_W, TOP + 16
        return [f'<polyline points="{path}" {style}/>', text(right, y + 4, label, 12, "end", GREY),
                f'<path d="M{right - 6.1 * len(label) - 42:.1f} {y}h30" {style}/>']

    def site(self, site: int) -> list[str]:
        colour, out = COLOURS[site], []
        rows = [r for r in self.rows if site == 0 or r.n > 0]
        path = " ".join(f"{self.x(r.n) + ASIDE[site]:.1f},{self.y(r.rates[site].mean):.1f}" for r in rows)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" '
                   f'stroke-width="{3 if site == 0 else 1.6}" stroke-linejoin="round"/>')
        for r in rows:
            x, rate = self.x(r.n) + ASIDE[site], r.rates[site]
            if math.isfinite(rate.half):
                top, low = self.y(rate.high), self.y(max(rate.low, 0.0))
                out.append(f'<path d="M{x:.1f} {top:.1f}V{low:.1f}M{x - 3:.1f} {top:.1f}h6M{x - 3:.1f} {low:.1f}h6" '
                           f'stroke="{colour}" stroke-width="1.4" fill="none"/>')
            out.append(mark(MARKS[site], x, self.y(rate.mean), colour, 5.2 if site == 0 else 4))
        return out

    def site1_words(self) -> list[str]:
        """What site 1 has at the first and at the last point."""
        first, last = self.rows[0], self.rows[-1]
        lowest = last.rates[0].mean < 0.8 * min(e.mean for e in last.rates[1:])
        bars = [e.high if math.isfinite(e.high) else e.mean for e in last.rates]
        places = [(first, "start", 12.0, self.y(first.rates[0].mean) + 5)]
        if last is not first:
            places.append((last, "end", 20.0, self.y(last.rates[0].mean) + 22 if lowest else self.y(max(bars)) - 10))
        return [text(self.x(r.n) + dx, y, f"site 1: {r.rates[0].mean:.3g}/s, {100 * r.shares[0].mean:.3g} % of all", 13,
                     anchor, COLOURS[0], 'font-weight="600" stroke="white" stroke-width="3" paint-order="stroke"')
                for r, anchor, dx, y in places]


def legend() -> list[str]:
    out, x = [], float(LEFT)
    for site in range(plan.SITES):
        words = f"site 1: always {plan.SITE1_CLIENTS} clients" if site == 0 else f"site {site + 1}: n clients"
        y = HEIGHT - 20
        out += [f'<line x1="{x:.1f}" x2="{x + 26:.1f}" y1="{y}" y2="{y}" stroke="{COLOURS[site]}" '
                f'stroke-width="{3 if site == 0 else 1.6}"/>', mark(MARKS[site], x + 13, y, COLOURS[site], 5),
                text(x + 34, y + 5, words, 13)]
        x += 210 if site == 0 else 150
    out.append(text(WIDTH - RIGHT, HEIGHT - 15, "bars: 95 % confidence; dashed: theory, not measured", 12, "end", GREY))
    return out


def draw(data: dict[str, Any], judgement: Judgement) -> str:
    halves = {name: [r for r in judgement.rows if r.half == name] for name in ("without", "with")}
    peak = max(e.high if math.isfinite(e.high) else e.mean for r in judgement.rows for e in r.rates)
    rate_max = max(peak, 1e-9) * 1.06
    n_max = max(r.n for r in judgement.rows) or 1
    left = Panel(halves["without"], LEFT, n_max, rate_max)
    right = Panel(halves["with"], LEFT + PANEL_W + GAP, n_max, rate_max)
    # Theory speaks of shares; to stand among rates it is multiplied by the total rate measured at
    # that n.
    follows = [(r.n, r.theory_site1 * r.total.mean) for r in halves["without"]]
    weights = plan.SITE_WEIGHT / (plan.SITES * plan.SITE_WEIGHT + plan.Q0_WEIGHT)
    promised = [(r.n, weights * r.total.mean) for r in halves["with"] if r.n > 0]
    where = "" if data["where"] == "here" else f" in the {data['where']}"
    server = data.get("server", "four")
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
           'font-family="DejaVu Sans, Helvetica, Arial, sans-serif">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           text(LEFT, 32, "Four companies' web servers on one CPU: what site 1 keeps when its neighbours grow", 20,
                extra='font-weight="700"'),
           text(LEFT, 55, f"{plan.SERVERS[server].rstrip(',')}; {plan.REQUESTS[server]}; {data['driver']} driver "
                f"({data['mechanism']}), kernel {data['environment']['kernel']}{where}, {data['date']}", 13,
                colour=GREY),
           *left.frame("Without reservations", "; ".join(data["halves"]["without"]["notes"]), True),
           *right.frame("With reservations",
                        "; ".join(data["halves"]["with"]["notes"]), True),
           f'<text transform="translate(26 {TOP + PANEL_H / 2:.0f}) rotate(-90)" font-size="14" '
           f'text-anchor="middle" fill="{INK}">requests served per second</text>']
    for panel in (left, right):
        for site in reversed(range(plan.SITES)):
            out += panel.site(site)
        out += panel.site1_words()
    # On top, because a site that follows theory would hide it.
    out += left.theory(follows, "theory: 8/(8+3n) of the total")
    if promised:
        out += right.theory(promised, f"promise: {weights:.2f} of the total")
    return "\n".join([*out, *legend(), "</svg>"]) + "\n"
