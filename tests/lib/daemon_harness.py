# SPDX-License-Identifier: MIT OR Apache-2.0
"""A reservd of our own beside whatever else runs: its mount, run directory and driver are the
test's.

Every wait is for a state (a readiness message, a process's end, a file), bounded by DEADLINE;
nothing sleeps for luck. """

import contextlib
import errno
import glob
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

DEADLINE = float(os.environ.get("RESERV_TEST_DEADLINE", "30"))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

made = failed = 0


def check(condition, text, detail=""):
    """One line per promise."""
    global made, failed
    made += 1
    if condition:
        print(f"ok - {text}", flush=True)
    else:
        failed += 1
        print(f"not ok - {text} {detail}", flush=True)
    return bool(condition)


def finish():
    """Who has checked nothing has not passed."""
    if not made:
        check(False, "a check was made")
    sys.exit(1 if failed else 0)


def parts(known, groups):
    """The parts of a test that RESERV_PARTS names, of those that are known. Without it this runs
    the test once for each group of parts, at the same time, and does not come back: for parts that
    wait more than they compute, each with a reservd of its own. Their lines come as they are said.
    """
    named = os.environ.get("RESERV_PARTS")
    if named:
        chosen = named.split(",")
        unknown = sorted(set(chosen) - set(known))
        if unknown:
            sys.exit(f"RESERV_PARTS: no such part: {', '.join(unknown)}; "
                     f"there are {', '.join(known)}")
        return chosen
    if sorted(sum(groups, [])) != sorted(known):
        sys.exit("the groups are not all parts, each once")
    runs = [(group, subprocess.Popen([sys.executable, *sys.argv],
                                     env={**os.environ, "RESERV_PARTS": ",".join(group)}))
            for group in groups]
    ended = [(group, run.wait()) for group, run in runs]
    for group, status in ended:
        # One that failed has said so, one that died has not.
        if status not in (0, 1):
            print(f"not ok - the parts {', '.join(group)} ended with status {status}", flush=True)
    sys.exit(1 if any(status for _, status in ended) else 0)


def need_root():
    if os.geteuid() != 0:
        print("not ok - this test needs root")
        sys.exit(1)


def reservd():
    named = os.environ.get("RESERVD")
    if named:
        return named
    # What users run, and never the slow build that `cargo test` leaves beside it.
    built = f"{ROOT}/target/release/reservd"
    if not os.path.exists(built):
        print("not ok - reservd is not built")
        sys.exit(1)
    return built


def refusal(call, *args):
    """The errno of a call's refusal; 0 when it is not refused."""
    try:
        call(*args)
        return 0
    except OSError as e:
        return e.errno


def as_nobody(call, *args):
    """The errno of a call made by uid and gid 65534 without groups; 0 when it is allowed."""
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        os._exit(refusal(call, *args))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def name(number):
    return errno.errorcode.get(number, str(number))


def until(condition, what, deadline=DEADLINE):
    """Waits until a condition holds that has no signal of its own."""
    end = time.monotonic() + deadline
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise TimeoutError(f"waited {deadline:.0f} s for {what}")
        time.sleep(0.002)


