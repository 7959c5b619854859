"""The clients that people have, against kvtide serve and a real model: openai and anthropic, of the versions in
tools/requirements-clients.txt. Run by `make test-clients`, with KVTIDE and KVTIDE_MODEL set."""

import os
import re
import signal
import subprocess
import unittest

import anthropic
import openai

PROGRAM, MODEL = os.environ["KVTIDE"], os.environ["KVTIDE_MODEL"]
QUESTION = "Name three kinds of fish."
TOKENS = 24


class ClientsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.process = subprocess.Popen([PROGRAM, "serve", "-m", f"small={MODEL}", "--port", "0", "--api-key", "secret"],
                                       stderr=subprocess.PIPE, text=True)  # fmt: skip
        for line in cls.process.stderr:
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                break
        url = found.group(0)
        cls.openai = openai.OpenAI(base_url=url + "/v1", api_key="secret", max_retries=0)
        cls.anthropic = anthropic.Anthropic(base_url=url, api_key="secret", max_retries=0)
        run = [PROGRAM, "run", "-m", MODEL, "--chat", "-p", QUESTION, "-n", str(TOKENS)]
        cls.wanted = subprocess.run(run, capture_output=True, text=True, check=True).stdout

    @classmethod
    def tearDownClass(cls):
        cls.process.send_signal(signal.SIGTERM)
        cls.process.communicate(timeout=20)
        assert cls.process.returncode == 0

    def chat(self, **more):
        return self.openai.chat.completions.create(model="small", messages=[{"role": "user", "content": QUESTION}],
                                                   temperature=0, max_tokens=TOKENS, **more)  # fmt: skip

    def test_openai_chat(self):
        answer = self.chat(n=2, logprobs=True, top_logprobs=2)
        self.assertEqual([choice.message.content for choice in answer.choices], [self.wanted] * 2)
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertEqual(len(answer.choices[0].logprobs.content), TOKENS)
        again = self.chat()
        self.assertEqual(again.choices[0].message.content, self.wanted)
        self.assertEqual(again.usage.prompt_tokens_details.cached_tokens, again.usage.prompt_tokens - 1)

    def test_openai_stream(self):
        text, usage = "", None
        for chunk in self.chat(stream=True, stream_options={"include_usage": True}):
            text += "".join(choice.delta.content or "" for choice in chunk.choices)
            usage = chunk.usage or usage
        self.assertEqual((text, usage.completion_tokens), (self.wanted, TOKENS))

    def test_openai_completion_and_models(self):
        self.assertEqual([model.id for model in self.openai.models.list()], ["small"])
        answer = self.openai.completions.create(model="small", prompt="The sea is", temperature=0, max_tokens=8)
        run = [PROGRAM, "run", "-m", MODEL, "-p", "The sea is", "-n", "8"]
        self.assertEqual(answer.choices[0].text, subprocess.run(run, capture_output=True, text=True, check=True).stdout)

    def test_openai_responses(self):
        about = {"model": "small", "temperature": 0, "max_output_tokens": TOKENS}
        first = self.openai.responses.create(input=QUESTION, **about)
        self.assertEqual((first.output_text, first.status), (self.wanted, "incomplete"))
        self.assertEqual(self.openai.responses.retrieve(first.id).output_text, self.wanted)
        branches = [self.openai.responses.create(input=text, previous_response_id=first.id, **about)
                    for text in ("Which is the largest?", "Which is the smallest?")]  # fmt: skip
        for branch in branches:
            self.assertGreater(branch.usage.input_tokens_details.cached_tokens, first.usage.input_tokens)
        with self.openai.responses.stream(input=QUESTION, **about) as stream:
            text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        self.assertEqual(text, self.wanted)
        self.openai.responses.delete(first.id)
        with self.assertRaises(openai.NotFoundError):
            self.openai.responses.retrieve(first.id)

    def test_openai_errors(self):
        with self.assertRaises(openai.NotFoundError):
            self.openai.chat.completions.create(model="other", messages=[{"role": "user", "content": "x"}])
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}])
        self.assertEqual(caught.exception.code, "unsupported")
        with self.assertRaises(openai.AuthenticationError):
            self.openai.with_options(api_key="wrong").models.list()

    def test_anthropic_messages(self):
        question = {"model": "small", "messages": [{"role": "user", "content": QUESTION}]}
        answer = self.anthropic.messages.create(**question, max_tokens=TOKENS, extra_body={"temperature": 0})
        self.assertEqual(answer.content[0].text, self.wanted)
        self.assertEqual(answer.stop_reason, "max_tokens")
        with self.anthropic.messages.stream(**question, max_tokens=TOKENS, extra_body={"temperature": 0}) as stream:
            self.assertEqual("".join(stream.text_stream), self.wanted)
            usage = stream.get_final_message().usage
        counted = self.anthropic.messages.count_tokens(**question).input_tokens
        self.assertEqual(usage.input_tokens + usage.cache_read_input_tokens, counted)
        self.assertEqual(usage.output_tokens, TOKENS)


if __name__ == "__main__":
    unittest.main()
