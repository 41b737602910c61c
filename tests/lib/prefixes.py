# SPDX-License-Identifier: MIT OR Apache-2.0
"""Several listeners on one port, chosen by who comes (/reserv/proc/PID/listen), used as their users
do. For a network name space of its own. An oracle, which knows prefixes by Python's ipaddress, says
to which socket each client must come."""
import contextlib
import ctypes
import errno
import ipaddress
import json
import os
import random
import select
import socket
import subprocess
import sys

from daemon_harness import refusal
from live import Live, check, kill, refuse
import live

HERE, HERE6, PORT = "10.79.0.1", "fd79::1", 7980
TCP, UDP = socket.SOCK_STREAM, socket.SOCK_DGRAM
V4, V6 = socket.AF_INET, socket.AF_INET6
USER, OTHER = 1501, 1502


def sh(line):
    subprocess.run(line.split(), check=True)


def listener(kind=TCP, family=V4, port=PORT, address="", share=True, only=True):
    """A socket that clients come to."""
    sock = socket.socket(family, kind)
    if family == V6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(only))
    if kind == TCP:  # beside connections that have just ended
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(share))
    sock.bind((address, port))
    if kind == TCP:
        sock.listen(64)
    sock.setblocking(False)
    return sock


def own(pid="self"):
    return f"{live.MOUNT}/proc/{pid}/listen"


def put(text, pid="self"):
    with open(own(pid), "wb", buffering=0) as file:
        file.write(text if isinstance(text, bytes) else text.encode())


def say(sock, clients, pid="self"):
    put(f"{sock.fileno()} {clients}", pid)


def told(pid="self"):
    with open(own(pid), encoding="ascii") as file:
        return dict(line.rstrip("\n").split(" ", 1) for line in file)


def comes(source, there, names, kind=TCP, to=None, port=PORT):
    """Who has the client: its name; None: nobody, and the client was refused."""
    family = V6 if ":" in source else V4
    to = to or (HERE6 if family == V6 else HERE)
    with socket.socket(family, kind) as client:
        client.settimeout(5)
        client.bind((source, 0))
        try:
            client.connect((to, port))
            if kind == UDP:
                client.send(b"x")
        except ConnectionRefusedError:
            return None
        # A connection that is made comes to somebody. Of a datagram that is dropped nothing is
        # said.
        ready = select.select(there, [], [], 10 if kind == TCP else 0.5)[0]
        if kind == UDP and not ready:
            return None
        for sock in ready:
            if kind == UDP:
                sock.recv(10)
            else:
                sock.accept()[0].close()
        return names[ready[0]] if len(ready) == 1 else f"{len(ready)} of them"


def meant(source, filters):
    """The oracle: the names of whom a client may have. `filters`: by name, the words."""
    client = ipaddress.ip_address(source)
    best, found = None, set()
    for name, words in filters.items():
        words, complement = words.split(), False
        for word in words:
            if word == "not":
                complement = True
                continue
            net = None if word == "any" else ipaddress.ip_network(word)
            if net is not None and net.version != client.version:
                complement = False
                continue
            length = 0 if net is None else net.prefixlen
            inside = net is None or client in net
            if complement:
                rank = None if inside else (1, -length)
            else:
                rank = (2, length) if inside and length else (0, 0) if inside else None
            complement = False
            if rank is not None and (best is None or rank > best):
                best, found = rank, set()
            if rank is not None and rank == best:
                found.add(name)
    return found


