"""Snapshots as what has been added since the one before.

A segment says how to make a snapshot from another one: ranges that are copied, and bytes that are new. A segment without a
source holds everything. The server writes them itself (docs/snapshot_format.md, "Segments"); ``pack`` is for snapshots that
are at hand. It finds rows that were there before by the header and compares them byte by byte; so a mistake about the format
costs bytes, never bits.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Iterator

import numpy as np

from kvtide.errors import BadFormatError

_MAGIC = b"KVTSEG2\n"
_SNAPSHOT = b"KVTIDE\x00\x01"
_FRONT = struct.Struct("<8sIIQ")


def pack(new: bytes, old: bytes | None, source: str | None = None) -> bytes:
    """A segment that makes ``new`` from ``old``; None: from nothing. ``source`` names ``old`` for those who unpack it."""
    copies = [] if old is None else sorted(_copies(new, old))
    operations: list[list[int]] = []
    data = []
    at = 0
    for start, from_, length in copies:
        if start < at or length == 0:
            continue
        if start > at:
            operations.append([start - at])
            data.append(new[at:start])
        if operations and len(operations[-1]) == 2 and sum(operations[-1]) == from_:
            operations[-1][1] += length
        else:
            operations.append([from_, length])
        at = start + length
    if at < len(new):
        operations.append([len(new) - at])
        data.append(new[at:])
    told = {"bytes": len(new), "source": None if old is None else source, "make": operations}
    head = json.dumps(told, separators=(",", ":")).encode()
    return b"".join([_MAGIC, len(head).to_bytes(8, "little"), head, *data])


def told(segment: bytes) -> tuple[str | None, int]:
    """The source that a segment goes on from, and the bytes of its snapshot. Raises BadFormatError."""
    try:
        head, _ = _head_of(segment)
        return head["source"], int(head["bytes"])
    except (ValueError, KeyError, TypeError) as error:
        raise BadFormatError(f"a segment of a session: {error}") from error


def unpack(segment: bytes, old: bytes | None, source: str | None = None) -> bytes:
    """The snapshot. Raises BadFormatError when the segment is damaged or belongs behind another source.

    Ranges that are copied have no checksum of their own: callers compare that of the segment, and of its source before.
    """
    try:
        head, at = _head_of(segment)
        if head["source"] != (None if old is None else source):
            raise BadFormatError("a segment of a session: it belongs behind another one")
        parts = []
        for operation in head["make"]:
            if len(operation) == 2:
                start, length = operation
                parts.append((old or b"")[start : start + length])
            else:
                parts.append(segment[at : at + operation[0]])
                at += operation[0]
        out = b"".join(parts)
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, BadFormatError):
            raise
        raise BadFormatError(f"a segment of a session: {error}") from error
    if len(out) != head["bytes"] or at != len(segment):
        raise BadFormatError("a segment of a session: it is damaged")
    return out


def _head_of(segment: bytes) -> tuple[dict[str, Any], int]:
    """The head, and where the new bytes begin. Raises ValueError."""
    if segment[:8] != _MAGIC:
        raise ValueError("it does not begin as one")
    end = 16 + int.from_bytes(segment[8:16], "little")
    head: dict[str, Any] = json.loads(segment[16:end])
    return head, end


def header_of(snapshot: bytes) -> tuple[dict[str, Any], int]:
    """The header of a snapshot, and where its payload begins. Raises BadFormatError."""
    if len(snapshot) < _FRONT.size or snapshot[:8] != _SNAPSHOT:
        raise BadFormatError("a snapshot does not begin as one")
    length = _FRONT.unpack_from(snapshot)[3]
    try:
        header: dict[str, Any] = json.loads(snapshot[_FRONT.size : _FRONT.size + length])
    except ValueError as error:
        raise BadFormatError(f"a snapshot: its header: {error}") from error
    return header, (_FRONT.size + length + 63) // 64 * 64


def _copies(new: bytes, old: bytes) -> Iterator[tuple[int, int, int]]:
    """(where in new, where in old, length) of rows that are the same."""
    theirs: dict[str, list[tuple[int, int, int, int]]] = {}
    for name, *part in _parts(old):
        theirs.setdefault(name, []).append((part[0], part[1], part[2], part[3]))
    a, b = np.frombuffer(new, np.uint8), np.frombuffer(old, np.uint8)
    for name, first, rows, size, at in _parts(new):
        for first_old, rows_old, size_old, at_old in theirs.get(name, ()):
            begin, end = max(first, first_old), min(first + rows, first_old + rows_old)
            if size != size_old or begin >= end:
                continue
            start, source = at + (begin - first) * size, at_old + (begin - first_old) * size
            length = (end - begin) * size
            differs = a[start : start + length] != b[source : source + length]
            if differs.any():
                length = int(differs.argmax()) // size * size
            yield start, source, length


def _parts(snapshot: bytes) -> Iterator[tuple[str, int, int, int, int]]:
    """(name, first row, rows, bytes of a row, where) of every head of every tensor."""
    try:
        header, payload = header_of(snapshot)
        for tensor in header["tensors"]:
            at, total = payload + tensor["offset"], tensor["bytes"]
            shape = tensor["shape"]
            if total <= 0 or at + total > len(snapshot):
                continue
            if tensor["name"].startswith("layers.") and len(shape) == 3 and total % (shape[0] * shape[1]) == 0:
                row = total // (shape[0] * shape[1])
                for head in range(shape[0]):
                    yield f"{tensor['name']}/{head}", tensor["first"], shape[1], row, at + head * shape[1] * row
            else:
                yield f"{tensor['name']}/{total}", 0, 1, total, at
    except (BadFormatError, KeyError, TypeError, ZeroDivisionError):
        return
