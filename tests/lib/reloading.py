# SPDX-License-Identifier: MIT OR Apache-2.0
"""RELOADS (10 000) reloads of nginx, and graceful restarts of Apache, while clients of two sites
ask for REQUESTS (1 000 000) pages: no descriptor, no shared memory, no binding and no byte is left
by the module, nor by reservd. Each server is looked at in ten parts; what it has after the second
it has after the last."""
import os
import re
import shutil
import signal
import subprocess
import time

from apache import HERE, MODULE as APACHE_MODULE, Apache, opened
from live import Live, check, finish, ours, skip
from nginx import MODULE as NGINX_MODULE, Nginx

RELOADS = int(os.environ.get("RELOADS", 10_000))
REQUESTS = int(os.environ.get("REQUESTS", 1_000_000))
PARTS = 10
TOP = "/dev/shm/server-reloads"
# Of memory: what an allocator keeps of pieces of other sizes. A leak of 100 bytes in each of 8000
# reloads is twice as much.
LOOSE_KIB = 400
NGINX_SITES = "reserv on;\n" + "".join(
    f"server {{ listen @HERE@:@PORT@; server_name {n}.test; reserv_share web/{n};"
    " access_log off; }\n" for n in "ab")
APACHE_SITES = "ReservEngine On\n" + "".join(
    f"<VirtualHost *:{{port}}>\nServerName {n}.test\nReservShare web/{n}\n"
    "CustomLog /dev/null all\n</VirtualHost>\n" for n in "ab")


def field(pid, key):
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as lines:
        return int(next(line.split()[1] for line in lines if line.startswith(key)))


def holds(server, live):
    """What may grow: of the master descriptors, shared memory and data; of a worker descriptors of
    /reserv; of reservd data; threads that are bound to a container."""
    descriptors, shared = server.held()
    server.until(lambda: any(map(opened, server.children())))
    return {"descriptors": descriptors, "shared": shared,
            "worker's": max(map(opened, server.children())),
            "bound": sum(len(live.members(f"web/{n}")) for n in "ab"),
            "master KiB": field(server.process.pid, "VmData"),
            "reservd KiB": max(field(pid, "RssAnon") for pid in ours())}


class Clients:
    """Of both sites, until they are stopped; how many pages they were given, and how many not."""

    def __init__(self, server):
        words = ["wrk", "-t1", "-c3", "-d9999s", f"http://{HERE}:{server.port}/small", "-H"]
        self.all = [subprocess.Popen([*words, f"Host: {n}.test"], stdout=subprocess.PIPE, text=True)
                    for n in "ab"]

    def stop(self):
        given = refused = 0
        for client in self.all:
            client.send_signal(signal.SIGINT)
            said = client.communicate(timeout=120)[0]
            given += int(re.search(r"(\d+) requests in", said)[1])
            found = re.search(r"Non-2xx or 3xx responses: (\d+)", said)
            refused += int(found[1]) if found else 0
        return given, refused


def soak(server, name, live):
    """Ten times: a part of the reloads, and clients until they have a part of the pages."""
    seen, pages, refused = [], 0, 0
    for part in range(1, PARTS + 1):
        clients = Clients(server)
        for _ in range(RELOADS // PARTS):
            server.reload()
        while True:
            given = clients.stop()
            pages, refused = pages + given[0], refused + given[1]
            if pages >= REQUESTS * part // PARTS:
                break
            clients = Clients(server)
            time.sleep(5)
        server.until(server.over)
        server.file("error.log", b"")
        server.reload()
        live.wait("nobody is bound", lambda: not any(live.members(f"web/{n}") for n in "ab"))
        seen.append(holds(server, live))
        reloads = RELOADS * part // PARTS
        print(f"# {name}: {reloads} reloads, {pages} pages: {seen[-1]}", flush=True)
    first, last = seen[1], seen[-1]
    for key in first:
        loose = LOOSE_KIB if "KiB" in key else 0
        check(last[key] - first[key] <= loose, f"{name}: {key} as after the second part",
              f"{first[key]}, {last[key]}")
    check(pages >= REQUESTS and not refused, f"{name}: all pages were given",
          f"{pages}, refused {refused}")


def run(driver, played=None):
    """With this driver of the CPU. `played`: who answers for a kernel that binds nobody (prove.py).
    """
    if not os.path.exists(NGINX_MODULE) or not os.path.exists(APACHE_MODULE):
        skip("no modules: there is no nginx-dev or apache2-dev here")
    shutil.rmtree(TOP, ignore_errors=True)
    os.makedirs(TOP)
    with Live(driver) as live:
        live.reserv("mk", "--container", "--sched", "web", "--share", 400)
        for n in "ab":
            live.reserv("mk", "--container", f"web/{n}", "--share", 50)
        os.environ.update(played.env() if played else {})
        nginx = Nginx(f"{TOP}/nginx", 18990, 2)
        apache = Apache(f"{TOP}/apache", 18990, "event", workers=8)
        for name, server, sites in ("nginx", nginx, NGINX_SITES), ("Apache", apache, APACHE_SITES):
            server.configure(sites)
            server.file("small", b"x" * 1024)
            server.start()
            try:
                soak(server, name, live)
                # Must fail.
                before = holds(server, live)["bound"]
                live.reserv("tag", "cpu/web/a", os.getpid())
                check(holds(server, live)["bound"] > before,
                      f"{name}: a binding that is left would be seen")
                live.reserv("tag", "cpu/q0", os.getpid())
            finally:
                server.stop()
            if played:
                binds = played.count()
                check(binds > RELOADS, f"{name}: workers were bound", binds)
        os.environ.pop("LD_PRELOAD", None)
    shutil.rmtree(TOP, ignore_errors=True)
    finish()
