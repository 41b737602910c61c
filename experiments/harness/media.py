# SPDX-License-Identifier: MIT OR Apache-2.0
"""Audio, video and a file over UDP beside a program that takes what is left of the CPU: tables 1 to
5 of Proportional Share of OS Services, which differ in what schedules and in what the link's
entrance lets in.

One CPU in instruction time, so all that anybody does takes of the same second. Senders are a wire:
they go before everybody (SCHED_FIFO), and what they and the kernel's softirqs behind them take
belongs to nobody. What a packet costs is measured beside (`costs`), and so can be told apart."""

import contextlib
import json
import os
import random
import statistics
import subprocess
import time

from harness.link import DEV, Link, tool
from harness.machine import MOUNT, MachineError
from harness.plot import Line, Plot
from harness.verdict import at_least, at_most, within

HERE = "10.81.0.1"
# Of each application: bytes, packets a second, microseconds of CPU for a packet.
APPS = {"audio": (100, 50, 1000), "video": (1470, 90, 5000), "file": (1470, 200, 1000)}
PORTS = {app: 7001 + at for at, app in enumerate(APPS)}
ROOMY = "bursty (32 entries)"
ROGUE = 1000  # packets a second of the file's sender when it misbehaves
PATTERNS = ("constant", "bursty", "misbehaving")
HOG = 6  # its word; received are words 0 to 2, sent 3 to 5
UNREAD, NOWHERE = 7009, "10.83.0.2"
# FreeBSD 2.2's udp_recvspace; Linux counts a datagram's memory too, and gives twice as much.
ROOM = 41600
# The reservations: what each receiver needs (5, 45, 20 % and its system calls) of the three
# quarters of the CPU that a misbehaving sender's packets leave. The Dhrystone has the rest.
SHARES = {"audio": 7, "video": 60.5, "file": 25.7}
# The paper's entries of a destination's queue, and the rate at which its receiver is ready.
ENTRIES = {"audio": 2, "video": 2, "file": 3}
# What comes in before anybody is asked for room, in packets a second and at once: in the paper a
# turn of IP's each 10 ms, of four packets for whomever and with a queue of 50 for all, or of those
# that each destination's queue has room for. Not 400 but 397: in instruction time four each 10 ms
# keep step with senders, and one whose packets come each 20 ms lost all or none.
TURNS = 100
GATES = {"shared": {"": (397, 50)},
         "queues": {app: (most * TURNS, most) for app, most in ENTRIES.items()}}
RUN_UP_S = 1.0
FILTER = 1900  # instructions, of those that fit into a message of tc


