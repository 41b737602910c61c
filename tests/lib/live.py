# SPDX-License-Identifier: MIT OR Apache-2.0
"""End-to-end tests use the product as its users do: this starts it, loads it and reads what it
says.

    with Live("full") as live:
        live.mk("a", 1); hog = live.spin("a")
        ...
    Checks print `ok - …` / `not ok - …`; finish() gives the exit status.
"""
import contextlib
import fcntl
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
RESERV = os.path.join(os.environ.get("RESERV_TEST_BIN", os.path.join(ROOT, "target", "release")), "reserv")
WORKLOAD = os.path.join(ROOT, "target", "tests", "workload")
MOUNT = os.environ.get("RESERV_MOUNT", "/reserv")
#: Seconds after which counters that are read are no older than what was done before
#: (docs/daemon.md, "How fresh the counters are").
AGE = 0.025
# How often a state that is waited for is looked at, at least.
LOOKS_MIN = 100
# As `status` has it (its JSON too), and `disk status`.
LATE = re.compile(r'\.state late$|"state": *"late"|^\S+: late, ', re.M)

made = failed = 0


def check(good, text, detail=""):
    global made, failed
    made += 1
    print(f"{'ok' if good else 'not ok'} - {text}{': ' + str(detail) if detail != '' else ''}", flush=True)
    failed += not good
    return good


@contextlib.contextmanager
def phase(name):
    """Marks for scripts/test, which counts by its own clock how long `up` and `down` take."""
    print(f"# phase {name} begin", flush=True)
    try:
        yield
    finally:
        print(f"# phase {name} end", flush=True)


def finish():
    """Who has checked nothing has not passed."""
    if not made:
        check(False, "a check was made")
    sys.exit(1 if failed else 0)


def skip(reason):
    print(f"# skip: {reason}")
    sys.exit(77)


# What each helper in C is made of besides its source, the client's header and spin.h: folders.
BESIDE = {"cpucheck": ("sched", "bpf/cpu"), "linkcheck": ("sched", "bpf/net"), "linksim": ("sched", "bpf/net")}
# Those that guests need, with the compiler's options: tests/lib/build-helpers makes them.
BUILT = os.path.join(ROOT, "target", "release")
HELPERS = {name: () for name in ("agent", "binder", "cpucheck", "diskload", "floodload", "holder",
                                 "leaks", "linkcheck", "netload", "pairs", "paper", "preempted",
                                 "pressure", "rxload", "refused", "several", "storm", "swapload", "tagcost", "uring", "wakeup", "workload")}
HELPERS["client"] = HELPERS["pager"] = HELPERS["pooler"] = HELPERS["activities"] = ("-L", BUILT, "-lreserv", "-lpthread")
HELPERS["refuse"] = HELPERS["binds"] = ("-shared", "-fPIC")
HELPERS["numbers"] = ("-D_GNU_SOURCE", "-static")
SOURCES = {"numbers": "demo/cgi.c", "activities": "experiments/activities.c"}


# Programs of the kernel that only tests load.
OBJECTS = ("other",)


