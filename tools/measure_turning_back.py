#!/usr/bin/env python3
"""Counts the tokens that are read again when the third-last turn of a long chat is edited: kvtide's chat, and llama-server.

    tools/make_llama_server.sh build/llama-server
    tools/measure_turning_back.py --text FILE MODEL[:FLAG,FLAG...]... [--tokens 8000] [--json F.json]

FLAGs go to `kvtide chat`, for instance model.gguf:--overflow,rolling,--kv-window,1024. The chat has nine turns of one
length. Two are taken back and the third is asked anew; counted is what was read beyond the new message. llama-server gets
the same messages as one growing prompt, in one slot, with the checkpoints that it keeps by itself; what it read is what it
says. It has no rolling memory and is then left out. Python standard library only.
"""
import argparse
import json
import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from measure_server import Server, free_port

TURNS = 9


def run_llama_server(a, model, lines, edited):
    """(tokens of the chat, tokens before the edited turn, tokens that were read again)."""
    port = free_port()
    server = Server("llama-server", [a.llama_server, "-m", model, "--port", str(port), "-np", "1", "-c", str(3 * a.tokens), "-t", "2"], port)

    def ask(prompt):
        body = {"prompt": prompt, "n_predict": 8, "temperature": 0, "ignore_eos": True, "id_slot": 0, "cache_prompt": True}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=3600) as response:
            answer = json.loads(response.read())
        return answer["content"], answer["timings"]["prompt_n"], answer["tokens_evaluated"]

    try:
        talk, before_turn, total = "", [], 0
        for line in lines:
            before_turn.append((talk, total))
            talk += f"\nUser: {line}\nAssistant:"
            content, _, evaluated = ask(talk)
            talk, total = talk + content, evaluated + 8
        front, at = before_turn[TURNS - 3]
        _, read, evaluated = ask(f"{front}\nUser: {edited}\nAssistant:")
        return total, at, max(0, read - (evaluated - at))
    finally:
        server.stop()


def run_kvtide(a, model, flags, lines):
    """The report, the tokens that were read again, and whether everything was."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [a.kvtide, "chat", "-m", model, "--report", str(report), "-n", "8", "--temp", "0", "-t", "2", *flags]
        done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{model}: {done.stderr.strip()}")
        talk = json.loads(report.read_text("utf-8"))
    again = sum(int(n.replace(",", "")) for n in re.findall(r"([\d,]+) tokens before them were read again", done.stderr))
    whole = len(re.findall(r"what came before will be read again", done.stderr)) > 0
    return talk, again, whole


def measure(a, spec):
    model, _, flags = spec.partition(":")
    flags = [flag for flag in flags.split(",") if flag]
    words = Path(a.text).read_text("utf-8").split()
    per_turn = int(a.tokens / TURNS / a.tokens_per_word)
    lines = [" ".join(words[i * per_turn : (i + 1) * per_turn]) for i in range(TURNS)]
    edited = " ".join(words[TURNS * per_turn : (TURNS + 1) * per_turn])
    report, again, whole = run_kvtide(a, model, ["-c", str(3 * a.tokens), *flags], [*lines, "/undo", "/undo", f"/edit {edited}"])
    turns = report["turns"]
    read = [turn["prefill_tokens"] + turn["decode_tokens"] for turn in turns]
    total, at = sum(read[:TURNS]), sum(read[: TURNS - 3])
    if whole:  # the last turn read everything before it, too
        again += at
    row = {"model": Path(model).stem, "flags": " ".join(flags), "tokens": total, "edited_at": at, "new_message": turns[-1]["prefill_tokens"],
           "kvtide_again": again}  # fmt: skip
    if "rolling" not in flags:
        row["llama_server_tokens"], row["llama_server_at"], row["llama_server_again"] = run_llama_server(a, model, lines, edited)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvtide", default="build/kvtide")
    parser.add_argument("--llama-server", default="build/llama-server/bin/llama-server")
    parser.add_argument("--text", required=True, help="English text; its words fill the turns")
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument("--tokens-per-word", type=float, default=1.35)
    parser.add_argument("--json")
    parser.add_argument("models", nargs="+")
    a = parser.parse_args()
    rows = []
    print("| model | chat, tokens | edited at | kvtide reads again | llama-server reads again |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for spec in a.models:
        row = measure(a, spec)
        rows.append(row)
        theirs = f"{row['llama_server_again']:,}" if "llama_server_again" in row else ""
        print(f"| {row['model']} {row['flags']} | {row['tokens']:,} | {row['edited_at']:,} | {row['kvtide_again']:,} | {theirs} |", flush=True)
    if a.json:
        Path(a.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
