# SPDX-License-Identifier: MIT OR Apache-2.0
"""Packets that come in by a link are processed in a queue of the CPU (`reserv up --net IFACE
--receive-in QUEUE`), used as its users do. A sender that goes before all (SCHED_FIFO) is the wire:
what it takes no scheduler gives away, and it is the same in all runs that are compared."""
import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import sys
import time

from live import MOUNT, RESERV, Live, check, cpu_time, kill
from net_stock import ours, refused
from receive import DEV, HERE, Sender, counts, drops, entrances, read_all, server, sh

SWITCH = f"/sys/class/net/{DEV}/threaded"
# A line `PORT PACKETS MS`: so many datagrams each ms, for so long. UDP_SEGMENT: one call for all of
# a ms. The answer is how many were sent.
FLOOD = f"""
import os, socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(17, 103, 64)
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
print('ready', flush=True)
for line in sys.stdin:
    port, packets, ms = map(int, line.split())
    data, at, sent = bytes(64 * packets), time.monotonic(), 0
    for i in range(ms):
        try: sent += s.sendto(data, ('{HERE}', port)) // 64
        except OSError: pass  # the link has gone
        at += 0.001
        left = at - time.monotonic()
        if left > 0: time.sleep(left)
    print(sent, flush=True)
"""
READER = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', {}))\nprint('bound', flush=True)\nwhile True: s.recv(100)"


