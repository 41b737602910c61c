# SPDX-License-Identifier: MIT OR Apache-2.0
"""`/reserv/LINK/QUEUE/dropped`: whose packets a queue lost at a link's entrance, and who waits for
news of it by poll(2). For a network name space of its own (tests/lib/receive.py). What is counted
is compared with a count of every prefix, by the bounds of Space-Saving."""
import ipaddress
import os
import random
import select
import socket
import subprocess
import threading
import time

from live import MOUNT, check, kill, pids_of
from net_stock import ours
from receive import DEV, counts, server
import receive_rules

PORT, PLACES = 5001, 16
MINE = f"{MOUNT}/{DEV}/a/dropped"
TENANT = """
import os, select, sys
told = []
for _ in range(int(sys.argv[2])):
    poll = select.poll()
    poll.register(os.open(sys.argv[1], os.O_RDONLY), select.POLLIN)
    told.append(poll.poll(0))
print(sum(not one for one in told), sum(bool(one) and one[0][1] == select.POLLERR for one in told))
"""


def dropped(path=MINE):
    with open(path, encoding="ascii") as file:
        return {prefix: (int(count), int(over)) for prefix, count, over in map(str.split, file)}


def lost():
    return sum(counts("a")[1:])


def prefix_of(source):
    length = 64 if ":" in source else 24
    return str(ipaddress.ip_network(f"{source}/{length}", strict=False))


def sends(live, send, sources, kind=socket.SOCK_DGRAM):
    """From each of these an own packet, and waits until all are counted."""
    before = sum(counts("a"))
    made = enumerate(sources)
    packets = [receive_rules.packet(source, PORT, kind, 1000 + n) for n, source in made]
    for at in range(0, len(packets), 40):
        send("raw", *packets[at:at + 40])
    wanted = before + len(packets)
    live.wait(f"{len(packets)} packets are counted", lambda: sum(counts("a")) == wanted)


class Waiter:
    """A thread that polls a file."""

    def __init__(self, poll):
        self.woken = []
        self.thread = threading.Thread(target=lambda: self.woken.append(poll.poll(60_000)))
        self.thread.start()
        time.sleep(0.3)

    def told(self):
        """What poll(2) told when it ended."""
        self.thread.join(30)
        return self.woken


def tenant(files):
    """A user who polls so many."""
    command = "/usr/bin/python3", "-IS", "-c", TENANT, MINE, str(files)
    return subprocess.run(command, user=64005, group=64005, capture_output=True, text=True)


def whose(live, send):
    sock = server("a", PORT, family=socket.AF_INET6, room=2000)
    check(dropped() == {}, "nobody has lost a packet", dropped())
    sends(live, send, ["10.66.9.1"] * 40)
    filled = dropped()
    check(filled == {"10.66.9.0/24": (lost(), 0)}, "one who did is named", filled)
    wanted = {"10.66.1.0/24": 60, "10.66.2.0/24": 20, "fd79:1::/64": 30}
    sends(live, send, [*["10.66.1.7"] * 30, *["fd79:1::9"] * 30,
                       *["10.66.1.200"] * 30, *["10.66.2.1"] * 20])
    got = dropped()
    check(all(got.get(prefix) == (n, 0) for prefix, n in wanted.items()),
          "by /24 of IPv4 and /64 of IPv6, exactly where there are few", got)
    order = [n for n, _ in got.values()]
    check(order == sorted(order, reverse=True), "the heaviest first", got)
    with open(MINE, encoding="ascii") as file:
        check(file.read().startswith("10.66.1.0/24 60 0\n"), "a line: prefix, packets, error")
    # attack: from many forged addresses, so that the one who floods is not seen
    dice = random.Random(3)
    many = [f"10.{dice.randrange(1, 9)}.{dice.randrange(256)}.7" for _ in range(600)]
    many += ["10.99.9.9"] * 90
    dice.shuffle(many)
    sends(live, send, many)
    true = {prefix: n for prefix, (n, _) in got.items()}
    for source in many:
        true[prefix_of(source)] = true.get(prefix_of(source), 0) + 1
    got, total = dropped(), lost()
    check(sum(n for n, _ in got.values()) == total == sum(true.values()),
          "from many, the counts come to what was lost", (total, sum(true.values())))
    check(all(0 <= n - true.get(prefix, 0) <= over <= total / PLACES
              for prefix, (n, over) in got.items()),
          "a count is too large by no more than it says, which is a sixteenth at most", got)
    heavy = {prefix for prefix, n in true.items() if n > total / PLACES}
    check(heavy and heavy <= set(got) and len(got) == PLACES,
          "who has more than a sixteenth is named", sorted(heavy))
    check(dropped(f"{MOUNT}/{DEV}/b/dropped") == {}, "another queue has nothing of it")
    sock.close()
    listener = server("a", PORT, socket.SOCK_STREAM)
    sends(live, send, [f"10.77.{n}.1" for n in (1, 2) for _ in range(20)], socket.SOCK_STREAM)
    live.reserv("set", f"{DEV}/a", "limit=0")
    check(dropped() == {} and lost() == 0, "they begin anew with the other counters", dropped())
    listener.close()


