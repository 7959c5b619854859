"""kvtide on Ray Serve: replicas of ``kvtide serve`` whose sessions move between them with the same bits.

    from kvtide.ray import build_app
    app = build_app("model.gguf", kv_budget="2G", store="s3://bucket/sessions")    # serve run mymodule:app

Needs ``pip install 'kvtide[ray]'``. What is owned by whom, and what is promised: docs/cluster.md.
"""

from __future__ import annotations

import importlib
import os
from typing import Any, Mapping

from kvtide._arguments import byte_count
from kvtide.errors import InvalidArgumentError, UnsupportedError

try:
    # As values without types: the package is checked where Ray is not, too.
    ray: Any = importlib.import_module("ray")
    serve: Any = importlib.import_module("ray.serve")
    config: Any = importlib.import_module("ray.serve.config")
    constants: Any = importlib.import_module("ray.serve._private.constants")
except ImportError as error:
    raise UnsupportedError("kvtide.ray needs Ray Serve: pip install 'kvtide[ray]'") from error

_TESTED = "2.60."


def build_app(
    model: str | os.PathLike[str],
    kv_budget: int | str,
    *,
    store: str | os.PathLike[str],
    replicas: int | tuple[int, int] = 1,
    threads: int = 1,
    name: str = "kvtide",
    warm_share: float = 0.8,
    ongoing: float = 4.0,
    load_factor: float = 1.25,
    max_ongoing_requests: int = 64,
    delays: tuple[float, float] = (10.0, 120.0),
    drain_seconds: float = 60.0,
    ray_actor_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """An application for ``serve.run``: the routes of ``kvtide serve``, answered by replicas with one store.

    ``replicas``: how many, or ``(least, most)`` for as many as are needed. Then one more is wanted when sessions of the last
    minutes hold more than ``warm_share`` of all budgets, or when there are more than ``ongoing`` requests for each replica;
    ``delays`` are the seconds for which that must last, up and down. ``kv_budget`` is that of each replica and ``threads``
    its share of the node. A request goes to its session's place on a consistent hash (``X-Session-Id``), unless that has
    more than ``load_factor`` times the mean load; then to the least busy of the next seven. With HAProxy in front of Ray
    Serve (``RAY_SERVE_ENABLE_HA_PROXY=1``) requests go to the replica that has read most of their text. The other options
    are those of ``kvtide.cluster.app``; ``model`` is a path, or a name, that means the same on every node.

    Raises InvalidArgumentError, UnsupportedError. What a replica refuses when it starts stands in ``serve status``.
    """
    from kvtide.ray.replica import Replica

    if not ray.__version__.startswith(_TESTED):
        raise UnsupportedError(f"kvtide.ray is made for Ray {_TESTED}x, and this is {ray.__version__}: pip install 'kvtide[ray]'")
    budget = byte_count(kv_budget, "kv_budget")
    if os.fspath(store).startswith("memory:"):
        raise InvalidArgumentError("store: memory:// is of one process; replicas need a shared folder, s3:// or az://")
    if not load_factor >= 1:
        raise InvalidArgumentError("load_factor must be 1 or more")
    scaling: dict[str, Any] = {}
    if isinstance(replicas, int):
        scaling["num_replicas"] = _at_least_one(replicas)
    else:
        least, most = replicas
        policy = {"budget": budget, "warm_share": warm_share, "ongoing": ongoing}
        scaling["autoscaling_config"] = config.AutoscalingConfig(
            min_replicas=_at_least_one(least),
            max_replicas=most,
            initial_replicas=least,
            upscale_delay_s=delays[0],
            downscale_delay_s=delays[1],
            metrics_interval_s=1.0,
            look_back_period_s=5.0,
            policy=config.AutoscalingPolicy(policy_function="kvtide.ray.scaling:KvAndQueue", policy_kwargs=policy),
        )
    deployment = serve.deployment(
        Replica,
        name=name,
        max_ongoing_requests=max_ongoing_requests,
        graceful_shutdown_timeout_s=drain_seconds,
        graceful_shutdown_wait_loop_s=0.5,
        health_check_period_s=2.0,
        health_check_timeout_s=30.0,
        ray_actor_options={"num_cpus": threads, **(ray_actor_options or {})},
        request_router_config=config.RequestRouterConfig(
            request_router_class="kvtide.ray.router.SessionRouter",
            request_router_kwargs={"load_factor": load_factor},
            request_routing_stats_period_s=1.0,
        ),
        **scaling,
    )
    application = deployment.bind(
        {"model": os.fspath(model), "kv_budget": budget, "store": os.fspath(store), "threads": threads, **options}
    )
    return _behind_haproxy(application, name) if constants.RAY_SERVE_ENABLE_HA_PROXY else application


def _behind_haproxy(application: Any, name: str) -> Any:
    from kvtide.ray.entrance import Entrance

    entrance = serve.deployment(Entrance, name=f"{name}-entrance", max_ongoing_requests=1024)
    return application._with_ingress_request_router(entrance.bind(application))


def build(args: Mapping[str, Any]) -> Any:
    """For ``serve run kvtide.ray:build model=... kv_budget=2G store=...`` and for configurations in YAML."""
    given = dict(args)
    for needed in ("model", "kv_budget", "store"):
        if needed not in given:
            raise InvalidArgumentError(f"{needed} is missing; kvtide.ray:build needs model, kv_budget and store")
    for number in ("threads", "replicas", "max_ongoing_requests", "context", "max_tokens", "parallel", "queue"):
        if isinstance(given.get(number), str):
            given[number] = int(given[number])
    for pair in ("replicas", "delays"):
        if isinstance(given.get(pair), list):
            given[pair] = tuple(given[pair])
    return build_app(given.pop("model"), given.pop("kv_budget"), **given)


def _at_least_one(replicas: int) -> int:
    if replicas < 1:
        raise InvalidArgumentError("replicas must be 1 or more")
    return replicas


__all__ = ["build", "build_app"]
