"""Which replicas have read how much of a text: hashes of its blocks, each over all that is before it."""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from typing import Hashable

_BLOCK = 256  # bytes: some 60 tokens, which is the least that is worth going elsewhere for
_MOST_BLOCKS = 4096
_MOST_HOLDERS = 4
_TEXT = re.compile(rb'"(?:messages|prompt|input)"\s*:')


def blocks_of(body: bytes) -> list[bytes]:
    """Hashes of a request's text, in JSON as it came: of its first block, of its first two, and so on.

    A body may be cut anywhere. Two ways to write the same JSON have different hashes, which costs time and nothing else.
    """
    found = _TEXT.search(body)
    if found is None:
        return []
    begin = found.end()
    out, before = [], b""
    for start in range(begin, min(len(body) - _BLOCK, begin + _MOST_BLOCKS * _BLOCK) + 1, _BLOCK):
        before = hashlib.blake2b(before + body[start : start + _BLOCK], digest_size=12).digest()
        out.append(before)
    return out


class PrefixTable:
    """Remembers who was sent which texts. For one thread."""

    def __init__(self, most: int = 500_000) -> None:
        self._most = most
        self._holders: OrderedDict[bytes, tuple[Hashable, ...]] = OrderedDict()  # a block's hash: the newest first

    def remember(self, blocks: list[bytes], replica: Hashable) -> None:
        for block in blocks:
            others = (one for one in self._holders.get(block, ()) if one != replica)
            self._holders[block] = (replica, *others)[:_MOST_HOLDERS]
            self._holders.move_to_end(block)
        while len(self._holders) > self._most:
            self._holders.popitem(last=False)

    def known(self, blocks: list[bytes]) -> dict[Hashable, int]:
        """How many blocks each replica has of the text's beginning."""
        out: dict[Hashable, int] = {}
        for count, block in enumerate(blocks, 1):
            holders = self._holders.get(block)
            if holders is None:
                break
            out.update(dict.fromkeys(holders, count))
        return out
