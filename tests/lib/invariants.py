# SPDX-License-Identifier: MIT OR Apache-2.0
"""The invariants of a tree in the kernel, looked at while it is scheduled with:
tests/lib/cpucheck.c for the CPU's, tests/lib/linkcheck.c for a link's."""
import subprocess

from live import check, compiled

PINS = "/sys/fs/bpf/reserv"


class Invariants:
    def __init__(self, program, plane, folder, waits, breaks=("break",)):
        """`waits`: which of the numbers says that there was something to look at."""
        self.breaks, self.waits = breaks, waits
        self.process = subprocess.Popen([compiled(program, beside=("sched", plane)), f"{PINS}/{folder}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.faults, self.times, self.most = [], 0, []
        assert self.ask("") == "ready"

    def ask(self, word):
        if word:
            self.process.stdin.write(word + "\n")
            self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def look(self):
        """Answers the numbers that are said of a sound tree; None at a fault, which end() reports.
        """
        said = self.ask("check")
        self.times += 1
        if not said.startswith("sound "):
            self.faults.append(said or "the checker has ended")
            return None
        counts = [int(word) for word in said.split()[1:]]
        self.most = [max(pair) for pair in zip(counts, self.most or counts)]
        return counts

    def end(self, text, broken=True):
        """What all looks have said. `broken`: each of what the checker can break for the time of a
        look must be found."""
        self.look()
        check(not self.faults and self.most and self.most[self.waits] > 0, f"{text}: the invariants held whenever they were looked at", f"{self.times} times, at most {self.most} {self.faults[:3]}")
        if broken:
            said = [self.ask(word) for word in self.breaks]
            check(all(word.startswith("fault: ") for word in said), "what is broken for a look is found", said)
            said = self.ask("check")
            check(said.startswith("sound"), "and is sound again", said)
        self.process.stdin.close()
        self.process.wait()


class CpuInvariants(Invariants):
    """The CPU's tree, under the full driver. The counts: nodes, items, those that wait, those of
    them that were posted."""

    def __init__(self):
        super().__init__("cpucheck", "bpf/cpu", "cpu", 2)
