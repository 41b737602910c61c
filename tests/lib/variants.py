# SPDX-License-Identifier: MIT OR Apache-2.0
"""Programs of bpf/ compiled for this machine with one text in the place of another, for tests that must find what is broken."""
import os
import shutil
import subprocess

from live import ROOT


def built(folder, name, suffix, options, sources, change=None):
    """What `cc` makes of these of tests/lib/, in a copy of the tree in which `change` (file, what stands there, what stands there instead) was made."""
    path = os.path.join(folder, name.replace(" ", "_").replace("'", ""))
    for part in "bpf", "sched", "tests/lib":
        shutil.copytree(os.path.join(ROOT, part), os.path.join(path, part), ignore=lambda _, names: [n for n in names if n.endswith((".py", "pycache__"))])
    if change:
        file, old, new = change
        target = os.path.join(path, file)
        with open(target, encoding="utf-8") as text:
            was = text.read()
        assert was.count(old) == 1, (name, was.count(old))
        with open(target, "w", encoding="utf-8") as text:
            text.write(was.replace(old, new))
    subprocess.run(["cc", "-O1", "-w", *options, "-o", path + suffix, *(os.path.join(path, "tests/lib", source) for source in sources)], check=True)
    shutil.rmtree(path)
    return path + suffix
