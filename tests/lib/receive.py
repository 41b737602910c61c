# SPDX-License-Identifier: MIT OR Apache-2.0
"""The entrance of a link (`reserv up --net IFACE --receive`), used as its users do: what comes in
over a veth is counted for its receiver's queue, and dropped there where the receiver has no room or
the queue a rate. For a network name space of its own. Counts are exact, or bounds that hold
whatever the machine does meanwhile."""
import collections
import ctypes
import os
import random
import socket
import struct
import subprocess
import sys
import time

from live import MOUNT, RESERV, Live, check, kill, refuse
from net_stock import ours, refused
from tagfs import set_queue

DEV, PEER, HERE = "rsv0", "peer0", "10.79.0.1"
PEER4, HERE6, PEER6 = "10.79.0.2", "fd79::1", "fd79::2"
# Senders of crafted packets: fragments of the peer's own may have the same number, for 30 s.
NOBODY4, NOBODY6 = "10.79.0.66", "fd79::66"
MAC, PEER_MAC = "02:00:00:00:79:01", "02:00:00:00:79:02"
SOL, SET = 0x5253, 5
# What sends: a line is told, a line answers.
AGENT = """
import select, socket, sys, time
for line in sys.stdin:
    what, *words = line.split()
    if what == 'udp':
        host, port, count, size = words[0], int(words[1]), int(words[2]), int(words[3])
        family = socket.AF_INET6 if ':' in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as s:
            s.bind(('', int(words[4]) if len(words) > 4 else 0))
            s.setsockopt(*((socket.IPPROTO_IPV6, 23) if ':' in host else (socket.IPPROTO_IP, 10)), 0)
            for i in range(count):
                s.sendto(bytes(size), (host, port))
                if i % 50 == 49: time.sleep(0.002)
    elif what == 'connect':
        socks = []
        for i in range(int(words[2])):
            s = socket.socket()
            s.setblocking(False)
            s.connect_ex((words[0], int(words[1])))
            # Those for whom there is room are made before the others ask.
            if i < int(words[3]): select.select([], [s], [], 20)
            socks.append(s)
        time.sleep(0.2)
        del socks
    elif what == 'raw':
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
            raw.bind(('peer0', 0))
            for packet in words: raw.send(bytes.fromhex(packet))
    print('done', flush=True)
"""


def sh(line):
    subprocess.run(line.split(), check=True)


