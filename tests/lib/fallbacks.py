# SPDX-License-Identifier: MIT OR Apache-2.0
"""The full CPU driver as on a kernel that lacks something for which bpf/compat.h has a fallback.
The kernel here has all of it: RESERV_FALLBACKS says what is to be taken as missing."""
import json
import os
import subprocess
import time

from cgroups import Cgroups, ran
from live import Live, check

# As crates/plane/src/cpu/full/compat.rs has them (a unit test there compares that with
# bpf/compat.h).
NAMES = "insert", "slice", "vtime", "dead", "idle", "bandwidth"


def share_of(hogs, seconds):
    """What each had of one CPU."""
    start, before = time.monotonic(), [ran(hog) for hog in hogs]
    time.sleep(seconds)
    took = time.monotonic() - start
    return [(ran(hog) - b) / took / 1e9 for hog, b in zip(hogs, before)]


def told(live, names):
    """What doctor says of them."""
    found = [one for one in json.loads(live.reserv("--json", "doctor").stdout)["checks"] if one["name"] == "fallback"]
    said = [one["found"].split(":")[0] for one in found]
    check(said == list(names), "doctor names each fallback", said)
    check(all(one["verdict"] == "note" and one["means"].startswith("costs ") for one in found), "and what it costs")


def weights(live):
    live.mk("a", 100)
    live.mk("b", 300)
    live.spin("a")
    live.spin("b")
    live.all_run(["a", "b"])
    got = live.shares(["a", "b"], 1)
    check(abs(got[1] - 0.75) < 0.04, "weights hold, 1:3", f"{got[1]:.4f}")
    live.kill_load()


def ends(live):
    """Threads that end give back what they have; those of another class too."""
    before = int(live.stat("q0")["members"])
    child = ["sh", "-c", "i=0; while [ $i -lt 60 ]; do (:); i=$((i+1)); done"]
    subprocess.run(child, check=True)
    subprocess.run(["chrt", "-f", "1", *child], check=True)
    with open("/sys/kernel/sched_ext/state", encoding="ascii") as file:
        check(file.read().strip() == "enabled", "a hundred processes later the scheduler runs")
    live.wait("and q0 has as many threads as before", lambda: abs(int(live.stat("q0")["members"]) - before) < 8)


def busy(live, *hogs):
    """They compute: the start of each waits for the machine's files, in which much of the guest's
    time passes."""
    live.wait("the hogs compute", lambda: all(ran(hog) > 100_000_000 for hog in hogs))


def mirror(live, cg):
    """The kernel's cgroups within q0, and changes of them: half a second later at most."""
    cg.make("f", weight=100)
    cg.make("g", weight=300)
    hogs = [cg.hog("f"), cg.hog("g")]
    busy(live, *hogs)
    time.sleep(0.8)
    got = share_of(hogs, 1)
    check(abs(got[1] / sum(got) - 0.75) < 0.04, "cpu.weight holds inside q0, 1:3", got)
    cg.set("g", "idle", 1)
    time.sleep(0.6)
    got = share_of(hogs, 0.8)
    check(got[1] / sum(got) < 0.04, "a change of cpu.idle holds", got)
    cg.set("f", "max", "20000 100000")
    time.sleep(0.6)
    got = share_of(hogs, 1)
    check(abs(got[0] - 0.2) < 0.05, "a change of cpu.max holds", got)
    cg.set("f", "max", "max 100000")
    cg.set("g", "idle", 0)
    time.sleep(0.6)
    got = share_of(hogs, 0.8)
    # The end of cpu.idle leaves the weight at 100.
    check(abs(got[0] / sum(got) - 0.5) < 0.05, "and both taken back", got)
    cg.make("h", max="30000 100000")
    hog = cg.hog("h")
    busy(live, hog)
    time.sleep(0.8)
    got = share_of([hog], 1)
    check(abs(got[0] - 0.3) < 0.05, "so does cpu.max of a cgroup made since", got)
    cg.end(*hogs, hog)


def without(names):
    """One start of the driver without these, and what it does."""
    os.environ["RESERV_FALLBACKS"] = ",".join(names)
    print(f"# without {', '.join(names)}")
    with Cgroups() as cg, Live("full") as live:
        told(live, names)
        weights(live)
        ends(live)
        if {"idle", "bandwidth"} & set(names):
            mirror(live, cg)
    del os.environ["RESERV_FALLBACKS"]
    with open("/sys/kernel/sched_ext/state", encoding="ascii") as file:
        check(file.read().strip() == "disabled", "down takes the scheduler out")
