# SPDX-License-Identifier: MIT OR Apache-2.0
"""The block server by itself, as reservd uses it; and a load of files on a device of it that knows
afterwards what was acknowledged."""
import contextlib
import glob
import hashlib
import os
import random
import signal
import socket
import struct
import subprocess
import threading
import time

from live import RESERV

SERVER = os.path.join(os.path.dirname(RESERV), "reserv-blockd")
HELLO, EDIT, SAMPLE, STOP = 1, 2, 3, 8


class Server:
    """One over the file or device DATA; its files are PREFIX.*"""

    def __init__(self, front, data, prefix, log, *options):
        self.front, self.data, self.prefix, self.log, self.talk = front, data, prefix, log, None
        self.start("--front", front, *options)

    def start(self, *options):
        with open(self.log, "a", encoding="utf-8") as log:
            self.keeper = subprocess.Popen([SERVER, *options, self.data, self.prefix], stderr=log)

    def wait_device(self):
        end = time.monotonic() + 60
        while not self.hello()["dev"] and time.monotonic() < end:
            time.sleep(0.05)
        return "/dev/" + self.hello()["name"].split(b"\0")[0].decode()

    def kill(self, keeper=False):
        """kill -9 of the worker; `keeper`: of both, so that nobody starts another one."""
        worker = self.hello()["pid"]
        if keeper:
            self.keeper.kill()
            self.keeper.wait()
        os.kill(worker, signal.SIGKILL)
        return worker

    def ask(self, what, a=0, body=b""):
        for _ in range(1000):
            try:
                if not self.talk:
                    self.talk = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                    self.talk.settimeout(60)
                    self.talk.connect(f"{self.prefix}.socket")
                self.talk.send(struct.pack("IIQ", what, 0, a) + body)
                got = self.talk.recv(1 << 16)
                if got:
                    return struct.unpack("iIQ", got[:16])[0], got[16:]
            except OSError:
                pass
            self.talk = None
            time.sleep(0.02)
        raise RuntimeError("the server does not answer: " + open(self.log, encoding="utf-8").read())

    def hello(self):
        names = "version", "pid", "dev", "seq", "size", "poison", "restarts", "depth", "strays", "name", "front"
        return dict(zip(names, struct.unpack("IIQQQQIIQ32s16s", self.ask(HELLO)[1][:104])))

    def nodes(self):
        body = self.ask(SAMPLE)[1]
        return {node[0]: node for node in struct.iter_unpack("QQQQQQIIIBBBB", body)}

    def edit(self, seq, *ops):
        """ops: (code, node, parent, a, b)"""
        body = struct.pack("QQIiII", seq, 0, len(ops), 0, 0, 0)
        body += b"".join(struct.pack("IiQQQQQQ", code, 0, node, parent, a, b, 0, 0) for code, node, parent, a, b in ops)
        return self.ask(EDIT, 0, body.ljust(32 + 128 * 56, b"\0"))[0]


def tasks(of="[0-9]*"):
    """Name, state and folder in /proc of the threads of a process, or of all. Those that end
    meanwhile are left out."""
    for folder in glob.glob(f"/proc/{of}/task/[0-9]*"):
        with contextlib.suppress(OSError), open(f"{folder}/stat", encoding="utf-8") as file:
            name, _, rest = file.read().rpartition(")")
            yield name.partition("(")[2], rest.split()[0], folder


def stuck(log):
    """What is known of a server that does not answer: its log, where its threads and those that
    wait for a disk are in the kernel, and how many requests each device has."""
    said = [open(log, encoding="utf-8").read()]
    for name, state, folder in tasks():
        if name == "reserv-blockd" or state == "D":
            with contextlib.suppress(OSError), open(f"{folder}/stack", encoding="utf-8") as file:
                said.append(f"{folder} {name} {state}\n{file.read()}")
    for path in glob.glob("/sys/block/*/inflight"):
        with open(path, encoding="ascii") as file:
            said.append(f"{path}: {file.read().strip()}")
    return "\n".join(said)


def slow_disk(ms, mb=64, depth=1):
    """A disk of the kernel's (scsi_debug) of so many MB that serves one request at a time (or
    more), in so many ms; its name."""
    # Another test of the same boot may have left one that takes another time.
    subprocess.run(["modprobe", "-r", "scsi_debug"], check=False)
    time_of = f"ndelay={ms}000000" if ms else "delay=0"
    for line in "modprobe sd_mod", f"modprobe scsi_debug dev_size_mb={mb} max_queue={depth} {time_of} per_host_store=0":
        subprocess.run(line.split(), check=True)
    with open("/sys/module/scsi_debug/parameters/ndelay", encoding="ascii") as file:
        told = int(file.read())
    if told != ms * 1_000_000:
        raise RuntimeError(f"scsi_debug is there already, with {told} ns a request")
    end = time.monotonic() + 30
    while time.monotonic() < end:
        found = glob.glob("/sys/bus/pseudo/drivers/scsi_debug/adapter*/host*/target*/*/block/*")
        if found and os.path.exists("/dev/" + os.path.basename(found[0])):
            return os.path.basename(found[0])
        time.sleep(0.05)
    raise RuntimeError("scsi_debug made no disk")


def null_disk(folder, **attributes):
    """A disk of null_blk like that, with no others; its path. Its attributes are in
    /sys/kernel/config/nullb/FOLDER."""
    at = f"/sys/kernel/config/nullb/{folder}"
    subprocess.run(["modprobe", "null_blk", "nr_devices=0"], check=True)
    if not os.path.isdir(os.path.dirname(at)):
        subprocess.run("mount -t configfs none /sys/kernel/config".split(), check=True)
    os.makedirs(at)
    for name, value in *attributes.items(), ("power", 1):
        with open(f"{at}/{name}", "w", encoding="ascii") as file:
            file.write(str(value))
    # Newer kernels name it as the folder.
    with open(f"{at}/index", encoding="ascii") as file:
        names = f"/dev/{folder}", f"/dev/nullb{file.read().strip()}"
    return next(name for name in names if os.path.exists(name))


class Files(threading.Thread):
    """Writes files of a folder, each with fsync and a pause, and goes on until it is told.
    `digests`: what must be there; `error`: what went wrong."""

    def __init__(self, folder, seed, pause=0):
        super().__init__(daemon=True)
        self.folder, self.dice = folder, random.Random(seed)
        self.pause, self.seed, self.digests, self.error, self.over, self.done = pause, seed, {}, None, threading.Event(), 0

    def run(self):
        try:
            while not self.over.is_set():
                name = f"{self.folder}/{self.seed}-{self.dice.randrange(40)}"
                data = self.dice.randbytes(self.dice.randrange(1, 60000))
                self.digests.pop(name, None)
                with open(name, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                self.digests[name] = hashlib.sha256(data).digest()
                self.done += 1
                self.over.wait(self.pause)
        except OSError as error:
            self.error = error

    def end(self):
        self.over.set()
        self.join()

    def wrong(self):
        """Files that are not as they were acknowledged."""
        bad = []
        for name, digest in self.digests.items():
            with open(name, "rb") as file:
                if hashlib.sha256(file.read()).digest() != digest:
                    bad.append(name)
        return bad