class Agent:
    """A process of another user, with sockets of its own: told what to do by lines of Python."""

    def __init__(self, uid=None, netns=False):
        self.ours, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            self.ours.close()
            try:
                self.serve(theirs, uid, netns)
            finally:
                os._exit(1)
        theirs.close()
        self.lines = self.ours.makefile("r")

    @staticmethod
    def serve(theirs, uid, netns):
        if netns and ctypes.CDLL(None).unshare(0x40000000):  # CLONE_NEWNET
            raise OSError("no network name space")
        if uid is not None:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        for line in theirs.makefile("r"):
            try:
                answer = repr(eval(line))
            except OSError as error:
                answer = repr(error.errno)
            theirs.sendall(answer.encode() + b"\n")

    def __call__(self, text):
        self.ours.sendall(text.encode() + b"\n")
        return eval(self.lines.readline())

    def close(self):
        self.ours.close()
        self.lines.close()
        kill(self.pid)
        os.waitpid(self.pid, 0)


@contextlib.contextmanager
def group(filters, **how):
    """Listeners at one port; by name, what each is for."""
    sockets = {name: listener(**how) for name in filters}
    try:
        for name, clients in filters.items():
            say(sockets[name], clients)
        yield sockets, {sock: name for name, sock in sockets.items()}
    finally:
        for sock in sockets.values():
            sock.close()


def network():
    sh("ip link set lo up")
    for address in (HERE, *(f"10.{i}.{j}.7" for i in range(1, 4) for j in range(3)), "10.200.0.1", "172.16.5.5", "192.0.2.9"):
        sh(f"ip addr add {address}/32 dev lo")
    for address in (HERE6, "fd00:1::7", "fd00:1:2::7", "fd00:2::7", "2001:db8::7"):
        sh(f"ip -6 addr add {address}/128 dev lo nodad")


SOURCES = [*(f"10.{i}.{j}.7" for i in range(1, 4) for j in range(3)), "10.200.0.1", "172.16.5.5", "192.0.2.9"]
SOURCES6 = ["fd00:1::7", "fd00:1:2::7", "fd00:2::7", "2001:db8::7"]


def all_come(text, filters, sources, **how):
    """Every client comes to whom the oracle says."""
    wrong = []
    there = {key: value for key, value in how.items() if key in ("kind", "family", "only")}
    with group(filters, **there) as (sockets, names):
        for source in sources:
            got, may = comes(source, list(names), names, how.get("kind", TCP)), meant(source, filters)
            if (got is None) != (not may) or (got is not None and got not in may):
                wrong.append((source, got, sorted(may)))
    check(not wrong, text, wrong or "")


def by_prefix():
    nested = {"all of ten": "10.0.0.0/8", "one": "10.1.0.0/16", "one and two": "10.1.2.0/24 10.2.0.0/16", "host": "10.1.2.7/32", "others": "not 10.0.0.0/8"}
    all_come("the longest prefix has the client, and the complement the others: TCP", nested, SOURCES)
    all_come("the same with UDP", nested, SOURCES, kind=UDP)
    six = {"one": "fd00:1::/32", "two": "fd00:1:2::/48", "others": "not fd00::/8"}
    all_come("the same with IPv6: TCP, and who is in none is refused", six, SOURCES6, family=V6)
    all_come("the same with IPv6: UDP", six, SOURCES6, family=V6, kind=UDP)
    both = {"four": "10.0.0.0/8", "six": "fd00::/8", "rest": "any", "not four": "not 172.16.0.0/12"}
    all_come("a socket of both versions has clients of both", both, SOURCES + SOURCES6, family=V6, only=False)
    rests = {"small": "not 10.1.0.0/16", "large": "not 10.0.0.0/8", "any": "any"}
    all_come("the complement that leaves out most is first, and everybody's socket last", rests, SOURCES)
    all_come("who is for nobody's prefix is refused", {"one": "10.1.0.0/16"}, SOURCES)


