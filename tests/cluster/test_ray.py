"""kvtide.ray on two nodes of this machine: routes, sessions that outlive replicas and nodes, scaling, refusals."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from local_cluster import LocalCluster, SingleServer

from kvtide.errors import InvalidArgumentError

HERE = Path(__file__).parent
MODEL = os.environ.get("KVTIDE_MODEL") or str(HERE.parent / "goldens" / "models" / "llama-mha-untied.gguf")
OPTIONS = {"chat_template": "chatml", "lease_seconds": 3.0} if "llama" in MODEL else {"lease_seconds": 3.0}


@pytest.fixture(scope="module")
def cluster():
    made = LocalCluster(2, environment={})
    yield made
    made.close()


@pytest.fixture(scope="module")
def single():
    server = SingleServer(MODEL, 1, "256M")
    yield server
    server.close()


def deploy(cluster, folder, **options):
    from kvtide.ray import build_app

    cluster.deploy(build_app(MODEL, "256M", store=folder, **{**OPTIONS, **options}))


def say(base, text, session=None, number=0, **more):
    """Asked again until it is answered, as a client does."""
    body = {"prompt": text, "max_tokens": 8, "temperature": 0.9, "seed": number, "logprobs": 2, **more}
    end = time.monotonic() + 120
    while True:
        try:
            answer = httpx.post(f"{base}/v1/completions", json=body, headers={"x-session-id": session} if session else {}, timeout=60)
            if answer.status_code == 200:
                return answer.json(), answer.headers
            assert answer.status_code >= 500, answer.text
        except httpx.HTTPError:
            pass
        assert time.monotonic() < end
        time.sleep(0.3)


def talk(cluster, single, session, turns, between):
    text = "the sea is a man"
    for number in range(turns):
        ours, headers = say(cluster.base, text, session, number)
        theirs, _ = say(single.base, text, None, number)
        assert headers["x-session-id"] == session
        assert ours["choices"] == theirs["choices"], number
        if number:
            assert ours["usage"]["prompt_tokens_details"]["cached_tokens"] > 4, "the session was read again"
        text += ours["choices"][0]["text"] + " and the king"
        between(number)


def test_a_session_outlives_its_replicas(cluster, single, tmp_path):
    deploy(cluster, tmp_path / "store", replicas=2)
    talk(cluster, single, "one", 6, lambda number: [one.kill() for one in cluster.replicas()] if number in (1, 3) else None)


def test_the_routes_are_those_of_kvtide_serve(cluster, single):
    assert httpx.get(f"{cluster.base}/v1/models").json()["data"][0]["id"] == httpx.get(f"{single.base}/v1/models").json()["data"][0]["id"]
    assert httpx.get(f"{cluster.base}/v1/nothing").status_code == 404
    assert httpx.post(f"{cluster.base}/v1/completions", json={"prompt": 5}).status_code == 400
    assert "kvtide_kv_bytes" in httpx.get(f"{cluster.base}/metrics").text
    with httpx.stream("POST", f"{cluster.base}/v1/completions", json={"prompt": "the sea", "stream": True, "max_tokens": 5},
                      headers={"x-session-id": "streamed"}, timeout=60) as answer:  # fmt: skip
        lines = [line for line in answer.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"


def test_stored_answers_outlive_their_replica(cluster, single):
    first = httpx.post(f"{cluster.base}/v1/responses", json={"input": "the sea", "temperature": 0, "max_output_tokens": 6}, timeout=60).json()
    for one in cluster.replicas():
        one.kill()
    end = time.monotonic() + 120
    while True:
        try:
            got = httpx.get(f"{cluster.base}/v1/responses/{first['id']}", timeout=10)
            if got.status_code < 500:
                break
        except httpx.HTTPError:
            pass
        assert time.monotonic() < end
        time.sleep(0.3)
    assert got.json()["output"] == first["output"]


def test_a_drained_replica_has_handed_over(cluster, single, tmp_path):
    """Scaled up by load and down again; sessions go on behind both."""
    import threading

    from ray import serve

    deploy(cluster, tmp_path / "scaled", replicas=(1, 2), ongoing=2.0, delays=(1.0, 3.0), drain_seconds=10.0)
    count = lambda: len(cluster.replicas())  # noqa: E731
    enough = threading.Event()

    def press(number):
        while not enough.is_set():
            say(cluster.base, "the king", f"busy {number}", number, max_tokens=100, ignore_eos=True)

    load = [threading.Thread(target=press, args=(number,)) for number in range(8)]
    for one in load:
        one.start()
    end = time.monotonic() + 120
    while count() < 2 and time.monotonic() < end:
        time.sleep(0.2)
    most = count()
    time.sleep(3)
    enough.set()
    for one in load:
        one.join()
    end = time.monotonic() + 60
    while count() > 1 and time.monotonic() < end:
        time.sleep(0.5)
    assert (most, count()) == (2, 1), serve.status()
    talk(cluster, single, "busy again", 2, lambda number: None)


def test_replicas_that_differ_are_refused(cluster, tmp_path):
    from ray import serve

    deploy(cluster, tmp_path / "alike", replicas=1)
    serve.delete("kvtide")
    with pytest.raises(Exception, match="(?s)max_tokens|DEPLOY_FAILED|failed"):
        deploy(cluster, tmp_path / "alike", replicas=1, max_tokens=17)
    told = json.dumps(str(serve.status()))
    assert "max_tokens = 2048, and this one has 17" in told, told
    serve.delete("kvtide")


def test_bad_configurations_are_refused():
    from kvtide.ray import build, build_app

    with pytest.raises(InvalidArgumentError, match="store is missing"):
        build({"model": MODEL, "kv_budget": "1G"})
    with pytest.raises(InvalidArgumentError, match="memory://"):
        build_app(MODEL, "1G", store="memory://x")
    with pytest.raises(InvalidArgumentError, match="replicas"):
        build_app(MODEL, "1G", store="x", replicas=0)
    with pytest.raises(ValueError, match="kv_budget"):
        build_app(MODEL, "much", store="x")


def test_where_requests_go():
    from kvtide.ray.router import in_order

    ring = [SimpleNamespace(replica_id=name) for name in "abc"]

    def order(loads, **known):
        return "".join(one.replica_id for one in in_order(ring, dict(zip("abc", loads)), 1.25, 4, known))

    assert order((0, 0, 0)) == "abc"
    assert order((3, 1, 0)) == "acb"
    assert order((9, 0, 1)) == "bca"
    assert order((9, 1, 0)) == "cba"
    assert order((20, 19, 0)) == "cba"
    assert order((0, 0, 0), b=2, c=5) == "cba"
    assert order((1, 0, 9), b=2, c=5) == "bac"
    assert order((0, 0, 5), c=5) == "cab"


def test_what_a_router_takes_for_the_load_of_a_replica():
    from kvtide.ray.router import SessionRouter

    def load(told, sent=None, counted=None):
        entry = {"a": SimpleNamespace(timestamp=counted[0], queue_len=counted[1])} if counted else {}
        router = SimpleNamespace(_sent={"a": sent or []}, replica_queue_len_cache=SimpleNamespace(_cache=entry))
        return SessionRouter._load(router, SimpleNamespace(replica_id="a", routing_stats=told), 10.0)

    told = {"at": 9.0, "ongoing": 3, "seconds": 5.0}
    assert load({}) == 0
    assert load(told) == 3
    assert load(told, counted=(8.5, 7)) == 3
    assert load(told, counted=(9.5, 0)) == 0, "what the proxy has seen since counts, also when it is nothing"
    assert load(told, sent=[8.5, 9.5, 9.9]) == 5, "what was sent before is in what was told"
    assert load({**told, "seconds": 0.2}, sent=[9.5, 9.9]) == 4, "what others took has passed"


def test_how_many_replicas_there_should_be():
    from kvtide.ray.scaling import KvAndQueue

    policy = KvAndQueue(budget=1000, warm_share=0.8, ongoing=4.0)
    assert [policy.wanted(warm, requests) for warm, requests in [(0, 0), (800, 0), (801, 0), (0, 4), (0, 5), (2400, 9)]] == [1, 1, 2, 1, 2, 3]
    context = SimpleNamespace(aggregated_metrics={"warm_bytes": {"x": 900.0, "y": 900.0}}, total_num_requests=1,
                              capacity_adjusted_min_replicas=1, capacity_adjusted_max_replicas=2)  # fmt: skip
    assert policy(context) == (2, {})


@pytest.mark.parametrize("faults", ["kill", "network"])
def test_a_short_campaign(tmp_path, faults):
    report = tmp_path / "report.json"
    command = [sys.executable, str(HERE / "chaos.py"), "--model", MODEL, "--nodes", "2", "--sessions", "30", "--turns", "8", "--every", "5",
               "--tokens", "12", "--faults", faults, "--json", str(report)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    told = json.loads(report.read_text())
    assert sum(told["killed"].values()) + told["network_faults"] > 0, told


def test_the_manifest_for_kubernetes_is_valid():
    import kubernetes_validate
    import yaml

    text = (HERE.parent.parent / "examples" / "cluster" / "kubernetes.yaml").read_text()
    for document in yaml.safe_load_all(text):
        kubernetes_validate.validate(document, "1.37", strict=True)