def alive(pid):
    """Also while the first thread is dead and others are not: they hold descriptors."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX" or len(os.listdir(f"/proc/{pid}/task")) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


class Daemon:
    def __init__(self, driver="fake", config=None, env=None):
        # In RAM, as /run is.
        self.dir = tempfile.mkdtemp(prefix="reserv-test-", dir="/dev/shm" if os.path.isdir("/dev/shm") else "/tmp")
        self.mount = self.dir + "/reserv"
        self.run = self.dir + "/run"
        os.mkdir(self.mount)
        os.mkdir(self.run)
        self.log = self.dir + "/log"
        self.config = self.dir + "/reserv.toml"
        if config is not None:
            with open(self.config, "w") as f:
                f.write(config)
        self.env = dict(os.environ, RESERV_CGROUP=f"reserv-test-{os.getpid()}", RESERV_MOUNT=self.mount, RESERV_RUN=self.run, RESERV_CONFIG=self.config,
                        RESERV_DRIVER=driver, **(env or {}))
        self.keeper = None
        self.pids = set()

    cpu = property(lambda self: self.mount + "/cpu")

    def start(self, expect=True, stderr=None):
        """Starts keeper and worker, until READY=1; with expect=False until they have given up. What
        they told the service manager is in `told`."""
        self.told = ""
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        address = self.dir + "/notify"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(address)
        notify.bind(address)
        log = open(self.log, "ab")
        self.keeper = subprocess.Popen([reservd()], env=dict(self.env, NOTIFY_SOCKET=address), stdout=log, stderr=stderr or log,
                                       start_new_session=True)
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            ready, _, _ = select.select([notify], [], [], 0.05)
            if ready:
                self.told += notify.recv(4096).decode() + "\n"
                if "READY=1\n" not in self.told:
                    continue
                notify.close()
                self.note()
                if not expect:
                    raise AssertionError("it started")
                return self
            if self.keeper.poll() is not None:
                while select.select([notify], [], [], 0)[0]:
                    self.told += notify.recv(4096).decode() + "\n"
                notify.close()
                if expect:
                    raise AssertionError(f"reservd ended with {self.keeper.returncode}:\n{self.tail()}")
                return self
        raise TimeoutError(f"reservd is not ready:\n{self.tail()}")

    def tail(self, lines=20):
        with open(self.log, errors="replace") as f:
            return "".join(f.readlines()[-lines:])

    def processes(self):
        """Keeper, worker, forgetter and a copier, found by their environment (never by name alone)."""
        found = {}
        want = ("RESERV_RUN=" + self.run).encode()
        for path in glob.glob("/proc/[0-9]*/environ"):
            pid = int(path.split("/")[2])
            try:
                # First what never waits: the environment of a process whose memory is locked does.
                with open(f"/proc/{pid}/comm", "rb") as f:
                    if f.read().strip() not in (b"reservd", b"exe"):
                        continue
                with open(path, "rb") as f:
                    if want not in f.read().split(b"\0"):
                        continue
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    words = f.read().split(b"\0")
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            if os.path.basename(words[0]) != b"reservd" or not alive(pid):
                continue
            role = next((role for role in ("worker", "forgetter", "copier") if f"--role={role}".encode() in words), "keeper")
            with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as f:
                found[pid] = role, int(f.read().rsplit(")", 1)[1].split()[1])
        # Until it has become another, who was just started looks like who started him.
        return {role: pid for pid, (role, parent) in found.items() if found.get(parent, ("",))[0] != role}

    def note(self):
        found = self.processes()
        self.pids |= set(found.values())
        return found

    def worker(self):
        return until(lambda: self.note().get("worker"), "a worker")

    def keeper_pid(self):
        return until(lambda: self.note().get("keeper"), "a keeper")

    def kill(self, pid, sig=signal.SIGKILL):
        os.kill(pid, sig)
        if self.keeper and pid == self.keeper.pid:
            self.keeper.wait(DEADLINE)
        until(lambda: not alive(pid), f"the end of {pid}")

    def kill_both(self):
        """Keeper and worker at once; the keeper is stopped first, so that it starts no other worker
        meanwhile."""
        keeper = self.keeper_pid()
        os.kill(keeper, signal.SIGSTOP)
        self.kill(self.worker())
        self.kill(keeper)

    def new_worker(self, old):
        def other():
            found = self.note().get("worker", old)
            return found != old and found
        return until(other, "a new worker")

    def ask(self, **request):
        end = time.monotonic() + DEADLINE
        while True:
            try:
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
                    s.settimeout(DEADLINE)
                    s.connect(self.run + "/control.sock")
                    s.sendall(json.dumps(request).encode() + b"\n")
                    answer = s.makefile().readline()
                    return json.loads(answer)
            except (FileNotFoundError, ConnectionError, json.JSONDecodeError):
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)

    def save(self):
        """What `save` tells when no resource is missing: after a death one may come later than the
        worker answers."""
        def whole():
            saved = self.ask(request="save")
            return not saved.get("missing") and saved

        return until(whole, "a save with all resources")

    def status(self):
        """The file `status` by key, when no resource is late: one that is busy for a moment tells
        what it told last."""
        def now():
            text = self.read("status")
            lines = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
            return "late" not in (lines[key] for key in lines if key.endswith(".state")) and [lines]

        return until(now, "a status in which nothing is late")[0]

    def read(self, path):
        with open(f"{self.mount}/{path}") as f:
            return f.read()

    def write(self, path, text):
        fd = os.open(f"{self.mount}/{path}", os.O_WRONLY)
        try:
            return os.write(fd, text if isinstance(text, bytes) else text.encode())
        finally:
            os.close(fd)

    def dirs(self, path="cpu"):
        with os.scandir(f"{self.mount}/{path}") as entries:
            return sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))

    def mounted(self):
        with open("/proc/self/mountinfo") as f:
            return any(line.split()[4] == self.mount for line in f)

    def stop(self):
        """An orderly end."""
        pid = self.keeper_pid()
        os.kill(pid, signal.SIGTERM)
        code = self.keeper.wait(DEADLINE) if self.keeper and pid == self.keeper.pid else None
        until(lambda: not self.processes(), "the end of reservd")
        return code

    def end(self):
        """Kills what there is."""
        def kill_all():
            # Each starts the other again, and who was just started is not seen until it has become
            # another: the keeper stands still, and goes last.
            found = self.processes()
            keeper = found.pop("keeper", None)
            with contextlib.suppress(ProcessLookupError):
                if keeper:
                    os.kill(keeper, signal.SIGSTOP)
            for pid in found.values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if keeper and not found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(keeper, signal.SIGKILL)
            return not found and not keeper
        until(kill_all, "the end of reservd")
        if self.keeper:
            self.keeper.wait(DEADLINE)

    def clean(self):
        self.end()
        if self.env["RESERV_DRIVER"] != "fake" and os.path.exists(self.run + "/journal"):
            # What a test that failed left in the kernel is adopted and given back.
            with contextlib.suppress(Exception):
                self.start()
                self.stop()
        while self.mounted():
            subprocess.run(["umount", "-l", self.mount], check=False)
        subprocess.run(["rm", "-rf", "--one-file-system", self.dir], check=False)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None and os.path.exists(self.log):
            print("\n".join("# " + line for line in self.tail(30).splitlines()))
        self.clean()
