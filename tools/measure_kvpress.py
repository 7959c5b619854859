#!/usr/bin/env python3
"""Compares procedural memories with the presses of kvpress: same weights, same texts, same bytes, the question after compression.

    tools/measure_kvpress.py --kvtide build/kvtide -m MODEL -f BOOK --out FOLDER [--tasks LIST] [--ctx LIST] [--ratios LIST]
                             [--samples N] [--markdown F.md]

`kvtide ruler --exact` makes the texts and measures its memories; pressed_model.py asks the presses the same (torch, kvpress: the venv of
tools/requirements-kvpress.txt). Everything goes to FOLDER in batches, and the same command goes on where it was interrupted. Fails when the
full caches of both disagree by more than 0.001 nats a token on average, or by 0.01 on any text: then nothing here could be compared.

A press keeps 1/N of the context's rows in f16, and twice as many, less the scales, in q8_0. Rows of the question come on top and are not
counted. A memory of kvtide stays within 1/N of the f16 bytes of context and question at every step, the rows of a step included.
"""

import argparse
import json
import random
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

CLEARLY = 0.5  # nats by which a full cache has to be ahead of no text, as in kvtide ruler
MOST_MEAN_APART, MOST_APART = 1e-3, 1e-2  # nats between the full caches of both
ROUNDS = 2000
DEFAULT_TASKS = "single-1,single-2,single-3,multikey-1,multivalue,multiquery"
KVTIDE = "kvtide"


def interval(values, rounds=ROUNDS):
    """Mean and 95% bootstrap interval of groups of values (one group a task): the mean of the groups' means. A group of one value has
    no interval: (mean, None, None)."""
    chance = random.Random(1)
    groups = [group for group in values if group]

    def mean(pick):
        return sum(sum(pick(group)) / len(group) for group in groups) / len(groups)

    if min(map(len, groups)) < 2:
        return mean(lambda group: group), None, None
    means = sorted(mean(lambda group: chance.choices(group, k=len(group))) for _ in range(rounds))
    return mean(lambda group: group), means[round(0.025 * (rounds - 1))], means[round(0.975 * (rounds - 1))]


def is_floor(samples):
    """Whether a full cache is not clearly ahead of no text, by the rule of kvtide ruler."""
    gains = [s["nothing"]["nll"] - s["full"]["nll"] for s in samples]
    mean = sum(gains) / len(gains)
    spread = sum((g - mean) ** 2 for g in gains) / max(1, len(gains) - 1)
    return mean - 1.96 * (spread / len(gains)) ** 0.5 < CLEARLY


