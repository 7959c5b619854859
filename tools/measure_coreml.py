"""How fast Core ML packages of 100M parameters run beside the torch modules that they were made from.

    python tools/measure_coreml.py --kvtide build/kvtide --folder build/coreml-bench

Makes a GPT-2 and a Llama with random weights, once, and lets torch (eager, f32) and `kvtide coreml bench` read 64 tokens and write
32, in turns, with the same number of threads. Each turn is a process of its own that takes the fastest of three rounds; the table
shows the medians of the turns, their ratios, and the highest resident memory beside the weights and states in the package. A plain
NumPy interpretation of the same package is timed once.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time
import warnings

READ, WRITE, ROUNDS = 64, 32, 3
MODELS = ("gpt2", "llama")


def module_of(name: str):
    import torch

    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "references"))
    from coreml_decoders import Gpt2, Llama

    torch.manual_seed(1)
    if name == "gpt2":
        return Gpt2(layers=12, heads=12, dim=64, vocabulary=16000, slots=512)
    return Llama(True, layers=12, heads=12, kv=4, dim=64, inner=2048, vocabulary=16000, slots=512, base=1e4)


def make(name: str, path: pathlib.Path) -> None:
    os.environ.setdefault("TQDM_DISABLE", "1")
    warnings.simplefilter("ignore")
    logging.getLogger("coremltools").setLevel(logging.ERROR)
    module_of(name).package().save(str(path))


def fastest(call, clear, write: int) -> dict[str, float]:
    """`call(tokens, end)` reads that many tokens, which end at `end`."""
    best = {}
    for _ in range(ROUNDS):
        clear()
        start = time.perf_counter()
        call(READ, READ)
        read = time.perf_counter()
        for i in range(write):
            call(1, READ + 1 + i)
        end = time.perf_counter()
        for key, seconds in (("read", (read - start) / READ), ("write", (end - read) / write)):
            best[key] = min(best.get(key, seconds), seconds)
    return best


def run_torch(name: str, threads: int) -> dict[str, float]:
    import numpy as np
    import torch

    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "references"))
    from coreml_decoders import clear

    torch.set_num_threads(threads)
    module = module_of(name).eval()
    ids = np.random.RandomState(2).randint(0, module.V, (1, READ + WRITE)).astype(np.int32)

    def call(tokens: int, end: int):
        return module(*(torch.from_numpy(v) for v in module.inputs(ids[:, end - tokens : end], end).values()))

    with torch.no_grad():
        best = fastest(call, lambda: clear(module), WRITE)
    return best | {"rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


# A child begins with the peak of its parent, which holds torch here: this one holds nothing, and prints the peak of its own child.
PEAK = """
import os, sys
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, used = os.wait4(child, 0)
print(end=f"\\n{used.ru_maxrss}")
sys.exit(os.waitstatus_to_exitcode(status))
"""


def run_kvtide(kvtide: str, path: pathlib.Path, threads: int) -> dict[str, float]:
    command = [kvtide, "coreml", "bench", str(path), "--threads", str(threads), "--read", str(READ), "-n", str(WRITE), "--json"]
    run = subprocess.run([sys.executable, "-S", "-c", PEAK, *command], stdout=subprocess.PIPE)
    if run.returncode != 0:
        raise SystemExit(f"measure_coreml.py: {' '.join(command)}: status {run.returncode}")
    text, peak = run.stdout.rsplit(b"\n", 1)
    found = json.loads(text)
    if found["state_bytes_copied"] != 0:
        raise SystemExit(f"measure_coreml.py: {path}: {found['state_bytes_copied']} bytes of states copied")
    return {"read": 1 / found["prompt_tok_s"], "write": 1 / found["decode_tok_s"], "rss": int(peak) * 1024,
            "states": found["state_bytes"]}  # fmt: skip


def run_numpy(path: pathlib.Path, module) -> dict[str, float]:
    """One text: the interpreter is slow, and its first round is as fast as the others."""
    import numpy as np
    from numpy_mil import NumpyModel

    model = NumpyModel(path)
    states = model.make_state()
    ids = np.random.RandomState(2).randint(0, module.V, (1, READ + WRITE)).astype(np.int32)
    taken = {}
    for what, calls in (("read", [(READ, READ)]), ("write", [(1, READ + 1 + i) for i in range(4)])):
        start = time.perf_counter()
        for tokens, end in calls:
            inputs = module.inputs(ids[:, end - tokens : end], end)
            model.predict({k: np.asarray(v, np.float16 if v.dtype == np.float32 else v.dtype) for k, v in inputs.items()}, states)
        taken[what] = (time.perf_counter() - start) / sum(tokens for tokens, _ in calls)
    return taken


def in_process(*arguments: str, threads: str = "1") -> dict[str, float]:
    environment = os.environ | {"OPENBLAS_NUM_THREADS": threads}
    command = [sys.executable, "-B", __file__, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    if done.returncode != 0:
        raise SystemExit(done.stderr.decode())
    return json.loads(done.stdout) if done.stdout else {}


def bytes_in(path: pathlib.Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*.bin"))


def measure(arguments, name: str) -> None:
    path = arguments.folder / f"{name}.mlpackage"
    if not path.exists():
        in_process("--make", name, "--folder", str(arguments.folder))
    threads = str(arguments.threads)
    numpy = in_process("--numpy", name, "--folder", str(arguments.folder), threads=threads)
    turns = {"torch": [], "kvtide": []}
    for _ in range(arguments.turns):
        turns["torch"].append(in_process("--torch", name, "--threads", threads))
        turns["kvtide"].append(run_kvtide(arguments.kvtide, path, arguments.threads))
    median = {who: {key: statistics.median(turn[key] for turn in all) for key in all[0]} for who, all in turns.items()}
    torch, kvtide = median["torch"], median["kvtide"]
    for what in ("read", "write"):
        ratios = sorted(k[what] / t[what] for k, t in zip(turns["kvtide"], turns["torch"]))
        print(f"| {name}, {what} | {1e3 * torch[what]:.2f} | {1e3 * kvtide[what]:.2f} | {kvtide[what] / torch[what]:.2f} "
              f"({ratios[0]:.2f} to {ratios[-1]:.2f}) | {numpy[what] / kvtide[what]:.1f} |")  # fmt: skip
    held = bytes_in(path) + kvtide["states"]
    print(f"| {name}, MiB | {torch['rss'] / 2**20:.0f} | {kvtide['rss'] / 2**20:.0f} | "
          f"{kvtide['rss'] / held:.2f} of weights and states ({held / 2**20:.0f}) | |", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kvtide", default="build/kvtide")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("build/coreml-bench"), help="where the packages are kept")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--make", choices=MODELS, help=argparse.SUPPRESS)
    parser.add_argument("--torch", choices=MODELS, help=argparse.SUPPRESS)
    parser.add_argument("--numpy", choices=MODELS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if arguments.make:
        make(arguments.make, arguments.folder / f"{arguments.make}.mlpackage")
    elif arguments.numpy:
        path = arguments.folder / f"{arguments.numpy}.mlpackage"
        print(json.dumps(run_numpy(path, module_of(arguments.numpy))))
    elif arguments.torch:
        print(json.dumps(run_torch(arguments.torch, arguments.threads)))
    else:
        print("| milliseconds a token | torch | kvtide | kvtide / torch | NumPy / kvtide |\n| --- | --- | --- | --- | --- |", flush=True)
        for name in MODELS:
            measure(arguments, name)


if __name__ == "__main__":
    main()
