# SPDX-License-Identifier: MIT OR Apache-2.0
"""One Apache with sites of its own in a folder of its own: Debian's program, mod_reserv of this
tree. Nothing of the machine's own server is touched."""
import http.client
import json
import os
import pwd
import signal
import socket
import subprocess
import time

import tcp
from live import MOUNT, ROOT, check, in_memory

APACHE, MODULES = "/usr/sbin/apache2", "/usr/lib/apache2/modules"
MODULE = os.path.join(os.environ.get("RESERV_TEST_BIN", os.path.join(ROOT, "target", "release")), "mod_reserv.so")
HERE = "127.0.0.1"
# Room for the processes of three restarts ago.
THREADS = "StartServers 1\nServerLimit 6\nThreadLimit {n}\nThreadsPerChild {n}\nMaxRequestWorkers {n}\nMinSpareThreads 1\nMaxSpareThreads {n}"
MPM = {
    "prefork": "StartServers {n}\nServerLimit {n}\nMaxRequestWorkers {n}\nMinSpareServers {n}\nMaxSpareServers {n}",
    "worker": THREADS,
    "event": THREADS,
}
CONFIG = """\
ServerRoot "{root}"
DefaultRuntimeDir "{root}"
ServerName all.test
PidFile "{root}/pid"
User www-data
Group www-data
LoadModule mpm_{mpm}_module {modules}/mod_mpm_{mpm}.so
{load}
LoadModule reserv_module {module}
{workers}
ListenBacklog 64
Listen {here}:{port}
KeepAlive On
MaxKeepAliveRequests 0
KeepAliveTimeout 60
Timeout 60
TypesConfig /dev/null
ErrorLog "{root}/error.log"
LogLevel notice
LogFormat "%v %>s %{{reserv_share}}n %{{reserv_cpu_us}}n %U" all
CustomLog "{root}/access.log" all
AddOutputFilter DEFLATE txt
AddOutputFilter INCLUDES shtml
DocumentRoot "{root}"
ScriptAlias /cgi "{root}/cgi"
ScriptAlias /other/cgi "{root}/cgi"
# Or threads of one process wait for each other's mappings, of whatever site.
EnableMMAP Off
# As Debian's own: or each request looks for /.htaccess, and waits for the machine below the guest.
<Directory "/">
    AllowOverride None
</Directory>
<Directory "{root}">
    Options +Includes +ExecCGI
    Require all granted
</Directory>
{sites}
"""


def opened(pid):
    """Descriptors of /reserv that a process has; of one that has just ended none."""
    at = f"/proc/{pid}/fd"
    try:
        return sum(os.readlink(f"{at}/{fd}").startswith(f"{MOUNT}/") for fd in os.listdir(at))
    except FileNotFoundError:
        return 0