class Batches:
    """The files of a folder: of each (ctx, task, first sample) what kvtide wrote, and what presses answered, line by line."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.folder = Path(arguments.out)
        self.folder.mkdir(parents=True, exist_ok=True)

    def all(self):
        a = self.arguments
        for first in range(0, a.samples, a.batch):
            for ctx in a.ctx:
                for task in a.tasks:
                    yield ctx, task, first, min(a.batch, a.samples - first)

    def texts_file(self, ctx, task, first, count):
        ratios = "-".join(map(str, self.arguments.ratios))
        return self.folder / f"{Path(self.arguments.model).stem}-{ctx}-{task}-{first}-{count}-by-{ratios}.jsonl"

    def texts(self, *batch):
        file = self.texts_file(*batch)
        return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []

    def presses_file(self, *batch):
        return self.texts_file(*batch).with_suffix(".presses")

    def presses(self, *batch):
        file = self.presses_file(*batch)
        lines = file.read_text("utf-8").split("\n")[:-1] if file.exists() else []  # a line that was cut off does not count
        return [json.loads(line) for line in lines]


def make_texts(arguments, batches, batch):
    ctx, task, first, count = batch
    command = [arguments.kvtide, "ruler", "-m", arguments.model, "-f", arguments.file, "--exact", "-t", str(arguments.threads), "--ctx",
               str(ctx), "--tasks", task, "--first", str(first), "--samples", str(count), "--ratios",
               ",".join(map(str, arguments.ratios)), "--out", str(batches.texts_file(*batch))]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip().splitlines()[-1]}")


def token_ids(arguments, text):
    command = [arguments.kvtide, "tokenize", "-m", arguments.model, "-p", text, "--no-bos", "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["ids"]


def load_pressed(arguments):
    import pressed_model  # here, so that the rest needs no torch

    ids = {text: token_ids(arguments, text) for text in pressed_model.KVZIP_TEXTS}
    return pressed_model.PressedModel(arguments.model, arguments.threads, ids)


def ask_presses(arguments, pressed, sample):
    from pressed_model import Way

    question = sample["question"]
    context, asked = sample["tokens"][:question], sample["tokens"][question:]
    answers = [(first - question, last - question) for first, last in sample["answers"]]
    wanted = arguments.presses or pressed.presses()
    ways = [Way(p, r, n) for p in wanted for r in arguments.rows for n in arguments.ratios]
    result = {"sample": sample["sample"], "presses": []}
    for way, kept in pressed.read(context, ways).items():
        answer = pressed.ask(kept, len(context), asked, answers)
        if way is None:
            result["full"] = answer
        else:
            result["presses"].append({"press": way.press, "rows": way.rows, "ratio": way.ratio, **answer})
    return result


def has_all(arguments, one):
    """Whether a text was asked of presses in all the rows and ratios: an earlier command may have named fewer."""
    found = {(p["rows"], p["ratio"]) for p in one["presses"]}
    return all((rows, ratio) in found for rows in arguments.rows for ratio in arguments.ratios)


def measure(arguments, batches):
    pressed, started, done, read = None, time.monotonic(), 0, 0
    floor_samples = defaultdict(list)
    for batch in batches.all():
        if not batches.texts_file(*batch).exists():
            make_texts(arguments, batches, batch)
        texts = batches.texts(*batch)
        cell = batch[:2]
        floor_samples[cell] += texts
        done += len(texts)
        if is_floor(floor_samples[cell]):
            continue
        there = {one["sample"] for one in batches.presses(*batch) if has_all(arguments, one)}
        for sample in texts:
            if sample["sample"] in there:
                continue
            pressed = pressed or load_pressed(arguments)
            line = json.dumps(ask_presses(arguments, pressed, sample)) + "\n"
            file = batches.presses_file(*batch)
            before = [one for one in batches.presses(*batch) if one["sample"] != sample["sample"]]
            whole = "".join(json.dumps(one) + "\n" for one in before)
            file.write_text(whole + line, "utf-8")
            read += 1
            print(f"{batch[1]} of {batch[0]:,} tokens, sample {sample['sample']}; {done} of "
                  f"{arguments.samples * len(arguments.ctx) * len(arguments.tasks)} texts are there; "
                  f"{(time.monotonic() - started) / read:.0f} s a text", file=sys.stderr, flush=True)  # fmt: skip


def gathered(arguments, batches):
    """{(ctx, task): [(sample of kvtide, answers of presses)]}, of those that have both; and the cells that are floor."""
    both, texts = defaultdict(list), defaultdict(list)
    for batch in batches.all():
        presses = {one["sample"]: one for one in batches.presses(*batch)}
        for sample in batches.texts(*batch):
            texts[batch[:2]].append(sample)
            if sample["sample"] in presses:
                both[batch[:2]].append((sample, presses[sample["sample"]]))
    floor = [cell for cell, samples in texts.items() if is_floor(samples)]
    return {cell: pairs for cell, pairs in both.items() if cell not in floor}, floor


def answers_of(pair, way):
    """Of kvtide at a ratio, (KVTIDE, "", ratio), or of a press, (press, rows, ratio); None where it was not measured."""
    sample, pressed = pair
    name, rows, ratio = way
    if name == KVTIDE:
        return next((m for m in sample["memories"] if m["memory"] == f"{ratio}x"), None)
    return next((p for p in pressed["presses"] if (p["press"], p["rows"], p["ratio"]) == way), None)


def ways_of(cells):
    names = {(p["press"], p["rows"]): None for pairs in cells.values() for _, one in pairs for p in one["presses"]}
    return [(KVTIDE, ""), *names]


def differences(pairs, way, of):
    """Of each sample: of(way) - of(full cache) in nats, where the way was measured. The full cache is that of the same program."""
    found = []
    for pair in pairs:
        answer = answers_of(pair, way)
        if answer is not None:
            full = pair[0]["full"] if way[0] == KVTIDE else pair[1]["full"]
            found.append(answer[of] - full[of])
    return found


def table(arguments, cells, floor):
    lines = []
    for ctx in arguments.ctx:
        here = {task: pairs for (length, task), pairs in cells.items() if length == ctx}
        if not here:
            continue
        lines += whole_table(ctx, here, arguments.ratios) + task_tables(ctx, here, arguments.ratios)
    if floor:
        lines.append("Floor, left out: " + ", ".join(f"{task} at {ctx:,}" for ctx, task in floor) + ".")
    return "\n".join(lines) + "\n"


def whole_table(ctx, here, ratios):
    samples = sum(map(len, here.values()))
    full = interval([[pair[0]["full"]["nll"] for pair in pairs] for pairs in here.values()])[0]
    right = interval([[pair[0]["full"]["right"] for pair in pairs] for pairs in here.values()])[0]
    lines = [f"{ctx:,} tokens, {samples} texts, mean of {len(here)} tasks. Full cache: {full:.2f} nats a token, {right:.0%} right.", "",
             "| memory | rows | ratio | nats above full (95%) | more nats than kvtide (95%) | right |",
             "|---|---|---:|---:|---:|---:|"]  # fmt: skip
    for ratio in ratios:
        for name, rows in ways_of(here):
            way = (name, rows, ratio)
            above = [differences(pairs, way, "nll") for pairs in here.values()]
            if not all(above):
                lines.append(f"| {name} | {rows} | {ratio}x | too few bytes | | |")
                continue
            right = interval([[answers_of(pair, way)["right"] for pair in pairs] for pairs in here.values()])[0]
            lines.append(f"| {name} | {rows} | {ratio}x | {shown(interval(above))} | {versus(here.values(), way)} | {right:.0%} |")
    return [*lines, ""]


def versus(groups, way):
    """Nats above full of a way, less those of kvtide at the same ratio, paired; empty for kvtide itself or where it has no memory."""
    if way[0] == KVTIDE:
        return ""
    own = [differences(pairs, (KVTIDE, "", way[2]), "nll") for pairs in groups]
    theirs = [differences(pairs, way, "nll") for pairs in groups]
    if not all(own) or not all(theirs):
        return ""
    return shown(interval([[t - o for t, o in zip(a, b, strict=True)] for a, b in zip(theirs, own)]))


def task_tables(ctx, here, ratios):
    lines = [f"{ctx:,} tokens, by task: nats above full.", "", "| memory | rows | ratio | " + " | ".join(here) + " |",
             "|---|---|---:|" + "---:|" * len(here)]  # fmt: skip
    for ratio in ratios:
        for name, rows in ways_of(here):
            above = [differences(pairs, (name, rows, ratio), "nll") for pairs in here.values()]
            if all(above):
                cells = [f"{sum(values) / len(values):+.2f}" for values in above]
                lines.append(f"| {name} | {rows} | {ratio}x | " + " | ".join(cells) + " |")
    return [*lines, ""]


def shown(found):
    mean, low, high = found
    return f"{mean:+.2f}" if low is None else f"{mean:+.2f} ({low:+.2f} to {high:+.2f})"


def apart(cells):
    """Nats between the full caches of both, text by text."""
    return [abs(sample["full"]["nll"] - pressed["full"]["nll"]) for pairs in cells.values() for sample, pressed in pairs]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def numbers(text):
        return [int(word) for word in text.split(",")]

    def names(text):
        return text.split(",")

    parser.add_argument("--kvtide", default="build/kvtide")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-f", "--file", required=True, help="a text to hide things in, of more tokens than --ctx")
    parser.add_argument("-o", "--out", required=True, help="folder of batches; those that are there are kept")
    parser.add_argument("--tasks", type=names, default=names(DEFAULT_TASKS))
    parser.add_argument("--ctx", type=numbers, default=[2048])
    parser.add_argument("--ratios", type=numbers, default=[2, 4, 8, 16])
    parser.add_argument("--samples", type=int, default=12, help="of each task and length [%(default)s]")
    parser.add_argument("--batch", type=int, default=4, help="samples of a task before the next task [%(default)s]")
    parser.add_argument("--presses", type=names, help="of SnapKV, ExpectedAttention, AdaKV(...), KVzip [all that run]")
    parser.add_argument("--rows", type=names, default=["f16", "q8_0"], help="types of the rows that presses keep")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--markdown", help="where to write the tables, too")
    parser.add_argument("--table-only", action="store_true", help="of what is there")
    arguments = parser.parse_args()
    batches = Batches(arguments)
    if not arguments.table_only:
        measure(arguments, batches)
    cells, floor = gathered(arguments, batches)
    text = table(arguments, cells, floor)
    print(text, end="")
    if arguments.markdown:
        Path(arguments.markdown).write_text(text, "utf-8")
    between = apart(cells)
    if not between:
        sys.exit("nothing was measured that a full cache can do")
    print(f"full caches of kvtide and torch: {sum(between) / len(between):.5f} nats apart on average, {max(between):.5f} at most")
    sys.exit(sum(between) / len(between) > MOST_MEAN_APART or max(between) > MOST_APART)


if __name__ == "__main__":
    main()
