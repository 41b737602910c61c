# SPDX-License-Identifier: MIT OR Apache-2.0
"""What is saved loads: for each feature `up --config`, `save`, `down`, `up` of what was saved, and
the same tree. And what cannot be loaded is refused by `up --dry-run` and `up` in the same words,
before reservd is started. `reserv` is a function: its words, and back come status and output."""
import os
import re
import subprocess
import tomllib

from live import RESERV, check, not_late
from round_trip_refused import REFUSED
from shell import sh


def round_trip(reserv, folder, source, rows):
    """Reserv does not run, before and after."""
    files = [f"{folder}/{name}.toml" for name in ("given", "first", "second")]
    link, driver = re.match(r"link:(\w+)@[^/]*/?(\w*)", source).groups()

    def ours(words):
        words = words.replace("SOURCE", source).replace("LINK", link)
        return words.replace("DRIVER", driver or "auto")

    for what, text, told in rows:
        with open(files[0], "w", encoding="utf-8") as file:
            file.write(ours(text))
        steps = [("up", "--config", files[0]), ("save", files[1]), ("down",),
                 ("up", "--config", files[1]), ("save", files[2]),
                 ("up", "--dry-run", "--config", files[2])]
        for step in steps:
            status, said = reserv(*step)
            if status:
                check(False, f"{what}: {' '.join(step)}", said)
                break
        else:
            texts = []
            for name in files[1:]:
                with open(name, encoding="utf-8") as file:
                    texts.append(file.read())
            good = (said == "no difference\n" and texts[0] == texts[1]
                    and all(ours(word) in texts[0] for word in told))
            check(good, f"{what}: saved, loaded and saved again", "" if good else f"{said}{texts}")
        if reserv("status")[0] == 0:
            status, said = reserv("down")
            check(status == 0, f"{what}: down", said)


def on_this_machine(driver, rows, block=""):
    """Round trips with this driver of everything, in a guest: on a link and a disk of their own, or
    on a block device."""
    def reserv(*words):
        done = subprocess.run([RESERV, *words], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    link, scratch = "rsv0", "/run/round-trip"
    os.makedirs(scratch, exist_ok=True)
    with open(f"{scratch}/disk", "wb") as file:
        file.truncate(1 << 20)
    os.environ["RESERV_DRIVER"] = driver
    sh(f"ip link add {link} up type veth peer name rsv1")
    sh("ip link set rsv1 up")

    def placed(text):
        return text.replace("DISK", f"{scratch}/disk").replace("BLOCK", block)

    rows = [(what, placed(text), [placed(word) for word in told]) for what, text, told in rows]
    try:
        round_trip(reserv, scratch, f"link:{link}@100mbit/{driver}", rows)
        good = reserv("up")[0] == 0
        good = good and f"cpu.driver {driver}" in not_late(lambda: reserv("status")[1])
        check(good, f"by the driver that was asked for: {driver}")
        reserv("down")
    finally:
        sh(f"ip link del {link}")


def left(run):
    """Files of the run-time directory, with their sizes: a start is seen in the log's."""
    if not os.path.isdir(run):
        return []
    return sorted((entry.name, entry.stat().st_size) for entry in os.scandir(run))


def refused(reserv, folder, source, rows=REFUSED, places=(), flags=()):
    """Reserv does not run; nothing is started, and nothing is left. `places`: what words of the rows
    stand for. `flags`: words of `up` that are refused too, with a word of the reason."""
    given = f"{folder}/given.toml"
    run = os.environ["RESERV_RUN"]
    link = re.match(r"link:(\w+)@", source)[1]

    def both(words, why, what, running):
        before = left(run)
        dry, said = reserv("up", "--dry-run", *words)
        wet, then = reserv("up", *words)
        good = dry == wet != 0 and said == then and why in said
        where = "where Reserv runs" if running else "before reservd is started"
        check(good, f"refused by --dry-run and by up in the same words, {where}: {what}",
              "" if good else (dry, wet, said, then))
        if not running:
            check(left(run) == before, "… and it was not started", left(run))

    for running in False, True:
        if running:
            status, said = reserv("up")
            check(status == 0, "Reserv runs", said)
        for what, text, why in rows:
            for word, place in (("SOURCE", source), ("LINK", link), *places):
                text = text.replace(word, place)
            with open(given, "w", encoding="utf-8") as file:
                file.write(text)
            both(("--config", given), why, what, running)
        for words, why in flags:
            both(words, why, " ".join(words), running)
    check(reserv("down")[0] == 0, "down")


# A configuration with a word that there is not, for each kind of table: the refusal names all words
# that there are.
PROBES = {
    "": "nosuchword = 1\n",
    "cpu": "[cpu]\nnosuchword = 1\n",
    "link": "[link.l]\nnosuchword = 1\n",
    "disk": '[disk.d]\npath = "/"\nnosuchword = 1\n',
    "count": '[count.c]\non = "net:lo"\nnosuchword = 1\n',
    "nodes": '[cpu.nodes.a]\nkind = "queue"\nnosuchword = 1\n',
    "container": "[container.a]\nnosuchword = 1\n",
    "match": "[[rule]]\nmatch = { nosuchword = 1 }\n",
}


def known_words(reserv, folder):
    """All words of a configuration, as TABLE.WORD, by what reserv says of one that is none."""
    known = set()
    for table, text in PROBES.items():
        with open(f"{folder}/probe.toml", "w", encoding="utf-8") as file:
            file.write(text)
        status, said = reserv("up", "--dry-run", "--config", f"{folder}/probe.toml")
        words = re.findall(r"`(\w+)`", said)
        check(status and words[:1] == ["nosuchword"] and len(words) > 2,
              f"which words there are is said: [{table}]", "" if len(words) > 2 else said)
        words = set(words[1:]) - {"nodes", "cpu", "link", "disk", "count", "container", "rule"}
        # A node's words are looked at for each kind of resource.
        tables = ("cpu.nodes", "link.nodes", "disk.nodes") if table == "nodes" else (table,)
        known |= {f"{one}.{word}" for one in tables for word in words}
    return known | {"rule.match", "rule.container", "rule.cpu"}


def words_of(text):
    """Those of one configuration."""
    found, given = set(), tomllib.loads(text)
    for key, value in given.items():
        if key == "rule":
            for rule in value:
                found |= {f"rule.{word}" for word in rule} | {f"match.{w}" for w in rule["match"]}
        elif isinstance(value, dict):
            for name, table in {"": value}.items() if key == "cpu" else value.items():
                kind = key
                if key == "count":
                    # As it was written before there were tables of links and disks.
                    on = table.get("on", "").replace("SOURCE", "link:")
                    kind = re.match("link|disk|", on)[0] or key
                    found |= {f"count.{word}" for word in table}
                found |= {f"{kind}.{word}" for word in table}
                for node in table.get("nodes", {}).values():
                    found |= {f"{kind}.nodes.{word}" for word in node}
        else:
            found.add(f".{key}")
    return found


def every_word(known, rows, what):
    """A word without a row fails."""
    had = set().union(*(words_of(row[1]) for row in rows))
    check(not known - had, f"every word of a configuration has a row: {what}", sorted(known - had))
