"""How many replicas there should be: by the KV bytes of live sessions, and by the requests at work and in queues."""

from __future__ import annotations

import math
from typing import Any


class KvAndQueue:
    """A policy of Serve's autoscaling; ``policy_kwargs`` are its arguments."""

    def __init__(self, budget: int, warm_share: float = 0.8, ongoing: float = 4.0) -> None:
        self._room = budget * warm_share
        self._ongoing = ongoing

    def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:
        of_replicas = (context.aggregated_metrics or {}).get("warm_bytes", {})
        wanted = self.wanted(sum(of_replicas.values()), context.total_num_requests)
        least, most = context.capacity_adjusted_min_replicas, context.capacity_adjusted_max_replicas
        return min(max(wanted, least), most), {}

    def wanted(self, warm_bytes: float, requests: float) -> int:
        return max(1, math.ceil(warm_bytes / self._room), math.ceil(requests / self._ongoing))
