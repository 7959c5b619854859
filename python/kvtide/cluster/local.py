"""The segments that one replica has on its own disk: those of its sessions' last turns, the oldest unused sessions go first."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import uuid
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class _Chain:
    newest: str  # segment
    files: list[str] = field(default_factory=list)
    bytes: int = 0


class LocalSegments:
    """Files of a folder of the replica's own. From any thread, one caller for each session at a time."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.iterdir():  # by a replica that is gone
            left.unlink()
        self._folder = folder
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._held = 0  # bytes, under _lock
        self._chains: OrderedDict[str, _Chain] = OrderedDict()  # under _lock; by session

    def files(self, session: str, newest: str | None) -> list[str]:
        """Names of files: the segment that is named and those before it, in order. Empty: it is not here."""
        with self._lock:
            chain = self._chains.get(session)
            return list(chain.files) if chain is not None and chain.newest == newest else []

    def new_file(self, session: str) -> str:
        """Where the server writes the next one. Of this turn alone: one that was given up may still be at work."""
        return f"{hashlib.sha256(session.encode()).hexdigest()[:40]}.{uuid.uuid4().hex}"

    def read(self, file: str) -> bytes:
        return (self._folder / file).read_bytes()

    def keep(self, session: str, file: str, segment: str, size: int, *, whole: bool) -> None:
        """What the server has written is what the store holds, from here on."""
        with self._lock:
            if whole:
                self._drop(session)
            chain = self._chains.setdefault(session, _Chain(segment))
            chain.newest = segment
            chain.files.append(file)
            chain.bytes += size
            self._held += size
            self._chains.move_to_end(session)
            while self._held > self._most_bytes and len(self._chains) > 1:
                self._drop(next(iter(self._chains)))

    def drop(self, session: str, file: str) -> None:
        """A file that was not kept."""
        with self._lock:
            chain = self._chains.get(session)
            if chain is None or file not in chain.files:
                self._unlink(file)

    def write(self, session: str, newest: str, segments: list[bytes]) -> list[str]:
        """What the store holds; the last of ``segments`` is ``newest``. Names of files, which may have to go any time."""
        files = [self.new_file(session) for _ in segments]
        for number, (file, data) in enumerate(zip(files, segments)):
            try:
                (self._folder / file).write_bytes(data)
                self.keep(session, file, newest if number == len(segments) - 1 else "", len(data), whole=number == 0)
            finally:
                self.drop(session, file)
        return files

    def _drop(self, session: str) -> None:
        chain = self._chains.pop(session, _Chain(""))
        self._held -= chain.bytes
        for file in chain.files:
            self._unlink(file)

    def _unlink(self, file: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._folder / file)
