# SPDX-License-Identifier: MIT OR Apache-2.0
"""Rules about who comes (`reserv rule add from=PREFIX … to …`) at a link's entrance, used as their
users do. For a network name space of its own. Counts are exact, or bounds that hold whatever the
machine does meanwhile; an oracle, which knows prefixes by Python's ipaddress, says whose each packet
of a random sender is."""
import ipaddress
import json
import os
import random
import socket
import struct
import time

from live import Live, check, kill
from net_stock import ours, refused
from receive import DEV, HERE6, Sender, begins, checksum, counts, frame, others, read_all, server
import net_dropped
import receive

PORT, UDP, TCP = 5001, socket.SOCK_DGRAM, socket.SOCK_STREAM
RULES = (  # conditions, queue; in this order
    ("from=10.79.1.0/24", "a"),
    ("from=10.79.1.128/25 local_port=5001 protocol=udp", "b"),
    ("from=10.79.1.128/25 local_port=5002-5003", "c"),
    ("from=10.79.0.0/16 protocol=tcp", "c"),
    ("from=not_10.79.0.0/16", "d"),
    ("from=not_10.0.0.0/8 local_port=5002", "b"),
    ("from=fd79:1::/48", "a"),
    ("from=fd79:1::8000/113 local_port=5001", "b"),
    ("from=any local_port=5002", "c"),
)


def rules(live):
    told = json.loads(live.reserv("rule", "list", "--json").stdout)
    return told["rules"], {count["rule"]: count for count in told["counts"]}


def words(text):
    spaced = "from=not_"
    return [word.replace("_", " ") if word.startswith(spaced) else word for word in text.split()]


def add(live, text, *to):
    live.reserv("rule", "add", *words(text), "to", *to)


def clear(live):
    for _ in rules(live)[0]:
        live.reserv("rule", "rm", 1)


def begins6(source, port, kind, own):
    ends = socket.inet_pton(socket.AF_INET6, source) + socket.inet_pton(socket.AF_INET6, HERE6)
    if kind == TCP:
        rest, number = struct.pack("!HHIIBBHHH", own, port, 7, 0, 5 << 4, 2, 4096, 0, 0), 6
    else:
        rest, number = struct.pack("!HHHH", own, port, 16, 0) + bytes(8), 17
    total = checksum(ends + struct.pack("!II", len(rest), number) + rest) or 0xffff
    at = 16 if kind == TCP else 6
    rest = rest[:at] + struct.pack("!H", total) + rest[at + 2:]
    return frame(struct.pack("!IHBB", 6 << 28, len(rest), number, 64) + ends + rest, 0x86dd).hex()


def packet(source, port, kind, own=999):
    return (begins6 if ":" in source else begins)(source, port, kind, own)


def whose(source, port, kind):
    """The queue, by the definition; None: as without a rule."""
    address, found = ipaddress.ip_address(source), []
    for at, (text, queue) in enumerate(RULES):
        named = dict(word.split("=") for word in text.split())
        client = named["from"]
        if named.get("protocol", "") not in ("", "udp" if kind == UDP else "tcp"):
            continue
        first, _, last = named.get("local_port", "0-65535").partition("-")
        if not int(first) <= port <= int(last or first):
            continue
        if client == "any":
            found.append((2, 0, at, queue))
            continue
        prefix = ipaddress.ip_network(client.removeprefix("not_"))
        if prefix.version != address.version:
            continue
        if client.startswith("not_") and address not in prefix:
            found.append((1, prefix.prefixlen, at, queue))
        elif not client.startswith("not_") and address in prefix:
            found.append((0, -prefix.prefixlen, at, queue))
    return min(found)[3] if found else None


def told_apart(live, send):
    """Whose a packet is: the longest prefix, whatever the socket's tag says."""
    for text, queue in RULES:
        add(live, text, f"{DEV}={queue}")
    socks = [server("e", port, UDP, socket.AF_INET6, room=1 << 20) for port in (5001, 5002, 5003)]
    socks += [server("e", port, TCP, socket.AF_INET6) for port in (5001, 5002, 5003)]
    for sock in socks[3:]:
        sock.listen(1000)
    dice = random.Random(7)
    wanted, packets, by_rule = dict.fromkeys("abcde", 0), [], 0
    for n in range(400):
        source = dice.choice((
            f"10.79.1.{dice.randrange(3, 255)}", f"10.79.{dice.randrange(3, 255)}.7", f"10.9.9.{dice.randrange(1, 255)}",
            f"192.0.2.{dice.randrange(1, 255)}", f"fd79:1::{dice.randrange(1, 65536):x}", f"fd79:2::{dice.randrange(1, 65536):x}"))
        port, kind = dice.choice((5001, 5002, 5003)), dice.choice((UDP, UDP, TCP))
        packets.append(packet(source, port, kind, 1000 + n))
        wanted[whose(source, port, kind) or "e"] += 1
        by_rule += whose(source, port, kind) is not None
    before = {name: counts(name) for name in "abcde"}
    for at in range(0, len(packets), 40):
        send("raw", *packets[at:at + 40])
    got = {}

    def there():
        got.update({name: sum(counts(name)) - sum(before[name]) for name in "abcde"})
        return got == wanted
    live.wait("each of 400 packets is its rule's: the longest prefix, then complements, then any, else its socket's", there)
    check(got == wanted and all(wanted.values()), "as the oracle says, IPv4 and IPv6, ports and protocols", f"{got}, wanted {wanted}")
    each = counted(live, 1)
    check(sum(count["packets"] for count in each.values()) == by_rule and not any(count["dropped"] for count in each.values()),
          "and each rule counts its own", each)
    for sock in socks:
        sock.close()
    clear(live)


