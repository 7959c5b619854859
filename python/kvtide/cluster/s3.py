"""Objects of an S3 bucket, by s3fs. Conditional writes (If-None-Match, If-Match) decide races."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Awaitable, Callable

from kvtide.cluster.objects import LostRaceError, StoreError
from kvtide.errors import InvalidArgumentError, UnsupportedError

_LOST = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
_GONE = ("NoSuchKey", "404", "NotFound")


class S3Objects:
    """``s3://BUCKET/PATH``. ``$AWS_ENDPOINT_URL`` names a server other than Amazon's; keys come as boto takes them."""

    def __init__(self, url: str, *, timeout: float = 10.0) -> None:
        try:
            import fsspec.asyn  # type: ignore[import-not-found,import-untyped,unused-ignore]
            import s3fs  # type: ignore[import-not-found,import-untyped,unused-ignore]
        except ImportError as error:
            raise UnsupportedError(f"store: {url!r} needs the package s3fs: pip install 'kvtide[s3]'") from error
        self._bucket, _, path = url.removeprefix("s3://").partition("/")
        if not self._bucket:
            raise InvalidArgumentError(f"store: {url!r} names no bucket: s3://BUCKET/PATH")
        self._front = path.strip("/") + "/" if path.strip("/") else ""
        self._timeout = timeout
        # Retries are the caller's: a write that is tried twice can lose against itself.
        config = {"connect_timeout": timeout, "read_timeout": timeout, "retries": {"total_max_attempts": 1}}
        endpoint = os.environ.get("AWS_ENDPOINT_URL")
        self._files: Any = s3fs.S3FileSystem(endpoint_url=endpoint, config_kwargs=config, skip_instance_cache=True)
        self._files.retries = 1
        self._sync: Callable[..., Any] = fsspec.asyn.sync

    def get(self, name: str) -> tuple[bytes, str]:
        async def work() -> tuple[bytes, str]:
            answer = await self._client().get_object(Bucket=self._bucket, Key=self._front + name)
            async with answer["Body"] as body:
                return await body.read(), str(answer["ETag"])

        data, tag = self._do("read", name, work)
        return data, tag

    def put(self, name: str, data: bytes) -> None:
        self._write(name, data, {})

    def replace(self, name: str, data: bytes, tag: str | None) -> str:
        return self._write(name, data, {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag})

    def delete(self, name: str) -> None:
        async def work() -> None:
            await self._client().delete_object(Bucket=self._bucket, Key=self._front + name)

        self._do("delete", name, work)

    def names(self, folder: str) -> list[str]:
        async def work() -> list[str]:
            pages = self._client().get_paginator("list_objects_v2")
            out: list[str] = []
            async for page in pages.paginate(Bucket=self._bucket, Prefix=f"{self._front}{folder}/"):
                out += [item["Key"][len(self._front) :] for item in page.get("Contents", ())]
            return out

        return sorted(self._do("list", folder, work))

    def _write(self, name: str, data: bytes, conditions: dict[str, str]) -> str:
        async def work() -> str:
            answer = await self._client().put_object(
                Bucket=self._bucket, Key=self._front + name, Body=data, **conditions
            )
            return str(answer["ETag"])

        return str(self._do("write", name, work))

    def _client(self) -> Any:
        return self._files.s3

    def _do(self, what: str, name: str, work: Callable[[], Awaitable[Any]]) -> Any:
        async def whole() -> Any:
            await self._files.set_session()
            return await asyncio.wait_for(work(), self._timeout)

        try:
            return self._sync(self._files.loop, whole)
        except (asyncio.TimeoutError, TimeoutError) as error:
            raise StoreError(f"store: cannot {what} {name}: no answer within {self._timeout:g} s") from error
        except Exception as error:
            answer = getattr(error, "response", None) or {}
            code = str(answer.get("Error", {}).get("Code", ""))
            if code in _LOST:
                raise LostRaceError(name) from error
            if code in _GONE and what == "read":
                raise KeyError(name) from None
            raise StoreError(f"store: cannot {what} {name}: {error}") from error
