# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random trees with random minimums, written one by one, of which admission control refuses some.
"""
import errno
import os

from live import MOUNT


def share(resource, path, text):
    """Whether a share was accepted; what is refused must be so because of a promise."""
    fd = os.open(f"{MOUNT}/{resource}/{path}/share", os.O_WRONLY)
    try:
        os.write(fd, text.encode())
        return True
    except OSError as e:
        if e.errno != errno.ENOSPC:
            raise
        return False
    finally:
        os.close(fd)


def grow(live, rng, unit, resource="cpu", below=""):
    """Makes a tree; answers its queues, its nodes' minimums (thousandths of the resource) as
    accepted, how many writes were refused, and its schedulers. `unit` makes a thousandth's amount
    of it, in words; `below` is put before the names that the command line takes."""
    nodes, queues, minimums, refused = [""], [], {}, 0
    for i in range(rng.randrange(5, 10)):
        parent = rng.choice([n for n in nodes if n.count("/") < 2])
        scheduler = i < 2 or rng.random() < 0.3
        path = f"{parent}/n{i}".lstrip("/")
        live.mk(below + path, rng.randrange(1, 100), *(["--sched"] if scheduler else []))
        (nodes if scheduler else queues).append(path)
    # A scheduler without queues wants nothing.
    for i, node in enumerate(n for n in nodes if n and not any(q.startswith(n + "/") for q in queues)):
        live.mk(f"{below}{node}/last{i}", 1)
        queues.append(f"{node}/last{i}")
    for _ in range(80):
        # One above must have a minimum before one below can.
        at = rng.choice([n for n in nodes + queues if n and ("/" not in n or os.path.dirname(n) in minimums)])
        minimum = rng.randrange(5, 500 if "/" not in at else 150)
        if share(resource, at, f"{rng.randrange(1, 100)} {unit(minimum)}"):
            minimums[at] = minimum
        else:
            refused += 1
    return queues, minimums, refused, nodes[1:]
