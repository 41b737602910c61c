# SPDX-License-Identifier: MIT OR Apache-2.0
"""nginx's own test suite, with the module and without: what passes without it passes with it.
NGINX_TESTS is a checkout of github.com/nginx/nginx-tests, of about the date of the nginx that is
tested. NGINX_PROGRAM: its program; NGINX_MODULE: our module for it; NGINX_MODULES: the folder of
its own modules that are loaded. ONLY: files, by a pattern of the shell."""
import fnmatch
import glob
import os

import prove
from live import MOUNT, Live, check, finish, skip
from nginx import MODULE, NGINX

# One container for all; and one by the connection, so that requests of one server are of two.
SPLIT = "split_clients $connection $of { 50% web/a; * web/b; }"
WAYS = {
    "one container": "reserv on; reserv_share web/a;",
    "two containers": f"reserv on; reserv_root web; {SPLIT} reserv_share $of;",
}
# What fails with two containers now and then, and why it may. Requests of two containers that are
# ready at once are served by the containers' shares, not in the order in which they came.
ORDER = {
    "limit_conn.t": {5, 6},  # a second client must be met while the first one's request is served
}


def used(name):
    with open(f"{MOUNT}/container/{name}/usage", encoding="ascii") as file:
        return int(dict(line.split() for line in file)["cpu.own_ns"])


def run(driver, played=None):
    """With this driver of the CPU. `played`: who answers for a kernel that binds nobody (prove.py).
    """
    tests = os.environ.get("NGINX_TESTS", "")
    if not os.path.exists(f"{tests}/lib/Test/Nginx.pm"):
        skip("NGINX_TESTS is no checkout of nginx-tests")
    only, chosen = os.environ.get("ONLY", "*.t"), os.environ.get("WAYS", "*")
    ways = {way: text for way, text in WAYS.items() if fnmatch.fnmatch(way, chosen)}
    files = map(os.path.basename, glob.glob(f"{tests}/*.t"))
    names = sorted(name for name in files if fnmatch.fnmatch(name, only))
    # Its folders are for the user who runs it alone.
    perl = os.environ.get("PERL5LIB")
    keep = "user root;" + (f" env PERL5LIB={perl};" if perl else "")
    load = f"load_module {MODULE};"
    alone = {"TEST_NGINX_BINARY": NGINX, "LC_ALL": "C",
             "TEST_NGINX_MODULES": os.environ.get("NGINX_MODULES", "/usr/lib/nginx/modules"),
             "TMPDIR": "/dev/shm", "TEST_NGINX_GLOBALS": keep}

    bare = prove.Side(tests, alone)

    def side(text):
        with_it = {"TEST_NGINX_GLOBALS": f"{keep} {load}", "TEST_NGINX_GLOBALS_HTTP": text}
        return prove.Side(tests, {**alone, **with_it, **(played.env() if played else {})})

    with Live(driver) as live:
        live.reserv("mk", "--container", "--sched", "web", "--share", "400")
        live.reserv("mk", "--container", "web/a", "web/b", "--share", "50")
        for way, text in ways.items():
            ends = side(text).all_of(names, 3, way)
            ran, passed, count = prove.summed(ends, way)
            found = prove.worse(ends, side(text), bare)
            if "two" in way:
                found = {name: numbers for name, all_of in found.items()
                         if (numbers := all_of - ORDER.get(name, set()))}
            words = {name: prove.words(numbers) for name, numbers in found.items()}
            check(not found, f"{way}: nothing fails with the module alone", words)
            check(len(passed) * 4 > len(ran) * 3, f"{way}: three of four files pass")
            if played:
                binds = played.count()
                check(binds > count // 4, f"{way}: workers were bound for requests", binds)
            else:
                both = used("web/b") or way != "two containers"
                check(used("web/a") and both, f"{way}: requests were served in containers")
        lost = prove.left_out(ends, bare, 3)
        check(not lost, "what is not run is not run because of the module", lost)
        # Must fail: a module that answers wrongly, here by refusing what it cannot serve.
        refuses = side("reserv on; reserv_share web/none; reserv_status 503;")
        ends = refuses.all_of(["rewrite.t"], 1, "a refusal")
        check(prove.worse(ends, refuses, bare), "a module that refuses is found")
    finish()
