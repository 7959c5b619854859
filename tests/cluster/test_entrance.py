"""Ray Serve with HAProxy in front: requests go by their session, or else by the text that a replica has read already."""

import asyncio
import json
import os
import time

import httpx
import pytest
from local_cluster import LocalCluster
from test_ray import deploy, say, single, talk  # noqa: F401 (single is a fixture)

from kvtide.ray.entrance import Entrance
from kvtide.ray.prefixes import PrefixTable, blocks_of

# Ray reads it when it is imported: this file wants a process of its own. `make test-cluster` starts one.
with_haproxy = pytest.mark.skipif(os.environ.get("RAY_SERVE_ENABLE_HA_PROXY") != "1", reason="RAY_SERVE_ENABLE_HA_PROXY is not 1")

THINGS = "rivers ships kings bridges owls lamps stones wolves mills roads looms kites".split()
TEXTS = [f"{thing} are found in many places. " * 40 for thing in THINGS]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    made = LocalCluster(2, environment={})
    deploy(made, tmp_path_factory.mktemp("store"), replicas=2)
    yield made
    made.close()


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def ask_all(cluster, single, tail, session):
    """Whether the answers were right; how many tokens of each prompt were not read again."""
    out = []
    for number, text in enumerate(TEXTS):
        ours, _ = say(cluster.base, text + tail, session and f"{session} {number}", number)
        theirs, _ = say(single.base, text + tail, None, number)
        assert ours["choices"] == theirs["choices"]
        out.append(cached(ours))
    return out


def wait_until_healthy():
    """Replicas and entrances: they start one behind the other, and again when they were killed."""
    from ray import serve

    end = time.monotonic() + 60
    while True:
        deployments = serve.status().applications["kvtide"].deployments
        ill = {name: told.message for name, told in deployments.items() if told.status != "HEALTHY"}
        if not ill or time.monotonic() > end:
            break
        time.sleep(0.5)
    assert not ill
    return list(deployments)


@with_haproxy
def test_the_entrance_runs(cluster):
    """Without it HAProxy goes by a guess of its own, and answers are right all the same."""
    assert any(name.endswith("-entrance") for name in wait_until_healthy())


@with_haproxy
def test_a_request_goes_to_the_replica_that_has_read_its_beginning(cluster, single):
    ask_all(cluster, single, "First,", "talk")
    memories = set()
    for _ in range(20):  # /memory comes from either
        memories.add(httpx.get(f"{cluster.base}/memory", timeout=30).json()["kv_bytes"])
    assert len(memories) == 2 and min(memories) > 0, "all sessions went to one replica"
    assert min(ask_all(cluster, single, "What else?", None)) > 100, "without a session"
    assert min(ask_all(cluster, single, "And then?", "another talk")) > 100, "of a new session"


@with_haproxy
def test_a_wrong_guess_costs_a_reading_and_nothing_else(cluster, single):
    for one in cluster.replicas():
        one.kill()
    assert ask_all(cluster, single, "Who has read this?", None)[0] == 0
    wait_until_healthy()
    ask_all(cluster, single, "Who has read this?", None)  # some went by way of Serve's own proxy while replicas came and went
    assert min(ask_all(cluster, single, "Who has read this?", None)) > 100


@with_haproxy
def test_sessions_outlive_their_replicas(cluster, single):
    talk(cluster, single, "one", 5, lambda number: [one.kill() for one in cluster.replicas()] if number in (1, 3) else None)


@with_haproxy
def test_streams_and_refusals_pass_through(cluster):
    say(cluster.base, "the sea", "streamed")  # asked again until a replica is there: those before were killed
    with httpx.stream("POST", f"{cluster.base}/v1/completions", json={"prompt": "the sea", "stream": True, "max_tokens": 5},
                      headers={"x-session-id": "streamed"}, timeout=60) as answer:  # fmt: skip
        assert [line for line in answer.iter_lines() if line][-1] == "data: [DONE]"
    assert httpx.post(f"{cluster.base}/v1/completions", json={"prompt": 5}).status_code == 400
    assert httpx.get(f"{cluster.base}/v1/nothing").status_code == 404


def test_the_entrance_answers_nobody_but_haproxy():
    class Stub:
        async def _chosen(self, session, body):
            return {"replica_id": f"{session} {body.decode()}"}

    def asked(path):
        sent = []

        async def receive():
            return {"type": "http.request", "body": b"words", "more_body": False}

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "path": path, "headers": [(b"X-Session-Id", b"talk")]}
        asyncio.run(Entrance._answer(Stub(), scope, receive, send))
        return sent[0]["status"], json.loads(sent[1]["body"])

    assert asked("/internal/route") == (200, {"replica_id": "talk words"})
    assert asked("/v1/completions")[0] == 503


def test_prefixes():
    body = b'{"model": "m", "messages" : [' + b"abcdefgh" * 200 + b"]}"
    blocks, longer = blocks_of(body), blocks_of(body[:-2] + b"abcdefgh" * 100)
    assert len(blocks) == 6 and longer[:6] == blocks and len(longer) > 6
    assert blocks_of(body.replace(b'"m"', b'"n"')) == blocks
    assert blocks_of(body[:800]) == blocks[: len(blocks_of(body[:800]))] != []
    assert blocks_of(b"") == blocks_of(b'{"messages": []}') == blocks_of(b"x" * 1000) == []
    table = PrefixTable(most=8)
    table.remember(blocks, "a")
    assert table.known(longer) == {"a": 6}
    table.remember(longer[:3], "b")
    assert table.known(blocks) == {"a": 6, "b": 3}
    assert table.known(blocks_of(body.replace(b"abc", b"xyz"))) == {}
    for name in "cdefg":
        table.remember(blocks[:1], name)
    assert set(table.known(blocks[:1])) == {"g", "f", "e", "d"}
    table.remember([bytes([number]) for number in range(8)], "z")
    assert table.known(blocks) == {}
