"""Growing and shrinking KV states that live in plain arrays.

A state is a NumPy array or a PyTorch tensor ``[rows, kv_heads, seq, head_dim]``. The sequence axis is 2; positions
``[0, current_position)`` are in use, whatever lies behind them is stale. Nothing here needs a model, and nothing
changes its source. Large contiguous arrays are copied by the native extension, with all threads and without the
GIL; the result is the same without it.

    >>> large = transition_kv_state(small, 512, current_position=200)     # 256 -> 512, zeros from position 200 on
    >>> small = compact_kv_state(large, 256, current_position=200)        # and back

Run ``python -m kvtide.state_transition`` to see it happen.
"""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from kvtide._checks import integer, not_negative, same_but_for_length
from kvtide._named_states import compact_coreml_state, transition_coreml_state
from kvtide._resize import compact_kv_state, transition_kv_state
from kvtide._state_manager import StateTransitionManager

__all__ = [
    "StateTransitionManager",
    "compact_coreml_state",
    "compact_kv_state",
    "create_attention_size_mask",
    "get_transition_info",
    "transition_coreml_state",
    "transition_kv_state",
    "validate_state_shapes",
]


def get_transition_info(source_seq_length: int, target_seq_length: int, current_position: int) -> dict[str, Any]:
    """What a transition would do, in numbers. Checks nothing."""
    return {
        "source_seq_length": source_seq_length,
        "target_seq_length": target_seq_length,
        "current_position": current_position,
        "valid_tokens": current_position,
        "padded_positions_source": source_seq_length - current_position,
        "padded_positions_target": target_seq_length - current_position,
        "expansion_factor": target_seq_length / source_seq_length,
        "additional_capacity": target_seq_length - source_seq_length,
    }


def validate_state_shapes(source_state_shape: Sequence[int], target_state_shape: Sequence[int]) -> bool:
    """True when a state of one shape can grow into the other; ValueError, naming the first difference, when not."""
    source, target = tuple(source_state_shape), tuple(target_state_shape)
    if len(source) != 4:
        raise ValueError(f"Source state must be 4D, got {len(source)}D")
    if len(target) != 4:
        raise ValueError(f"Target state must be 4D, got {len(target)}D")
    same_but_for_length(source, target)
    if target[2] < source[2]:
        raise ValueError(
            f"Target sequence length ({target[2]}) must be >= source sequence length ({source[2]})"
        )
    return True


def create_attention_size_mask(seq_length: int, attention_size: int, current_position: int) -> np.ndarray:
    """An additive mask ``[1, 1, seq_length, seq_length]`` in float32: 0 is visible, -inf is hidden.

    The query in row p sees the ``attention_size`` newest positions, its own included: [max(0, p - size + 1), p].
    Rows beyond ``current_position`` see nothing.
    """
    seq_length = integer(seq_length, "seq_length")
    attention_size = integer(attention_size, "attention_size")
    current_position = integer(current_position, "current_position")
    if seq_length < 1 or attention_size < 1:
        raise ValueError(
            f"seq_length ({seq_length}) and attention_size ({attention_size}) must be at least 1"
        )
    not_negative(current_position, "current_position")
    if current_position > seq_length:
        raise ValueError(f"current_position ({current_position}) cannot exceed seq_length ({seq_length})")
    query = np.arange(seq_length)[:, None]
    key = np.arange(seq_length)[None, :]
    visible = (key <= query) & (key > query - attention_size) & (query <= current_position)
    return np.where(visible, np.float32(0), np.float32(-np.inf))[None, None]


if __name__ == "__main__":
    from kvtide._resize_demo import main

    main()
