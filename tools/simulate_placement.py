#!/usr/bin/env python3
"""Where the turns of many sessions should go: a discrete-event simulation of a cluster, from measured costs.

    tools/simulate_placement.py measure -m model.gguf --json costs.json       # needs the Python package
    tools/simulate_placement.py run --costs costs.json --json placement.json --markdown placement.md --svg placement.svg

A node has so many places and a FIFO queue. A turn takes the time of fetching its snapshot (when the node does not hold the
session), of reading what is new (everything, after a session was lost), and of writing the answer at the speed that a token
has among so many. Nodes fail; what they held has to come from the store. A turn comes to any of the routers: they know the load
of all nodes, and not what other routers did. All policies see the same sessions.
"""

import argparse
import bisect
import hashlib
import heapq
import json
import math
import random
import sys
import tempfile
import time
from collections import OrderedDict
from itertools import count, islice
from pathlib import Path

SHIPPED = "hash, least of 8"  # kvtide.ray
NEAR = 8  # nodes of the ring of which the least busy takes what the first cannot
POLICIES = {
    "sticky hash": "the session's place on a ring, always",
    "bounded-load hash": "the first on the ring with at most 1.25 times the mean load",
    "least bytes": "the node that holds the fewest bytes, and then always that one",
    "last, bounded": "the node to which this router sent the session last, while that is not busier; else as bounded-load hash",
    SHIPPED: "the session's place on a ring, while it is not busier; else the least busy of the next ones",
    "least load": "the node with the least work, whatever it holds",
}


def measure(options):
    import kvtide

    text = " ".join(str(number) for number in range(4000))
    out = {"model": Path(options.model).name}
    with kvtide.Model.load(options.model, threads=options.threads) as model:
        ids = [int(one) for one in model.tokenizer.encode(text)[:768]]
        with model.session(context=1024) as session:
            begun = time.perf_counter()
            session.read(ids)
            out["read_tokens_per_s"] = len(ids) / (time.perf_counter() - begun)
            # A replica's own copy is not forced to the disk, so none is measured.
            with tempfile.NamedTemporaryFile(dir=next((one for one in ("/dev/shm",) if Path(one).is_dir()), None)) as file:
                session.save(file.name)  # the first one reads the model for its identity
                begun = time.perf_counter()
                session.save(file.name)
                out["save_bytes_per_s"] = Path(file.name).stat().st_size / (time.perf_counter() - begun)
                out["bytes_per_token"] = Path(file.name).stat().st_size / len(ids)
                begun = time.perf_counter()
                session.load(file.name)
                out["load_bytes_per_s"] = Path(file.name).stat().st_size / (time.perf_counter() - begun)
        out["write_tokens_per_s"] = {}
        for width in (1, 2, 4, 8):
            with model.batch() as batch:
                sessions = [model.session(context=512) for _ in range(width)]
                for session in sessions:
                    session.read(ids[:300])
                begun, steps = time.perf_counter(), 16
                for _ in range(steps):
                    batch.step((session, [7]) for session in sessions)
                out["write_tokens_per_s"][str(width)] = width * steps / (time.perf_counter() - begun)
                for session in sessions:
                    session.close()
    Path(options.json).write_text(json.dumps(out, indent=1) + "\n")
    print(json.dumps(out, indent=1))


class Node:
    __slots__ = ("number", "up", "queue", "busy", "held", "held_bytes", "worked", "epoch")

    def __init__(self, number):
        self.number, self.up, self.queue, self.busy = number, True, [], 0
        self.held, self.held_bytes = OrderedDict(), 0.0
        self.worked, self.epoch = 0.0, 0

    @property
    def load(self):
        return self.busy + len(self.queue)


class Ring:
    def __init__(self, nodes, points=64):
        pairs = sorted((place(f"{node}:{i}"), node) for node in range(nodes) for i in range(points))
        self._places, self._nodes = [one for one, _ in pairs], [node for _, node in pairs]

    def walk(self, session):
        at = bisect.bisect_right(self._places, place(str(session)))
        for i in range(len(self._nodes)):
            yield self._nodes[(at + i) % len(self._nodes)]


def place(text):
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


