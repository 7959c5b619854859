"""The store on S3 and on Azure: the stand-in of these tests, moto, and Azurite, Microsoft's emulator."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from local_cluster import StoreServer, free_port, wait_for

from kvtide.cluster import open_store
from kvtide.cluster.objects import LostRaceError, StoreError, open_objects

AZURITE = Path(os.environ.get("AZURITE", "/nonexistent"))  # the folder in which npm has installed it
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # every Azurite's, no secret


@pytest.fixture(params=["stand-in", "moto", "azurite"])
def bucket(request, tmp_path, monkeypatch):
    """The URL of a store of an own server."""
    start = {"stand-in": stand_in, "moto": moto, "azurite": azurite}[request.param]
    url, stop = start(tmp_path, monkeypatch.setenv)
    yield url
    stop()


def amazon(setenv, port):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        setenv(name, "test")
    setenv("AWS_DEFAULT_REGION", "us-east-1")
    setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")


def stand_in(folder, setenv):
    server = StoreServer(folder)
    amazon(setenv, server.port)
    return "s3://bucket/sessions", server.close


def moto(_, setenv):
    port = free_port()
    stop = started([sys.executable, "-m", "moto.server", "-p", str(port)])
    wait_for(f"http://127.0.0.1:{port}/moto-api/")
    amazon(setenv, port)
    import boto3

    boto3.client("s3").create_bucket(Bucket="bucket")
    return "s3://bucket/sessions", stop


def azurite(folder, setenv):
    server = AZURITE / "node_modules/azurite/dist/src/blob/main.js"
    if not server.exists():
        pytest.skip("needs Azurite: make test-cluster")
    port = free_port()
    node = Path(sys.executable).with_name("node")
    stop = started([node, server, "--silent", "--skipApiVersionCheck", "--location", folder, "--blobPort", str(port)])
    endpoint = f"http://127.0.0.1:{port}/devstoreaccount1"
    wait_for(endpoint)
    from azure.storage.blob import BlobServiceClient

    BlobServiceClient(endpoint, credential=KEY).create_container("bucket")
    setenv("AZURE_STORAGE_ENDPOINT", endpoint)
    setenv("AZURE_STORAGE_ACCOUNT_NAME", "devstoreaccount1")
    setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    return "az://bucket/sessions", stop


def started(command):
    """How to stop it."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def stop():
        process.kill()
        process.wait()

    return stop


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
    if "stand-in" in os.environ["PYTEST_CURRENT_TEST"]:
        pytest.skip("the stand-in has every bucket")
    with pytest.raises(StoreError, match="store: cannot write"):
        open_objects(bucket.replace("bucket", "nowhere"))


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
