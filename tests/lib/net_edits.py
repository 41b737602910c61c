# SPDX-License-Identifier: MIT OR Apache-2.0
"""A link's tree is edited as fast as files take it while numbered datagrams wait in it: none may be
lost, none may come before one that its flow sent earlier, and the link stays used. Edits: weights,
policies, classes, a queue between two schedulers, nodes made and removed with what waits in
them."""
import os
import random
import socket
import time

from link import DEV, PEER, Check, backlog, in_sink, make_link, measured, off, remove_link, tagged
from live import MOUNT, Live, check

RATE, LOOK = 10_000_000, 100
# Counts per flow what came, and what came late; says so when it is told that all has been sent. (33
# is SO_RCVBUFFORCE.)
SINK = """
import socket, sys
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)
udp.bind(("", 9))
print("ready", flush=True)
last, got, late = {}, {}, 0
while True:
    data = udp.recv(2048)
    flow, number = data[0], int.from_bytes(data[1:9], "little")
    if flow == 255: break
    got[flow] = got.get(flow, 0) + 1
    late += number <= last.get(flow, 0)
    last[flow] = number
print(" ".join(f"{f}:{got[f]}:{last[f]}" for f in sorted(got)), late, flush=True)
"""


def sender(flow, queue, size, stop, cpus):
    os.sched_setaffinity(0, {flow % cpus})
    sock = tagged(queue)
    # Several CPUs of an emulated machine stand still for a while now and then. Two such flows fit
    # into one queue (128 KiB).
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384 if cpus == 1 else 40000)
    number = 0
    while os.getppid() == stop and not os.path.exists("/run/net-edits-stop"):
        number += 1
        sock.sendto(bytes([flow]) + number.to_bytes(8, "little") + bytes(size - 9), (PEER, 9))
    with open(f"/run/net-edits-{flow}", "w", encoding="ascii") as file:
        file.write(str(number))
    os._exit(0)


def write(path, text):
    with open(f"{MOUNT}/{DEV}/{path}", "w", encoding="ascii") as file:
        file.write(text)


def edit(dice, made):
    """One edit; which, the dice say."""
    what = dice.randrange(10)
    if what < 4:
        write(dice.choice(("a", "b", "s", "s/c", "s/d")) + "/share", str(dice.choice((1, 50, 100, 300))))
    elif what == 4:
        write(dice.choice((".", "s")) + "/policy", dice.choice(("sfq", "wf2q+", "wf2q")))
    elif what == 5 and len(made) < 20:
        name = f"n{len(made)}-{dice.randrange(1 << 30)}"
        os.mkdir(f"{MOUNT}/{DEV}/{name}")
        made.append(name)
    elif what == 6 and made:
        os.rmdir(f"{MOUNT}/{DEV}/{made.pop()}")
    elif what == 8:
        write(dice.choice(("a", "b", "s/c", "q0")) + "/class", dice.choice(("drr", "fifo", "ts")))
    elif what == 9:
        # A queue between two schedulers, and back.
        for old, new in ("s/d", "d"), ("d", "s/d"):
            os.rename(f"{MOUNT}/{DEV}/{old}", f"{MOUNT}/{DEV}/{new}")
    else:
        write("q0/share", str(dice.choice((20, 100))))