@contextlib.contextmanager
def first():
    """Before all but the wire: what is read is read at once, and a sender starts at once."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(5))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


class Media:
    """The applications and their senders over a link. `with Media(machine, mode, form) as it:`
    modes: stock, processes, entrance, and those of GATES, which have an entrance too."""

    def __init__(self, machine, mode, form):
        self.m, self.mode, self.form = machine, mode, form
        self.gates = GATES.get(mode, {})
        self.entrance = mode == "entrance" or self.gates
        self.link = Link(machine)

    def __enter__(self):
        self.link.__enter__()
        try:
            self.ready()
        except BaseException:
            self.link.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.link.__exit__()

    def ready(self):
        m, space = self.m, self.link.space
        m.use("media")
        # Where a sender's packets go when only it is measured: a device that drops them.
        for line in ("link add far0 type dummy", "addr add 10.83.0.1/24 dev far0",
                     "link set far0 up",
                     f"neigh replace {NOWHERE} lladdr 02:00:00:00:00:01 dev far0"):
            tool(f"ip -n {space} {line}")
        if self.mode != "stock":
            more = ["--net", DEV, "--rate", "10mbit", "--receive"]
            m.reserv("up", "--driver", "full", "--personality", "rtss98",
                     *(more if self.entrance else []))
            m.is_up = True
            for app, percent in SHARES.items():
                m.reserv("mk", app, "--share", f"={percent}%")
            m.reserv("mk", "dhrystone", "--share", 100)
            m.reserv("set", "q0", "share=4")
        if self.entrance:
            for app, (_, rate, _) in [*APPS.items(), ("unread", (0, 200, 0))]:
                m.reserv("mk", f"{DEV}/{app}", "--share", 100)
                if not self.gates:
                    self.entries(app, ENTRIES.get(app, 3), rate)
        for app, (rate, burst) in self.gates.items():
            self.gate(PORTS.get(app), rate, burst)
        if "file" in self.gates:
            self.gate(UNREAD, *self.gates["file"])
        self.dear(self.form["filters"])

    def gate(self, port, rate, burst):
        """A rule, which is asked before a socket is looked for. Without a port for all."""
        of = [f"local_port={port}", "protocol=udp"] if port else []
        self.m.reserv("rule", "add", "from=any", *of, "to", f"receive={rate}/s",
                      f"receive-burst={burst}")

    def entries(self, app, burst, rate):
        self.m.reserv("set", f"{DEV}/{app}", f"receive={rate}/s", f"receive-burst={burst}")

    def dear(self, filters):
        """What comes over the link goes through filters that know nothing of it, behind the
        entrance and before the protocol: a packet costs what it did on the paper's machine."""
        if not filters:
            return
        path = f"{self.m.path}.filter"
        work = f"{FILTER},0 0 0 0," + "4 0 0 1," * (FILTER - 2) + "6 0 0 0"
        with open(path, "w", encoding="ascii") as file:
            file.write(work)
        tool(f"tc qdisc add dev {DEV} clsact")
        for at in range(filters):
            tool(f"tc filter add dev {DEV} ingress prio {at + 1} bpf bytecode-file {path}")

    def begin(self, words, queue=None, link=None, space=None):
        reserv = [str(self.m.reserv_program), "run"]
        here = self.mode != "stock" and queue
        there = self.entrance and link
        prefix = ["ip", "netns", "exec", space] if space else []
        if here or there:
            prefix = [*reserv, *(["--cpu", queue] if here else []),
                      *(["--net", f"{DEV}/{link}"] if there else []), "--"]
        child = subprocess.Popen([*prefix, str(self.m.load), *map(str, words)],
                                 stdin=subprocess.DEVNULL, text=True)
        self.m.children.append(child)
        return child

    def receivers(self):
        for at, (app, (_, _, work)) in enumerate(APPS.items()):
            self.begin(["take", self.m.path, at, PORTS[app], work, ROOM], app, app)
        self.hog()

    def hog(self):
        self.begin(["dhrystone", self.m.path, HOG], "dhrystone")

    def send(self, slot, port, size, rate, seed, *how, to=HERE):
        words = ["send", self.m.path, slot, to, port, size, rate, seed, *how]
        with first():
            self.begin(words, space=self.link.space)

    def look(self):
        found = {}
        if self.gates:
            # First: a program that starts is the one thing here that takes its time.
            counts = json.loads(self.m.reserv("--json", "rule", "list"))["counts"]
            found["gates"] = [one["dropped"] for one in counts]
        found["at"] = time.monotonic()
        found["words"] = [self.m.count(slot) for slot in range(HOG + 1)]
        with open("/proc/net/udp", encoding="ascii") as file:
            lines = [line.split() for line in file][1:]
        at_socket = {int(line[1].split(":")[1], 16): int(line[-1]) for line in lines}
        found["socket"] = [at_socket[port] for port in PORTS.values() if port in at_socket]
        found["interface"] = [self.dropped(app) for app in APPS]
        return found

    def dropped(self, app):
        """At the interface, and behind what GATES let in; one that has no entrance drops nothing.
        """
        if not self.entrance:
            return 0
        told = dict(line.split() for line in (MOUNT / DEV / app / "stat").read_text().splitlines())
        return int(told["receive_dropped_full"]) + int(told["receive_dropped_rate"])

    def window(self, seconds):
        time.sleep(RUN_UP_S)
        with first():
            a = self.look()
            time.sleep(seconds)
            b = self.look()
        took = b["at"] - a["at"]
        sent, got = (([y - x for x, y in zip(a["words"], b["words"])])[of] for of in
                     (slice(3, 6), slice(0, 3)))
        less = {key: [y - x for x, y in zip(a[key], b[key])]
                for key in ("socket", "interface", "gates") if key in a}
        return {"seconds": took, "dhrystone": b["words"][HOG] - a["words"][HOG], "sent": sent,
                "received": got, **less}

    def over(self):
        """All of them end, and what they counted with them."""
        self.m.end()
        self.m.words[0:8 * 8] = bytes(8 * 8)

    def run(self, pattern, seed):
        """A minute of all."""
        self.receivers()
        self.m.wait_for_counts([HOG])
        # Receivers learn what a millisecond is before anything comes.
        time.sleep(RUN_UP_S)
        how = ["bursty"] if pattern.startswith("bursty") else []
        for at, (app, (size, rate, _)) in enumerate(APPS.items()):
            rate = ROGUE if app == "file" and pattern == "misbehaving" else rate
            self.send(3 + at, PORTS[app], size, rate, seed * 10 + at, *how)
        # The first start of a program waits for the guest's file server.
        self.m.wait_for_counts([3, 4, 5])
        found = self.window(self.form["seconds"])
        self.over()
        return found

    def cost(self, rate, to=HERE, unread=True):
        """Iterations a second of a Dhrystone alone beside so many packets for a socket from which
        nothing is taken (or that go nowhere)."""
        if unread:
            self.begin(["leave", UNREAD, ROOM], link="unread")
        self.hog()
        self.m.wait_for_counts([HOG])
        if rate:
            self.send(3, UNREAD, APPS["file"][0], rate, 1, to=to)
            self.m.wait_for_counts([3])
        found = self.window(self.form["cost_seconds"])
        self.over()
        return {"rate": found["sent"][0] / found["seconds"],
                "dhrystone": found["dhrystone"] / found["seconds"]}


