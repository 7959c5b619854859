"""Requests of an ASGI app to itself, what stands in those of others, and answers whose end is held back."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, Awaitable, Callable, Mapping, MutableMapping

from kvtide.serve import Receive, Scope, Send

Message = MutableMapping[str, Any]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

# What tells a client that its answer is whole, on each of the routes. Texts of an answer cannot hold it: there quotes are
# escaped, and events do not begin inside of a line.
_LAST = re.compile(
    rb'"finish_reason":"|data: \[DONE\]|event: message_delta|event: message_stop'
    rb"|event: response\.(?:completed|incomplete)|\"stop\":true"
)


async def ask(
    app: Asgi, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    """Status and body of what the app answers to itself."""
    status, parts = 0, []
    waiting = [{"type": "http.request", "body": b"" if body is None else json.dumps(body).encode(), "more_body": False}]

    async def receive() -> Message:
        if waiting:
            return waiting.pop()
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            parts.append(message.get("body", b""))

    target, _, query = path.partition("?")
    named = [(name.encode(), value.encode("latin-1")) for name, value in {"host": "localhost", **(headers or {})}.items()]
    scope = {"type": "http", "method": method, "path": target, "query_string": query.encode(), "headers": named}
    await app(scope, receive, send)
    return status, b"".join(parts)


def with_body(body: bytes, receive: Receive) -> Receive:
    """``receive`` of a request whose body was read already."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again


async def body_of(receive: Receive, most: int) -> bytes | None:
    """None: the client has left. What is longer than ``most`` is cut behind it."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        if size <= most:
            parts.append(message.get("body", b""))
            size += len(parts[-1])
        if not message.get("more_body", False):
            return b"".join(parts)


def naming(send: Send, session: str) -> Send:
    """Tells the client by which name to come back to the same memory."""

    async def named(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], (b"x-session-id", session.encode("latin-1"))]}
        await send(message)

    return named


def path_of(scope: Scope) -> str:
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(root) :] or "/" if root and path.startswith(root) else path


def header(scope: Scope, wanted: bytes) -> str | None:
    for name, value in scope["headers"]:
        if name.lower() == wanted and value:
            return str(value.decode("latin-1"))
    return None


def object_in(body: bytes) -> dict[str, Any]:
    """What is no object is refused by the server, in its own words."""
    try:
        parsed = json.loads(body)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


class Bundled:
    """``send`` whose pieces of a body that come within ``seconds`` of each other travel as one.

    A message costs the processes on its way about as much as a token costs the model. The first goes at once.
    """

    def __init__(self, send: Send, seconds: float) -> None:
        self._send = send
        self._seconds = seconds
        self._parts: list[bytes] = []
        self._sending = asyncio.Lock()  # messages must not overtake each other
        self._beating: asyncio.Task[None] | None = None
        self._failed: Exception | None = None

    async def __call__(self, message: Message) -> None:
        if self._failed is not None:
            raise self._failed
        if message["type"] == "http.response.body" and message.get("more_body", False):
            self._parts.append(message.get("body", b""))
            if self._beating is None:
                self._beating = asyncio.ensure_future(self._beat())
            return
        await self._flush()
        await self._send(message)

    async def _beat(self) -> None:
        try:
            while self._parts:
                await self._flush()
                await asyncio.sleep(self._seconds)
        except Exception as error:  # the client has left: the answer hears of it with its next piece
            self._failed = error
        finally:
            self._beating = None

    async def _flush(self) -> None:
        async with self._sending:
            parts, self._parts = self._parts, []
            if parts:
                await self._send({"type": "http.response.body", "body": b"".join(parts), "more_body": True})


class Held:
    """``send`` that passes an answer on up to what tells the client that it is whole."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._held: list[Message] = []
        self._holding = True
        self._body: list[bytes] = []
        self._said = b""
        self.status = 0
        self.streams = False
        self.whole = False  # the answer has come to its end, and is no refusal
        self.began = False  # something of it has reached the client

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.streams = any(value.startswith(b"text/event-stream") for name, value in message["headers"] if name == b"content-type")
            self._holding = not self.streams
        else:
            body = message.get("body", b"")
            if len(self._said) < 4096:
                self._said += body
            if self.streams and not self._holding and _LAST.search(body):
                self._holding = True
            if not message.get("more_body", False):
                self.whole = self.status == 200 and self._holding
                self._holding = True
        if self._holding:
            self._held.append(message)
        else:
            self.began = True
            await self._send(message)

    def response_id(self) -> str | None:
        """Of an answer of /v1/responses."""
        found = re.search(rb'"id":"(resp_[0-9a-f]+)"', self._said)
        return None if found is None else found[1].decode()

    async def finish(self) -> None:
        for message in self._held:
            await self._send(message)

    async def refuse(self, problem: Problem) -> None:
        """Instead of the end."""
        if not self.began:
            return await problem.send(self._send)
        await self._send({"type": "http.response.body", "body": problem.event(), "more_body": True})
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


class Problem:
    """A refusal in the dialect of the route."""

    def __init__(self, path: str, status: int, message: str, retry_after: int | None = None) -> None:
        self.status = status
        self._headers = [] if retry_after is None else [(b"retry-after", str(retry_after).encode())]
        kind = "invalid_request_error" if status < 500 else "server_error"
        self._anthropic = path.startswith("/v1/messages")
        self._body: dict[str, Any] = {"error": {"message": message, "type": kind, "code": "session", "param": None}}
        if self._anthropic:
            self._body = {"type": "error", "error": {"type": "api_error", "message": message}}

    def event(self) -> bytes:
        front = b"event: error\n" if self._anthropic else b""
        return front + b"data: " + json.dumps(self._body).encode() + b"\n\n"

    async def send(self, send: Send) -> None:
        body = json.dumps(self._body).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *self._headers]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})
