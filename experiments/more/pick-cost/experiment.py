# SPDX-License-Identifier: MIT OR Apache-2.0
"""The core's own benchmark, judged."""
import json
import os
import shutil
import subprocess

from harness.machine import ROOT, MachineError, NotRun
from harness.plot import Line, Plot
from harness.verdict import at_most


def measure(m, form):
    del m
    cargo = shutil.which("cargo", path=os.environ.get("PATH", "") + os.pathsep + os.path.expanduser("~/.cargo/bin"))
    if cargo is None or not (ROOT / "Cargo.toml").exists():
        raise NotRun("it needs the source tree and cargo")
    bench = [cargo, "bench", "-q", "-p", "reserv-oracle", "--bench", "sched-bench"]
    # Built first: that takes as long as it takes, and is no part of the time allowed.
    built = subprocess.run([*bench, "--no-run"], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if built.returncode:
        raise MachineError(f"cargo bench: {built.stderr.strip()[-500:]}")
    done = subprocess.run([*bench, "--", "--json"], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=form["limit_s"], check=True)
    return {"rows": json.loads(done.stdout.splitlines()[-1])}


def cost(data, queues, depth):
    return next(r["ns_per_decision"] for r in data["rows"] if (r["queues"], r["depth"]) == (queues, depth))


def judge(data, band):
    base = cost(data, 10, 1)
    return [at_most("10 000 queues against 10, depth 1", cost(data, 10000, 1) / base, band["queues"], ".2f"),
            at_most("depth 8 against depth 1, 10 queues", cost(data, 10, 8) / base, band["depth"], ".2f")]


def rows(data):
    return ["queues", "depth", "ns"], [[r["queues"], r["depth"], r["ns_per_decision"]] for r in data["rows"]]


def plot(data):
    queues = sorted({r["queues"] for r in data["rows"]})
    return Plot("ns for a pick and a settlement", "depth", "ns",
                [Line(f"{q} queues", [(r["depth"], r["ns_per_decision"]) for r in data["rows"] if r["queues"] == q]) for q in queues])