class Flood:
    def __init__(self, send):
        self.process = subprocess.Popen(["nsenter", "-t", str(send.process.pid), "-n", sys.executable, "-IS", "-c", FLOOD],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def begin(self, port, packets, ms):
        print(port, packets, ms, file=self.process.stdin, flush=True)

    def end(self):
        return int(self.process.stdout.readline())

    def close(self):
        self.process.kill()
        self.process.wait()


def threads():
    """The kernel's threads of any interface: the boot has no others."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm", encoding="ascii") as file:
                if file.read().startswith("napi/"):
                    found.append(int(pid))
        except OSError:
            pass
    return found


def ran(tid):
    with open(f"/proc/{tid}/schedstat", encoding="ascii") as file:
        return int(file.read().split()[0])


def switch():
    with open(SWITCH, encoding="ascii") as file:
        return file.read().strip()


def placed(live, queue):
    """Whether all threads of the link are in a queue, and there are any."""
    tids = threads()
    return tids and all(any(line.startswith(f"tid {tid} ") for line in live.members(queue)) for tid in tids)


def polled(on):
    """Whether the link polls without an entrance (ETHTOOL_SGRO)."""
    told = ctypes.create_string_buffer(struct.pack("II", 0x2c, on))
    with socket.socket() as sock:
        fcntl.ioctl(sock, 0x8946, struct.pack("16sQ16x", DEV.encode(), ctypes.addressof(told)))


PACKETS = 20  # each ms
PART = 0.97  # of what it has a right to, a loop must have


class Reader:
    """A program of the container's that takes what comes."""

    def __init__(self, live):
        live.wait("the container has a queue of the link", lambda: os.path.exists(f"{MOUNT}/{DEV}/pod"))
        self.process = subprocess.Popen([RESERV, "run", "--in", "pod", "--", sys.executable, "-IS", "-c", READER.format(5001)], stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def close(self):
        self.process.kill()
        self.process.wait()


def hog_gets(live, flood, text):
    """The busy loop in b, beside one in the container: of the CPU while the flood is on, and of half
    of what the wire left."""
    hog = live.spin("b")
    live.spin("pod")
    live.all_run(["b", "pod"])

    def now():
        return [time.monotonic() * 1e9, ran(flood.process.pid), cpu_time([hog.pid])]
    # What is read at either end is read at once: nobody but the wire goes before who reads.
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(5))
    flood.begin(5001, PACKETS, 1300)
    time.sleep(0.2)
    before = now()
    time.sleep(1)
    took, wire, got = (after - was for after, was in zip(now(), before))
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    sent = flood.end()
    live.kill_load()
    part, of_half = got / took, got / ((took - wire) / 2)
    print(f"# {text}: b has {part:.3f} of the CPU, {of_half:.3f} of half of what the wire left, which took {wire / took:.3f}; {sent} sent", flush=True)
    return part, of_half


def flooded(live, flood, send):
    """A container that does not read: what the flood costs is its own, and a neighbour's packets
    come."""
    full, other = server("pod", 5001, room=4000), server("b", 5002, room=1 << 20)
    live.spin("b")
    time.sleep(0.2)
    [thread] = threads()
    before, dropped = (live.service("pod"), ran(thread)), counts("pod")[1]
    flood.begin(5001, PACKETS, 1000)
    for _ in range(10):
        send("udp", HERE, 5002, 10, 100)
    sent = flood.end()
    charged, took = live.service("pod") - before[0], ran(thread) - before[1]
    live.kill_load()
    came = read_all(other)
    check(came == 100, "a neighbour's packets come, whoever else is flooded", f"{came} of 100, beside {sent}")
    dropped = counts("pod")[1] - dropped
    # The driver tells a round of 64 apart before the first of them is at its socket.
    check(dropped > sent * 0.9 and drops(full) <= 64, "what the container has no room for is dropped before the protocol", f"{dropped} of {sent}, {drops(full)} behind it")
    check(took > 10_000_000 and abs(charged - took) <= took / 100 + 1_000_000, "the container is charged what its thread took", f"{charged} ns, {took} ns")
    full.close()
    other.close()


def trouble(live):
    limits = live.status()["resources"][DEV]["limits"]
    return next((limit for limit in limits if limit.startswith(("what comes in is processed", "nothing processes"))), "")


def comes_and_goes(live, flood, send, driver, up):
    """The queue, reservd and the interface, while packets fly."""
    flood.begin(5001, 5, 2500)
    refused(live, ("rm", "container/pod"), "has members", "a container in which a link's packets are processed is in use")
    live.reserv("rm", "--drain", "cpu/pod")
    live.wait("its node of the CPU goes, and is made again", lambda: placed(live, "pod"))
    live.wait("keeper and worker are dead", lambda: not [kill(pid) for pid in ours()])
    check(switch() == "1" and len(threads()) == 1, "nobody is there: the threads are")
    live.reserv("up", "--driver", driver, *up)
    # The link is looked for behind the answer of `up`.
    live.wait("and are found where they were", lambda: placed(live, "pod"))
    sh(f"ip link del {DEV}")
    live.wait("the interface goes, and its threads with it", lambda: not threads())
    live.wait("that is said", lambda: "no threads" in trouble(live))
    send.make_link()
    live.wait("it comes, and they are where they were", lambda: placed(live, "pod") and not trouble(live))
    flood.end()


def ends_and_loads(live, measured):
    """`measured` is done in between, without threads."""
    saved = os.path.join(os.environ.get("RESERV_RUN", "/run"), "receive-in.toml")
    live.reserv("save", saved)
    live.reserv("down", DEV)
    # Who has stopped a thread goes on before it is out of the list of processes.
    live.wait("down ends them", lambda: not threads() and switch() == "0")
    live.wait("nobody is in the container", lambda: not live.members("pod"))
    measured()
    live.reserv("up", "--config", saved)
    live.wait("what was saved loads", lambda: placed(live, "pod"))
    live.reserv("down", DEV)


def wrong(live, up):
    plain = [word for word in up[:-2] if not word.startswith("--receive")]
    refused(live, ("up", *plain, "--receive-in", "pod"), "nothing is polled there", "an interface whose driver polls nothing")
    live.wait("and nothing is half made",
              lambda: DEV not in live.status()["resources"] and not entrances())
    polled(1)
    with open(SWITCH, "w", encoding="ascii") as file:
        file.write("1")
    refused(live, ("up", *up), "not Reserv's", "an interface with threads of somebody else's")
    live.wait("which keeps them",
              lambda: switch() == "1" and len(threads()) == 1 and not entrances())
    refused(live, ("up", "--receive-in", "pod"), "--net", "threads of no interface")
    refused(live, ("up", *plain, "--receive-in", ""), "name of a queue", "a queue without a name")


def without(live, flood, up):
    """The loop's part of the CPU where nothing is processed, and where all is, in softirqs."""
    live.reserv("up", *up[:-2])
    reader = Reader(live)
    live.reserv("set", f"{DEV}/pod", "receive=1/s")
    nothing, _ = hog_gets(live, flood, "softirqs, all dropped before the protocol")
    live.reserv("set", f"{DEV}/pod", "receive=default")
    softirq, _ = hog_gets(live, flood, "softirqs")
    reader.close()
    live.reserv("down", DEV)
    return nothing, softirq


def run(driver, up):
    """`up`: the words for the link; the last but one and the last are --receive-in and pod. Where
    nothing of what leaves is looked at, the link has the stock driver, which is up in half the
    time."""
    light = ("--net-driver", "stock", *up)
    send, flood = Sender(), None
    try:
        send.make_link()
        flood = Flood(send)
        with Live(driver) as live:
            live.mk("b", 100)
            live.reserv("up", *up)
            live.wait("a queue that is not there: said", lambda: "the CPU has no queue pod" in trouble(live))
            live.reserv("mk", "--container", "pod", "--share", "100")
            live.wait("and used when it is", lambda: placed(live, "pod") and not trouble(live))
            refused(live, ("up", *up[:-1], "b"), "runs", "another queue while it runs")
            reader = Reader(live)
            thread, of_half = hog_gets(live, flood, "threads in the container")
            reader.close()
            live.mk(f"{DEV}/b", 100)
            flooded(live, flood, send)
            comes_and_goes(live, flood, send, driver, up)

            def compared():
                nothing, softirq = without(live, flood, light)
                check(thread >= PART * nothing and of_half >= PART, "a flood at the container costs the other loop nothing beyond shares", f"{thread / nothing:.3f} of what it has without protocol, {of_half:.3f} of half")
                check(softirq < 0.93 * nothing, "in softirqs it does", f"{softirq / nothing:.3f}")
            ends_and_loads(live, compared)
            wrong(live, light)
    finally:
        if flood:
            flood.close()
        send.close()
