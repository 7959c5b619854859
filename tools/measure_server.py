#!/usr/bin/env python3
"""Time to the first token, and throughput, of `kvtide serve` with 1, 4 and 8 clients at once, and how long one that writes
waits while a long prompt of another is read.

    tools/measure_server.py --kvtide build/kvtide -m MODEL

Prompts are random words, so that none is in the prefix cache; "shared" ones begin alike. Python standard library only.
"""

import argparse
import http.client
import json
import random
import re
import signal
import statistics
import subprocess
import threading
import time

WORDS = "the sea ship captain wind island morning people walked harbour light summer garden letter house".split()
PROMPT_WORDS, LONG_WORDS, ANSWER_TOKENS = 380, 2600, 64


def words(count: int, seed: int) -> str:
    choose = random.Random(seed)
    return " ".join(choose.choice(WORDS) for _ in range(count))


def stream(port: int, prompt: str, tokens: int) -> tuple[list[float], dict]:
    """When the tokens came, in seconds since the request, and the usage."""
    connection, begin = http.client.HTTPConnection("127.0.0.1", port), time.monotonic()
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True}}  # fmt: skip
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    times, usage = [], {}
    for line in connection.getresponse():
        if line.startswith(b"data: {"):
            event = json.loads(line[6:])
            usage = event.get("usage") or usage
            if event["choices"] and event["choices"][0]["text"]:
                times.append(time.monotonic() - begin)
    connection.close()
    return times, usage


def at_once(port: int, prompts: list[str]) -> tuple[float, list[tuple[list[float], dict]]]:
    answers = []
    clients = [threading.Thread(target=lambda p=prompt: answers.append(stream(port, p, ANSWER_TOKENS))) for prompt in prompts]
    begin = time.monotonic()
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    return time.monotonic() - begin, answers


def measure(port: int) -> None:
    for shared in (False, True):
        for clients in (1, 4, 8):
            seeds = [1000 if shared else 10 * clients + i for i in range(clients)]
            prompts = [f"{words(PROMPT_WORDS, seed)} {i}" for i, seed in enumerate(seeds)]
            seconds, answers = at_once(port, prompts)
            first = sorted(times[0] for times, _ in answers)
            cached = sum(usage["prompt_tokens_details"]["cached_tokens"] for _, usage in answers)
            print(f"{clients} clients, {'shared' if shared else 'separate'} prompts of {answers[0][1]['prompt_tokens']} tokens: first "
                  f"token after {1e3 * statistics.median(first):.0f} ms (last {1e3 * first[-1]:.0f}), "
                  f"{clients * ANSWER_TOKENS / seconds:.0f} tokens/s in all, {cached} tokens cached")  # fmt: skip
    writer = threading.Thread(target=lambda: gaps.extend(stream(port, "The sea is", 400)[0]))
    gaps: list[float] = []
    begun = time.monotonic()
    writer.start()
    time.sleep(0.5)
    begin = time.monotonic() - begun
    _, usage = stream(port, words(LONG_WORDS, 77), 1)
    end = time.monotonic() - begun
    writer.join()
    waits = sorted(1e3 * (after - before) for before, after in zip(gaps, gaps[1:]) if after > begin and before < end)
    print(f"while a prompt of {usage['prompt_tokens']} tokens is read, one that writes waits {statistics.median(waits):.0f} ms for a token "
          f"in the middle, {waits[int(0.9 * len(waits))]:.0f} ms at p90, {waits[-1]:.0f} ms at most")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvtide", default="build/kvtide")
    parser.add_argument("-m", "--model", required=True)
    arguments = parser.parse_args()
    command = [arguments.kvtide, "serve", "-m", arguments.model, "--port", "0", "--quiet"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        for line in server.stderr:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                measure(int(found.group(1)))
                break
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


if __name__ == "__main__":
    main()
