"""What can be closed, by hand or by leaving a ``with`` block: models, sessions and states."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from kvtide.errors import ClosedError

if TYPE_CHECKING:
    from typing_extensions import Self


class Closing:
    """Holds memory of the native module until it is closed."""

    _native: Any
    _kind: ClassVar[str]  # for messages

    @property
    def closed(self) -> bool:
        return bool(self._native.closed)

    def close(self) -> None:
        """Gives back what it holds, as soon as nothing else uses it. Closing twice is fine."""
        self._native.close()

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._native.closed:
            raise ClosedError(f"this {self._kind} was closed")