def at_random(count, seed):
    rng = random.Random(seed)
    wrong = []
    for _ in range(count):
        def word():
            length = rng.choice((8, 12, 16, 24, 32))
            net = ipaddress.ip_network(f"{rng.choice(SOURCES)}/{length}", strict=False)
            return rng.choice(("any", f"not {net}", *[str(net)] * 4))
        filters = {f"s{i}": " ".join(word() for _ in range(rng.randint(1, 3))) for i in range(rng.randint(1, 6))}
        kind = rng.choice((TCP, UDP))
        with group(filters, kind=kind) as (sockets, names):
            for change in range(3):
                for source in rng.sample(SOURCES, 4):
                    got, may = comes(source, list(names), names, kind), meant(source, filters)
                    if (got is None) != (not may) or (got is not None and got not in may):
                        wrong.append((filters, source, got, sorted(may)))
                name = rng.choice(list(filters))
                if change == 1 and len(filters) > 1:
                    names.pop(sockets[name])
                    sockets.pop(name).close()
                    filters.pop(name)
                else:
                    filters[name] = word()
                    say(sockets[name], filters[name])
    check(not wrong, f"as the oracle says, {count} times at random, with changes and closes between (seed {seed})", wrong[:2] or "")


def asked_and_taken_back():
    with group({"a": "10.1.0.0/16 not 10.0.0.0/8", "b": "any"}) as (sockets, names):
        a, b = sockets["a"], sockets["b"]
        check(told() == {str(a.fileno()): "10.1.0.0/16 not 10.0.0.0/8", str(b.fileno()): "any"}, "what was said is read", told())
        say(a, "none")
        got = {comes(source, list(names), names) for source in SOURCES}
        check(got == {"b"} and list(told().values()) == ["any"], "a socket that is taken back has no clients beside those that say for whom they are", got)
        say(b, "none")
        got = {comes(SOURCES[i % len(SOURCES)], list(names), names) for i in range(64)}
        check(got == {"a", "b"} and not told(), "without any that say so the kernel chooses", got)
        say(a, "10.1.0.0/16")
        say(b, "10.1.0.0/16")
        got = {source: {comes(source, list(names), names) for _ in range(24)} for source in SOURCES[:2]}
        check(all(has == {"a", "b"} for has in got.values()), "two sockets for the same clients share them", got)


def by_the_library():
    os.environ["RESERV_LIBRARY"] = os.path.join(os.path.dirname(live.RESERV), "libreserv.so")
    sys.path.insert(0, os.path.join(live.ROOT, "python"))
    import reserv
    with listener() as one, listener() as two:
        reserv.listen_for(one, "10.1.0.0/16", "not 10.0.0.0/8")
        reserv.listen_for(two, "10.0.0.0/8")
        names = {one: "one", two: "two"}
        got = [comes(x, list(names), names) for x in ("10.1.0.7", "10.2.0.7", "192.0.2.9")]
        check(got == ["one", "two", "one"] and reserv.listens_for(one) == "10.1.0.0/16 not 10.0.0.0/8", "libreserv says it, and asks", got)
        reserv.listen_for(one, "none")
        check(reserv.listens_for(one) == "none" and comes("10.1.0.7", list(names), names) == "two", "and takes it back")
        try:
            reserv.listen_for(one, "10.1.0.0/33")
            check(False, "it tells the word that is wrong")
        except reserv.Error as error:
            check(error.errno == errno.EINVAL and "33" in error.strerror, "it tells the word that is wrong", error.strerror)


def closed_sockets():
    with group({"ten": "10.0.0.0/8", "one": "10.1.0.0/16"}) as (sockets, names):
        one = sockets["one"]
        names.pop(one)
        one.close()
        check(comes("10.1.1.7", list(names), names) == "ten", "when a socket is closed the next prefix has its clients")
        ten = sockets["ten"]
        copy = ten.dup()
        names[copy] = names.pop(ten)
        ten.close()
        check(comes("10.1.1.7", list(names), names) == "ten", "a copy of it keeps it")
        copy.close()
    plain = listener(share=False)
    check(comes("192.0.2.9", [plain], {plain: "plain"}) == "plain" and comes("10.1.1.7", [plain], {plain: "plain"}) == "plain",
          "whoever is bound there next has the port alone")
    plain.close()
    with group({"ten": "10.0.0.0/8"}) as (sockets, names):
        sockets["ten"].shutdown(socket.SHUT_RD)
        check(comes("10.1.1.7", list(names), names) is None, "a socket that listens no more has no clients")


