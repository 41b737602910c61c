# SPDX-License-Identifier: MIT OR Apache-2.0
"""A user who means harm, with a queue of his own and no other right: random operations on /reserv,
on the control socket and on the scheduler, without a pause, for ever.

    hostile(uid, seed, "cpu/u1", tell)  # in a process of its own

He is told nothing of what others do, and may do whatever a process without privilege can. Each of
his operations ends within moments, so that the next one comes; what it answers is not judged here.
"""
import contextlib
import ctypes
import fcntl
import os
import random
import signal
import socket
import struct
import threading
import time

from live import MOUNT

RUN = os.environ.get("RESERV_RUN", "/run/reserv")
CHCPURES, SETPARAM, GETPARAM, SET_QUEUE, GET_QUEUE = 0x52530001, 0x52530003, 0x52530004, 0x52530005, 0x52530006
PR_SET_NAME = 15
THREADS, CHILDREN, DESCRIPTORS = 64, 24, 200
WORDS = (
    b"1", b"0", b"-1", b"18446744073709551616", b"queue x 5", b"scheduler x", b"drain", b"flush", b"none", b"5%", b"\xff\xfe",
    b"", b"\n" * 300, b"x" * 70000, b"tid self", b"1", b"tid 1", b"eevdf", b"quantum 1ns", b"allow everyone all", b"deny uid 0",
)
libc = ctypes.CDLL(None, use_errno=True)


