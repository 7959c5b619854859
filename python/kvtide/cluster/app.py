"""The ASGI app of ``kvtide serve`` whose sessions outlive its process: every turn is in the store before its client hears
the end of it, and any other replica goes on from there with the same bits.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
import uuid
import weakref
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, TypeVar

from kvtide.cluster.inside import Held, Problem, ask, body_of, header, naming, object_in, path_of, with_body
from kvtide.cluster.lease import Lease, SessionBusyError
from kvtide.cluster.local import LocalSegments
from kvtide.cluster.objects import StoreError
from kvtide.cluster.store import SessionStore
from kvtide.errors import Error, InvalidArgumentError
from kvtide.serve import App, Receive, Scope, Send

T = TypeVar("T")

_TURNS = ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/completion")
_MOST_BODY = 16 << 20
_MOST_BROUGHT = 1024  # stored answers that others gave
_THREADS = 16


@dataclass
class Figures:
    """Since the start."""

    ongoing: int = 0  # requests for answers, now
    seconds: float = 2.0  # that one takes, lately; before the first, a guess
    turns: int = 0  # acknowledged, of sessions
    refused_busy: int = 0  # another replica had the session
    refused_store: int = 0  # the store was full, slow or away
    restored: int = 0  # turns of which something came from the store
    restored_bytes: int = 0
    saved_bytes: int = 0  # to the store
    snapshot_bytes: int = 0  # of the snapshots saved: what whole ones would have taken
    save_seconds: float = 0.0
    warm: dict[str, tuple[float, int]] = field(default_factory=dict)  # session: last turn, bytes


class SessionApp:
    """An ASGI 3 app around one of ``kvtide.serve.app``. ``kvtide.cluster.app`` makes it."""

    def __init__(
        self,
        inner: App,
        store: SessionStore,
        folder: Path,
        *,
        owner: str,
        api_key: str | None = None,
        local_bytes: int = 4 << 30,
        store_timeout: float = 20.0,
    ) -> None:
        self.owner = owner
        self.figures = Figures()
        self._inner = inner
        self._store = store
        self._responses = folder / "cache" / "responses"
        self._brought: deque[Path] = deque()  # the oldest go; the server counts only answers of its own
        self._local = LocalSegments(folder / "states", local_bytes)
        self._timeout = store_timeout
        self._headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
        self._guarded = api_key is not None
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        # Its own threads: a store that hangs must not take those that the server's requests need.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="kvtide-store")

    @property
    def closed(self) -> bool:
        return self._inner.closed

    def close(self, *, drain_seconds: float = 0.0) -> None:
        """Ends all answers. What was acknowledged is in the store already."""
        self._inner.close(drain_seconds=drain_seconds)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._inner(scope, receive, send)
        path = path_of(scope)
        response = path.removeprefix("/v1/responses/") if path.startswith("/v1/responses/") else None
        if not (scope["method"] == "POST" and path in _TURNS) and response is None:
            return await self._inner(scope, receive, send)
        body = await body_of(receive, _MOST_BODY)
        if body is None:
            return
        again = with_body(body, receive)
        if self._guarded and not await self._may_ask(scope):
            return await self._inner(scope, again, send)
        try:
            if response is not None:
                return await self._stored(scope, again, send, response)
            with self._counted():
                await self._turn(scope, path, body, again, send)
        except _Refused as refused:
            await refused.problem.send(send)

    @contextlib.contextmanager
    def _counted(self) -> Any:
        self.figures.ongoing += 1
        begun = time.monotonic()
        try:
            yield
        finally:
            self.figures.ongoing -= 1
            self.figures.seconds += (time.monotonic() - begun - self.figures.seconds) / 4

    async def _may_ask(self, scope: Scope) -> bool:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        return (await ask(self._inner, "GET", "/v1/models", headers=headers))[0] == 200

    async def _stored(self, scope: Scope, receive: Receive, send: Send, response: str) -> None:
        """GET and DELETE /v1/responses/ID."""
        await self._bring_response(response, "/v1/responses")
        if scope["method"] == "DELETE":
            with self._told("/v1/responses"):
                await self._call(self._store.drop_response, response)
        await self._inner(scope, receive, send)

    async def _turn(self, scope: Scope, path: str, body: bytes, receive: Receive, send: Send) -> None:
        asked = object_in(body)
        name = header(scope, b"x-session-id")
        memory = asked.get("kv")
        if isinstance(memory, dict) and "state" in memory:
            return await self._inner(scope, receive, send)  # of this replica alone, by its number
        stores = path == "/v1/responses" and asked.get("store") is not False
        previous = asked.get("previous_response_id") if path == "/v1/responses" else None
        if isinstance(previous, str):
            of = await self._bring_response(previous, path)
            name = name or of
        if name is None and stores:
            name = f"conversation-{uuid.uuid4().hex}"
        if name is None:
            return await self._inner(scope, receive, send)
        scope = {**scope, "headers": [*(h for h in scope["headers"] if h[0].lower() != b"x-session-id"), (b"x-session-id", name.encode("latin-1"))]}
        lock = self._locks.setdefault(name, asyncio.Lock())
        async with lock:
            with self._told(path):
                lease = await self._call(self._store.acquire, name, self.owner, wait=self._store.lease_seconds + 1)
            renewing = asyncio.ensure_future(self._renew(lease))
            try:
                await self._answer(lease, scope, path, asked, stores, receive, send)
            finally:
                renewing.cancel()
                if lease.held:
                    with contextlib.suppress(Error, asyncio.TimeoutError):
                        await self._call(lease.release)

    async def _answer(
        self, lease: Lease, scope: Scope, path: str, asked: dict[str, Any], stores: bool, receive: Receive, send: Send
    ) -> None:
        slot = asked.get("id_slot")
        where = f"/slots/{slot}" if isinstance(slot, int) and slot >= 0 else "/slots/session"
        model = {"model": asked["model"]} if isinstance(asked.get("model"), str) else {}
        with self._told(path):
            await self._bring(lease, where, model)
        held = Held(naming(send, lease.name))
        await self._inner(scope, receive, held)
        if not held.whole:
            return await held.finish()
        try:
            with self._told(path):
                await self._save(lease, where, model, held.response_id() if stores else None)
        except _Refused as refused:
            return await held.refuse(refused.problem)
        await held.finish()

    async def _bring(self, lease: Lease, where: str, model: dict[str, str]) -> None:
        """Sees to it that the server's memory holds the session, as its last turn left it."""
        chain = lease.chain
        if not chain:
            return
        files = self._local.files(lease.name, chain)
        if len(files) < len(chain):
            segments = await self._call(lease.segments, len(files))
            files += self._local.write(lease.name, chain, segments)
            self.figures.restored += 1
            self.figures.restored_bytes += sum(map(len, segments))
        body = {**model, "filename": files[-1], "behind": files[:-1], "unless_held": max(lease.tokens, 1)}
        # Without room for it the text is read again, and the bits are the same.
        await self._slot(where, "restore", lease.name, body)

    async def _save(self, lease: Lease, where: str, model: dict[str, str], response: str | None) -> None:
        begun = time.monotonic()
        if response is not None:
            await self._call(self._save_response, response, lease.name)
        new = self._local.new_file(lease.name)
        behind = self._local.files(lease.name, lease.chain)
        if len(behind) < len(lease.chain) or not lease.may_grow():
            behind = []
        body = {**model, "filename": new, "behind": behind, "source": lease.snapshot_id, "durable": False}
        try:
            status, answer = await self._slot(where, "save", lease.name, body)
            # Without room for it the server has dropped the memory: the next turn goes on from the snapshot before.
            tokens = int(json.loads(answer)["n_saved"]) if status == 200 else None
            saved, size = await self._call(self._commit, lease, new, tokens)
        finally:
            self._local.drop(lease.name, new)
        self.figures.turns += 1
        self.figures.saved_bytes += saved
        self.figures.snapshot_bytes += size
        self.figures.save_seconds += time.monotonic() - begun
        self.figures.warm[lease.name] = (time.monotonic(), size)

    def _commit(self, lease: Lease, new: str, tokens: int | None) -> tuple[int, int]:
        """Bytes that went to the store, and those of the snapshot of the segment in ``new``. Without ``tokens`` there is none."""
        if tokens is None:
            return lease.commit_segment(None, 0), 0
        segment = self._local.read(new)
        saved = lease.commit_segment(segment, tokens)
        self._local.keep(lease.name, lease.chain, new, len(segment))
        return saved, int(lease.manifest["segments"][-1]["snapshot"])

    def _save_response(self, response: str, session: str) -> None:
        try:
            data = (self._responses / f"{response}.json").read_bytes()
        except OSError as error:
            raise StoreError(f"the answer {response} could not be kept: {error.strerror}") from error
        self._store.put_response(response, session, data)

    async def _bring_response(self, response: str, path: str) -> str | None:
        """The session of a stored answer, which the server finds from here on."""
        with self._told(path):
            try:
                session, data = await self._call(self._store.response, response)
            except KeyError:
                return None  # the server says so
        file = self._responses / f"{response}.json"
        if not file.exists():
            temporary = file.with_name(f"{response}.{uuid.uuid4().hex}")
            temporary.write_bytes(data)
            os.replace(temporary, file)
            self._brought.append(file)
            if len(self._brought) > _MOST_BROUGHT:
                self._brought.popleft().unlink(missing_ok=True)
        return session

    async def _slot(self, where: str, action: str, session: str, body: dict[str, Any]) -> tuple[int, bytes]:
        headers = {**self._headers, "x-session-id": session}
        return await ask(self._inner, "POST", f"{where}?action={action}", body, headers)

    async def _renew(self, lease: Lease) -> None:
        while lease.held:
            await asyncio.sleep(self._store.lease_seconds / 3)
            with contextlib.suppress(StoreError, SessionBusyError, asyncio.TimeoutError):
                await self._call(lease.renew)

    async def _call(self, function: Callable[..., T], *args: Any, **named: Any) -> T:
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._threads, lambda: function(*args, **named))
        return await asyncio.wait_for(work, self._timeout)

    @contextlib.contextmanager
    def _told(self, path: str) -> Any:
        try:
            yield
        except SessionBusyError as error:
            self.figures.refused_busy += 1
            raise _Refused(Problem(path, 503, str(error), 1)) from error
        except InvalidArgumentError as error:
            raise _Refused(Problem(path, 400, str(error))) from error
        except (asyncio.TimeoutError, TimeoutError) as error:
            self.figures.refused_store += 1
            why = f"store: no answer within {self._timeout:g} s; nothing is lost: ask again"
            raise _Refused(Problem(path, 503, why, 2)) from error
        except (Error, OSError) as error:
            self.figures.refused_store += 1
            raise _Refused(Problem(path, 503, f"{error}; nothing is lost: ask again", 2)) from error


class _Refused(Exception):
    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.problem = problem
