# SPDX-License-Identifier: MIT OR Apache-2.0
"""Rules about packets (`[[rule]] match = { port = 443, … }`) on a link that runs, by either driver:
what real sockets send, what the kernel makes, and random packets, made byte by byte and forwarded,
against a naive reading of the same rules. Where a packet went is what the queues' counters say."""
import ipaddress
import mmap
import os
import random
import socket
import struct
import subprocess
import sys
import time

from live import AGE, MOUNT, RESERV, check
from tagfs import set_queue

QUEUES = ("p0", "p1", "p2", "p3")
ROUTER4, ROUTER6, MAC, HERE = "10.77.9.9", "fd79::9", "02:00:00:00:00:99", "02:00:00:00:00:98"
CHANGES = 16  # of rules while packets flow
PORTED = (6, 17, 33, 132, 136)
#: A program of one socket, which a guest has started in a third of the time: neither site-packages
#: nor the whole of `socket`.
PYTHON = sys.executable, "-SEc"


def sh(line):
    subprocess.run(line.split(), check=True)


class Rules:
    """The running rules, and where packets went."""

    def __init__(self, live, dev, scratch):
        self.live, self.dev, self.file = live, dev, scratch + "/rules.toml"

    def put(self, *rules):
        """Each rule: its conditions in TOML, and its queue. The answer of `reserv up`."""
        with open(self.file, "w", encoding="ascii") as file:
            for conditions, queue in rules:
                file.write(f"[[rule]]\nmatch = {{ {conditions} }}\n{self.dev} = \"{queue}\"\n")
        return self.live.reserv("up", "--config", self.file, ok=False)

    def counts(self):
        counts = []
        for queue in QUEUES:
            if not os.path.exists(f"{MOUNT}/{self.dev}/{queue}"):
                counts.append(0)
                continue
            with open(f"{MOUNT}/{self.dev}/{queue}/backlog", encoding="ascii") as file:
                said = {key: int(value.split()[0]) for key, value in (line.split(" ", 1) for line in file)}
            counts.append(said["served"] + said["queued"] + said["dropped"])
        return counts

    def went(self, act, least=0):
        """How many packets of what `act` sends each of p0 … p3 has had, when there are so many at
        least. (q0 has the kernel's own words too.)"""
        time.sleep(AGE)
        before = self.counts()
        act()
        time.sleep(0.05)
        for _ in range(200):
            if sum(self.counts()) - sum(before) >= least:
                break
            time.sleep(0.05)
        return [now - b for now, b in zip(self.counts(), before)]

    def are(self, act, wanted, text):
        """That each of them has had so many of what `act` sends; they may come late."""
        is_there(self.went(act, sum(wanted)), wanted, text)


def udp(peer, port, bind=None, size=10, connect=False, times=5, option=None):
    def act():
        six = ":" in peer
        with socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM) as sock:
            # Fragments are made here, whatever is known about the way.
            sock.setsockopt(socket.IPPROTO_IPV6 if six else socket.IPPROTO_IP, 23 if six else 10, 0)
            if option:
                sock.setsockopt(socket.IPPROTO_IPV6, option, bytes((0, 0, 1, 4, 0, 0, 0, 0)))
            if bind:
                sock.bind(("", bind))
            if connect:
                sock.connect((peer, port))
            for _ in range(times):
                sock.sendto(bytes(size), (peer, port))
    return act


def tcp(peer, port):
    def act():
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.connect_ex((peer, port))
        time.sleep(0.05)
        sock.close()
    return act


def is_there(parts, wanted, text):
    check(parts == wanted, text, f"{parts}, wanted {wanted}" if parts != wanted else "")