def local_addresses():
    at = listener(address=HERE)
    everywhere = listener()
    say(at, "10.1.0.0/16")
    say(everywhere, "any")
    names = {at: "at", everywhere: "everywhere"}
    got = [comes(source, list(names), names, to=to) for source, to in (("10.1.0.7", HERE), ("10.2.0.7", HERE), ("10.1.0.7", "10.200.0.1"))]
    check(got == ["at", None, "everywhere"], "a socket that is bound to an address is asked first, and only of what comes to it", got)
    at.close()
    got = comes("10.2.0.7", [everywhere], names)
    check(got == "everywhere", "and when it is closed no more", got)
    everywhere.close()


def wrong_words():
    sock = listener()
    say(sock, "10.0.0.0/8")
    before, fd = told(), sock.fileno()
    taken = []
    for text in (f"{fd}", f"{fd} 10.0.0.1/8", f"{fd} 10.0.0.0/33", f"{fd} not any", f"{fd} not 0.0.0.0/0", f"{fd} nobody", f"{fd} any none", f"{fd} none any", f"{fd} at 0 any",
                 f"{fd} at 99999 any", f"{fd} at any", f"{fd} any allow", f"{fd} any allow root", "x any", "-1 any", f"{fd} fd00::/8", f"{fd} not fd00::/8",
                 f"{fd} {' '.join(f'10.0.0.{i}' for i in range(17))}", f"{fd} 10.1.0.0/16\n{fd} any"):
        if refusal(put, text) != errno.EINVAL:
            taken.append((text, refusal(put, text)))
    check(refusal(put, f"{fd} 10.1.0.0/16\0") == errno.EILSEQ, "a text with a NUL")
    check(not taken and told() == before, "bad words are EINVAL and change nothing", taken or "")
    with open(os.devnull, "rb") as null, socket.socket() as fresh, socket.socket(V4, UDP) as udp, socket.socketpair()[0] as pair:
        got = [refusal(put, f"{other.fileno()} any") for other in (null, fresh, udp, pair)]
        check(got == [errno.EINVAL] * 4, "a file, sockets that are not bound or do not listen, one that has no port", got)
        udp.bind(("", PORT + 9))
        udp.connect((HERE, 9))
        check(refusal(say, udp, "any") == errno.EINVAL, "a socket with a peer")
    check(refusal(put, "9999 any") == errno.ENOENT, "no such descriptor")
    with listener(port=PORT + 8) as device:
        device.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")
        check(refusal(say, device, "any") == errno.EINVAL, "a socket that is bound to an interface")
    many = [listener() for _ in range(64)]
    got = [refusal(say, one, "192.0.2.0/24") for one in many]
    check(got == [0] * 63 + [errno.ENOSPC], "64 sockets of one port are for clients, and no more", got[-2:])
    for one in many:
        one.close()
    nots = [listener() for _ in range(9)]
    got = [refusal(say, one, f"not 10.{i}.0.0/16") for i, one in enumerate(nots)]
    for one in nots:
        one.close()
    check(got == [0] * 9 and nots.clear() is None and comes("10.1.0.7", [sock], {sock: "it"}) == "it", "and afterwards all is as it was", got)
    sock.close()


