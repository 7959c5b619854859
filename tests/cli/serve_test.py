"""kvtide serve as clients meet it: over sockets, with the standard library alone."""

import http.client
import json
import re
import signal
import socket
import threading
import time
import unittest

from program import LLAMA, TIMEOUT_S, kvtide, read_until, start

PROMPTS = ["the sea is", "a man", "once there was a", "and the", "he said", "in the house", "we were", "it is"]


class Server:
    def __init__(self, *words):
        self.process = start("serve", "-m", f"tiny={LLAMA}", "--port", "0", *words)
        said = read_until(self.process, self.process.stderr, lambda text: b"; Ctrl-C" in text, "the address")
        self.port = int(re.search(rb"http://127\.0\.0\.1:(\d+)", said).group(1))

    def ask(self, path, body=None, headers=None, method=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        connection.request(method or ("GET" if body is None else "POST"), path,
                           None if body is None else json.dumps(body), headers or {})  # fmt: skip
        answer = connection.getresponse()
        text = answer.read().decode("utf-8")
        connection.close()
        return answer, text

    def metric(self, name):
        return float(re.search(rf"^{re.escape(name)} (\S+)$", self.ask("/metrics")[1], re.M).group(1))

    def wait_for(self, name, wanted):
        end = time.monotonic() + TIMEOUT_S
        while self.metric(name) != wanted:
            if time.monotonic() > end:
                raise AssertionError(f"{name} never became {wanted}")
            time.sleep(0.005)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode, out, err.decode("utf-8")


def greedy(prompt, **more):
    return {"prompt": prompt, "temperature": 0, "max_tokens": 12} | more


class ServeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--parallel", "4", "--max-tokens", "200")

    @classmethod
    def tearDownClass(cls):
        status, out, err = cls.server.end()
        assert status == 0 and out == b"", (status, out, err)
        assert "the sea is" not in err, "logs hold no prompts"

    def test_eight_clients_at_once_get_what_run_writes(self):
        alone = {}
        for prompt in PROMPTS:
            run = kvtide("run", "-m", LLAMA, "-p", prompt, "-n", "12")
            alone[prompt] = run.text
        for _ in range(2):  # the second time from the prefix cache
            got = {}

            def client(prompt, got=got):
                got[prompt] = json.loads(self.server.ask("/v1/completions", greedy(prompt))[1])["choices"][0]["text"]

            threads = [threading.Thread(target=client, args=(prompt,)) for prompt in PROMPTS]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(got, alone)
        self.assertGreater(self.server.metric("kvtide_cached_tokens_total"), 0)

    def test_a_stream_says_the_same_and_the_connection_goes_on(self):
        whole = json.loads(self.server.ask("/v1/completions", greedy("the sea"))[1])["choices"][0]["text"]
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=TIMEOUT_S)
        for _ in range(2):  # on one connection
            connection.request("POST", "/v1/completions", json.dumps(greedy("the sea", stream=True)))
            answer = connection.getresponse()
            self.assertEqual(answer.getheader("Content-Type"), "text/event-stream")
            events = [line[6:] for line in answer.read().decode("utf-8").split("\n\n") if line]
            self.assertEqual(events[-1], "[DONE]")
            pieces = [json.loads(event)["choices"][0]["text"] for event in events[:-1]]
            self.assertEqual("".join(pieces), whole)
        connection.close()

    def test_a_client_that_leaves_ends_its_answer(self):
        before = self.server.metric("kvtide_requests_cancelled_total")
        body = json.dumps(greedy("he", max_tokens=200, stream=True, ignore_eos=True))
        leaving = []
        for _ in range(3):
            client = socket.create_connection(("127.0.0.1", self.server.port), timeout=TIMEOUT_S)
            client.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
                           .encode() + body.encode())  # fmt: skip
            leaving.append(client)
        for client in leaving:
            client.close()
        self.server.wait_for("vllm:num_requests_running", 0)
        self.server.wait_for("vllm:num_requests_waiting", 0)
        self.assertLessEqual(self.server.metric("kvtide_requests_cancelled_total") - before, 3)

    def test_what_is_not_http_or_too_large_is_refused(self):
        for sent, status in ((b"hello\r\n\r\n", b"400"), (b"GET / HTTP/1.1\r\nX: " + b"x" * 40000, b"431"),
                             (b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n", b"413"),
                             (b"GET /health HTTP/1.1\r\nHost: example.org\r\n\r\n", b"403")):  # fmt: skip
            with socket.create_connection(("127.0.0.1", self.server.port), timeout=TIMEOUT_S) as client:
                client.sendall(sent)
                self.assertIn(b" " + status + b" ", client.recv(4096).split(b"\r\n")[0], sent[:60])
        self.assertEqual(self.server.ask("/health")[0].status, 200)

    def test_errors_are_json(self):
        answer, text = self.server.ask("/v1/completions", {"prompt": 5})
        self.assertEqual((answer.status, json.loads(text)["error"]["param"]), (400, "prompt"))
        self.assertEqual(self.server.ask("/v1/chat/completions", method="GET")[0].status, 405)


class StartAndEndTest(unittest.TestCase):
    def test_the_end_waits_for_answers(self):
        server = Server("--quiet")
        answers = []
        client = threading.Thread(target=lambda: answers.append(server.ask(
            "/v1/completions", greedy("the", max_tokens=200, ignore_eos=True))))  # fmt: skip
        client.start()
        server.wait_for("kvtide_requests_total", 1)
        began = time.monotonic()
        status, _, err = server.end()
        client.join()
        self.assertLess(time.monotonic() - began, 10)
        self.assertEqual(status, 0, err)
        self.assertEqual(json.loads(answers[0][1])["usage"]["completion_tokens"], 200)

    def test_a_key_is_asked_for(self):
        server = Server("--api-key", "secret")
        self.assertEqual(server.ask("/v1/models")[0].status, 401)
        self.assertEqual(server.ask("/v1/models", headers={"Authorization": "Bearer secret"})[0].status, 200)
        self.assertEqual(server.end()[0], 0)

    def test_other_hosts_need_a_key(self):
        outcome = kvtide("serve", "-m", LLAMA, "--host", "0.0.0.0")
        self.assertEqual(outcome.status, 2)
        self.assertIn("--api-key", outcome.err)
        outcome = kvtide("serve", "-m", f"a={LLAMA}", "-m", f"a={LLAMA}")
        self.assertIn("two models are called 'a'", outcome.err)


if __name__ == "__main__":
    unittest.main()
