"""The snapshots that one replica has on its own disk: those of its sessions' last turns, the oldest unused go first."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import threading
import uuid
from collections import OrderedDict
from pathlib import Path

from kvtide.cluster.delta import Data


class LocalSnapshots:
    """Files of a folder of the replica's own. From any thread, one caller for each session at a time."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.iterdir():  # by a replica that is gone
            left.unlink()
        self._folder = folder
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._held = 0  # bytes, under _lock
        self._known: OrderedDict[str, tuple[str, int]] = OrderedDict()  # under _lock; session: which snapshot, bytes

    def file(self, session: str) -> str:
        return hashlib.sha256(session.encode()).hexdigest()[:40] + ".kv"

    def new_file(self, session: str) -> str:
        """Where the server writes the next one. Of this turn alone: one that was given up may still be at work."""
        return f"{self.file(session)}.{uuid.uuid4().hex}"

    def has(self, session: str, snapshot: str | None) -> bool:
        with self._lock:
            found = self._known.get(session)
        return found is not None and found[0] == snapshot

    def read(self, session: str, snapshot: str | None) -> Data | None:
        """None: it is not here, or not this one."""
        if not self.has(session, snapshot):
            return None
        try:
            return _mapped(self._folder / self.file(session))
        except OSError:  # it had to go meanwhile
            return None

    def read_new(self, new: str) -> Data:
        return _mapped(self._folder / new)

    def keep_new(self, session: str, new: str, snapshot: str, size: int) -> None:
        """What the server has written is what the store holds, from here on."""
        with self._lock:
            os.replace(self._folder / new, self._folder / self.file(session))
            self._add(session, snapshot, size)

    def drop_new(self, new: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._folder / new)

    def write(self, session: str, snapshot: str, data: bytes) -> None:
        new = self.new_file(session)
        try:
            (self._folder / new).write_bytes(data)
            self.keep_new(session, new, snapshot, len(data))
        finally:
            self.drop_new(new)

    def _add(self, session: str, snapshot: str, size: int) -> None:
        self._held += size - self._known.get(session, ("", 0))[1]
        self._known[session] = (snapshot, size)
        self._known.move_to_end(session)
        while self._held > self._most_bytes and len(self._known) > 1:
            oldest, (_, gone) = self._known.popitem(last=False)
            self._held -= gone
            with contextlib.suppress(OSError):
                os.unlink(self._folder / self.file(oldest))


def _mapped(path: Path) -> Data:
    """A snapshot is looked at twice and mostly not copied: that is most of what a turn's end costs."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return b""
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
