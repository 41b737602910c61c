# SPDX-License-Identifier: MIT OR Apache-2.0
"""The specifications: experiments/<paper>/<figure>/spec.toml. Keys:

    name, title      Q-F5a; what it shows in a line
    source           paper and section
    claim            what the paper says
    workload         what runs here, in words; what differs from the paper
    where            "guest" (options in `guest`), "here", or "none" with `reason`: it cannot be run
                     yet
    guest            options of vm/run
    [band]           the acceptance band: names and numbers that experiment.py judges by
    [quick_band]     what of it is wider in the quick form, where a step counts for more
    [full] [quick]   numbers of the two forms, with `limit_s`, seconds of this machine's clock
"""

import importlib.util
import tomllib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NEEDED = ("name", "title", "source", "claim", "workload", "where", "band", "full", "quick")


class SpecError(Exception):
    """A specification is not what it must be."""


@dataclass(frozen=True)
class Spec:
    folder: Path
    values: dict[str, Any]

    @property
    def name(self) -> str:
        return self.values["name"]

    @property
    def where(self) -> str:
        return self.values["where"]

    @property
    def band(self) -> dict[str, Any]:
        return self.values["band"]

    def band_of(self, quick: bool) -> dict[str, Any]:
        return {**self.band, **(self.values.get("quick_band", {}) if quick else {})}

    def form(self, quick: bool) -> dict[str, Any]:
        return self.values["quick" if quick else "full"]

    def module(self) -> ModuleType:
        """experiment.py beside it: measure(machine, form) -> data, rows(data), judge(data, band),
        and plot(data)."""
        path = self.folder / "experiment.py"
        found = importlib.util.spec_from_file_location(f"experiment_{self.name.replace('-', '_')}", path)
        if found is None or found.loader is None:
            raise SpecError(f"{path} cannot be read")
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
        return module


def load(path: Path) -> Spec:
    try:
        values = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path}: {error}") from error
    missing = [key for key in NEEDED if key not in values]
    if missing:
        raise SpecError(f"{path}: {', '.join(missing)} missing")
    if values["where"] not in ("guest", "here", "none") or (values["where"] == "none" and "reason" not in values):
        raise SpecError(f"{path}: where is guest, here, or none with a reason")
    return Spec(path.parent, values)


def all_specs() -> list[Spec]:
    return sorted((load(path) for path in ROOT.glob("*/*/spec.toml")), key=lambda s: s.name)


def find(name: str) -> Spec:
    specs = all_specs()
    for spec in specs:
        if spec.name.lower() == name.lower():
            return spec
    raise SpecError(f"there is no experiment {name}; there are {', '.join(s.name for s in specs)}")
