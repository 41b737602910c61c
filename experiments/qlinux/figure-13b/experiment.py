# SPDX-License-Identifier: MIT OR Apache-2.0
"""Datagrams a second against depth."""
import time

from harness.link import DEV, Link, tool
from harness.plot import Line, Plot
from harness.verdict import at_least

SIZE = 1000


def rate(m, link, seconds, queue=None):
    flood = link.net_inf(0, SIZE, queue)
    m.wait_for_counts([0])
    time.sleep(0.5)
    begin, before = time.monotonic(), m.count(0)
    time.sleep(seconds)
    got = (m.count(0) - before) / (SIZE + 42) / (time.monotonic() - begin)
    link.stop([flood])
    return got


def measure(m, form):
    ours = {}
    with Link(m) as link:
        tool(f"tc qdisc add dev {DEV} root pfifo limit 1000")
        pfifo = rate(m, link, form["seconds"])
        tool(f"tc qdisc del dev {DEV} root")
        link.up()
        for depth in form["depths"]:
            path = ""
            for level in range(depth - 1):
                path += f"d{depth}l{level}/"
                m.reserv("mk", f"{DEV}/{path.rstrip('/')}", "--sched", "--share", 1)
            m.reserv("mk", f"{DEV}/{path}leaf{depth}", "--share", 1)
            ours[depth] = rate(m, link, form["seconds"], f"{path}leaf{depth}")
    return {"pfifo": pfifo, "ours": ours}


def judge(data, band):
    depths = sorted(data["ours"], key=int)
    deep = data["ours"][depths[-1]] / data["ours"][depths[0]]
    return [at_least(f"datagrams a second at depth {depths[-1]} of those at depth {depths[0]}", deep, band["deepest"], ".4f")]


def rows(data):
    return (["depth", "ours_per_s", "ours_of_pfifo", "ns_more_than_depth_1"],
            [[int(d), o, o / data["pfifo"], 1e9 / o - 1e9 / data["ours"]["1"]] for d, o in data["ours"].items()])


def plot(data):
    depths = [int(d) for d in data["ours"]]
    return Plot("Datagrams a second of a sender below a chain of nodes", "depth", "datagrams per second",
                [Line("ours", [(int(d), r) for d, r in data["ours"].items()]), Line("pfifo", [(d, data["pfifo"]) for d in depths])])