class Hostile:
    def __init__(self, home, rng):
        self.home, self.rng, self.paths, self.hogs = f"{MOUNT}/{home}", rng, [], []

    def path(self):
        """Some file or folder below /reserv, mostly one that was there a moment ago."""
        if not self.paths or self.rng.random() < 0.05:
            self.paths = [MOUNT, f"{MOUNT}/status", self.home]
            for folder, folders, files in os.walk(MOUNT):
                self.paths += [os.path.join(folder, n) for n in files + folders]
                if len(self.paths) > 400 or folder.count("/") > 6:
                    break
            self.paths += [f"{MOUNT}/proc/{pid}/{n}" for pid in (1, os.getpid(), os.getppid()) for n in ("default", "domain", "fds", "listen")]
        return self.rng.choice(self.paths)

    def do_read(self):
        for _ in range(self.rng.randrange(1, 30)):
            with contextlib.suppress(OSError), open(self.path(), "rb", buffering=0) as file:
                file.read(self.rng.choice((1, 100, 1 << 16)))

    def do_write(self):
        fd = os.open(self.path(), os.O_WRONLY)
        try:
            os.write(fd, self.rng.choice(WORDS))
        finally:
            os.close(fd)

    def do_tree(self):
        """His own subtree is his: made, moved, divided and taken away, up to what he may have."""
        name, other = (f"{self.home}/n{self.rng.randrange(12)}" for _ in range(2))
        what = self.rng.randrange(5)
        if what == 0:
            os.mkdir(name)
        elif what == 1:
            with open(f"{self.home}/mk", "w", encoding="ascii") as file:
                file.write(f"queue {os.path.basename(name)} {self.rng.randrange(1, 10000)}")
        elif what == 2:
            os.rename(name, other)
        elif what == 3:
            os.rmdir(name)
        else:
            with open(f"{name}/share", "w", encoding="ascii") as file:
                file.write(str(self.rng.randrange(1, 1 << 40)))

    def do_leave(self):
        """Out of his queue, by taking it or the next one away; then his children would be in q0."""
        name = f"{self.home}/n{self.rng.randrange(12)}"
        what = self.rng.randrange(3)
        if what == 0:
            with open(f"{self.home}/own/state", "w", encoding="ascii") as file:
                file.write(self.rng.choice(("flush", "drain")))
        elif what == 1:
            with open(f"{MOUNT}/proc/{os.getpid()}/cdefault", "w", encoding="ascii") as file:
                file.write(name[len(MOUNT) + 1:])
            os.rmdir(name)
        else:
            with open(f"{name}/members", "w", encoding="ascii") as file:
                file.write(str(os.getpid()))
            with open(f"{name}/state", "w", encoding="ascii") as file:
                file.write("drain")

    def do_theirs(self):
        os.rename(self.path(), f"{MOUNT}/cpu/q{self.rng.randrange(9)}")

    def do_descriptors(self):
        held = []
        try:
            for _ in range(DESCRIPTORS):
                with contextlib.suppress(OSError):
                    held.append(os.open(self.path(), os.O_RDONLY))
            for fd in held:
                with contextlib.suppress(OSError):  # a folder
                    os.pread(fd, 1, 0)
        finally:
            for fd in held:
                os.close(fd)

    def do_call(self):
        fd = os.open(self.rng.choice((self.path(), self.home)), os.O_RDONLY)
        try:
            if self.rng.random() < 0.3:
                fcntl.fcntl(fd, SETPARAM, struct.pack("IIIIQQQ", 40, self.rng.randrange(1 << 32), self.rng.randrange(200), 0, 1, 1 << 40, 0))
            fcntl.fcntl(self.rng.choice((fd, 0)), self.rng.choice((CHCPURES, GETPARAM, SET_QUEUE, GET_QUEUE)), self.rng.choice((0, fd, 99)))
        finally:
            os.close(fd)

    def do_name(self):
        libc.prctl(PR_SET_NAME, self.rng.choice((b"\xff\xfe", b"reservd", b") R 1 1", b"")), 0, 0, 0)

    def do_socket(self):
        """reservd's socket is root's: he is turned away, and comes again."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(1)
            s.connect(RUN + "/control.sock")
            s.sendall(self.rng.choice(WORDS))

    def do_threads(self):
        end = threading.Event()
        made = [threading.Thread(target=end.wait) for _ in range(THREADS)]
        try:
            for thread in made:
                thread.start()
        finally:
            end.set()
            for thread in made:
                if thread.ident:
                    thread.join()

    def do_children(self):
        pids = []
        for _ in range(CHILDREN):
            pid = os.fork()
            if pid == 0:
                if self.rng.random() < 0.2:
                    os.execv("/bin/true", ["\xff"])
                os._exit(0)
            pids.append(pid)
        for pid in pids:
            os.waitpid(pid, 0)

    def hog(self):
        """One of his own busy processes; there are never more than three."""
        if len(self.hogs) < 3:
            pid = os.fork()
            if pid == 0:
                while True:
                    pass
            self.hogs.append(pid)
        elif self.rng.random() < 0.1:
            pid = self.hogs.pop()
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        return self.rng.choice(self.hogs)

    def do_scheduler(self):
        hog = self.hog()
        what = self.rng.randrange(6)
        if what == 0:
            os.setpriority(os.PRIO_PROCESS, hog, self.rng.randrange(20))
        elif what == 1:
            os.sched_setscheduler(hog, self.rng.choice((os.SCHED_BATCH, os.SCHED_IDLE, os.SCHED_OTHER)), os.sched_param(0))
        elif what == 2:
            os.sched_setaffinity(hog, self.rng.choice(({0}, {1}, {0, 1})))
        elif what == 3:
            os.kill(hog, signal.SIGSTOP)
            os.kill(hog, signal.SIGCONT)
        elif what == 4:
            for _ in range(1000):
                os.sched_yield()
        else:
            self.trace(hog)

    @staticmethod
    def trace(pid):
        """PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH"""
        libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        if libc.ptrace(0x4206, pid, None, None) == 0:
            libc.ptrace(0x4207, pid, None, None)
            os.waitpid(pid, 0x40000000)
            libc.ptrace(17, pid, None, None)

    def do_signal(self):
        os.kill(self.rng.choice((1, os.getppid())), signal.SIGKILL)

    def step(self, name):
        try:
            getattr(self, name)()
            return 1
        except (OSError, RuntimeError, ValueError):
            return 0  # refused, or the daemon is away for a moment


OPERATIONS = [name for name in dir(Hostile) if name.startswith("do_")]


def hostile(uid, seed, home, tell):
    """What his process does from here on, for ever. It is in his queue already. `tell`: a
    descriptor to which it writes each operation's counts now and then: how often, and how often
    nothing of it was refused."""
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    rng = random.Random(seed)
    he = Hostile(home, rng)
    count, told = {name: [0, 0] for name in OPERATIONS}, time.monotonic()
    while True:
        name = rng.choice(OPERATIONS)
        count[name][0] += 1
        count[name][1] += he.step(name)
        if time.monotonic() > told + 1:
            told = time.monotonic()
            os.write(tell, (" ".join(f"{n[3:]}:{a}:{b}" for n, (a, b) in count.items()) + "\n").encode())
