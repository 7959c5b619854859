"""Objects of a bucket of S3 or of a container of Azure, by obstore. Conditional writes (If-None-Match, If-Match) decide races."""

from __future__ import annotations

import contextlib
import importlib
import os
from datetime import timedelta
from typing import Any, Iterator

from kvtide.cluster.objects import LostRaceError, StoreError
from kvtide.errors import InvalidArgumentError, UnsupportedError

_ENDPOINTS = {"s3": "AWS_ENDPOINT_URL", "az": "AZURE_STORAGE_ENDPOINT"}
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")


class BucketObjects:
    """``s3://BUCKET/PATH`` or ``az://CONTAINER/PATH``.

    ``$AWS_ENDPOINT_URL`` and ``$AZURE_STORAGE_ENDPOINT`` name a server other than Amazon's and Microsoft's. Keys come from the
    environment, of S3 also as boto3 finds them where that is installed, or from the machine's role.
    """

    def __init__(self, url: str, *, timeout: float = 10.0) -> None:
        kind, _, rest = url.partition("://")
        bucket, _, path = rest.partition("/")
        try:
            # As values without types: the package is checked where obstore is not, too.
            self._api: Any = importlib.import_module("obstore")
            self._errors: Any = importlib.import_module("obstore.exceptions")
            stores: Any = importlib.import_module("obstore.store")
        except ImportError as error:
            raise UnsupportedError(f"store: {url!r} needs the package obstore: pip install 'kvtide[{kind}]'") from error
        if not bucket:
            raise InvalidArgumentError(f"store: {url!r} names no bucket: {kind}://BUCKET/PATH")
        endpoint = os.environ.get(_ENDPOINTS[kind])
        options: dict[str, Any] = {"timeout": timedelta(seconds=timeout), "connect_timeout": timedelta(seconds=timeout)}
        if endpoint is not None:
            options["allow_http"] = endpoint.startswith("http://")
        self._store = (stores.S3Store if kind == "s3" else stores.AzureStore)(
            bucket,
            prefix=path.strip("/") or None,
            client_options=options,
            # Retries are the caller's: a write that is tried twice can lose against itself.
            retry_config={"max_retries": 0},
            credential_provider=_keys_of_boto3() if kind == "s3" else None,
        )

    def get(self, name: str) -> tuple[bytes, str]:
        with self._told("read", name, missing=KeyError):
            answer = self._api.get(self._store, name)
            return bytes(answer.bytes()), str(answer.meta["e_tag"])

    def put(self, name: str, data: bytes) -> None:
        self._write(name, data, "overwrite")

    def replace(self, name: str, data: bytes, tag: str | None) -> str:
        mode = "create" if tag is None else {"e_tag": tag}
        return self._write(name, data, mode, missing=LostRaceError)  # somebody has deleted it

    def delete(self, name: str) -> None:
        with self._told("delete", name), contextlib.suppress(FileNotFoundError):
            self._api.delete(self._store, name)

    def names(self, folder: str) -> list[str]:
        with self._told("list", folder):
            return sorted(one["path"] for some in self._api.list(self._store, folder) for one in some)

    def _write(self, name: str, data: bytes, mode: Any, missing: type[Exception] | None = None) -> str:
        with self._told("write", name, missing):
            return str(self._api.put(self._store, name, data, mode=mode, use_multipart=False)["e_tag"])

    @contextlib.contextmanager
    def _told(self, what: str, name: str, missing: type[Exception] | None = None) -> Iterator[None]:
        """``missing``: what it means that the object is not there; None: that something is wrong."""
        try:
            yield
        except (self._errors.AlreadyExistsError, self._errors.PreconditionError) as error:
            raise LostRaceError(name) from error
        except FileNotFoundError as error:
            if missing is not None and not any(code in str(error) for code in _NO_BUCKET):
                raise missing(name) from None
            raise StoreError(f"store: cannot {what} {name}: {_first_line(error)}") from error
        except (self._errors.BaseError, OSError) as error:
            raise StoreError(f"store: cannot {what} {name}: {_first_line(error)}") from error


def _keys_of_boto3() -> Any:
    """None: obstore looks into the environment and asks the machine's role."""
    if "AWS_ACCESS_KEY_ID" in os.environ:
        return None
    try:
        provider: Any = importlib.import_module("obstore.auth.boto3").Boto3CredentialProvider
        return provider()
    except (ImportError, ValueError):  # boto3 is not here, or finds none
        return None


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
