"""Which replica a request goes to: the one that had its session last, while it is not busier than the others.

Sessions that nobody has seen go by a consistent hash with bounded loads: to the first replica of the ring that has no more
than ``load_factor`` times the mean number of requests. Serve's own consistent hash supplies the ring. It is a matter of
speed only: any replica can answer for any session. Why so: docs/cluster.md, "Where requests go".
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any

from ray.serve.experimental.consistent_hash_router import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    ConsistentHashRouter,
)

_MOST_REMEMBERED = 200_000


class SessionRouter(ConsistentHashRouter):  # type: ignore[misc,unused-ignore]
    """``request_router_kwargs``: ``load_factor``, 1 or more; ``floor``, requests that are no reason to go elsewhere; those
    of ConsistentHashRouter."""

    def initialize_state(self, **kwargs: Any) -> None:
        self._load_factor = float(kwargs.pop("load_factor", 1.25))
        self._floor = int(kwargs.pop("floor", 2))
        self._last: OrderedDict[str, Any] = OrderedDict()  # session: replica
        super().initialize_state(**{"num_fallback_replicas": 1 << 20, **kwargs})

    async def choose_replicas(self, candidate_replicas: list[Any], pending_request: Any = None) -> list[list[Any]]:
        ranks = await super().choose_replicas(candidate_replicas, pending_request)
        if pending_request is None or len(ranks) < 2:
            return list(ranks)
        ring = [rank[0] for rank in ranks]
        session = pending_request.metadata.session_id
        last = self._last.get(session) if session else None
        return [[one] for one in in_order(ring, self._loads(ring), last, self._load_factor, self._floor)]

    def on_request_routed(self, pending_request: Any, replica_id: Any, result: Any) -> None:
        super().on_request_routed(pending_request, replica_id, result)
        session = pending_request.metadata.session_id
        if session:
            self._last[session] = replica_id
            self._last.move_to_end(session)
            if len(self._last) > _MOST_REMEMBERED:
                self._last.popitem(last=False)

    def _loads(self, ring: list[Any]) -> dict[Any, int]:
        return {replica.replica_id: self.replica_queue_len_cache.get(replica.replica_id) or 0 for replica in ring}


def in_order(ring: list[Any], loads: dict[Any, int], last: Any, load_factor: float, floor: int) -> list[Any]:
    """Replicas in the order in which they are asked. ``last``: the id of the one that had the session."""
    bound = max(math.ceil(load_factor * (sum(loads.values()) + 1) / len(ring)), floor)
    wanted = sorted(ring, key=lambda one: one.replica_id != last)  # keeps the order of the ring
    free = [one for one in wanted if loads[one.replica_id] < bound]
    return free + sorted((one for one in wanted if loads[one.replica_id] >= bound), key=lambda one: loads[one.replica_id])