def batch(lines, before=()):
    """Lines of ip, in one process."""
    subprocess.run([*before, "ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)


class Sender:
    """The other end of the link."""

    def __init__(self):
        self.process = subprocess.Popen(["unshare", "-n", sys.executable, "-IS", "-c", AGENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        mine = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{self.process.pid}/ns/net") == mine:
            time.sleep(0.01)

    def make_link(self):
        there = "nsenter", "-t", str(self.process.pid), "-n"
        batch([f"link add {DEV} address {MAC} type veth peer name {PEER} address {PEER_MAC} netns {self.process.pid}",
               f"addr add {HERE}/24 dev {DEV}", f"addr add {HERE6}/64 dev {DEV} nodad", f"link set {DEV} up"])
        # Nobody asks for an address in the middle of a count.
        batch([f"addr add {PEER4}/24 dev {PEER}", f"addr add {PEER6}/64 dev {PEER} nodad", f"link set {PEER} up", "link set lo up",
               *(f"neigh replace {host} lladdr {MAC} dev {PEER} nud permanent" for host in (HERE, HERE6))], there)
        batch(f"neigh replace {host} lladdr {PEER_MAC} dev {DEV} nud permanent" for host in (PEER4, PEER6))

    def __call__(self, *words):
        print(*words, file=self.process.stdin, flush=True)
        if self.process.stdout.readline() != "done\n":
            raise RuntimeError("what sends has ended")

    def close(self):
        self.process.kill()
        self.process.wait()


def stat(path):
    time.sleep(0.03)  # what it says is up to 20 ms old (SURVEY_AGE_MAX)
    with open(f"{MOUNT}/{DEV}/{path}/stat", encoding="ascii") as file:
        return {key: int(value) if value.isdigit() else value for key, value in (line.split() for line in file)}


COUNTS = "received", "receive_dropped_full", "receive_dropped_rate"
ELSE = "received_shared", "received_forwarded", "received_nobody", "received_elsewhere"


def counts(path):
    told = stat(path)
    return [told[key] for key in COUNTS]


def others():
    told = stat("")
    return [told[key] for key in ELSE]


def drops(sock):
    """Packets that the kernel dropped at a socket (SK_MEMINFO_DROPS)."""
    return struct.unpack("9I", sock.getsockopt(socket.SOL_SOCKET, 55, 36))[8]


def begins(source, port, kind, own):
    """A SYN or a datagram from an address of the other end."""
    if kind == socket.SOCK_STREAM:
        rest = struct.pack("!HHIIBBHHH", own, port, 7, 0, 5 << 4, 2, 4096, 0, 0)
    else:
        rest = struct.pack("!HHHH", own, port, 8 + 8, 0) + bytes(8)
    number = 6 if kind == socket.SOCK_STREAM else 17
    ends = socket.inet_aton(source) + socket.inet_aton(HERE)
    if number == 6:
        rest = rest[:16] + struct.pack("!H", checksum(ends + struct.pack("!BBH", 0, number, len(rest)) + rest)) + rest[18:]
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(rest), 0, 0, 64, number, 0) + ends
    head = head[:10] + struct.pack("!H", checksum(head)) + head[12:]
    return (bytes.fromhex((MAC + PEER_MAC).replace(":", "")) + b"\x08\x00" + head + rest).hex()


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data[:len(data) // 2 * 2])) + (data[-1] << 8 if len(data) % 2 else 0)
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def server(queue, port, kind=socket.SOCK_DGRAM, family=socket.AF_INET, room=None, free=None, share=None):
    """A socket that is tagged with a queue of the link; None: with none. `share`: a port of several."""
    sock = socket.socket(family, kind)
    if share:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        port = share
    if queue:
        fd = os.open(f"{MOUNT}/{DEV}/{queue}", os.O_RDONLY | os.O_DIRECTORY)
        if set_queue(sock.fileno(), fd) != 1:  # the kernel refuses trampolines
            sock.setsockopt(SOL, SET, fd)
        os.close(fd)
    if room:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if free:
        sock.setsockopt(socket.IPPROTO_IP, 15, 1)  # IP_FREEBIND
    sock.bind(free or ("", port))
    if kind == socket.SOCK_STREAM:
        sock.listen(2)
    sock.setblocking(False)
    return sock


def read_all(sock):
    count = 0
    try:
        while True:
            sock.recv(65536)
            count += 1
    except BlockingIOError:
        return count


def went(live, path, act, wanted, text):
    """What came in for a queue while something was sent: exactly this, soon."""
    before = counts(path)
    act()
    got = None

    def there():
        nonlocal got
        got = [now - was for now, was in zip(counts(path), before)]
        return got == wanted
    for _ in range(400):
        if there():
            break
        time.sleep(0.02)
    check(got == wanted, text, "" if got == wanted else f"{got}, wanted {wanted}")


def frame(payload, kind=0x0800, to=MAC, vlan=None):
    tag = struct.pack("!HH", 0x8100, vlan) if vlan else b""
    return bytes.fromhex(to.replace(":", "")) + bytes.fromhex(PEER_MAC.replace(":", "")) + tag + struct.pack("!H", kind) + payload


def ip4(payload, protocol=17, first=0x45, length=None, fragment=0, to=HERE, options=b"", of=PEER4):
    total = 20 + len(options) + len(payload) if length is None else length
    ends = (socket.inet_aton(end) for end in (of, to))
    head = struct.pack("!BBHHHBBH4s4s", first, 0, total, 7, fragment, 64, protocol, 0, *ends) + options
    words = struct.unpack(f"!{len(head) // 2}H", head)
    check_sum = sum(words)
    check_sum = (check_sum & 0xffff) + (check_sum >> 16)
    check_sum = ~((check_sum & 0xffff) + (check_sum >> 16)) & 0xffff
    return head[:10] + struct.pack("!H", check_sum) + head[12:] + payload


def udp(port, size=10, length=None):
    return struct.pack("!HHHH", 999, port, 8 + size if length is None else length, 0) + bytes(size)


def listens(queue, port):
    """A program that binds a socket and never sends, with a queue of the link as its default."""
    process = subprocess.Popen([RESERV, "run", "--net", f"{DEV}/{queue}", "--", sys.executable, "-c",
                                "import socket, time; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
                                f"s.bind(('', {port})); print('bound', flush=True); time.sleep(1000)"],
                               stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    return process


def told_apart(live, send, whole):
    """Each packet is counted for the queue of whoever will have it."""
    # (In the driver each packet is taken to be as large as its frame, so it is given room.)
    a, b, six = server("a", 5001, room=1 << 20), server("b", 5002), server("c", 5003, family=socket.AF_INET6)
    went(live, "a", lambda: send("udp", HERE, 5001, 200, 100), [200, 0, 0], "200 datagrams for a socket of a")
    check(read_all(a) == 200, "and it has them")
    before = counts("a")
    went(live, "b", lambda: send("udp", HERE, 5002, 30, 100), [30, 0, 0], "30 for a socket of b")
    check(counts("a") == before, "of which a knows nothing")
    went(live, "c", lambda: send("udp", HERE6, 5003, 40, 100), [40, 0, 0], "by IPv6")
    went(live, "b", lambda: send("udp", HERE, 5002, 5, 4000), [15, 0, 0], "in fragments: three packets each")
    check(read_all(b) == 35, "and they are put together")
    went(live, "c", lambda: send("udp", HERE6, 5003, 5, 4000), [15, 0, 0], "in fragments, by IPv6")
    bytes_before = stat("a")["received_bytes"]
    send("udp", HERE, 5001, 10, 100)
    live.wait("bytes are counted", lambda: stat("a")["received_bytes"] - bytes_before in (10 * 128, 10 * 142))
    a.connect((PEER4, 4444))
    went(live, "a", lambda: send("udp", HERE, 5001, 10, 100, 4444), [10, 0, 0], "for a connected socket, from its peer")
    before = others()
    send("udp", HERE, 5001, 10, 100)
    live.wait("from others there is no socket", lambda: others()[2] - before[2] >= 10)

    listener = server("d", 5004, socket.SOCK_STREAM)
    before = counts("d")[0]
    client = subprocess.run(["nsenter", "-t", str(send.process.pid), "-n", sys.executable, "-c",
                             f"import socket; s = socket.create_connection(('{HERE}', 5004)); s.sendall(bytes(100000)); s.close()"],
                            check=True, timeout=60)
    connection, _ = listener.accept()
    with connection:
        size = 0
        while data := connection.recv(65536):
            size += len(data)
    check(client.returncode == 0 and size == 100000, "a connection to a listener of d")
    live.wait("its packets are d's", lambda: counts("d")[0] - before >= 5)

    # Who is not changed: by its process' default list, though it never sends.
    process = listens("b", 5005)
    went(live, "b", lambda: send("udp", HERE, 5005, 7, 10), [7, 0, 0], "a program that only listens: its process' default queue")
    process.kill()
    process.wait()
    none = server(None, 5006)
    went(live, "q0", lambda: send("udp", HERE, 5006, 7, 10), [7, 0, 0], "who has no tag is q0's")
    if whole:
        rules = os.path.join(os.environ.get("RESERV_RUN", "/run"), "receive.toml")
        with open(rules, "w", encoding="ascii") as file:
            file.write(f"[[rule]]\nmatch = {{ local_port = 5006 }}\n{DEV} = \"a\"\n")
        live.reserv("up", "--config", rules)
        went(live, "a", lambda: send("udp", HERE, 5006, 7, 10), [7, 0, 0], "or where a rule about its port says")
        with open(rules, "w", encoding="ascii") as file:
            file.write("rule = []\n")
        live.reserv("up", "--config", rules)
    for sock in a, b, six, listener, none:
        sock.close()


def nobodys(live, send):
    """What is no socket's is let through, and counted as what it is."""
    def counted(which, act, least, text):
        before = others()
        act()
        live.wait(text, lambda: others()[which] - before[which] >= least)
    a = server("a", 5001)
    counted(2, lambda: send("udp", HERE, 5099, 20, 10), 20, "nobody is at a port")
    echo = struct.pack("!BBHHH", 8, 0, 0xf7fe, 1, 0)
    before = counts("a")
    packets = {
        "a VLAN's": (3, frame(ip4(udp(5001)), vlan=7)),
        "another host's": (3, frame(ip4(udp(5001)), to="02:00:00:00:99:99")),
        "cut short in the IP header": (0, frame(ip4(udp(5001))[:12])),
        "cut short in the UDP header": (0, frame(ip4(udp(5001)[:6]))),
        "of a length beyond its end, and shorter than a header": (0, frame(ip4(udp(5001), length=24))),
        "an IP header that is too short": (0, frame(ip4(udp(5001), first=0x44))),
        "of another version": (0, frame(ip4(udp(5001), first=0x65))),
        "GRE": (0, frame(ip4(bytes(4) + ip4(udp(5001)), protocol=47))),
        "a fragment whose first was never seen": (0, frame(ip4(bytes(16), fragment=5))),
        "IPv6 with a routing header": (0, frame(ip6(struct.pack("!BBBBI", 17, 0, 0, 1, 0) + udp(5001), 43), 0x86dd)),
        "IPv6 with nine headers": (0, frame(ip6(b"".join(struct.pack("!BB6x", 60 if i < 8 else 17, 0) for i in range(9)) + udp(5001), 60), 0x86dd)),
        "ICMP": (0, frame(ip4(echo, protocol=1))),
        "a group's": (0, frame(ip4(udp(5001), to="224.0.0.9"), to="01:00:5e:00:00:09")),
        "a group's, sent to one": (0, frame(ip4(udp(5001), to="224.0.0.9"))),
        "a broadcast": (0, frame(ip4(udp(5001), to="255.255.255.255"), to="ff:ff:ff:ff:ff:ff")),
        "ARP": (0, frame(bytes(28), 0x0806)),
    }
    for text, (which, packet) in packets.items():
        was = others()
        send("raw", packet.hex())
        live.wait(f"{text} is counted", lambda: others()[which] > was[which])
    check(counts("a") == before, f"none of {len(packets)} packets that are nobody's, or not whole, is a's", "" if counts("a") == before else f"{counts('a')}, before {before}")
    went(live, "a", lambda: send("raw", frame(ip4(udp(5001), first=0x46, options=bytes(4))).hex()), [1, 0, 0], "with options it is a's")
    a.close()
    dual = server("a", 5001, family=socket.AF_INET6)
    headers = struct.pack("!BB6x", 60, 0) + struct.pack("!BB6x", 17, 0)
    went(live, "a", lambda: send("raw", frame(ip6(headers + udp(5001), 0), 0x86dd).hex()), [1, 0, 0], "and behind two extension headers")
    dual.close()


def ip6(payload, following, to=HERE6, of=PEER6):
    ends = (socket.inet_pton(socket.AF_INET6, end) for end in (of, to))
    return struct.pack("!IHBB16s16s", 6 << 28, len(payload), following, 64, *ends) + payload


def router(on):
    for switch in "/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding":
        with open(switch, "w", encoding="ascii") as file:
            file.write(str(on))


def forwarded(live, send):
    """What goes on to another machine is no socket's here, whatever its port."""
    sh("ip link add far0 type ifb")
    for line in "ip addr add 10.80.0.1/24 dev far0", "ip -6 addr add fd80::1/64 dev far0 nodad", "ip link set far0 up":
        sh(line)
    for host in "10.80.0.5", "fd80::5":
        sh(f"ip neigh replace {host} lladdr 02:00:00:00:80:05 dev far0 nud permanent")
    a = server("a", 5001, family=socket.AF_INET6)
    try:
        router(1)
        before, was = counts("a"), others()
        send("raw", frame(ip4(udp(5001), to="10.80.0.5")).hex(), frame(ip6(udp(5001), 17, "fd80::5"), 0x86dd).hex())
        live.wait("both are counted as forwarded", lambda: others()[1] - was[1] == 2)
        went(live, "a", lambda: send("udp", HERE, 5001, 3, 10), [3, 0, 0], "and what is for us is its socket's still")
        check(counts("a")[0] - before[0] == 3, "of what was forwarded it had nothing")
        # attack: a tenant binds the address of another machine, for which this one is the router
        free = server("b", None, free=("10.80.0.5", 5010))
        live.reserv("set", f"{DEV}/b", "receive=1/s", "receive-burst=1")
        before, was = counts("b"), others()
        send("raw", *[frame(ip4(udp(5010), to="10.80.0.5")).hex()] * 5)
        live.wait("what goes to another machine is forwarded, whoever binds its address", lambda: others()[1] - was[1] == 5)
        check(counts("b") == before, "and he had nothing of it")
        free.close()
        # attack: a tenant's full sockets at ports by which others' packets come in, translated
        full_one = server("b", 5011, room=2000)
        went(live, "b", lambda: send("udp", HERE, 5011, 30, 500), [30, 0, 0], "a router drops nothing for a socket without a peer, which may not be whose it is")
        full_one.connect((PEER4, 4445))
        before = counts("b")
        send("udp", HERE, 5011, 30, 500, 4445)
        live.wait("for one with a peer it does", lambda: sum(counts("b")) - sum(before) == 30 and counts("b")[0] - before[0] <= 2)
        full_one.close()
        live.reserv("set", f"{DEV}/b", "receive=default", "receive-burst=default")
    finally:
        router(0)
        a.close()
        sh("ip link del far0")


def full(live, send):
    """A receiver that does not read costs nothing behind the entrance."""
    a = server("a", 5001, room=30000)
    before = counts("a")
    send("udp", HERE, 5001, 1000, 100)
    live.wait("all have come", lambda: sum(counts("a")) - sum(before) == 1000)
    came, refused_, over = (now - was for now, was in zip(counts("a"), before))
    check(refused_ > 900 and not over, "a receiver without room: the rest is dropped at the entrance", f"{came} came, {refused_} did not")
    check(drops(a) == 0, "and nothing at its socket, behind the protocol", f"{drops(a)} dropped there")
    check(read_all(a) == came, "it has what came")
    went(live, "a", lambda: send("udp", HERE, 5001, 10, 100), [10, 0, 0], "when it has read there is room again")
    a.close()
    listener = server("d", 5004, socket.SOCK_STREAM)
    before = counts("d")
    send("connect", HERE, 5004, 40, 3)
    live.wait("a listener that does not accept: connections are refused at the entrance", lambda: counts("d")[1] - before[1] > 0)
    check(len([c for c in iter(lambda: accepted(listener), None)]) == 3, "it has those that it has room for (listen(2): three)")
    listener.close()


def accepted(listener):
    try:
        connection, _ = listener.accept()
        connection.close()
        return connection
    except BlockingIOError:
        return None


def rated(live, send):
    """RX-1: in any time t at most 1 + burst + t * rate."""
    a = server("a", 5001, room=1 << 20)
    live.reserv("set", f"{DEV}/a", "receive=200/s", "receive-burst=5")
    with open(f"{MOUNT}/{DEV}/a/tune", encoding="ascii") as file:
        told = file.read()
    check("receive 200/s receive-burst 5" in told, "the rate is read as it was written", told.strip())
    before, begun = counts("a"), time.monotonic()
    for _ in range(10):
        send("udp", HERE, 5001, 100, 100)
        read_all(a)
    live.wait("all have come", lambda: sum(counts("a")) - sum(before) == 1000)
    came, no_room, over = (now - was for now, was in zip(counts("a"), before))
    most = 1 + 5 + (time.monotonic() - begun) * 200
    check(6 <= came <= most and over == 1000 - came and not no_room, "a queue with a rate: no more than it comes in", f"{came} of at most {most:.0f}")
    check(drops(a) == 0, "and nothing is dropped at the socket")
    live.reserv("set", f"{DEV}/a", "receive=default", "receive-burst=default")
    went(live, "a", lambda: send("udp", HERE, 5001, 60, 100), [60, 0, 0], "without it all come in")
    a.close()


def wrong(live):
    for words, says, text in (
            (("set", f"{DEV}/a", "receive=0/s"), "from 1/s to 100000000/s", "a rate of nothing"),
            (("set", f"{DEV}/a", "receive=fast"), "no number of packets", "a rate that is no number"),
            (("set", f"{DEV}/a", "receive-burst=65537"), "from 1 to 65536", "a burst that is too long"),
            (("set", "cpu/q0", "receive=5/s"), "a link's queue has it", "a rate of a CPU's queue"),
            (("set", DEV, "receive=5/s"), "a link's queue has it", "a rate of a scheduler"),
            (("up", "--receive"), "--net", "an entrance of nothing"),
            (("up", "--net", DEV, "--receive=nowhere"), "tcx xdp", "a place that there is not")):
        refused(live, words, says, text)


def deaths(live, send, up):
    """The entrance does not need reservd, and its next one finds it as it was."""
    a = server("a", 5001, room=1 << 20)
    live.reserv("set", f"{DEV}/a", "receive=1/s", "receive-burst=3")
    before = counts("a")
    ino = os.stat(f"{MOUNT}/{DEV}/b").st_ino & 0xffff
    restart(live, lambda: meanwhile_of(send, ino), up)
    other = server("b", 5002)
    went(live, "b", lambda: send("udp", HERE, 5002, 40, 10), [40, 0, 0], "a rate that no edit has is taken back")
    other.close()
    came, no_room, over = (now - was for now, was in zip(counts("a"), before))
    check(came >= 4 and came + over == 50 and over > 0 and not no_room, "nobody was there: the queue's rate held, and all was counted", f"{came} of 50 came")
    live.reserv("set", f"{DEV}/a", "receive=default")
    saved = os.path.join(os.environ.get("RESERV_RUN", "/run"), "receive-saved.toml")
    live.reserv("set", f"{DEV}/a", "receive=77/s")
    live.reserv("save", saved)
    a.close()
    live.reserv("down")
    # The kernel lets go of a program whose pin is gone a moment later.
    live.wait("down takes the entrance away", lambda: not entrances())
    live.reserv("up", "--config", saved)
    with open(f"{MOUNT}/{DEV}/a/tune", encoding="ascii") as file:
        check("receive 77/s receive-burst 3" in file.read(), "what was saved loads, with its rates")
    a = server("a", 5001)
    went(live, "a", lambda: send("udp", HERE, 5001, 3, 100), [3, 0, 0], "and its queues have sockets again")
    live.reserv("set", f"{DEV}/a", "receive=default")
    a.close()


def entrances():
    """Whether the interface has a program of XDP, or what comes in is still counted by our maps."""
    told = subprocess.run(["ip", "-d", "link", "show", DEV], capture_output=True, text=True, check=True).stdout
    pins = os.environ.get("RESERV_BPFFS", "/sys/fs/bpf/reserv")
    left = [name for name in os.listdir(pins) if name.startswith("receive")] if os.path.exists(pins) else []
    return left + (["xdp"] if "prog/xdp" in told else [])


def comes_back(live, send):
    """An interface that is removed, and comes again."""
    sh(f"ip link del {DEV}")
    live.wait("the loss is seen", lambda: live.status()["resources"][DEV]["state"] != "running")
    send.make_link()
    live.wait("it is taken again", lambda: live.status()["resources"][DEV]["state"] == "running")
    a = server("a", 5001)
    live.wait("the entrance counts again", lambda: (send("udp", HERE, 5001, 1, 100), counts("a")[0])[1] > 0)
    went(live, "a", lambda: send("udp", HERE, 5001, 20, 100), [20, 0, 0], "and every packet")
    live.reserv("rm", "--flush", f"{DEV}/a")
    live.mk(f"{DEV}/a", 100)
    check(counts("a") == [0, 0, 0], "a new queue of an old number begins at 0", counts("a"))
    went(live, "q0", lambda: send("udp", HERE, 5001, 4, 100), [4, 0, 0], "a queue is deleted: what comes for its sockets is q0's")
    a.close()
    live.reserv("set", f"{DEV}/b", "limit=0")
    check(counts("b") == [0, 0, 0], "counters begin anew with those of the backlog", counts("b"))


def meanwhile_of(send, index):
    """What happens while no reservd lives."""
    send("udp", HERE, 5001, 50, 100)
    # As if it had died between telling a rate (5/s, of which the period is in word 2) and the edit.
    Crafted(number_of()).change("entrances", index, 9, lambda words: [words[0], 5 | 1 << 32, 3_200_000_000, 3_200_000_000, *words[4:]])


def restart(live, between, up):
    live.wait("keeper and worker are dead", lambda: not [kill(pid) for pid in ours()])
    between()
    live.reserv("up", "--driver", live.driver, *up)


def without(live, send, up):
    """A link without an entrance, or that cannot have one."""
    live.reserv("down", DEV)
    live.reserv("up", *[word for word in up if not word.startswith("--receive")])
    live.mk(f"{DEV}/a", 100)
    check("received" not in stat("a"), "without --receive nothing is told apart")
    refused(live, ("set", f"{DEV}/a", "receive=5/s"), "--receive", "and no queue has a rate")
    live.reserv("set", f"{DEV}/a", "receive=default")
    live.reserv("down", DEV)
    bridge = subprocess.run("ip link add br0 type bridge".split(), capture_output=True, text=True)
    if bridge.returncode:
        print(f"# NOT RUN: a port of a bridge has no entrance: {bridge.stderr.strip()}", flush=True)
    else:
        sh(f"ip link set {DEV} master br0")
        refused(live, ("up", *up), "belongs to another interface", "a port of a bridge")
        sh("ip link del br0")
    sh("ip link add dull0 type ifb")
    sh("ip link set dull0 up")
    words = ["dull0" if word == DEV else word for word in up]
    if "--receive=xdp" in up:
        refused(live, ("up", *words), "its driver has no XDP", "an interface whose driver cannot")
        check("dull0" not in live.status()["resources"], "and nothing is half made", live.status()["resources"])
    else:
        live.reserv("up", *words)
        live.wait("any interface can have it behind the driver", lambda: live.status()["resources"]["dull0"]["state"] == "running")
        live.reserv("down", "dull0")
    sh("ip link del dull0")
    live.wait("nothing is left", lambda: not entrances())
    name = "rv_xdp" if "--receive=xdp" in up else "rv_tcx"
    live.reserv("down")
    refuse(name)
    refused(live, ("up", "--driver", live.driver, *up), f"refuses the program {name}", f"a kernel that refuses {name}")
    live.reserv("up", "--driver", live.driver, *[word for word in up if not word.startswith("--receive")])
    live.wait("the link can be had without it, and nothing is half made",
              lambda: live.status()["resources"][DEV]["state"] == "running" and not entrances())
    live.reserv("down")
    refuse("")
    live.reserv("up", "--driver", live.driver)


class Crafted:
    """Random packets through the program itself, as the kernel tests programs (BPF_PROG_TEST_RUN),
    beside a naive reading of them: for each batch, how many are whose."""
    LOOK_UP, UPDATE, TEST_RUN, OBJ_GET, SYSCALL = 1, 2, 10, 7, 321
    libc = ctypes.CDLL(None, use_errno=True)

    def __init__(self, number, more=()):
        """`more`: queues by port, of sockets for datagrams of IPv4 that others have."""
        self.sockets = {5001: "a", **dict(more)}
        pins = os.environ.get("RESERV_BPFFS", "/sys/fs/bpf/reserv")
        at = "rv_tcx" if os.path.exists(f"{pins}/receive-{number}/rv_tcx") else "rv_xdp"
        self.program = self.pinned(f"{pins}/receive-{number}/{at}")
        self.index, self.firsts = socket.if_nametoindex(DEV), {}
        self.maps = {name: self.pinned(f"{pins}/receive-{number}/{name}") for name in ("entrances", "others")}

    def look_up(self, name, index, words):
        key, value = ctypes.create_string_buffer(struct.pack("I", index)), ctypes.create_string_buffer(8 * words)
        self.bpf(self.LOOK_UP, struct.pack("IxxxxQQQ", self.maps[name], ctypes.addressof(key), ctypes.addressof(value), 0))
        return struct.unpack(f"{words}Q", value.raw)

    def change(self, name, index, words, how):
        """An element becomes another one."""
        key = ctypes.create_string_buffer(struct.pack("I", index))
        value = ctypes.create_string_buffer(struct.pack(f"{words}Q", *how(self.look_up(name, index, words))))
        self.bpf(self.UPDATE, struct.pack("IxxxxQQQ", self.maps[name], ctypes.addressof(key), ctypes.addressof(value), 0))

    def counted(self):
        """What came in for a and b, and for nobody, as the map says now."""
        index = {name: os.stat(f"{MOUNT}/{DEV}/{name}").st_ino & 0xffff for name in "ab"}
        return {**{name: self.look_up("entrances", at, 9)[5] for name, at in index.items()}, **dict(enumerate(self.look_up("others", 0, 4)))}

    def bpf(self, command, attr):
        buffer = ctypes.create_string_buffer(attr.ljust(128, b"\0"), 128)
        got = self.libc.syscall(self.SYSCALL, command, buffer, 128)
        if got < 0:
            raise OSError(ctypes.get_errno(), "bpf")
        return got, buffer.raw

    def pinned(self, path):
        name = ctypes.create_string_buffer(path.encode())
        return self.bpf(self.OBJ_GET, struct.pack("QII", ctypes.addressof(name), 0, 0))[0]

    def run(self, packet):
        """What the program answers: -1: it goes on, 2: dropped."""
        data = ctypes.create_string_buffer(packet, len(packet))
        context = ctypes.create_string_buffer(192)
        struct.pack_into("I", context, 40, self.index)  # __sk_buff.ifindex
        attr = struct.pack("IIIIQQIIIIQQ", self.program, 0, len(packet), 0, ctypes.addressof(data), 0, 1, 0, 192, 0, ctypes.addressof(context), 0)
        _, out = self.bpf(self.TEST_RUN, attr)
        return struct.unpack_from("i", out, 4)[0]

    def whose(self, packet):
        """The same in plain words: a queue's name, or one of ELSE's places."""
        to, kind, body = packet[:6], int.from_bytes(packet[12:14], "big"), packet[14:]
        if to == bytes.fromhex(MAC.replace(":", "")):
            pass
        elif to[0] & 1:
            return 0
        else:
            return 3
        if kind in (0x8100, 0x88a8):
            return 3
        if kind == 0x0800:
            if len(body) < 20 or body[0] >> 4 != 4 or (size := (body[0] & 15) * 4) < 20:
                return 0
            length, fragment = int.from_bytes(body[2:4], "big"), int.from_bytes(body[6:8], "big")
            protocol, offset, destination = body[9], fragment & 0x1fff, body[16:20]
            group = destination[0] >= 224
            part = (body[4:6], body[12:20]) if fragment & 0x3fff else None
        elif kind == 0x86dd:
            if len(body) < 40 or body[0] >> 4 != 6:
                return 0
            size, length, offset, protocol, destination = 40, 40 + int.from_bytes(body[4:6], "big"), 0, body[6], body[24:40]
            group, part = destination[0] == 0xff, None
            for _ in range(8):
                if protocol not in (0, 44, 60) or offset:
                    break
                head = body[size:size + 8]
                if len(head) < 8:
                    return 0
                if protocol == 44:
                    offset = int.from_bytes(head[2:4], "big") & 0xfff8
                    part = (head[4:8], body[8:40])
                size += 8 if protocol == 44 else 8 + head[1] * 8
                protocol = head[0]
        else:
            return 0
        need = {6: (14, 20), 17: (4, 8)}.get(protocol)
        if need is None or length < size and kind == 0x0800:
            return 0
        if group:
            return 0
        if offset:
            return self.firsts.get((part, protocol), 0)
        if len(body) < size + need[0] or size + need[1] > length:
            return 0
        port = int.from_bytes(body[size + 2:size + 4], "big")
        mine = protocol == 17 and (kind == 0x0800 or port == 5001)
        found = self.sockets.get(port, 2) if mine else 2
        if part:
            self.firsts.pop((part, protocol), None)
            if found != 2:
                self.firsts[part, protocol] = found
        return found

    @staticmethod
    def random(dice, number):
        """A packet that means something, and then is bent."""
        port = dice.choice((5001, 5001, 5002, 5099, 5001 << 8 & 0xffff))
        inner = dice.choice((udp(port, dice.randint(0, 30)), udp(port), struct.pack("!HHIIBBHHH", 999, port, 1, 1, 0x50, dice.choice((2, 16, 18)), 9, 0, 0) + bytes(20)))
        protocol = 17 if len(inner) < 40 else 6
        if dice.random() < 0.5:
            fragment = dice.choice((0, 0, 0, 0x4000, 0x2000, 0x2005, 5))
            body = ip4(inner, protocol=dice.choice((protocol, protocol, protocol, dice.randrange(256))), fragment=fragment,
                       options=bytes(4 * dice.choice((0, 0, 0, 1, 10))), of=NOBODY4)
            kind = 0x0800
            if fragment & 0x3fff:
                body = body[:4] + struct.pack("!H", number & 0xffff) + body[6:]
        else:
            chain = [dice.choice((0, 60, 60, 44, 43, 51)) for _ in range(dice.choice((0, 0, 0, 1, 2, 8, 9)))]
            follow = chain[1:] + [protocol]
            heads = b"".join(struct.pack("!BBHI", after, 0 if kind == 44 else dice.choice((0, 0, 0, 1)), dice.choice((0, 1, 8)) if kind == 44 else 0, number)
                             for kind, after in zip(chain, follow))
            body, kind = ip6(heads + inner, (chain + [protocol])[0], of=NOBODY6), 0x86dd
        packet = bytearray(frame(body, dice.choice((kind,) * 12 + (0x0806, 0x8100, 0x88a8, 0x0800, 0x86dd))))
        for _ in range(dice.choice((0, 0, 0, 1, 1, 2, 5))):
            packet[dice.randrange(len(packet))] = dice.choice((0, 1, 0xff, dice.randrange(256)))
        if dice.random() < 0.2:
            del packet[dice.randrange(14, len(packet) + 1):]
        return bytes(packet.ljust(54, b"\0"))  # the kernel tests no program with less than both headers


def number_of():
    """Of the link that has an entrance."""
    pins = os.environ.get("RESERV_BPFFS", "/sys/fs/bpf/reserv")
    return next(name.split("-")[1] for name in os.listdir(pins) if name.startswith("receive-"))


def crafted(live, many, more):
    """No packet that is bent moves to another queue, nor is any lost on the way."""
    seed = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
    dice, program = random.Random(seed), Crafted(number_of(), {5002: "b", **more})
    a, b = server("a", 5001, family=socket.AF_INET6), server("b", 5002)
    wrong_batch, dropped = None, 0
    for start in range(0, many, 500):
        packets = [Crafted.random(dice, start + i) for i in range(500)]
        before = program.counted()
        dropped += sum(program.run(packet) != -1 for packet in packets)
        got = {name: now - before[name] for name, now in program.counted().items()}
        wanted = collections.Counter(map(program.whose, packets))
        # (What the link's two ends say to each other themselves, in IPv6, is the machine's too.)
        if any(got[key] != wanted[key] if key else got[key] < wanted[key] for key in got):
            wrong_batch = f"batch {start}: {got}, wanted {dict(wanted)}, SEED={seed}"
            break
    check(wrong_batch is None, f"{many} packets, bent at random: each is whose a plain reading says", wrong_batch or f"SEED={seed}")
    check(not dropped, "and none is dropped", dropped)
    a.close()
    b.close()


former = []  # a program that listens since the first entrance


def main(live, send, at, whole):
    """`whole`: also what costs starts of programs, and is the same by every driver."""
    for name in "abcd":
        live.mk(f"{DEV}/{name}", 100)
    whose = "q0" if former else "b"
    if former:
        went(live, "q0", lambda: send("udp", HERE, 5020, 5, 10), [5, 0, 0], "who had a queue of the link that is gone has none of its numbers now")
    else:
        former.append(listens("b", 5020))
        went(live, "b", lambda: send("udp", HERE, 5020, 5, 10), [5, 0, 0], "(who listens has his queue)")
    told_apart(live, send, whole)
    if at == "tcx":
        crafted(live, 20_000 if whole else 2000, {5020: whose})
    elif not whole:
        return
    nobodys(live, send)
    forwarded(live, send)
    full(live, send)
    rated(live, send)
    wrong(live)


def run(driver, up, places, whole=True):
    send = Sender()
    try:
        router(0)  # another test of this boot may have left it
        send.make_link()
        with Live(driver) as live:
            for at in places:
                print(f"# {at}", flush=True)
                words = ("--net", DEV, *up, f"--receive={at}")
                live.reserv("up", *words)
                main(live, send, at, whole)
                comes_back(live, send)
                if whole:
                    deaths(live, send, words)
                    without(live, send, words)
                else:
                    live.reserv("down", DEV)
                    live.wait("down takes the entrance away", lambda: not entrances())
    finally:
        send.close()
        for process in former:
            process.kill()
            process.wait()
    pins = os.environ.get("RESERV_BPFFS", "/sys/fs/bpf/reserv")
    left = os.listdir(pins) if os.path.exists(pins) else []
    check(not left, "down leaves no pins", left)
