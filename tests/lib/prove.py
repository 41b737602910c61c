# SPDX-License-Identifier: MIT OR Apache-2.0
"""Somebody else's test suite, whose files print TAP: what of it fails with our module that does
not fail without it."""
import concurrent.futures
import os
import re
import signal
import subprocess

from live import compiled

LINE = re.compile(r"^(not )?ok (\d+)(?:[^#]|\\#)*(?:# *(TODO|skip)\b)?", re.I)
PLAN = re.compile(r"^1\.\.(\d+)(?: *# *skip\S* *(.*))?", re.I)


class Played:
    """Who answers for a kernel that binds nobody (binds.c), to what is started with `env`."""

    def __init__(self, folder):
        self.file = f"{folder}/binds"
        with open(self.file, "wb"):
            os.chmod(self.file, 0o666)

    def env(self):
        return {"LD_PRELOAD": compiled("binds"), "RESERV_TEST_BINDS": self.file}

    def count(self):
        """How many bindings processes that have ended were granted since it was asked last."""
        with open(self.file, "r+", encoding="ascii") as file:
            total = sum(int(line.split()[1]) for line in file)
            file.truncate(0)
        return total


def read(text, status):
    """The numbers that failed, None for one that was not reached, of how many; or why none was run.
    """
    plan, failed, seen = None, set(), 0
    for line in text.splitlines():
        if found := PLAN.match(line):
            plan = int(found[1])
            if plan == 0:
                return set(), 0, found[2] or "no reason"
        elif found := LINE.match(line):
            seen += 1
            if found[1] and (found[3] or "").upper() != "TODO":
                failed.add(int(found[2]))
    if plan is None or seen < plan or (status and not failed):
        failed.add(None)
    return failed, seen, ""


class Side:
    """The suite's files in a folder, in an environment: with the module, or without."""

    def __init__(self, folder, env, seconds=600, user=None):
        self.folder, self.env, self.seconds = folder, env, seconds
        self.who = {"user": user, "group": "nogroup", "extra_groups": []} if user else {}

    def run(self, name):
        """One file, in a session of its own that ends with it."""
        with subprocess.Popen(["perl", name], cwd=self.folder, env={**os.environ, **self.env},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace",
                              start_new_session=True, **self.who) as process:
            try:
                text = process.communicate(timeout=self.seconds)[0]
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return {None}, 0, ""
        return read(text, process.returncode)

    def all_of(self, names, jobs, title):
        """How each file ended, by name."""
        ends = {}
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            waits = {pool.submit(self.run, name): name for name in names}
            for done in concurrent.futures.as_completed(waits):
                ends[waits[done]] = done.result()
                if len(ends) % 50 == 0 or len(ends) == len(names):
                    print(f"# {title}: {len(ends)} of {len(names)} files", flush=True)
        return ends


def worse(ends, side, bare, times=3):
    """By name, the numbers of `ends` that failed with the module, and fail with it again but never
    without it. What failed is run `times` times on its own either way: a test that depends on the
    clock fails now and then in both."""
    found = {}
    for name, (failed, _, _) in sorted(ends.items()):
        if not failed:
            continue
        theirs = set().union(*(bare.run(name)[0] for _ in range(times)))
        again = [side.run(name)[0] for _ in range(times)] if failed - theirs else []
        often = set().union(*again) - theirs
        print(f"# {name}: {words(failed)} failed; alone, of {times}: {words(theirs)} without the "
              f"module, {words(often)} with it only", flush=True)
        if often:
            found[name] = often
    return found


def summed(ends, title):
    """Prints it; the files that were run, those that pass, and how many tests there are in all."""
    ran = [name for name, end in ends.items() if not end[2]]
    passed = [name for name in ran if not ends[name][0]]
    tests = sum(end[1] for end in ends.values())
    print(f"# {title}: {len(ran)} of {len(ends)} files run here, {len(passed)} pass; "
          f"{tests} tests", flush=True)
    return ran, passed, tests


def left_out(ends, bare, jobs):
    """What was not run with the module is not run without it either: those of which this is not
    true."""
    skips = {name: end[2] for name, end in ends.items() if end[2]}
    again = bare.all_of(sorted(skips), jobs, "what was left out")
    for name, why in sorted(skips.items()):
        print(f"# {name} was not run: {why}", flush=True)
    return {name: skips[name] for name, (_, _, why) in again.items() if not why}


def words(numbers):
    found = ("not reached" if number is None else str(number) for number in numbers)
    return ", ".join(sorted(found)) or "none"
