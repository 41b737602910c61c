# SPDX-License-Identifier: MIT OR Apache-2.0
"""What is saved loads: for each feature `up --config`, `save`, `down`, `up` of what was saved, and
the same tree. And what cannot be loaded is refused by `up --dry-run` and `up` in the same words,
before reservd is started. `reserv` is a function: its words, and back come status and output."""
import os

from live import check

# A feature, the configuration that has it, and what `save` must say of it. LINK is an interface
# that is there.
EVERY_DRIVER = (
    ("nodes and weights", '[cpu.nodes.web]\nkind = "scheduler"\nshare = 60\n[cpu.nodes."web/site1"]\nkind = "queue"\nshare = "0.5"\n', ('"0.5"', '"60"')),
    ("fixed shares", '[cpu.nodes.a]\nkind = "queue"\nshare = "=25%"\n', ('"=25%"',)),
    ("a minimum", '[cpu.nodes.a]\nkind = "queue"\nshare = "300 100ms/s"\n', ('"300 100ms/s"',)),
    ("minimums below a minimum", '[cpu.nodes.s]\nkind = "scheduler"\nshare = "300 200ms/s"\n[cpu.nodes."s/a"]\nkind = "queue"\nshare = "1 100ms/s"\n'
     '[cpu.nodes."s/b"]\nkind = "queue"\nshare = "1 100ms/s"\n', ('"1 100ms/s"', '"300 200ms/s"')),
    ("a cap", '[cpu.nodes.a]\nkind = "queue"\ncap = "1.5cpu"\n', ('"1.5cpu"',)),
    ("a limit", '[cpu.nodes.a]\nkind = "queue"\nmembers_max = 17\n', ("members_max = 17",)),
    ("collection", '[cpu.nodes.a]\nkind = "queue"\ngc = true\n', ("gc = true",)),
    ("rights", '[cpu]\naccess = ["allow everyone read"]\n[cpu.nodes.a]\nkind = "queue"\naccess = ["allow uid 1000 use,create quota 8"]\n',
     ("allow everyone read", "allow uid 1000 use,create quota 8")),
    ("rules", '[cpu.nodes.a]\nkind = "queue"\n[[rule]]\nmatch = { command = "no-such-*" }\ncpu = "a"\n[[rule]]\nmatch = { uid = 4711 }\ncpu = "a"\n',
     ("no-such-*", "4711")),
    ("the memory of limits", 'backlog = "64MiB"\n', ("64MiB",)),
    ("containers", '[container.web]\nholds = "containers"\nshare = "30"\n[container."web/site1"]\nshare = "24"\naccess = ["allow uid 1000 use"]\n',
     ('[container."web/site1"]', "allow uid 1000 use")),
)
# The same of links: SOURCE is a link of 100mbit.
EVERY_LINK = (
    ("a link's minimum and cap", '[count.net]\non = "SOURCE"\n[count.net.nodes.web]\nkind = "queue"\nshare = "300 20mbit"\ncap = "50mbit"\n', ('"300 20mbit"', '"50mbit"')),
    ("minimums below a link's", '[count.net]\non = "SOURCE"\n[count.net.nodes.s]\nkind = "scheduler"\nshare = "300 40mbit"\n[count.net.nodes."s/a"]\n'
     'kind = "queue"\nshare = "=50% 10mbit"\n', ('"=50% 10mbit"',)),
    ("a link's limits", '[count.net]\non = "SOURCE"\n[count.net.nodes.a]\nkind = "queue"\nmembers_max = 30\n', ("members_max = 30",)),
    ("rules about packets", '[count.net]\non = "SOURCE"\n[count.net.nodes.a]\nkind = "queue"\n[[rule]]\n'
     'match = { protocol = "tcp", local_port = 443, remote = "10.0.0.0/8" }\nnet = "a"\n', ("10.0.0.0/8", "443")),
)
# What the stock driver has not.
ALL_POLICIES = (
    ("personality, policies and tunables", '[cpu]\npersonality = "rtss98"\n[cpu.nodes.s]\nkind = "scheduler"\npolicy = "mtrls"\ntune = "turn 20ms"\n'
     '[cpu.nodes."s/a"]\nkind = "queue"\nclass = "rr"\n[cpu.nodes.e]\nkind = "queue"\nclass = "edf"\n', ('"mtrls"', "turn 20ms", '"rr"', '"edf"')),
)
# What is refused before anything is loaded, with a word of the reason.
REFUSED = (
    ("a minimum beyond the machine", '[cpu.nodes.a]\nkind = "queue"\nshare = "100 8000cpu"\n', "would not be kept"),
    ("a minimum beyond the node above", '[cpu.nodes.s]\nkind = "scheduler"\n[cpu.nodes."s/a"]\nkind = "queue"\nshare = "100 10ms/s"\n', "would not be kept"),
    ("a cap below the minimum", '[cpu.nodes.a]\nkind = "queue"\nshare = "300 100ms/s"\ncap = "50ms/s"\n', "less than its minimum"),
    ("a cap in another resource's unit", '[cpu.nodes.a]\nkind = "queue"\ncap = "2MB/s"\n', "this is the CPU"),
    ("fixed shares of more than all", '[cpu.nodes.a]\nkind = "queue"\nshare = "=60%"\n[cpu.nodes.b]\nkind = "queue"\nshare = "=50%"\n', "fixed shares"),
    ("a minimum beyond the link", '[count.net]\non = "SOURCE"\n[count.net.nodes.a]\nkind = "queue"\nshare = "100 99mbit"\n', "would not be kept"),
    ("an interface that is not there", '[count.net]\non = "link:nosuchiface@1mbit"\n', "no such interface"),
    ("a disk that is not there", '[count.d]\non = "disk:/dev/no-such-disk"\n', "No such file"),
    ("a rule of a resource that is not there", '[[rule]]\nmatch = { uid = 4711 }\nnosuch = "a"\n', "which there is not"),
)


