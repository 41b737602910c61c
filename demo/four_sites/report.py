# SPDX-License-Identifier: MIT OR Apache-2.0
"""Prints the table and the verdict, saves CSV and plots."""

import csv
import shutil
import subprocess
from pathlib import Path
from typing import Any

from . import disk_judge, link_judge, link_plot, plan
from .judge import HOLDS, Judgement
from .plot import draw
from .stats import Estimate


def _rate(e: Estimate) -> str:
    return f"{e.mean:7.2f} ±{min(e.half, 99.99):5.2f}"


def _share(e: Estimate) -> str:
    return f"{100 * e.mean:5.1f} ±{min(100 * e.half, 99.9):4.1f}"


def table(data: dict[str, Any], judgement: Judgement) -> list[str]:
    lines = []
    notes = "; ".join(data["halves"]["without"]["notes"])
    reserved = "; ".join(data["halves"]["with"]["notes"])
    for half, title in (("without", f"Without reservations ({notes})"),
                        ("with", f"With reservations ({reserved})")):
        heads = " ".join(f"{f'site {s + 1}':^14}" for s in range(plan.SITES))
        shares = " ".join(f"{f'site {s + 1}':^11}" for s in range(plan.SITES))
        lines += ["", title,
                  f"      requests per second, 95 % interval{'':{15 * plan.SITES - 39}} | share of all, %{'':{12 * plan.SITES - 17}}"
                  "| theory | CPU ms",
                  f"   n  {heads} | {shares} | site 1 | per job"]
        for row in (r for r in judgement.rows if r.half == half):
            theory = f"{100 * row.theory_site1:5.1f} " if half == "without" else "  -   "
            work = f"{row.work_us / 1000:6.2f}" if row.work_us else "   -"
            lines.append(f"  {row.n:2}  {' '.join(map(_rate, row.rates))} | {' '.join(map(_share, row.shares))} | {theory} | "
                         f"{work}")
    return lines + (link_judge.table(data["link"]) if "link" in data else []) + (disk_judge.table(data["disk"]) if "disk" in data else [])


def checks(judgement: Judgement) -> list[str]:
    return [f"  {'ok ' if c.outcome == HOLDS else c.outcome.upper()}  {c.what}: {c.found}" for c in judgement.checks]


def save_csv(judgement: Judgement, path: Path) -> None:
    with path.open("w", newline="") as f:
        out = csv.writer(f)
        out.writerow(["half", "n", "site", "rate_per_s", "rate_ci95", "share", "share_ci95", "work_us", "theory_site1"])
        for row in judgement.rows:
            for site in range(plan.SITES):
                rate, share = row.rates[site], row.shares[site]
                out.writerow([row.half, row.n, site + 1, f"{rate.mean:.4f}", f"{rate.half:.4f}", f"{share.mean:.5f}",
                              f"{share.half:.5f}", f"{row.work_us:.1f}" if row.work_us else "",
                              f"{row.theory_site1:.5f}" if row.half == "without" and site == 0 else ""])


def save_plots(data: dict[str, Any], judgement: Judgement, out: Path) -> list[Path]:
    svg = out / "demo.svg"
    svg.write_text(draw(data, judgement))
    if "link" in data:
        (out / "link.svg").write_text(link_plot.draw(data["link"], f"{data['date']}, kernel {data['environment']['kernel']}, {data['where']}; documents of 1.5 MB, one Apache for each site"))
    if "disk" in data:
        (out / "disk.svg").write_text(disk_judge.draw(data["disk"], f"{data['date']}, kernel {data['environment']['kernel']}, {data['where']}; 16 KiB at random places of a modelled disk"))
    if shutil.which("rsvg-convert") is None:
        print("  no PNG: rsvg-convert (Debian: librsvg2-bin) is missing")
        return [svg]
    png = out / "demo.png"
    subprocess.run(["rsvg-convert", "--zoom", "1.5", "--output", str(png), str(svg)], check=True)
    return [svg, png]


def report(data: dict[str, Any], judgement: Judgement, out: Path) -> None:
    print("\n".join(table(data, judgement)))
    print()
    print("\n".join(checks(judgement)))
    for remark in judgement.remarks:
        print(f"  {remark}")
    save_csv(judgement, out / "demo.csv")
    plots = save_plots(data, judgement, out)
    (out / "verdict.txt").write_text("\n".join([judgement.sentence, *checks(judgement), *judgement.remarks]) + "\n")
    print(f"\n{judgement.sentence}\n")
    print(f"Plot: {' and '.join(map(str, plots))}")
    print(f"Raw data: {out}/data.json, demo.csv and the servers' access logs beside them")
