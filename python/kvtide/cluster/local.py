"""The segments that one replica has on its own disk: those of its sessions' last turns, the oldest unused sessions go first."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import uuid
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path


@dataclass
class _File:
    segment: str  # its name in the store
    name: str
    bytes: int


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
        self._chains: OrderedDict[str, list[_File]] = OrderedDict()  # under _lock; by session

    def files(self, session: str, chain: list[str]) -> list[str]:
        """Names of the files of the first segments of ``chain``, as many as are here."""
        with self._lock:
            files = self._chains.get(session, [])
            return [file.name for file in files[: _same(files, chain)]]

    def new_file(self, session: str) -> str:
        """Where the server writes the next one. Of this turn alone: one that was given up may still be at work."""
        return f"{hashlib.sha256(session.encode()).hexdigest()[:40]}.{uuid.uuid4().hex}"

    def read(self, file: str) -> bytes:
        return (self._folder / file).read_bytes()

    def keep(self, session: str, chain: list[str], file: str, size: int) -> None:
        """``file`` is the last segment of ``chain``, which the store holds. Without those before it, it is not kept."""
        with self._lock:
            files = self._chains.pop(session, [])
            self._cut(files, _same(files, chain[:-1]))
            if len(files) == len(chain) - 1:
                files.append(_File(chain[-1], file, size))
                self._held += size
            if files:
                self._chains[session] = files  # goes last
            while self._held > self._most_bytes and len(self._chains) > 1:
                self._cut(self._chains.popitem(last=False)[1], 0)

    def drop(self, session: str, file: str) -> None:
        """A file that was not kept."""
        with self._lock:
            if all(kept.name != file for kept in self._chains.get(session, [])):
                self._unlink(file)

    def write(self, session: str, chain: list[str], segments: list[bytes]) -> list[str]:
        """Of ``chain`` the last segments, which the store holds. Names of files, which may have to go any time."""
        files = [self.new_file(session) for _ in segments]
        for number, (file, data) in enumerate(zip(files, segments), len(chain) - len(segments) + 1):
            try:
                (self._folder / file).write_bytes(data)
                self.keep(session, chain[:number], file, len(data))
            finally:
                self.drop(session, file)
        return files

    def _cut(self, files: list[_File], length: int) -> None:
        """Leaves so many."""
        while len(files) > length:
            file = files.pop()
            self._held -= file.bytes
            self._unlink(file.name)

    def _unlink(self, file: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._folder / file)


def _same(files: list[_File], chain: list[str]) -> int:
    """Of how many segments from the beginning these are the files."""
    length = 0
    while length < min(len(files), len(chain)) and files[length].segment == chain[length]:
        length += 1
    return length
