"""Named byte strings that several processes share, with one operation that only one of two rivals wins.

``open_objects(url)`` gives those of a folder (a path or ``file://``), of ``s3://BUCKET/PATH`` or ``az://CONTAINER/PATH`` (obstore),
or of this process (``memory://``). What a store promises is tried out when it is opened: one that lets two rivals win is refused.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import threading
import time
import uuid
from pathlib import Path
from typing import Iterator, Protocol
from urllib.parse import urlsplit

from kvtide.errors import InvalidArgumentError, IoError, UnsupportedError


class StoreError(IoError):
    """The store is full, too slow, or out of reach. What was acknowledged before is still there."""


class LostRaceError(Exception):
    """Somebody else has replaced the object since it was read."""


class Objects(Protocol):
    """Names are relative paths with ``/``. ``get`` raises KeyError, everything StoreError."""

    def get(self, name: str) -> tuple[bytes, str]:
        """The bytes and a tag, which is another for other bytes."""

    def put(self, name: str, data: bytes) -> None:
        """Writes an object whole or not at all. It is durable behind the call."""

    def replace(self, name: str, data: bytes, tag: str | None) -> str:
        """The same, unless the object is not the one with this tag (None: unless it exists), and the new tag.

        Raises LostRaceError.
        """

    def delete(self, name: str) -> None:
        """An object that is not there is fine."""

    def names(self, folder: str) -> list[str]:
        """Of everything below ``folder``."""


def open_objects(url: str | os.PathLike[str], *, timeout: float = 10.0) -> Objects:
    """Raises InvalidArgumentError, UnsupportedError (no such kind of store, or one that lets two win), StoreError."""
    text = os.fspath(url)
    kind = urlsplit(text).scheme
    if kind in ("", "file"):
        objects: Objects = FolderObjects(text.removeprefix("file://"), timeout=timeout)
    elif kind == "memory":
        objects = MemoryObjects.of(text)
    elif kind in ("s3", "az"):
        from kvtide.cluster.buckets import BucketObjects

        objects = BucketObjects(text, timeout=timeout)
    else:
        raise UnsupportedError(
            f"store: {text!r}: sessions need a store in which one of two rivals wins; there are folders, s3://, az:// and memory://"
        )
    _try_out(objects, text)
    return objects


def _try_out(objects: Objects, url: str) -> None:
    name = f"probe/{uuid.uuid4().hex}"
    try:
        first = objects.replace(name, b"first", None)
        for tag in (None, "0" * 64):
            try:
                objects.replace(name, b"rival", tag)
            except LostRaceError:
                continue
            raise UnsupportedError(f"store: {url!r} lets two writers win: it ignores conditions on writes")
        objects.replace(name, b"second", first)
        if objects.get(name)[0] != b"second":
            raise UnsupportedError(f"store: {url!r} does not give back what was written last")
    finally:
        with contextlib.suppress(StoreError):
            objects.delete(name)


def tag_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def told(error: OSError, what: str, name: str) -> StoreError:
    """One sentence for what the system said."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    why = "the store is full" if full else error.strerror or str(error) or type(error).__name__
    return StoreError(f"store: cannot {what} {name}: {why}")


class FolderObjects:
    """Files of a folder that all replicas see, also by NFS. ``flock`` decides races; it ends with its process."""

    def __init__(self, folder: str | os.PathLike[str], *, timeout: float = 10.0, sync: bool = True) -> None:
        self._folder = Path(folder)
        self._timeout = timeout
        self._sync = sync
        if not os.fspath(folder):
            raise InvalidArgumentError("store: a folder is needed, or a URL")
        try:
            (self._folder / "locks").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise told(error, "make the folder", os.fspath(folder)) from error

    def get(self, name: str) -> tuple[bytes, str]:
        try:
            data = (self._folder / name).read_bytes()
        except FileNotFoundError:
            raise KeyError(name) from None
        except OSError as error:
            raise told(error, "read", name) from error
        return data, tag_of(data)

    def put(self, name: str, data: bytes) -> None:
        path = self._folder / name
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with open(temporary, "xb") as file:
                    file.write(data)
                    file.flush()
                    if self._sync:
                        os.fsync(file.fileno())
                os.rename(temporary, path)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary)
        except OSError as error:
            raise told(error, "write", name) from error

    def replace(self, name: str, data: bytes, tag: str | None) -> str:
        with self._locked(name):
            try:
                now = self.get(name)[1]
            except KeyError:
                now = None
            if now != tag:
                raise LostRaceError(name)
            self.put(name, data)
        return tag_of(data)

    def delete(self, name: str) -> None:
        try:
            os.unlink(self._folder / name)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise told(error, "delete", name) from error

    def names(self, folder: str) -> list[str]:
        out = []
        for where, _, files in os.walk(self._folder / folder):
            inside = os.path.relpath(where, self._folder)
            out += [f"{inside}/{file}" for file in files if not file.startswith(".")]
        return sorted(out)

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        # Few locks for all names: two that share one wait for each other, and no more.
        path = self._folder / "locks" / tag_of(name.encode())[:2]
        end = time.monotonic() + self._timeout
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise told(error, "lock", name) from error
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > end:
                        raise StoreError(f"store: {name} stays locked for {self._timeout:g} s") from None
                    time.sleep(0.002)
                except OSError as error:
                    raise told(error, "lock", name) from error
            yield
        finally:
            os.close(descriptor)


class MemoryObjects:
    """Of this process alone: for tests, and for one replica whose sessions need not outlive it."""

    _all: dict[str, MemoryObjects] = {}

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}
        self._lock = threading.Lock()

    @classmethod
    def of(cls, url: str) -> MemoryObjects:
        return cls._all.setdefault(url, cls())

    def get(self, name: str) -> tuple[bytes, str]:
        with self._lock:
            data = self._objects[name]
        return data, tag_of(data)

    def put(self, name: str, data: bytes) -> None:
        with self._lock:
            self._objects[name] = bytes(data)

    def replace(self, name: str, data: bytes, tag: str | None) -> str:
        with self._lock:
            now = self._objects.get(name)
            if (None if now is None else tag_of(now)) != tag:
                raise LostRaceError(name)
            self._objects[name] = bytes(data)
        return tag_of(data)

    def delete(self, name: str) -> None:
        with self._lock:
            self._objects.pop(name, None)

    def names(self, folder: str) -> list[str]:
        with self._lock:
            return sorted(name for name in self._objects if name.startswith(folder + "/"))


__all__ = ["FolderObjects", "LostRaceError", "MemoryObjects", "Objects", "StoreError", "open_objects"]
