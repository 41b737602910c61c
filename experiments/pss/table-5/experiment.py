# SPDX-License-Identifier: MIT OR Apache-2.0
"""Processes by proportional share, and an entrance that lets in what each is ready for."""
from harness import media
from harness.verdict import at_least

PAPER: dict = {}  # lost in the text


def measure(m, form):
    return media.measure(m, form, "entrance", (*media.PATTERNS, media.ROOMY))


def judge(data, band):
    kept = media.hog(data, "misbehaving") / media.hog(data, "constant")
    return [*media.rates_are_kept(data, band["kept"]),
            *media.never_dropped_at(data, "socket", data["runs"]),
            *media.all_dropped_at(data, "interface", band["between"]),
            media.excess_is_dropped_at(data, "interface", band["excess"]),
            at_least("the Dhrystone under a misbehaving sender, of that under constant ones", kept,
                     band["hog"])]


def rows(data):
    return media.rows(data, PAPER)


def plot(data):
    return media.plot(data, "Processes in shares, and an entrance: received, of the rate")
