# SPDX-License-Identifier: MIT OR Apache-2.0
"""Exact counts from the servers' own logs: every completed request with the microsecond at which it
ended."""

from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterable

#: End of the request in us since the epoch, duration in us, status, how the connection ended (X: aborted),
#: CPU time that the random numbers took.
FORMAT = "%{end:usec}t %D %>s %X %{X-Work-Us}o"
#: nginx's: both times in s with three digits behind the point, status, OK where all was sent.
NGINX_FORMAT = "$msec $request_time $status $request_completion"


@dataclass(frozen=True)
class Request:
    end_us: int
    duration_us: int
    work_us: int
    #: Answered with 200 on a connection that the client still held.
    good: bool


def parse(line: str) -> Request:
    fields = line.split()
    if len(fields) != 5:
        raise ValueError(f"not a line of our log format: {line!r}")
    end, duration, status, connection, work = fields
    good = status == "200" and connection != "X" and work != "-"
    return Request(int(end), int(duration), int(work) if work != "-" else 0, good)


def parse_nginx(line: str) -> Request:
    """A line of NGINX_FORMAT. What is not sent in full has no last word. What the work took is not
    known: the log of both halves is the same, and without reservations nobody counts it."""
    fields = line.split()
    if len(fields) not in (3, 4):
        raise ValueError(f"not a line of our log format: {line!r}")
    end, duration, status = fields[:3]
    good = status == "200" and fields[3:] == ["OK"]
    return Request(round(float(end) * 1e6), round(float(duration) * 1e6), 0, good)


class Tail:
    """Reads what has been added to a log since the last time; keeps everything."""

    def __init__(self, path: Path, parse: Callable[[str], Request] = parse):
        self.path, self._parse = path, parse
        self.requests: list[Request] = []
        self._offset = 0

    def read(self) -> list[Request]:
        with self.path.open("rb") as log:
            log.seek(self._offset)
            data = log.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        self.requests.extend(self._parse(line) for line in whole.decode().splitlines())
        return self.requests


def completed(requests: Iterable[Request], begin_us: int, end_us: int) -> int:
    """Good requests that ended in the window."""
    return sum(r.good and begin_us <= r.end_us < end_us for r in requests)


def served(requests: Iterable[Request], begin_us: int, batch_us: int, batches: int) -> list[float]:
    """How many good requests were served in each of the batches that follow each other from
    begin_us.

    A request counts in a batch by the part of its time that lies in it; its parts sum to one, so a
    sum over all time is the number of completed requests. Counting only ends instead would add up
    to one request per client of chance at each end of a batch, because clients whose requests began
    together also end together."""
    counts = [0.0] * batches
    for r in requests:
        if not r.good:
            continue
        duration = max(r.duration_us, 1)
        start = r.end_us - duration
        first = max((start - begin_us) // batch_us, 0)
        last = min((r.end_us - 1 - begin_us) // batch_us, batches - 1)
        for batch in range(first, last + 1):
            left = begin_us + batch * batch_us
            counts[batch] += (min(r.end_us, left + batch_us) - max(start, left)) / duration
    return counts


def longest_s(requests: Iterable[Request], begin_us: int, end_us: int) -> float:
    """The longest time that a request took which ended in the window."""
    return max((r.duration_us for r in requests if begin_us <= r.end_us < end_us), default=0) / 1e6


def mean_work_us(requests: Iterable[Request], begin_us: int, end_us: int) -> float | None:
    """Mean CPU time of the random numbers of requests that ended in the window; None where nobody
    counts it."""
    work = [r.work_us for r in requests if r.good and begin_us <= r.end_us < end_us]
    return (sum(work) / len(work) or None) if work else None
