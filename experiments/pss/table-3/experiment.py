# SPDX-License-Identifier: MIT OR Apache-2.0
"""Processes by proportional share, and so many packets a second come in, whosever they are."""
from harness import media
from harness.verdict import at_least, at_most

PAPER: dict = {}  # lost in the text


def measure(m, form):
    return media.measure(m, form, "shared")


def came_in(run):
    return sum(run["sent"]) - sum(run["gates"])


def judge(data, band):
    rogue = data["runs"]["misbehaving"]
    most = max(came_in(run) - band["turns"] * run["seconds"] for run in rogue)
    audio = max(run["received"][0] / run["seconds"] / media.APPS["audio"][1] for run in rogue)
    return [*media.rates_are_kept(data, band["kept"], ["constant"]),
            at_most("misbehaving sender: audio receives, of its rate", audio, band["audio"], ".4f"),
            at_most(f"misbehaving sender: packets that came in, beyond {band['turns']} a second",
                    most, media.GATES["shared"][""][1] + band["between"], ".0f"),
            *media.never_dropped_at(data, "interface", ["misbehaving"], ("audio", "video")),
            *media.lost_nowhere(data, band["between"]),
            at_least("misbehaving sender: the Dhrystone has, of a CPU",
                     media.hog(data, "misbehaving"), band["hog"], ".4f")]


def rows(data):
    return media.rows(data, PAPER)


def plot(data):
    return media.plot(data, "Processes in shares, and 400 packets a second for all: received")
