# SPDX-License-Identifier: MIT OR Apache-2.0
"""Documents of three companies beside a fourth with two sites: harness/companies.py."""

from harness import companies
from harness.verdict import at_least, at_most
from four_sites import link

NAMES = "E-F13", "E-F14"
measure = companies.documents


def used(point):
    """Of the link."""
    return sum(point["amount"]) * 8e-6 / point["seconds"] / link.RATE_MBIT


def judge(data, band):
    checks = companies.judge(data, band, NAMES)
    checks.append(
        at_least(
            "the link is used, at the least",
            min(used(p) for half in data.values() for p in half["points"]),
            band["used"],
        )
    )
    # The link's own count, whose first queue is q0: it has the handshakes of the first Apache.
    strays = [
        p["link_bytes"][0] / sum(p["link_bytes"])
        for half in (companies.PAPER, companies.INSIDE)
        for p in data[half]["points"]
    ]
    return [*checks, at_most("of the link through q0, at the most", max(strays), band["strays"])]


def rows(data):
    return companies.rows(data, "mbit", 8e-6)


def plot(data):
    return companies.plot(
        data,
        "Documents of four companies over a link of 100 Mbit/s, one of which has two sites",
        "bytes",
    )