def syns(live, send):
    """A listener whose queue of connections is full: who asks for one is named."""
    listener = server("a", PORT, socket.SOCK_STREAM)
    send("connect", "10.79.0.1", PORT, 40, 3)
    live.wait("SYNs are dropped", lambda: lost() > 0)
    check(set(dropped()) == {prefix_of("10.79.0.2")},
          "a SYN that is dropped names who sent it", dropped())
    listener.close()


def polls(live, send):
    sock = server("a", PORT, room=2000)
    sends(live, send, ["10.66.9.1"] * 40)
    fd = os.open(MINE, os.O_RDONLY)
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    check(poll.poll(0) == [(fd, select.POLLIN)], "a file that was never read has news")
    os.pread(fd, 4096, 0)
    check(poll.poll(0) == [] and poll.poll(300) == [], "read, it has none")
    waiter = Waiter(poll)
    check(not waiter.woken, "who polls waits")
    sends(live, send, ["10.66.5.1"])
    check(waiter.told() == [[(fd, select.POLLIN)]], "until a packet is dropped", waiter.woken)
    check(poll.poll(0) == [(fd, select.POLLIN)], "it has news until it is read")
    check(b"10.66.5.0/24 1 0\n" in os.pread(fd, 4096, 0) and poll.poll(0) == [], "and then none")
    ready = select.epoll()
    ready.register(fd, select.EPOLLIN | select.EPOLLET)
    check(ready.poll(0.2) == [], "epoll waits too")
    sends(live, send, ["10.66.5.1"])
    check(ready.poll(30) == [(fd, select.EPOLLIN)], "and is woken")
    os.pread(fd, 4096, 0)
    always = os.open(f"{MOUNT}/{DEV}/a/stat", os.O_RDONLY)
    check(select.select([always], [], [], 0)[0] == [always], "other files can always be read")
    os.close(always)
    # attack: the worker dies while somebody waits, who would wait for ever
    waiter = Waiter(poll)
    mine = {pid: line for pid, line in pids_of("reservd").items() if pid in ours()}
    worker = next(pid for pid, line in mine.items() if "--role=worker" in line.split())
    kill(worker)
    live.wait("the worker is dead", lambda: worker not in pids_of("reservd"))
    sends(live, send, ["10.66.6.1"])
    check(waiter.told() == [[(fd, select.POLLIN)]], "a waiter of the worker before is woken",
          (waiter.woken, dropped(), counts("a")))
    os.pread(fd, 4096, 0)
    check(poll.poll(0) == [], "and the worker after it knows what was read from then on")
    os.close(fd)
    if MOUNT.startswith("/dev/shm/"):
        os.chmod(os.path.dirname(MOUNT), 0o711)  # a test's own place
    # attack: a user polls more files than one may, and those of others
    refused = tenant(1)
    check(refused.returncode != 0 and "PermissionError" in refused.stderr,
          "who may not read a queue does not hear of it", refused.stderr[-200:])
    live.reserv("allow", "64005", "read", f"{DEV}/a")
    live.reserv("set", f"{DEV}/a", "limit=0")
    told = tenant(300)
    check(told.stdout.split() == ["256", "44"],
          "a user may poll 256 files, and is told of an error beyond", told.stdout + told.stderr)
    # The kernel tells a file system of files that are closed behind the one who closes them.
    live.wait("when they are closed he may again",
              lambda: tenant(1).stdout.split() == ["1", "0"])
    live.reserv("deny", "64005", "read", f"{DEV}/a")
    live.mk(f"{DEV}/short", 10)
    gone = os.open(f"{MOUNT}/{DEV}/short/dropped", os.O_RDONLY)
    poll = select.poll()
    poll.register(gone, select.POLLIN)
    waiter = Waiter(poll)
    live.reserv("rm", f"{DEV}/short")
    check(waiter.told() == [[(gone, select.POLLERR)]],
          "whose queue is removed is woken with an error", waiter.woken)
    os.close(gone)
    sock.close()


def run(live, send):
    whose(live, send)
    syns(live, send)
    live.reserv("set", f"{DEV}/a", "limit=0")
    polls(live, send)
