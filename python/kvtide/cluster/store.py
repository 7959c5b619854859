"""Sessions in a store that several replicas share: who may go on with one, and from where.

Of a session there is one manifest, which says what its snapshot is made from, and immutable segments. A manifest is only
ever replaced by whoever has read the newest one (``Objects.replace``). So of two replicas that answer for one session, one
is told so, and its answer is never acknowledged; clocks and leases only spare the work.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
import uuid
import zlib
from collections import OrderedDict
from typing import Any, Callable, Mapping

from kvtide.cluster.delta import pack, told, unpack
from kvtide.cluster.objects import LostRaceError, Objects, StoreError
from kvtide.errors import BadFormatError, BusyError, InvalidArgumentError

FORMAT = 3
_MOST_SEGMENTS = 12
_LONGEST_NAME = 256
_MOST_WRITTEN = 10_000
_POLL = 0.1  # seconds between two looks at a session that another has


class SessionBusyError(BusyError):
    """Another replica answers for the session, or has taken it over meanwhile."""


class SessionStore:
    """Holds sessions. Safe from any thread; so are its leases."""

    def __init__(
        self, objects: Objects, *, lease_seconds: float = 6.0, is_gone: Callable[[str], bool] | None = None
    ) -> None:
        """``is_gone``: whether an owner is known to be dead, so that nobody has to wait for the end of its leases."""
        if not lease_seconds > 0:
            raise InvalidArgumentError("lease_seconds must be more than 0")
        self._objects = objects
        self._is_gone = is_gone
        self._written: OrderedDict[str, tuple[dict[str, Any], str | None]] = OrderedDict()  # under _lock; by name
        self._lock = threading.Lock()
        self.lease_seconds = lease_seconds

    def agree(self, configuration: Mapping[str, Any]) -> None:
        """Makes sure that all replicas compute alike. Raises InvalidArgumentError, which names the first difference."""
        wanted: dict[str, Any] = {"format": FORMAT, **configuration}
        data = json.dumps(wanted, sort_keys=True, indent=1).encode()
        with contextlib.suppress(LostRaceError):
            self._objects.replace("configuration.json", data, None)
            return
        there = json.loads(self._objects.get("configuration.json")[0])
        for key in (*wanted, *sorted({*there} - {*wanted})):
            if wanted.get(key) != there.get(key):
                raise InvalidArgumentError(
                    f"store: its sessions belong to replicas with {key} = {there.get(key)!r}, and this one has "
                    f"{wanted.get(key)!r}; start it alike, or give it a store of its own"
                )

    def acquire(self, name: str, owner: str, *, wait: float = 0.0) -> Lease:
        """The right to answer for a session, for ``lease_seconds`` or until ``commit`` or ``release``.

        Waits so long for another replica to end. Raises SessionBusyError, StoreError.
        """
        if not name or len(name) > _LONGEST_NAME:
            raise InvalidArgumentError(f"the name of a session must have 1 to {_LONGEST_NAME} characters")
        end = time.monotonic() + wait
        last = self._take_written(name)
        if last is not None:  # mostly still the newest, and the write says so
            with contextlib.suppress(LostRaceError):
                return self._leased(name, owner, *last)
        seen: tuple[str | None, float] = (None, time.monotonic())
        while True:
            manifest, tag = self._read(name)
            if tag != seen[0]:
                seen = (tag, time.monotonic())
            if not self._is_held(manifest, owner, time.monotonic() - seen[1]):
                with contextlib.suppress(LostRaceError):
                    return self._leased(name, owner, manifest, tag)
            if time.monotonic() >= end:
                raise SessionBusyError(f"session {name!r}: another replica answers for it; ask again in a moment")
            time.sleep(_POLL)

    def _leased(self, name: str, owner: str, manifest: dict[str, Any], tag: str | None) -> Lease:
        lease = Lease(self, name, owner, manifest, tag)
        lease._write(lease._leased(fence=manifest["fence"] + 1))
        return lease

    def _take_written(self, name: str) -> tuple[dict[str, Any], str | None] | None:
        with self._lock:
            return self._written.pop(name, None)

    def _keep_written(self, lease: Lease) -> None:
        """The manifest of a turn that ended here, so that the next one need not read it."""
        with self._lock:
            self._written[lease.name] = (lease.manifest, lease._tag)
            while len(self._written) > _MOST_WRITTEN:
                self._written.popitem(last=False)

    def _is_held(self, manifest: Mapping[str, Any], owner: str, unchanged: float) -> bool:
        lease = manifest["lease"]
        if lease is None or lease["owner"] == owner:
            return False
        # By either clock: a lease that nobody has renewed while we looked has ended, whatever the other's clock said.
        if time.time() >= lease["until"] or unchanged >= lease["seconds"]:
            return False
        # Should it live all the same, it fails when it commits.
        return self._is_gone is None or not self._is_gone(lease["owner"])

    def look(self, name: str) -> dict[str, Any]:
        """The manifest: ``turn``, ``fence``, ``tokens``, ``lease`` and more."""
        return self._read(name)[0]

    def snapshot(self, manifest: Mapping[str, Any]) -> bytes | None:
        """What the session's memory was behind its last turn. Raises StoreError, BadFormatError."""
        out: bytes | None = None
        before: str | None = None
        for segment, data in zip(manifest["segments"], self.segments(manifest)):
            out, before = unpack(data, out, before), segment["name"]
        return out

    def segments(self, manifest: Mapping[str, Any], first: int = 0) -> list[bytes]:
        """What that is made from, the whole one first; without the ``first`` ones. Raises StoreError, BadFormatError."""
        out = []
        for segment in manifest["segments"][first:]:
            try:
                data = self._objects.get(segment["name"])[0]
            except KeyError:
                raise StoreError(f"store: {segment['name']} is missing") from None
            if len(data) != segment["bytes"] or zlib.crc32(data) != segment["crc32"]:
                raise BadFormatError(f"store: {segment['name']} is damaged")
            out.append(data)
        return out

    def put_response(self, response: str, session: str, data: bytes) -> None:
        """Keeps an answer of /v1/responses, which later requests go on from on any replica."""
        self._objects.put(_response(response), json.dumps({"session": session}).encode() + b"\n" + data)

    def response(self, response: str) -> tuple[str, bytes]:
        """Its session, and the answer. Raises KeyError."""
        head, _, data = self._objects.get(_response(response))[0].partition(b"\n")
        try:
            return str(json.loads(head)["session"]), data
        except (ValueError, KeyError, TypeError) as error:
            raise BadFormatError(f"store: the answer {response} is damaged") from error

    def drop_response(self, response: str) -> None:
        self._objects.delete(_response(response))

    def forget(self, name: str) -> None:
        """Deletes a session that no replica answers for."""
        for object_name in self._objects.names(folder_of(name)):
            self._objects.delete(object_name)

    def prune(self, seconds: float) -> int:
        """Forgets sessions whose last turn was so long ago. How many."""
        gone = 0
        for object_name in self._objects.names("sessions"):
            if not object_name.endswith("/manifest.json"):
                continue
            with contextlib.suppress(KeyError, ValueError):
                manifest = json.loads(self._objects.get(object_name)[0])
                if time.time() - manifest["written"] > seconds and not self._is_held(manifest, "", 0.0):
                    self.forget(manifest["session"])
                    gone += 1
        return gone

    def _read(self, name: str) -> tuple[dict[str, Any], str | None]:
        try:
            data, tag = self._objects.get(f"{folder_of(name)}/manifest.json")
        except KeyError:
            return _empty(name), None
        try:
            manifest: dict[str, Any] = json.loads(data)
        except ValueError as error:
            raise BadFormatError(f"store: the manifest of session {name!r} is damaged") from error
        if manifest.get("format") != FORMAT:
            raise BadFormatError(f"store: session {name!r} has format {manifest.get('format')}, not {FORMAT}")
        return manifest, tag


