# SPDX-License-Identifier: MIT OR Apache-2.0
"""An independent look at raw traces (`reserv trace --raw`): shares no code with the command, and
goes about it in another way: first cumulative service at every event, then every pair of siblings
over every interval in which both want.

SFQ-1: |W_f/w_f - W_m/w_m| <= l_f/w_f + l_m/w_m for siblings f and m over every interval in which
both want service, in integers (times w_f * w_m): over all pairs of instants within an interval the
largest difference is that between the largest and the smallest value. Service between two events is
known because on one CPU a settled step of length l ended then, and ran without a break (what is
said of steps that were in service when a sibling woke stands in the record of the wake-up). """
import json
from bisect import bisect_right


SFQ = 0


class Wrong(Exception):
    pass


def load(path):
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return {int(k): v for k, v in lines[0]["names"].items()}, lines[1:-1], lines[-1]["lost"]


def timeline(events):
    """Nodes, and for each child: when it wants (intervals), and its cumulative service at every
    event (list of (event number, total))."""
    nodes, first, last, done = {}, {}, {}, 0
    inside, wanting, ends, service, longest, ended = {}, {}, {}, {}, {}, {}
    part = 0  # of the step in service, what the past has already

    def path(node):
        while True:
            yield node
            if nodes[node]["parent"] == 0:
                return
            node = nodes[node]["parent"]

    def want(queue, delta, number):
        for node in path(queue):
            had = wanting.get(node, 0)
            wanting[node] = had + delta
            if wanting[node] < 0:
                raise Wrong(f"more leave {node:#x} than came")
            if had == 0:
                ends.setdefault(node, []).append([number, None])
            elif wanting[node] == 0:
                ends[node][-1][1] = number
            if had and wanting[node]:
                return

    def serve(queue, work, number):
        for node in path(queue):
            series = service.setdefault(node, [(0, 0)])
            series.append((number, series[-1][1] + work))

    totals, floors = {}, {}
    for number, e in enumerate(events):
        kind, node = e["kind"], e["node"]
        if kind in ("start", "end"):
            done += e["flags"]
        elif kind == "node":
            (last if done else first)[node] = e["work"]
            nodes[node] = {"parent": e["node2"], "weight": e["tid"], "alg": e["unit"]}
        elif kind == "item" and not done and not e["flags"] & 2:
            inside[e["tid"]] = node
            want(node, 1, number)
            if e["flags"]:
                part = e["work"]
        elif kind == "wake":
            if e["tid"] in inside:
                raise Wrong(f"{e['tid']} wakes twice")
            if e["node2"]:
                serve(e["node2"], e["work"] - part, number)
                part = e["work"]
            inside[e["tid"]] = node
            want(node, 1, number)
        elif kind in ("settle", "move"):
            if kind == "settle" or e["work"]:
                serve(node, e["work"] - part, number)
                part = 0
                for up in path(node):
                    totals[up] = totals.get(up, 0) + e["work"]
                    ended.setdefault(up, number)
                    longest[up] = max(longest.get(up, 0), e["work"])
            if inside.get(e["tid"]) != node and kind == "settle":
                raise Wrong(f"{e['tid']} is served where it is not")
            if kind == "move" and e["tid"] in inside:
                inside[e["tid"]] = e["node2"]
                want(e["node2"], 1, number)
                want(node, -1, number)
            elif kind == "settle" and not e["flags"]:
                del inside[e["tid"]]
                want(node, -1, number)
        elif kind == "remove":
            del inside[e["tid"]]
            want(node, -1, number)
        elif kind == "floor":
            for up in path(node):
                floors[up] = floors.get(up, 0) + e["work"]
        elif kind in ("edit", "gone", "reset"):
            raise Wrong(f"'{kind}': not for this check")
    if done != 2:
        raise Wrong("not from start to end")
    for node, to in last.items():
        if to - first[node] != totals.get(node, 0) + floors.get(node, 0):
            raise Wrong(f"the counter of {node:#x} grew by {to - first[node]}, its records say {totals.get(node, 0)} and {floors.get(node, 0)}")
    return nodes, ends, service, longest, ended


def unzip(series):
    """Event numbers and totals."""
    return [n for n, _ in series], [total for _, total in series]


def at(series, number):
    """Cumulative service at an event."""
    numbers, totals = series
    return totals[bisect_right(numbers, number) - 1]


def overlaps(one, two):
    for a, b in one:
        for c, d in two:
            begin, end = max(a, c), min(b, d)
            if begin < end:
                yield begin, end


def sfq1(events, slack=0):
    """All sibling pairs: (how many intervals, the largest part of the bound that was reached).
    Raises Wrong where it is passed."""
    nodes, ends, service, longest, ended = timeline(events)
    final = len(events)
    spans = {n: [(a, final if b is None else b) for a, b in s] for n, s in ends.items()}
    looked, worst = 0, 0.0
    for f in nodes:
        for m in nodes:
            parent = nodes[f]["parent"]
            if f >= m or not parent or nodes[m]["parent"] != parent or f not in spans or m not in spans:
                continue
            w_f, w_m = nodes[f]["weight"], nodes[m]["weight"]
            if not w_f or not w_m or nodes[parent]["alg"] != SFQ:
                continue
            one, two = unzip(service.get(f, [(0, 0)])), unzip(service.get(m, [(0, 0)]))
            bound = (longest.get(f, 0) + slack) * w_m + (longest.get(m, 0) + slack) * w_f
            numbers = sorted({*one[0], *two[0]})
            for begin, end in overlaps(spans[f], spans[m]):
                # Whoever gets nothing at all must not go unnoticed: any two may be so far apart as
                # steps of three quanta allow.
                points = [at(one, n) * w_m - at(two, n) * w_f for n in numbers[bisect_right(numbers, begin):bisect_right(numbers, end)]] or [0]
                if max(points) - min(points) > 2 * (w_f + w_m) * max(3 * events[0]["work"], *longest.values()):
                    raise Wrong(f"{f:#x} and {m:#x}: one of them is not served")
                if f not in ended or m not in ended:
                    continue
                begin = max(begin, ended[f], ended[m])  # what stood in a tag before was the work of a step that nobody saw
                if begin >= end:
                    continue
                looked += 1
                points = [at(one, begin) * w_m - at(two, begin) * w_f]
                points += [at(one, n) * w_m - at(two, n) * w_f for n in numbers[bisect_right(numbers, begin):bisect_right(numbers, end)]]
                spread = max(points) - min(points)
                if spread > bound:
                    raise Wrong(f"{f:#x} and {m:#x}: {spread * 1000 / w_f / w_m:.0f} ns apart per weight, {bound * 1000 / w_f / w_m:.0f} allowed")
                worst = max(worst, spread / bound if bound else 0.0)
    return looked, worst
