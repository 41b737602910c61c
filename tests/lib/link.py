# SPDX-License-Identifier: MIT OR Apache-2.0
"""A link for tests: a veth to a name space `sink`, senders in its queues, and what the queues have
counted."""
import os
import random
import signal
import socket
import subprocess
import time

from invariants import PINS, Invariants
from live import MOUNT
from tagfs import set_queue

DEV, PEER, PEER6 = "rsv0", "10.77.0.2", "fd77::2"
HEADERS = 42  # bytes of UDP, IPv4 and Ethernet
SEGMENT = 1472  # bytes of a datagram, or of each segment of a larger one
LARGEST = 44 * SEGMENT  # the most of whole segments that one sendto() takes; on the link 66 616 bytes
SNDBUFFORCE = 32
#: Takes everything that comes to port 9, by any protocol.
TAKE_ALL = """
import socket, threading
udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
udp.bind(("::", 9))
def drain(connection):
    while connection.recv(1 << 18): pass
server = socket.create_server(("::", 9), family=socket.AF_INET6, dualstack_ipv6=True)
print("ready", flush=True)
while True: threading.Thread(target=drain, args=(server.accept()[0],), daemon=True).start()
"""


def sh(line):
    subprocess.run(line.split(), check=True)


def make_link(queues=1, again=False):
    """With so many hardware queues; `again`: there was one before, whose name space is still there."""
    if not again:
        sh("ip netns add sink")
    sh(f"ip link add {DEV} numtxqueues {queues} numrxqueues {queues} type veth peer name peer0 numtxqueues {queues} numrxqueues {queues} netns sink")
    sh(f"ip addr add 10.77.0.1/24 dev {DEV}")
    sh(f"ip addr add fd77::1/64 dev {DEV} nodad")
    sh(f"ip link set {DEV} up")
    sh(f"ip -n sink addr add {PEER}/24 dev peer0")
    sh(f"ip -n sink addr add {PEER6}/64 dev peer0 nodad")
    sh("ip -n sink link set peer0 up")
    sh("ip -n sink link set lo up")


def remove_link():
    """The guest is another test's next."""
    sh(f"ip link del {DEV}")
    sh("ip netns del sink")


def in_sink(code, *words):
    """A program beyond the link, which needs no site-packages: in a guest these are half a start."""
    return subprocess.Popen(["ip", "netns", "exec", "sink", "python3", "-SEc", code, *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def backlog(queue, dev=DEV):
    with open(f"{MOUNT}/{dev}/{queue}/backlog", encoding="utf-8") as file:
        return {key: int(value.split()[0]) for key, value in (line.split(" ", 1) for line in file)}


def tagged(queue, kind=socket.SOCK_DGRAM, family=socket.AF_INET):
    """A socket of a queue."""
    sock = socket.socket(family, kind)
    fd = os.open(f"{MOUNT}/{DEV}/{queue}", os.O_RDONLY | os.O_DIRECTORY)
    # Who is preempted in the call keeps others of this CPU from it; they call again (libreserv asks
    # reservd; docs/notes/tags.md has why).
    for _ in range(100):
        got = set_queue(sock.fileno(), fd)
        if got != "EINVAL":
            break
        time.sleep(0.01)
    if got != 1:
        raise OSError(f"a socket was not tagged with {queue}: {got}")
    os.close(fd)
    return sock


def forked(what, *words):
    """A process of its own, which ends with `what`."""
    child = os.fork()
    if child:
        return child
    try:
        what(*words)
    finally:
        os._exit(1)


def send_for_ever(queue, sizes, how="udp"):
    """So that packets always wait in the queue, and none is dropped: the socket's buffer blocks its
    sender. What is larger than SEGMENT is one packet of segments."""
    kind, six = (socket.SOCK_STREAM if how.startswith("tcp") else socket.SOCK_DGRAM), how.endswith("6")
    sock, to = tagged(queue, kind, socket.AF_INET6 if six else socket.AF_INET), (PEER6 if six else PEER, 9)
    if how.startswith("tcp"):
        sock.connect(to)
        while True:
            sock.sendall(bytes(1 << 18))
    sock.setsockopt(socket.SOL_SOCKET, SNDBUFFORCE, max(131072, 5 * max(sizes)))
    if max(sizes) > SEGMENT:
        sock.setsockopt(socket.SOL_UDP, 103, SEGMENT)  # UDP_SEGMENT
    dice, data = random.Random(queue), memoryview(bytes(max(sizes)))
    while True:
        sock.sendto(data[:dice.choice(sizes)], to)


class Senders:
    """Processes that send to queues, by the queue's name."""

    def __init__(self):
        self.pids = {}

    def begin(self, queue, *words):
        self.pids.setdefault(queue, []).append(forked(send_for_ever, queue, *words))

    def end(self, *queues):
        for queue in queues or list(self.pids):
            for pid in self.pids.pop(queue, []):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def measured(queues, seconds, rate):
    """What each of these queues sent of what all did, and all of it as a part of the rate in bit/s.
    """
    before, start = [backlog(queue)["service_bytes"] for queue in queues], time.monotonic()
    time.sleep(seconds)
    got, took = [backlog(queue)["service_bytes"] - b for queue, b in zip(queues, before)], time.monotonic() - start
    return [g / (sum(got) or 1) for g in got], sum(got) * 8 / rate / took


def off(got, wanted):
    """The largest error, as a part of what was wanted."""
    return max(abs(g / w - 1) for g, w in zip(got, wanted))


class Check(Invariants):
    """Of the link's tree and of its queues. The counts: nodes, items, packets that wait."""

    def __init__(self):
        folders = [name for name in os.listdir(PINS) if name.startswith("net-")]
        assert len(folders) == 1, folders
        super().__init__("linkcheck", "bpf/net", folders[0], 2, ("break", "break-queue"))
