#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""In a guest whose power is taken away (tests/host/vm-suspend starts it): ACPI's S3, and the
machine outside gives it back. All that runs is in memory, below a root of its own, for the guest's
file server cannot be suspended: its driver is taken off first, and nothing outside of that root is
to be had from there on."""
import ctypes
import glob
import os
import shutil
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import live as everything  # noqa: E402
from blockd import SERVER, null_disk  # noqa: E402
from cgroups import get, ran  # noqa: E402
from link import backlog  # noqa: E402
from live import RESERV, WORKLOAD, Live, build_workload, check, compiled, finish  # noqa: E402
from shell import sh  # noqa: E402

WHERE = "/run/suspended"
LINK, DISK, MARK = "sleeps0", "sleeps", b"as it is"
VIRTIOFS = "/sys/bus/virtio/drivers/virtiofs"


def put(path, value):
    # Not by a buffer, which tries once more when it is closed.
    with open(path, "wb", buffering=0) as file:
        file.write(str(value).encode())


def root_in_memory(*programs):
    """A root with these, what they load, and this kernel's file systems; this process is in it
    afterwards, and the file server is gone."""
    os.makedirs(WHERE)
    sh(f"mount -t tmpfs none {WHERE}")
    for program in programs:
        libraries = [word for word in sh(f"ldd {program} || true").split() if word.startswith("/")]
        for file in {program, *libraries}:
            os.makedirs(WHERE + os.path.dirname(file), exist_ok=True)
            shutil.copy(file, WHERE + file)
    for kernels in "proc", "sys", "dev":
        os.makedirs(f"{WHERE}/{kernels}")
        sh(f"mount --rbind /{kernels} {WHERE}/{kernels}")
    for own in "run", "tmp", "reserv", "etc":
        os.makedirs(f"{WHERE}/{own}", exist_ok=True)
    if ctypes.CDLL(None, use_errno=True).mlockall(3):
        raise OSError(ctypes.get_errno(), "mlockall")
    os.chroot(WHERE)
    os.chdir("/")
    for device in glob.glob(f"{VIRTIOFS}/virtio*"):
        put(f"{VIRTIOFS}/unbind", os.path.basename(device))


def suspended():
    """Whether the kernel was suspended, down to its last processor."""
    successes = "/sys/power/suspend_stats/success"
    before = int(get(successes))
    put("/sys/power/mem_sleep", "deep")
    try:
        put("/sys/power/state", "mem")
    except OSError as error:
        print(f"# {error}: {get('/sys/power/suspend_stats/last_failed_step').strip()}", flush=True)
    return int(get(successes)) > before


def same(live, hogs, when):
    """All goes on: processor, link and disk."""
    resources = live.status()["resources"]
    check(resources["cpu"]["state"] == "running" and not resources["cpu"]["detachments"], f"{when}: the scheduler was not thrown out", resources["cpu"]["detachments"])
    was, processor = [live.service(queue) for queue in "ab"], [ran(hog) for hog in hogs]
    # As long as it takes: instruction time (--icount) is not to be had, for the emulator does not
    # wake from S3 with it; and on a busy machine an emulated processor may stand still for a
    # second, which is made up for after it.
    for _ in range(24):
        time.sleep(1.5)
        got = [live.service(queue) - then for queue, then in zip("ab", was)]
        if abs(got[0] / sum(got) - 0.25) < 0.03:
            break
    check(abs(got[0] / sum(got) - 0.25) < 0.05, f"{when}: shared 1:3", f"{got[0] / sum(got):.4f}")
    check(all(hog.poll() is None and ran(hog) > then for hog, then in zip(hogs, processor)), f"{when}: every thread goes on")
    sent = backlog("q0", LINK)["served"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        out.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, LINK.encode())
        for _ in range(20):
            out.sendto(b"x" * 100, ("255.255.255.255", 9))
    live.wait(f"{when}: the link sends", lambda: backlog("q0", LINK)["served"] >= sent + 20)
    with open(f"/dev/reserv/{DISK}", "rb", buffering=0) as disk:
        os.posix_fadvise(disk.fileno(), 0, 4096, os.POSIX_FADV_DONTNEED)
        check(disk.read(8) == MARK, f"{when}: what was written to the disk is there")


build_workload()
load = compiled("diskload")
sh("modprobe -a null_blk ublk_drv veth && ip link add sleeps0 type veth peer name sleeps1 && ip address add 10.9.9.1/24 dev sleeps0 && ip link set sleeps0 up && ip link set sleeps1 up")
device = null_disk(DISK, size=64, memory_backed=1)
with open(device, "r+b") as raw:
    raw.write(MARK)
# The console, which the machine outside reads, is to tell it.
put("/proc/sys/kernel/printk", 7)
put("/sys/module/printk/parameters/console_suspend", "N")
everything.build_workload = lambda: None
root_in_memory(RESERV, os.path.join(os.path.dirname(RESERV), "reservd"), SERVER, WORKLOAD, load, "/usr/bin/taskset")
with Live("full", "--disk", device, "--net", LINK, "--rate", "10mbit") as live:
    live.reserv("set", "q0", "share=1000")
    live.mk("a", 100)
    live.mk("b", 300)
    # Two in each queue, so that on two CPUs, too, the weights can be used.
    hogs = [live.spin(queue) for queue in ("a", "a", "b", "b")]
    live.all_run(["a", "b"])
    same(live, hogs, "before")
    for turn in "once", "twice":
        check(suspended(), f"the kernel was suspended {turn}")
        same(live, hogs, turn)

    # Who waits for a request of a disk whose server is frozen already cannot be frozen: the kernel
    # gives up (after 20 s, if not told otherwise), or it comes off. Either is all right, if all
    # goes on.
    live.mk(f"{DISK}/r", 100)
    reader = subprocess.Popen([RESERV, "run", "--disk", f"{DISK}/r", "--", load, f"/dev/reserv/{DISK}", "4096", "4", "0", "read"])
    live.wait("the disk is read", lambda: backlog("r", DISK)["served"] > 100)
    put("/sys/power/pm_freeze_timeout", 3000)
    print(f"# with a busy disk: {'suspended' if suspended() else 'refused'}", flush=True)
    was = backlog("r", DISK)["served"]
    live.wait("and goes on being read, without an error", lambda: backlog("r", DISK)["served"] > was + 100 and reader.poll() is None)
    reader.kill()
    reader.wait()
    same(live, hogs, "with a busy disk")
finish()
