# SPDX-License-Identifier: MIT OR Apache-2.0
"""A product of its own on this machine: in a cgroup, a mount name space and folders that nobody
else has, so that a reservd that runs here is not touched."""
import ctypes
import glob
import os
import signal
import subprocess
import sys
import tempfile
import time

from live import skip

libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWNET, MS_PRIVATE_ALL = 0x00020000, 0x40000000, 0x44000


def needs(*files):
    """What such a product asks of this machine, and a test of it."""
    for needed in files:
        if not os.path.exists(needed):
            skip(f"no {needed} here")
    with open("/proc/mounts", encoding="ascii") as mounts:
        unified = [line.split()[1] for line in mounts if line.split()[2] == "cgroup2"]
    if not unified or os.geteuid():
        skip("not root, or cgroup v2 is not mounted")
    return unified[0]


def run(name, main, seconds, *files, network=False):
    """main(scratch) there, within so many seconds, and in a network of its own if wanted; ends the
    program."""
    group = f"{needs(*files)}/reserv-{name}-{os.getpid()}"
    scratch = tempfile.mkdtemp(prefix=f"reserv-{name}-", dir="/dev/shm")
    os.mkdir(group)
    child = os.fork()
    if child == 0:
        signal.alarm(seconds)
        if libc.unshare(CLONE_NEWNS | (CLONE_NEWNET if network else 0)):
            sys.exit("no name spaces of its own")
        libc.mount(b"none", b"/", None, MS_PRIVATE_ALL, None)
        with open(f"{group}/cgroup.procs", "w", encoding="ascii") as procs:
            procs.write("0")
        os.makedirs(f"{scratch}/bpf")
        if libc.mount(b"bpf", f"{scratch}/bpf".encode(), b"bpf", 0, None):
            sys.exit("no bpf file system")
        os.environ.pop("RESERV_DRIVER", None)
        os.environ.update(RESERV_BPFFS=f"{scratch}/bpf/reserv", RESERV_TAG_CGROUP=group, RESERV_MOUNT=f"{scratch}/reserv", RESERV_RUN=f"{scratch}/run",
                          RESERV_CONFIG=f"{scratch}/none.toml", RESERV_CGROUP=f"reserv-{name}-{os.getpid()}")
        import live
        live.MOUNT = os.environ["RESERV_MOUNT"]
        main(scratch)
        sys.exit(1)

    def end(*_):
        """Who is told to end takes all with him that runs there."""
        with open(f"{group}/cgroup.kill", "w", encoding="ascii") as kill:
            kill.write("1")
        for top in glob.glob(f"/sys/fs/cgroup/*/reserv-{name}-{child}"):
            command = ["find", top, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";"]
            subprocess.run(command, check=False)

    signal.signal(signal.SIGTERM, end)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    for _ in range(600):
        try:
            os.rmdir(group)
            break
        except OSError:
            time.sleep(0.05)
    subprocess.run(["rm", "-rf", scratch], check=True)
    sys.exit(status)