def rights():
    user, other, away = Agent(USER), Agent(OTHER), Agent(netns=True)
    port = PORT + 1
    user(f"globals().update(own_=listener(port={port}), side=listener(port={port + 1}))")
    other(f"globals().update(s=listener(port={port + 2}))")
    names = "{s: 's'}"
    check(user(f"refusal(say, side, 'at {port} 10.1.0.0/16')") == errno.EACCES, "nobody joins a port where no socket has said for whom it is")
    check(user("refusal(say, own_, 'any')") == 0 and user(f"refusal(say, side, 'at {port} 10.1.0.0/16')") == 0, "a user says so of his own socket, and joins his own port with another")
    check(user(f"[comes(x, [own_, side], {{own_: 'own', side: 'side'}}, port={port}) for x in ('10.1.0.7', '10.2.0.7')]") == ["side", "own"], "and has its clients there")
    got = other(f"refusal(say, s, 'at {port} 10.1.0.0/16')")
    check(got == errno.EACCES, "another user may not join it", got)
    check(user(f"refusal(say, own_, 'any allow {OTHER}')") == 0 and other(f"refusal(say, s, 'at {port} 10.2.0.0/16')") == 0, "but where the owner allows it")
    check(other(f"comes('10.2.0.7', [s], {names}, port={port})") == "s", "and has its clients then")
    check(user("refusal(say, own_, 'any')") == 0 and user(f"comes('10.2.0.7', [own_], {{own_: 'own'}}, port={port})") == "own", "until that is taken back")
    got = other(f"refusal(put, '3 any', {user.pid})"), other(f"refusal(told, {user.pid})")
    check(got == (errno.EACCES, errno.EACCES), "nobody writes or reads for another user's process", got)
    check(user("own_.close()") is None, "the owner closes it")
    with listener(port=port, share=False) as mine:
        check(comes("10.1.0.7", [mine], {mine: "mine"}, port=port) == "mine", "who has joined has nothing of a port whose owner has gone")
        say(mine, "10.200.0.0/16")
        check(comes("10.1.0.7", [mine], {mine: "mine"}, port=port) is None, "nor of the next owner's, who has said for whom he is")
        joined = listener(port=port + 5)
        say(joined, f"at {port} 10.3.0.0/16")
        check(comes("10.3.0.7", [joined], {joined: "joined"}, port=port) == "joined", "root joins")
        joined.close()
    held = listener(port=port + 6, share=False)
    joined = listener(port=port + 7)
    names = {held: "held", joined: "joined"}
    say(joined, f"at {port + 6} 10.3.0.0/16")
    got = [comes(x, list(names), names, port=port + 6) for x in ("10.3.0.7", "10.1.0.7")]
    check(got == ["joined", "held"], "root joins the port of a program that says nothing, which keeps its other clients", got)
    held.close()
    joined.close()
    away("globals().update(s=listener())")
    fd = away("s.fileno()")
    check(refusal(put, f"{fd} any", away.pid) == errno.EXDEV, "a socket in another network name space is refused")
    for agent in (user, other, away):
        agent.close()


def survives(here):
    with group({"ten": "10.0.0.0/8", "others": "not 10.0.0.0/8"}) as (sockets, names):
        before = told()

        def right():
            return [comes(x, list(names), names) for x in ("10.1.0.7", "192.0.2.9")] == ["ten", "others"]
        def other_worker():
            answer = here.reserv("status", "--json", ok=False)  # it may end while it is asked
            return answer.returncode == 0 and json.loads(answer.stdout)["pid"] != worker
        worker = here.status()["pid"]
        kill(worker)
        check(right(), "reservd is killed, and clients come as before")
        here.wait("another worker comes", other_worker)
        check(right() and told() == before, "and knows what was said")
        say(sockets["ten"], "10.1.0.0/16")
        check([comes(x, list(names), names) for x in ("10.1.0.7", "10.2.0.7", "192.0.2.9")] == ["ten", None, "others"], "and changes it")


def ends(start):
    """What no product does: the kernel alone."""
    sockets = [listener() for _ in range(2)]
    names = dict(zip(sockets, "ab"))
    with start():
        say(sockets[0], "10.0.0.0/8")
        say(sockets[1], "any")
        check({comes(SOURCES[0], sockets, names) for _ in range(16)} == {"a"}, "one has the clients")
    got = {comes(SOURCES[0], sockets, names) for _ in range(64)}
    check(got == {"a", "b"}, "after down the kernel chooses among them, as without Reserv", got)
    for sock in sockets:
        sock.close()