class Simulation:
    def __init__(self, options, costs, policy):
        self._o, self._costs, self._policy = options, costs, policy
        self._random = random.Random(options.seed)
        self._nodes = [Node(number) for number in range(options.nodes)]
        self._ring = Ring(options.nodes)
        self._events, self._order = [], count()
        self._total = 0  # load of all nodes
        self._last = [{} for _ in range(options.routers)]  # of each router: session: node
        self._router = random.Random(options.seed + 1)  # of its own: all policies see the same turns
        self._tokens = [0] * options.sessions
        self._begun = {}  # session: when its turn came
        self.latency, self.after_failure = [], []
        self.warm = self.cold = 0
        self.fetched = self.saved = self.written = self.read = 0.0
        self.peak = 0

    def at(self, when, what, *more):
        heapq.heappush(self._events, (when, next(self._order), what, more))

    def run(self):
        o = self._o
        for session in range(o.sessions):
            self.at(self._random.uniform(0, o.think), self.turn, session)
        for i in range(o.failures):
            self.at(o.seconds * (i + 1) / (o.failures + 1), self.fail, self._random.randrange(o.nodes))
        while self._events and self._events[0][0] <= o.seconds:
            when, _, what, more = heapq.heappop(self._events)
            what(when, *more)
        return self

    def turn(self, now, session, retried=False):
        if not retried:
            self._begun[session] = now
        last = self._last[self._router.randrange(len(self._last))]
        node = self.choose(session, last.get(session))
        if node is None:
            return self.at(now + 1.0, self.turn, session, True)
        last[session] = node.number
        self._total += 1
        node.queue.append((session, retried))
        self.peak = max(self.peak, node.load)
        self.start(now, node)

    def start(self, now, node):
        while node.queue and node.busy < self._o.places and node.up:
            session, retried = node.queue.pop(0)
            node.busy += 1
            seconds = self.service(node, session)
            node.worked += seconds
            self.at(now + seconds, self.end, node, node.epoch, session, retried)

    def service(self, node, session):
        o, c = self._o, self._costs
        before = self._tokens[session]
        new, out = self.length(o.prompt), self.length(o.answer)
        size = before * c["bytes_per_token"]
        seconds, read = 0.0, new
        if session in node.held:
            self.warm += before > 0
            node.held_bytes -= node.held.pop(session)
        elif before and o.no_store:
            self.cold += 1
            read += before
        elif before:
            self.cold += 1
            seconds += o.latency + size / o.bandwidth + size / c["load_bytes_per_s"]
            self.fetched += size
        after = min(before + new + out, o.context)
        self._tokens[session] = 0 if after == o.context else after  # a talk that is full begins anew
        held = after * c["bytes_per_token"]
        node.held[session] = held
        node.held_bytes += held
        while node.held_bytes > o.budget and len(node.held) > 1:
            _, gone = node.held.popitem(last=False)
            node.held_bytes -= gone
        self.read += new
        self.written += out
        seconds += read / c["read_tokens_per_s"] + out / self.speed(node.busy)
        if not o.no_store:
            grown = (new + out) * c["bytes_per_token"]
            self.saved += grown
            seconds += held / c["save_bytes_per_s"] + o.latency + grown / o.bandwidth
        return seconds

    def speed(self, width):
        """Tokens per second of one of so many answers."""
        table = sorted((int(key), value) for key, value in self._costs["write_tokens_per_s"].items())
        best = table[0][1]
        for wide, rate in table:
            if wide <= width:
                best = rate
        return best / max(width, 1)

    def length(self, mean):
        return max(1, int(self._random.expovariate(1 / mean)))

    def end(self, now, node, epoch, session, retried):
        if epoch != node.epoch:
            return  # the node failed meanwhile
        node.busy -= 1
        self._total -= 1
        waited = now - self._begun[session]
        (self.after_failure if retried else self.latency).append(waited)
        self.at(now + self._random.expovariate(1 / self._o.think), self.turn, session)
        self.start(now, node)

    def fail(self, now, number):
        node = self._nodes[number]
        if not node.up:
            return
        running = [event for event in self._events if event[2] == self.end and event[3][0] is node and event[3][1] == node.epoch]
        sessions = [event[3][2] for event in running] + [session for session, _ in node.queue]
        self._total -= node.load
        node.up, node.queue, node.busy, node.epoch = False, [], 0, node.epoch + 1
        node.held.clear()
        node.held_bytes = 0.0
        # What was not acknowledged is asked again when the lease has ended; the rest is in the store.
        for session in sessions:
            self.at(now + self._o.lease, self.turn, session, True)
        self.at(now + self._o.repair, self.repair, node)

    def repair(self, now, node):
        node.up = True

    def choose(self, session, last):
        nodes, policy = self._nodes, self._policy
        if policy == "least load":
            picked = [node for node in (nodes[self._random.randrange(len(nodes))] for _ in range(2)) if node.up]
            return min(picked, key=lambda node: node.load, default=None)
        if policy == "least bytes":
            if last is not None and nodes[last].up:
                return nodes[last]
            up = [node for node in self._random.sample(nodes, min(32, len(nodes))) if node.up]
            return min(up, key=lambda node: (node.held_bytes, node.load), default=None)
        bound = math.ceil(1.25 * (self._total + 1) / len(nodes))
        if policy in ("last, bounded", SHIPPED):
            bound = max(bound, self._o.floor)
        if policy == "last, bounded" and last is not None and nodes[last].up and nodes[last].load < bound:
            return nodes[last]
        ring = (nodes[number] for number in self._ring.walk(session) if nodes[number].up)
        if policy == SHIPPED:
            near = list(islice(dict.fromkeys(islice(ring, 8 * NEAR)), NEAR))
            return near[0] if near and near[0].load < bound else min(near, key=lambda node: node.load, default=None)
        return next((node for node in ring if policy == "sticky hash" or node.load < bound), None)


