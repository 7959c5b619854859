"""Sessions on a cluster whose replicas, nodes and store die: is an acknowledged turn lost, is a bit wrong, do two write?

    python tests/cluster/chaos.py --model model.gguf --nodes 4 --sessions 200 --turns 10 --every 20 --faults kill

``--faults network`` puts a proxy between replicas and store that delays, drops and partitions instead. Every answer is
compared afterwards with that of one process that never failed. With ``--minutes`` a campaign ends in time, and says how far
it came. Ends with 1 when anything is not as promised. Needs the extra kvtide[ray], uvicorn, httpx and psutil.
"""

import argparse
import asyncio
import json
import os
import pickle
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import httpx
from fault_proxy import FaultProxy
from load import compare, percentile, run
from local_cluster import LocalCluster, SingleServer, StoreServer

from kvtide._arguments import byte_count
from kvtide.cluster import open_store
from kvtide.cluster.delta import header_of
from kvtide.ray import build_app

URL = "s3://bucket/sessions"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True, type=os.path.abspath)
    parser.add_argument("--kv-budget", default="512M")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--sessions", type=int, default=12)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=12)
    parser.add_argument("--at-once", type=int, help="turns; by default eight for each node, as many as a replica writes together")
    parser.add_argument("--minutes", type=float, help="after which no turn is begun")
    parser.add_argument("--every", type=float, default=20.0, help="seconds between two faults")
    parser.add_argument("--faults", choices=("kill", "network"), default="kill")
    parser.add_argument("--threads", type=int, default=1, help="of a replica; the single process has as many as all replicas, up to the cores")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--reference", type=Path, help="keeps what the one process answered, for the next campaign of this size")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.at_once = options.at_once or 8 * options.nodes
    return options


def environment_for(port):
    """Of replicas whose store's server is at this port."""
    return {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1", "OMP_NUM_THREADS": "1"}  # fmt: skip


def deploy(cluster, options, store):
    chat = {"chat_template": "chatml"} if "llama" in options.model else {}
    cluster.deploy(build_app(options.model, options.kv_budget, store=store, replicas=options.nodes,
                             threads=options.threads, lease_seconds=4.0, store_timeout=5.0, **chat))  # fmt: skip


def one_process(options):
    """A server with the same cores, and as much memory and as many answers at once as all replicas together."""
    threads = max(1, min(options.nodes * options.threads, os.cpu_count() or 1))
    budget = options.nodes * byte_count(options.kv_budget, "--kv-budget")
    return SingleServer(options.model, threads, budget, parallel=8 * options.nodes)


def alone(options, outcome):
    """What one process answers to the same turns, and how long it takes on the same cores."""
    size = (Path(options.model).name, options.tokens)
    if options.reference and options.reference.exists():
        kept, single = pickle.loads(options.reference.read_bytes())
        if kept == size and set(outcome.turns) <= set(single.turns):
            return single
    turns = Counter(session for session, _ in outcome.turns)
    server = one_process(options)
    try:
        counts = [turns[session] for session in range(options.sessions)]
        single = asyncio.run(run(server.base, counts, options.tokens, options.at_once))
    finally:
        server.close()
    assert set(single.turns) == set(outcome.turns), (single.stuck, single.lost)
    if options.reference:
        options.reference.write_bytes(pickle.dumps((size, single)))
    return single


class Faults:
    def __init__(self, options, cluster, store, proxy):
        self._options, self._cluster, self._store, self._proxy = options, cluster, store, proxy
        self._random = random.Random(options.seed)
        self.log = []
        self.memory = []  # shares of the budget

    async def run(self, outcome):
        watching = [asyncio.ensure_future(self._tell(outcome)), asyncio.ensure_future(self._watch())]
        begun = time.monotonic()
        try:
            while True:
                await asyncio.sleep(self._options.every * (0.25 if self._proxy else 1.0))
                what = self._next()
                self.log.append((round(time.monotonic() - begun, 1), what))
                await asyncio.to_thread(self._do, what)
        finally:
            for one in watching:
                one.cancel()

    def _next(self):
        if self._proxy:
            return self._random.choice(["delay", "drop", "lose", "partition", "pass"])
        return self._random.choice(["replica", "replica", "node", "store"])

    def _do(self, what):
        if self._proxy:
            self._proxy.mode = what
        else:
            {"replica": self._cluster.kill_replica, "node": self._cluster.kill_node, "store": self._store.kill}[what]()

    async def _tell(self, outcome):
        """A campaign takes an hour: a line a minute says how far it is."""
        while True:
            await asyncio.sleep(60.0)
            kills = {**self._cluster.kills, "store": self._store.kills}
            again = sum(turn.waited > 0 for turn in outcome.turns.values())
            print(f"  {len(outcome.turns)} turns acknowledged, {again} tried again, lost {len(outcome.lost)}, "
                  f"killed {kills}", flush=True)  # fmt: skip

    async def _watch(self):
        async with httpx.AsyncClient(base_url=self._cluster.base, timeout=5.0) as client:
            while True:
                await asyncio.sleep(0.5)
                try:
                    report = (await client.get("/memory")).json()
                    self.memory.append(report["kv_bytes"] / report["kv_budget"])
                except (httpx.HTTPError, ValueError, KeyError):
                    pass


def manifests(folder):
    """What the store's server told of each: a line before it was written, and one after (``done``)."""
    return [json.loads(line) for line in (Path(folder) / "manifests.log").read_text().splitlines()]


def audit(log):
    """Manifests that follow none that the store may have had: turns written twice, fencing numbers that went back."""
    may_be, bad = {}, []  # session: turns and fences, several where the server was killed while it wrote
    for one in log:
        before = may_be.setdefault(one["session"], {(0, 0)})
        if one["done"]:
            may_be[one["session"]] = {(one["turn"], one["fence"])}
        elif any(one["turn"] in (turn, turn + 1) and one["fence"] >= fence for turn, fence in before):
            before.add((one["turn"], one["fence"]))
        else:
            bad.append(one)
    return bad


def turns_that_moved(log):
    """Turns of a session that another replica answered than the one before."""
    moved, last = 0, {}
    for one in log:
        if one["done"] and not one["held"]:
            moved += last.get(one["session"], one["writer"]) != one["writer"]
            last[one["session"]] = one["writer"]
    return moved


def check_store(outcome):
    """Sessions whose newest snapshot does not hold their last acknowledged turn."""
    store, lost = open_store(URL), []
    newest = {}
    for (session, number), turn in outcome.turns.items():
        if number >= newest.get(session, (-1, None))[0]:
            newest[session] = (number, turn)
    for session, (number, turn) in newest.items():
        name = f"talk-{session}" if turn.response is None else store.response(turn.response)[0]
        manifest = store.look(name)
        snapshot = store.snapshot(manifest)
        held = header_of(snapshot)[0]["position"] if snapshot else 0
        # The last token of an answer is never read, and a stop token is no part of it.
        if manifest["turn"] <= number or held < turn.tokens - 2:
            lost.append((name, number, manifest["turn"], held, turn.tokens))
    return lost


def main():
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="kvtide-chaos-") as folder:
        store = StoreServer(Path(folder) / "store")
        proxy = FaultProxy(store.port, options.seed) if options.faults == "network" else None
        cluster = LocalCluster(options.nodes, environment=environment_for(proxy.port if proxy else store.port), cores=options.threads)
        try:
            deploy(cluster, options, URL)
            faults = Faults(options, cluster, store, proxy)
            print(f"{options.nodes} nodes, faults: {options.faults}", flush=True)
            seconds = None if options.minutes is None else 60.0 * options.minutes
            counts = [options.turns] * options.sessions
            outcome = asyncio.run(run(cluster.base, counts, options.tokens, options.at_once, faults.run, seconds))
            if proxy:
                proxy.mode = "pass"
            outcome.lost += check_store(outcome)
            log = manifests(store.folder)
            twice, moved = audit(log), turns_that_moved(log)
        finally:
            cluster.close()
            store.close()
            if proxy:
                proxy.close()
    print(f"{len(outcome.turns)} turns in {outcome.seconds:.0f} s; now one process alone", flush=True)
    single = alone(options, outcome)
    compare(outcome, single)
    report = summary(options, single, outcome, faults, cluster, store, proxy)
    report |= {"written_twice": len(twice), "turns_that_moved": moved}
    for bad in (outcome.lost, outcome.wrong, twice, outcome.stuck):
        for one in bad[:3]:
            print("  ", one, flush=True)
    print(json.dumps(report, indent=1), flush=True)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    promised = ("lost", "wrong_bits", "written_twice", "stuck", "over_budget")
    whole = options.minutes is not None or report["turns"] == options.sessions * options.turns
    return 0 if whole and not any(report[key] for key in promised) else 1


