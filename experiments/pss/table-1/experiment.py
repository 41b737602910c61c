# SPDX-License-Identifier: MIT OR Apache-2.0
"""The unmodified system."""
from harness import media

PAPER = {
    "constant": {"audio": (3000, 0), "video": (3313, 2110), "file": (11996, 0),
                 "Dhrystone": (7333439, "")},
    "bursty": {"audio": (2938, 0), "video": (3466, 1703), "file": (10897, 0),
               "Dhrystone": (7660042, "")},
    "misbehaving": {"audio": (2999, 0), "video": (2456, 2967), "file": (11862, 48043),
                    "Dhrystone": (5479480, "")},
}


def measure(m, form):
    return media.measure(m, form, "stock")


def judge(data, band):
    return media.all_dropped_at(data, "socket", band["between"])


def rows(data):
    return media.rows(data, PAPER)


def plot(data):
    return media.plot(data, "The unmodified system: packets received, of the rate")
