# SPDX-License-Identifier: MIT OR Apache-2.0
"""docs/papers.md: every table and figure of the papers, what they claim and what was recorded here,
side by side. From papers.toml, the specifications, and the recorded verdicts and data."""

import json
import tomllib
from pathlib import Path
from typing import Any

from .spec import ROOT, Spec, SpecError

PAGE = ROOT.parent / "docs" / "papers.md"
HEAD = """# The papers' tables and figures

Reserv is made of four papers. Here is each of their results, what they say of it, and what was
measured here. `experiments/run --papers` writes this page from what is recorded
(`experiments/*/*/recorded`, `demo/recorded`); how an experiment differs from the paper's stands in
its `spec.toml`. A bound stands in brackets behind the figure that it is for.
[experiments/README.md](../experiments/README.md) says how to run them.

"""
WIDTH = 100
# A table of more lines is a link.
TABLE = 20


def wrap(text: str, first: str = "", rest: str = "") -> list[str]:
    """Lines of at most so many columns; a word that is longer has its own."""
    lines, line = [], first
    for word in text.split():
        if line.strip() and len(line) + 1 + len(word) > WIDTH and line not in (first, rest):
            lines.append(line)
            line = rest
        line += word if line in (first, rest) else f" {word}"
    return [*lines, line]


def relative(path: Path) -> str:
    return f"../{path.relative_to(ROOT.parent)}"


def found(folder: Path) -> tuple[str, list[str]]:
    """The verdict of a recorded run, and its lines."""
    lines = (folder / "verdict.txt").read_text().splitlines()
    checks = [line.strip() for line in lines[1:] if line.startswith("  ")]
    return lines[0].split(":")[0], [check.split(None, 1)[1] for check in checks]


def recorded(folder: Path) -> list[str]:
    verdict, checks = found(folder)
    plots = sorted(folder.glob("*.svg"))
    data = json.loads((folder / "data.json").read_text())
    # The demo's data has where and when in its environment.
    around = data.get("environment", {})
    known = data.get("date") or around.get("date"), around.get("kernel")
    where = ", ".join(str(word) for word in known if word)
    links = [f"[{plot.stem}]({relative(plot)})" for plot in plots]
    table = folder / "table.txt"
    rows = table.read_text().splitlines() if table.exists() else []
    short = 0 < len(rows) <= TABLE and max(map(len, rows)) <= WIDTH
    if rows and not short:
        links.append(f"[table]({relative(table)})")
    links.append(f"[data]({relative(folder / 'data.json')})")
    lines = wrap(f"**Here: {verdict}** ({where}; {', '.join(links)})")
    lines.append("")
    for check in checks:
        lines += wrap(check, "* ", "  ")
    return lines + (["", "```", *rows, "```"] if short else [])


def item(entry: dict[str, Any], by_name: dict[str, Spec]) -> list[str]:
    spec = by_name.get(entry.get("experiment", ""))
    title = f"### {entry['what']}"
    if spec and ":" not in title:
        title += f": {spec.values['title']}"
    claim = spec.values["claim"] if spec else entry["claim"]
    lines = [title, "", *wrap(f"*The paper:* {claim}"), ""]
    if spec:
        folder = spec.folder / "recorded"
        lines += recorded(folder) if folder.is_dir() else ["**Here:** nothing is recorded."]
    elif "recorded" in entry:
        lines += recorded(ROOT.parent / entry["recorded"])
    else:
        lines += wrap(f"**Here:** {entry['missing']}.")
    if "note" in entry:
        lines += ["", *wrap(entry["note"])]
    return [*lines, ""]


def page(specs: list[Spec], listed: dict[str, Any] | None = None) -> str:
    listed = listed or tomllib.loads((ROOT / "papers.toml").read_text())
    by_name = {spec.name: spec for spec in specs}
    named, lines = set(), []
    table = ["| paper | of the entries below measured | not yet |", "|---|---|---|"]
    for paper in listed["paper"]:
        missing = 0
        lines += [f"## {paper['title']}", "", *wrap(paper["cite"] + "."), ""]
        for entry in paper["item"]:
            name = entry.get("experiment")
            if name is not None and name not in by_name:
                raise SpecError(f"papers.toml: there is no experiment {name}")
            if sum(key in entry for key in ("experiment", "recorded", "missing")) != 1:
                what = entry["what"]
                raise SpecError(f"papers.toml: {what}: one of experiment, recorded, missing")
            named.add(name)
            spec = by_name.get(name)
            # What is only specified was not measured.
            unrecorded = spec is not None and not (spec.folder / "recorded").is_dir()
            missing += "missing" in entry or unrecorded
            lines += item(entry, by_name)
        table.append(f"| {paper['title']} | {len(paper['item']) - missing} | {missing} |")
    left = [s for s in specs if s.name not in named]
    papers = [s.name for s in left if not str(s.folder.relative_to(ROOT)).startswith("more/")]
    if papers:
        raise SpecError(f"papers.toml does not name {', '.join(papers)}")
    lines += ["## What no paper has", ""]
    for spec in left:
        lines += item({"what": spec.name, "experiment": spec.name}, by_name)
    return HEAD + "\n".join([*table, "", *lines]).rstrip() + "\n"
