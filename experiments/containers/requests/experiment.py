# SPDX-License-Identifier: MIT OR Apache-2.0
"""Requests a second: as it is, with a container for each, with a cgroup for each."""
from harness.plot import Line, Plot
from harness.verdict import at_least

PAPER = {"close": (2954, 338), "keep": (9487, 105), "memory": ("", "")}
KINDS = ("none", "pool", "cgroup")
PORT = 8080


def served(m, form, port, keep, how):
    """Requests a second, and the server's CPU time for one."""
    server = m.start("server", port, "-" if keep == "memory" else m.path, *how, read=True, container="web/base")
    server.stdout.readline()
    count, ns, cpu = map(int, m.run("client", port, form["connections"], form["ms"], "close" if keep == "close" else "keep", server.pid).split())
    m.end()
    return {"rate": count / ns * 1e9, "cpu_ns": cpu / count}


def measure(m, form):
    m.use("activities")
    groups = m.groups_beside(2)
    m.path.write_bytes(bytes(1024))
    m.up()
    m.reserv("mk", "--container", "--sched", "web", "--share", 100)
    m.reserv("mk", "--container", "web/base", "--share", 10)
    how = {"none": ["none"], "pool": ["pool", "web", 64], "cgroup": ["cgroup", *(group / "cgroup.procs" for group in groups)]}
    data, port = {}, PORT
    for keep in PAPER:
        data[keep] = {kind: [] for kind in KINDS}
        for _ in range(form["rounds"]):
            for kind in KINDS:
                port += 1
                data[keep][kind].append(served(m, form, port, keep, how[kind]))
    return data


def mean(runs, what):
    return sum(run[what] for run in runs) / len(runs)


def judge(data, band):
    return [at_least(f"{keep}: throughput with a container for each request by that without",
                     mean(data[keep]["pool"], "rate") / mean(data[keep]["none"], "rate"), band["kept"]) for keep in ("close", "keep")]


def rows(data):
    return (["connections", "server", "requests_s", "of_without", "cpu_us", "paper_requests_s", "paper_cpu_us"],
            [[keep, kind, mean(data[keep][kind], "rate"), mean(data[keep][kind], "rate") / mean(data[keep]["none"], "rate"),
              mean(data[keep][kind], "cpu_ns") / 1000, *(PAPER[keep] if kind == "none" else ("", ""))] for keep in PAPER for kind in KINDS])


def plot(data):
    return Plot("Requests a second by those without: " + ", ".join(KINDS), "server, in this order", "part",
                [Line(keep, [(i + 1, mean(data[keep][kind], "rate") / mean(data[keep]["none"], "rate")) for i, kind in enumerate(KINDS)]) for keep in PAPER])
