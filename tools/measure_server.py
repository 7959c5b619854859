#!/usr/bin/env python3
"""Throughput, time to the first token and memory of `kvtide serve` with 1, 4 and 8 clients at once, beside other servers, and how
long one that writes waits while a long prompt of another is read.

    tools/measure_server.py --kvtide build/kvtide -m MODEL \\
        --peer "llama-server=build/llama-server/bin/llama-server -m {model} --port {port} -np 8 -c 16384 -t 2"

The servers run beside each other and are asked in turns, a case at a time, so that what else the machine does meets all alike.
Prompts are random words, other ones in every round. "shared" ones begin alike and end apart; "separate" ones have nothing in
common. Python standard library only.
"""

import argparse
import http.client
import json
import random
import re
import shlex
import signal
import socket
import statistics
import subprocess
import threading
import time
from pathlib import Path

WORDS = "the sea ship captain wind island morning people walked harbour light summer garden letter house".split()
PROMPT_WORDS, OWN_WORDS, LONG_WORDS, ANSWER_TOKENS = 380, 20, 2600, 64
ANSWER_TIMEOUT = 300.0


def words(count: int, seed: int) -> str:
    choose = random.Random(seed)
    return " ".join(choose.choice(WORDS) for _ in range(count))


class Server:
    def __init__(self, name: str, command: list[str], port: int | None):
        self.name, self.port = name, port
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if port is None:
            line = next(line for line in self.process.stderr if "http://127.0.0.1:" in line)
            self.port = int(re.search(r"http://127\.0\.0\.1:(\d+)", line).group(1))
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        end = time.monotonic() + 60
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"{name} does not answer: {shlex.join(command)}")
            time.sleep(0.2)

    def _answers(self) -> bool:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", "/v1/models")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False

    def most_resident_mib(self) -> float:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", text).group(1)) / 1024

    def stream(self, prompt: str, tokens: int) -> tuple[list[float], dict]:
        """When the tokens came, in seconds since the request, and the usage."""
        connection, begin = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_TIMEOUT), time.monotonic()
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True,
                "stream_options": {"include_usage": True}}  # fmt: skip
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        times, usage = [], {}
        for line in connection.getresponse():
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                usage = event.get("usage") or usage
                if event.get("choices") and event["choices"][0]["text"]:
                    times.append(time.monotonic() - begin)
        connection.close()
        if not times:
            raise SystemExit(f"{self.name} wrote nothing")
        return times, usage

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


def at_once(server: Server, prompts: list[str]) -> tuple[float, list[float]]:
    """Tokens a second in all, and when the first tokens came."""
    answers = []
    clients = [threading.Thread(target=lambda p=prompt: answers.append(server.stream(p, ANSWER_TOKENS))) for prompt in prompts]
    begin = time.monotonic()
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    seconds = time.monotonic() - begin
    assert len(answers) == len(prompts), f"{server.name} left clients without an answer"
    written = sum(usage.get("completion_tokens", len(times)) for times, usage in answers)
    return written / seconds, [times[0] for times, _ in answers]


def prompts_of(kind: str, clients: int, round_number: int) -> list[str]:
    seeds = [10_000 * round_number + 100 * clients + i for i in range(clients)]
    if kind == "separate":
        return [words(PROMPT_WORDS, seed) for seed in seeds]
    trunk = words(PROMPT_WORDS - OWN_WORDS, seeds[0] + 50)
    return [f"{trunk} {words(OWN_WORDS, seed)}" for seed in seeds]


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def compare(servers: list[Server], rounds: int, clients: list[int], seconds: float) -> list[dict]:
    cases = [(kind, count) for kind in ("separate", "shared") for count in clients]
    rates = {(server.name, *case): [] for server in servers for case in cases}
    firsts = {key: [] for key in rates}
    begun, rounds_done = time.monotonic(), 0
    while rounds_done < rounds and (rounds_done == 0 or (time.monotonic() - begun) * (1 + 1 / rounds_done) < seconds):
        for case in cases:
            prompts = prompts_of(*case, rounds_done)
            # Whoever begins does so in every second case, since a processor that was idle is faster for a moment.
            for server in servers if (rounds_done + cases.index(case)) % 2 == 0 else servers[::-1]:
                rate, first = at_once(server, prompts)
                rates[(server.name, *case)].append(rate)
                firsts[(server.name, *case)] += first
        rounds_done += 1
    out = []
    for kind, count in cases:
        for server in servers:
            key, own = (server.name, kind, count), rates[(servers[0].name, kind, count)]
            out.append({
                "prompts": kind, "clients": count, "server": server.name, "rounds": rounds_done,
                "tokens_per_s": statistics.median(rates[key]),
                "kvtide_times_as_fast": statistics.median(one / other for one, other in zip(own, rates[key])),
                "first_token_p50_ms": 1e3 * percentile(firsts[key], 0.5), "first_token_p99_ms": 1e3 * percentile(firsts[key], 0.99),
            })  # fmt: skip
    return out


def print_table(rows: list[dict], servers: list[Server]) -> None:
    print("| prompts | clients | server | tokens/s | kvtide is so many times as fast | first token p50, p99 (ms) |")
    print("| --- | ---: | --- | ---: | ---: | --- |")
    for row in rows:
        times = "" if row["server"] == servers[0].name else f"{row['kvtide_times_as_fast']:.2f}"
        print(f"| {row['prompts']} | {row['clients']} | {row['server']} | {row['tokens_per_s']:.1f} | {times} | "
              f"{row['first_token_p50_ms']:.0f}, {row['first_token_p99_ms']:.0f} |")  # fmt: skip
    print(f"\nrounds: {rows[0]['rounds']}; most resident (MiB): "
          + ", ".join(f"{server.name} {server.most_resident_mib():.0f}" for server in servers))  # fmt: skip


def print_wait(server: Server) -> None:
    """How long one that writes waits for its tokens while a long prompt is read."""
    gaps: list[float] = []
    writer = threading.Thread(target=lambda: gaps.extend(server.stream("The sea is", 400)[0]))
    begun = time.monotonic()
    writer.start()
    time.sleep(0.5)
    begin = time.monotonic() - begun
    _, usage = server.stream(words(LONG_WORDS, 77), 1)
    end = time.monotonic() - begun
    writer.join()
    waits = sorted(1e3 * (after - before) for before, after in zip(gaps, gaps[1:]) if after > begin and before < end)
    print(f"{server.name}: while a prompt of {usage.get('prompt_tokens')} tokens is read, for {end - begin:.1f} s, one that writes waits "
          f"{statistics.median(waits):.0f} ms for a token in the middle, {percentile(waits, 0.9):.0f} ms at p90, {waits[-1]:.0f} ms at most")  # fmt: skip


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvtide", default="build/kvtide")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND", help="with {model} and {port} in it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=lambda text: [int(one) for one in text.split(",")], default=[1, 4, 8])
    parser.add_argument("--seconds", type=float, default=1e9, help="no round begins that would end later")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    servers = [Server("kvtide", [arguments.kvtide, "serve", "-m", arguments.model, "--port", "0", "--quiet"], None)]
    try:
        for peer in arguments.peer:
            name, _, command = peer.partition("=")
            port = free_port()
            servers.append(Server(name, shlex.split(command.format(model=arguments.model, port=port)), port))
        rows = compare(servers, arguments.rounds, arguments.clients, arguments.seconds)
        print_table(rows, servers)
        for server in servers:
            print_wait(server)
        if arguments.json:
            arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    finally:
        for server in servers:
            server.stop()


if __name__ == "__main__":
    main()
