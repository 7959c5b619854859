#!/usr/bin/env python3
"""Shows what kvtide does: a long text is read once inside a cap of bytes, saved, and asked in a second.

    tools/demo.py KVTIDE MODEL NOVEL [FOLDER]      MODEL is Gemma-3-270M, NOVEL is Persuasion; FOLDER defaults to build/demo

A pass key is planted at 10% of the text. Three sentences are then completed three times: with the memory of the text, with a
plain cache of as many bytes, which holds only the end of the text, and with no text at all. Fails when the memory of the text
gives a wrong answer.
"""

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

CAP_MIB = 20
TYPES = ["-ctk", "q8_0", "-ctv", "q8_0"]
TEXT_BYTES = 88_000  # some 19,000 tokens
WINDOW = 8_000  # tokens whose plain cache takes CAP_MIB in the same types
WINDOW_BYTES = 40_000  # more than so many tokens of text
KEY = "48213"
PLANTED = f" The pass key is {KEY}. Remember it: {KEY} is the pass key."
QUESTIONS = [  # the beginning of a sentence, what the text says, where it says it
    (" What is the pass key? The pass key is", KEY, "planted at 10% of the text"),
    ("Sir Walter Elliot married Elizabeth, the daughter of James Stevenson, Esq. of", "South Park", "said once, at 1%"),
    ("Admiral Croft was a rear admiral of the", "white", "said once, at 41%"),
]
MIB = 1 << 20


def planted_text(novel: Path) -> str:
    text = novel.read_text("utf-8")[:TEXT_BYTES]
    text = text[: text.rindex("\n\n")]
    at = text.index("\n\n", len(text) // 10)
    return text[:at] + PLANTED + text[at:]


def bar(share: float, width: int = 26) -> str:
    filled = min(width, round(share * width))
    return "#" * filled + "." * (width - filled)


class Picture:
    """Draws the memory while it fills, in place on a terminal, as a line for every tenth of the text elsewhere."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.live = sys.stdout.isatty()
        self.next = 0.0

    def draw(self, position: int, held: int, full: int) -> None:
        share = position / self.tokens
        if not self.live and share < self.next:
            return
        self.next = int(share * 10 + 1) / 10
        line = f"  {position:6,} tokens  |{bar(held / MIB / CAP_MIB)}| {held / MIB:4.1f} of {CAP_MIB} MiB; full cache {full / MIB:4.1f}"
        if self.live:
            columns = shutil.get_terminal_size().columns
            print("\r" + line[: columns - 1].ljust(columns - 1), end="", flush=True)
        else:
            print(line, flush=True)

    def close(self) -> None:
        if self.live:
            print()


def full_cache_bytes(kvtide: str, model: str):
    """A function from tokens to the bytes of a full f16 cache, from what `kvtide inspect` says of two lengths."""
    shape = json.loads(subprocess.run([kvtide, "inspect", model, "--json"], check=True, capture_output=True).stdout)
    few, many = (shape["kv_bytes"][tokens]["f16"] for tokens in ("4096", "32768"))
    return lambda tokens: round(few + (tokens - 4096) * (many - few) / (32768 - 4096))


def read(kvtide: str, model: str, text: Path, state: Path, tokens: int) -> None:
    """Reads `text` inside the cap and saves it as `state`, drawing every block that is compressed."""
    log = state.with_suffix(".log")
    log.unlink(missing_ok=True)
    full = full_cache_bytes(kvtide, model)
    picture = Picture(tokens)
    picture.draw(0, 0, 0)  # nothing is compressed before the cap is near
    command = [kvtide, "run", "-m", model, "-f", str(text), "-n", "0", "--kv-budget", f"{CAP_MIB}M", *TYPES]
    command += ["--save-state", str(state), "--kv-log", str(log)]
    with open(state.with_suffix(".stderr"), "w+b") as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        seen = 0
        while process.poll() is None or (log.exists() and seen < log.stat().st_size):
            ended = process.poll() is not None
            if log.exists():
                with open(log, "rb") as lines:
                    lines.seek(seen)
                    for line in lines:
                        if not line.endswith(b"\n"):
                            break
                        seen += len(line)
                        block = json.loads(line)
                        picture.draw(block["position"], block["bytes"], full(block["position"]))
            if ended:
                break
            time.sleep(0.1)
        picture.close()
        if process.returncode != 0:
            errors.seek(0)
            sys.exit(f"demo.py: reading the text failed: {errors.read().decode(errors='replace')[-300:]}")


def complete(kvtide: str, model: str, question: str, state: Path | None) -> tuple[str, float]:
    """The next words after `question`, always the likeliest ones, and the seconds of the whole command."""
    start = time.monotonic()
    command = [kvtide, "run", "-m", model, "-p", question, "-n", "9", *(["--load-state", str(state)] if state else [])]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return re.split(r"\n|(?<=[.])\s", answer.strip())[0], time.monotonic() - start


def main() -> int:
    if len(sys.argv) not in (4, 5):
        print(__doc__, file=sys.stderr)
        return 2
    kvtide, model, novel = sys.argv[1:4]
    folder = Path(sys.argv[4] if len(sys.argv) == 5 else "build/demo")
    folder.mkdir(parents=True, exist_ok=True)
    text, end = folder / "text.txt", folder / "end.txt"
    text.write_text(planted_text(Path(novel)), "utf-8")
    end.write_text(text.read_text("utf-8")[-WINDOW_BYTES:], "utf-8")
    ids = subprocess.run([kvtide, "tokenize", "-m", model, "-f", str(text), "--json"], check=True, capture_output=True).stdout
    tokens = len(json.loads(ids)["ids"])

    print(f"1. Gemma-3-270M reads {tokens:,} tokens of Jane Austen's Persuasion. Its KV cache may take {CAP_MIB} MiB, no more.\n")
    start = time.monotonic()
    book = folder / "book.kv"
    read(kvtide, model, text, book, tokens)
    print(f"\n   Read in {time.monotonic() - start:.0f} s, and saved: {book} has {book.stat().st_size / MIB:.0f} MiB.\n")

    window = folder / "window.kv"
    subprocess.run([kvtide, "run", "-m", model, "-f", str(end), "-n", "0", "--overflow", "rolling", "--kv-window", str(WINDOW),
                    *TYPES, "--save-state", str(window)], check=True, capture_output=True)  # fmt: skip
    forgotten = 0
    print("2. Sentences for the model to complete, each by a new process.\n")
    for question, said, place in QUESTIONS:
        print(f"   {question.strip()} ...   ({place})")
        for name, state in (("with the book", book), (f"newest {WINDOW:,} tokens", window), ("without the book", None)):
            answer, seconds = complete(kvtide, model, question, state)
            verdict = "right" if said in answer else "wrong"
            forgotten += state == book and verdict == "wrong"
            print(f"     {name:<21} {verdict}: {answer}  ({seconds:.1f} s)", flush=True)
        print()
    print(f"The newest {WINDOW:,} tokens are what a plain cache of {CAP_MIB} MiB holds. Ask something else:")
    print(f'  {kvtide} run -m {model} --load-state {book} -n 20 -p "Kellynch Hall was let to Admiral"')
    return 1 if forgotten else 0


if __name__ == "__main__":
    sys.exit(main())
