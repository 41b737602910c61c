# SPDX-License-Identifier: MIT OR Apache-2.0
"""Owners of requests through what is stacked above scheduled disks: a partition, device mapper
(linear, striped, crypt), md (RAID 1, 0) and a loop device. Two null_blk disks with memory; what
each queue was served is counted exactly, in bytes where a file system may join or split requests,
and q0 is the control: it has what nobody tagged. Without mdadm and LVM: dmsetup, and the kernel's
own files."""
import ctypes
import mmap
import os
import shutil
import struct
import subprocess
import sys
import time

from live import AGE, MOUNT, RESERV, Live, check
from shell import sh
from tagfs import set_queue

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
os.environ.setdefault("RESERV_LIBRARY", os.path.join(os.path.dirname(os.path.abspath(RESERV)), "libreserv.so"))
sys.path.insert(0, os.path.join(TOP, "python"))
import reserv  # noqa: E402

libc = ctypes.CDLL(None, use_errno=True)
BLOCK, MS_NOATIME = 4096, 1024
DISKS = "nullb0", "nullb1"
QUEUES = "a", "b", "q0"


def backlog(word):
    """What each queue was served, by disk."""
    time.sleep(AGE)
    got = {}
    for disk in DISKS:
        for queue in QUEUES:
            with open(f"{MOUNT}/{disk}/{queue}/backlog", encoding="ascii") as file:
                got[f"{disk}/{queue}"] = int(next(line.split()[1] for line in file if line.startswith(word)))
    return got


def by(what, word="served"):
    """What was served for it, where that is something."""
    before = backlog(word)
    what()
    after = backlog(word)
    return {queue: after[queue] - before[queue] for queue in after if after[queue] != before[queue]}


def total(got, disks):
    """Of what `by` told: each queue's, on all of the disks."""
    return {queue: sum(got.get(f"{disk}/{queue}", 0) for disk in disks) for queue in QUEUES}


def called(name, *arguments):
    """A function of the C library. The start of a program is what costs most in the guest."""
    if getattr(libc, name)(*arguments):
        raise OSError(ctypes.get_errno(), f"{name} {arguments}")


def mount(path, where):
    called("mount", path.encode(), where.encode(), b"ext4", MS_NOATIME, b"commit=600")


def again(path, where):
    """Mounted anew: nothing of this file system is in the page cache."""
    called("umount2", where.encode(), 0)
    mount(path, where)


memory = mmap.mmap(-1, 256 * BLOCK)


def reads(fd, count, size=BLOCK, first=0):
    with memoryview(memory)[:size] as view:
        for n in range(first, first + count):
            if os.preadv(fd, [view], n * size) != size:
                raise RuntimeError(f"a short read at {n * size}")


def writes(fd, count, size=BLOCK):
    with memoryview(memory)[:size] as view:
        for n in range(count):
            if os.pwritev(fd, [view], n * size) != size:
                raise RuntimeError(f"a short write at {n * size}")


def asynchronous(fd, count, apart=2):
    """libaio: all at once; `apart` blocks apart, so that with 1 they may be joined."""
    context = ctypes.c_ulong(0)
    where = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if libc.syscall(206, count, ctypes.byref(context)):
        raise OSError(ctypes.get_errno(), "io_setup")
    blocks = [ctypes.create_string_buffer(struct.pack("QIIHhIQQqQII", n, 0, 0, 0, 0, fd, where + n * BLOCK, BLOCK, n * apart * BLOCK, 0, 0, 0), 64) for n in range(count)]
    pointers = (ctypes.c_void_p * count)(*map(ctypes.addressof, blocks))
    events = ctypes.create_string_buffer(32 * count)
    if libc.syscall(209, context, count, pointers) != count or libc.syscall(208, context, count, count, events, None) != count:
        raise OSError(ctypes.get_errno(), "io_submit")
    done = [struct.unpack_from("QQqq", events, 32 * n)[2] for n in range(count)]
    libc.syscall(207, context)
    if done != [BLOCK] * count:
        raise RuntimeError(done)


def direct(path, how=os.O_RDONLY):
    return os.open(path, how | os.O_DIRECT)


