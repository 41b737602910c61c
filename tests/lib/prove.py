# SPDX-License-Identifier: MIT OR Apache-2.0
"""Somebody else's test suite, whose files print TAP: what of it fails with our module that does
not fail without it."""
import concurrent.futures
import os
import re
import signal
import subprocess

LINE = re.compile(r"^(not )?ok (\d+)(?:[^#]|\\#)*(?:# *(TODO|skip)\b)?", re.I)
PLAN = re.compile(r"^1\.\.(\d+)(?: *# *skip\S* *(.*))?", re.I)


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


def run(folder, name, env, seconds=600):
    """One file, in a session of its own that ends with it."""
    with subprocess.Popen(["perl", name], cwd=folder, env={**os.environ, **env},
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace",
                          start_new_session=True) as process:
        try:
            text = process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return {None}, 0, ""
    return read(text, process.returncode)


def all_of(folder, names, env, jobs, title):
    """How each file ended, by name."""
    ends = {}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        waits = {pool.submit(run, folder, name, env): name for name in names}
        for done in concurrent.futures.as_completed(waits):
            ends[waits[done]] = done.result()
            if len(ends) % 50 == 0 or len(ends) == len(names):
                print(f"# {title}: {len(ends)} of {len(names)} files", flush=True)
    return ends


def worse(folder, ends, env, bare, times=3):
    """By name, the numbers of `ends` that failed with the module, and fail with it again but never
    without it. What failed is run `times` times on its own either way: a test that depends on the
    clock fails now and then in both."""
    found = {}
    for name, (failed, _, _) in sorted(ends.items()):
        if not failed:
            continue
        theirs = set().union(*(run(folder, name, bare)[0] for _ in range(times)))
        again = [run(folder, name, env)[0] for _ in range(times)] if failed - theirs else []
        often = set().union(*again) - theirs
        print(f"# {name}: {words(failed)} failed; alone, of {times}: {words(theirs)} without the "
              f"module, {words(often)} with it only", flush=True)
        if often:
            found[name] = often
    return found


def words(numbers):
    found = ("not reached" if number is None else str(number) for number in numbers)
    return ", ".join(sorted(found)) or "none"