def summary(options, single, outcome, faults, cluster, store, proxy):
    waited = [turn.waited for turn in outcome.turns.values() if turn.waited]
    again = [turn for (_, number), turn in outcome.turns.items() if number and turn.cached == 0]
    rate, rate_alone = outcome.written / outcome.seconds, single.written / single.seconds
    return {
        "model": Path(options.model).name,
        "nodes": options.nodes,
        "sessions": options.sessions,
        "turns": len(outcome.turns),
        "at_once": options.at_once,
        "faults": options.faults,
        "killed": {**cluster.kills, "store": store.kills},
        "network_faults": proxy.faults if proxy else 0,
        "lost": len(outcome.lost),
        "wrong_bits": len(outcome.wrong),
        "stuck": len(outcome.stuck),
        "turns_tried_again": len(waited),
        "recovery_p50_s": round(percentile(waited, 0.5), 2),
        "recovery_p99_s": round(percentile(waited, 0.99), 2),
        "turns_read_from_the_start": len(again),
        "turn_p50_s": round(percentile([turn.seconds for turn in outcome.turns.values()], 0.5), 2),
        "turn_p50_alone_s": round(percentile([turn.seconds for turn in single.turns.values()], 0.5), 2),
        "tokens_per_s": round(rate, 1),
        "tokens_per_s_alone": round(rate_alone, 1),
        "share_of_one_process": round(rate / rate_alone, 3),
        "seconds": round(outcome.seconds, 1),
        "largest_share_of_budget": round(max(faults.memory, default=0.0), 3),
        "over_budget": sum(share > 1.0 for share in faults.memory),
        "failures": Counter(failure.split(",")[0][:60] for turn in outcome.turns.values() for failure in turn.failures).most_common(6),
    }


if __name__ == "__main__":
    sys.exit(main())
