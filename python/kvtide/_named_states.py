"""States that live inside an object: anything with ``read_state(name=)`` and ``write_state(name=, value=)``.

Core ML's MLState is one; both methods are only ever called with keywords. Everything is read and checked before
anything is written, so a refusal leaves the target as it was.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable

from kvtide._arrays import library_of
from kvtide._checks import four_axes, integer, same_but_for_length
from kvtide._resize import compact_kv_state, transition_kv_state

_ONE_NAME: Any = object()  # no `names` given: there is one state, called state_name


def transition_coreml_state(
    source_mlstate: Any,
    target_mlstate: Any,
    state_name: str | None = None,
    current_position: int | None = None,
    pad_value: float = 0.0,
    *,
    names: Iterable[str] | None = _ONE_NAME,
) -> None:
    """``transition_kv_state`` from one object to another, which is read to learn its length and dtype.

    Moves ``state_name``, or every one of ``names``; ``names=None`` stands for all that the source lists in its
    ``state_names``. Rows, heads and head_dim must be equal; the target keeps its dtype.
    """
    def moved(source: Any, length: int, dtype: Any) -> Any:
        result = transition_kv_state(source, length, current_position, pad_value, dtype)
        # An object may hand out, and keep, the very array that it holds: the two must not come to share one.
        return library_of(source).copy(source, dtype) if result is source else result

    _move_all(source_mlstate, target_mlstate, _names(source_mlstate, state_name, names), moved)


def compact_coreml_state(
    source_mlstate: Any,
    target_mlstate: Any,
    state_name: str | None = None,
    current_position: int | None = None,
    *,
    names: Iterable[str] | None = _ONE_NAME,
) -> None:
    """``compact_kv_state`` from one object to another; names as in ``transition_coreml_state``."""
    position = integer(current_position, "current_position")

    def moved(source: Any, length: int, dtype: Any) -> Any:
        return compact_kv_state(source, length, position, dtype)

    _move_all(source_mlstate, target_mlstate, _names(source_mlstate, state_name, names), moved)


def _names(source: Any, state_name: str | None, names: Iterable[str] | None) -> list[str]:
    if names is _ONE_NAME:
        if not isinstance(state_name, str):
            raise TypeError(f"state_name must be a string, not {state_name!r}; or give names=[...]")
        return [state_name]
    if state_name is not None:
        raise TypeError("give either state_name or names, not both")
    if names is None:
        listed = list(getattr(source, "state_names", None) or ())
        if not listed:
            raise ValueError("names=None moves all that the source lists in state_names, but it lists none")
        return listed
    listed = [] if isinstance(names, str) else list(names)
    if isinstance(names, str) or not all(isinstance(name, str) for name in listed):
        raise TypeError(f"names must be a list of strings, not {names!r}")
    if not listed:
        raise ValueError("names is empty: there is nothing to move")
    return listed


def _move_all(source: Any, target: Any, names: list[str], moved: Callable[[Any, int, Any], Any]) -> None:
    results = []
    for name in names:
        old = source.read_state(name=name)
        present = target.read_state(name=name)
        try:
            library = library_of(old)
            if library_of(present, "target state") is not library:
                raise TypeError("source and target must be of one kind, NumPy arrays or PyTorch tensors")
            four_axes(old.shape)
            four_axes(present.shape)
            same_but_for_length(old.shape, present.shape)
            results.append(moved(old, present.shape[2], present.dtype))
        except (TypeError, ValueError) as error:
            raise type(error)(f"state '{name}': {error}") from None
    for name, value in zip(names, results, strict=True):
        target.write_state(name=name, value=value)
