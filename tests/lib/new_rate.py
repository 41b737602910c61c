# SPDX-License-Identifier: MIT OR Apache-2.0
"""A link's other rate while it runs, whichever driver it has: shares, sockets and packets stay,
what is promised is kept, and whoever dies or stops Reserv keeps it."""
import os
import re
import socket
import subprocess
import sys
import time

from live import MOUNT, check
from tagfs import set_queue

SOL, SET = 0x5253, 5
PACKETS, PORT = 1500, 10
#: Numbers that come in order, and how many of all; whoever is overtaken or lost is told.
RECEIVER = f"""
import socket
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
udp.bind(("", {PORT}))
print("ready", flush=True)
wrong = next = 0
while next < {PACKETS}:
    number = int(udp.recv(2000)[:8])
    wrong += number != next
    next = number + 1
print(wrong, flush=True)
"""


def send_numbers(dev, queue, peer):
    """In a process of its own, which ends when all are sent; its buffer blocks it."""
    child = os.fork()
    if child:
        return child
    try:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        fd = os.open(f"{MOUNT}/{dev}/{queue}", os.O_RDONLY | os.O_DIRECTORY)
        if set_queue(sock.fileno(), fd) != 1:
            sock.setsockopt(SOL, SET, fd)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)
        for number in range(PACKETS):
            sock.sendto(b"%08d" % number + bytes(992), (peer, PORT))
        os._exit(0)
    finally:
        os._exit(1)


def run(live, dev, peer, beyond, count, measured, dead, by, least=0.99):
    """`beyond`: words before a command beyond the link; `count(queue)`: its backlog as numbers;
    `measured()`: the shares of those that send for ever, 1/2, 1/8 and 3/8 of what they get, and what
    all send in bit/s; `dead()`: reservd is. The link is at 10mbit, its queue b at a weight of 100,
    beside q0 and s. `by`: how far shares may be off; `least`: the part of the rate that senders
    reach at least, who have a processor of their own or not."""
    def up(rate, ok=True):
        return live.reserv("up", "--net", dev, "--rate", rate, ok=ok)

    def runs_at(rate, text):
        # On a busy machine a sender may be kept from its processor, and has no packets then: a few
        # tries. Other weights, or another rate, are wrong in each.
        for _ in range(5):
            got, sent = measured()
            errors = [abs(g / w - 1) for g, w in zip(got, (1 / 2, 1 / 8, 3 / 8))]
            good = max(errors) <= by and least <= sent / rate <= 1 + max(by, 0.01)
            if good:
                break
        check(good, f"{text}: the shares, and the rate", f"{' '.join(f'{g:.4f}' for g in got)}, {sent / 1e6:.3f} Mbit/s")

    def says(rate):
        """A resource that is busy tells what it told last, so it is asked again."""
        for _ in range(100):
            mechanism = live.status()["resources"][dev]["mechanism"]
            if re.search(rf"\b{rate}\b", mechanism):
                return True, mechanism
            time.sleep(0.1)
        return False, mechanism

    # Whoever numbers his packets has a small part, so that they are under way all the time.
    live.mk(f"{dev}/n", 1)
    receiver = subprocess.Popen([*beyond, sys.executable, "-c", RECEIVER], stdout=subprocess.PIPE, text=True)
    receiver.stdout.readline()
    sender = send_numbers(dev, "n", peer)
    live.wait("numbered packets wait", lambda: count("n")["queued"] > 0)
    live.reserv("set", f"{dev}/n", "share=30")
    out = up("20mbit").stdout
    check("rate 10mbit → 20mbit" in out, "another rate for a link that runs", out.strip())
    runs_at(20e6, "twice the rate")
    check(up("20mbit").stdout == "no difference\n", "and again: no difference")
    check(live.reserv("up", "--net", dev).stdout == "no difference\n", "no rate: it stays as it is")

    # What is promised is kept.
    live.reserv("set", f"{dev}/b", "share=100 2mbit")
    before = live.reserv("save").stdout
    for words in ("--net", dev, "--rate", "5mbit"), ("--dry-run", "--net", dev, "--rate", "5mbit"):
        out = live.reserv("up", *words, ok=False)
        check(out.returncode == 1 and f"{dev}/b: its minimum 2mbit would not be kept" in out.stderr, "refused: less than what is promised", out.stderr.strip())
    check(live.reserv("save").stdout == before and says("20mbit")[0], "and nothing is changed", says("20mbit"))
    up("12mbit")
    out = live.reserv("set", f"{dev}/b", "share=100 6mbit", ok=False)
    check(out.returncode == 1 and "12mbit" in out.stderr, "what may be promised is of the new rate", out.stderr.strip())
    runs_at(12e6, "less, but as much as was promised")

    # By a configuration, and more and less of both together.
    def configured(rate, minimum, *words, ok=True):
        wanted = {(f"[link.{dev}]", "rate"): f'rate = "{rate}"', (f"[link.{dev}.nodes.b]", "share"): f'share = "100 {minimum}"'}
        table, text = "", ""
        for line in live.reserv("save").stdout.splitlines():
            table = line if line.startswith("[") else table
            text += wanted.pop((table, line.split(" ")[0]), line) + "\n"
        check(not wanted, "the configuration has the rate and the minimum", wanted)
        path = f"{os.environ.get('RESERV_RUN', '/run')}/rate.toml"
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        return live.reserv("up", *words, "--config", path, ok=ok)
    out = configured("8mbit", "2mbit", ok=False)
    check(out.returncode == 1 and "would not be kept" in out.stderr and says("12mbit")[0], "a configuration's too is refused", out.stderr.strip())
    out = configured("4mbit", "700kbit", "--dry-run").stdout
    check("rate 12mbit → 4mbit" in out and "share 100 2mbit → 100 700kbit" in out and says("12mbit")[0], "--dry-run says what would be", out)
    out = configured("4mbit", "700kbit").stdout
    check("rate 12mbit → 4mbit" in out and says("4mbit")[0], "less of both in one configuration", out)
    configured("24mbit", "3mbit")
    check(says("24mbit")[0], "more of both", says("24mbit"))
    runs_at(24e6, "by a configuration")

    # reservd dies between its word and the kernel's.
    dead()
    entered = f"{os.environ.get('RESERV_RUN', '/run/reserv')}/resources"
    with open(entered, encoding="utf-8") as file:
        text = file.read()
    check(f"{dev}@24mbit" in text, "what is to be adopted has the new rate", text)
    with open(entered, "w", encoding="utf-8") as file:
        file.write(text.replace(f"{dev}@24mbit", f"{dev}@16mbit"))
    live.reserv("up", "--driver", "stock", "--net", dev)
    check(says("16mbit")[0] and 'rate = "16mbit"' in live.reserv("save").stdout, "after a death in the middle it is the new one", says("16mbit"))
    check("adopted" in live.status_text(), "of the tree that ran on")
    runs_at(16e6, "and the kernel's")

    got = receiver.communicate(timeout=120)[0].strip()
    _, status = os.waitpid(sender, 0)
    check(status == 0 and got == "0", f"{PACKETS} numbered packets came, all and in order", (status, got))
    dropped = {queue: count(queue)["dropped"] for queue in ("n", "b", "s/x", "s/y")}
    check(not any(dropped.values()), "and no queue has dropped any", dropped)
    live.wait("n is empty", lambda: live.reserv("rm", f"{dev}/n", ok=False).returncode == 0)
    live.reserv("set", f"{dev}/b", "share=100 0")
    up("10mbit")