class Apache:
    """`modules`: beside those that all have."""

    def __init__(self, root, port, mpm, modules=(), workers=20):
        self.root, self.port, self.mpm, self.workers, self.process = root, port, mpm, workers, None
        self.modules = ("authz_core", "mime", "filter", "deflate", "dir", "alias", "include", *modules)
        os.makedirs(root, exist_ok=True)
        os.chmod(root, 0o755)
        os.chown(root, pwd.getpwnam("www-data").pw_uid, -1)
        self.conf = f"{root}/apache.conf"
        for log in "error.log", "access.log":
            self.file(log, b"")

    def file(self, name, data, mode=0o644):
        with open(f"{self.root}/{name}", "wb") as file:
            file.write(data)
        os.chmod(file.name, mode)

    def configure(self, sites):
        """`sites`: the text of the virtual hosts, with {root}, {port} and {tls}, another port."""
        load = "\n".join(f"LoadModule {m}_module {MODULES}/mod_{m}.so" for m in self.modules)
        text = CONFIG.format(root=self.root, mpm=self.mpm, load=load, modules=MODULES, module=MODULE, here=HERE, port=self.port,
                             workers=MPM[self.mpm].format(n=self.workers), sites=sites.format(root=self.root, port=self.port, tls=self.port + 100))
        self.file("apache.conf", text.encode())

    def text(self, log):
        with open(f"{self.root}/{log}", encoding="utf-8", errors="replace") as file:
            return file.read()

    def configtest(self, more=""):
        """What `apachectl configtest` says, with another line at the end."""
        with open(f"{self.root}/try.conf", "w", encoding="ascii") as file:
            file.write(f"Include {self.conf}\n{more}\n")
        out = subprocess.run([APACHE, "-t", "-f", f"{self.root}/try.conf"], capture_output=True, text=True)
        return out.returncode, out.stderr

    def until(self, condition, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end or self.process.poll() is not None:
                raise RuntimeError(f"{self.root}: not within {seconds} s\n{self.text('error.log')}")
            time.sleep(0.02)

    def begun(self):
        return self.text("error.log").count("resuming normal operations")

    def start(self, *prefix):
        was = self.begun()
        in_memory(APACHE, MODULE, *(f"{MODULES}/mod_{name}.so" for name in self.modules))
        with open(f"{self.root}/error.log", "ab") as out:
            self.process = subprocess.Popen([*prefix, APACHE, "-DFOREGROUND", "-f", self.conf], stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=out, process_group=0)
        self.until(lambda: self.begun() > was)
        return self

    def reload(self):
        was = self.begun()
        self.process.send_signal(signal.SIGUSR1)
        self.until(lambda: self.begun() > was)

    def children(self):
        at = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        with open(at, encoding="ascii") as file:
            return file.read().split()

    def held(self):
        """Descriptors and pieces of shared memory of the parent."""
        at = f"/proc/{self.process.pid}"
        with open(f"{at}/maps", encoding="utf-8") as maps:
            shared = maps.read().count("/dev/zero (deleted)")
        return len(os.listdir(f"{at}/fd")), shared

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process = None

    def lines(self, n=None):
        """The requests so far: (site, status, share, us, path)."""
        had = [tuple(line.split(" ", 4)) for line in self.text("access.log").splitlines()]
        return had if n is None else had[n:]

    def socket(self, further=0, source=HERE, receive=None):
        s = socket.socket()
        s.settimeout(60)
        if receive:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        s.bind((source, 0))
        s.connect((HERE, self.port + further))
        return s

    def raw(self, data, source=HERE, further=0):
        """All that it answers to these bytes."""
        with self.socket(further, source) as s:
            s.sendall(data)
            return b"".join(iter(lambda: s.recv(65536), b""))

    def get(self, host, path="/", source=HERE, headers="", further=0):
        """The status of an answer, and all of it."""
        got = self.raw(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n".encode(), source, further)
        return int(got.split(b" ", 2)[1]), got

    def connection(self):
        return Keep(self.port)

    def over(self, further=0):
        """Whether it has closed all connections to this port."""
        here = self.port + further
        return not any(port == here and state not in (tcp.LISTEN, tcp.TIME_WAIT) for port, state in tcp.sockets())


class Keep:
    """A connection that stays."""

    def __init__(self, port):
        self.http = http.client.HTTPConnection(HERE, port, timeout=60)

    def get(self, host, path="/", deflate=False):
        self.http.putrequest("GET", path, skip_host=True, skip_accept_encoding=True)
        self.http.putheader("Host", host)
        if deflate:
            self.http.putheader("Accept-Encoding", "gzip")
        self.http.endheaders()
        answer = self.http.getresponse()
        answer.read()
        return answer.status

    def close(self):
        self.http.close()


def doctor(kind, server, live, absent):
    """What `reserv doctor` says of a server that runs in the containers web/a to web/d. `absent`:
    what its configuration names and nobody made."""
    def told():
        out = live.reserv("doctor", kind, "--config", server.conf, "--json", ok=False)
        said = json.loads(out.stdout)
        some_missing = any(c["verdict"] == "missing" for c in said["checks"])
        check((out.returncode != 0) == (not said["ok"]) == some_missing,
              "its exit status says whether something is missing")
        return said["checks"]

    def missing(checks):
        return [c["found"].split(" (")[0] for c in checks if c["verdict"] == "missing"]

    def has(name):
        return [c["found"] for c in all_of if c["name"] == name and c["verdict"] == "ok"]

    all_of = told()
    before = missing(all_of)
    check(before == [f"there is no container/{name}" for name in absent],
          "reserv doctor: what is named and not there, and nothing else", all_of)
    there = [text.split(" (")[0] for text in has("container") if "/web/" in text]
    check(there == [f"container/web/{name}" for name in "abcd"], "and what is there", there)
    running = [f"process {server.process.pid}, with the module, requests by www-data"]
    check(has("module") and has("engine") and has("reserv") and has("running") == running,
          "module, switch, Reserv and the server's processes", has("running"))
    live.reserv("allow", "nobody", "use", "container/web/d")
    check(sorted({*missing(told())} - {*before}) == ["container/web/d"],
          "where an access list speaks and not of the server's user, it says so")
    live.reserv("allow", "www-data", "use", "container/web/d")
    check(missing(told()) == before, "with the right it does not")
    for user in "www-data", "nobody":
        live.reserv("deny", "--take-back", user, "use", "container/web/d")
    entries = live.reserv("access", "container/web/d").stdout.strip()
    check(missing(told()) == before and not entries, "and as before", entries)


def each_has_its_link(live, *servers):
    """What the sites a.test and b.test of one server send is of their containers' queues of a link,
    which comes while all of them run."""
    def sent():
        got = []
        for name in "a", "b":
            with open(f"{MOUNT}/container/web/{name}/usage", encoding="ascii") as file:
                got.append(int(dict(line.split() for line in file)["lo.own_bytes"]))
        return got

    live.reserv("up", "--net", "lo", "--rate", "10gbit")
    live.wait("the containers are in the link", lambda: os.path.isdir(f"{MOUNT}/lo/web/b"))
    for server in servers:
        live.wait(f"{server.root}: which a thread finds", lambda s=server: (sent()[0], s.get("a.test", "/4.txt"))[0] < sent()[0])
        keep = server.connection()
        for at, hosts in enumerate((("a.test", "x.a.test"), ("b.test",))):
            before = sent()
            for host in hosts * (8 // len(hosts)):
                check(server.get(host, "/4.txt")[0] == 200 == keep.get(host, "/4.txt"), f"{host} serves")
            live.wait("all was sent", lambda at=at, before=before: sent()[at] - before[at] >= 16 * 4096)
            had = [now - was for now, was in zip(sent(), before)]
            check(had[1 - at] < 1000, f"of one server, what {hosts[0]} sends is its container's on the link", had)
        keep.close()
    live.reserv("down", "lo")