def on_a_kernel_that_refuses(start):
    """All else works; and the kernel chooses as always."""
    refuse("rl_listener")
    try:
        with start():
            sock = listener()
            got = refusal(say, sock, "10.0.0.0/8")
            check(got == errno.EOPNOTSUPP, "where the kernel refuses the program nobody is for some clients", errno.errorcode.get(got, got))
            check(told() == {} and comes("192.0.2.9", [sock], {sock: "all"}) == "all", "and it chooses as always", told())
            sock.close()
    finally:
        refuse("")


def run(*up):
    def start():
        return Live(*up)
    network()
    on_a_kernel_that_refuses(start)
    seed = int(os.environ.get("SEED", "25"))
    with start() as here:
        # A first time: the program is loaded with it.
        by_prefix()
        asked_and_taken_back()
        by_the_library()
        closed_sockets()
        local_addresses()
        wrong_words()
        rights()
        at_random(12, seed)
        survives(here)
    ends(start)
    at_the_entrance()


def at_the_entrance():
    """A prefix's listener has a queue of the link, and that a rate: what its clients send beyond is
    dropped before the protocol."""
    import receive
    sender = receive.Sender()
    try:
        sender.make_link()
        for i in range(8):
            receive.batch([f"addr add 10.66.0.{i + 1}/32 dev {receive.PEER}"], ("nsenter", "-t", str(sender.process.pid), "-n"))
        sh(f"ip route add 10.66.0.0/24 dev {receive.DEV}")
        receive.batch(f"neigh replace 10.66.0.{i + 1} lladdr {receive.PEER_MAC} dev {receive.DEV} nud permanent" for i in range(8))
        with Live("stock", "--net", receive.DEV, "--rate", "1gbit", "--net-driver", "stock", "--receive") as here:
            here.mk(f"{receive.DEV}/flood", 1)
            here.mk(f"{receive.DEV}/web", 100)
            here.reserv("set", f"{receive.DEV}/flood", "receive=1/s")
            here.reserv("set", f"{receive.DEV}/flood", "receive-burst=4")
            for kind in (TCP, UDP):
                before = {name: receive.counts(name) for name in ("flood", "web")}
                sockets = {name: receive.server(name, None, kind, share=PORT + 20) for name in ("flood", "web")}
                say(sockets["flood"], "10.66.0.0/24")
                say(sockets["web"], "any")
                packets = [receive.begins(f"10.66.0.{i % 8 + 1}", PORT + 20, kind, 20000 + i) for i in range(200)]
                sender("raw", *packets)
                sender("raw", *[receive.begins(receive.PEER4, PORT + 20, kind, 30000 + i) for i in range(20)])
                least = {"flood": 200, "web": 20}

                def all_came():
                    now = {name: sum(receive.counts(name)) - sum(before[name]) for name in least}  # noqa: B023
                    return all(now[name] >= least[name] for name in least)  # noqa: B023

                here.wait("all are counted", all_came)
                after = {name: [now - was for now, was in zip(receive.counts(name), before[name])] for name in before}
                what = "SYNs" if kind == TCP else "datagrams"
                come, full, over = after["flood"]
                # Who has not sent a SYN himself answers the SYN-ACK with a reset, which comes too.
                most = 2 if kind == TCP else 1
                check(200 <= come + full + over <= 210 and over >= 190, f"{what} of a prefix are its listener's at the entrance, and dropped by its rate", after)
                check(20 <= after["web"][0] <= 20 * most and not any(after["web"][1:]), "the others are the other listener's, and all come", after["web"])
                for sock in sockets.values():
                    sock.close()
    finally:
        sender.close()
