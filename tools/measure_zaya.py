"""Measures memory and speed of a random checkpoint of the size of ZAYA1-8B (tools/make_zaya.py).

    python tools/measure_zaya.py --kvtide build/kvtide --folder build/zaya1-8b-random [--blocks 40] [--json OUT]

The checkpoint is written when it is not there. Speeds are those of `kvtide bench`; bytes of KV memory per token are the
difference between what two depths hold.
"""

import argparse
import json
import pathlib
import subprocess
import sys

DEPTHS = (0, 1024)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kvtide", required=True)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    config = args.folder / "config.json"  # is written last
    if not config.exists() or json.loads(config.read_text("utf-8"))["num_hidden_layers"] != args.blocks:
        maker = pathlib.Path(__file__).with_name("make_zaya.py")
        subprocess.run([sys.executable, maker, args.folder, "--blocks", str(args.blocks)], check=True)
    command = [args.kvtide, "bench", "-m", str(args.folder), "-p", "256", "-n", "16", "-d", ",".join(map(str, DEPTHS)),
               "-r", str(args.repetitions), "--json"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    cases = json.loads(done.stdout)
    held = [case["kv_bytes"] for case in cases if case["test"] == "tg"]
    per_token = (held[1] - held[0]) / (DEPTHS[1] - DEPTHS[0])
    print(done.stderr.strip())
    print(f"{args.blocks} blocks: {per_token / 1024:.2f} KiB of KV memory per token")
    for case in cases:
        print(f"{'read' if case['test'] == 'pp' else 'written'} behind {case['depth']} tokens: {case['tok_s']:.1f} tok/s, "
              f"{case['limit_share']:.0%} of the limit, {case['rss_bytes'] / 2**30:.2f} GiB resident")  # fmt: skip
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        result = {"blocks": args.blocks, "kv_bytes_per_token": per_token, "cases": cases}
        args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
