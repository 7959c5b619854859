"""Which replica a request goes to: its session's place on a consistent hash, or the one that has read most of its text, while
it is not busier than the others; else the least busy of the next ones on the ring.

Nothing about sessions is remembered. Every node has a router of its own, and what one of them remembers the others do not know:
they would send a session to and fro. Serve's own consistent hash supplies the ring. It is a matter of speed only: any replica
can answer any request. Why so: docs/cluster.md, "Where requests go".
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from typing import Any

from ray.serve.experimental.consistent_hash_router import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    ConsistentHashRouter,
)

from kvtide.ray.prefixes import PrefixTable

_NEAR = 8  # replicas of the ring of which the least busy takes what the first cannot
_UNTOLD_SECONDS = 2.0  # after which a replica's own count has the requests that it was sent, or they have ended
_READ = 2  # requests more that a replica may have which has read the text: to read it takes longer than to wait for them


class SessionRouter(ConsistentHashRouter):  # type: ignore[misc,unused-ignore]
    """``request_router_kwargs``: ``load_factor``, 1 or more; ``floor``, requests that are no reason to go elsewhere; those
    of ConsistentHashRouter."""

    def initialize_state(self, **kwargs: Any) -> None:
        self._load_factor = float(kwargs.pop("load_factor", 1.25))
        self._floor = int(kwargs.pop("floor", 2))
        self._prefixes = PrefixTable()
        self._sent: defaultdict[Any, list[float]] = defaultdict(list)  # when HAProxy was told of each replica, lately
        super().initialize_state(**{"num_fallback_replicas": 1 << 20, **kwargs})

    async def choose_replicas(self, candidate_replicas: list[Any], pending_request: Any = None) -> list[list[Any]]:
        ranks = await super().choose_replicas(candidate_replicas, pending_request)
        if pending_request is None or len(ranks) < 2:
            return list(ranks)
        ring = [rank[0] for rank in ranks]
        blocks = _blocks_of(pending_request)
        known = self._prefixes.known(blocks) if blocks else {}
        now = time.time()  # and not monotonic: replicas tell theirs
        loads = {one.replica_id: self._load(one, now) for one in ring}
        order = in_order(ring, loads, self._load_factor, self._floor, known)
        if blocks is not None:  # HAProxy sends it to the first, and Serve hears no more of it
            first = order[0].replica_id
            self._prefixes.remember(blocks, first)
            self._sent[first] = [then for then in self._sent[first] if now - then < _UNTOLD_SECONDS] + [now]
        return [[one] for one in order]

    def _load(self, replica: Any, now: float) -> int:
        """What the replica told last, or what Serve's own proxy has counted since, or what HAProxy was told since."""
        told = replica.routing_stats
        at = float(told.get("at", 0.0))
        counted = self.replica_queue_len_cache._cache.get(replica.replica_id)
        if counted is not None and counted.timestamp >= at:
            return int(counted.queue_len)
        # Nobody tells when a request of HAProxy's has ended: it is taken to last as long as others did.
        since = max(at, now - float(told.get("seconds", _UNTOLD_SECONDS)))
        return int(told.get("ongoing", 0)) + sum(then > since for then in self._sent.get(replica.replica_id, ()))


def _blocks_of(pending_request: Any) -> list[bytes] | None:
    """None: of a request without a body, or that came through Serve's own proxy, which does not look at bodies."""
    given = pending_request.args[0] if pending_request.args else None
    return given if isinstance(given, list) else None


def in_order(ring: list[Any], loads: dict[Any, int], load_factor: float, floor: int, known: dict[Any, int] | None = None) -> list[Any]:
    """Replicas in the order in which they are asked. ``known``: how much of the text they have read."""
    bound = max(math.ceil(load_factor * (sum(loads.values()) + 1) / len(ring)), floor)
    known = known or {}
    by_load = sorted(ring[1:_NEAR], key=lambda one: loads[one.replica_id])
    # Keeps this order among those that know as much.
    wanted = sorted(ring[:1] + by_load + ring[_NEAR:], key=lambda one: -known.get(one.replica_id, 0))
    busy = {one.replica_id for one in wanted if loads[one.replica_id] >= bound + (_READ if known.get(one.replica_id) else 0)}
    # Keeps the order among those that are free.
    return sorted(wanted, key=lambda one: loads[one.replica_id] if one.replica_id in busy else -1)
