# SPDX-License-Identifier: MIT OR Apache-2.0
"""The churn test, as an experiment: its checks, and the bands of what it tells of each second."""
import json
import os
import subprocess

from harness.machine import ROOT, NotRun
from harness.plot import Line, Plot
from harness.verdict import FAILS, HOLDS, Check, at_least, at_most


def measure(m, form):
    if not (ROOT / "tests/guest/e2e_churn").exists():
        raise NotRun("it needs the source tree")
    env = {**os.environ, "CHURN_SECONDS": str(form["seconds"]), "RESERV_TEST_BIN": str(m.reserv_program.parent)}
    done = subprocess.run([str(ROOT / "tests/guest/e2e_churn")], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env,
                          timeout=form["limit_s"], check=False)
    return {"status": done.returncode, "lines": done.stdout.splitlines(), "errors": done.stderr.splitlines()[-20:]}


def told(data):
    """Of each second: when it ended, edits, the longest standstill in ns."""
    return [second for line in data["lines"] if line.startswith("# seconds ") for second in json.loads(line.removeprefix("# seconds "))]


def judge(data, band):
    checks, seconds = [], told(data)
    if seconds:
        checks.append(at_least("edits a second", sum(edits for _, edits, _ in seconds) / seconds[-1][0], band["edits_s"], ".0f"))
        checks.append(at_most("the longest standstill of all, ms", max(gap for *_, gap in seconds) / 1e6, band["stall_ms"], ".1f"))
    for line in data["lines"]:
        verb, _, text = line.partition(" - ")
        if verb in ("ok", "not ok"):
            what, _, found = text.partition(": ")
            checks.append(Check(what, HOLDS if verb == "ok" else FAILS, found or "as promised"))
    checks.append(Check("it ran to its end", HOLDS if data["status"] == 0 and seconds and len(checks) >= 11 else FAILS,
                        f"status {data['status']}, {len(checks)} checks {' '.join(data['errors'][-2:])}"))
    return checks


def rows(data):
    return ["second", "edits", "longest_standstill_ms"], [[end, edits, gap / 1e6] for end, edits, gap in told(data)]


def plot(data):
    return Plot("The longest time in which nobody got on, in each second of a thousand edits", "second", "ms",
                [Line("longest standstill", [(end, gap / 1e6) for end, _, gap in told(data)]),
                 Line("two quanta and their ticks", [(end, 16) for end, *_ in told(data)], theory=True)])
