"""The store on S3: the stand-in of these tests, and moto."""

import os
import subprocess
import sys

import pytest
from local_cluster import StoreServer, free_port, wait_for

from kvtide.cluster import open_store
from kvtide.cluster.objects import LostRaceError, StoreError, open_objects


@pytest.fixture(params=["stand-in", "moto"])
def bucket(request, tmp_path, monkeypatch):
    for name, value in {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    if request.param == "moto":
        port = free_port()
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        wait_for(f"http://127.0.0.1:{port}/moto-api/")
        import boto3

        boto3.client("s3").create_bucket(Bucket="bucket")
        yield "s3://bucket/sessions"
        process.kill()
        process.wait()
    else:
        server = StoreServer(tmp_path)
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.port}")
        yield "s3://bucket/sessions"
        server.close()


def test_objects(bucket):
    objects = open_objects(bucket)
    tag = objects.replace("a/b", b"1", None)
    with pytest.raises(LostRaceError):
        objects.replace("a/b", b"2", None)
    newer = objects.replace("a/b", b"3" * 100_000, tag)
    with pytest.raises(LostRaceError):
        objects.replace("a/b", b"4", tag)
    assert objects.get("a/b") == (b"3" * 100_000, newer)
    objects.put("a/c d", b"")
    assert objects.names("a") == ["a/b", "a/c d"]
    for name in objects.names("a"):
        objects.delete(name)
    objects.delete("a/b")
    with pytest.raises(KeyError):
        objects.get("a/b")


def test_a_session_that_was_deleted_begins_anew(bucket):
    store = open_store(bucket)
    store.acquire("talk", "a").commit(b"old", 1)
    open_store(bucket).forget("talk")
    lease = store.acquire("talk", "a")  # it knew the manifest
    assert (lease.manifest["turn"], lease.snapshot()) == (0, None)
    lease.commit(b"new", 1)
    assert store.snapshot(store.look("talk")) == b"new"


def test_a_bucket_that_is_not_there_is_one_clear_error(bucket):
    if "moto" not in os.environ.get("PYTEST_CURRENT_TEST", ""):
        pytest.skip("the stand-in has every bucket")
    with pytest.raises(StoreError, match="store: cannot write"):
        open_objects("s3://nowhere/sessions")


def test_sessions(bucket):
    store, old = open_store(bucket), None
    for turn in range(15):
        lease = store.acquire("talk", "a")
        assert lease.snapshot() == old
        new = (old or b"") + os.urandom(1000)
        lease.commit(new, turn, base=old)
        old = new
    assert store.look("talk")["turn"] == 15


def test_a_server_that_is_away_is_one_clear_error(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    with pytest.raises(StoreError, match="store: cannot write"):
        open_objects("s3://bucket/sessions", timeout=2.0)
