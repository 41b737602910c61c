# SPDX-License-Identifier: MIT OR Apache-2.0
"""The network plane's stock driver, used as its users do: a veth's packets leave by HTB, in the
tree's shares. For a network name space of its own, where reservd's places are set by the
environment. The kernel may be any that has HTB; time is the machine's, so shares are within a
twentieth."""
import errno
import os
import random
import signal
import socket
import subprocess
import sys
import time

from live import MOUNT, Live, check, kill, ours, refusal
import new_rate
import packet_rules
from tagfs import set_queue

DEV, PEER, RATE = "rsv0", "10.78.0.2", 10_000_000
SOL, SET = 0x5253, 5
UP = "--net", DEV, "--rate", "10mbit", "--net-driver", "stock"
SINK = """
import socket, threading
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("", 9))
server = socket.create_server(("", 9))
def drain(connection):
    while connection.recv(1 << 16): pass
while True: threading.Thread(target=drain, args=(server.accept()[0],), daemon=True).start()
"""
senders = {}


def sh(line):
    subprocess.run(line.split(), check=True)


def make_link(pid):
    sh(f"ip link add {DEV} type veth peer name peer0 netns {pid}")
    sh(f"ip addr add 10.78.0.1/24 dev {DEV}")
    sh(f"ip link set {DEV} up")
    for line in f"ip addr add {PEER}/24 dev peer0", "ip link set peer0 up":
        sh(f"nsenter -t {pid} -n {line}")


def root_qdisc():
    out = subprocess.run(["tc", "qdisc", "show", "dev", DEV, "root"], capture_output=True, text=True, check=True)
    return out.stdout.split()[1] if out.stdout else ""


def sender(queue, sizes, how):
    """Its socket is tagged with a queue, and always has packets waiting: a send buffer that holds less than the queue blocks it, nothing is dropped."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM if how == "tcp" else socket.SOCK_DGRAM)
    fd = os.open(f"{MOUNT}/{DEV}/{queue}", os.O_RDONLY | os.O_DIRECTORY)
    if set_queue(sock.fileno(), fd) != 1:  # the kernel refuses trampolines
        sock.setsockopt(SOL, SET, fd)
    if how == "tcp":
        sock.connect((PEER, 9))
        while True:
            sock.sendall(bytes(65536))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 90000)
    dice, data = random.Random(queue), bytes(1472)
    while True:
        try:
            sock.sendto(data[:dice.choice(sizes)], (PEER, 9))
        except OSError:
            time.sleep(0.05)


def begin(queue, sizes=(100, 700, 1472), how="udp"):
    child = os.fork()
    if child == 0:
        try:
            sender(queue, sizes, how)
        finally:
            os._exit(1)
    senders[queue] = child


def end(*queues):
    for queue in queues or list(senders):
        pid = senders.pop(queue)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def backlog(path):
    with open(f"{MOUNT}/{DEV}/{path}/backlog", encoding="utf-8") as file:
        return {key: int(value.split()[0]) for key, value in (line.split(" ", 1) for line in file)}


def served(path):
    """Bytes that have left, and when that was: on a busy machine a read may take longer than the
    shares allow, so it is read again until it was quick."""
    for _ in range(200):
        begun = time.monotonic()
        count = backlog(path)["service_bytes"]
        ended = time.monotonic()
        if ended - begun < 0.01:
            break
    return count, (begun + ended) / 2


def measure(paths, seconds):
    """The shares, and the part of the rate that is used: each queue's bytes over its own time."""
    before = [served(p) for p in paths]
    time.sleep(seconds)
    after = [served(p) for p in paths]
    rates = [(count - c) / (then - t) for (count, then), (c, t) in zip(after, before)]
    return [r / (sum(rates) or 1) for r in rates], sum(rates) * 8 / RATE


def by_rate():
    """Shares, and bits per second of all that leaves."""
    time.sleep(0.3)
    paths = "b", "s/x", "s/y", "n", "q0"
    before = [served(path) for path in paths]
    time.sleep(2)
    after = [served(path) for path in paths]
    rates = [(count - c) / (then - t) for (count, then), (c, t) in zip(after, before)]
    return [rate / (sum(rates[:3]) or 1) for rate in rates[:3]], sum(rates) * 8


def off(got, wanted):
    return max(abs(g / w - 1) for g, w in zip(got, wanted))


def near(paths, wanted, text, seconds=2, by=0.05):
    time.sleep(0.5)
    # On a busy machine a sender may be kept from its processor, and has no packets then: a few
    # tries, each longer than the one before. Other weights are wrong in each.
    for longer in range(1, 5):
        got, used = measure(paths, seconds * longer)
        if off(got, wanted) <= by and 0.97 <= used <= 1.03:
            break
    check(off(got, wanted) <= by, f"{text}: within {by:.0%}", " ".join(f"{g:.4f}" for g in got))
    check(0.97 <= used <= 1.03, f"{text}: the link is used", f"{used:.4f}")
    return got


def refused(live, words, says, text):
    out = live.reserv(*words, ok=False)
    check(out.returncode != 0 and says in out.stderr, f"refused: {text}", out.stderr.strip())