def compiled_object(name):
    """The same of tests/lib/NAME.bpf.c, for the kernel."""
    source = os.path.join(ROOT, "tests", "lib", f"{name}.bpf.c")
    made = os.path.join(ROOT, "target", "tests", f"{name}.bpf.o")
    os.makedirs(os.path.dirname(made), exist_ok=True)
    with open(made + ".lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(made) or os.path.getmtime(made) < os.path.getmtime(source):
            if os.environ.get("RESERV_GUEST"):
                raise RuntimeError(f"{made} is missing or old: run tests/lib/build-helpers on the host")
            clang = os.environ.get("RESERV_CLANG", "clang-22")
            subprocess.run([clang, "-target", "bpf", "-O2", "-g", "-mcpu=v4", "-Wall", "-c", source, "-o", made + ".new"], check=True)
            os.rename(made + ".new", made)
    return made


def compiled(name, *options, beside=None):
    """The program made of tests/lib/NAME.c, compiled unless that is done already.

    Never in a guest, where it takes half a minute: `tests/lib/build-helpers` does it before.
    `beside`: folders of what else it is made of, where that is not what BESIDE says."""
    beside = BESIDE.get(name, ()) if beside is None else beside
    source = os.path.join(ROOT, SOURCES.get(name, f"tests/lib/{name}.c"))
    options = options or HELPERS.get(name, ())
    program = os.path.join(ROOT, "target", "tests", name)
    os.makedirs(os.path.dirname(program), exist_ok=True)
    with open(program + ".lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        header = os.path.join(ROOT, "crates", "client", "include", "reserv.h")
        shared = [os.path.join(ROOT, "tests", "lib", name) for name in ("spin.h", "clock.h")]
        entries = (entry for folder in beside for entry in os.scandir(os.path.join(ROOT, folder)))
        parts = [source, header, *shared, *(entry.path for entry in entries if entry.is_file())]
        if not os.path.exists(program) or os.path.getmtime(program) < max(map(os.path.getmtime, parts)):
            if os.environ.get("RESERV_GUEST"):
                raise RuntimeError(f"{program} is missing or old: run tests/lib/build-helpers on the host")
            command = ["cc", "-O2", "-pthread", "-I", os.path.dirname(header), "-o", program + ".new", source, *options]
            subprocess.run(command, check=True)
            os.rename(program + ".new", program)
    return program


def tell_log(lines=20):
    """The end of what reservd wrote, for whoever reads why a command failed."""
    path = os.path.join(os.environ.get("RESERV_RUN", "/run/reserv"), "reservd.log")
    with contextlib.suppress(OSError):
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file.read().splitlines()[-lines:]:
                print(f"# reservd: {line}", flush=True)


def build_workload():
    compiled("workload")


def refuse(words):
    """From here on the kernel refuses these BPF programs to what this test starts: names of
    programs, kinds (tests/lib/refuse.c). "": none. It is asked by loading only:
    `reserv down --unload` first, or what is put by is taken up."""
    os.environ["RESERV_TEST_REFUSE"] = words
    os.environ["LD_PRELOAD"] = compiled("refuse") if words else ""


if os.environ.get("RESERV_TEST_REFUSE"):  # so that any test can be run as on a kernel that refuses something
    refuse(os.environ["RESERV_TEST_REFUSE"])


def not_late(ask):
    """What `ask` tells of the status when no resource is late: one that is busy for a moment tells
    what it told last, and nothing if it has told nothing yet. One that stays late is told so."""
    end, looks = time.monotonic() + 30, 0
    while True:
        said = ask()
        looks += 1
        if not LATE.search(said) or (time.monotonic() > end and looks > LOOKS_MIN // 5):
            return said
        time.sleep(0.1)


def in_memory(*names):
    """Read as far as they are run, so that nobody waits for a page of them. One that has not been
    read comes from the machine below the guest; while that is busy, who needs it stands still, and
    the guest's clock jumps to the next time-out."""
    for name in names:
        with open(shutil.which(name) or name, "rb") as file:
            head = file.read(64)
            if head[:5] != b"\x7fELF\x02":
                file.read()
                continue
            at, size, count = (int.from_bytes(head[a:b], "little") for a, b in ((32, 40), (54, 56), (56, 58)))
            file.seek(at)
            table = file.read(size * count)
            for entry in (table[n * size:][:size] for n in range(count)):
                kind, start, length = (int.from_bytes(entry[a:b], "little") for a, b in ((0, 4), (8, 16), (32, 40)))
                if kind == 1:  # PT_LOAD
                    file.seek(start)
                    file.read(length)


def product_in_memory(mark="/run/reserv-tests-read"):
    """Once in each boot of a guest."""
    if not os.environ.get("RESERV_GUEST") or os.path.exists(mark):
        return
    in_memory(*(os.path.join(os.path.dirname(RESERV), name) for name in ("reserv", "reservd", "reserv-blockd")))
    with open(mark, "wb"):
        pass


class Live:
    """A running reservd, with the load that the test put on it."""

    def __init__(self, driver, *up_args):
        self.driver, self.up_args, self.load = driver, up_args, []
        # Of each load: a pipe's end, and how many threads will say there that they are busy.
        self.beginning = []

    def __enter__(self):
        build_workload()
        product_in_memory()
        self.reserv("up", "--driver", self.driver, *self.up_args)
        return self

    def __exit__(self, *exc):
        self.kill_load()
        with phase("down"):
            out = subprocess.run([RESERV, "down"], capture_output=True, text=True, timeout=120)
        if out.returncode:
            tell_log()
            check(False, "down", out.stderr)

    def reserv(self, *args, ok=True):
        with phase(args[0]) if args[0] in ("up", "down") else contextlib.nullcontext():
            out = subprocess.run([RESERV, *map(str, args)], capture_output=True, text=True, timeout=180)
        if ok and out.returncode:
            tell_log()
            raise RuntimeError(f"reserv {' '.join(map(str, args))}: {out.returncode}: {out.stderr.strip()}")
        return out

    def mk(self, path, share=None, *more):
        self.reserv("mk", path, *(["--share", share] if share is not None else []), *more)

    def start(self, path, *args, cpus=None):
        """A workload in the queue `path` (None: untagged)."""
        command = [WORKLOAD, *map(str, args)]
        if path is not None:
            command = [RESERV, "run", "--cpu", path, "--", *command]
        if cpus is not None:
            command = ["taskset", "-c", cpus, *command]
        told, tell = os.pipe()
        env = {**os.environ, "WORKLOAD_BUSY": str(tell)}
        child = subprocess.Popen(command, pass_fds=[tell], env=env)
        os.close(tell)
        self.load.append(child)
        self.beginning.append((told, int(args[1]) if args[0] == "spin" else 0))
        return child

    def spin(self, path, threads=1, cpus=None):
        return self.start(path, "spin", threads, cpus=cpus)

    def kill_load(self):
        for told, _ in self.beginning:
            os.close(told)
        self.beginning = []
        for child in self.load:
            child.kill()
        for child in self.load:
            child.wait()
        self.load = []

    def stat(self, path):
        """The `stat` file of a node as a dict of text."""
        with open(os.path.join(MOUNT, "cpu", path, "stat"), encoding="utf-8") as file:
            return dict(line.rstrip("\n").split(" ", 1) for line in file if " " in line)

    def service(self, path):
        """CPU time received by a node, in ns."""
        return int(self.stat(path)["service_ns"])

    def status(self):
        return json.loads(not_late(lambda: self.reserv("status", "--json").stdout))

    def status_text(self, *words):
        """The same for people; `disk`: of disks."""
        return not_late(lambda: self.reserv(*words, "status").stdout)

    def members(self, path):
        with open(os.path.join(MOUNT, "cpu", path, "members"), encoding="utf-8") as file:
            return file.read().splitlines()

    def wait(self, text, condition, seconds=30):
        """Until the condition holds: polls what the product says. A check of its own."""
        end, looks = time.monotonic() + seconds, 0
        # A guest's clock jumps while it waits for a file of this machine's: so often it is looked
        # whatever the clock says.
        while time.monotonic() < end or looks < LOOKS_MIN:
            if condition():
                return check(True, text)
            looks += 1
            time.sleep(0.05)
        return check(False, text, f"not within {seconds} s")

    def all_run(self, paths):
        """Waits until every load is busy and each queue has received something, so that a
        measurement starts in the middle of the load.

        Received something is not enough: a program that is being loaded waits for its file, and
        its queue is not backlogged then."""
        end = time.monotonic() + 60
        for told, threads in self.beginning:
            while threads > 0 and select.select([told], [], [], max(end - time.monotonic(), 0))[0]:
                said = os.read(told, threads)
                threads = threads - len(said) if said else 0
            os.close(told)
        self.beginning = []
        before, looks = {p: self.service(p) for p in paths}, 0
        while idle := [p for p in paths if self.service(p) == before[p]]:
            looks += 1
            if time.monotonic() > end and looks > LOOKS_MIN:
                return check(False, "all that was started runs", f"{idle} had nothing")
            time.sleep(0.05)

    def shares(self, paths, seconds, pids=None):
        """What each of the nodes received of what all of them did.

        `pids`: by node, all processes that run there; the kernel's count of their time is then
        compared with the product's. It is read before and after that at both ends: to read takes
        the time that this machine takes. A step in service is in either count up to a tick late."""
        def theirs():
            return [cpu_time(pids[p]) for p in paths] if pids else []

        first, ours, second = theirs(), [self.service(p) for p in paths], theirs()
        time.sleep(seconds)
        third, ours, last = theirs(), [self.service(p) - b for p, b in zip(paths, ours)], theirs()
        whole = sum(ours)
        if pids:
            least = [end - begin for begin, end in zip(second, third)]
            most = [end - begin for begin, end in zip(first, last)]
            beyond = [max(low - had, had - high, 0) for had, low, high in zip(ours, least, most)]
            far, bound = max(beyond) / (whole or 1), share_bound(TICK_NS, seconds, len(paths))
            check(far <= bound, f"the kernel counted the same (within {bound:.2%})",
                  f"{far:.3%}: {ours}, at least {least}, at most {most}")
        got = [g / whole if whole else 0.0 for g in ours]
        return got


TICK_NS = 4_000_000


def cpu_time(pids):
    """What the kernel says that all threads of these processes have had, in ns."""
    had = 0
    for pid in pids:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
                had += int(file.read().split()[0])
    return had


def share_bound(step_ns, seconds, siblings):
    """How far a share over a window may be off where each of so many siblings may be a step early
    or late at either end of it."""
    return step_ns * 2 * siblings / (seconds * 1e9)


def told(text):
    """What the workload printed: `key number` pairs."""
    words = text.split()
    return {k: int(v) for k, v in zip(words[::2], words[1::2])}


def decoders(path, *arguments):
    """Runs them side by side in a queue; what each told."""
    command = [RESERV, "run", "--cpu", path, "--", WORKLOAD, "decode"]
    children = [subprocess.Popen([*command, *map(str, a)], stdout=subprocess.PIPE, text=True) for a in arguments]
    return [told(c.communicate()[0]) for c in children]


def write(path, text):
    """A file of /reserv in one write."""
    fd = os.open(f"{MOUNT}/{path}", os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def refusal(path, text):
    """The errno of such a write; 0 where it is taken."""
    try:
        write(path, text)
        return 0
    except OSError as error:
        return error.errno


def pids_of(name):
    """Processes by the name of their executable, and their command lines."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.path.basename(os.readlink(f"/proc/{pid}/exe")).split(" ")[0] == name:
                found[int(pid)] = open(f"/proc/{pid}/cmdline", encoding="utf-8").read().replace("\0", " ").strip()
        except OSError:
            pass
    return found


def kill(pid):
    """One that has ended meanwhile is dead too."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def ours():
    """reservd of this test; there may be others on the machine."""
    mark = f"RESERV_RUN={os.environ.get('RESERV_RUN', '')}\0".encode()
    found = []
    for pid in pids_of("reservd"):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if mark in file.read() or "RESERV_RUN" not in os.environ:
                    found.append(pid)
        except OSError:
            pass
    return found
