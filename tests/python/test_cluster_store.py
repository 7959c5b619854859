"""Sessions in a shared store: who may write, what is written, and what a store that fails leaves."""

import errno
import json
import multiprocessing
import os
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest

from kvtide import _native  # noqa: F401  needs the extension
from kvtide.cluster import SessionBusyError, SessionStore, StoreError, open_store
from kvtide.cluster.delta import pack, unpack
from kvtide.cluster.objects import FolderObjects, LostRaceError, MemoryObjects, open_objects
from kvtide.errors import BadFormatError, InvalidArgumentError, UnsupportedError


@pytest.fixture(params=["folder", "memory"])
def objects(request, tmp_path):
    return FolderObjects(tmp_path / "store") if request.param == "folder" else MemoryObjects()


def test_one_of_two_rivals_wins(objects):
    tag = objects.replace("a/b", b"1", None)
    with pytest.raises(LostRaceError):
        objects.replace("a/b", b"2", None)
    newer = objects.replace("a/b", b"3", tag)
    with pytest.raises(LostRaceError):
        objects.replace("a/b", b"4", tag)
    assert objects.get("a/b") == (b"3", newer)
    assert objects.names("a") == ["a/b"]
    objects.delete("a/b")
    objects.delete("a/b")
    with pytest.raises(KeyError):
        objects.get("a/b")


def count_up(folder, turns):
    objects = FolderObjects(folder, sync=False)
    for _ in range(turns):
        while True:
            data, tag = objects.get("counter")
            try:
                objects.replace("counter", str(int(data) + 1).encode(), tag)
                break
            except LostRaceError:
                pass


def test_no_process_overwrites_another(tmp_path):
    FolderObjects(tmp_path).replace("counter", b"0", None)
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=count_up, args=(tmp_path, 100)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert FolderObjects(tmp_path).get("counter")[0] == b"300"


def test_stores_that_cannot_decide_are_refused(tmp_path, monkeypatch):
    with pytest.raises(UnsupportedError, match="one of two rivals wins"):
        open_objects("http://example.org/store")
    monkeypatch.setattr(FolderObjects, "replace", lambda self, name, data, tag: self.put(name, data) or "")
    with pytest.raises(UnsupportedError, match="lets two writers win"):
        open_objects(tmp_path)


def grown(model, lengths, **options):
    """Snapshots of one session as it grows."""
    out = []
    with model.session(**options) as session:
        for length in lengths:
            session.read([5 + token % 50 for token in range(session.position, length)])
            with tempfile.NamedTemporaryFile() as file:
                session.save(file.name)
                out.append(Path(file.name).read_bytes())
    return out


@pytest.mark.parametrize("options", [{}, {"rolling": (4, 64)}, {"key_type": "f32", "value_type": "f32"}, {"kv_budget": "1M"}])
def test_segments_hold_what_is_new(model, options):
    snapshots = grown(model, (100, 130, 150), **options)
    old = None
    for new in snapshots:
        segment = pack(new, old, "the one before")
        assert unpack(segment, old, "the one before") == new
        old = new
    if not options:
        assert len(pack(snapshots[2], snapshots[1])) < len(snapshots[2]) / 2
    with pytest.raises(BadFormatError, match="behind another"):
        unpack(pack(snapshots[2], snapshots[1], "one"), snapshots[0], "another")
    for damaged in (pack(snapshots[1], None)[:-1], pack(snapshots[1], None) + b"x"):
        with pytest.raises(BadFormatError, match="damaged"):
            unpack(damaged, None)


def test_segments_of_anything_are_exact():
    random = np.random.default_rng(7)
    texts = [random.bytes(int(random.integers(0, 4000))) for _ in range(8)]
    for old in (None, *texts):
        for new in texts:
            assert unpack(pack(new, old), old) == new


def test_a_session_goes_on_elsewhere(objects, model):
    one, other = SessionStore(objects), SessionStore(objects)
    old = None
    for turn, snapshot in enumerate(grown(model, range(40, 250, 15))):
        lease = (one if turn % 2 else other).acquire("talk", f"replica {turn % 2}")
        assert (lease.manifest["turn"], lease.snapshot()) == (turn, old)
        lease.commit(snapshot, 15 * turn, base=old)
        old = snapshot
    assert one.look("talk")["turn"] == 14
    # Segments that nothing needs any more are gone.
    held = [name for name in objects.names("sessions") if name.endswith(".segment")]
    assert len(held) == len(one.look("talk")["segments"]) <= 12
    one.forget("talk")
    assert objects.names("sessions") == []


def test_a_damaged_segment_is_no_memory(objects, model):
    store = SessionStore(objects)
    snapshots = grown(model, (40, 55))
    store.acquire("talk", "a").commit(snapshots[0], 40)
    store.acquire("talk", "a").commit(snapshots[1], 55, base=snapshots[0])
    for segment in store.look("talk")["segments"]:
        data = objects.get(segment["name"])[0]
        objects.put(segment["name"], data[:-100] + bytes([data[-100] ^ 1]) + data[-99:])
        with pytest.raises(BadFormatError, match="is damaged"):
            store.snapshot(store.look("talk"))
        objects.put(segment["name"], data)
    assert store.snapshot(store.look("talk")) == snapshots[1]


