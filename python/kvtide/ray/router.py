"""Which replica a request goes to: the one that had its session last, or has read most of its text, while it is not busier
than the others.

Other requests go by a consistent hash with bounded loads: to the first replica of the ring that has no more than
``load_factor`` times the mean number of requests. Serve's own consistent hash supplies the ring. It is a matter of speed
only: any replica can answer any request. Why so: docs/cluster.md, "Where requests go".
"""

from __future__ import annotations

import math
import time
from collections import Counter, OrderedDict, deque
from typing import Any

from ray.serve.experimental.consistent_hash_router import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    ConsistentHashRouter,
)

from kvtide.ray.prefixes import PrefixTable

_MOST_REMEMBERED = 200_000
_UNTOLD_SECONDS = 2.0  # after which a replica's own count has the requests that it was sent


class SessionRouter(ConsistentHashRouter):  # type: ignore[misc,unused-ignore]
    """``request_router_kwargs``: ``load_factor``, 1 or more; ``floor``, requests that are no reason to go elsewhere; those
    of ConsistentHashRouter."""

    def initialize_state(self, **kwargs: Any) -> None:
        self._load_factor = float(kwargs.pop("load_factor", 1.25))
        self._floor = int(kwargs.pop("floor", 2))
        self._last: OrderedDict[str, Any] = OrderedDict()  # session: replica
        self._prefixes = PrefixTable()
        self._sent: deque[tuple[float, Any]] = deque()  # by HAProxy, the newest last
        super().initialize_state(**{"num_fallback_replicas": 1 << 20, **kwargs})

    async def choose_replicas(self, candidate_replicas: list[Any], pending_request: Any = None) -> list[list[Any]]:
        ranks = await super().choose_replicas(candidate_replicas, pending_request)
        if pending_request is None or len(ranks) < 2:
            return list(ranks)
        ring = [rank[0] for rank in ranks]
        blocks = _blocks_of(pending_request)
        known = self._prefixes.known(blocks) if blocks else {}
        last = self._last.get(pending_request.metadata.session_id)
        order = in_order(ring, self._loads(ring), last, self._load_factor, self._floor, known)
        if blocks is not None:  # HAProxy sends it to the first, and Serve hears no more of it
            self._remember(pending_request, order[0].replica_id)
            self._prefixes.remember(blocks, order[0].replica_id)
            self._sent.append((time.monotonic(), order[0].replica_id))
        return [[one] for one in order]

    def on_request_routed(self, pending_request: Any, replica_id: Any, result: Any) -> None:
        super().on_request_routed(pending_request, replica_id, result)
        self._remember(pending_request, replica_id)

    def _remember(self, pending_request: Any, replica_id: Any) -> None:
        session = pending_request.metadata.session_id
        if session:
            self._last[session] = replica_id
            self._last.move_to_end(session)
            if len(self._last) > _MOST_REMEMBERED:
                self._last.popitem(last=False)

    def _loads(self, ring: list[Any]) -> dict[Any, int]:
        while self._sent and time.monotonic() - self._sent[0][0] > _UNTOLD_SECONDS:
            self._sent.popleft()
        sent = Counter(replica_id for _, replica_id in self._sent)
        return {one.replica_id: self._told(one) + sent[one.replica_id] for one in ring}

    def _told(self, replica: Any) -> int:
        return int(self.replica_queue_len_cache.get(replica.replica_id) or replica.routing_stats.get("ongoing", 0))


def _blocks_of(pending_request: Any) -> list[bytes] | None:
    """None: of a request that came through Serve's own proxy, which does not look at bodies."""
    given = pending_request.args[0] if pending_request.args else None
    return given if isinstance(given, list) else None


def in_order(
    ring: list[Any], loads: dict[Any, int], last: Any, load_factor: float, floor: int, known: dict[Any, int] | None = None
) -> list[Any]:
    """Replicas in the order in which they are asked. ``last``: the id of the one that had the session; ``known``: how much
    of the text others have read."""
    bound = max(math.ceil(load_factor * (sum(loads.values()) + 1) / len(ring)), floor)
    known = known or {}
    # Keeps the order of the ring among equals.
    wanted = sorted(ring, key=lambda one: (one.replica_id != last, -known.get(one.replica_id, 0)))
    free = [one for one in wanted if loads[one.replica_id] < bound]
    return free + sorted((one for one in wanted if loads[one.replica_id] >= bound), key=lambda one: loads[one.replica_id])
