# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a link does with packets, in plain words: queues with limits, flows, edits. Says of the
programs (tests/lib/linksim.c), step by step, whether they do the same. Which queue is next is the
theorems' (tests/host/net_model) and the core's conformance suite's; here any queue with packets may
be, but within a queue packets keep their order."""
import collections
import subprocess

ROOT, Q0 = 1 << 32, 1 << 32 | 1
SCHED, QUEUE = 1, 2
FIFO, DRR = 3, 5
CREATE, DELETE, REWEIGHT, CAP, CLASS, POLICY, LIMIT, RESET, MOVE = range(1, 10)
RATE, DEFAULT_LIMIT, COLLECT, REVIVE = 1, 2, 4, 5
EBUSY, ETIMEDOUT = -16, -110
BURST = 0.02  # s of the rate that may follow at once after idleness
AHEAD = 1024  # bytes that may be sent ahead of the rate


class Wrong(Exception):
    """The programs and the model differ."""


def agree(what, got, wanted):
    if got != wanted:
        raise Wrong(f"{what}: {got}, and not {wanted}")


class Sim:
    """The programs."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def ask(self, *words):
        print(*words, file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise Wrong(f"{' '.join(map(str, words))}: the programs ended")
        return line.split()

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Queue:
    def __init__(self):
        self.own = collections.deque()  # packets, and sets of flows that were joined to them: {flow: packets}, flow by flow in any order
        self.flows = {}
        self.alg, self.limit, self.draining, self.capped = FIFO, (0, 0), False, False
        self.ending = False  # a batch that deletes it is under way: no flows are made
        self.packets = self.bytes = self.dropped = self.dropped_bytes = self.served = self.service = 0

    def heads(self):
        if not self.own:
            return [packets[0] for packets in self.flows.values()]
        return [packets[0] for packets in self.own[0].values()] if isinstance(self.own[0], dict) else [self.own[0]]

    def take(self, packet):
        if not self.own or isinstance(self.own[0], dict):
            flows = self.own[0] if self.own else self.flows
            flows[packet.flow].popleft()
            if not flows[packet.flow]:
                del flows[packet.flow]
            if self.own and not flows:
                self.own.popleft()
        else:
            self.own.popleft()
        self.packets -= 1
        self.bytes -= packet.bytes

    def join(self):
        """The flows are flows no longer."""
        if self.flows:
            self.own.append(self.flows)
        self.flows = {}


Packet = collections.namedtuple("Packet", "number bytes flow")


class Link:
    """The model, beside the programs."""

    def __init__(self, program, limit=(1000, 131072)):
        self.sim, self.limit = Sim(program), limit
        self.nodes = {ROOT: None, Q0: Queue()}  # a scheduler: None
        self.parents, self.slots, self.count, self.now, self.rate = {Q0: ROOT}, {}, 0, 10**9, 0
        self.sent, self.lowest = 0, 0
        self.sim.ask("do", DEFAULT_LIMIT, 0, *limit)

    def queues(self):
        return [node for node, queue in self.nodes.items() if queue]

    def schedulers(self):
        return [node for node, queue in self.nodes.items() if not queue]

    def waiting(self):
        return sum(queue.packets for queue in self.nodes.values() if queue)

    def at(self, now):
        self.now = now
        self.sim.ask("time", now)

    def set_rate(self, rate):
        self.rate, self.sent, self.lowest = rate, 0, None
        agree("rate", self.sim.ask("do", RATE, 0, rate, 0), ["0"])

    def room(self, queue, flow, size):
        """The limits, as the manual has them: one packet always has room, and a flow may fill what
        is left free."""
        most, most_bytes = queue.limit[0] or self.limit[0], queue.limit[1] or self.limit[1]
        if not queue.packets:
            return True
        if queue.packets + 1 > most or queue.bytes + size > most_bytes:
            return False
        mine = queue.flows.get(flow) if queue.alg == DRR else None
        return not mine or (len(mine) < most - queue.packets and sum(p.bytes for p in mine) + size <= most_bytes - queue.bytes)

    def come(self, node, size, flow=0):
        """A packet; answers it, or None: it was refused."""
        queue = self.nodes.get(node) or self.nodes[Q0]
        wanted = self.room(queue, flow, size)
        return self.came(queue, int(self.sim.ask("come", node, size, flow)[0]), size, flow, wanted)

    def came(self, queue, slot, size, flow, wanted):
        agree(f"room for {size} bytes in {queue.packets} packets of {queue.bytes}, limits {queue.limit}", slot != 0, wanted)
        if not slot:
            queue.dropped += 1
            queue.dropped_bytes += size
            return None
        agree("a slot is free", slot in self.slots, False)
        self.count += 1
        packet = self.slots[slot] = Packet(self.count, size, flow)
        if queue.alg == DRR and flow and not queue.ending:
            queue.flows.setdefault(flow, collections.deque()).append(packet)
        else:
            queue.own.append(packet)
        queue.packets += 1
        queue.bytes += size
        return packet

    def go(self):
        """The device asks; answers (packet, when it will be through), or (None, when to ask again;
        0: at the next packet)."""
        what, *more = self.sim.ask("go")
        if what != "sent":
            due = int(more[0])
            if self.waiting() and not (what == "hold" and self.rate and due > self.now) and not any(queue.capped for queue in self.nodes.values() if queue):
                raise Wrong(f"{self.waiting()} packets wait, and the link has none")
            return None, due
        packet = self.slots.pop(int(more[0]))
        queue = next((queue for queue in self.nodes.values() if queue and packet in queue.heads()), None)
        if not queue:
            raise Wrong(f"packet {packet.number} leaves, and is first of no queue")
        queue.take(packet)
        queue.served += 1
        queue.service += packet.bytes
        if self.rate:
            before = self.sent - self.rate * self.now / 1e9
            self.lowest = before if self.lowest is None else min(self.lowest, before)
            self.sent += packet.bytes
            most = self.rate * BURST + AHEAD + packet.bytes + 1
            if before + packet.bytes - self.lowest > most:
                raise Wrong(f"{before + packet.bytes - self.lowest:.0f} bytes beyond the rate, of {most:.0f}")
        return packet, int(more[1])

    def edit(self, *ops):
        """A batch; answers 0 or the error."""
        return int(self.sim.ask("edit", *(word for op in ops for word in (*op, 0, 0, 0, 0)[:5]))[0])

    def delete(self, node, size, flow, *more):
        """A batch that deletes a queue, and does more; a packet comes for it as soon as the batch
        has taken it out of the tree. `size` 0: the lock is not to be had then, and the next batch
        puts the queue back; 1: the device's queue is reset then. Answers 0 or the error."""
        queue = self.nodes[node]
        self.sim.ask("meanwhile", node, size, flow)
        batch = (word for op in ((DELETE, node), *more) for word in (*op, 0, 0, 0, 0)[:5])
        error, _, slot = map(int, self.sim.ask("edit", *batch))
        queue.join()
        if slot >= 0 and size == 1:
            self.forgotten()
        elif slot >= 0:
            queue.ending = True
            self.came(queue, slot, size, flow, self.room(queue, 0, size))
            queue.ending = False
        if not error:
            self.gone(node)
        elif error == ETIMEDOUT and not size:
            error = self.edit((LIMIT, Q0)) or self.edit((DELETE, node), *more)
            if not error:
                self.gone(node)
        return error

    def create(self, node, parent, kind, alg):
        error = self.edit((CREATE, node, parent, kind, alg))
        if not error:
            self.nodes[node], self.parents[node] = Queue() if kind == QUEUE else None, parent
            if kind == QUEUE:
                self.nodes[node].alg = alg
        return error

    def gone(self, node):
        queue = self.nodes.pop(node)
        del self.parents[node]
        if not queue or not queue.packets:
            return
        queue.join()
        to = self.nodes[Q0]
        to.own += queue.own
        to.packets += queue.packets
        to.bytes += queue.bytes

    def reset(self):
        self.sim.ask("reset")
        self.forgotten()

    def forgotten(self):
        self.slots, self.sent, self.lowest = {}, 0, None
        for queue in self.nodes.values():
            if queue:
                queue.dropped += queue.packets
                queue.dropped_bytes += queue.bytes
                queue.own, queue.flows, queue.packets, queue.bytes = collections.deque(), {}, 0, 0

    def recount(self):
        """What left while the tree was inconsistent, and what was being sent when it became so, was
        not counted."""
        for node, queue in self.nodes.items():
            if queue:
                *_, served, service = map(int, self.sim.ask("node", node))
                if served > queue.served or service > queue.service:
                    raise Wrong(f"{served} packets of {service} bytes served, of {queue.served} and {queue.service} that left")
                queue.served, queue.service = served, service

    def look(self):
        """All counters, and all invariants of the programs' own memory."""
        for node, queue in self.nodes.items():
            if queue:
                wanted = [queue.packets, queue.bytes, queue.dropped, queue.dropped_bytes, queue.served, queue.service]
                agree("packets, bytes, dropped, dropped bytes, served, service", self.sim.ask("node", node), list(map(str, wanted)))
        said = self.sim.ask("check")
        agree("invariants", " ".join(said), "sound")
