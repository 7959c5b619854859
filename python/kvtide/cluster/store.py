"""Sessions in a store that several replicas share: who may go on with one, and from where.

Of a session there is one manifest, which says what its snapshot is made from, and immutable segments. Who may write them,
and how a turn ends: lease.py.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import zlib
from collections import OrderedDict
from typing import Any, Callable, Mapping

from kvtide.cluster.delta import unpack
from kvtide.cluster.lease import Lease, SessionBusyError, folder_of
from kvtide.cluster.objects import LostRaceError, Objects, StoreError
from kvtide.errors import BadFormatError, InvalidArgumentError

FORMAT = 3
_LONGEST_NAME = 256
_MOST_WRITTEN = 10_000
_POLL = 0.1  # seconds between two looks at a session that another has


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


def _response(name: str) -> str:
    if not name.isascii() or not name.replace("_", "").isalnum() or len(name) > 64:
        raise KeyError(name)
    return f"responses/{name[-2:]}/{name}"


def _empty(name: str) -> dict[str, Any]:
    empty = {"format": FORMAT, "session": name, "turn": 0, "fence": 0, "tokens": 0}
    return {**empty, "segments": [], "lease": None, "written": 0.0}