def share(values, of):
    values = sorted(values)
    return values[min(len(values) - 1, int(of * len(values)))] if values else 0.0


def results(options, costs):
    out = {}
    for policy in POLICIES:
        begun = time.monotonic()
        done = Simulation(options, costs, policy).run()
        work = [node.worked for node in done._nodes]
        every = done.latency + done.after_failure
        turns = len(every)
        out[policy] = {
            "turns": turns,
            "mean_s": sum(every) / max(1, turns),
            "p50_s": share(done.latency, 0.5),
            "p99_s": share(done.latency, 0.99),
            "p999_s": share(done.latency, 0.999),
            "failed_over": len(done.after_failure),
            "failed_over_p50_s": share(done.after_failure, 0.5),
            "failed_over_p99_s": share(done.after_failure, 0.99),
            "from_memory": done.warm / max(1, done.warm + done.cold),
            "fetched_gb": done.fetched / 1e9,
            "saved_gb": done.saved / 1e9,
            "busiest_over_mean": max(work) / (sum(work) / len(work)),
            "longest_queue": done.peak,
            "tokens": done.read + done.written,
            "seconds": time.monotonic() - begun,
        }
        print(f"{policy}: {json.dumps({k: round(v, 3) for k, v in out[policy].items()})}", file=sys.stderr, flush=True)
    return out


