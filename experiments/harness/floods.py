# SPDX-License-Identifier: MIT OR Apache-2.0
"""Two floods of datagrams by weight 1 : 4, the figures 7a and 7b of QLinux: they differ in the
sizes of the datagrams."""
from harness.link import RATE_MBIT, two_floods
from harness.plot import Line, Plot
from harness.verdict import at_least, within

WEIGHTS = (1, 4)


def seconds_of(points):
    """Bytes of each in whole seconds."""
    out, last = [], points[0]
    for p in points[1:]:
        if p[0] - last[0] >= 0.999:
            out.append((p[1] - last[1], p[2] - last[2]))
            last = p
    return out


def judge(data, band):
    ours, base = data["ours"], data["baseline"]
    ratio, plain = ours[-1][2] / ours[-1][1], base[-1][2] / base[-1][1]
    worst = max((b / a for a, b in seconds_of(ours)), key=lambda r: abs(r / 4 - 1))
    used = (ours[-1][1] + ours[-1][2]) * 8 / RATE_MBIT / 1e6 / ours[-1][0]
    return [within("ours: bytes 4 : 1 at the end", ratio / 4, 1 - band["ratio"], 1 + band["ratio"], ".4f"),
            within("ours: the second farthest from 4 : 1", worst / 4, 1 - band["window_ratio"], 1 + band["window_ratio"], ".4f"),
            at_least("ours: the link is used", used, 0.99, ".4f"),
            at_least("baseline: the weights are not to be had there", abs(plain / 4 - 1), 0.1, ".4f")]


def rows(data):
    return (["time_s", "ours_c0", "ours_c1"], [[round(t, 3), a, b] for t, a, b in data["ours"]])


def experiment(sizes):
    """The four parts of the experiment with datagrams of these sizes."""
    def measure(m, form):
        return two_floods(m, form["seconds"], sizes, WEIGHTS)

    def plot(data):
        at = lambda points, i: [(p[0], p[i]) for p in points]  # noqa: E731
        return Plot("Bytes of two floods, %d and %d bytes a datagram, weights 1 : 4" % sizes, "seconds", "bytes",
                    [Line("ours, weight 1", at(data["ours"], 1)), Line("ours, weight 4", at(data["ours"], 2)),
                     Line("one queue, first", at(data["baseline"], 1)), Line("one queue, second", at(data["baseline"], 2))])

    return measure, judge, rows, plot
