# SPDX-License-Identifier: MIT OR Apache-2.0
"""Processes by proportional share, and so many packets a second come in for each."""
from harness import media
from harness.verdict import at_least, at_most

PAPER: dict = {}  # lost in the text


def measure(m, form):
    return media.measure(m, form, "queues")


def judge(data, band):
    at = list(media.APPS).index("file")
    most = media.GATES["queues"]["file"][0]
    rogue = data["runs"]["misbehaving"]
    full = [run["interface"][at] / run["seconds"] for run in rogue]
    before = min(run["gates"][at] / (run["sent"][at] - most * run["seconds"]) for run in rogue)
    return [*media.rates_are_kept(data, band["kept"]),
            at_least("misbehaving sender: of the file's beyond its three, dropped before", before,
                     band["before"], ".4f"),
            at_least("misbehaving sender: of the file's that came in, without room, a second",
                     min(full), 1, ".1f"),
            at_most("misbehaving sender: and at most", max(full), band["full"], ".1f"),
            *media.never_dropped_at(data, "interface", ["constant", "misbehaving"],
                                    ("audio", "video")),
            *media.never_dropped_at(data, "socket", data["runs"]),
            *media.lost_nowhere(data, band["between"])]


def rows(data):
    return media.rows(data, PAPER)


def plot(data):
    return media.plot(data, "Processes in shares, and so many packets for each: received")
