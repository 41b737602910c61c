# SPDX-License-Identifier: MIT OR Apache-2.0
"""Rules about processes on a link that runs (`[[rule]] match = { uid = …, cgroup = …, unit = … }`),
beside those about packets: programs that know nothing of queues send datagrams and open
connections, over IPv4 and IPv6, and everything is in the queue of the rule that chose them and in
no other."""
import os
import subprocess

from link import PEER, PEER6, TAKE_ALL, backlog, in_sink
from live import MOUNT, check
from packet_rules import PYTHON

UID, PACKETS = 64123, 7
# Each rule: its queue, its condition, and who is chosen by it: user, cgroup below the root, where
# to, port.
RULES = (("uid", f"uid = {UID}", (UID, None, None, 9)), ("group", 'cgroup = "/link-test"', (0, "link-test/one", None, 9)),
         ("unit", 'unit = "link-backup*.service"', (0, "link-test.slice/link-backup7.service", None, 9)), ("port", "port = 10", (0, None, None, 10)),
         ("four", f'remote = "{PEER}/32"', (0, None, 4, 9)), ("six", f'remote = "{PEER6}/128"', (0, None, 6, 9)))
# One UDP socket and one connection to each address; waits for a line first, and is asked where from
# by its arguments.
PROGRAM = """
import _socket as socket, sys
families, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
print("up", flush=True)
sys.stdin.readline()
for family, address in (("4", sys.argv[4]), ("6", sys.argv[5])):
    if family not in families: continue
    af = socket.AF_INET if family == "4" else socket.AF_INET6
    udp = socket.socket(af, socket.SOCK_DGRAM)
    for _ in range(count): udp.sendto(bytes(100), (address, port))
    udp.close()
    tcp = socket.socket(af, socket.SOCK_STREAM)
    tcp.connect((address, port))
    tcp.sendall(bytes(5000))
    tcp.shutdown(socket.SHUT_WR)
    tcp.recv(1)
    tcp.close()
"""


def served():
    """Of each queue, and q0, all packets that came to it."""
    counts = {}
    for queue in (*(name for name, *_ in RULES), "q0"):
        seen = backlog(queue)
        counts[queue] = seen["served"] + seen["queued"] + seen["dropped"]
    return counts


def only_in(got, queue):
    """Nothing is in another queue; the kernel looks for neighbours now and then, which is q0's."""
    others = {name: count for name, count in got.items() if name != queue}
    return others.pop("q0", 0) <= 3 and not others


def started(user, group, families, port):
    def become():
        if group:
            with open(f"/sys/fs/cgroup/{group}/cgroup.procs", "w", encoding="ascii") as file:
                file.write("0")
        if user:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
    process = subprocess.Popen([*PYTHON, PROGRAM, families, str(port), str(PACKETS), PEER, PEER6], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=become)
    process.stdout.readline()
    return process


def went(live, dev, queue, user, group, only, port):
    """What came to each queue of what such a program sent."""
    process = started(user, group, str(only) if only else "46", port)
    if user or group:
        wanted = f"{MOUNT}/{dev}/{queue}"
        live.wait(f"a program is chosen by {queue}", lambda: wanted in open(f"{MOUNT}/proc/{process.pid}/default", encoding="utf-8").read())
    before = served()
    process.stdin.write("\n")
    process.stdin.close()
    process.wait(30)
    return {name: count - before[name] for name, count in served().items() if count != before[name]}


def run(live, dev, scratch):
    """Port 9 and 10 of the other side must be free."""
    sinks = [in_sink(TAKE_ALL.replace("9", str(port))) for port in (9, 10)]
    for sink in sinks:
        check(sink.stdout.readline() == "ready\n", "somebody listens")
    groups = [who[1] for _, _, who in RULES if who[1]]
    for group in groups:
        os.makedirs(f"/sys/fs/cgroup/{group}", exist_ok=True)
    for name, *_ in RULES:
        live.mk(f"{dev}/{name}", 100)
    nobody = (0, None, None, 9)
    # The neighbours are found before anything is counted.
    went(live, dev, "q0", *nobody)
    got = went(live, dev, "q0", *nobody)
    check(only_in(got, "q0") and got["q0"] >= 2 * PACKETS, "without rules all is q0's", got)
    with open(f"{scratch}/rules.toml", "w", encoding="ascii") as file:
        for name, condition, _ in RULES:
            file.write(f'[[rule]]\nmatch = {{ {condition} }}\n{dev} = "{name}"\n')
    out = live.reserv("up", "--config", f"{scratch}/rules.toml", ok=False)
    check(out.returncode == 0, "rules by uid, cgroup, unit, port and prefix", out.stderr.strip())
    for name, _, who in RULES:
        got = went(live, dev, name, *who)
        least = (1 if who[2] else 2) * (PACKETS + 4)
        check(only_in(got, name) and got.get(name, 0) >= least, f"{name}: datagrams and connections of a program that knows nothing of it, {'IPv' + str(who[2]) if who[2] else 'IPv4 and IPv6'}", got)
    with open(f"{scratch}/rules.toml", "w", encoding="ascii") as file:
        file.write(f'[[rule]]\nmatch = {{ uid = {UID + 1} }}\n{dev} = "uid"\n')
    out = live.reserv("up", "--config", f"{scratch}/rules.toml", ok=False)
    process = started(UID, None, "46", 9)
    later = started(UID + 1, None, "46", 9)
    # Who came later has been chosen, so who came before has been looked at.
    live.wait("a program is chosen by uid", lambda: f"/{dev}/uid" in open(f"{MOUNT}/proc/{later.pid}/default", encoding="utf-8").read())
    before = served()
    for each in process, later:
        each.stdin.close()
        each.wait(30)
    got = {name: count - before[name] for name, count in served().items() if count != before[name]}
    check(out.returncode == 0 and sorted(got) == ["q0", "uid"] and min(got.values()) >= 2 * (PACKETS + 4), "another user's program is nobody's", got)
    for sink in sinks:
        sink.kill()
        sink.wait()
    for group in groups:
        for path in group, os.path.dirname(group):
            if path and os.path.isdir(f"/sys/fs/cgroup/{path}"):
                os.rmdir(f"/sys/fs/cgroup/{path}")