def counted(live, number):
    """What the rules have counted, when this one is among them: a link that is busy for a moment
    tells nothing."""
    end = time.monotonic() + 30
    while number not in (heard := rules(live)[1]) and time.monotonic() < end:
        time.sleep(0.05)
    return heard


def of_rule(live, number):
    count = counted(live, number)[number]
    return count["packets"], count["dropped"]


def nothing(live, send):
    """What comes from a prefix is dropped before a socket, a connection or an answer is there."""
    datagrams, listener = server("a", PORT), server("a", PORT, TCP)
    listener.listen(100)
    add(live, "from=10.66.0.0/16", "receive=nothing")
    before, was = counts("a"), others()
    echo = struct.pack("!BBHHH", 8, 0, 0xf7fe, 1, 0)
    pinged = receive.ip4(echo, protocol=1)
    pinged = frame(pinged[:12] + socket.inet_aton("10.66.1.1") + pinged[16:])
    fragments = [frame(ip4_from("10.66.2.2", more)) for more in (0x2000, 5)]
    bad = [packet(f"10.66.3.{n}", PORT, kind) for n in range(1, 21) for kind in (UDP, TCP)]
    send("raw", *bad, pinged.hex(), *[part.hex() for part in fragments])
    live.wait("dropped at the interface: SYNs, datagrams, pings and fragments of a prefix", lambda: of_rule(live, 1) == (0, 43))
    # The machine's own, ARP and what IPv6 finds out by, may come at any time.
    now = others()
    check(counts("a") == before and now[1:] == was[1:], "none of them is anybody's",
          (counts("a"), before, now, was))
    check(read_all(datagrams) == 0 and receive.accepted(listener) is None and not half_open(), "no socket has seen them, and no connection has begun")
    send("raw", packet("10.67.3.1", PORT, UDP), packet("10.65.255.255", PORT, UDP))
    live.wait("who is outside comes in", lambda: counts("a")[0] - before[0] == 2)
    add(live, f"from=10.66.3.0/24 local_port={PORT} protocol=udp", f"{DEV}=b")
    was = counts("b")
    send("raw", *bad)
    live.wait("a longer prefix lets some of them in, to a queue", lambda: counts("b")[0] - was[0] == 20 and of_rule(live, 1) == (0, 63) and of_rule(live, 2) == (20, 0))
    shown = live.reserv("rule", "list").stdout
    check("from=10.66.0.0/16 to receive=nothing" in shown and f"{DEV}: 0 packets, 0 bytes came in, 63 dropped" in shown, "the list says what each did", shown)
    live.reserv("rule", "rm", 2)
    check(of_rule(live, 1) == (0, 63), "counts go on when other rules change")
    clear(live)
    read_all(datagrams)
    send("raw", *bad[:2])
    live.wait("without the rule they come again", lambda: read_all(datagrams) == 1)
    datagrams.close()
    listener.close()


def ip4_from(source, fragment):
    part = receive.ip4(receive.udp(PORT) + bytes(22), fragment=fragment)
    part = part[:10] + b"\0\0" + socket.inet_aton(source) + part[16:20] + part[20:]
    return part[:10] + struct.pack("!H", checksum(part[:20])) + part[12:]


def half_open():
    """Connections that have begun (SYN_RECV)."""
    with open("/proc/net/tcp", encoding="ascii") as file:
        return [line for line in file.read().splitlines()[1:] if line.split()[3] in ("03", "0C")]


def rated(live, send):
    """In any time t at most 1 + burst + t * rate."""
    sock = server("a", PORT, room=1 << 20)
    begun = time.monotonic()
    add(live, f"from=10.67.0.0/16 local_port={PORT}", "receive=50/s", "receive-burst=5")
    for at in range(10):
        send("raw", *[packet(f"10.67.{at}.{n}", PORT, UDP) for n in range(1, 51)])
    live.wait("all have come", lambda: sum(of_rule(live, 1)) == 500)
    came, dropped = of_rule(live, 1)
    most = 1 + 5 + (time.monotonic() - begun) * 50
    check(6 <= came <= most and dropped == 500 - came, "a prefix with a rate: no more than it comes in", f"{came} of at most {most:.0f}")
    check(read_all(sock) == came, "and the socket has it")
    before = counts("a")
    send("raw", *[packet(f"10.68.0.{n}", PORT, UDP) for n in range(1, 51)])
    live.wait("others' packets all come", lambda: counts("a")[0] - before[0] == 50)
    clear(live)
    sock.close()