def opened(path, tags, how=os.O_RDONLY):
    """An open file, tagged by F_SET_QUEUE."""
    fd = direct(path, how)
    try:
        for queue in tags:
            reserv.set_queue(fd, queue)
    except OSError:
        os.close(fd)
        raise
    return fd


def as_process(queues, what):
    """In a process with these default queues."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            reserv.set_default(*queues)
            what()
            status = 0
        except BaseException as error:  # noqa: B036 - it must not return into the parent's code
            print(f"# {error!r}", flush=True)
        os._exit(status)
    if os.waitpid(child, 0)[1]:
        check(False, "a process of a queue did its work")


def reaches(fd, queue, end):
    """What the hooks say in the end of a file and a queue: 1 where it lives on that disk."""
    while (got := set_queue(fd, queue)) != 1 and time.monotonic() < end:
        time.sleep(0.02)
    return got


def come_and_go(below, times, text):
    """Volumes above several disks, each of which has somebody of reservd's who looks: none of them
    takes away what another has told."""
    lost = []
    queues = [os.open(f"{MOUNT}/{queue}", os.O_RDONLY) for queue in named(DISKS, "a")]
    for turn in range(times):
        fd, end = direct(dm("again", f"0 1024 linear {below} 0\n")), time.monotonic() + 5
        lost += [(turn, disk) for disk, queue in zip(DISKS, queues) if reaches(fd, queue, end) != 1]
        os.close(fd)
        sh("dmsetup remove --retry again")
    for queue in queues:
        os.close(queue)
    check(not lost, f"{text}: each of {times} that come and go is known to all disks", lost)


def known(path, disks, text):
    """What has come a moment ago is tagged at once where reservd may be asked (libreserv does), and
    known to the hooks themselves, and so to default lists, soon after."""
    fd = direct(path)
    try:
        for queue in named(disks, "a"):
            reserv.set_queue(fd, queue)
        check(True, f"{text} is tagged as soon as it is there")
    except OSError as error:
        check(False, f"{text} is tagged as soon as it is there", error)
    os.close(fd)
    end = time.monotonic() + 10
    for queue in named(disks, "a"):
        qfd = os.open(f"{MOUNT}/{queue}", os.O_RDONLY)
        fd = direct(path)
        if (got := reaches(fd, qfd, end)) != 1:
            check(False, f"{text} is known to live on the disk of {queue}", got)
        os.close(fd)
        os.close(qfd)


def named(disks, queue):
    return [f"{disk}/{queue}" for disk in disks]


def each(disks, queue, n):
    return {f"{disk}/{queue}": n for disk in disks}


def direct_reads(text, path, disks=DISKS[:1], each_of=4):
    """Direct reads of a device: by the tag of the descriptor, by libaio, by the default list, and
    untagged."""
    known(path, disks, text)
    os.sync()  # what a file system below has to write is q0's
    count = each_of * len(disks)
    one, two, plain = opened(path, named(disks, "a")), opened(path, named(disks, "b")), direct(path)
    check([reserv.get_queue(one, disk) for disk in disks] == [f"{MOUNT}/{disk}/a" for disk in disks], f"{text}: the descriptor's queue of each disk is told")
    got = by(lambda: (reads(one, count), reads(two, 2 * count)))
    check(got == {**each(disks, "a", each_of), **each(disks, "b", 2 * each_of)}, f"{text}: a direct read is its descriptor's", got)
    got = by(lambda: (asynchronous(two, count, 1 if len(disks) > 1 else 2), asynchronous(one, count, 1 if len(disks) > 1 else 2)), "service_bytes")
    check(got == {**each(disks, "a", each_of * BLOCK), **each(disks, "b", each_of * BLOCK)}, f"{text}: libaio too", got)
    got = by(lambda: as_process(named(disks, "b"), lambda: reads(direct(path), count)))
    check(got == each(disks, "b", each_of), f"{text}: what a process of a queue opens has its queue", got)
    got = by(lambda: reads(plain, count))
    check(got == each(disks, "q0", each_of), f"{text}: untagged is q0's", got)
    for fd in one, two, plain:
        os.close(fd)


def files(text, path, disks, where, copies=1, own=0):
    """Buffered writes and their writeback by two processes of two queues, buffered and mapped
    reads. Bytes: the file system's own are q0's. An array's `own` (superblocks, bitmaps) are, too,
    or where its driver writes them within a call of the writer's, his."""
    # A small one: what it writes of itself at its beginning is no part of this.
    subprocess.run(["mkfs.ext4", "-q", "-N", "32", "-J", "size=1", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", path], check=True)
    os.makedirs(where, exist_ok=True)
    mount(path, where)
    size = 1 << 20

    def write(name):
        with open(f"{where}/{name}", "wb", buffering=0) as file:
            file.write(os.urandom(size))
            os.fsync(file.fileno())

    def both():
        as_process(named(disks, "a"), lambda: write("one"))
        as_process(named(disks, "b"), lambda: (write("two"), write("three")))
    os.sync()
    got = by(both, "service_bytes")
    sums = total(got, disks)
    check(0 <= sums["a"] - copies * size <= own and 0 <= sums["b"] - 2 * copies * size <= own and 0 < sums["q0"] < copies * size, f"{text}: what is written back is the last writer's, the file system's blocks are q0's", got)

    def lazy():
        with open(f"{where}/lazy", "wb", buffering=0) as file:
            file.write(bytes(size))
    got = by(lambda: (as_process(named(disks, "a"), lazy), os.sync()), "service_bytes")
    check(0 <= total(got, disks)["a"] - copies * size <= own, f"{text}: also when somebody else has it written, later", got)
    again(path, where)
    fd = os.open(f"{where}/one", os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    for disk in disks:
        reserv.set_queue(fd, f"{disk}/b")
    got = by(lambda: [os.pread(fd, BLOCK, n * 8 * BLOCK) for n in range(10)], "service_bytes")
    sums = total(got, disks)
    check(sums["b"] >= 10 * BLOCK and not sums["a"], f"{text}: a buffered read is its descriptor's", got)
    os.close(fd)
    again(path, where)

    def mapped():
        with open(f"{where}/two", "rb") as file, mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ) as view:
            sum(view[n] for n in range(0, size, BLOCK))
    got = by(lambda: as_process(named(disks, "a"), mapped), "service_bytes")
    sums = total(got, disks)
    check(sums["a"] >= size and not sums["b"], f"{text}: mapped memory is read for who touches it", got)
    with open(f"{where}/three", "rb") as file:
        file.read()

    def changed():
        with open(f"{where}/three", "r+b") as file, mmap.mmap(file.fileno(), size) as view:
            for at in range(0, size, BLOCK):
                view[at] = 1
            view.flush()
    got = by(lambda: as_process(named(disks, "a"), changed), "service_bytes")
    sums = total(got, disks)
    check(0 <= sums["a"] - copies * size <= own and not sums["b"], f"{text}: and written for who changes it", got)


def read(path):
    with open(path, encoding="ascii") as file:
        return file.read().strip()


def dm(name, table):
    subprocess.run(["dmsetup", "create", name], input=table, text=True, check=True, capture_output=True)
    return next(f"/dev/{disk}" for disk in os.listdir("/sys/block") if disk.startswith("dm-") and read(f"/sys/block/{disk}/dm/name") == name)


def md(name, level, below, sectors, chunk=0):
    """An array without data of its own on the devices, by the kernel's files."""
    with open("/sys/module/md_mod/parameters/new_array", "w", encoding="ascii") as file:
        file.write(name)
    top = f"/sys/block/{name}/md"

    def put(file, value):
        with open(f"{top}/{file}", "w", encoding="ascii") as out:
            out.write(str(value))
    put("metadata_version", "none")
    put("level", level)
    put("raid_disks", len(below))
    if chunk:
        put("chunk_size", chunk)
        put("layout", 0)
    put("component_size", sectors // 2)
    for slot, device in enumerate(below):
        number = os.stat(device).st_rdev
        put("new_dev", f"{os.major(number)}:{os.minor(number)}")
        member = "dev-" + os.path.basename(os.path.realpath(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}"))
        put(f"{member}/offset", 0)
        put(f"{member}/size", sectors // 2)
        put(f"{member}/slot", slot)
    if level != "raid0":
        put("resync_start", "none")
    put("array_state", "active")
    return f"/dev/{name}"


def stop(path):
    with open(f"/sys/block/{os.path.basename(path)}/md/array_state", "w", encoding="ascii") as file:
        file.write("clear")


def encrypted(below, short):
    """dm-crypt, which writes from memory of its own. Its structures differ between kernels."""
    sh("modprobe dm_crypt")
    crypt = dm("crypt", f"0 102400 crypt aes-xts-plain64 {'5a' * 64} 0 {below[0]} 0\n")
    if short:
        known(crypt, DISKS[:1], "an encrypted volume")
    else:
        direct_reads("an encrypted volume", crypt)
    fd = opened(crypt, named(DISKS[:1], "a"), os.O_RDWR)
    got = by(lambda: writes(fd, 9))
    check(got == {f"{DISKS[0]}/a": 9}, "an encrypted volume: a direct write is its descriptor's", got)
    os.close(fd)
    sh("dmsetup remove crypt")


def run(short=False):
    """`short`: what differs between kernels (how a request leads to its original, to its file and
    to its page), and not each of these on each kind of device."""
    sh("modprobe -r null_blk; modprobe null_blk nr_devices=2 gb=1 memory_backed=1; modprobe -a loop raid1")
    where = "/run/stacked"
    with Live("stock", "--disk", f"/dev/{DISKS[0]}", "--disk", f"/dev/{DISKS[1]}") as live:
        for disk in DISKS:
            for queue in "a", "b":
                reserv.mkqueue(f"{disk}/{queue}", 100)
        below = [f"/dev/reserv/{disk}" for disk in DISKS]
        real = os.path.realpath(below[0])

        sh(f"addpart {real} 1 2048 204800")
        direct_reads("a partition", f"{real}p1")
        sh(f"delpart {real} 1")

        linear = dm("linear", f"0 204800 linear {below[0]} 2048\n")
        direct_reads("a linear volume", linear)
        refused = live.reserv("disk", "detach", DISKS[0], ok=False)
        check(refused.returncode and "linear" in refused.stderr, "a disk below a volume is not taken away, and the volume is named", refused.stderr.strip())
        live.reserv("tag", f"{DISKS[0]}/a", f"{os.getpid()}/{(fd := direct(linear))}")
        got = by(lambda: reads(fd, 5))
        check(got == {f"{DISKS[0]}/a": 5}, "a linear volume: reservd tags an open file of it", got)
        refused = live.reserv("tag", f"{DISKS[1]}/a", f"{os.getpid()}/{fd}", ok=False)
        check(refused.returncode and "is no file or socket of" in refused.stderr, "but not for a disk that it does not live on", refused.stderr.strip())
        os.close(fd)
        files("a linear volume", linear, DISKS[:1], where)
        with open(f"{where}/image", "wb") as file:
            file.write(bytes(8 << 20))
            os.fsync(file.fileno())
        loop = sh(f"losetup --show --find --direct-io=on {where}/image").strip()
        direct_reads("a loop device on a volume", loop)
        if not short:
            files("a loop device on a volume", loop, DISKS[:1], f"{where}-loop")
            called("umount2", f"{where}-loop".encode(), 0)
        sh(f"losetup --detach {loop}")
        # The kernel lets go of a loop device's file a moment after the device is gone.
        live.wait("the loop device's file is free", lambda: subprocess.run(["umount", where], check=False, capture_output=True).returncode == 0)
        sh("dmsetup remove linear")

        encrypted(below, short)

        striped = dm("striped", f"0 204800 striped 2 8 {below[0]} 0 {below[1]} 0\n")
        direct_reads("a volume in stripes over two disks", striped, DISKS)
        fd = opened(striped, named(DISKS, "a"))
        got = by(lambda: reads(fd, 4, 16 * BLOCK), "service_bytes")
        check(got == each(DISKS, "a", 4 * 8 * BLOCK), "a read over many stripes is its descriptor's in all its parts", got)
        reserv.set_queue(fd, f"{DISKS[1]}/b")
        got = by(lambda: reads(fd, 4))
        check(got == {f"{DISKS[0]}/a": 2, f"{DISKS[1]}/b": 2}, "it has a queue of each of them, which change one by one", got)
        reserv.set_queue(fd, f"{DISKS[0]}/q0")
        got = by(lambda: reads(fd, 4))
        check(got == {f"{DISKS[0]}/q0": 2, f"{DISKS[1]}/b": 2}, "and are taken back one by one", got)
        os.close(fd)
        # The second stripe's memory is where a request of somebody else's began, a moment ago.
        one, two = (opened(striped, named(DISKS, queue), os.O_RDWR) for queue in ("a", "b"))
        with memoryview(memory) as view:
            os.pwritev(two, [view[BLOCK:2 * BLOCK]], 0)
            got = by(lambda: os.pwritev(one, [view[:2 * BLOCK]], 0), "service_bytes")
        check(got == each(DISKS, "a", BLOCK), "and whose memory it was before does not count", got)
        os.close(one)
        os.close(two)
        if not short:
            files("a volume in stripes over two disks", striped, DISKS, where)
            called("umount2", where.encode(), 0)
        sh("dmsetup remove striped")

        mirror = md("md101", "raid1", below, 204800)
        known(mirror, DISKS, "a mirror")
        one, two, plain = (opened(mirror, tags, os.O_RDWR) for tags in (named(DISKS, "a"), named(DISKS, "b"), []))
        got = by(lambda: (writes(one, 7), writes(two, 9)))
        check(got == {**each(DISKS, "a", 7), **each(DISKS, "b", 9)}, "a mirror: a direct write is its descriptor's on both disks", got)
        got = by(lambda: (reads(one, 6), reads(two, 11), reads(plain, 3)))
        check(total(got, DISKS) == {"a": 6, "b": 11, "q0": 3}, "a mirror: a direct read too, from whichever it is; untagged is q0's", got)
        for fd in one, two, plain:
            os.close(fd)
        volume = dm("onmirror", f"0 102400 linear {mirror} 0\n")
        known(volume, DISKS, "a volume on a mirror")
        fd = opened(volume, named(DISKS, "b"), os.O_RDWR)
        got = by(lambda: writes(fd, 5))
        check(got == each(DISKS, "b", 5), "a volume on a mirror: through both", got)
        os.close(fd)
        sh("dmsetup remove --retry onmirror")
        come_and_go(mirror, 5 if short else 20, "volumes on a mirror")
        stop(mirror)

        # As LVM makes a mirror: each half is a volume of its own, on one disk.
        halves = [dm(f"half{n}", f"0 204800 linear {disk} 0\n") for n, disk in enumerate(below)]
        mirror = md("md103", "raid1", halves, 204800)
        known(mirror, DISKS, "a mirror of volumes")
        one, two, plain = (opened(mirror, tags, os.O_RDWR) for tags in (named(DISKS, "a"), named(DISKS, "b"), []))
        got = by(lambda: (writes(one, 7), writes(two, 9), writes(plain, 4)))
        check(got == {**each(DISKS, "a", 7), **each(DISKS, "b", 9), **each(DISKS, "q0", 4)}, "a mirror of volumes: a direct write is its descriptor's on both disks; untagged is q0's", got)
        for fd in one, two, plain:
            os.close(fd)
        if not short:
            files("a mirror of volumes", mirror, DISKS, where, 2)
            called("umount2", where.encode(), 0)
        stop(mirror)
        sh("dmsetup remove --retry half0 && dmsetup remove --retry half1")

        if not short:
            sh("modprobe raid0")
            stripes = md("md102", "raid0", below, 204800, BLOCK)
            direct_reads("RAID 0", stripes, DISKS)
            stop(stripes)
        shutil.rmtree(where)
        # The kernel lets go of what was above a disk a moment after that is gone.
        for disk in DISKS:
            live.wait(f"with nothing above it {disk} is given back", lambda disk=disk: live.reserv(
                "disk", "detach", disk, ok=False).returncode == 0)
