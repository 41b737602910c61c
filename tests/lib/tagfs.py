# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the tests of tags stand on: a file system whose inode numbers say what /reserv's say, and a
line to the tags' plane.

    fs = TagFs(); plane = Plane()
    qfd = fs.queue(1, 2, 1)          # an open descriptor of the directory of node 2, generation 1,
                                     of resource 1
    plane("refs 1 2 1")              # an answer of crates/plane/examples/tags.rs
"""
import ctypes
import errno
import os
import struct
import subprocess
import threading
import time

from live import ROOT

SET_QUEUE, GET_QUEUE = 0x52530005, 0x52530006
SOL, SO_SET, SO_OF = 0x5253, 5, 0x100
TAGS = os.path.join(ROOT, "target", "release", "examples", "tags")
SCHEDULER_DIR, QUEUE_DIR, SHARE, STAT = 1, 2, 16, 20
libc = ctypes.CDLL(None, use_errno=True)
libc.fcntl.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long)


def error_name(number):
    return "EOPNOTSUPP" if number == errno.EOPNOTSUPP else errno.errorcode[number]  # two names on Linux


def fcntl(fd, command, argument=0):
    """What fcntl answers, or the name of its error."""
    ctypes.set_errno(0)
    got = libc.fcntl(fd, command, argument)
    return got if got >= 0 else error_name(ctypes.get_errno())


def set_queue(fd, qfd):
    return fcntl(fd, SET_QUEUE, qfd)


def get_queue(fd, resource):
    return fcntl(fd, GET_QUEUE, resource)


def option_set(s, qfd):
    """As set_queue, by setsockopt."""
    try:
        s.setsockopt(SOL, SO_SET, qfd)
        return 1
    except OSError as error:
        return error_name(error.errno)


def option_get(s, resource):
    try:
        return s.getsockopt(SOL, SO_OF + resource)
    except OSError as error:
        return error_name(error.errno)


def at_last(answer, wanted):
    """What it answers, when that is what is wanted: the kernel lets go of a program that is
    detached when it comes to it."""
    end = time.monotonic() + 30
    while (got := answer()) != wanted and time.monotonic() < end:
        time.sleep(0.01)
    return got


def options_go(s, qfd, resource, unknown):
    """Whether neither option is known any more, which these errors say, soon: the kernel lets go of
    a program that is detached when it comes to it."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if option_set(s, qfd) in unknown and option_get(s, resource) in unknown:
            return True
        time.sleep(0.01)
    return False


class Plane:
    """Each instance is a process of its own: what one has set up another adopts."""

    def __init__(self, first="open"):
        self.process = subprocess.Popen([TAGS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        answer = self(first)
        assert answer == "held", answer

    def __call__(self, line):
        self.process.stdin.write(line + "\n")
        return self.process.stdout.readline().rstrip("\n")

    def do(self, line):
        answer = self(line)
        assert answer == "done", f"{line}: {answer}"

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        """Gives everything back, as `reserv down` would."""
        for resource in range(1, 16):
            self(f"detach {resource}")
        answer = self("close")
        self.process.stdin.close()
        self.process.wait()
        return answer


class TagFs:
    """A FUSE file system of names that are inode numbers in hex, `d` or `f` and a mode in octal:
    /d700:2ff…"""

    def __init__(self, where="/run/tagfs"):
        self.where = where
        os.makedirs(where, exist_ok=True)
        self.fuse = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self.fuse},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
        if libc.mount(b"tagfs", where.encode(), b"fuse", 0, options.encode()):
            raise OSError(ctypes.get_errno(), "mount")
        threading.Thread(target=self.serve, daemon=True).start()
        self.dev = os.stat(where).st_dev

    def serve(self):
        while True:
            try:
                request = os.read(self.fuse, 1 << 17)
            except OSError:
                return
            op, unique, ino = struct.unpack_from("<IQQ", request, 4)
            body = request[40:]
            answer = self.answer(op, ino, body)
            if answer is None:
                continue
            error, data = answer if isinstance(answer, tuple) else (0, answer)
            try:
                os.write(self.fuse, struct.pack("<IiQ", 16 + len(data), -error, unique) + data)
            except OSError:
                return

    @staticmethod
    def attr(ino, mode):
        return struct.pack("<QQQQQQIIIIIIIIII", ino, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def answer(self, op, ino, body):
        if op == 26:  # INIT
            return struct.pack("<IIIIHHIIHHIIHH", 7, 31, 65536, 0, 12, 9, 65536, 1, 1, 0, 0, 0, 0, 0) + bytes(20)
        if op == 1:  # LOOKUP
            name = body.rstrip(b"\0").decode()
            try:
                mode, number = name[1:].split(":")
                number, mode = int(number, 16), int(mode, 8) | (0o40000 if name[0] == "d" else 0o100000)
            except ValueError:
                return errno.ENOENT, b""
            modes[number] = mode
            return struct.pack("<QQQQII", number, 0, 3600, 3600, 0, 0) + self.attr(number, mode)
        if op == 3:  # GETATTR
            return struct.pack("<QII", 3600, 0, 0) + self.attr(ino, 0o40755 if ino == 1 else modes[ino])
        if op in (14, 27):  # OPEN, OPENDIR
            return struct.pack("<QII", 0, 0, 0)
        if op in (18, 29):  # RELEASE
            return b""
        if op in (2, 36, 42):  # FORGET, INTERRUPT, BATCH_FORGET
            return None
        return errno.ENOSYS, b""

    def open(self, resource, file, index, generation, flags=os.O_RDONLY, mode=0o755):
        number = (resource + 1) << 56 | file << 48 | generation << 16 | index
        letter = "d" if file in (SCHEDULER_DIR, QUEUE_DIR) else "f"
        return os.open(f"{self.where}/{letter}{mode:o}:{number:x}", flags)

    def queue(self, resource, index, generation=1, **more):
        return self.open(resource, QUEUE_DIR, index, generation, **more)

    def close(self):
        for flag in 1, 2:  # MNT_FORCE ends the connection, so that no open file waits for us; MNT_DETACH
            libc.umount2(self.where.encode(), flag)
        os.close(self.fuse)


modes = {}