class Forwarded:
    """Packets as they are written here come in by one interface and are routed to leave by the
    link."""

    def __init__(self, dev):
        for line in (f"ip link add prin0 type veth peer name prin1 address {HERE}", "ip link set prin0 up", "ip link set prin1 up",
                     f"ip neigh replace {ROUTER4} lladdr {MAC} dev {dev} nud permanent", f"ip neigh replace {ROUTER6} lladdr {MAC} dev {dev} nud permanent",
                     f"ip route replace 10.80.0.0/12 via {ROUTER4} dev {dev} onlink", f"ip -6 route replace fd80::/16 via {ROUTER6} dev {dev} onlink"):
            sh(line)
        for name in "ipv4/ip_forward", "ipv6/conf/all/forwarding":
            with open(f"/proc/sys/net/{name}", "w", encoding="ascii") as file:
                file.write("1")
        for name in "all", "prin1", "default":
            with open(f"/proc/sys/net/ipv4/conf/{name}/rp_filter", "w", encoding="ascii") as file:
                file.write("0")
        self.head = bytes.fromhex((HERE + MAC).replace(":", ""))
        self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        self.sock.bind(("prin0", 0))

    def send(self, packet):
        self.sock.send(self.head + (b"\x08\x00" if packet[0] >> 4 == 4 else b"\x86\xdd") + packet)

    def gone(self):
        self.sock.close()
        sh("ip link del prin0")


