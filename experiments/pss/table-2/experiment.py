# SPDX-License-Identifier: MIT OR Apache-2.0
"""Processes are scheduled by proportional share; what arrives is not."""
from harness import media

PAPER = {
    "constant": {"audio": (2999, 0), "video": (5454, 0), "file": (11996, 0),
                 "Dhrystone": (4593536, "")},
    "bursty": {"audio": (2927, 0), "video": (5126, 0), "file": (10483, 0),
               "Dhrystone": (6115263, "")},
    "misbehaving": {"audio": (2999, 0), "video": (5454, 0), "file": (12000, 47952),
                    "Dhrystone": (915343, "")},
}


def measure(m, form):
    return media.measure(m, form, "processes")


def judge(data, band):
    return [*media.rates_are_kept(data, band["kept"]),
            *media.never_dropped_at(data, "socket", ["constant"]),
            *media.never_dropped_at(data, "socket", ["misbehaving"], ("audio", "video")),
            *media.all_dropped_at(data, "socket", band["between"]),
            media.excess_is_dropped_at(data, "socket", band["excess"]),
            media.hog_falls_by_its_cost(data, band["fall"])]


def rows(data):
    return media.rows(data, PAPER)


def plot(data):
    return media.plot(data, "Proportional share of processes: packets received, of the rate")