class Lease:
    """The right to write one session, with the manifest that it was taken on."""

    def __init__(self, store: SessionStore, name: str, owner: str, manifest: dict[str, Any], tag: str | None) -> None:
        self._store = store
        self._tag = tag
        self._lock = threading.Lock()
        self.name = name
        self.owner = owner
        self.manifest = manifest
        self.held = True
        self.lost = False  # to another replica, as the newest write has found

    @property
    def tokens(self) -> int:
        return int(self.manifest["tokens"])

    @property
    def snapshot_id(self) -> str | None:
        """Names the snapshot behind the last turn: its newest segment, which names the one before."""
        return self.chain[-1] if self.chain else None

    @property
    def chain(self) -> list[str]:
        """Names of the segments that make this snapshot. No two segments ever have one name."""
        return [str(segment["name"]) for segment in self.manifest["segments"]]

    def snapshot(self) -> bytes | None:
        return self._store.snapshot(self.manifest)

    def segments(self, first: int = 0) -> list[bytes]:
        return self._store.segments(self.manifest, first)

    def renew(self) -> None:
        """Raises SessionBusyError when somebody has taken the session over."""
        with self._lock:
            if self.held:
                self._write_or_lose(self._leased(fence=self.manifest["fence"]))

    def release(self) -> None:
        """Gives the session back as it was."""
        with self._lock:
            if self.held:
                self.held = False
                self._write_or_lose({**self.manifest, "lease": None})

    def commit(self, snapshot: bytes | None, tokens: int, *, base: bytes | None = None) -> int:
        """``commit_segment`` with a snapshot that is at hand. ``base`` is the one that ``snapshot_id`` names, when that is, too."""
        if snapshot is None:
            return self.commit_segment(None, tokens)
        old = base if self.may_grow() else None
        return self.commit_segment(pack(snapshot, old, self.snapshot_id), tokens)

    def commit_segment(self, segment: bytes | None, tokens: int) -> int:
        """Writes what a turn has left, and gives the session back. The bytes that went to the store.

        ``segment`` holds everything or goes on from ``snapshot_id``; None: only the turn is counted.
        Raises SessionBusyError when another replica has taken the session over: then nothing has changed. BadFormatError.
        """
        with self._lock:
            if self.lost:  # renewing has found it while the answer was made
                raise self._taken_over()
            if not self.held:
                raise SessionBusyError(f"session {self.name!r}: this lease has ended")
            turn = self.manifest["turn"] + 1
            new = {**self.manifest, "turn": turn, "lease": None, "tokens": self.tokens if segment is None else tokens}
            whole = False
            if segment is not None:
                source, size = told(segment)
                whole = source is None
                if not whole and source != self.snapshot_id:
                    raise BadFormatError(f"session {self.name!r}: a segment behind another one than the newest")
                name = f"{folder_of(self.name)}/{turn:08d}-{uuid.uuid4().hex}.segment"
                entry = {"name": name, "bytes": len(segment), "snapshot": size, "crc32": zlib.crc32(segment)}
                new["segments"] = [*([] if whole else self.manifest["segments"]), entry]
                self._store._objects.put(name, segment)
            self.held = False
            # A segment of a turn that is lost stays until the next sweep: when the write's answer got lost, the manifest may
            # have been written, and a rival may have gone on from it already.
            self._write_or_lose(new)
            self._store._keep_written(self)
            if whole:
                self._sweep(turn)
            return 0 if segment is None else len(segment)

    def may_grow(self) -> bool:
        """Whether the next segment should go on from the newest: there are few, and they are not much more than a snapshot."""
        segments = self.manifest["segments"]
        if not segments or len(segments) >= _MOST_SEGMENTS:
            return False
        return bool(sum(segment["bytes"] for segment in segments) <= 2 * segments[-1].get("snapshot", 0))

    def _sweep(self, turn: int) -> None:
        # Segments of turns to come may be a rival's; those before are nobody's but readers' that look again.
        keep = {segment["name"] for segment in self.manifest["segments"]}
        with contextlib.suppress(StoreError, ValueError):
            for name in self._store._objects.names(folder_of(self.name)):
                if name.endswith(".segment") and name not in keep and int(name.rsplit("/", 1)[1][:8]) <= turn:
                    self._store._objects.delete(name)

    def _leased(self, *, fence: int) -> dict[str, Any]:
        seconds = self._store.lease_seconds
        lease = {"owner": self.owner, "until": time.time() + seconds, "seconds": seconds}
        return {**self.manifest, "fence": fence, "lease": lease}

    def _write_or_lose(self, manifest: dict[str, Any]) -> None:
        try:
            self._write(manifest)
        except LostRaceError:
            self.held = False
            self.lost = True
            raise self._taken_over() from None

    def _taken_over(self) -> SessionBusyError:
        return SessionBusyError(f"session {self.name!r}: another replica has taken it over; ask again")

    def _write(self, manifest: dict[str, Any]) -> None:
        written = {**manifest, "write": uuid.uuid4().hex, "writer": self.owner, "written": time.time()}
        data = json.dumps(written, separators=(",", ":")).encode()
        name = f"{folder_of(self.name)}/manifest.json"
        try:
            self._tag = self._store._objects.replace(name, data, self._tag)
        except LostRaceError:
            # A write whose answer got lost on the way is seen by those that try again as another's.
            there, tag = self._store._read(self.name)
            if there.get("write") != written["write"]:
                raise
            self._tag = tag
        self.manifest = written


def folder_of(name: str) -> str:
    return f"sessions/{hashlib.sha256(name.encode()).hexdigest()[:40]}"


def _response(name: str) -> str:
    if not name.isascii() or not name.replace("_", "").isalnum() or len(name) > 64:
        raise KeyError(name)
    return f"responses/{name[-2:]}/{name}"


def _empty(name: str) -> dict[str, Any]:
    empty = {"format": FORMAT, "session": name, "turn": 0, "fence": 0, "tokens": 0}
    return {**empty, "segments": [], "lease": None, "written": 0.0}
