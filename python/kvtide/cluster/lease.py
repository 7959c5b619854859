"""The right to write one session of a store, and how a turn ends.

A manifest is only ever replaced by whoever has read the newest one (``Objects.replace``). So of two replicas that answer for
one session, one is told so, and its answer is never acknowledged; clocks and leases only spare the work.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
import uuid
import zlib
from typing import TYPE_CHECKING, Any

from kvtide.cluster.delta import pack, told
from kvtide.cluster.objects import LostRaceError, StoreError
from kvtide.errors import BadFormatError, BusyError

if TYPE_CHECKING:
    from kvtide.cluster.store import SessionStore

_MOST_SEGMENTS = 12


class SessionBusyError(BusyError):
    """Another replica answers for the session, or has taken it over meanwhile."""


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
