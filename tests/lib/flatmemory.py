# SPDX-License-Identifier: MIT OR Apache-2.0
"""The memory of reservd over many operations, by root and by a user at once: nodes made, renamed
and removed, weights, files opened and read, tags of processes that end, lists, access lists,
requests that are refused, and (root's) the control socket. What is compared is what the daemon's
processes have for themselves, after a fifth of the operations and after all of them: by the fifth
nearly every table that has a bound is full."""

import contextlib
import os
import random
import socket
import time

from daemon_harness import check, refusal, until

USER = 65534
PARTS = 5
# Bytes for each operation after the first fifth that are no leak, if there are at most so many
# operations: pages that the allocator takes and does not give back come to 300 kB, whatever the
# number. A leak of a hundred bytes for each node that is made is found in the short form, one of 13
# in the long one.
BYTES_EACH = ((100_000, 6), (1 << 62, 1))


class Load:
    """What one of the two does; `count` operations are reported through `done`."""

    def __init__(self, d, home, seed):
        self.d, self.home, self.random = d, home, random.Random(seed)
        self.turn = 0
        self.root = home == "cpu/root"
        self.wrong = {}

    def expect(self, wanted, call, *args):
        got = refusal(call, *args)
        if got not in wanted:
            self.wrong[call.__name__, got] = args

    def read(self, path):
        with open(path, "rb", buffering=0) as f:
            f.read(65536)

    def ask(self, line):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(30)
            s.connect(self.d.run + "/control.sock")
            s.sendall(line)
            s.recv(65536)

    def run(self):
        """A dozen operations about a node that comes and goes; how many."""
        self.turn += 1
        top = f"{self.d.mount}/{self.home}"
        node, other = f"{top}/n{self.turn % 997}", f"{top}/m{self.turn % 991}"
        weight = self.random.randrange(1, 1000)
        self.expect({0}, self.d.write, f"{self.home}/mk", f"queue {os.path.basename(node)} {weight}")
        self.expect({0}, self.d.write, f"{node[len(self.d.mount) + 1:]}/share", f"{weight + 1} 0")
        self.expect({22}, self.d.write, f"{node[len(self.d.mount) + 1:]}/share", f"x{self.turn}")
        for name in "share", "stat", "members":
            self.expect({0}, self.read, f"{node}/{name}")
        self.expect({0}, os.listdir, top)
        self.expect({0}, os.rename, node, other)
        self.expect({17}, os.mkdir, other)
        self.expect({2}, os.rmdir, f"{top}/none{self.turn}")
        self.expect({13} if not self.root else {2}, os.mkdir, f"{self.d.mount}/cpu/{'x' if not self.root else 'none/x'}{self.turn}")
        done = 13
        if self.turn % 8 == 0:
            done += self.process(other)
        if self.turn % 16 == 0:
            self.expect({0}, self.d.write, f"{other[len(self.d.mount) + 1:]}/access", f"allow uid {3000 + self.turn % 500} use")
            done += 1
        if self.root and self.turn % 8 == 0:
            self.ask(b'{"request":"read","path":"%s/stat"}\n' % other[len(self.d.mount) + 1:].encode())
            self.ask(b'{"request":"rmdir","path":"cpu/none%d","number":%d}\n' % (self.turn, self.turn))
            done += 2
        self.expect({0}, os.rmdir, other)
        return done

    def process(self, node):
        """One that is tagged, has lists, and ends."""
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(theirs)
            os.read(ours, 1)
            os._exit(0)
        os.close(ours)
        node = node[len(self.d.mount) + 1:]
        self.expect({0}, self.d.write, f"{node}/members", f"{pid}")
        self.expect({0}, self.d.write, f"proc/{pid}/default", f"{node}")
        self.read(f"{self.d.mount}/proc/{pid}/domain")
        os.close(theirs)
        os.waitpid(pid, 0)
        return 5


def own(pid):
    """kB that a process has for itself."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith(("Anonymous:", "Swap:")))


def memory(d):
    found = d.processes()
    return {role: own(pid) for role, pid in sorted(found.items()) if role in ("keeper", "worker")}


def at_rest(d):
    """When what is looked after in turn (names that went, members that ended) is done: until
    its memory gets less no more. On a busy machine that takes longer. What leaks stays."""
    least = memory(d)
    for _ in range(20):
        time.sleep(0.5)
        before, now = least, memory(d)
        least = {role: min(kb, before.get(role, kb)) for role, kb in now.items()}
        if least == before:
            break
    return least


def worker(d, home, count, seed, uid):
    """In a process of its own: runs until as many are done, in parts that the pipes begin and end.
    """
    begin, begun = os.pipe()
    ended, end = os.pipe()
    pid = os.fork()
    if pid:
        os.close(begin)
        os.close(end)
        return pid, begun, ended
    os.close(begun)
    os.close(ended)
    if uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    load = Load(d, home, seed)
    while os.read(begin, 1) == b".":
        done = 0
        while done < count // PARTS:
            done += load.run()
        os.write(end, b"." if not load.wrong else repr(load.wrong).encode()[:4000])
    os._exit(0)


def flat(d, count, seed=None):
    """Does `count` operations, and looks."""
    seed = seed if seed is not None else int(os.environ.get("RESERV_SEED", random.randrange(1 << 32)))
    print(f"# RESERV_SEED={seed}", flush=True)
    for home in "cpu/root", "cpu/user":
        os.mkdir(f"{d.mount}/{home}")
    d.write("cpu/user/access", f"allow uid {USER} all quota 100")
    d.write("cpu/q0/access", f"allow uid {USER} use")
    began = time.monotonic()
    before = d.worker()
    both = [worker(d, "cpu/root", count // 2, seed, 0), worker(d, "cpu/user", count // 2, seed + 1, USER)]
    seen, wrong = [], []
    for _ in range(PARTS):
        for _, begun, _ in both:
            os.write(begun, b".")
        wrong += [said for said in (os.read(ended, 8192) for _, _, ended in both) if said != b"."]
        seen.append(at_rest(d))
        print(f"# {len(seen)}/{PARTS}: {time.monotonic() - began:.0f} s, kB {seen[-1]}", flush=True)
    for pid, begun, ended in both:
        os.write(begun, b"q")
        os.close(begun)
        os.close(ended)
        os.waitpid(pid, 0)
    took = time.monotonic() - began
    print(f"# {count} operations in {took:.0f} s", flush=True)
    check(not wrong, f"{count} operations by root and a user are answered as they should be", wrong[:2])
    check(d.worker() == before, "by one worker")
    each = next(bytes for most, bytes in BYTES_EACH if count <= most)
    for role in seen[0]:
        first, last = seen[0][role], seen[-1].get(role, 1 << 30)
        grown = (last - first) * 1024 / (count * (PARTS - 1) / PARTS)
        check(grown <= each, f"the {role}'s memory is flat: {first} kB after a fifth of them, {last} kB after all, "
              f"{grown:.1f} bytes for each between, at most {each}", seen)
    with contextlib.suppress(OSError):
        until(lambda: not d.dirs("cpu/user"), "the end of the user's nodes", 10)
    return seen
