"""kvtide serve --cache-dir: prefixes and stored answers outlive the process, however it ends, and the bits stay."""

import json
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
import unittest
from pathlib import Path

from program import LLAMA, TIMEOUT_S, kvtide
from serve_test import Server, greedy

WORDS = "the sea is a man once there was and he said in the house we were it is "


class DiskServer(Server):
    def __init__(self, folder, *words):
        super().__init__("--cache-dir", folder, "--max-tokens", "12", *words)

    def complete(self, prompt, **more):
        answer, text = self.ask("/v1/completions", greedy(prompt, logprobs=1, **more))
        assert answer.status == 200, text
        got = json.loads(text)
        choice = got["choices"][0]
        return choice["text"], choice["logprobs"]["token_logprobs"], got["usage"]["prompt_tokens_details"]["cached_tokens"]

    def kill(self):
        self.process.kill()
        self.process.wait(TIMEOUT_S)
        self.process.stdout.close()
        err = self.process.stderr.read().decode("utf-8")
        self.process.stderr.close()
        return err


class ServeDiskTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="kvtide-disk-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def files(self):
        return sorted(Path(self.folder).glob("*.kv"))

    def test_prefixes_survive_kill_with_equal_bits(self):
        server = DiskServer(self.folder)
        first = server.complete(WORDS)
        self.assertEqual(first[2], 0)
        server.wait_for("kvtide_disk_written_total", 1)
        server.kill()
        server = DiskServer(self.folder)
        self.assertEqual(server.metric("kvtide_disk_states"), 1)
        second = server.complete(WORDS)
        self.assertEqual(second[:2], first[:2], "the same text, to the last bit of its probabilities")
        self.assertGreater(second[2], 40)
        self.assertEqual(server.metric("kvtide_disk_hits_total"), 1)
        third = server.complete(WORDS)  # from the memory
        self.assertEqual((third[:2], server.metric("kvtide_disk_hits_total")), (first[:2], 1))
        edited = server.complete(WORDS[:-20] + "by and by")
        alone = kvtide("run", "-m", LLAMA, "-p", WORDS[:-20] + "by and by", "-n", "12")
        self.assertEqual(edited[0], alone.text)
        self.assertEqual(server.end()[0], 0)

    def test_broken_torn_foreign_and_stale_files_are_misses(self):
        server = DiskServer(self.folder)
        first = server.complete(WORDS)
        server.wait_for("kvtide_disk_written_total", 1)
        server.kill()
        (sound,) = self.files()
        whole = sound.read_bytes()
        stale = whole.replace(b'"kvtide":"', b'"kvtidf":"', 1)
        cases = {
            "rows": whole[: len(whole) // 2] + bytes([whole[len(whole) // 2] ^ 1]) + whole[len(whole) // 2 + 1 :],
            "torn": whole[: len(whole) * 2 // 3],
            "header": whole[:60] + b"\0" + whole[61:],
            "empty": b"",
            "stale": stale,
            "other": os.urandom(5000),
        }
        for name, contents in cases.items():
            sound.write_bytes(contents)
            (Path(self.folder) / (sound.name + ".tmp1-0")).write_bytes(whole[:100])
            server = DiskServer(self.folder)
            got = server.complete(WORDS)
            self.assertEqual((got[:2], got[2]), (first[:2], 0), name)
            self.assertEqual(server.metric("kvtide_disk_broken_total"), 1, name)
            self.assertEqual(server.metric("kvtide_requests_failed_total"), 0, name)
            err = server.kill()
            self.assertFalse(list(Path(self.folder).glob("*.tmp1-0")), name)
            for file in self.files():
                file.unlink()
            if name != "rows":  # told before the address was
                continue
            self.assertEqual(err.count("removed the cached prefix"), 1, err)
        # One of another model, under our name.
        renamed = sound.with_name("0123456789abcdef" + sound.name[16:])
        renamed.write_bytes(whole)
        server = DiskServer(self.folder)
        self.assertFalse(renamed.exists())
        self.assertEqual(server.end()[0], 0)

    def test_the_limit_of_bytes_is_held(self):
        server = DiskServer(self.folder, "--cache-bytes", "1M")
        for i in range(12):
            server.complete(f"{chr(97 + i)} " + WORDS)
            self.assertLessEqual(sum(file.stat().st_size for file in self.files()), 1 << 20)
        status, _, err = server.end()
        self.assertEqual(status, 0, err)
        held = sum(file.stat().st_size for file in self.files())
        self.assertLessEqual(held, 1 << 20)
        self.assertGreater(held, 0)

    def test_idle_prefixes_leave_the_memory(self):
        server = DiskServer(self.folder, "--idle-spill", "1")
        first = server.complete(WORDS)
        server.wait_for("kvtide_disk_written_total", 1)
        server.wait_for("kvtide_cached_states", 0)
        self.assertEqual(server.complete(WORDS)[:2], first[:2])
        self.assertEqual(server.metric("kvtide_disk_hits_total"), 1)
        self.assertEqual(server.end()[0], 0)
        self.assertIn("--cache-dir", kvtide("serve", "-m", LLAMA, "--idle-spill", "5").err)

    def test_idle_models_leave_the_memory(self):
        server = DiskServer(self.folder, "--idle-unload", "1")
        first = server.complete(WORDS)
        server.wait_for("kvtide_idle_unloads_total", 1)
        self.assertEqual(server.complete(WORDS)[:2], first[:2])
        server.wait_for("kvtide_idle_unloads_total", 2)
        self.assertEqual(server.end()[0], 0)

    def test_the_end_saves_what_the_memory_holds(self):
        server = DiskServer(self.folder)
        short = WORDS[:70]
        first = server.complete(short, max_tokens=1)
        began = time.monotonic()
        self.assertEqual(server.end()[0], 0)
        self.assertLess(time.monotonic() - began, 10)
        server = DiskServer(self.folder)
        second = server.complete(short, max_tokens=1)
        self.assertEqual(second[:2], first[:2])
        self.assertGreater(second[2], 30)
        self.assertEqual(server.end()[0], 0)

    def test_a_folder_is_one_servers(self):
        server = DiskServer(self.folder)
        outcome = kvtide("serve", "-m", LLAMA, "--port", "0", "--cache-dir", self.folder)
        self.assertIn("another server", outcome.err)
        self.assertNotEqual(outcome.status, 0)
        self.assertEqual(server.end()[0], 0)

    def test_answers_that_were_given_survive_kill(self):
        server = DiskServer(self.folder, "--chat-template", "chatml")
        ask = {"temperature": 0, "max_output_tokens": 6}
        answers, previous = [], None
        for i in range(4):
            more = {"previous_response_id": previous} if previous else {}
            answer, text = server.ask("/v1/responses", ask | more | {"input": f"turn {'abcd'[i]}"})
            self.assertEqual(answer.status, 200, text)
            answers.append(text)
            previous = json.loads(text)["id"]
        server.ask(f"/v1/responses/{json.loads(answers[1])['id']}", method="DELETE")
        branch = ask | {"previous_response_id": json.loads(answers[2])["id"], "input": "another"}
        wanted = json.loads(server.ask("/v1/responses", branch)[1])["output"][0]["content"]
        server.kill()
        torn = Path(self.folder) / "responses" / "resp_0123456789abcdef.json"
        torn.write_text("deadbeef\n{")
        server = DiskServer(self.folder, "--chat-template", "chatml")
        for i, text in enumerate(answers):
            answer, again = server.ask(f"/v1/responses/{json.loads(text)['id']}")
            self.assertEqual((answer.status, again if i != 1 else ""), (404, "") if i == 1 else (200, text))
        got = json.loads(server.ask("/v1/responses", branch)[1])
        self.assertEqual(got["output"][0]["content"], wanted)
        self.assertFalse(torn.exists())
        self.assertEqual(server.end()[0], 0)

    def test_others_are_not_held_up_by_the_disk(self):
        """A stream goes on while prefixes are written and read beside it."""
        server = DiskServer(self.folder, "--max-tokens", "200")
        gaps, done = [], threading.Event()

        def stream():
            body = json.dumps(greedy("he", max_tokens=200, stream=True, ignore_eos=True)).encode()
            with socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT_S) as client:
                client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                               b"Content-Length: %d\r\n\r\n" % len(body) + body)  # fmt: skip
                last = time.monotonic()
                while client.recv(65536):
                    gaps.append(time.monotonic() - last)
                    last = time.monotonic()
            done.set()

        reader = threading.Thread(target=stream)
        reader.start()
        i = 0
        while not done.is_set():
            server.complete(f"{chr(97 + i % 26)} " + WORDS, max_tokens=2)
            i += 1
        reader.join()
        self.assertLess(max(gaps), 5, "slow machines included")
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.end()[0], 0)


if __name__ == "__main__":
    unittest.main()
