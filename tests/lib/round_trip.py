# SPDX-License-Identifier: MIT OR Apache-2.0
"""What is saved loads: for each feature `up --config`, `save`, `down`, `up` of what was saved, and
the same tree. And what cannot be loaded is refused by `up --dry-run` and `up` in the same words,
before reservd is started. `reserv` is a function: its words, and back come status and output."""
import os
import re
import subprocess

from live import RESERV, check
from shell import sh

# A feature, the configuration that has it, and what `save` must say of it. LINK is an interface
# that is there.
EVERY_DRIVER = (
    ("nodes and weights",
     '[cpu.nodes.web]\n'
     'kind = "scheduler"\n'
     'share = 60\n'
     '[cpu.nodes."web/site1"]\n'
     'kind = "queue"\n'
     'share = "0.5"\n',
     ('"0.5"', '"60"')),
    ("fixed shares",
     '[cpu.nodes.a]\n'
     'kind = "queue"\n'
     'share = "=25%"\n',
     ('"=25%"',)),
    ("a minimum",
     '[cpu.nodes.a]\n'
     'kind = "queue"\n'
     'share = "300 100ms/s"\n',
     ('"300 100ms/s"',)),
    ("minimums below a minimum",
     '[cpu.nodes.s]\n'
     'kind = "scheduler"\n'
     'share = "300 200ms/s"\n'
     '[cpu.nodes."s/a"]\n'
     'kind = "queue"\n'
     'share = "1 100ms/s"\n'
     '[cpu.nodes."s/b"]\n'
     'kind = "queue"\n'
     'share = "1 100ms/s"\n',
     ('"1 100ms/s"', '"300 200ms/s"')),
    ("a cap",
     '[cpu.nodes.a]\n'
     'kind = "queue"\n'
     'cap = "1.5cpu"\n',
     ('"1.5cpu"',)),
    ("a limit",
     '[cpu.nodes.a]\n'
     'kind = "queue"\n'
     'members_max = 17\n',
     ("members_max = 17",)),
    ("collection",
     '[cpu.nodes.a]\n'
     'kind = "queue"\n'
     'gc = true\n',
     ("gc = true",)),
    ("background, a cap with its burst, and a share of q0",
     '[cpu.nodes.a]\n'
     'kind = "queue"\n'
     'share = 0\n'
     'cap = "50ms/s burst 20ms"\n'
     '[cpu.nodes.q0]\n'
     'kind = "queue"\n'
     'share = "40 10ms/s"\n',
     ('"0"', '"50ms/s burst 20ms"', '"40 10ms/s"')),
    ("rights",
     '[cpu]\n'
     'access = ["allow everyone read"]\n'
     '[cpu.nodes.a]\n'
     'kind = "queue"\n'
     'access = ["allow uid 1000 use,create quota 8"]\n',
     ("allow everyone read", "allow uid 1000 use,create quota 8")),
    ("rules",
     '[cpu.nodes.a]\n'
     'kind = "queue"\n'
     '[[rule]]\n'
     'match = { command = "no-such-*" }\n'
     'cpu = "a"\n'
     '[[rule]]\n'
     'match = { uid = 4711 }\n'
     'cpu = "a"\n',
     ("no-such-*", "4711")),
    ("the memory of limits",
     'backlog = "64MiB"\n',
     ("64MiB",)),
    ("containers",
     '[container.web]\n'
     'holds = "containers"\n'
     'share = "30"\n'
     '[container."web/site1"]\n'
     'share = "24"\n'
     'access = ["allow uid 1000 use"]\n',
     ('[container."web/site1"]', "allow uid 1000 use")),
    ("what is said of containers' nodes, and what is below them",
     '[cpu.nodes.web]\n'
     'kind = "scheduler"\n'
     'share = "30"\n'
     '[cpu.nodes."web/site1"]\n'
     'kind = "queue"\n'
     'share = "7"\n'
     'cap = "500ms/s"\n'
     'members_max = 12\n'
     '[cpu.nodes."web/by-hand"]\n'
     'kind = "queue"\n'
     '[container.web]\n'
     'holds = "containers"\n'
     'share = "30"\n'
     '[container."web/site1"]\n'
     'share = "24"\n'
     '[container."web/site2"]\n'
     '[[rule]]\n'
     'match = { uid = 4711 }\n'
     'cpu = "web/site2"\n',
     ('"24"', '"7"', '"500ms/s"', "members_max = 12", '[cpu.nodes."web/by-hand"]', "web/site2")),
)
# The same of links: SOURCE is a link of 100mbit, LINK its interface.
EVERY_LINK = (
    ("a link's table",
     '[link.net]\n'
     'interface = "LINK"\n'
     'rate = "100mbit"\n'
     'driver = "DRIVER"\n'
     'policy = "sfq"\n'
     'access = ["allow everyone read"]\n'
     '[link.net.nodes.web]\n'
     'kind = "queue"\n'
     'share = "300 20mbit"\n',
     ("[link.net]", 'interface = "LINK"', 'rate = "100mbit"', "allow everyone read",
      "[link.net.nodes.web]")),
    ("a link's table by its interface",
     '[link.LINK]\n'
     'rate = "3MB/s"\n'
     'driver = "DRIVER"\n',
     ("[link.LINK]", 'rate = "3MB/s"')),
    ("a link's minimum and cap",
     '[count.net]\n'
     'on = "SOURCE"\n'
     '[count.net.nodes.web]\n'
     'kind = "queue"\n'
     'share = "300 20mbit"\n'
     'cap = "50mbit"\n',
     ("[link.net.nodes.web]", '"300 20mbit"', '"50mbit"')),
    ("minimums below a link's",
     '[count.net]\n'
     'on = "SOURCE"\n'
     '[count.net.nodes.s]\n'
     'kind = "scheduler"\n'
     'share = "300 40mbit"\n'
     '[count.net.nodes."s/a"]\n'
     'kind = "queue"\n'
     'share = "=50% 10mbit"\n',
     ('"=50% 10mbit"',)),
    ("a link's limits",
     '[count.net]\n'
     'on = "SOURCE"\n'
     '[count.net.nodes.a]\n'
     'kind = "queue"\n'
     'members_max = 30\n',
     ("members_max = 30",)),
    ("what comes in by a link",
     '[link.net]\n'
     'interface = "LINK"\n'
     'rate = "100mbit"\n'
     'driver = "DRIVER"\n'
     'receive = "tcx"\n',
     ('receive = "tcx"',)),
    ("a limit in bytes",
     '[count.net]\n'
     'on = "SOURCE"\n'
     '[count.net.nodes.a]\n'
     'kind = "queue"\n'
     'bytes_max = 300000\n',
     ("bytes_max = 300000",)),
    ("rules about packets",
     '[count.net]\n'
     'on = "SOURCE"\n'
     '[count.net.nodes.a]\n'
     'kind = "queue"\n'
     '[[rule]]\n'
     'match = { protocol = "tcp", local_port = 443, remote = "10.0.0.0/8" }\n'
     'net = "a"\n',
     ("10.0.0.0/8", "443")),
)
# What the stock driver has not.
ALL_POLICIES = (
    ("personality, policies and tunables",
     '[cpu]\n'
     'personality = "rtss98"\n'
     '[cpu.nodes.s]\n'
     'kind = "scheduler"\n'
     'policy = "mtrls"\n'
     'tune = "turn 20ms"\n'
     '[cpu.nodes."s/a"]\n'
     'kind = "queue"\n'
     'class = "rr"\n'
     '[cpu.nodes.e]\n'
     'kind = "queue"\n'
     'class = "edf"\n',
     ('"mtrls"', "turn 20ms", '"rr"', '"edf"')),
    ("who processes what comes in by a link",
     '[cpu.nodes.in]\n'
     'kind = "queue"\n'
     '[link.net]\n'
     'interface = "LINK"\n'
     'rate = "100mbit"\n'
     'receive_in = "in"\n',
     ('receive_in = "in"',)),
    ("policies and classes of a link",
     '[link.net]\n'
     'interface = "LINK"\n'
     'rate = "100mbit"\n'
     'policy = "wf2q+"\n'
     '[link.net.nodes.a]\n'
     'kind = "queue"\n'
     'class = "drr"\n',
     ('policy = "wf2q+"', '"drr"')),
    ("policies, classes and tunables of a disk",
     '[disk.d]\n'
     'path = "DISK"\n'
     'policy = "yfq"\n'
     'tune = "anticipate 3ms"\n'
     '[disk.d.nodes.a]\n'
     'kind = "queue"\n'
     'class = "scan-edf"\n'
     '[disk.d.nodes.s]\n'
     'kind = "scheduler"\n'
     'policy = "wf2q+"\n',
     ('policy = "yfq"', "anticipate 3ms", '"scan-edf"', '"wf2q+"')),
)
# All of it at once, for drivers that take long to start.
TOGETHER = (
    ("everything at once",
     'backlog = "64MiB"\n'
     '[cpu]\n'
     'personality = "rtss98"\n'
     'access = ["allow everyone read"]\n'
     '[cpu.nodes.web]\n'
     'kind = "scheduler"\n'
     'share = "60 100ms/s"\n'
     'policy = "mtrls"\n'
     'tune = "turn 20ms"\n'
     '[cpu.nodes."web/site1"]\n'
     'kind = "queue"\n'
     'share = "0.5 50ms/s"\n'
     'class = "rr"\n'
     '[cpu.nodes."web/site2"]\n'
     'kind = "queue"\n'
     'class = "edf"\n'
     'share = "0.25 20ms/s"\n'
     '[cpu.nodes.fixed]\n'
     'kind = "queue"\n'
     'share = "=25%"\n'
     '[cpu.nodes.few]\n'
     'kind = "queue"\n'
     'cap = "500ms/s"\n'
     'members_max = 17\n'
     'gc = true\n'
     'access = ["allow uid 1000 use,create quota 8"]\n'
     '[[rule]]\n'
     'match = { command = "no-such-*" }\n'
     'cpu = "few"\n'
     '[[rule]]\n'
     'match = { protocol = "tcp", local_port = 443, remote = "10.0.0.0/8" }\n'
     'net = "a"\n'
     '[container.tenant]\n'
     'holds = "containers"\n'
     'share = "30"\n'
     '[container."tenant/site1"]\n'
     'share = "24"\n'
     'access = ["allow uid 1000 use"]\n'
     '[cpu.nodes.tenant]\n'
     'kind = "scheduler"\n'
     'share = "30"\n'
     '[cpu.nodes."tenant/site1"]\n'
     'kind = "queue"\n'
     'share = "24"\n'
     'cap = "250ms/s"\n'
     '[link.net.nodes.tenant]\n'
     'kind = "scheduler"\n'
     'share = "30"\n'
     '[link.net.nodes."tenant/site1"]\n'
     'kind = "queue"\n'
     'share = "24"\n'
     'cap = "5mbit"\n'
     '[link.net]\n'
     'interface = "LINK"\n'
     'rate = "100mbit"\n'
     'driver = "DRIVER"\n'
     'policy = "sfq"\n'
     'access = ["allow everyone read"]\n'
     '[link.net.nodes.a]\n'
     'kind = "queue"\n'
     'share = "300 20mbit"\n'
     'cap = "50mbit"\n'
     'members_max = 30\n'
     '[link.net.nodes.s]\n'
     'kind = "scheduler"\n'
     'share = "300 40mbit"\n'
     '[link.net.nodes."s/a"]\n'
     'kind = "queue"\n'
     'share = "=50% 10mbit"\n'
     '[link.net.nodes.flows]\n'
     'kind = "queue"\n'
     'share = 10\n'
     'bytes_max = 300000\n'
     '[disk.d]\n'
     'path = "DISK"\n'
     'depth = 4\n'
     'floor = "3MB/s"\n'
     'policy = "yfq"\n'
     'tune = "anticipate 3ms"\n'
     '[disk.d.nodes.a]\n'
     'kind = "queue"\n'
     'share = "300 1MB/s"\n'
     '[count.c]\n'
     'on = "file:/run"\n'
     '[count.c.nodes.a]\n'
     'kind = "queue"\n'
     'share = 7\n',
     ("64MiB", '"mtrls"', "turn 20ms", '"rr"', '"edf"', '"0.5 50ms/s"', '"60 100ms/s"', '"=25%"',
      '"500ms/s"', '"250ms/s"', '"5mbit"', "members_max = 17", "gc = true",
      "allow uid 1000 use,create quota 8", "no-such-*",
      "10.0.0.0/8", '[container."tenant/site1"]', 'interface = "LINK"', 'rate = "100mbit"',
      '"300 20mbit"', '"50mbit"', "members_max = 30", '"=50% 10mbit"', "depth = 4",
      "bytes_max = 300000", '"yfq"', "anticipate 3ms", 'floor = "3MB/s"', '"300 1MB/s"', "file:/run", '"7"')),
)
# What is refused before anything is loaded, with a word of the reason.
REFUSED = (
    ("a minimum beyond the machine",
     '[cpu.nodes.a]\n'
     'kind = "queue"\n'
     'share = "100 8000cpu"\n',
     "would not be kept"),
    ("a minimum beyond the node above",
     '[cpu.nodes.s]\n'
     'kind = "scheduler"\n'
     '[cpu.nodes."s/a"]\n'
     'kind = "queue"\n'
     'share = "100 10ms/s"\n',
     "would not be kept"),
    ("a cap below the minimum",
     '[cpu.nodes.a]\n'
     'kind = "queue"\n'
     'share = "300 100ms/s"\n'
     'cap = "50ms/s"\n',
     "less than its minimum"),
    ("a cap in another resource's unit",
     '[cpu.nodes.a]\n'
     'kind = "queue"\n'
     'cap = "2MB/s"\n',
     "this is the CPU"),
    ("fixed shares of more than all",
     '[cpu.nodes.a]\n'
     'kind = "queue"\n'
     'share = "=60%"\n'
     '[cpu.nodes.b]\n'
     'kind = "queue"\n'
     'share = "=50%"\n',
     "fixed shares"),
    ("a container whose node would be something else",
     '[cpu.nodes.web]\n'
     'kind = "scheduler"\n'
     '[container.web]\n',
     "cpu/web is no queue"),
    ("a container below one that there is not",
     '[container."web/site1"]\n',
     "no container"),
    ("a minimum of a container's node that would not be kept",
     '[cpu.nodes.web]\n'
     'kind = "queue"\n'
     'share = "10 8000cpu"\n'
     '[container.web]\n'
     'share = "30"\n',
     "would not be kept"),
    ("a minimum beyond the link",
     '[count.net]\n'
     'on = "SOURCE"\n'
     '[count.net.nodes.a]\n'
     'kind = "queue"\n'
     'share = "100 99mbit"\n',
     "would not be kept"),
    ("a minimum on a link without a rate",
     '[link.net]\n'
     'interface = "LINK"\n'
     '[link.net.nodes.a]\n'
     'kind = "queue"\n'
     'share = "100 9mbit"\n',
     "net has no rate, so nothing can be promised"),
    ("an interface that is not there",
     '[count.net]\n'
     'on = "link:nosuchiface@1mbit"\n',
     "no such interface"),
    ("a disk that is not there",
     '[count.d]\n'
     'on = "disk:/dev/no-such-disk"\n',
     "No such file"),
    ("a rule of a resource that is not there",
     '[[rule]]\n'
     'match = { uid = 4711 }\n'
     'nosuch = "a"\n',
     "which there is not"),
)
# What the stock drivers refuse. DISK is a file, BLOCK a block device.
REFUSED_STOCK = (
    ("a policy that the kernel's scheduler has not",
     '[cpu.nodes.s]\n'
     'kind = "scheduler"\n'
     'policy = "mtrls"\n',
     "the stock driver has no policy mtrls"),
    ("a class that it has not",
     '[cpu.nodes.a]\n'
     'kind = "queue"\n'
     'class = "edf"\n',
     "the stock driver has no class edf"),
    ("a personality that needs such a class",
     '[cpu]\n'
     'personality = "eclipse"\n',
     "the stock driver has no "),
    ("tunables of the CPU",
     '[cpu]\n'
     'tune = "quantum 20ms"\n',
     "tunables"),
    ("a policy that HTB has not",
     '[count.net]\n'
     'on = "SOURCE"\n'
     '[count.net.nodes.s]\n'
     'kind = "scheduler"\n'
     'policy = "wf2q+"\n',
     "the stock driver has no policy wf2q+"),
    ("a class that HTB has not",
     '[count.net]\n'
     'on = "SOURCE"\n'
     '[count.net.nodes.a]\n'
     'kind = "queue"\n'
     'class = "drr"\n',
     "the stock driver has no class drr"),
    ("two limits of one queue of HTB's",
     '[count.net]\n'
     'on = "SOURCE"\n'
     '[count.net.nodes.a]\n'
     'kind = "queue"\n'
     'members_max = 30\n'
     'bytes_max = 300000\n',
     "not by both"),
    ("a file as the stock driver's disk",
     '[disk.d]\n'
     'path = "DISK"\n'
     'driver = "stock"\n',
     "no block device"),
    ("a class that the kernel's elevators have not",
     '[disk.d]\n'
     'path = "BLOCK"\n'
     'driver = "stock"\n'
     '[disk.d.nodes.a]\n'
     'kind = "queue"\n'
     'class = "scan-edf"\n',
     "the stock driver has no class scan-edf"),
    ("a cap of the stock driver's disk",
     '[disk.d]\n'
     'path = "BLOCK"\n'
     'driver = "stock"\n'
     '[disk.d.nodes.a]\n'
     'kind = "queue"\n'
     'cap = "1MB/s"\n',
     "has no caps"),
)


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


def on_this_machine(driver, rows):
    """Round trips with this driver of everything, in a guest: on a link and a disk of their own."""
    def reserv(*words):
        done = subprocess.run([RESERV, *words], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    link, scratch = "rsv0", "/run/round-trip"
    os.makedirs(scratch, exist_ok=True)
    with open(f"{scratch}/disk", "wb") as file:
        file.truncate(1 << 20)
    os.environ["RESERV_DRIVER"] = driver
    sh(f"ip link add {link} type veth peer name rsv1")
    rows = [(what, text.replace("DISK", f"{scratch}/disk"), told) for what, text, told in rows]
    try:
        round_trip(reserv, scratch, f"link:{link}@100mbit/{driver}", rows)
        good = reserv("up")[0] == 0 and f"cpu.driver {driver}" in reserv("status")[1]
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
