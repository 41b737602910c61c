# SPDX-License-Identifier: MIT OR Apache-2.0
"""The churn test, as an experiment: its checks are the bands."""
import os
import subprocess

from harness.machine import ROOT, NotRun
from harness.plot import Plot
from harness.verdict import FAILS, HOLDS, Check


def measure(m, form):
    if not (ROOT / "tests/guest/e2e_churn").exists():
        raise NotRun("it needs the source tree")
    env = {**os.environ, "CHURN_SECONDS": str(form["seconds"]), "RESERV_TEST_BIN": str(m.reserv_program.parent)}
    done = subprocess.run([str(ROOT / "tests/guest/e2e_churn")], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env,
                          timeout=form["limit_s"], check=False)
    return {"status": done.returncode, "lines": done.stdout.splitlines(), "errors": done.stderr.splitlines()[-20:]}


def judge(data, band):
    del band
    checks = []
    for line in data["lines"]:
        verb, _, text = line.partition(" - ")
        if verb in ("ok", "not ok"):
            what, _, found = text.partition(": ")
            checks.append(Check(what, HOLDS if verb == "ok" else FAILS, found or "as promised"))
    checks.append(Check("it ran to its end", HOLDS if data["status"] == 0 and len(checks) >= 8 else FAILS,
                        f"status {data['status']}, {len(checks)} checks {' '.join(data['errors'][-2:])}"))
    return checks


def rows(data):
    return ["check"], [[line] for line in data["lines"]]


def plot(data):
    del data
    return Plot("No picture: see the checks", "", "", [])
