"""Sessions that move between replicas: the server of kvtide with a store that all replicas share.

    # uvicorn myapp:app
    import kvtide.cluster

    app = kvtide.cluster.app("model.gguf", kv_budget="2G", store="/mnt/shared/sessions")

For Ray Serve: ``kvtide.ray``. What a session is and what is promised: docs/cluster.md.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import uuid
from pathlib import Path
from typing import Any, Callable

import kvtide
import kvtide.serve
from kvtide._arguments import byte_count, real
from kvtide._loaded import LoadedModel
from kvtide.cluster.alike import configuration_of
from kvtide.cluster.app import Figures, SessionApp
from kvtide.cluster.lease import Lease, SessionBusyError
from kvtide.cluster.objects import StoreError, open_objects
from kvtide.cluster.store import SessionStore


def open_store(
    url: str | os.PathLike[str],
    *,
    lease_seconds: float = 6.0,
    timeout: float = 10.0,
    is_gone: Callable[[str], bool] | None = None,
) -> SessionStore:
    """The sessions of a folder, of ``s3://BUCKET/PATH`` or ``az://CONTAINER/PATH`` or, for tests, of ``memory://NAME``.

    Raises InvalidArgumentError, UnsupportedError, StoreError.
    """
    seconds = real(lease_seconds, "lease_seconds")
    return SessionStore(open_objects(url, timeout=timeout), lease_seconds=seconds, is_gone=is_gone)


def app(
    model: LoadedModel | str | os.PathLike[str],
    *,
    kv_budget: int | str,
    store: str | os.PathLike[str] | SessionStore,
    model_name: str | None = None,
    work_folder: str | os.PathLike[str] | None = None,
    local_bytes: int | str = "4G",
    lease_seconds: float = 6.0,
    store_timeout: float = 10.0,
    owner: str | None = None,
    is_gone: Callable[[str], bool] | None = None,
    **options: Any,
) -> SessionApp:
    """An ASGI app of which any number of replicas may run, with one store.

    ``model_name``: by which requests ask for the model, instead of its own name. ``work_folder``: on a disk of the replica's
    own, for the snapshots of its sessions, at most ``local_bytes``; a temporary one when it is not given. ``is_gone`` says
    whether a replica, by its ``owner``, is dead: its sessions then go on at once. ``options`` are those of ``kvtide.serve.app``.

    Raises what that raises; InvalidArgumentError when replicas of the store compute otherwise; UnsupportedError, StoreError.
    """
    for taken in ("slot_save_path", "cache_dir", "cache_bytes"):
        if taken in options:
            raise TypeError(f"{taken}: the app keeps its files in work_folder")
    sessions = (
        store
        if isinstance(store, SessionStore)
        else open_store(store, lease_seconds=lease_seconds, timeout=store_timeout, is_gone=is_gone)
    )
    loaded = model if isinstance(model, LoadedModel) else kvtide.Model.load(model)
    folder = Path(tempfile.mkdtemp(prefix="kvtide-") if work_folder is None else work_folder)
    if work_folder is None:
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    sessions.agree(configuration_of(loaded, folder, options))
    (folder / "states").mkdir(exist_ok=True)
    inner = kvtide.serve.app(
        loaded if model_name is None else {model_name: loaded},
        kv_budget=kv_budget,
        slot_save_path=folder / "states",
        cache_dir=folder / "cache",
        cache_bytes=1,
        **options,
    )
    return SessionApp(
        inner,
        sessions,
        folder,
        owner=owner or uuid.uuid4().hex,
        api_key=options.get("api_key"),
        local_bytes=byte_count(local_bytes, "local_bytes"),
        store_timeout=2 * store_timeout + lease_seconds,
    )


__all__ = ["Figures", "Lease", "SessionApp", "SessionBusyError", "SessionStore", "StoreError", "app", "open_store"]
