"""Exceptions of kvtide. All derive from ``Error``; each also is what a Python programmer would expect.

The message names the object, what is wrong and what would be right. ``code`` is a stable short name.
"""

from __future__ import annotations

from typing import ClassVar


class Error(Exception):
    """Anything that kvtide refuses or fails to do."""

    code: ClassVar[str] = "error"


class InvalidArgumentError(Error, ValueError):
    """The request makes no sense: a value out of range, a token that the vocabulary does not have."""

    code = "invalid_argument"


class NotFoundError(Error, FileNotFoundError):
    """A file that does not exist or cannot be read."""

    code = "not_found"


class IoError(Error, OSError):
    """The operating system refused a read or a write."""

    code = "io"


class BadFormatError(Error, ValueError):
    """A file that breaks the rules of its format."""

    code = "bad_format"


class UnsupportedError(Error):
    """A valid file or request that asks for what kvtide does not do."""

    code = "unsupported"


class BadTextError(Error, ValueError):
    """Text that is not valid Unicode."""

    code = "bad_text"


class ContextFullError(Error):
    """No room is left in the KV memory."""

    code = "context_full"


class OutOfMemoryError(Error, MemoryError):
    """The operating system has no memory left."""

    code = "out_of_memory"


class NumericError(Error, ArithmeticError):
    """NaN or infinity where a number belongs."""

    code = "numeric"


class CancelledError(Error):
    """The caller asked to stop: ``Session.cancel()``, a progress callback that returned False, the interpreter's exit."""

    code = "cancelled"


class ClosedError(Error, ValueError):
    """An object was used after ``close()``."""

    code = "closed"


class BusyError(Error, RuntimeError):
    """A session was used by two callers at a time, or in another process than the one that made it."""

    code = "busy"


class ViewedError(Error, BufferError):
    """Rows of a state would go while an array still shows them."""

    code = "viewed"


BY_CODE: dict[str, type[Error]] = {
    error.code: error
    for error in (
        InvalidArgumentError,
        NotFoundError,
        IoError,
        BadFormatError,
        UnsupportedError,
        BadTextError,
        ContextFullError,
        OutOfMemoryError,
        NumericError,
        CancelledError,
        ClosedError,
        BusyError,
        ViewedError,
    )
}
