# SPDX-License-Identifier: MIT OR Apache-2.0
"""Lines over one axis, as SVG: what was measured, and dashed what theory expects. The elements are
the demonstration's. Pure."""

from dataclasses import dataclass, field

from .verdict import HOLDS  # makes the demonstration's modules known
from four_sites.plot import COLOURS, GREY, GRID, INK, MARKS, mark, nice_step, text

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 500, 80, 30, 84, 92
assert HOLDS


@dataclass(frozen=True)
class Line:
    label: str
    points: list[tuple[float, float]]
    theory: bool = False


@dataclass(frozen=True)
class Plot:
    title: str
    x: str
    y: str
    lines: list[Line] = field(default_factory=list)


def draw(plot: Plot, under: str) -> str:
    points = [p for line in plot.lines for p in line.points] or [(0.0, 0.0)]
    x_low, x_high = min(min(x for x, _ in points), 0.0), max(x for x, _ in points) or 1.0
    y_high = (max(y for _, y in points) or 1.0) * 1.08
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at(x: float, y: float) -> tuple[float, float]:
        return LEFT + width * (x - x_low) / ((x_high - x_low) or 1.0), TOP + height * (1 - y / y_high)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
           'font-family="DejaVu Sans, Helvetica, Arial, sans-serif">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           text(LEFT, 32, plot.title, 18, extra='font-weight="700"'), text(LEFT, 54, under, 12, colour=GREY)]
    step = nice_step(y_high, 6)
    for i in range(int(y_high / step + 1e-9) + 1):
        _, y = at(0, i * step)
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{GRID if i else INK}"/>')
        out.append(text(LEFT - 9, y + 5, f"{i * step:g}", 13, "end"))
    step = nice_step(x_high - x_low or 1.0, 10)
    for i in range(int((x_high - x_low) / step + 1e-9) + 1):
        x, y = at(x_low + i * step, 0)
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y:.1f}" y2="{y + 5:.1f}" stroke="{INK}"/>')
        out.append(text(x, y + 20, f"{x_low + i * step:g}", 13, "middle"))
    out.append(text(LEFT + width / 2, HEIGHT - BOTTOM + 42, plot.x, 14, "middle"))
    out.append(f'<text transform="translate(24 {TOP + height / 2:.0f}) rotate(-90)" font-size="14" text-anchor="middle" '
               f'fill="{INK}">{plot.y}</text>')
    x_legend = float(LEFT)
    for number, line in enumerate(plot.lines):
        colour, kind = COLOURS[number % len(COLOURS)], MARKS[number % len(MARKS)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*p) for p in line.points))
        dash = 'stroke-dasharray="5 5" stroke-width="1.2"' if line.theory else 'stroke-width="2.2"'
        out.append(f'<polyline points="{path}" fill="none" stroke="{GREY if line.theory else colour}" {dash}/>')
        if not line.theory and len(line.points) <= 60:
            out += [mark(kind, *at(*p), colour, 4) for p in line.points]
        y = HEIGHT - 20
        out.append(f'<line x1="{x_legend}" x2="{x_legend + 24}" y1="{y}" y2="{y}" stroke="{GREY if line.theory else colour}" {dash}/>')
        out.append(text(x_legend + 30, y + 5, line.label, 13))
        x_legend += 60 + 7.2 * len(line.label)
    return "\n".join([*out, "</svg>"]) + "\n"
