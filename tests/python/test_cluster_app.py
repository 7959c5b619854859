"""Replicas of one store, without Ray: a session goes on at any of them, with the bits of a single process."""

import asyncio
import json
import re

import pytest
from test_serve import LLAMA, ask

import kvtide
import kvtide.cluster
import kvtide.serve
from kvtide import _native  # noqa: F401  needs the extension
from kvtide.cluster.inside import Bundled
from kvtide.cluster.local import LocalSegments
from kvtide.cluster.objects import MemoryObjects, StoreError
from kvtide.cluster.store import SessionStore
from kvtide.errors import InvalidArgumentError

WORDS = "the sea is a man once there was a king and the end of a land in the sea ".split()


@pytest.fixture(scope="module")
def loaded():
    with kvtide.Model.load(LLAMA) as model:
        yield model


@pytest.fixture
def objects():
    return MemoryObjects()


@pytest.fixture
def replicas(loaded, objects):
    made = [
        kvtide.cluster.app(loaded, kv_budget="64M", threads=1, context=1024, chat_template="chatml",
                           store=SessionStore(objects, lease_seconds=5), owner=f"replica {i}")
        for i in range(3)
    ]  # fmt: skip
    yield made
    for app in made:
        app.close()


@pytest.fixture
def single(loaded):
    with kvtide.serve.app(loaded, kv_budget="64M", threads=1, context=1024, chat_template="chatml") as made:
        yield made


async def say(app, path, body, session=None):
    headers = [] if session is None else [(b"x-session-id", session.encode())]
    status, headers, pieces = await ask(app, "POST", path, body, headers=headers)
    return status, headers, b"".join(pieces)


def cached_in(body):
    usage = json.loads(body)["usage"]
    return usage.get("prompt_tokens_details", usage.get("input_tokens_details"))["cached_tokens"]


def turn_of(number, **more):
    return " ".join(WORDS[(3 * number + i) % len(WORDS)] for i in range(9)), more


def completion(prompt, seed, **more):
    draws = {"temperature": 0} if seed % 2 else {"temperature": 0.8, "seed": seed}
    return {"prompt": prompt, "max_tokens": 10, "ignore_eos": True} | draws | more


def test_a_session_moves_with_the_same_bits(replicas, single):
    async def talk():
        text, end = "", 0
        for turn in range(7):
            text += " " + turn_of(turn)[0]
            app = replicas[turn % 3]
            status, headers, body = await say(app, "/v1/completions", completion(text, turn), "talk")
            alone = await say(single, "/v1/completions", completion(text, turn))
            assert status == 200, body
            assert headers[b"x-session-id"] == b"talk"
            said = json.loads(body)["choices"][0]["text"]
            assert said == json.loads(alone[2])["choices"][0]["text"]
            # The last prompt is not read again. An answer may be spelt with other tokens when it comes back as text.
            assert cached_in(body) >= end
            text += said
            end = json.loads(body)["usage"]["prompt_tokens"] - 1
        return [app.figures for app in replicas]

    figures = asyncio.run(talk())
    assert sum(one.turns for one in figures) == 7
    assert sum(one.restored for one in figures) == 6
    assert sum(one.saved_bytes for one in figures) < sum(one.snapshot_bytes for one in figures) / 2