def run(seconds, cpus=1):
    """On several CPUs, with a device of several queues, shares are asserted too; but emulated CPUs
    stand still now and then, so less is of times."""
    make_link(1 if cpus == 1 else 4)
    if cpus > 1:
        # Else packets of one flow that two CPUs sent, one after the other, wait for two CPUs at the
        # other end.
        in_sink("import glob\nfor name in glob.glob('/sys/class/net/peer0/queues/rx-*/rps_cpus'):\n    with open(name, 'w') as file: file.write('1')").wait()
    sink = in_sink(SINK)
    check(sink.stdout.readline() == "ready\n", "somebody listens")
    with Live("stock", "--net", DEV, "--rate", "10mbit") as live:
        live.mk(f"{DEV}/s", 100, "--sched")
        flows = ("a", "b", "s/c", "s/d", "q0")
        for name in flows[:4]:
            live.mk(f"{DEV}/{name}", 100)
        # The neighbour is found before anything is counted.
        first = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        first.sendto(b"\1" + (1).to_bytes(8, "little"), (PEER, 9))
        time.sleep(0.5)
        sizes, pids = (200, 1000, 1400, 100, 600) if cpus == 1 else (600, 1000, 1400, 300, 600), []
        for flow, queue in enumerate(flows, 2):
            child = os.fork()
            if child == 0:
                sender(flow, queue, sizes[flow - 2], os.getppid(), cpus)
            pids.append(child)
        live.wait("all have packets waiting", lambda: all(backlog(q)["queued"] for q in flows))
        if cpus > 1:
            wanted = (1 / 4, 1 / 4, 1 / 8, 1 / 8, 1 / 4)
            got, used = measured(flows, 4, RATE)
            check(off(got, wanted) < 0.01 and 0.9 < used < 1.01, f"senders on {cpus} CPUs, one tree over all queues of the device: within 1 %", f"{' '.join(f'{g:.4f}' for g in got)}, {used:.4f} of the rate")
            check(off(got, (1 / 5,) * 5) > 0.1, "and no other shares would pass for these")
        dice, made, edits, refused, inside = random.Random(5), [], 0, 0, Check()
        before, begin = int(backlogs()), time.monotonic()
        while time.monotonic() - begin < seconds:
            try:
                edit(dice, made)
            except OSError as error:
                refused += 1
                last = error
            edits += 1
            if edits % LOOK == 0:
                inside.look()
        used = (int(backlogs()) - before) * 8 / RATE / (time.monotonic() - begin)
        check(refused == 0, f"{edits} edits in {seconds} s", f"{refused} refused" + (f": {last}" if refused else ""))
        if cpus == 1:
            check(edits >= 1000 * seconds, "a thousand edits a second", f"{edits / seconds:.0f}")
        check((0.98 if cpus == 1 else 0.9) <= used <= 1.01, "the link stays used", f"{used:.4f}")
        inside.end(f"after every {LOOK} edits", broken=cpus == 1)
        # A queue goes with what waits in it, while its flow goes on.
        live.reserv("rm", "--flush", f"{DEV}/b")
        time.sleep(0.5)
        with open("/run/net-edits-stop", "w", encoding="ascii"):
            pass
        for pid in pids:
            os.waitpid(pid, 0)
        left = [q for q in flows if q != "b"]
        live.wait("all have left", lambda: not any(backlog(q)["queued"] for q in left))
        dropped = [backlog(q)["dropped"] for q in left]
        check(not any(dropped), "nothing was dropped", dropped)
        time.sleep(0.2)
        # What must be seen: of flow 1 number 2 is missing, and of flow 6 number 1 comes once more
        # behind all others.
        for flow, number in (1, 3), (6, 1):
            first.sendto(bytes([flow]) + number.to_bytes(8, "little"), (PEER, 9))
        first.sendto(b"\xff" + bytes(8), (PEER, 9))
        said = sink.stdout.readline().split()
        sent = {flow: int(open(f"/run/net-edits-{flow}", encoding="ascii").read()) for flow in range(2, 7)}
        came = {int(f): (int(n), int(number)) for f, n, number in (word.split(":") for word in said[:-1])}
        sent[6] += 1
        lost = {flow: number - came.get(flow, (0, 0))[0] for flow, number in sent.items()}
        check(not any(lost.values()) and sum(sent.values()) > 0, f"none of {sum(sent.values())} packets is lost", lost)
        check(came[1] == (2, 3), "which would be seen: the one that was left out is", came[1])
        check(said[-1] == "1", "none came before one that its flow sent earlier, but the one that was sent late", said[-1])
        check("inconsistent" not in live.reserv("status").stdout, "the tree is sound")
    sink.kill()
    remove_link()


def backlogs():
    with open(f"{MOUNT}/{DEV}/stat", encoding="ascii") as file:
        return dict(line.split(" ", 1) for line in file)["service_bytes"]
