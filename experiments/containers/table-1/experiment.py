# SPDX-License-Identifier: MIT OR Apache-2.0
"""Begin, end, bind, usage; create and destroy."""
from harness.plot import Line, Plot
from harness.verdict import at_most

# Of ours, in its order: what it is, and the paper's nearest in us.
CALLS = {"null": ("null call", ""), "entry": ("bind, by the page", 1.04), "bind": ("bind, by a call", 1.04),
         "pair": ("begin and end, of a pool", 4.46), "functions": ("the same by function", 4.46), "later": ("inlined, with all that it costs later", 4.46),
         "thread": ("usage of the thread", 2.04), "usage": ("usage of any container (waits)", 2.04),
         "open": ("create, by a pool's opening (waits)", 2.36), "close": ("destroy, by its closing (waits)", 2.10)}
JUDGED = ("entry", "bind", "pair", "functions", "later", "thread")


def measure(m, form):
    m.use("activities")
    m.path.write_bytes(bytes(1024))
    m.up()
    m.reserv("mk", "--container", "--sched", "web", "--share", 100)
    m.reserv("mk", "--container", "web/base", "--share", 10)
    server = m.start("server", 8080, m.path, "none", read=True, container="web/base")
    server.stdout.readline()
    count, _, cpu = map(int, m.run("client", 8080, 64, form["ms"], "close", server.pid).split())
    m.end()
    words = m.run("cost", "web", form["containers"]).split()
    return {"request": cpu / count, "ours": {name: float(ns) for name, ns in zip(words[::2], words[1::2])}}


def judge(data, band):
    ours = data["ours"]
    return [at_most("begin and end in null calls", ours["pair"] / ours["null"], band["pair"]),
            *(at_most(f"{CALLS[name][0]}: of the CPU time of a request", ours[name] / data["request"], band["of_request"], ".5f") for name in JUDGED)]


def rows(data):
    ours, null = data["ours"], data["ours"]["null"]
    return (["call", "ns", "in_null_calls", "of_request", "paper_us", "paper_of_request"],
            [[what, ours[name], ours[name] / null, ours[name] / data["request"], paper, paper / 338 if paper else ""]
             for name, (what, paper) in CALLS.items()])


def plot(data):
    return Plot("Calls by a request, in percent: " + ", ".join(JUDGED), "call, in this order", "percent",
                [Line("ours", [(i + 1, data["ours"][n] / data["request"] * 100) for i, n in enumerate(JUDGED)]),
                 Line("the paper", [(i + 1, CALLS[n][1] / 338 * 100) for i, n in enumerate(JUDGED)])])
