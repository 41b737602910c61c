# SPDX-License-Identifier: MIT OR Apache-2.0
"""CGI of three companies beside a fourth with two sites: harness/companies.py."""

from harness import companies
from harness.verdict import at_most

NAMES = "E-F11", "E-F12"
measure = companies.cgi


def judge(data, band):
    checks = companies.judge(data, band, NAMES)
    # Beside the requests, the scheduler's own counters.
    off = 0.0
    for half in (companies.PAPER, companies.INSIDE):
        for p in data[half]["points"]:
            by_cpu = [ns / sum(p["cpu_ns"]) for ns in p["cpu_ns"]]
            by_requests = [*companies.parts(p)[:3], companies.parts(p)[companies.SITES]]
            off = max(off, *(abs(a - b) for a, b in zip(by_cpu, by_requests)))
    return [
        *checks,
        at_most(
            "the scheduler's own counters off the requests, at the most", off, band["counters"]
        ),
    ]


def rows(data):
    return companies.rows(data, "per_s", 1)


def plot(data):
    return companies.plot(
        data, "CGI of four companies on one CPU, one of which has two sites", "requests"
    )