def lasts(live, send, up):
    """Rules hold while nobody runs; the next reservd knows them with their counts; they are saved."""
    sock = server("a", PORT)
    add(live, "from=10.66.0.0/16", "receive=nothing")
    add(live, "from=10.67.0.0/16", f"{DEV}=b", "receive=1000/s", "receive-burst=7")
    bad = [packet(f"10.66.0.{n}", PORT, UDP) for n in range(1, 31)]
    send("raw", *bad)
    live.wait("(they are dropped)", lambda: of_rule(live, 1) == (0, 30))
    live.wait("keeper and worker are dead", lambda: not [kill(pid) for pid in ours()])
    send("raw", *bad)
    live.reserv("up", "--driver", live.driver, *up)
    live.wait("nobody was there: the rule held, and counted", lambda: of_rule(live, 1) == (0, 60))
    check(read_all(sock) == 0, "and none of them came in")
    saved = os.path.join(os.environ.get("RESERV_RUN", "/run"), "rules-saved.toml")
    live.reserv("save", saved)
    listed = rules(live)[0]
    sock.close()
    live.reserv("down")
    live.reserv("up", "--config", saved)
    check(rules(live)[0] == listed and len(listed) == 2, "what was saved loads", rules(live)[0])
    sock = server("a", PORT)
    send("raw", *bad)
    live.wait("and holds", lambda: of_rule(live, 1) == (0, 30))
    # The queue that a rule names is gone, and comes again.
    before = counts("q0")
    live.reserv("rm", "--flush", f"{DEV}/b")
    send("raw", packet("10.67.0.1", PORT, UDP))
    live.wait("a rule whose queue is gone is none", lambda: read_all(sock) == 1)
    each = counted(live, 1)
    check(set(each) == {1}, "and counts nothing", each)
    live.mk(f"{DEV}/b", 100)
    send("raw", packet("10.67.0.1", PORT, UDP))
    live.wait("until it is there again", lambda: counts("b")[0] == 1 and of_rule(live, 2) == (1, 0))
    check(counts("q0") == before, "nobody else had it")
    clear(live)
    sock.close()


def wrong(live):
    for text, to, says in (
            ("from=10.0.0.1/8", f"{DEV}=a", "bits beyond"),
            ("from=any", "cpu=q0", "is no link"),
            ("from=any", f"{DEV}=a receive=0/s", '"0/s"'),
            ("from=any port=80", "receive=nothing", "port beside from"),
            ("local_port=80", "receive=nothing", "who comes"),
            ("from=any", "nowhere=a", "which there is not")):
        refused(live, ("rule", "add", *words(text), "to", *to.split()), says, f"{text} to {to}")
    check(rules(live)[0] == [], "and nothing is changed")
    saved = os.path.join(os.environ.get("RESERV_RUN", "/run"), "many.toml")
    for count, how, says in ((257, lambda n: f"10.{n // 128}.{n % 128 * 2}.0/24", "more than 256 rules"), (65, lambda n: "10.0.0.0/8", "more than 64 rules")):
        with open(saved, "w", encoding="ascii") as file:
            for n in range(count):
                file.write(f'[[rule]]\nmatch = {{ from = "{how(n)}" }}\nreceive = "{n + 1}/s"\n')
        refused(live, ("up", "--config", saved), says, f"{count} rules about {how(0)} and others")
        check(rules(live)[0] == [], "and nothing is changed")


def without(live, up):
    """A link without an entrance."""
    live.reserv("down", DEV)
    live.reserv("up", *[word for word in up if not word.startswith("--receive")])
    live.mk(f"{DEV}/a", 100)
    add(live, "from=10.66.0.0/16", f"{DEV}=a")
    live.wait("a link without an entrance: status says that the rule does nothing",
              lambda: any("at an entrance" in limit for limit in live.status()["resources"][DEV]["limits"]))
    check("at an entrance" not in " ".join(live.status()["resources"]["cpu"]["limits"]) and rules(live)[1] == {}, "and nothing is counted")
    clear(live)
    live.wait("which ends with the rule",
              lambda: not any("at an entrance" in limit for limit in live.status()["resources"][DEV]["limits"]))


def run(driver, up, places, whole=True):
    send = Sender()
    try:
        receive.router(0)
        send.make_link()
        with Live(driver) as live:
            for at in places:
                print(f"# {at}", flush=True)
                words_ = ("--net", DEV, *up, f"--receive={at}")
                live.reserv("up", *words_)
                for name in "abcde":
                    live.mk(f"{DEV}/{name}", 100)
                told_apart(live, send)
                nothing(live, send)
                rated(live, send)
                net_dropped.run(live, send)
                if whole:
                    lasts(live, send, words_)
                    wrong(live)
                    without(live, words_)
                live.reserv("down", DEV)
    finally:
        send.close()