def test_segments_make_the_snapshot_that_would_have_been_saved(replicas):
    app = replicas[0]
    store, states = app._store, app._local._folder

    async def talk():
        text = ""
        for turn in range(6):
            text += " ".join(turn_of(turn + i)[0] for i in range(8)) + " "
            status, _, body = await say(app, "/v1/completions", completion(text, turn), "talk")
            assert status == 200, body
            status, _, told = await say(app, "/slots/session?action=save", {"filename": "plain"}, "talk")
            assert status == 200, told
            manifest = store.look("talk")
            assert len(manifest["segments"]) == turn + 1
            assert store.snapshot(manifest) == (states / "plain").read_bytes()
            assert len(app._local.files("talk", [one["name"] for one in manifest["segments"]])) == turn + 1
        # An answer said again in other tokens changes the newest rows.
        cut = text[: len(text) // 2]
        await say(app, "/v1/completions", completion(cut, 1), "talk")
        await say(app, "/slots/session?action=save", {"filename": "plain"}, "talk")
        assert store.snapshot(store.look("talk")) == (states / "plain").read_bytes()

    asyncio.run(talk())


def test_the_oldest_sessions_leave_the_disk(tmp_path):
    local = LocalSegments(tmp_path, 100)
    for session in "abc":
        local.write(session, ["one", "two"], [b"x" * 20, b"y" * 20])
    assert local.files("a", ["one", "two"]) == []
    files = local.files("b", ["one", "two"])
    assert [local.read(file) for file in files] == [b"x" * 20, b"y" * 20]
    new = local.new_file("b")
    (tmp_path / new).write_bytes(b"z" * 10)
    local.keep("b", ["whole"], new, 10)
    local.drop("b", new)  # it was kept
    assert local.files("b", ["whole"]) == [new]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([new, *local.files("c", ["one", "two"])])


def test_the_disk_holds_what_the_store_holds_from_the_beginning(tmp_path):
    local = LocalSegments(tmp_path, 1000)
    first = local.write("talk", ["one", "lost"], [b"x", b"y"])
    assert local.files("talk", ["one", "two", "three"]) == first[:1]
    rest = local.write("talk", ["one", "two", "three"], [b"2", b"3"])
    assert local.files("talk", ["one", "two", "three", "four"]) == [first[0], *rest]
    assert local.files("talk", ["other"]) == []
    # A segment whose beginning is not here is of no use.
    assert [(tmp_path / file).exists() for file in local.write("talk", ["other", "more"], [b"4"])] == [False]
    assert list(tmp_path.iterdir()) == []


def test_a_replica_fetches_only_what_it_does_not_have(replicas):
    async def talk():
        text, fetched, sizes = "", [], []
        for turn in range(8):
            app = replicas[1 if turn == 6 else 0]
            text += " ".join(turn_of(turn + i)[0] for i in range(4)) + " "
            status, _, body = await say(app, "/v1/completions", completion(text, turn), "talk")
            assert status == 200, body
            fetched.append([app.figures.restored_bytes for app in replicas[:2]])
            sizes.append([segment["bytes"] for segment in app._store.look("talk")["segments"]])
        assert fetched[5] == [0, 0]
        assert fetched[6] == [0, sum(sizes[5])]
        assert len(sizes[6]) == 7
        assert fetched[7] == [sizes[6][-1], sum(sizes[5])]

    asyncio.run(talk())


def test_stored_answers_go_on_anywhere(replicas, single):
    async def talk():
        ours = theirs = None
        for turn in range(5):
            body = {"input": turn_of(turn)[0], "max_output_tokens": 8, "temperature": 0}
            previous = {} if ours is None else {"previous_response_id": ours["id"]}
            status, headers, answer = await say(replicas[turn % 3], "/v1/responses", body | previous)
            assert status == 200, answer
            ours = json.loads(answer)
            previous = {} if theirs is None else {"previous_response_id": theirs["id"]}
            theirs = json.loads((await say(single, "/v1/responses", body | previous))[2])
            assert ours["output"][0]["content"] == theirs["output"][0]["content"]
            assert headers[b"x-session-id"].startswith(b"conversation-")
        gone = ours["id"]
        for app in replicas:
            assert (await ask(app, "GET", f"/v1/responses/{gone}"))[0] == 200
        assert (await ask(replicas[0], "DELETE", f"/v1/responses/{gone}"))[0] == 200
        assert (await ask(replicas[0], "GET", f"/v1/responses/{gone}"))[0] == 404

    asyncio.run(talk())


@pytest.mark.parametrize(
    ("path", "body", "last"),
    [
        ("/v1/completions", {"prompt": "the sea is", "max_tokens": 6}, rb"data: \[DONE\]"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "the sea"}], "max_tokens": 6}, rb"data: \[DONE\]"),
        ("/v1/messages", {"messages": [{"role": "user", "content": "the sea"}], "max_tokens": 6}, b"message_stop"),
        ("/v1/responses", {"input": "the sea", "max_output_tokens": 6}, rb"response.(completed|incomplete)"),
        ("/completion", {"prompt": "the sea is", "n_predict": 6}, rb'"stop":true'),
    ],
)
def test_streams_end_behind_the_save(replicas, objects, path, body, last, monkeypatch):
    order = []
    replace = objects.replace

    def noted(name, data, tag):
        if b'"lease":null' in data:
            order.append("saved")
        return replace(name, data, tag)

    monkeypatch.setattr(objects, "replace", noted)

    class Sent(list):
        def append(self, message):
            body = message.get("body", b"")
            order.append("end" if re.search(last, body) else "piece")
            super().append(message)

    headers = [(b"x-session-id", b"stream")]
    status, _, pieces = asyncio.run(
        ask(replicas[0], "POST", path, body | {"stream": True, "temperature": 0}, headers=headers, sent=Sent())
    )
    assert status == 200
    assert re.search(last, b"".join(pieces))
    assert "piece" in order[: order.index("saved")]
    assert order.index("saved") < order.index("end")
    monkeypatch.undo()
    # And a store that is full: no end, but an error.
    monkeypatch.setattr(objects, "put", lambda name, data: (_ for _ in ()).throw(StoreError("store: the store is full")))
    for stream in (True, False):
        status, _, pieces = asyncio.run(
            ask(replicas[0], "POST", path, body | {"stream": stream, "temperature": 0}, headers=headers)
        )
        said = b"".join(pieces)
        assert b"the store is full" in said
        assert not (stream and re.search(last, said))
        assert status == (200 if stream else 503)
    monkeypatch.undo()
    assert replicas[1]._store.look("stream")["turn"] == 1