def test_a_turn_that_goes_on_here_reads_nothing_and_writes_three_objects(model):
    class Counting(MemoryObjects):
        calls = []

        def get(self, name):
            self.calls.append("get")
            return super().get(name)

        def put(self, name, data):
            self.calls.append("put")
            super().put(name, data)

        def replace(self, name, data, tag):
            self.calls.append("replace")
            return super().replace(name, data, tag)

    store = SessionStore(Counting())
    snapshots = grown(model, (40, 55))
    store.acquire("talk", "a").commit(snapshots[0], 40)
    Counting.calls.clear()
    store.acquire("talk", "a").commit(snapshots[1], 55, base=snapshots[0])
    assert Counting.calls == ["replace", "put", "replace"]


def test_a_lease_keeps_others_out_until_it_ends(objects):
    store = SessionStore(objects, lease_seconds=1.5)
    lease = store.acquire("talk", "a")
    with pytest.raises(SessionBusyError, match="another replica"):
        store.acquire("talk", "b")
    lease.renew()
    taken = store.acquire("talk", "b", wait=9)  # a has died
    assert taken.manifest["fence"] == 2
    # It has not, but is too late: nothing of it is seen.
    with pytest.raises(SessionBusyError, match="taken it over"):
        lease.commit(b"of a", 1)
    taken.commit(b"of b", 1)
    assert store.snapshot(store.look("talk")) == b"of b"
    with pytest.raises(SessionBusyError):
        taken.commit(b"twice", 1)


def test_a_lease_that_renewing_has_found_lost_says_so_to_the_turn(objects):
    store = SessionStore(objects, is_gone=lambda owner: owner == "dead")
    late = store.acquire("talk", "dead")
    store.acquire("talk", "b")
    for write in (late.renew, lambda: late.commit(b"of a", 1)):
        with pytest.raises(SessionBusyError, match="taken it over; ask again"):
            write()
    late.release()
    assert store.look("talk")["lease"]["owner"] == "b"


def test_nobody_waits_for_the_dead(objects):
    store = SessionStore(objects, lease_seconds=60, is_gone=lambda owner: owner == "dead")
    late = store.acquire("talk", "dead")
    store.acquire("talk", "b").commit(b"of b", 1)
    with pytest.raises(SessionBusyError):  # it was not
        late.commit(b"of a", 1)
    store.acquire("talk", "alive")
    with pytest.raises(SessionBusyError):
        store.acquire("talk", "b")


def test_a_clock_that_is_wrong_only_delays(objects, monkeypatch):
    store = SessionStore(objects, lease_seconds=0.3)
    lease = store.acquire("talk", "ahead")
    lease._write({**lease.manifest, "lease": {**lease.manifest["lease"], "until": 1e12}})
    assert store.acquire("talk", "b", wait=5).owner == "b"


