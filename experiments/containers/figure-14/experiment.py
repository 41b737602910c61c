# SPDX-License-Identifier: MIT OR Apache-2.0
"""Requests that are served beside a flood of SYNs from one prefix."""
import subprocess
import time

from harness.link import DEV, Link, tool
from harness.machine import MOUNT
from harness.plot import Line, Plot
from harness.verdict import FAILS, Check, at_least, at_most

HERE, PEER, PORT, PREFIX = "10.81.0.1", "10.81.0.2", 8080, "10.66.0.0/16"
COOKIES = "/proc/sys/net/ipv4/tcp_syncookies"
# Clients are strangers, as a web server's are: who was there before has room in a full queue.
STRANGERS = "/proc/sys/net/ipv4/tcp_no_metrics_save"
SETTLE_MS = 150
# By which the flood's listener lets SYNs in, and what it may answer at once.
LET_IN = ("receive=10/s", "receive-burst=10")


def mac(device):
    told = subprocess.run(["ip", "-o", "link", "show", device], capture_output=True, text=True, check=True).stdout
    return told.split("link/ether ")[1].split()[0]


def beyond(m, link, *words):
    """A load at the other end of the link."""
    child = subprocess.Popen(["ip", "netns", "exec", link.space, str(m.load), *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    m.children.append(child)
    return child


def served(m, link, form, rate, how, device="peer0"):
    """Requests a second beside a flood."""
    server = m.start("serve", PORT, *how, read=True)
    server.stdout.readline()
    flood = beyond(m, link, "flood", device, mac(DEV), HERE, PORT, rate, form["ms"] + 2 * SETTLE_MS) if rate else None
    time.sleep(SETTLE_MS / 1000)
    done, ns = map(int, beyond(m, link, "clients", HERE, PORT, form["clients"], form["ms"]).stdout.read().split())
    sent = int(flood.stdout.read()) / (form["ms"] + 2 * SETTLE_MS) * 1000 if flood else 0
    m.end()
    return {"rate": rate, "sent": sent, "served": done / ns * 1e9}


def measure(m, form):
    m.use("syns")
    data = {}
    with open(COOKIES, encoding="ascii") as file:
        usual = file.read()
    write(STRANGERS, 1)
    with Link(m) as link:
        # Answers go to the other end, which drops them.
        tool(f"ip route add {PREFIX} via {PEER}")
        tool(f"ip -n {link.space} link add far0 type ifb")
        tool(f"ip -n {link.space} link set far0 up")

        def all_rates(how, device="peer0"):
            return [served(m, link, form, rate, how, device) for rate in form["rates"]]
        try:
            for cookies in 0, 1:
                write(COOKIES, cookies)
                data[f"unmodified, cookies {'on' if cookies else 'off'}"] = all_rates([])
            data["wire"] = all_rates([], "far0")
            link.up("--rate", "10gbit", "--receive")
            m.reserv("mk", f"{DEV}/flood", "--share", 1)
            m.reserv("set", f"{DEV}/flood", *LET_IN)
            for cookies in 0, 1:
                write(COOKIES, cookies)
                data[f"ours, cookies {'on' if cookies else 'off'}"] = all_rates([MOUNT / "proc/self/listen", PREFIX, MOUNT / DEV / "flood"])
        finally:
            write(COOKIES, usual)
            write(STRANGERS, 0)
    return data


def write(switch, value):
    with open(switch, "w", encoding="ascii") as file:
        file.write(str(value))


def part(data, kind, at):
    """Of the undisturbed throughput, by the unmodified system."""
    return data[kind][at]["served"] / data["unmodified, cookies off"][0]["served"]


def judge(data, band):
    plain, ours = "unmodified, cookies off", "ours, cookies off"
    gone = [at for at, point in enumerate(data[plain]) if point["rate"] and part(data, plain, at) <= band["gone"]]
    if not gone:
        return [Check("unmodified, cookies off: it serves next to nothing at some rate", FAILS, f"{part(data, plain, -1):.3f} at the highest")]
    at = gone[0]
    rate = data[plain][at]["rate"]

    def own(kind):
        """Of its own throughput without a flood."""
        return data[kind][at]["served"] / data[kind][0]["served"]
    return [at_most(f"unmodified, cookies off, at {rate} SYN/s: of the undisturbed throughput", part(data, plain, at), band["gone"]),
            at_least(f"ours, cookies off, at {rate} SYN/s: of the undisturbed throughput", part(data, ours, at), band["kept"]),
            at_least(f"ours, cookies on, at {rate} SYN/s: of the undisturbed throughput", part(data, "ours, cookies on", at), band["kept"]),
            at_least(f"ours, cookies off, at {rate} SYN/s: of its own without a flood", own(ours), band["kept"]),
            at_least(f"ours, cookies on, at {rate} SYN/s: of its own without a flood", own("ours, cookies on"), band["kept"])]


def rows(data):
    kinds = list(data)
    return (["syns_s", *(kind.replace(",", "").replace(" ", "_") for kind in kinds), "paper_unmodified", "paper_ours"],
            [[point["rate"], *(data[kind][at]["served"] for kind in kinds),
              {0: "1", 10000: "~0"}.get(point["rate"], ""), {0: "1", 70000: "0.73"}.get(point["rate"], "")]
             for at, point in enumerate(data[kinds[0]])])


def plot(data):
    return Plot("Requests a second beside a flood of SYNs from one prefix, by the undisturbed", "SYNs a second", "part",
                [Line(kind, [(point["rate"], part(data, kind, at)) for at, point in enumerate(data[kind])]) for kind in data])