def round_trip(reserv, folder, source, rows):
    """Reserv does not run, before and after."""
    files = [f"{folder}/{name}.toml" for name in ("given", "first", "second")]
    for what, text, told in rows:
        with open(files[0], "w", encoding="utf-8") as file:
            file.write(text.replace("SOURCE", source))
        steps = [("up", "--config", files[0]), ("save", files[1]), ("down",), ("up", "--config", files[1]), ("save", files[2]),
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
            good = said == "no difference\n" and texts[0] == texts[1] and all(word in texts[0] for word in told)
            check(good, f"{what}: saved, loaded and saved again", "" if good else f"{said}{texts}")
        if reserv("status")[0] == 0:
            status, said = reserv("down")
            check(status == 0, f"{what}: down", said)


def left(run):
    """Files of the run-time directory, with their sizes: a start is seen in the log's."""
    return sorted((entry.name, entry.stat().st_size) for entry in os.scandir(run)) if os.path.isdir(run) else []


def refused(reserv, folder, source):
    """Reserv does not run; nothing is started, and nothing is left."""
    given = f"{folder}/given.toml"
    run = os.environ["RESERV_RUN"]
    for running in False, True:
        if running:
            status, said = reserv("up")
            check(status == 0, "Reserv runs", said)
        for what, text, why in REFUSED:
            with open(given, "w", encoding="utf-8") as file:
                file.write(text.replace("SOURCE", source))
            before = left(run)
            (dry, said), (wet, then) = reserv("up", "--dry-run", "--config", given), reserv("up", "--config", given)
            good = dry == wet != 0 and said == then and why in said
            where = "where Reserv runs" if running else "before reservd is started"
            check(good, f"refused by --dry-run and by up in the same words, {where}: {what}", "" if good else (dry, wet, said, then))
            if not running:
                check(left(run) == before, "… and it was not started", left(run))
    check(reserv("down")[0] == 0, "down")
