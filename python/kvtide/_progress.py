"""Progress of long calls: a function of the caller, or a bar by tqdm for ``progress=True``."""

from __future__ import annotations

import importlib
from contextlib import contextmanager
from typing import Any, Callable, Iterable, Iterator, Sequence, TypeVar

T = TypeVar("T")


@contextmanager
def reading(progress: Any, what: str = "reading", unit: str = " tokens") -> Iterator[Callable[[int, int], Any] | None]:
    """The function ``progress(read, of)`` that a call wants, or None."""
    if not isinstance(progress, bool):
        yield progress
    elif not progress:
        yield None
    else:
        with bar()(desc=what, unit=unit) as shown:

            def show(read: int, of: int) -> None:
                shown.total = of
                shown.update(read - shown.n)

            yield show


def over(items: Sequence[T], progress: Any, what: str) -> Iterable[T]:
    """The items, with a bar when one is asked for."""
    shown: Iterable[T] = bar()(items, desc=what) if progress is True else items
    return shown


def bar() -> Any:
    """tqdm's bar. ModuleNotFoundError, with what to do, when it is not installed."""
    try:
        return importlib.import_module("tqdm.auto").tqdm
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "progress=True shows a bar by tqdm, which is not installed: pip install tqdm, "
            "or give a function progress(read, of)",
            name=error.name,
        ) from None
