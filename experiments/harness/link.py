# SPDX-License-Identifier: MIT OR Apache-2.0
"""A link for experiments: a veth whose other end is in a name space of its own, Net_inf (datagrams
for ever), and the baseline, a token bucket over one queue."""

import os
import signal
import subprocess
import sys
import time

from harness.machine import MOUNT, Machine, MachineError, NotRun

DEV, PEER, RATE_MBIT = "rsvx0", "10.81.0.2", 10
# Bytes that a link sends at once after idleness, ours and so the baseline's: 20 ms of the rate and
# 1024 (bpf/net/common.h), and, as ours goes on until they are used up and a token bucket stops
# before, a packet.
BURST = RATE_MBIT * 1_000_000 // 8 // 50 + 1024 + 1514


def tool(line: str) -> None:
    try:
        done = subprocess.run(line.split(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise NotRun(f"{line.split()[0]} is missing") from error
    if done.returncode:
        raise MachineError(f"{line}: {done.stderr.strip()}")


class Link:
    """`with Link(machine) as link:`"""

    def __init__(self, machine: Machine):
        self.machine = machine
        self.space = f"rsvx{os.getpid()}"

    def __enter__(self) -> "Link":
        tool(f"ip netns add {self.space}")
        for line in (f"ip link add {DEV} type veth peer name peer0 netns {self.space}", f"ip addr add 10.81.0.1/24 dev {DEV}", f"ip link set {DEV} up",
                     f"ip -n {self.space} addr add {PEER}/24 dev peer0", f"ip -n {self.space} link set peer0 up"):
            tool(line)
        # Takes what comes, and never reads it.
        code = f"import socket, time; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('{PEER}', 9)); time.sleep(1e6)"
        self.machine.children.append(subprocess.Popen(["ip", "netns", "exec", self.space, sys.executable, "-c", code]))
        return self

    def __exit__(self, *_: object) -> None:
        self.machine.end()
        self.machine.down()
        tool(f"ip netns del {self.space}")

    def baseline(self, packets: int = 1000) -> None:
        tool(f"tc qdisc add dev {DEV} root handle 1: tbf rate {RATE_MBIT}mbit burst {BURST} limit 1000000")
        tool(f"tc qdisc add dev {DEV} parent 1:1 pfifo limit {packets}")

    def up(self, *more: str) -> None:
        """Our qdisc; the CPU's driver is another matter, and the stock one is there at once."""
        self.machine.reserv("up", "--driver", "stock", "--net", DEV, *more)
        self.machine.is_up = True

    def ours(self, shares: dict[str, int]) -> None:
        tool(f"tc qdisc del dev {DEV} root")
        self.up("--rate", f"{RATE_MBIT}mbit")
        for name, weight in shares.items():
            self.machine.reserv("mk", f"{DEV}/{name}", "--share", weight)

    def net_inf(self, slot: int, size: int, queue: str | None = None, *more: object) -> "subprocess.Popen[str]":
        return self.load("net_inf", slot, size, PEER, *more, queue=queue)

    def load(self, mode: str, slot: int, *words: object, queue: str | None = None, count: int = 1, beyond: bool = False) -> "subprocess.Popen[str]":
        """A load that counts in `count` slots from this one on, from 0; in a queue, or beyond the
        link."""
        self.clear(slot, count)
        prefix = [str(self.machine.reserv_program), "run", "--net", f"{DEV}/{queue}", "--"] if queue else []
        prefix = ["ip", "netns", "exec", self.space] if beyond else prefix
        command = [*prefix, str(self.machine.load), mode, str(self.machine.path), str(slot), *map(str, words)]
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, text=True)
        self.machine.children.append(child)
        return child

    def clear(self, slot: int, count: int) -> None:
        self.machine.words[slot * 8:(slot + count) * 8] = bytes(8 * count)

    def stop(self, children: list["subprocess.Popen[str]"]) -> None:
        for child in children:
            child.send_signal(signal.SIGKILL)
            child.wait()
            self.machine.children.remove(child)
        time.sleep(0.5)

    def served(self, queue: str) -> int:
        """The link's own count."""
        for line in (MOUNT / DEV / queue / "backlog").read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == "service_bytes":
                return int(value)
        raise MachineError(f"{queue} has no counter")


def two_floods(machine: Machine, seconds: float, sizes: tuple[int, int], weights: tuple[int, int]) -> dict:
    """Two Net_inf, without and with weights: [time, bytes of each] four times a second."""
    with Link(machine) as link:
        link.baseline()
        flood = [link.net_inf(slot, size) for slot, size in enumerate(sizes)]
        machine.wait_for_counts([0, 1])
        time.sleep(0.5)
        baseline = follow(lambda slot: machine.count(slot), seconds / 2)
        link.stop(flood)
        link.ours({f"c{slot}": 100 * weight for slot, weight in enumerate(weights)})
        for slot, size in enumerate(sizes):
            link.net_inf(slot, size, f"c{slot}")
        machine.wait_for_counts([0, 1])
        time.sleep(0.5)
        ours = follow(lambda slot: link.served(f"c{slot}"), seconds)
    return {"baseline": baseline, "ours": ours}


def follow(count, seconds: float) -> list[list[float]]:
    start, base = time.monotonic(), [count(0), count(1)]
    points = [[0.0, 0, 0]]
    while points[-1][0] < seconds:
        time.sleep(0.25)
        points.append([time.monotonic() - start, count(0) - base[0], count(1) - base[1]])
    return points
