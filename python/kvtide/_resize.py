"""The two transitions of one array state; kvtide.state_transition is their public name."""

from __future__ import annotations

from typing import Any

from kvtide._arrays import library_of
from kvtide._checks import four_axes, integer, not_negative, position_within


def transition_kv_state(
    source_state: Any,
    target_seq_length: int,
    current_position: int | None = None,
    pad_value: float = 0.0,
    dtype: Any = None,
) -> Any:
    """A copy of the state with room for ``target_seq_length`` positions.

    Positions ``[0, current_position)`` are copied bit for bit (default: all of the source), the rest is
    ``pad_value``. The result has the source's dtype, or ``dtype``, is C-contiguous and stays on the source's device.
    When nothing is to change (same length, all in use) the source itself is returned, whatever ``dtype`` says.

    Raises ValueError, the first of: not 4-D; target shorter than the source; position beyond the source or
    negative; a pad value that the dtype cannot hold. Raises TypeError for anything that is not an array, an
    integer, a number or a dtype.
    """
    library = library_of(source_state)
    target_seq_length = integer(target_seq_length, "target_seq_length")
    four_axes(source_state.shape)
    length = source_state.shape[2]
    if target_seq_length < length:
        raise ValueError(
            f"target_seq_length ({target_seq_length}) must be >= the source sequence length ({length}); "
            "compact_kv_state makes a state shorter"
        )
    position = length if current_position is None else integer(current_position, "current_position")
    position_within(position, length)
    if target_seq_length == length and position == length:
        return source_state
    dtype = library.dtype(dtype, source_state)
    return library.resized(source_state, target_seq_length, position, pad_value, dtype)


def compact_kv_state(source_state: Any, target_seq_length: int, current_position: int, dtype: Any = None) -> Any:
    """A copy of the state with room for ``target_seq_length`` positions, usually fewer, and zeros behind those in use.

    Raises ValueError, the first of: not 4-D; more positions in use than the target holds ("Cannot compact"); position
    beyond the source or negative.
    """
    library = library_of(source_state)
    target_seq_length = integer(target_seq_length, "target_seq_length")
    position = integer(current_position, "current_position")
    four_axes(source_state.shape)
    if position > target_seq_length:
        raise ValueError(f"Cannot compact to {target_seq_length} positions: {position} are in use")
    position_within(position, source_state.shape[2])
    not_negative(target_seq_length, "target_seq_length")
    return library.resized(source_state, target_seq_length, position, 0, library.dtype(dtype, source_state))