def measure(machine, form, mode, patterns=PATTERNS):
    with Media(machine, mode, form) as it:
        # The machine's first seconds are its own.
        it.cost(0)
        costs = {"none": it.cost(0), "nowhere": it.cost(ROGUE, NOWHERE, False),
                 "unread": it.cost(ROGUE)}
        data = {"mode": mode, "costs": costs, "runs": {}}
        for pattern in patterns:
            if pattern == ROOMY:
                for app, (_, rate, _) in APPS.items():
                    it.entries(app, 32, rate)
            seeds = random.Random(pattern).sample(range(1, 1000), form["runs"])
            data["runs"][pattern] = [it.run(pattern, seed) for seed in seeds]
    for run in data["runs"]["constant"]:
        for (app, (_, rate, _)), sent in zip(APPS.items(), run["sent"]):
            if sent < 0.99 * rate * run["seconds"]:
                raise MachineError(f"{app}'s sender sent {sent} in {run['seconds']:.1f} s")
    return data


# What was measured.

def cost_us(data, what):
    """Of one packet, in us of the CPU: by what the Dhrystone alone loses beside it."""
    none, point = data["costs"]["none"]["dhrystone"], data["costs"][what]
    return (1 - point["dhrystone"] / none) / point["rate"] * 1e6


def mean(data, pattern, key, at):
    return statistics.mean(run[key][at] for run in data["runs"][pattern])


def spread(values):
    return statistics.stdev(values) if len(values) > 1 else 0.0


def hog(data, pattern):
    """The Dhrystone's part of a CPU that it has alone."""
    alone = data["costs"]["none"]["dhrystone"]
    runs = data["runs"][pattern]
    return statistics.mean(run["dhrystone"] / run["seconds"] for run in runs) / alone


def nominal(data, pattern, at):
    """Of the run that received least, of what its sender is to send."""
    rate = list(APPS.values())[at][1]
    return min(run["received"][at] / run["seconds"] / rate for run in data["runs"][pattern])


def rates_are_kept(data, least, patterns=("constant", "misbehaving")):
    return [at_least(f"{pattern} senders: {app} receives, of its rate",
                     nominal(data, pattern, at), least, ".4f")
            for pattern in patterns for at, app in enumerate(APPS)]


def lost(run, at, key):
    """Packets that were sent and not received, beyond those that were dropped there."""
    return run["sent"][at] - run["received"][at] - run[key][at]