def test_of_two_replicas_at_once_one_answers_behind_the_other(replicas):
    async def both():
        body = completion("the sea is a man", 1)
        return await asyncio.gather(*(say(app, "/v1/completions", body, "shared") for app in replicas))

    answers = asyncio.run(both())
    assert [status for status, _, _ in answers] == [200, 200, 200]
    assert len({json.loads(body)["choices"][0]["text"] for _, _, body in answers}) == 1
    assert replicas[0]._store.look("shared")["turn"] == 3


def test_a_replica_that_was_taken_for_dead_acknowledges_nothing(replicas, objects):
    store = replicas[0]._store

    async def late():
        body = completion("the sea is a man", 1, max_tokens=300, stream=True)

        async def steal():
            while store.look("talk")["lease"] is None:
                await asyncio.sleep(0.001)
            lease = store.acquire("talk", store.look("talk")["lease"]["owner"])  # as if its lease had run out
            lease.owner = "thief"
            lease.renew()
            return lease

        (status, _, said), lease = await asyncio.gather(say(replicas[0], "/v1/completions", body, "talk"), steal())
        assert b"taken it over" in said
        assert b"[DONE]" not in said
        assert lease.commit(b"", 0) >= 0

    asyncio.run(late())
    assert store.look("talk")["writer"] == "thief"


def test_what_is_no_turn_leaves_no_session(replicas, objects):
    async def others():
        assert (await say(replicas[0], "/v1/completions", {"prompt": 5}, "bad"))[0] == 400
        assert (await say(replicas[0], "/v1/completions", completion("the sea", 1)))[0] == 200
        assert (await ask(replicas[0], "GET", "/health"))[0] == 200
        assert (await say(replicas[0], "/v1/completions", completion("the sea", 1), "x" * 300))[0] == 400
        assert (await ask(replicas[0], "GET", "/v1/responses/resp_00"))[0] == 404

    asyncio.run(others())
    assert replicas[0]._store.look("bad")["turn"] == 0
    assert replicas[0]._store.look("bad")["lease"] is None


def test_a_replica_that_computes_otherwise_does_not_start(loaded, objects):
    kvtide.cluster.app(loaded, kv_budget="64M", threads=1, store=SessionStore(objects)).close()
    for options, what in (({"max_tokens": 5}, "max_tokens = 2048"), ({"exact": True}, "exact = False"), ({"context": 99}, "context = 256")):
        with pytest.raises(InvalidArgumentError, match=what):
            kvtide.cluster.app(loaded, kv_budget="64M", threads=1, store=SessionStore(objects), **options)


def test_a_key_is_asked_for_first(loaded):
    app = kvtide.cluster.app(loaded, kv_budget="64M", threads=1, store=SessionStore(MemoryObjects()), api_key="secret")
    try:
        status, _, _ = asyncio.run(say(app, "/v1/completions", completion("the sea", 1), "talk"))
        assert status == 401
        assert app._store.look("talk")["fence"] == 0
        key = [(b"x-session-id", b"talk"), (b"authorization", b"Bearer secret")]
        status, _, _ = asyncio.run(ask(app, "POST", "/v1/completions", completion("the sea", 1), headers=key))
        assert status == 200
        assert app._store.look("talk")["turn"] == 1
    finally:
        app.close()


def piece(text, more=True):
    return {"type": "http.response.body", "body": text, "more_body": more}


def test_pieces_of_a_stream_travel_together():
    async def stream():
        sent = []

        async def send(message):
            await asyncio.sleep(0.001)
            sent.append(message)

        bundled = Bundled(send, 0.02)
        await bundled({"type": "http.response.start", "status": 200, "headers": []})
        await bundled(piece(b"first "))
        await asyncio.sleep(0.005)
        assert sent[1:] == [piece(b"first ")]  # it did not wait
        for number in range(20):
            await bundled(piece(b"%d " % number))
            await asyncio.sleep(0.003)
        await bundled(piece(b"", more=False))
        await asyncio.sleep(0.05)
        return sent

    sent = asyncio.run(stream())
    assert b"".join(one["body"] for one in sent[1:]) == b"first " + b"".join(b"%d " % number for number in range(20))
    assert len(sent) < 15
    assert sent[-1] == piece(b"", more=False)


def test_a_client_that_leaves_ends_a_bundled_stream():
    async def stream():
        async def gone(message):
            raise OSError("gone")

        bundled = Bundled(gone, 0.001)
        for _ in range(100):
            await bundled(piece(b"x"))
            await asyncio.sleep(0.001)

    with pytest.raises(OSError, match="gone"):
        asyncio.run(stream())
