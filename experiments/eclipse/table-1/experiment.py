# SPDX-License-Identifier: MIT OR Apache-2.0
"""Null call, chcpures, newqueue."""
from harness.machine import MOUNT
from harness.plot import Line, Plot
from harness.verdict import at_most

PAPER_US = {"null": 1.85, "chcpures": 5.64, "newqueue": 10.28, "newqueue_waited": 10.28}


def measure(m, form):
    data = {"baseline": {"null": float(m.run("op", "null", form["calls"])), "request": float(m.run("op", "request", 5))}}
    m.up()
    m.reserv("mk", "a", "--share", 100)
    m.reserv("mk", "b", "--share", 100)
    data["ours"] = {"null": float(m.run("op", "null", form["calls"])),
                    "chcpures": float(m.run("chcpures", form["calls"], MOUNT / "cpu/a", MOUNT / "cpu/b"))}
    # Opened, closed and collected: the CPU that all of it takes, and how long the caller waits
    # (reservd has a fifth of a CPU).
    data["ours"]["newqueue_waited"], data["ours"]["newqueue"] = map(float, m.run("newqueue", form["queues"], MOUNT / "cpu/newqueue").split())
    return data


def judge(data, band):
    request_ns = data["baseline"]["request"]
    return [at_most(f"{name}: of the CPU time of one CGI request", data["ours"][name] / request_ns, band["of_request"], ".5f")
            for name in ("null", "chcpures", "newqueue")]


def rows(data):
    null = data["baseline"]["null"]
    return (["call", "ns", "in_null_calls", "paper_us", "paper_in_null_calls"],
            [["null, without Reserv", null, 1.0, PAPER_US["null"], 1.0],
             *([name, ns, ns / null, PAPER_US[name], PAPER_US[name] / PAPER_US["null"]] for name, ns in data["ours"].items())])


def plot(data):
    null = data["baseline"]["null"]
    names = list(data["ours"])
    return Plot("Calls, in null system calls: " + ", ".join(names), "call, in this order", "null system calls",
                [Line("ours", [(i + 1, data["ours"][n] / null) for i, n in enumerate(names)]),
                 Line("the paper", [(i + 1, PAPER_US[n] / PAPER_US["null"]) for i, n in enumerate(names)])])
