"""kvtide.serve: the server as an ASGI app, called as a server of ASGI calls it."""

import asyncio
import json
from pathlib import Path

import pytest

import kvtide
import kvtide.serve
from kvtide import _native  # noqa: F401  needs the extension
from kvtide.errors import ClosedError, InvalidArgumentError

LLAMA = Path(__file__).parent.parent / "goldens" / "models" / "llama-mha-untied.gguf"
PROMPT = "the sea is a man once there was "


async def ask(app, method, path, body=None, *, headers=(), leave_after=None, sent=None):
    """The status, the headers and the pieces of an answer; leaves after so many pieces."""
    sent = [] if sent is None else sent
    data = b"" if body is None else json.dumps(body).encode()
    leaving = asyncio.Event()
    parts = [{"type": "http.request", "body": data[:5], "more_body": True}, {"type": "http.request", "body": data[5:]}]

    async def receive():
        if parts:
            return parts.pop(0)
        await leaving.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)
        if leave_after is not None and len(sent) > leave_after:
            leaving.set()

    path, _, query = path.partition("?")
    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "root_path": "",
             "headers": [(b"host", b"localhost"), *headers]}  # fmt: skip
    await app(scope, receive, send)
    assert sent[0]["type"] == "http.response.start"
    return sent[0]["status"], dict(sent[0]["headers"]), [message["body"] for message in sent[1:]]


def asked(app, method, path, body=None, **how):
    status, headers, pieces = asyncio.run(ask(app, method, path, body, **how))
    return status, headers, b"".join(pieces)


@pytest.fixture
def app():
    with kvtide.Model.load(LLAMA) as model, kvtide.serve.app({"tiny": model}, kv_budget="64M", threads=1) as made:
        yield made


def completion(**more):
    return {"prompt": PROMPT, "temperature": 0, "max_tokens": 12} | more


def test_answers_what_generate_writes(app):
    status, headers, body = asked(app, "POST", "/v1/completions", completion())
    assert (status, headers[b"content-type"]) == (200, b"application/json")
    with kvtide.Model.load(LLAMA) as model:
        wanted = "".join(str(piece) for piece in model.generate(PROMPT, max_tokens=12))
    got = json.loads(body)
    assert got["choices"][0]["text"] == wanted
    again = json.loads(asked(app, "POST", "/v1/completions", completion())[2])
    assert again["choices"][0]["text"] == wanted
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == again["usage"]["prompt_tokens"] - 1


def test_streams(app):
    status, headers, pieces = asyncio.run(ask(app, "POST", "/v1/completions", completion(stream=True)))
    assert (status, headers[b"content-type"]) == (200, b"text/event-stream")
    assert len(pieces) > 3
    events = [line[6:] for line in b"".join(pieces).decode().split("\n\n") if line]
    assert events[-1] == "[DONE]"
    whole = json.loads(asked(app, "POST", "/v1/completions", completion())[2])["choices"][0]["text"]
    assert "".join(json.loads(event)["choices"][0]["text"] for event in events[:-1]) == whole


def test_many_at_once(app):
    async def all_of_them():
        prompts = [PROMPT[: 8 + 3 * i] for i in range(8)]
        answers = await asyncio.gather(*(ask(app, "POST", "/v1/completions", completion(prompt=p)) for p in prompts))
        return [json.loads(b"".join(pieces))["choices"][0]["text"] for _, _, pieces in answers]

    assert asyncio.run(all_of_them()) == asyncio.run(all_of_them())


def test_a_client_that_leaves_ends_its_answer(app):
    async def leave():
        await asyncio.wait_for(ask(app, "POST", "/v1/completions", completion(stream=True, max_tokens=150, ignore_eos=True), leave_after=2), 60)
        for _ in range(500):
            text = b"".join((await ask(app, "GET", "/metrics"))[2]).decode()
            if "\nvllm:num_requests_running 0\n" in text:
                return text
            await asyncio.sleep(0.01)
        raise AssertionError(text)

    asyncio.run(leave())


def test_other_routes_and_refusals(app):
    assert asked(app, "GET", "/health")[::2] == (200, b'{"status":"ok"}')
    assert json.loads(asked(app, "GET", "/openapi.json")[2])["info"]["version"] == kvtide.__version__
    assert asked(app, "GET", "/v1/nothing")[0] == 404
    assert asked(app, "POST", "/v1/completions", {"prompt": 5})[0] == 400
    assert asked(app, "GET", "/health", headers=[(b"origin", b"http://example.org")])[0] == 403
    assert asked(app, "POST", "/slots/0?action=erase")[0] == 200
    assert asked(app, "POST", "/v1/completions", {"prompt": "x" * (17 << 20)})[0] == 413


def test_lifespan_ends_it():
    app = kvtide.serve.app(LLAMA, kv_budget="64M", threads=1)

    async def live():
        messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
        sent = []

        async def receive():
            return messages.pop(0)

        async def send(message):
            sent.append(message["type"])

        await app({"type": "lifespan"}, receive, send)
        return sent

    assert asyncio.run(live()) == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert app.closed
    app.close()
    with pytest.raises(ClosedError):
        asked(app, "GET", "/health")


def test_prefixes_survive(tmp_path):
    texts = []
    for _ in range(2):
        with kvtide.serve.app(LLAMA, kv_budget="64M", threads=1, cache_dir=tmp_path) as app:
            texts.append(json.loads(asked(app, "POST", "/v1/completions", completion(prompt=PROMPT * 2))[2]))
    assert texts[0]["choices"] == texts[1]["choices"]
    assert texts[0]["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert texts[1]["usage"]["prompt_tokens_details"]["cached_tokens"] > 30


def test_keys_and_options():
    with kvtide.serve.app(LLAMA, kv_budget="64M", api_key="secret", hosts=None) as app:
        assert asked(app, "GET", "/v1/models")[0] == 401
        assert asked(app, "GET", "/v1/models", headers=[(b"Authorization", b"Bearer secret")])[0] == 200
    with pytest.raises(InvalidArgumentError):
        kvtide.serve.app(LLAMA, session_kv="some")
    with pytest.raises(ValueError):
        kvtide.serve.app({})
    with pytest.raises(TypeError):
        kvtide.serve.app(LLAMA, hosts="example.org")
