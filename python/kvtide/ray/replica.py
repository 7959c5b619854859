"""What runs in each replica: the app of ``kvtide.cluster``, and what Ray wants to know of it."""

from __future__ import annotations

import asyncio
import logging
import tempfile
import threading
import time
from typing import Any

import kvtide.cluster
from kvtide.cluster.inside import Bundled, ask
from kvtide.ray import ray, serve

_WARM_SECONDS = 300.0
_EVERY = 1.0
_BUNDLE_SECONDS = 0.1  # nobody reads faster
_GAUGES = {
    "vllm:num_requests_waiting": ("kvtide_requests_waiting", "Requests in the queue of the replica."),
    "vllm:num_requests_running": ("kvtide_requests_running", "Requests at work."),
    "kvtide_kv_bytes": ("kvtide_kv_bytes", "Bytes of KV memory held, cached prefixes included."),
    "kvtide_kv_budget_bytes": ("kvtide_kv_budget_bytes", "Bytes of KV memory that may be held."),
    "kvtide_written_tokens_total": ("kvtide_written_tokens", "Tokens of answers, since the start."),
    "kvtide_cached_tokens_total": ("kvtide_cached_tokens", "Tokens of prompts that were not read again, since the start."),
}
_FIGURES = {
    "turns": "Turns of sessions that were acknowledged.",
    "restored": "Turns of which something came from the store.",
    "restored_bytes": "Bytes of them.",
    "saved_bytes": "Bytes that went to the store.",
    "refused_busy": "Turns refused because another replica had the session.",
    "refused_store": "Turns refused because of the store.",
}


def _own_name() -> str:
    """The cluster's, and the actor's, which ends with a part that no other replica of the cluster ever has."""
    context = ray.get_runtime_context()
    return f"{context.get_session_name()}/{context.get_actor_name()}"


def _is_gone(owner: str) -> bool:
    cluster, _, actor = owner.partition("/")
    if cluster != ray.get_runtime_context().get_session_name():
        return False  # of another cluster with the same store, which this one knows nothing of
    try:
        ray.get_actor(actor, namespace="serve")
    except ValueError:
        return True
    except Exception:  # nobody knows at the moment
        return False
    return False


@serve.ingress()  # type: ignore[untyped-decorator,misc,unused-ignore]
class Replica:
    """A deployment: ``kvtide.ray.build_app`` binds it."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kvtide-replica-")
        self._app = kvtide.cluster.app(
            work_folder=self._folder.name, owner=_own_name(), is_gone=_is_gone, hosts=None, **options
        )
        self._stats: dict[str, float] = {}
        self._ending = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def __serve_build_asgi_app__(self) -> Any:
        async def bundled(scope: Any, receive: Any, send: Any) -> None:
            await self._app(scope, receive, Bundled(send, _BUNDLE_SECONDS))

        return bundled

    async def record_autoscaling_stats(self) -> dict[str, float]:
        return {"warm_bytes": 0.0, "waiting": 0.0, **self._stats}

    async def record_routing_stats(self) -> dict[str, float]:
        return {"at": time.time(), "ongoing": self._app.figures.ongoing, "seconds": self._app.figures.seconds}

    def check_health(self) -> None:
        if self._app.closed:
            raise RuntimeError("the app of this replica was closed")

    async def __del__(self) -> None:
        # Ray has waited for the answers. Every turn is in the store already: there is nothing else to hand over.
        self._ending.set()
        await asyncio.to_thread(self._app.close, drain_seconds=5.0)
        self._folder.cleanup()

    def _watch(self) -> None:
        gauges = {name: serve.metrics.Gauge(told, description=what) for name, (told, what) in _GAUGES.items()}
        own = {name: serve.metrics.Gauge(f"kvtide_session_{name}", description=what) for name, what in _FIGURES.items()}
        warm_gauge = serve.metrics.Gauge("kvtide_warm_session_bytes", description="KV bytes of sessions of the last minutes.")
        while not self._ending.wait(_EVERY):
            try:
                page = asyncio.run(ask(self._app, "GET", "/metrics", headers=self._app._headers))[1].decode()
                values = dict(line.split(" ", 1) for line in page.splitlines() if line and line[0] != "#")
                for name, gauge in gauges.items():
                    gauge.set(float(values[name]))
                for name, gauge in own.items():
                    gauge.set(float(getattr(self._app.figures, name)))
                warm = self._warm_bytes()
                warm_gauge.set(warm)
                self._stats = {"warm_bytes": warm, "waiting": float(values["vllm:num_requests_waiting"])}
            except Exception:  # of an app that is about to end
                logging.getLogger("ray.serve").debug("kvtide: no metrics", exc_info=True)

    def _warm_bytes(self) -> float:
        """What sessions of the last minutes hold: memory beyond it is a cache, and no reason for another replica."""
        oldest = time.monotonic() - _WARM_SECONDS
        warm = self._app.figures.warm
        for session, (used, _) in list(warm.items()):
            if used < oldest:
                warm.pop(session, None)
        return float(sum(size for _, size in list(warm.values())))
