# SPDX-License-Identifier: MIT OR Apache-2.0
"""Datagrams a second against depth: of a sender whose datagrams take what the paper's took, and of
a bare flood."""
import time

from harness.link import DEV, Link, tool
from harness.plot import Line, Plot
from harness.verdict import at_least, at_most, within

SIZE, ROOM = 1000, 16384


def rate(m, link, seconds, queue=None, work_ns=0):
    flood = link.net_inf(0, SIZE, queue, ROOM, work_ns)
    m.wait_for_counts([0])
    time.sleep(0.5)
    begin, before = time.monotonic(), m.count(0)
    time.sleep(seconds)
    got = (m.count(0) - before) / (SIZE + 42) / (time.monotonic() - begin)
    link.stop([flood])
    return got


def htb(depth):
    """A chain of HTB's classes, none of which is held back."""
    tool(f"tc qdisc add dev {DEV} root handle 1: htb default {depth}")
    for level in range(1, depth + 1):
        tool(f"tc class add dev {DEV} parent 1:{level - 1 if level > 1 else ''} classid 1:{level} htb rate 100gbit quantum 60000")


def measure(m, form):
    ours, paper, classes = {}, {}, {}
    with Link(m) as link:
        tool(f"tc qdisc add dev {DEV} root pfifo limit 1000")
        pfifo = rate(m, link, form["seconds"])
        tool(f"tc qdisc del dev {DEV} root")
        for depth in (form["depths"][0], form["depths"][-1]):
            htb(depth)
            classes[depth] = rate(m, link, form["seconds"])
            tool(f"tc qdisc del dev {DEV} root")
        link.up()
        work = 0
        for depth in form["depths"]:
            path = ""
            for level in range(depth - 1):
                path += f"d{depth}l{level}/"
                m.reserv("mk", f"{DEV}/{path.rstrip('/')}", "--sched", "--share", 1)
            leaf = f"{path}leaf{depth}"
            m.reserv("mk", f"{DEV}/{leaf}", "--share", 1)
            ours[depth] = rate(m, link, form["seconds"], leaf)
            work = work or max(0, round(form["datagram_ns"] - 1e9 / ours[depth]))
            paper[depth] = rate(m, link, form["seconds"], leaf, work)
    return {"pfifo": pfifo, "htb": classes, "ours": ours, "paper": paper, "work_ns": work}


def ends(rates):
    depths = sorted(rates, key=int)
    return int(depths[0]), int(depths[-1]), rates[depths[0]], rates[depths[-1]]


def level_ns(rates):
    """What a level more costs a datagram."""
    low, high, first, last = ends(rates)
    return (1e9 / last - 1e9 / first) / (high - low)


def judge(data, band):
    low, high, first, last = ends(data["paper"])
    return [within("what a datagram takes at depth 1, ms", 1e3 / first, *band["datagram_ms"]),
            at_least(f"such datagrams a second at depth {high} of those at depth {low}", last / first, band["deepest"], ".4f"),
            at_most("what a level more costs a datagram of a bare flood, ns", level_ns(data["ours"]), band["level_ns"], ".0f")]


def rows(data):
    first, paper = data["ours"]["1"], data["paper"]["1"]
    return (["depth", "paper's_per_s", "of_depth_1", "bare_per_s", "of_depth_1", "of_pfifo", "ns_more_than_depth_1", "htb_ns_more"],
            [[int(d), data["paper"][d], data["paper"][d] / paper, o, o / first, o / data["pfifo"], 1e9 / o - 1e9 / first,
              1e9 / data["htb"][d] - 1e9 / data["htb"]["1"] if d in data["htb"] else "-"] for d, o in data["ours"].items()])


def plot(data):
    def relative(rates):
        return [(int(d), r / rates["1"]) for d, r in rates.items()]

    return Plot("Datagrams a second of a sender below a chain of nodes", "depth", "of those at depth 1",
                [Line("a datagram takes what the paper's took", relative(data["paper"])), Line("bare flood", relative(data["ours"])),
                 Line("bare flood, HTB", relative(data["htb"]))])
