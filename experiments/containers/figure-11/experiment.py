# SPDX-License-Identifier: MIT OR Apache-2.0
"""How long a preferred client waits for its answer, beside others that saturate the server."""
import subprocess
import time
from contextlib import ExitStack

from harness.link import tool
from harness.machine import Machine, MachineError
from harness.plot import Line, Plot
from harness.verdict import at_least, at_most

PORT = 8080
# Who comes by which link: the server's address, and the clients'.
LINKS = {"high": ("rsvh0", "10.82.0.1", "10.82.0.2"), "low": ("rsvl0", "10.83.0.1", "10.83.0.2")}
# How the server asks, what it serves before it asks again, and whether containers are there.
CURVES = {
    "unmodified": ("select", "all", False),
    "unmodified, one at a time": ("select", "one", False),
    "containers, select": ("select", "yield", True),
    "containers, epoll": ("epoll", "yield", True),
}
SETTLE_S = 0.1


def space(name):
    return f"rsvx-{name}"


def make_links(stack):
    for name, (dev, here, there) in LINKS.items():
        tool(f"ip netns add {space(name)}")
        stack.callback(tool, f"ip netns del {space(name)}")
        for line in (
            f"ip link add {dev} type veth peer name peer0 netns {space(name)}",
            f"ip addr add {here}/24 dev {dev}",
            f"ip link set {dev} up",
            f"ip -n {space(name)} addr add {there}/24 dev peer0",
            f"ip -n {space(name)} link set peer0 up",
        ):
            tool(line)


def beyond(m, name, *words):
    """A load at the other end of a link."""
    child = subprocess.Popen(
        ["ip", "netns", "exec", space(name), str(m.load), *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    m.children.append(child)
    return child


def of_crowd(m, form, crowd, how, container):
    """The preferred client's times in ns, shortest first, beside so many others."""
    servers = (here for _, here, _ in LINKS.values())
    server = m.start("serve", *how, PORT, m.path, *servers, read=True, container=container)
    server.stdout.readline()
    if crowd:
        beyond(m, "low", "crowd", LINKS["low"][1], PORT, crowd)
        time.sleep(SETTLE_S)
    words = "often", LINKS["high"][1], PORT, form["requests"], form["gap_us"], crowd
    took = [int(line) for line in beyond(m, "high", *words).stdout]
    ended = [child.args for child in m.children if child.poll()]
    m.end()
    if ended or len(took) != form["requests"]:
        raise MachineError(f"{len(took)} answers; ended: {ended}")
    return took


def come_up(m):
    """What comes by the preferred client's link is processed before the server serves others, and
    what comes by the others' link after."""
    m.reserv("up", "--driver", "full")
    m.is_up = True
    m.reserv("set", "q0", "share=1000")
    m.reserv("mk", "--container", "--sched", "web", "--share", 1000)
    m.reserv("set", "cpu/web", "policy=prio")
    m.reserv("set", "cpu", "quantum=0.1ms")
    for name, priority in (("high", 90), ("server", 50), ("low", 10)):
        m.reserv("mk", "--container", f"web/{name}")
        m.reserv("set", f"cpu/web/{name}", f"priority={priority}")
    for name, (dev, _, _) in LINKS.items():
        link = "--net", dev, "--rate", "10gbit", "--receive=xdp", "--receive-in", f"web/{name}"
        m.reserv("up", "--driver", "full", *link)
    # Nobody looks at what has just come up any more.
    time.sleep(1)


def measure(m: Machine, form):
    m.use("preferred")
    m.path.write_bytes(bytes(1024))
    data = {}
    with ExitStack() as stack:
        make_links(stack)
        stack.callback(m.down)
        stack.callback(m.end)
        for curve, (*how, containers) in CURVES.items():
            if containers and not m.is_up:
                come_up(m)
            container = "web/server" if containers else None
            data[curve] = [
                {"crowd": crowd, "took_ns": of_crowd(m, form, crowd, how, container)}
                for crowd in form["crowds"]
            ]
    return data


def quantile(took, part):
    return took[min(int(len(took) * part), len(took) - 1)]


def mean(point):
    return sum(point["took_ns"]) / len(point["took_ns"])


def usual(point):
    return quantile(point["took_ns"], 0.5)


def grows(data, curve):
    """By how much the median is longer beside the largest crowd than alone."""
    return usual(data[curve][-1]) / usual(data[curve][0])


def judge(data, band):
    most = data["unmodified"][-1]["crowd"]
    plain, epoll = grows(data, "unmodified"), grows(data, "containers, epoll")
    select, beside = grows(data, "containers, select"), f"time beside {most} others, by that alone"
    return [
        at_least(f"unmodified: {beside}", plain, band["sharp"]),
        at_most(f"containers, epoll: {beside}", epoll, band["slight"]),
        at_most("containers, select: its growth, by the unmodified system's", select / plain, 1),
        at_least("containers, select: its growth, by that with epoll", select / epoll, 1),
    ]


def rows(data):
    out = []
    for curve, points in data.items():
        for p in points:
            times = [mean(p), usual(p), quantile(p["took_ns"], 0.99)]
            system = curve.replace(",", "").replace(" ", "_")
            times_us = [round(ns / 1000, 1) for ns in times]
            out.append([system, p["crowd"], *times_us, round(usual(p) / usual(points[0]), 3)])
    return ["system", "others", "mean_us", "median_us", "p99_us", "by_alone"], out


def plot(data):
    return Plot(
        "Time until a preferred client is answered, by that of it alone",
        "other clients",
        "time, by that alone",
        [
            Line(curve, [(p["crowd"], usual(p) / usual(points[0])) for p in points])
            for curve, points in data.items()
        ],
    )
