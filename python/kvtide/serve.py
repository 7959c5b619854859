"""The server as an ASGI app: every route of ``kvtide serve``, within uvicorn, hypercorn, Starlette or Ray Serve.

    # uvicorn myapp:app
    import kvtide
    import kvtide.serve

    app = kvtide.serve.app(kvtide.Model.load("model.gguf"), kv_budget="2G")

Routes, fields and what they answer: docs/server.md.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import weakref
from typing import Any, Awaitable, Callable, Mapping, MutableMapping, Sequence

from kvtide import _native
from kvtide._arguments import byte_count, file_path, real, string, strings, whole
from kvtide._closing import Closing
from kvtide._loaded import LoadedModel
from kvtide.model import Model

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_MOST_BODY = 16 << 20


class App(Closing):
    """An ASGI 3 app for an asyncio event loop. ``kvtide.serve.app`` makes one.

    Its threads start with it and end with ``close()``, at the end of the app's lifespan, or with the process.
    """

    _kind = "app"

    def __init__(self, names: Sequence[str], models: Sequence[LoadedModel], options: Mapping[str, Any]) -> None:
        self._native = _native.Server(list(names), [model._native for model in models], **options)
        _at_exit(self)

    def close(self, *, drain_seconds: float = 0.0) -> None:
        """Ends all answers, those that take longer than ``drain_seconds`` by cancelling them. Safe to call twice."""
        self._native.close(real(drain_seconds, "drain_seconds"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._live(receive, send)
        if scope["type"] != "http":
            raise ValueError(f"kvtide.serve answers http, not {scope['type']}")
        body = await _body_of(receive)
        if body is None:
            return
        if len(body) > _MOST_BODY:
            return await _refuse(send)
        reply = _native.Reply()
        leaving = asyncio.ensure_future(_wait_for_leaving(receive, reply))
        sending: asyncio.Future[None] | None = None
        try:
            # Off the loop: a prompt is split into tokens here, and states are looked at between two steps.
            await asyncio.to_thread(
                self._native.handle, scope["method"].upper(), _target_of(scope), _headers_of(scope), body, reply
            )
            # Nothing more comes of an answer whose client has left.
            sending = asyncio.ensure_future(_send_all(reply, send))
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            reply.leave()
            leaving.cancel()
            if sending is not None and not sending.done():
                sending.cancel()
                await asyncio.wait({sending})

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await asyncio.to_thread(self.close, drain_seconds=6.0)
                return await send({"type": "lifespan.shutdown.complete"})


def app(
    model: LoadedModel | str | os.PathLike[str] | Mapping[str, LoadedModel | str | os.PathLike[str]],
    *,
    kv_budget: int | str = "2G",
    context: int | None = None,
    max_tokens: int = 2048,
    parallel: int = 8,
    queue: int = 64,
    threads: int | None = None,
    exact: bool = False,
    session_kv: str = "full",
    api_key: str | None = None,
    hosts: Sequence[str] | None = (),
    chat_template: str | None = None,
    slot_save_path: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_bytes: int | str = "4G",
    idle_spill: float | None = None,
    idle_unload: float | None = None,
) -> App:
    """An ASGI app that answers for one model, or for several by name: ``app({"small": model, "large": "large.gguf"})``.

    The options are those of ``kvtide serve``. ``hosts``: names beside localhost that a request's Host header may give; None:
    any, for servers behind a proxy that looks at them.

    Raises InvalidArgumentError, NotFoundError, BadFormatError, UnsupportedError, IoError (a ``cache_dir`` that another
    process has), OutOfMemoryError.
    """
    named = model if isinstance(model, Mapping) else {_name_of(model): model}
    if not named:
        raise ValueError("model: at least one is needed")
    models = [one if isinstance(one, LoadedModel) else Model.load(one) for one in named.values()]
    if isinstance(hosts, str):
        raise TypeError("hosts must be a list of names, not one")
    return App(
        [string(name, "the name of a model") for name in named],
        models,
        {
            "kv_budget": byte_count(kv_budget, "kv_budget"),
            "context": 0 if context is None else whole(context, "context", 1),
            "max_tokens": whole(max_tokens, "max_tokens", 1, 2**31),
            "parallel": whole(parallel, "parallel", 1, 256),
            "queue": whole(queue, "queue", 0, 65536),
            "threads": 0 if threads is None else whole(threads, "threads", 1, 256),
            "exact": bool(exact),
            "session_kv": string(session_kv, "session_kv"),
            "api_key": "" if api_key is None else string(api_key, "api_key"),
            "hosts": strings(hosts or (), "hosts"),
            "any_host": hosts is None,
            "chat_template": "" if chat_template is None else string(chat_template, "chat_template"),
            "states_folder": b"" if slot_save_path is None else file_path(slot_save_path),
            "cache_folder": b"" if cache_dir is None else file_path(cache_dir),
            "cache_bytes": byte_count(cache_bytes, "cache_bytes"),
            "idle_spill": 0.0 if idle_spill is None else real(idle_spill, "idle_spill"),
            "idle_unload": 0.0 if idle_unload is None else real(idle_unload, "idle_unload"),
        },
    )


def _name_of(model: Any) -> str:
    if isinstance(model, LoadedModel):
        return model.name or "model"
    return str(os.path.basename(os.fspath(model))).removesuffix(".gguf")


def _at_exit(app: App) -> None:
    native = weakref.ref(app)

    def close() -> None:
        alive = native()
        if alive is not None:
            alive.close()

    atexit.register(close)
    weakref.finalize(app, atexit.unregister, close).atexit = False


def _target_of(scope: Scope) -> bytes:
    # What the app was mounted under is not its own.
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if root and path.startswith(root):
        path = path[len(root) :] or "/"
    query: bytes = scope.get("query_string", b"")
    return path.encode("utf-8") + (b"?" + query if query else b"")


def _headers_of(scope: Scope) -> list[tuple[bytes, bytes]]:
    return [(bytes(name).lower(), bytes(value)) for name, value in scope["headers"]]


async def _body_of(receive: Receive) -> bytes | None:
    """None: the client has left. One byte too much stands for anything longer."""
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        if len(body) <= _MOST_BODY:
            body += message.get("body", b"")
        if not message.get("more_body", False):
            return body


async def _wait_for_leaving(receive: Receive, reply: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    reply.leave()


async def _refuse(send: Send) -> None:
    body = b'{"error":{"message":"a request\'s body may have %d bytes","type":"invalid_request_error"}}' % _MOST_BODY
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _send_all(reply: Any, send: Send) -> None:
    loop = asyncio.get_running_loop()
    news = asyncio.Event()
    loop.add_reader(reply.descriptor(), news.set)
    try:
        while True:
            await news.wait()
            news.clear()
            for kind, status, headers, body in reply.take():
                if kind == "head":
                    lower = [(name.lower(), value) for name, value in headers]
                    await send({"type": "http.response.start", "status": status, "headers": lower})
                elif kind == "body":
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                    reply.sent(len(body))
                else:
                    return await send({"type": "http.response.body", "body": b"", "more_body": False})
    finally:
        loop.remove_reader(reply.descriptor())