def sum16(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def some_packet(dice):
    """A packet, and what a reader of it knows: version, address, protocol, ports or None."""
    protocol = dice.choice((6, 17, 17, 132, 47, 200))
    ports = dice.choice((80, 443, 444, 8080, 1, 65535)), dice.choice((80, 443, 444, 8080, 1, 65535))
    data = struct.pack("!HH", *ports) + bytes(16)
    later, cut = dice.random() < 0.15, dice.random() < 0.1
    known = ports if protocol in PORTED and not later and not cut else None
    if cut:
        data = data[:3]
    if dice.random() < 0.5:
        to = ipaddress.ip_address(f"10.{dice.choice((80, 88))}.{dice.choice((0, 255))}.{dice.choice((1, 129))}")
        options = b"\x01" * dice.choice((0, 0, 4, 8))
        flags = dice.randrange(1, 1000) if later else dice.choice((0, 0x2000, 0x4000))
        head = struct.pack("!BBHHHBBH4s4s", 0x45 + len(options) // 4, 0, 20 + len(options) + len(data), 7, flags, 64, protocol, 0,
                           ipaddress.ip_address("10.99.0.9").packed, to.packed) + options
        head = head[:10] + struct.pack("!H", sum16(head)) + head[12:]
        return head + data, (4, to, protocol, known)
    to = ipaddress.ip_address(f"fd80:{dice.choice(('0', 'ffff'))}::{dice.choice(('1', 'ff01'))}")
    chain, headers = [], b""
    many = 9 if dice.random() < 0.05 else dice.choice((0, 0, 1, 2, 3))
    for _ in range(many):
        chain.append(dice.choice((60, 43, 51, 139)))
    if later or dice.random() < 0.15:
        chain.append(44)
    seen = protocol
    for at, kind in enumerate(chain):
        after = (chain + [protocol])[at + 1]
        longer = dice.choice((0, 1))
        if kind == 44:
            headers += struct.pack("!BBHI", after, 0, dice.randrange(1, 1000) << 3 | 1 if later else 1, 9)
        elif kind == 51:  # its length is in words, less two
            headers += bytes((after, 1 + 2 * longer)) + bytes(10 + 8 * longer)
        elif kind == 43:  # no segments left
            headers += bytes((after, longer, 0, 0)) + bytes(4 + 8 * longer)
        else:
            headers += bytes((after, longer, 1, 4 + 8 * longer)) + bytes(4 + 8 * longer)
    if len(chain) > 8:
        seen, known = None, None
    packet = struct.pack("!IHBB", 6 << 28, len(headers) + len(data), (chain + [protocol])[0], 64) + ipaddress.ip_address("fd99::9").packed + to.packed
    return packet + headers + data, (6, to, seen, known)


def some_rule(dice):
    """Conditions in TOML, and the same as a function of what is known."""
    words, tests = [], []
    for name, at in ("local_port", 0), ("port", 1):
        if dice.random() < 0.4:
            low = dice.choice((80, 443, 444, 1))
            high = dice.choice((low, low + 1, 8080))
            words.append(f'{name} = "{low}-{high}"' if high > low or dice.random() < 0.5 else f"{name} = {low}")
            tests.append(lambda k, low=low, high=high, at=at: k[3] is not None and low <= k[3][at] <= high)
    if dice.random() < 0.5:
        net = dice.choice(("10.80.0.0/16", "10.88.255.0/24", "10.80.0.128/25", "10.80.0.1", "fd80::/32", "fd80:ffff::/64", "fd80::ff00/120", "0.0.0.0/0", "::/0"))
        words.append(f'remote = "{net}"')
        tests.append(lambda k, net=ipaddress.ip_network(net): k[1] in net)
    if not words or dice.random() < 0.3:
        name, number = dice.choice((("tcp", 6), ("udp", 17), ("sctp", 132)))
        words.append(f'protocol = "{name}"')
        tests.append(lambda k: k[2] == number)
    return ", ".join(words), lambda k: all(test(k) for test in tests)


def random_packets(rules, way, seed, count, packets):
    dice = random.Random(seed)
    made = [some_rule(dice) for _ in range(count)]
    where = [dice.choice(QUEUES) for _ in made]
    out = rules.put(*((words, queue) for (words, _), queue in zip(made, where)))
    check(out.returncode == 0, f"{count} rules", out.stderr.strip())
    sent, wanted, backwards = [], [0] * 4, [0] * 4
    for _ in range(packets):
        packet, known = some_packet(dice)
        sent.append(packet)
        hits = [queue for (_, fits), queue in zip(made, where) if fits(known)]
        for counts, queue in (wanted, hits[:1]), (backwards, hits[-1:]):
            if queue:
                counts[QUEUES.index(queue[0])] += 1
    got = rules.went(lambda: [way.send(packet) for packet in sent], sum(wanted))
    is_there(got, wanted, f"{packets} random packets against {count} random rules (seed {seed}) went where a naive reader sends them")
    check(got != backwards, "and not where the last rule that fits would", backwards)
    return wanted


def tag(sock, queue):
    fd = os.open(f"{MOUNT}/{queue}", os.O_RDONLY | os.O_DIRECTORY)
    if set_queue(sock.fileno(), fd) != 1:  # the kernel refuses trampolines
        sock.setsockopt(0x5253, 5, fd)
    os.close(fd)


def of_senders(rules, dev, local, sink_exec):
    """A packet that leaves while somebody else runs is not somebody else's. Beyond a veth who sends
    runs here too, with what this side answers."""
    def in_queue(queue, *command):
        subprocess.run([RESERV, "run", "--net", f"{dev}/{queue}", "--", *command], check=True)

    def beyond(code):
        return lambda: in_queue("p1", *sink_exec, *PYTHON, f"import _socket as socket\n{code}")

    # The neighbour is asked for until somebody says where it lives, which sends what waits.
    sh(f"ip route replace 10.90.0.3/32 dev {dev}")
    with open(f"/proc/sys/net/ipv4/neigh/{dev}/mcast_solicit", "w", encoding="ascii") as file:
        file.write("1000")
    code = "import _socket as socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); [s.sendto(b'x', ('10.90.0.3', 9)) for _ in range(3)]"
    waiting = rules.went(lambda: in_queue("p1", *PYTHON, code))
    got = rules.went(lambda: in_queue("p2", *f"ip neigh replace 10.90.0.3 lladdr {MAC} dev {dev} nud permanent".split()))
    is_there((waiting, got), ([0, 0, 0, 0], [0, 3, 0, 0]), "what waited for its neighbour is its sender's, not whose call found it")
    sh("ip route del 10.90.0.3/32")
    got = rules.went(beyond(f"socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('{local}', 4444))"))
    check(got[3] == 1 and got[1] == 0, "that nobody listens goes by the rules, whoever is interrupted", got)
    got = rules.went(beyond(f"assert socket.socket().connect_ex(('{local}', 4445)) == 111"))
    is_there(got, [0, 0, 0, 0], "so does the refusal of a connection: q0")
    got = rules.went(lambda: in_queue("p1", *PYTHON, f"import _socket as socket\ns = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n"
                                      f"s.bind(('{dev}', 0x88b5))\ns.send(bytes.fromhex('{(MAC + HERE).replace(':', '')}88b5') + bytes(50))"))
    is_there(got, [0, 1, 0, 0], "a frame that a process wrote is its own")
    with socket.create_server(("", 8080)) as server:
        tag(server, f"{dev}/p3")
        got = rules.went(beyond(f"s = socket.socket()\ns.connect(('{local}', 8080))\ns.close()"))
        check(got[3] >= 1 and got[:3] == [0, 0, 0], "the answer to a SYN is the listener's, who has a tag", got)


def run(live, dev, peer, sink_exec, scratch, restart):
    """`sink_exec` begins a command in the name space beyond the link, where `peer` lives; `restart`
    ends reservd with SIGKILL, does what it is given, and begins the next one."""
    rules = Rules(live, dev, scratch)
    for queue in QUEUES:
        live.mk(f"{dev}/{queue}", 100)
    for line in f"ip addr add fd79::1/64 dev {dev} nodad", f"ip neigh replace fd79::2 lladdr {MAC} dev {dev} nud permanent":
        sh(line)
    way = Forwarded(dev)
    udp(peer, 7)()  # the neighbour is found

    # The words.
    for conditions, says in (("port = \"http\"", "\"http\" is not a port"), ("port = 443, uid = 0", "uid is of processes and port of packets"),
                             ("remote = \"10.0.0.1/8\"", "bits beyond its /8"), ("protocol = \"icmp\", port = 7", "icmp has no ports")):
        out = rules.put((conditions, "p0"))
        check(out.returncode != 0 and says in out.stderr, f"refused: {conditions}", out.stderr.strip().splitlines()[0] if out.stderr else "")
    out = rules.put(*[("protocol = 6", "p0")] * 65)
    check(out.returncode != 0 and "more than 64" in out.stderr, "refused: a 65th rule", out.stderr.strip())
    rules.are(udp(peer, 443), [0, 0, 0, 0], "no rules: what nobody tagged is q0's")

    out = rules.put(("protocol = \"udp\", port = 443", "p0"), ("local_port = \"5300-5399\"", "p1"), ("protocol = \"tcp\", port = 443", "p2"),
                    ("local_port = 8080", "p2"), ("protocol = \"icmp\"", "p3"), ("remote = \"10.80.0.0/16\"", "p3"))
    check(out.returncode == 0, "rules by port, protocol and prefix", out.stderr.strip())
    for act, wanted, text in ((udp(peer, 443), [5, 0, 0, 0], "UDP to port 443"), (udp(peer, 444), [0, 0, 0, 0], "to 444: q0"), (udp("fd79::2", 443), [5, 0, 0, 0], "over IPv6"),
                              (udp("fd79::2", 443, option=59), [5, 0, 0, 0], "behind an extension header"), (udp(peer, 9, bind=5353), [0, 5, 0, 0], "from a port of a range"),
                              (udp(peer, 443, bind=5353), [5, 0, 0, 0], "the first rule wins"), (udp("10.80.1.1", 9), [0, 0, 0, 5], "to an address of a prefix"),
                              (udp("10.81.1.1", 9), [0, 0, 0, 0], "to one beyond it"), (tcp(peer, 443), [0, 0, 1, 0], "a connection's SYN"),
                              (udp(peer, 443, size=4000, connect=True, times=1), [3, 0, 0, 0], "fragments of a connected socket"),
                              (udp("fd79::2", 443, size=4000, connect=True, times=1), [3, 0, 0, 0], "the same over IPv6"),
                              (udp(peer, 443, size=4000, times=1), [1, 0, 0, 0], "of an unconnected one the first has the other side's port"),
                              (udp(peer, 9, bind=5301, size=4000, times=1), [0, 3, 0, 0], "and all have its own")):
        rules.are(act, wanted, text)
    # The kernel's own: answers to SYN, and that nobody listens.
    with socket.create_server(("", 8080)) as server:
        code = "import _socket,sys; s = _socket.socket(); s.connect((sys.argv[1], 8080)); s.close()"
        local = subprocess.run(["ip", "-4", "-br", "addr", "show", "dev", dev], capture_output=True, text=True, check=True).stdout.split()[2].split("/")[0]
        got = rules.went(lambda: subprocess.run([*sink_exec, *PYTHON, code, local], check=True))
        check(got[2] >= 1 and got[:2] == [0, 0], "the kernel's answer to a SYN", got)
        server.close()
    code = "import _socket as socket,sys; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); [s.sendto(b'x', (sys.argv[1], 4444)) for _ in range(3)]"
    got = rules.went(lambda: subprocess.run([*sink_exec, *PYTHON, code, local], check=True))
    # The connection before may still end.
    check(got[3] >= 1 and got[:2] == [0, 0], "that nobody listens, which the kernel says", got)

    # Tags come first, then default lists.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        tag(sock, f"{dev}/p3")
        rules.are(lambda: [sock.sendto(b"x", (peer, 443)) for _ in range(4)], [0, 0, 0, 4], "a tagged socket's packets are its queue's")
    code = f"import _socket as socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); [s.sendto(b'x', ('{peer}', 443)) for _ in range(4)]"
    got = rules.went(lambda: subprocess.run([RESERV, "run", "--net", f"{dev}/p1", "--", *PYTHON, code], check=True))
    is_there(got, [0, 4, 0, 0], "a process' default list comes before rules")
    of_senders(rules, dev, local, sink_exec)

    # The tree changes below the rules.
    rules.put(("port = 443", "p0"), ("port = 443", "p2"))
    rules.are(udp(peer, 443), [5, 0, 0, 0], "of two rules that fit the first wins")
    live.reserv("mv", f"{dev}/p0", f"{dev}/gone")
    # Root's commands go by the control socket: the kernel is told of names a moment later.
    live.wait("the old name is gone", lambda: not os.path.exists(f"{MOUNT}/{dev}/p0"))
    rules.are(udp(peer, 443), [0, 0, 5, 0], "a rule whose queue has another name now is none: the next one decides")
    live.reserv("mv", f"{dev}/gone", f"{dev}/p0")
    rules.are(udp(peer, 443), [5, 0, 0, 0], "it is one again when there is such a queue")
    live.reserv("rm", f"{dev}/p0")
    live.wait("its name is gone", lambda: not os.path.exists(f"{MOUNT}/{dev}/p0"))
    rules.are(udp(peer, 443), [0, 0, 5, 0], "removed")
    live.mk(f"{dev}/p0", 100)
    rules.are(udp(peer, 443), [5, 0, 0, 0], "and made anew")

    # Other rules while packets flow: each has the old ones or the new ones.
    sent, ended = mmap.mmap(-1, 4), mmap.mmap(-1, 1)

    def swapped():
        child = os.fork()
        if child == 0:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                while not ended[0]:
                    sock.sendto(b"x", (peer, 443))
                    sent[:] = struct.pack("=I", struct.unpack("=I", sent)[0] + 1)
                    time.sleep(0.001)
            os._exit(0)
        for time_ in range(CHANGES):
            rules.put(*[("port = 443", QUEUES[time_ % 2])])
        ended[0] = 1
        os.waitpid(child, 0)
    got, count = rules.went(swapped), struct.unpack("=I", sent)[0]
    check(sum(got[:2]) == count > CHANGES and got[2:] == [0, 0] and min(got[:2]) > 0, f"{CHANGES} changes under traffic, no packet without a rule", (got, count))

    rules.put(("port = 443", "p1"))
    rules.are(lambda: restart(udp(peer, 443)), [0, 5, 0, 0], "reservd is killed, and they hold")
    rules.are(udp(peer, 443), [0, 5, 0, 0], "the next one has them")
    said = live.reserv("save").stdout
    check('port = "443"' in said and f'{dev} = "p1"' in said, "save shows them")
    check("rules 1" in open(f"{MOUNT}/status", encoding="utf-8").read(), "status counts them")

    wanted = [random_packets(rules, way, seed, count, packets) for seed, count, packets in ((1, 8, 200), (2, 64, 300), (3, 20, 200))]
    check(all(sum(parts) > 50 for parts in wanted), "many of which had a rule", wanted)
    check(rules.put().returncode == 0, "no rules any more")
    rules.are(udp(peer, 443), [0, 0, 0, 0], "and q0 has all again")
    way.gone()
    for queue in QUEUES:
        live.reserv("rm", f"{dev}/{queue}")