def test_of_many_writers_one_wins_each_turn(tmp_path):
    store = SessionStore(FolderObjects(tmp_path, sync=False), lease_seconds=30)
    won = []

    def write(owner):
        for turn in range(10):
            lease = store.acquire("talk", owner, wait=60)
            number = lease.manifest["turn"]
            lease.commit(f"{owner} {number}".encode(), number)
            won.append(number)

    threads = [threading.Thread(target=write, args=(f"w{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == list(range(40))
    assert store.look("talk")["turn"] == 40


class Failing(MemoryObjects):
    """Fails at the n-th write; with ``late`` the write is done all the same, and its answer is lost."""

    def __init__(self):
        super().__init__()
        self.left, self.late = None, False

    def _fails(self):
        if self.left is None:
            return False
        self.left -= 1
        return self.left == 0

    def put(self, name, data):
        fails = self._fails()
        if not fails or self.late:
            super().put(name, data)
        if fails:
            raise StoreError("store: cannot write: the store is full")

    def replace(self, name, data, tag):
        fails = self._fails()
        out = super().replace(name, data, tag) if not fails or self.late else ""
        if fails:
            raise StoreError("store: no answer")
        return out


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_failure_at_any_write_loses_nothing(at, late):
    objects = Failing()
    store = SessionStore(objects, lease_seconds=0.05)
    store.acquire("talk", "a").commit(b"first", 1)
    objects.left, objects.late = at, late
    try:
        store.acquire("talk", "a").commit(b"second", 2)
    except StoreError:
        pass
    objects.left = None
    lease = store.acquire("talk", "b", wait=5)
    assert lease.snapshot() in (b"first", b"second")
    assert lease.tokens == (1 if lease.snapshot() == b"first" else 2)
    lease.commit(b"third", 3)
    assert store.snapshot(store.look("talk")) == b"third"


class Killed(BaseException):
    """Of a writer: nothing of its own runs any more."""


class Rivalled(MemoryObjects):
    """At the n-th call of its writer, something happens to the call, and a rival comes: ``happens``."""

    def __init__(self):
        super().__init__()
        self.left, self.happens, self.rival = None, "", None
        self.calls = 0

    def _call(self, work):
        if self.left is None:
            return work()
        self.calls += 1
        self.left -= 1
        if self.left:
            return work()
        self.left = None
        if self.happens == "rival before":  # it is slow
            self.rival()
            return work()
        if self.happens == "killed before":
            self.rival()
            raise Killed
        if self.happens == "lands late":  # its writer has given it up
            self.rival()
            try:
                work()
            except LostRaceError:
                pass
            raise StoreError("store: no answer")
        out = work()
        self.rival()
        if self.happens == "killed after":
            raise Killed
        if self.happens == "answer lost":
            raise StoreError("store: no answer")
        return work() if self.happens == "sent twice" else out  # by the transport, since no answer came

    def get(self, name):
        return self._call(lambda: super(Rivalled, self).get(name))

    def put(self, name, data):
        return self._call(lambda: super(Rivalled, self).put(name, data))

    def replace(self, name, data, tag):
        return self._call(lambda: super(Rivalled, self).replace(name, data, tag))

    def delete(self, name):
        return self._call(lambda: super(Rivalled, self).delete(name))

    def names(self, folder):
        return self._call(lambda: super(Rivalled, self).names(folder))


HAPPENS = ["rival before", "killed before", "lands late", "rival after", "killed after", "answer lost", "sent twice"]


@pytest.mark.parametrize("before", ["ab", "ba"])  # a knows the newest manifest, or an older one
@pytest.mark.parametrize("rivals", [1, 2])
@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("happens", HAPPENS)
def test_no_acknowledged_turn_is_lost_wherever_a_rival_comes(happens, grows, rivals, before):
    """Programs with one store, each of which takes the others for dead: only the store decides between them."""

    def turn(owner):
        lease = stores[owner].acquire("talk", owner)
        old = lease.snapshot() or b""
        new = old + owner.encode() + os.urandom(300)
        lease.commit(new, len(new), base=old if grows and old else None)
        acknowledged.append((lease.manifest["turn"], lease.manifest["fence"], new))

    for at in range(1, 30):
        objects, acknowledged = Rivalled(), []
        stores = {owner: SessionStore(objects, lease_seconds=1000.0, is_gone=lambda owner: True) for owner in ("a", "b", "b0", "b1", "c")}
        for owner in before:
            turn(owner)
        objects.rival = lambda: [turn(f"b{i}") for i in range(rivals)]  # noqa: B023
        objects.left, objects.happens = at, happens
        try:
            turn("a")
        except (Killed, StoreError, SessionBusyError):
            pass
        ended, objects.left = objects.left is not None, None
        turn("c")
        turns, fences, snapshots = zip(*acknowledged)
        order = sorted(range(len(turns)), key=turns.__getitem__)
        assert len(set(turns)) == len(turns), f"call {at}: a turn was written twice"
        assert [fences[i] for i in order] == sorted(fences)
        for one, after in zip(order, order[1:]):
            assert snapshots[after].startswith(snapshots[one]), f"call {at}: a turn is lost"
        assert stores["c"].snapshot(stores["c"].look("talk")) == snapshots[order[-1]]
        if ended:  # the turn has fewer calls
            assert at > 4
            return
    raise AssertionError("a turn never has so many calls")


def test_a_full_disk_is_one_clear_error(tmp_path, monkeypatch):
    store = open_store(tmp_path)
    store.acquire("talk", "a").commit(b"first", 1)
    lease = store.acquire("talk", "a")

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="the store is full"):
        lease.commit(b"second", 2)
    monkeypatch.undo()
    assert store.snapshot(store.look("talk")) == b"first"
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


def test_replicas_that_differ_are_refused(objects):
    store = SessionStore(objects)
    store.agree({"kvtide": "1", "bits": "x"})
    store.agree({"bits": "x", "kvtide": "1"})
    with pytest.raises(InvalidArgumentError, match="kvtide = '1', and this one has '2'"):
        store.agree({"kvtide": "2", "bits": "x"})


def test_stored_answers(objects):
    store = SessionStore(objects)
    store.put_response("resp_0a", "talk", b"body\nof it")
    assert store.response("resp_0a") == ("talk", b"body\nof it")
    for name in ("resp_0b", "../x", ""):
        with pytest.raises(KeyError):
            store.response(name)
    store.drop_response("resp_0a")
    with pytest.raises(KeyError):
        store.response("resp_0a")


def test_old_sessions_are_forgotten(objects):
    store = SessionStore(objects)
    store.acquire("old", "a").commit(b"x", 1)
    held = store.acquire("held", "a")
    assert store.prune(3600) == 0
    assert store.prune(-1) == 1
    assert store.look("old")["turn"] == 0
    held.commit(b"y", 1)
    manifest = json.loads(objects.get(objects.names("sessions")[-1])[0])
    assert manifest["session"] == "held"
