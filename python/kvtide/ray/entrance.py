"""What HAProxy asks where a request goes, when Ray Serve runs with HAProxy in front (``RAY_SERVE_ENABLE_HA_PROXY=1``).

HAProxy sends the head of the request's body here, and then the request itself to the replica that this names. So answers
take no way through Python but that of their replica, and requests without a session can go by their text.
"""

from __future__ import annotations

import json
from typing import Any

from kvtide.cluster.inside import Problem, body_of
from kvtide.ray import serve
from kvtide.ray.prefixes import blocks_of

_MOST_BODY = 16 << 20
_ASKED = "/internal/route"  # Ray's name for what HAProxy asks


@serve.ingress()  # type: ignore[untyped-decorator,misc,unused-ignore]
class Entrance:
    """A deployment: ``kvtide.ray.build_app`` binds it to that of the replicas, whose request router chooses."""

    def __init__(self, replicas: Any) -> None:
        self._replicas = replicas
        self._replicas._init()

    def __serve_build_asgi_app__(self) -> Any:
        async def entrance(scope: Any, receive: Any, send: Any) -> None:  # uvicorn takes a method for an app of ASGI 2
            await self._answer(scope, receive, send)

        return entrance

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        # When replicas die and start, HAProxy may take a port for that of the replica that had it before.
        if not scope["path"].endswith(_ASKED):
            return await Problem(scope["path"], 503, "no replica is here; ask again", 1).send(send)
        body = await body_of(receive, _MOST_BODY)
        if body is None:
            return
        try:
            status, told = 200, await self._chosen(_session_of(scope), body)
        except Exception as error:  # HAProxy asks another entrance, or tells the client to come again
            status, told = 503, {"detail": str(error)}
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(told).encode()})

    async def _chosen(self, session: str | None, body: bytes) -> dict[str, str]:
        handle = self._replicas.options(session_id=session) if session else self._replicas
        async with handle.choose_replica(blocks_of(body) if body else None, _reserve=False) as chosen:
            return {"replica_id": chosen._replica.replica_id.to_full_id_str()}


def _session_of(scope: Any) -> str | None:
    for name, value in scope["headers"]:
        if name.lower().replace(b"_", b"-") == b"x-session-id" and value:
            return str(value.decode("latin-1"))
    return None