def dead(live):
    live.wait("keeper and worker are dead", lambda: not [kill(pid) for pid in ours()])


def restart(live, between):
    dead(live)
    between()
    live.reserv("up", "--driver", "stock", *UP)


def run():
    sink = subprocess.Popen(["unshare", "-n", sys.executable, "-c", SINK])
    try:
        mine = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{sink.pid}/ns/net") == mine:
            time.sleep(0.01)
        make_link(sink.pid)
        with_link(sink.pid)
    finally:
        end()
        sink.kill()
        sink.wait()


def with_link(sink):
    with Live("stock") as live:
        refused(live, ("up", "--net", DEV, "--net-driver", "stock"), "--rate", "no rate")
        full = live.reserv("up", "--net", DEV, "--rate", "10mbit", "--net-driver", "full", ok=False)
        check(full.returncode != 0 and full.stderr.strip(), "refused: the full driver, with a reason", full.stderr.strip())
        check(root_qdisc() == "noqueue", "and the interface is as it was", root_qdisc())
        live.reserv("up", "--net", DEV, "--rate", "10mbit")
        said = live.status_text()
        check("HTB on rsv0, 10mbit" in said and "the full driver cannot be used" in said, "without a word about drivers it is the stock one, and says why")
        live.reserv("down", DEV)
        live.reserv("up", *UP)
        check(root_qdisc() == "htb", "HTB is the root", root_qdisc())
        refused(live, ("mk", f"{DEV}/x", "--share", "13001"),
                f"{DEV}/q0 with weight 100 beside {DEV}/x with 13001: HTB shares by weights that differ by 130 to 1 at most, so beside 13001 from 100.008 on",
                "weights beyond HTB's range")
        check(not os.path.exists(f"{MOUNT}/{DEV}/x"), "and nothing is made")
        refused(live, ("set", DEV, "policy=wf2q+"), "policy", "a policy")
        refused(live, ("set", f"{DEV}/q0", "class=edf"), "class", "a class for threads")
        live.mk(f"{DEV}/a", 100)
        check(refusal(f"{DEV}/a/share", "0.769") == errno.EOPNOTSUPP and refusal(f"{DEV}/a/share", "0.77") == 0,
              "a share beyond HTB's range is refused by its file too, and the last one that fits is taken")
        live.reserv("set", f"{DEV}/a", "share=100")
        # Another's socket, by reservd; it is told by process, and taken back.
        other, me = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), os.getpid()
        for queue in "a", "q0":
            live.reserv("tag", f"{DEV}/{queue}", f"{me}/{other.fileno()}")
            with open(f"{MOUNT}/proc/{me}/fds", encoding="ascii") as file:
                told = [line.split() for line in file]
            wanted = [[str(other.fileno()), DEV, f"{MOUNT}/{DEV}/{queue}"]] if queue != "q0" else []
            check(told == wanted, f"a running program's socket is tagged with {queue}", told)
        refused(live, ("tag", f"{DEV}/a", f"{me}/999"), "no descriptor", "a descriptor that is not there")
        refused(live, ("tag", f"{DEV}/a", f"{me}/{sys.stdin.fileno()}"), "not scheduled by", "no socket")
        other.close()
        live.mk(f"{DEV}/b", 100)
        refused(live, ("set", f"{DEV}/b", "share=100 4mbit"), "would not be kept", "a minimum that the weights would not keep")
        refused(live, ("set", f"{DEV}/b", "share=100 100ms/s"), "amount of CPU", "a minimum in CPU time")
        refused(live, ("set", "cpu/q0", "share=100 1mbit"), "amount of a link", "bits at the CPU")
        live.reserv("set", f"{DEV}/b", "share=100 3mbit")
        with open(f"{MOUNT}/{DEV}/b/share", encoding="ascii") as file:
            check(file.read() == "100 3mbit\n", "a minimum that they keep")
        live.reserv("set", f"{DEV}/b", "share=100 0")
        begin("a")
        begin("b", (1472,))
        near(("a", "b"), (1 / 2, 1 / 2), "1:1, mixed sizes beside large ones")
        live.reserv("set", f"{DEV}/b", "share=400")
        got = near(("a", "b"), (1 / 5, 4 / 5), "1:4")
        check(off(got, (1 / 4, 3 / 4)) > 0.05, "and no other weights would pass for these")
        live.reserv("set", f"{DEV}/b", "cap=2mbit")
        time.sleep(0.3)
        for longer in range(1, 5):  # as near() does
            got, used = measure(("a", "b"), 2 * longer)
            if abs(got[1] * used - 0.2) < 0.01 and used > 0.97:
                break
        check(abs(got[1] * used - 0.2) < 0.01 and used > 0.97, "a cap holds, and the other has the rest", f"{got[1] * used * 10:.3f} of 2 Mbit/s")
        live.reserv("set", f"{DEV}/b", "cap=none")
        end("a")
        near(("b",), (1,), "what one does not use is the other's", 1)
        live.reserv("set", f"{DEV}/b", "share=100")
        live.mk(f"{DEV}/s", 100, "--sched")
        live.mk(f"{DEV}/s/x", 100)
        live.mk(f"{DEV}/s/y", 300)
        # q0 and a want nothing: what they leave is shared in the same parts, because all below s
        # want.
        begin("s/x")
        begin("s/y")
        near(("b", "s/x", "s/y"), (1 / 2, 1 / 8, 3 / 8), "two levels", 3)
        check([backlog(p)["dropped"] for p in ("b", "s/x", "s/y")] == [0, 0, 0], "nobody who waits for the queue loses a packet")

        new_rate.run(live, DEV, PEER, ("nsenter", "-t", str(sink), "-n"), backlog, by_rate, lambda: dead(live), 0.15, 0.7)

        before = backlog("b")
        restart(live, lambda: time.sleep(0.2))
        after = backlog("b")
        check(after["served"] > before["served"], "packets left meanwhile", after["served"] - before["served"])
        check("adopted" in live.status_text(), "the tree was adopted")
        near(("b", "s/x", "s/y"), (1 / 2, 1 / 8, 3 / 8), "adopted", 3)
        live.reserv("mv", f"{DEV}/s/x", f"{DEV}/x")
        near(("b", "x", "s/y"), (1 / 3, 1 / 3, 1 / 3), "a queue moves up, with its sockets")
        live.reserv("set", f"{DEV}/b", "share=0")
        time.sleep(0.2)
        for longer in range(1, 5):  # as near() does
            got, _ = measure(("b", "x", "s/y"), longer)
            if got[0] < 0.02:
                break
        check(got[0] < 0.02, "weight 0 has what the others leave", f"{got[0]:.4f}")
        live.reserv("set", f"{DEV}/b", "share=100")

        out = live.reserv("rm", f"{DEV}/b", ok=False)
        check(out.returncode != 0, "rm of a queue with sockets is refused", out.stderr.strip())
        q0 = backlog("q0")["served"]
        live.reserv("rm", "--flush", f"{DEV}/b")
        senders["q0"] = senders.pop("b")
        live.wait("flushed, its socket sends through q0", lambda: backlog("q0")["served"] > q0 + 10)
        end()

        live.reserv("set", f"{DEV}/x", "limit=5")
        flood = subprocess.run([os.environ["RESERV"], "run", "--net", f"{DEV}/x", "--", *packet_rules.PYTHON,
                                "import _socket as socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
                                f"for i in range(200): s.sendto(bytes(1000), ('{PEER}', 9))"], check=False)
        got = backlog("x")
        check(flood.returncode == 0 and got["dropped"] > 0 and got["served"] + got["queued"] + got["dropped"] >= 200,
              "reserv run --net: a short queue serves some and drops the rest", got)
        live.reserv("set", f"{DEV}/x", "limit=0")

        served = backlog("s/y")["served"]
        sh(f"ip link del {DEV}")
        live.wait("the loss is seen", lambda: live.status()["resources"][DEV]["state"] != "running")
        make_link(sink)
        live.wait("it is taken again", lambda: live.status()["resources"][DEV]["state"] == "running")
        check(root_qdisc() == "htb", "with HTB", root_qdisc())
        check(backlog("s/y")["served"] >= served, "and its counters go on", (served, backlog("s/y")["served"]))
        begin("x", how="tcp")
        begin("s/y")
        live.wait("packets leave again", lambda: all(backlog(p)["queued"] for p in ("x", "s/y")))
        near(("x", "s/y"), (1 / 2, 1 / 2), "TCP beside UDP", 3)
        sh(f"ip link set {DEV} mtu 1400")
        # TCP has to find out: until then x may be idle.
        busy = []

        def goes_on():
            busy.append(backlog("x")["queued"] > 0)
            return len(busy) >= 20 and all(busy[-20:])

        live.wait("packets of another length leave", goes_on)
        near(("x", "s/y"), (1 / 2, 1 / 2), "with another MTU", 3)
        end()
        sh(f"ip link set {DEV} mtu 1500")
        packet_rules.run(live, DEV, PEER, ("nsenter", "-t", str(sink), "-n"), os.environ.get("RESERV_RUN", "/run"), lambda between: restart(live, between))
        live.reserv("down", DEV)
        check(root_qdisc() == "noqueue", "down leaves the new interface as it came", root_qdisc())
        sh(f"tc qdisc add dev {DEV} root pfifo limit 77")
        live.reserv("up", *UP)
        live.reserv("down", DEV)
        out = subprocess.run(["tc", "qdisc", "show", "dev", DEV, "root"], capture_output=True, text=True, check=True).stdout
        check("pfifo" in out and "77p" in out, "and a qdisc of the user's as it was", out.strip())
        sh(f"tc qdisc replace dev {DEV} root handle 5: htb default 1")
        refused(live, ("up", *UP), "htb", "somebody's tree of classes")
    pins = os.environ.get("RESERV_BPFFS", "/sys/fs/bpf/reserv")
    left = os.listdir(pins) if os.path.exists(pins) else []
    check(not left, "down leaves no pins", left)
