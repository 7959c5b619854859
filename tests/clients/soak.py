"""kvtide serve under clients that come, go, edit and branch, while it is killed and started again: `make soak`.

16 clients ask for SECONDS (600). Every minute the server is killed with SIGKILL in the middle of its work and started again
with the same --cache-dir. It fails for an answer with other bits than a fresh read gives, for a stored answer that was
acknowledged and is gone, for memory beyond what the budget explains, and for file descriptors that stay open. Environment:
KVTIDE, KVTIDE_MODEL, SECONDS, CLIENTS, KILL_EVERY, SEED.
"""

import http.client
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter

PROGRAM, MODEL = os.environ["KVTIDE"], os.environ["KVTIDE_MODEL"]
SECONDS = float(os.environ.get("SECONDS", "600"))
CLIENTS = int(os.environ.get("CLIENTS", "16"))
KILL_EVERY = float(os.environ.get("KILL_EVERY", "60"))
SEED = int(os.environ.get("SEED", "1"))
BUDGET_MIB = 96  # less than all prompts together need
BESIDE_MIB = 48  # of memory beside the budget: connections, the steps' scratch, files on their way
TOKENS = 6
MOST_STORED = 3000  # the server gives up the oldest beyond 4,096
PARTS = ["The sea was calm and the boat lay at anchor.", "An old man counted the nets that he had mended.",
         "His daughter wrote letters to a town far away.", "Rain fell on the roofs, and nobody went out.",
         "In the evening they lit the lamp and read aloud."]  # fmt: skip


def pool(rng):
    """Prompts that begin alike, are edited in the middle, and branch at the end."""
    out = []
    for trunk in range(4):
        text = " ".join(rng.sample(PARTS, 4)) + f" That was in the year {1800 + trunk}. "
        words = text.split(" ")
        edited = " ".join(words[:20] + ["Suddenly"] + words[21:])
        out += [text, text + "Then the door", text + "The morning after, she", edited, edited + "and so"]
    return out


class Server:
    def __init__(self, *words):
        self.words, self.process, self.port = words, None, 0
        self.told = []

    def start(self):
        self.process = subprocess.Popen([PROGRAM, "serve", "-m", f"small={MODEL}", "--port", str(self.port), "--quiet",
                                         "--max-tokens", "64", *self.words], stderr=subprocess.PIPE, text=True)  # fmt: skip
        for line in self.process.stderr:
            self.told.append(line.strip())
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found.group(1))
                break
        else:
            raise SystemExit(f"the server did not start: {self.told[-3:]}")
        threading.Thread(target=lambda pipe: self.told.extend(line.strip() for line in pipe), args=(self.process.stderr,),
                         daemon=True).start()  # fmt: skip

    def ask(self, method, path, body=None, timeout=60):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            return answer.status, answer.read().decode("utf-8")
        finally:
            connection.close()

    def metric(self, name):
        return float(re.search(rf"^{re.escape(name)} (\S+)$", self.ask("GET", "/metrics")[1], re.M).group(1))

    def anonymous_mib(self):
        text = open(f"/proc/{self.process.pid}/status", encoding="ascii").read()
        return sum(int(found) for found in re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+)", text, re.M)) / 1024

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


def completion(prompt, **more):
    return {"prompt": prompt, "temperature": 0, "max_tokens": TOKENS, "logprobs": 1, "ignore_eos": True} | more


def bits_of(choices):
    return "".join(c["text"] for c in choices), [p for c in choices for p in (c.get("logprobs") or {"token_logprobs": []})["token_logprobs"]]


