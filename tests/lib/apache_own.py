# SPDX-License-Identifier: MIT OR Apache-2.0
"""Apache's own test suite, with the module and without: what passes without it passes with it.
HTTPD_TESTS is a checkout of github.com/apache/httpd-tests; its harness, Apache::Test, is Perl's
(PERL5LIB where it is not installed). Each way has a server, a folder and ports of its own, and all
of it is USER's, for the suite refuses root. MPM: event, worker or prefork. ONLY: files, by a
pattern of the shell."""
import concurrent.futures
import contextlib
import fnmatch
import glob
import os
import signal
import subprocess
import time

import prove
from apache import APACHE, MODULE, MODULES
from live import Live, check, finish, skip

APXS, USER = "/usr/bin/apxs", "nobody"
# Those that others want to be loaded before them, and those that are never loaded: the other MPMs,
# what the suite builds by itself, what asks for a server of LDAP, what changes every answer.
FIRST = ("authn_core", "authz_core", "session", "dbd", "proxy", "cache", "slotmem_shm",
         "socache_shmcb")
NEVER = ("mpm_*", "cgi", "suexec", "md", "*ldap", "*heartbeat", "heartmonitor", "bucketeer",
         "case_filter*", "data", "dumpio", "dialup", "log_forensic")
# One container for all; and two, which the path chooses, so that a connection is of both in turn.
WAYS = {
    "one container": "ReservEngine On\nReservShare web/a",
    "two containers": "ReservEngine On\nReservShare web/a\n"
                      "<LocationMatch ^/[^/]*[a-m]/>\nReservShare web/b\n</LocationMatch>\n"
                      "<LocationMatch [02468n-z]$>\nReservShare web/b\n</LocationMatch>",
}
# Must fail: what it cannot serve it refuses.
REFUSES = "ReservEngine On\nReservShare web/none\nReservErrorCode 503"


def loaded():
    found = {os.path.basename(path)[4:-3] for path in glob.glob(f"{MODULES}/mod_*.so")}
    rest = sorted(name for name in found if not any(fnmatch.fnmatch(name, no) for no in NEVER))
    first = [name for name in FIRST if name in found]
    return [f"mpm_{os.environ.get('MPM', 'event')}", *first, *(n for n in rest if n not in first)]


class Server:
    """A copy of the suite, and the Apache that it starts."""

    def __init__(self, tests, folder, port, directives="", env=None):
        self.folder, self.port, self.env = folder, port, {"HOME": folder, **(env or {})}
        subprocess.run(["cp", "-a", tests, folder], check=True)
        lines = [f"LoadModule {name}_module {MODULES}/mod_{name}.so" for name in loaded()]
        if directives:
            lines.append(f"LoadModule reserv_module {MODULE}")
        with open(f"{folder}/load.conf", "w", encoding="ascii") as file:
            file.write("\n".join(lines) + "\n")
        subprocess.run(["chown", "-R", USER, folder], check=True)
        self.run("perl", "Makefile.PL", "-apxs", APXS, "-httpd_conf", f"{folder}/load.conf")
        more = ["-postamble", directives] if directives else []
        self.run("t/TEST", "-httpd", APACHE, "-port", str(port), *more, "-start-httpd")
        self.side = prove.Side(folder, self.env, 300, USER)

    def run(self, *words):
        out = subprocess.run(words, cwd=self.folder, user=USER, group="nogroup", extra_groups=[],
                             env={**os.environ, **self.env}, stdin=subprocess.DEVNULL, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
        if out.returncode:
            raise RuntimeError(f"{words[:2]}: {out.returncode}: {out.stdout[-2000:]}")

    def said(self):
        """Lines of the module in the log, each once."""
        with open(f"{self.folder}/t/logs/error_log", encoding="utf-8", errors="replace") as log:
            return sorted({line.split("] ")[-1].strip() for line in log if "[reserv:" in line})

    def stop(self):
        """Until it has ended."""
        at = f"{self.folder}/t/logs/httpd.pid"
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            with open(at, encoding="ascii") as file:
                os.kill(int(file.read()), signal.SIGTERM)
        for _ in range(600):
            if not os.path.exists(at):
                break
            time.sleep(0.1)


def run(driver, scratch, played):
    """With this driver of the CPU. `played`: who answers for a kernel that binds nobody."""
    tests = os.environ.get("HTTPD_TESTS", "")
    if not os.path.exists(f"{tests}/t/modules"):
        skip("HTTPD_TESTS is no checkout of httpd-tests")
    if not os.path.exists(APXS) or not os.path.exists(MODULE):
        skip("no module: there is no apache2-dev here")
    only, chosen = os.environ.get("ONLY", "*.t"), os.environ.get("WAYS", "*")
    ways = {way: text for way, text in WAYS.items() if fnmatch.fnmatch(way, chosen)}
    files = glob.glob("t/**/*.t", root_dir=tests, recursive=True)
    names = sorted(name for name in files if fnmatch.fnmatch(name, only))
    servers = {}
    with Live(driver) as live:
        live.reserv("mk", "--container", "--sched", "web", "--share", "400")
        live.reserv("mk", "--container", "web/a", "web/b", "--share", "50")
        # The server is not started by root here, so its descriptors are no right.
        live.reserv("allow", USER, "use", "container/web")
        try:
            bare = Server(tests, f"{scratch}/bare", 18000)
            servers["without"] = bare
            for n, (way, text) in enumerate((*ways.items(), ("refusing", REFUSES))):
                folder, port = f"{scratch}/way{n}", 19000 + 1000 * n
                servers[way] = Server(tests, folder, port, text, played.env())
            with concurrent.futures.ThreadPoolExecutor(3) as pool:
                runs = {way: pool.submit(servers[way].side.all_of, names, 1, way) for way in ways}
                all_ends = {way: done.result() for way, done in runs.items()}
            count = 0
            for way, ends in all_ends.items():
                ran, passed, tests_run = prove.summed(ends, way)
                count += tests_run
                found = prove.worse(ends, servers[way].side, bare.side)
                words = {name: prove.words(numbers) for name, numbers in found.items()}
                for line in servers[way].said():
                    print(f"# {way}: {line}", flush=True)
                check(not found, f"{way}: nothing fails with the module alone", words)
                check(len(passed) * 4 > len(ran) * 3, f"{way}: three of four files pass")
            for way, ends in all_ends.items():
                lost = prove.left_out(ends, bare.side, 1)
                check(not lost, f"{way}: what is not run is not run because of the module", lost)
            refuses = servers["refusing"].side
            ends = refuses.all_of(["t/modules/alias.t"], 1, "a refusal")
            check(prove.worse(ends, refuses, bare.side), "a module that refuses is found")
        finally:
            for server in servers.values():
                server.stop()
        binds = played.count()
        check(binds > count // 4, "workers were bound for requests", binds)
    finish()