def money(options, costs, result):
    """Per 1,000 tokens: the nodes as they are with a store, and as many as would hold every session's full cache."""
    hours = options.seconds / 3600
    mean = options.context / 2 * costs["bytes_per_token"]  # of a session, on average
    all_bytes = options.sessions * mean
    with_store = options.nodes * options.node_price * hours + all_bytes / 1e9 * options.store_price * hours / 730
    full_nodes = max(options.nodes, -(-int(all_bytes) // int(options.budget)))
    thousands = result["tokens"] / 1000
    return {
        "session_mb": mean / 1e6,
        "all_sessions_gb": all_bytes / 1e9,
        "nodes_with_store": options.nodes,
        "nodes_for_full_caches": full_nodes,
        "with_store": with_store / thousands,
        "full_caches": full_nodes * options.node_price * hours / thousands,
    }


def markdown(options, found, price):
    lines = ["| policy | turns | mean s | p50 s | p99 s | p99.9 s | after a failure: turns, p50 s, p99 s | from memory | fetched GB | busiest node over mean |", "|" + " --- |" * 10]
    for policy, r in found.items():
        lines.append(
            f"| {policy} | {r['turns']:,} | {r['mean_s']:.3f} | {r['p50_s']:.2f} | {r['p99_s']:.2f} | {r['p999_s']:.2f} | "
            f"{r['failed_over']:,}, {r['failed_over_p50_s']:.1f}, {r['failed_over_p99_s']:.1f} | "
            f"{r['from_memory']:.1%} | {r['fetched_gb']:,.0f} | {r['busiest_over_mean']:.2f} |"
        )
    lines += ["", f"Cost of 1,000 tokens: {price['with_store']:.5f} with a store, {price['full_caches']:.5f} with every full cache in memory "
              f"({price['nodes_with_store']} and {price['nodes_for_full_caches']} nodes)."]  # fmt: skip
    return "\n".join(lines) + "\n"


def picture(found, path):
    """A group of bars for each figure, as SVG."""
    rows = [("mean of a turn, seconds", "mean_s", "{:.3f}"), ("p99 of a turn, seconds", "p99_s", "{:.2f}"), ("GB fetched from the store", "fetched_gb", "{:,.0f}"), ("busiest node over the mean", "busiest_over_mean", "{:.2f}")]
    width, height, left = 760, 40 + len(rows) * (len(found) * 22 + 50), 190
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="13">',
           f'<rect width="{width}" height="{height}" fill="white"/>']  # fmt: skip
    y = 30
    for title, key, form in rows:
        out.append(f'<text x="10" y="{y}" font-weight="bold">{title}</text>')
        y += 12
        *_, second, most = sorted(r[key] for r in found.values())
        most = min(most, 1.5 * second) or 1  # the bar of one that is far worse ends at the edge
        for policy, r in found.items():
            long = (width - left - 90) * min(1, r[key] / most)
            colour = "#1f77b4" if policy == SHIPPED else "#b0b8c0"
            out.append(f'<text x="10" y="{y + 14}">{policy}</text><rect x="{left}" y="{y + 2}" width="{long:.1f}" height="16" fill="{colour}"/>')
            out.append(f'<text x="{left + long + 6:.1f}" y="{y + 14}">{form.format(r[key])}</text>')
            y += 22
        y += 38
    out.append("</svg>")
    Path(path).write_text("\n".join(out) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("measure")
    one.add_argument("-m", "--model", required=True)
    one.add_argument("--threads", type=int, default=1)
    one.add_argument("--json", required=True)
    two = commands.add_parser("run")
    two.add_argument("--costs", required=True)
    two.add_argument("--sessions", type=int, default=100_000)
    two.add_argument("--nodes", type=int, default=500)
    two.add_argument("--seconds", type=float, default=3600.0)
    two.add_argument("--think", type=float, default=600.0, help="seconds between an answer and the next turn, mean")
    two.add_argument("--prompt", type=float, default=60.0, help="new tokens of a turn, mean")
    two.add_argument("--answer", type=float, default=80.0, help="tokens of an answer, mean")
    two.add_argument("--context", type=int, default=2048)
    two.add_argument("--places", type=int, default=8)
    two.add_argument("--budget", type=float, default=2e9, help="KV bytes of a node")
    two.add_argument("--bandwidth", type=float, default=100e6, help="bytes per second between a node and the store")
    two.add_argument("--latency", type=float, default=0.03, help="seconds of a request to the store")
    two.add_argument("--routers", type=int, default=8, help="each remembers only what it did itself")
    two.add_argument("--failures", type=int, default=400)
    two.add_argument("--repair", type=float, default=120.0)
    two.add_argument("--lease", type=float, default=6.0)
    two.add_argument("--floor", type=int, default=2, help="requests that are no reason to move a session")
    two.add_argument("--no-store", action="store_true", help="what a node lost is read again")
    two.add_argument("--node-price", type=float, default=0.10, help="of an hour")
    two.add_argument("--store-price", type=float, default=0.023, help="of a GB for a month")
    two.add_argument("--seed", type=int, default=1)
    two.add_argument("--json", required=True)
    two.add_argument("--markdown")
    two.add_argument("--svg")
    options = parser.parse_args()
    if options.command == "measure":
        return measure(options)
    costs = json.loads(Path(options.costs).read_text())
    found = results(options, costs)
    price = money(options, costs, found[SHIPPED])
    Path(options.json).write_text(json.dumps({"costs": costs, "policies": found, "price": price}, indent=1) + "\n")
    text = markdown(options, found, price)
    print(text)
    if options.markdown:
        Path(options.markdown).write_text(text)
    if options.svg:
        picture(found, options.svg)


if __name__ == "__main__":
    main()