def read_afresh(prompts):
    server = Server("--kv-budget", "256M")
    server.start()
    wanted = {}
    for prompt in prompts:
        for state in json.loads(server.ask("GET", "/states")[1])["data"]:
            server.ask("DELETE", f"/states/{state['id']}")
        got = json.loads(server.ask("POST", "/v1/completions", completion(prompt))[1])
        assert got["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        wanted[prompt] = bits_of(got["choices"])
    server.process.terminate()
    server.process.wait(20)
    return wanted


class Soak:
    def __init__(self, wanted, folder):
        self.server = Server("--kv-budget", f"{BUDGET_MIB}M", "--parallel", "6", "--queue", "32", "--cache-dir", folder,
                             "--cache-bytes", "256M", "--idle-spill", "10", "--chat-template", "chatml")  # fmt: skip
        self.wanted = wanted
        self.end = time.monotonic() + SECONDS
        self.lock = threading.Lock()
        self.counts, self.wrong = Counter(), []
        self.stored, self.chains = {}, {}  # answers by id; what a conversation was answered with
        self.stop, self.pause = threading.Event(), threading.Event()
        self.busy = 0
        self.most_mib = self.most_beside = 0.0

    def note(self, what):
        with self.lock:
            self.counts[what] += 1

    def check(self, same, what):
        if not same:
            with self.lock:
                self.wrong.append(what)

    def whole(self, rng):
        prompt = rng.choice(list(self.wanted))
        status, text = self.server.ask("POST", "/v1/completions", completion(prompt))
        if status == 200:
            self.check(bits_of(json.loads(text)["choices"]) == self.wanted[prompt], f"whole: {prompt!r}: {text}")
        return status

    def stream(self, rng):
        prompt = rng.choice(list(self.wanted))
        status, text = self.server.ask("POST", "/v1/completions", completion(prompt, stream=True))
        if status == 200:
            events = [line[6:] for line in text.split("\n\n") if line]
            if events[-1] != "[DONE]" or any("error" in json.loads(event) for event in events[:-1]):
                return 0
            choices = [choice for event in events[:-1] for choice in json.loads(event)["choices"]]
            self.check(bits_of(choices) == self.wanted[prompt], f"stream: {prompt!r}")
        return status

    def leave(self, rng):
        body = json.dumps(completion(rng.choice(list(self.wanted)), stream=True, max_tokens=40)).encode()
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=10) as client:
            sent = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            client.sendall(sent[: rng.randrange(len(sent)) + 1] if rng.random() < 0.3 else sent)
            time.sleep(rng.random() * 0.5)
        return 200

    def time_out(self, rng):
        try:
            return self.server.ask("POST", "/v1/completions", completion(rng.choice(list(self.wanted)), max_tokens=30), 0.3)[0]
        except TimeoutError:
            return 200

    def converse(self, rng):
        """Goes on from any stored answer, which makes branches; or looks at one."""
        with self.lock:
            known = list(self.stored.items())
        if known and rng.random() < 0.4:
            identity, (text, _) = rng.choice(known)
            status, got = self.server.ask("GET", f"/v1/responses/{identity}")
            self.check(status == 200 and got == text, f"a stored answer is lost: {identity}: {status} {got[:200]}")
            return status
        said, previous = (), None
        if known and rng.random() < 0.8:
            previous, (_, said) = rng.choice(known)
        if len(said) > 4:
            said, previous = (), None
        said += (rng.choice(["Hello.", "Name three fish.", "Why?"]),)
        more = {} if previous is None else {"previous_response_id": previous}
        status, text = self.server.ask("POST", "/v1/responses", {"input": said[-1], "temperature": 0, "max_output_tokens": TOKENS} | more)
        if status == 404:
            self.check(False, f"cannot go on from {previous}: {text}")
        if status == 200:
            got = json.loads(text)
            answer = "".join(part["text"] for item in got["output"] for part in item.get("content", []))
            with self.lock:
                first = self.chains.setdefault(said, answer)
                self.stored[got["id"]] = (text, said)
                if len(self.stored) > MOST_STORED:
                    del self.stored[next(iter(self.stored))]
            self.check(answer == first, f"{said}: {answer!r}, and before {first!r}")
        return status

    def client(self, number):
        rng = random.Random(SEED * 1000 + number)
        while not self.stop.is_set():
            if self.pause.is_set():
                time.sleep(0.05)
                continue
            with self.lock:
                self.busy += 1
            action = rng.choice([self.whole, self.whole, self.stream, self.leave, self.time_out, self.converse, self.converse])
            try:
                status = action(rng)
                self.note(f"{action.__name__} {status}")
                if status not in (0, 200, 429):
                    self.check(False, f"{action.__name__}: status {status}")
                if status == 429:
                    time.sleep(0.2)
            except (OSError, http.client.HTTPException):  # it is being killed, or not there yet
                self.note("no server")
                time.sleep(0.1)
            finally:
                with self.lock:
                    self.busy -= 1

    def watch(self, base_mib):
        while not self.stop.wait(0.2):
            try:
                now = self.server.anonymous_mib()
                self.most_mib = max(self.most_mib, now)
                self.most_beside = max(self.most_beside, now - base_mib - BUDGET_MIB)
            except (OSError, ValueError):
                pass

    def quiet(self):
        """Until nothing is asked and nothing runs; the descriptors that are open then."""
        self.pause.set()
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if self.busy == 0 and self.server.metric("vllm:num_requests_running") == self.server.metric("vllm:num_requests_waiting") == 0:
                break
            time.sleep(0.1)
        else:
            self.check(False, "the server did not come to rest within a minute")
        time.sleep(0.5)
        count = self.server.descriptors()
        self.pause.clear()
        return count

    def run(self):
        self.server.start()
        base_mib, base_descriptors = self.server.anonymous_mib(), self.server.descriptors()
        threads = [threading.Thread(target=self.client, args=(number,)) for number in range(CLIENTS)]
        threads.append(threading.Thread(target=self.watch, args=(base_mib,)))
        for thread in threads:
            thread.start()
        rng, kills, most_left = random.Random(SEED), 0, 0
        while time.monotonic() < self.end:
            time.sleep(max(0.0, min(KILL_EVERY - 5, self.end - time.monotonic())))
            most_left = max(most_left, self.quiet() - base_descriptors)
            if time.monotonic() >= self.end:
                break
            time.sleep(1 + 3 * rng.random())
            self.server.process.kill()
            self.server.process.wait()
            kills += 1
            self.server.start()
        self.stop.set()
        for thread in threads:
            thread.join()
        for identity, (text, _) in self.stored.items():
            status, got = self.server.ask("GET", f"/v1/responses/{identity}")
            self.check(status == 200 and got == text, f"a stored answer is lost at the end: {identity}: {status}")
        hits, spared = self.server.metric("kvtide_disk_hits_total"), self.server.metric("kvtide_cached_tokens_total")
        began = time.monotonic()
        self.server.process.terminate()
        status = self.server.process.wait(30)
        ended = time.monotonic() - began
        self.check(status == 0 and ended < 10, f"the end: status {status} after {ended:.1f} s")
        self.check(most_left <= 4, f"{most_left} file descriptors stayed open")
        self.check(self.most_beside <= BESIDE_MIB, f"{self.most_beside:.0f} MiB beside the budget")
        removed = [line for line in self.server.told if line.startswith("removed")]
        print(f"{SECONDS:.0f} s, {CLIENTS} clients, {kills} kills: {dict(sorted(self.counts.items()))}")
        print(f"stored answers {len(self.stored)}; from the disk since the last start {hits:.0f} prefixes, tokens spared {spared:.0f}; "
              f"damaged files {len(removed)}")  # fmt: skip
        print(f"anonymous memory: {base_mib:.0f} MiB at the start, {self.most_mib:.0f} MiB at most, budget {BUDGET_MIB} MiB, "
              f"beside it {self.most_beside:.0f} MiB; descriptors beyond the start's at rest {most_left}; end {ended:.1f} s")  # fmt: skip
        print(f"wrong: {len(self.wrong)}")
        for line in self.wrong[:10]:
            print("  " + line[:500])
        return not self.wrong


def main():
    folder = tempfile.mkdtemp(prefix="kvtide-soak-")
    try:
        soak = Soak(read_afresh(pool(random.Random(SEED))), folder)
        try:
            sys.exit(0 if soak.run() else 1)
        finally:
            soak.stop.set()
            if soak.server.process is not None and soak.server.process.poll() is None:
                soak.server.process.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