def all_dropped_at(data, key, most):
    """Nothing is lost but there. What waits in a socket when it is counted is neither."""
    return [at_most(f"{pattern} senders: packets lost elsewhere than at the {key}",
                    max(abs(lost(run, at, key)) for run in data["runs"][pattern]
                        for at in range(len(APPS))), most, ".0f") for pattern in data["runs"]]


def never_dropped_at(data, key, patterns, apps=tuple(APPS)):
    names = list(APPS)
    return [at_most(f"{pattern} senders: drops at the {key}, {', '.join(apps)}",
                    max(run[key][names.index(app)] for run in data["runs"][pattern]
                        for app in apps), 0, ".0f") for pattern in patterns]


def excess_is_dropped_at(data, key, least):
    """The packets beyond the file's rate."""
    at = list(APPS).index("file")
    beyond = [run[key][at] / (run["sent"][at] - APPS["file"][1] * run["seconds"])
              for run in data["runs"]["misbehaving"]]
    return within(f"misbehaving sender: drops at the {key}, of the excess", min(beyond), least,
                  2 - least, ".4f")


def lost_nowhere(data, most):
    """Nothing is lost but where it is counted, of all three together."""
    keys = ("received", "socket", "interface", "gates")
    return [at_most(f"{pattern} senders: packets that nobody counts",
                    max(abs(sum(run["sent"]) - sum(sum(run[key][:len(APPS)]) for key in keys))
                        for run in data["runs"][pattern]), most, ".0f")
            for pattern in data["runs"]]


def hog_falls_by_its_cost(data, most):
    """By the misbehaving sender's packets and no more: what they cost, measured beside."""
    at = list(APPS).index("file")
    rate = {pattern: statistics.mean(run["sent"][at] / run["seconds"]
                                     for run in data["runs"][pattern])
            for pattern in ("constant", "misbehaving")}
    stolen = (rate["misbehaving"] - rate["constant"]) * cost_us(data, "unread") / 1e6
    fell = hog(data, "constant") - hog(data, "misbehaving")
    return within("the Dhrystone falls under a misbehaving sender, of a CPU, beyond what its "
                  f"packets take ({stolen:.4f})", fell - stolen, -most, most, ".4f")


def rows(data, paper):
    """A line for each application and pattern; `paper`: its columns, by pattern."""
    header = ["senders", "receiver", "packets", "sd", "at_socket", "sd", "at_interface", "sd",
              "paper", "at_socket"]
    table = []
    for pattern, runs in data["runs"].items():
        for at, app in enumerate(APPS):
            line = [pattern, app]
            for key in ("received", "socket", "interface"):
                values = [run[key][at] for run in runs]
                line += [f"{statistics.mean(values):.1f}", f"{spread(values):.1f}"]
            table.append([*line, *paper.get(pattern, {}).get(app, ("", ""))])
        for at, app in enumerate(GATES[data["mode"]] if "gates" in runs[0] else ()):
            values = [run["gates"][at] for run in runs]
            told = f"{statistics.mean(values):.1f}", f"{spread(values):.1f}"
            table.append([pattern, f"before: {app or 'all'}", *[""] * 4, *told, "", ""])
        values = [run["dhrystone"] for run in runs]
        table.append([pattern, "Dhrystone", f"{statistics.mean(values):.0f}",
                      f"{spread(values):.0f}", "", "", "", "",
                      *paper.get(pattern, {}).get("Dhrystone", ("", ""))])
    costs = {"sent": "nowhere", "dropped": "unread"}
    for name, what in costs.items():
        table.append(["us a packet", name, f"{cost_us(data, what):.1f}", *[""] * 7])
    return header, table


def plot(data, title):
    lines = [Line(app, [(at + 1, nominal(data, pattern, place)) for at, pattern in
                        enumerate(data["runs"])]) for place, app in enumerate(APPS)]
    lines.append(Line("Dhrystone, of a CPU", [(at + 1, hog(data, pattern)) for at, pattern in
                                              enumerate(data["runs"])]))
    return Plot(title, ", ".join(f"{at + 1}: {p}" for at, p in enumerate(data["runs"])),
                "received, of the rate", lines)
