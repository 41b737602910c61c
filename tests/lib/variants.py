# SPDX-License-Identifier: MIT OR Apache-2.0
"""Programs of bpf/ compiled for this machine with one text in the place of another, for tests that
must find what is broken.

All variants of a program are one object (`switched`), in which RS_VARIANT in the environment
chooses. What is compiled is kept in target/tests/variants by the hash of all that it is made of."""
import contextlib
import functools
import hashlib
import os
import re
import shutil
import subprocess
import time

from live import ROOT

PARTS = "bpf", "sched", "tests/lib"
KEPT = os.path.join(ROOT, "target", "tests", "variants")
# What each source file begins with, where there is something to choose.
SWITCH = """extern char *getenv(const char *);
extern int atoi(const char *);
static int rs_variant;
__attribute__((constructor)) static void rs_variant_choose(void)
{
	const char *word = getenv("RS_VARIANT");
	rs_variant = word ? atoi(word) : 0;
}
"""


def is_source(path):
    return not path.endswith((".py", "pycache__"))


@functools.cache
def tree():
    """The hash of the compiler, and of the sources as they stand."""
    whole = hashlib.sha256(subprocess.run(["cc", "--version"], capture_output=True, check=True).stdout)
    for part in PARTS:
        for folder, folders, files in os.walk(os.path.join(ROOT, part)):
            folders[:] = sorted(filter(is_source, folders))
            for name in sorted(filter(is_source, files)):
                with open(os.path.join(folder, name), "rb") as file:
                    whole.update(f"{folder}/{name}\0{os.fstat(file.fileno()).st_size}\0".encode() + file.read())
    return whole.hexdigest()


def text_of(change):
    """The file that a change is of, as it stands."""
    with open(os.path.join(ROOT, change[0]), encoding="utf-8") as file:
        text = file.read()
    assert text.count(change[1]) == 1, (change, text.count(change[1]))
    return text


def compiled(folder, name, suffix, options, sources, texts):
    """What `cc` makes of these of tests/lib/, in a copy of the tree in which these files have these
    texts."""
    command = ["cc", "-O1", "-w", *options]
    kept = os.path.join(KEPT, hashlib.sha256(repr((tree(), command, sources, sorted(texts.items()))).encode()).hexdigest() + suffix)
    if os.path.exists(kept):
        os.utime(kept)
        return kept
    path = os.path.join(folder, name.replace(" ", "_").replace("'", ""))
    for part in PARTS:
        shutil.copytree(os.path.join(ROOT, part), os.path.join(path, part), ignore=lambda _, names: [n for n in names if not is_source(n)])
    for file, text in texts.items():
        with open(os.path.join(path, file), "w", encoding="utf-8") as target:
            target.write(text)
    if SWITCH in texts.values():
        command += ["-include", os.path.join(path, "variant.h")]
    subprocess.run([*command, "-o", path + suffix, *(os.path.join(path, "tests/lib", source) for source in sources)], check=True)
    shutil.rmtree(path)
    os.makedirs(KEPT, exist_ok=True)
    for old in os.scandir(KEPT):  # of sources that have changed since
        with contextlib.suppress(OSError):
            if old.stat().st_mtime < time.time() - 7 * 86400:
                os.unlink(old)
    shutil.move(path + suffix, f"{kept}.{os.getpid()}")
    os.rename(f"{kept}.{os.getpid()}", kept)
    return kept


def built(folder, name, suffix, options, sources, change=None):
    """The program, with `change` (file, what stands there, what stands there instead)."""
    texts = {change[0]: text_of(change).replace(change[1], change[2])} if change else {}
    return compiled(folder, name, suffix, options, sources, texts)


def body_of(text, change):
    """Where the body of the function stands that a change is in; nowhere if it is in none, or if
    the body has labels, of which a function may have each once. The sources are written as the
    kernel's are: `{` and `}` of a function stand alone."""
    at = text.index(change[1])
    start, end = text.rfind("\n{\n", 0, at) + 3, text.find("\n}\n", max(0, text.rfind("\n{\n", 0, at))) + 1
    inside = 3 <= start <= at and at + len(change[1]) <= end
    return (start, end) if inside and not re.search(r"^\w+:$", text[start:end], re.M) else None


def switched(folder, name, suffix, options, sources, changes):
    """By name, for each of `changes`: a program and the number by which RS_VARIANT chooses it
    there. One program has all those that are in a function: its body stands there once for each,
    and once as it is, which is what 0 chooses. The others are programs of their own."""
    texts, bodies, found = {"variant.h": SWITCH}, {}, {}
    for number, (what, change) in enumerate(changes.items(), 1):
        text = text_of(change)
        span = body_of(text, change)
        if span:
            bodies.setdefault(change[0], {}).setdefault(span, []).append((number, change))
            found[what] = number
    for file, spans in bodies.items():
        with open(os.path.join(ROOT, file), encoding="utf-8") as source:
            text = source.read()
        for (start, end), broken in sorted(spans.items(), reverse=True):
            body = text[start:end]
            either = "".join(f"if (rs_variant == {number}) {{\n{body.replace(old, new)}}} else " for number, (_, old, new) in broken)
            text = f"{text[:start]}{either}{{\n{body}}}\n{text[end:]}"
        texts[file] = text
    program = compiled(folder, name, suffix, options, sources, texts)
    return {what: (program, found[what]) if what in found else (built(folder, what, suffix, options, sources, change), 0)
            for what, change in changes.items()}
