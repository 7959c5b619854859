"""The clients that people have, against kvtide serve and real models: openai, anthropic, llm and langchain-openai, of the versions
in tools/requirements-clients.txt, and what is written for llama-server. Greedy answers equal those of `kvtide run`. Run by
`make test-clients`, with KVTIDE, KVTIDE_MODEL and KVTIDE_BASE_MODEL (one without a chat template) set."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.request
from pathlib import Path

import anthropic
import openai
from langchain_openai import ChatOpenAI

PROGRAM, MODEL, BASE_MODEL = os.environ["KVTIDE"], os.environ["KVTIDE_MODEL"], os.environ["KVTIDE_BASE_MODEL"]
QUESTION = "Name three kinds of fish."
TOKENS = 24
PLACE = {"type": "object", "properties": {"place": {"type": "string", "maxLength": 20}, "unit": {"enum": ["celsius", "fahrenheit"]}},
         "required": ["place", "unit"], "additionalProperties": False}  # fmt: skip


def completed(model, prompt, tokens):
    run = [PROGRAM, "run", "-m", model, "-p", prompt, "-n", str(tokens)]
    return subprocess.run(run, capture_output=True, text=True, check=True).stdout


class ClientsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.process = subprocess.Popen([PROGRAM, "serve", "-m", f"small={MODEL}", "-m", f"base={BASE_MODEL}", "--port", "0",
                                        "--api-key", "secret"],
                                       stderr=subprocess.PIPE, text=True)  # fmt: skip
        for line in cls.process.stderr:
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                break
        cls.url = url = found.group(0)
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
        self.assertEqual([model.id for model in self.openai.models.list()], ["small", "base"])
        for name, model in (("small", MODEL), ("base", BASE_MODEL)):
            answer = self.openai.completions.create(model=name, prompt="The sea is", temperature=0, max_tokens=8)
            self.assertEqual(answer.choices[0].text, completed(model, "The sea is", 8))

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
            self.chat(tools=[{"type": "web_search"}])
        self.assertEqual((caught.exception.code, caught.exception.param), ("unsupported", "tools[0].type"))
        with self.assertRaises(openai.AuthenticationError):
            self.openai.with_options(api_key="wrong").models.list()

    def test_openai_tools(self):
        tools = [{"type": "function", "function": {"name": "weather", "description": "The weather of a place.", "parameters": PLACE}}]
        messages = [{"role": "user", "content": "How is the weather in Paris?"}]
        about = {"model": "small", "temperature": 0, "max_tokens": 80, "tools": tools}
        choice = self.openai.chat.completions.create(messages=messages, tool_choice="required", **about).choices[0]
        self.assertEqual(choice.finish_reason, "tool_calls")
        call = choice.message.tool_calls[0]
        self.assertEqual(call.function.name, "weather")
        self.check_place(json.loads(call.function.arguments))
        with self.openai.chat.completions.stream(
            messages=messages, tool_choice={"type": "function", "function": {"name": "weather"}}, **about
        ) as stream:
            streamed = stream.get_final_completion().choices[0]
        self.assertEqual(streamed.message.tool_calls[0].function.arguments, call.function.arguments)
        messages += [choice.message, {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
        answer = self.openai.chat.completions.create(messages=messages, tool_choice="none", **about).choices[0]
        self.assertTrue(answer.message.content)
        self.assertIsNone(answer.message.tool_calls)

    def test_openai_responses_with_tools(self):
        tools = [{"type": "function", "name": "weather", "parameters": PLACE, "strict": True}]
        about = {"model": "small", "temperature": 0, "max_output_tokens": 80, "tools": tools}
        first = self.openai.responses.create(input="How is the weather in Paris?", tool_choice="required", **about)
        call = first.output[0]
        self.assertEqual((call.type, call.name), ("function_call", "weather"))
        self.check_place(json.loads(call.arguments))
        result = [{"type": "function_call_output", "call_id": call.call_id, "output": "rain"}]
        answer = self.openai.responses.create(input=result, previous_response_id=first.id, tool_choice="none", **about)
        self.assertTrue(answer.output_text)

    def test_openai_json_schema(self):
        schema = {"type": "json_schema", "json_schema": {"name": "place", "schema": PLACE, "strict": True}}
        answer = self.chat(response_format=schema, n=1).choices[0].message.content
        self.assertTrue(answer.startswith("{"))
        text = {"format": {"type": "json_schema", "name": "place", "schema": PLACE}}
        answer = self.openai.responses.create(model="small", input="Where is the Eiffel tower?", text=text, max_output_tokens=80)
        self.check_place(json.loads(answer.output_text))
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "string", "pattern": "a"}}})
        self.assertIn("'pattern'", str(caught.exception))

    def check_place(self, value):
        self.assertEqual(list(value), ["place", "unit"])
        self.assertIn(value["unit"], ("celsius", "fahrenheit"))

    def test_llm(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "extra-openai-models.yaml").write_text(
                f"- model_id: small\n  model_name: small\n  api_base: {self.url}/v1\n  api_key_name: kvtide\n"
            )
            environment = {**os.environ, "LLM_USER_PATH": folder}
            ask = [sys.executable, "-m", "llm", "-m", "small", "--key", "secret", "-o", "temperature", "0", "-o", "max_tokens",
                   str(TOKENS), QUESTION]  # fmt: skip
            for more in ([], ["--no-stream"]):
                answer = subprocess.run([*ask, *more], capture_output=True, text=True, env=environment)
                self.assertEqual((answer.returncode, answer.stdout.strip()), (0, self.wanted.strip()), answer.stderr)

    def test_langchain(self):
        chat = ChatOpenAI(base_url=self.url + "/v1", api_key="secret", model="small", temperature=0, max_tokens=TOKENS, max_retries=0)
        answer = chat.invoke(QUESTION)
        self.assertEqual((answer.content, answer.usage_metadata["output_tokens"]), (self.wanted, TOKENS))
        self.assertEqual("".join(chunk.content for chunk in chat.stream(QUESTION)), self.wanted)
        longer = chat.bind(max_tokens=80)
        self.check_place(json.loads(longer.bind(response_format={"type": "json_schema", "json_schema": {
            "name": "place", "schema": PLACE, "strict": True}}).invoke("Where is the Eiffel tower?").content))  # fmt: skip
        weather = {"type": "function", "function": {"name": "weather", "description": "The weather of a place.", "parameters": PLACE}}
        bound = chat.bind_tools([weather], tool_choice="required").bind(max_tokens=80)
        call = bound.invoke("How is the weather in Paris?").tool_calls[0]
        self.assertEqual(call["name"], "weather")
        self.check_place(call["args"])

    def test_what_is_written_for_llama_server(self):
        def ask(path, **body):
            request = urllib.request.Request(self.url + path, json.dumps(body).encode() if body else None,
                                             {"Authorization": "Bearer secret", "Content-Type": "application/json"})  # fmt: skip
            with urllib.request.urlopen(request) as answer:
                return answer.read().decode()

        for name, model in (("small", MODEL), ("base", BASE_MODEL)):
            about = {"model": name, "prompt": "The sea is", "n_predict": 12, "temperature": 0}
            wanted = completed(model, "The sea is", 12)
            self.assertEqual(json.loads(ask("/completion", **about))["content"], wanted)
            events = [json.loads(line[6:]) for line in ask("/completion", **about, stream=True).splitlines() if line.startswith("data: ")]
            self.assertEqual("".join(event["content"] for event in events), wanted)
            self.assertTrue(events[-1]["stop"])
            tokens = json.loads(ask("/tokenize", model=name, content="The sea is"))["tokens"]
            self.assertEqual(json.loads(ask("/detokenize", model=name, tokens=tokens))["content"], "The sea is")
        prompt = json.loads(ask("/apply-template", messages=[{"role": "user", "content": QUESTION}]))["prompt"]
        answer = json.loads(ask("/completion", prompt=prompt, n_predict=TOKENS, temperature=0))
        self.assertEqual(answer["content"], self.wanted)
        self.assertEqual(json.loads(ask("/health"))["status"], "ok")
        self.assertIn("default_generation_settings", json.loads(ask("/props")))

    def test_anthropic_tools(self):
        tools = [{"name": "weather", "description": "The weather of a place.", "input_schema": PLACE}]
        messages = [{"role": "user", "content": "How is the weather in Paris?"}]
        about = {"model": "small", "max_tokens": 80, "tools": tools, "extra_body": {"temperature": 0}}
        answer = self.anthropic.messages.create(messages=messages, tool_choice={"type": "any"}, **about)
        self.assertEqual(answer.stop_reason, "tool_use")
        block = answer.content[0]
        self.check_place(block.input)
        with self.anthropic.messages.stream(messages=messages, tool_choice={"type": "tool", "name": "weather"}, **about) as stream:
            self.assertEqual(stream.get_final_message().content[0].input, block.input)
        messages += [{"role": "assistant", "content": answer.content},
                     {"role": "user", "content": [{"type": "tool_result", "tool_use_id": block.id, "content": "rain"}]}]  # fmt: skip
        self.assertTrue(self.anthropic.messages.create(messages=messages, tool_choice={"type": "none"}, **about).content[0].text)

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
