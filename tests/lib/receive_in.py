# SPDX-License-Identifier: MIT OR Apache-2.0
"""Packets that come in by a link are processed in a queue of the CPU (`reserv up --net IFACE
--receive-in QUEUE`), used as its users do. A sender that goes before all (SCHED_FIFO) is the wire:
what it takes no scheduler gives away, and it is the same in all runs that are compared."""
import os
import signal
import socket
import subprocess
import sys
import time

from live import MOUNT, RESERV, Live, check
from net_stock import ours, refused
from receive import DEV, HERE, Sender, counts, server, sh, read_all
from live import kill

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
        sent += s.sendto(data, ('{HERE}', port)) // 64
        at += 0.001
        left = at - time.monotonic()
        if left > 0: time.sleep(left)
    print(sent, flush=True)
"""
READER = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', {}))\nprint('bound', flush=True)\nwhile True: s.recv(100)"


class Flood:
    def __init__(self, send):
        self.process = subprocess.Popen(["nsenter", "-t", str(send.process.pid), "-n", sys.executable, "-c", FLOOD],
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


PACKETS = 20  # each ms


def hog_gets(live, flood, port, text):
    """Of the CPU, while the flood is on: the busy loop in b, beside one in the container."""
    live.spin("b")
    live.spin("pod")
    time.sleep(0.2)
    flood.begin(port, PACKETS, 1500)
    time.sleep(0.3)
    begun, before = time.monotonic(), live.service("b")
    time.sleep(1)
    part = (live.service("b") - before) / 1e9 / (time.monotonic() - begun)
    sent = flood.end()
    live.kill_load()
    print(f"# {text}: b has {part:.3f} of the CPU, {sent} were sent", flush=True)
    return part


def run(driver, up):
    send = Sender()
    flood = None
    try:
        send.make_link()
        flood = Flood(send)
        with Live(driver) as live:
            live.mk("b", 100)
            live.reserv("mk", "--container", "pod", "--share", "100")
            live.reserv("up", *up)
            live.wait("the container has a queue of the link", lambda: os.path.exists(f"{MOUNT}/{DEV}/pod"))
            reader = subprocess.Popen([RESERV, "run", "--in", "pod", "--", sys.executable, "-c", READER.format(5001)], stdout=subprocess.PIPE, text=True)
            reader.stdout.readline()
            live.reserv("set", f"{DEV}/pod", "receive=1/s")
            nothing = hog_gets(live, flood, 5001, "dropped")
            live.reserv("set", f"{DEV}/pod", "receive=default")
            stock = hog_gets(live, flood, 5001, "softirqs")
            live.reserv("down", DEV)
            live.reserv("up", *up, "--receive-in", "pod")
            live.wait("placed", lambda: placed(live, "pod"))
            print(live.members("pod"), live.reserv("status"))
            live.wait("the container has a queue of the link", lambda: os.path.exists(f"{MOUNT}/{DEV}/pod"))
            own = hog_gets(live, flood, 5001, "threads")
            print(counts("pod"), live.reserv("status"))
            reader.kill()
            reader.wait()
            live.reserv("down", DEV)
            print(threads(), switch())
    finally:
        if flood:
            flood.close()
        send.close()
