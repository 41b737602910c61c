# SPDX-License-Identifier: MIT OR Apache-2.0
"""What is run: the sites, their weights, the clients, the windows. Bars of the verdict stand in
`judge`."""

from dataclasses import dataclass, replace
from typing import Any

SITES = 4
#: The halves of a form.
BASELINE, RESERVED = "without", "with"
#: By the word for the servers: what they are, and what a request costs.
SERVERS = {"apache": "One Apache with four virtual hosts", "nginx": "One nginx with four sites",
           "four": "Four Apache servers, one per company,"}
RANDOM_NUMBERS = "a request computes 500 000 random numbers (CGI)"
REQUESTS = {"apache": RANDOM_NUMBERS, "nginx": "a request compresses a page of 32 KB",
            "four": RANDOM_NUMBERS}
#: Weight of each site's queue q1..q4, and of q0, which serves everything else (Eclipse/BSD §4: 0.24 and 0.04).
SITE_WEIGHT = 24
Q0_WEIGHT = 4
#: Where the clients are: on machines of their own, as it were, so that what they use is not q0's.
CLIENTS_QUEUE, CLIENTS_WEIGHT = "clients", 100
#: Clients that site 1 keeps all the time.
SITE1_CLIENTS = 8
#: Processes that a server has beyond the most clients that it can get, so that they are never the limit.
SPARE_SLOTS = 4


@dataclass(frozen=True)
class Plan:
    """The points of one ramp and how long each is looked at."""

    quick: bool
    #: Clients of each of sites 2..4, growing.
    points: tuple[int, ...]
    #: Batches of one point, and the length of each. A batch is one value for the confidence interval.
    batches: int
    batch_s: float
    #: Shortest and longest time that new clients get to reach their steady state before counting.
    settle_s_min: float
    settle_s_max: float
    #: CPU time of one request with all that the server adds: a guess until the first point has
    #: been seen.
    work_s: float = 0.05
    #: The link-bound form: its points, how long new clients get, and how long is counted.
    link_points: tuple[int, ...] = (0, 8, 32)
    link_settle_s: float = 3.0
    link_window_s: float = 5.0
    #: The disk-bound form: likewise, of readers.
    disk_points: tuple[int, ...] = (4, 16)
    disk_settle_s: float = 3.0
    disk_window_s: float = 8.0

    @property
    def window_s(self) -> float:
        return self.batches * self.batch_s

    def with_points(self, points: tuple[int, ...]) -> "Plan":
        """The same windows at other points, which must grow."""
        if list(points) != sorted(set(points)) or not points or points[0] < 0:
            raise ValueError(f"points must grow: {points}")
        return replace(self, points=points, link_points=points, disk_points=points)


#: On a machine: real time, so real disturbances; longer windows.
MACHINE = {
    False: Plan(quick=False, points=(0, 2, 4, 8, 16, 24, 32), batches=6, batch_s=3.0, settle_s_min=2.0, settle_s_max=12.0),
    True: Plan(quick=True, points=(0, 4, 8, 32), batches=5, batch_s=0.8, settle_s_min=1.0, settle_s_max=6.0,
               link_points=(8, 32), link_settle_s=2.0, link_window_s=2.5, disk_window_s=5.0),
}
#: In the emulated guest time is a function of executed instructions (vm/run --icount): nothing disturbs, and every second
#: takes two or more of the user's.
GUEST = {
    False: Plan(quick=False, points=(0, 2, 4, 8, 16, 24, 32), batches=6, batch_s=1.5, settle_s_min=0.6, settle_s_max=12.0),
    True: Plan(quick=True, points=(0, 8, 32), batches=4, batch_s=0.5, settle_s_min=0.5, settle_s_max=6.0, work_s=0.033,
               link_points=(8, 32), link_settle_s=1.5, link_window_s=2.0, disk_window_s=4.0),
}


def reserved_names(one_server: bool) -> list[str]:
    """What reserves for each site: a container, or the queue of its server."""
    return [f"{'site' if one_server else 'q'}{site + 1}" for site in range(SITES)]


def clients_at(n: int) -> tuple[int, ...]:
    """Clients of each site at point n."""
    return (SITE1_CLIENTS,) + (n,) * (SITES - 1)


def shares(point: dict[str, Any]) -> list[float]:
    """Each site's part of the bytes, where a link or a disk is short."""
    total = sum(point["bytes"]) or 1
    return [b / total for b in point["bytes"]]


def round_s(site: int, n: int, work_s: float, reserved: bool) -> float:
    """How long one request takes at point n when its work alone takes `work_s`: the time over which
    new clients are spread. Only smoothness depends on it, no result."""
    mine = clients_at(n)[site]
    if reserved:
        return mine * work_s * (SITES if n else 1)
    return sum(clients_at(n)) * work_s
