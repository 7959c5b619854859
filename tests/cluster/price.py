"""What Ray and the store cost: the same turns by replicas with a store and by one process, round by round.

    python tests/cluster/price.py --model model.gguf --nodes 2 --tokens 64

The one process has the same cores, and as much memory and as many answers at once as all replicas together. Ray is stopped
(SIGSTOP) while it answers, for Ray takes a tenth of two cores also when it waits. Tells as well which processes took how many
milliseconds of the processors for a turn. Needs what chaos.py needs.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import tempfile
from collections import Counter
from pathlib import Path

import psutil
from chaos import URL, deploy, environment_for, one_process
from load import compare, run
from local_cluster import LocalCluster, StoreServer


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True, type=os.path.abspath)
    parser.add_argument("--kv-budget", default="512M", help="of each replica")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of a replica")
    parser.add_argument("--sessions", type=int, default=48, help="of a round")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--at-once", type=int, help="turns; by default eight for each node, as many as a replica writes together")
    parser.add_argument("--rounds", type=int, default=7, help="behind a first one, which does not count")
    parser.add_argument("--store", choices=("s3", "folder"), default="s3", help="a server of the S3 protocol, or a shared folder")
    return parser.parse_args()


@contextlib.contextmanager
def stopped(kept):
    """Every process below this one, but not these."""
    ours = [one for one in psutil.Process().children(recursive=True) if one.pid not in kept]
    for one in ours:
        one.suspend()
    try:
        yield
    finally:
        for one in reversed(ours):
            one.resume()


# What stands in the command line or the name of a process, and what it is.
KINDS = {"ServeReplica": "replicas", "ProxyActor": "Ray's proxy", "ServeController": "Ray's controller"}


def seconds_of_processes(names):
    """Of the processors, so far: {pid: (kind, seconds)}. ``names``: what some of the processes are."""
    out = {}
    for one in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            told = " ".join(one.cmdline()) + one.name()
            kind = names.get(one.pid) or next((kind for part, kind in KINDS.items() if part in told), "Ray's others")
            times = one.cpu_times()
            out[one.pid] = (kind, times.user + times.system)
    return out


def one_round(options, bases, number, names):
    """Of each server for the same turns: tokens a second, and milliseconds of processes for a turn. Each round has sessions of
    its own."""
    counts = [0] * (number * options.sessions) + [options.turns] * options.sessions
    outcomes, spent = {}, {}
    for name in sorted(bases, reverse=number % 2 == 1):
        with stopped(names) if name == "one process" else contextlib.nullcontext():
            before = seconds_of_processes(names)
            outcomes[name] = asyncio.run(run(bases[name], counts, options.tokens, options.at_once or 8 * options.nodes))
            spent[name] = Counter()
            for pid, (kind, seconds) in seconds_of_processes(names).items():
                spent[name][kind] += 1000 * (seconds - before.get(pid, (kind, 0.0))[1]) / len(outcomes[name].turns)
    compare(outcomes["cluster"], outcomes["one process"])
    assert not outcomes["cluster"].wrong, outcomes["cluster"].wrong[:3]
    return {name: outcome.written / outcome.seconds for name, outcome in outcomes.items()}, spent


def main():
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="kvtide-price-") as folder:
        server = StoreServer(Path(folder) / "store")
        cluster = LocalCluster(options.nodes, environment=environment_for(server.port), cores=options.threads)
        single = one_process(options)
        try:
            deploy(cluster, options, f"{folder}/sessions" if options.store == "folder" else URL)
            bases = {"cluster": cluster.base, "one process": single.base}
            names = {os.getpid(): "clients", single.pid: "one process", server.pid: "the store's server"}
            rounds, spent = [], []
            for number in range(options.rounds + 1):
                rates, used = one_round(options, bases, number, names)
                rounds.append(rates)
                spent.append(used)
                print({name: round(rate, 1) for name, rate in rates.items()}, flush=True)
        finally:
            single.close()
            cluster.close()
            server.close()
    shares = sorted(one["cluster"] / one["one process"] for one in rounds[1:])
    for name in bases:
        kinds = sorted({kind for one in spent[1:] for kind in one[name]})
        medians = {kind: round(statistics.median(one[name][kind] for one in spent[1:]), 1) for kind in kinds}
        print(json.dumps({"ms_of_a_turn": name, **{kind: ms for kind, ms in medians.items() if ms >= 0.1}}))
    print(json.dumps({"median_share": round(statistics.median(shares), 3), "shares": [round(share, 2) for share in shares]}))


if __name__ == "__main__":
    main()
