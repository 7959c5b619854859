"""The contract of the array transitions in a few lines of NumPy, written from the words and not from the code.

Each function gives the array that is right, or the words that the refusal must contain.
"""

import numpy as np


def grown(state, length, position, pad, dtype):
    if state.ndim != 4:
        return "Expected 4D state tensor"
    rows, heads, old_length, width = state.shape
    if length < old_length:
        return "must be >="
    position = old_length if position is None else position
    if position > old_length:
        return "cannot exceed"
    if position < 0:
        return "negative"
    if length == old_length == position:
        return state
    out = np.full((rows, heads, length, width), pad, dtype or state.dtype)
    for p in range(position):
        out[:, :, p] = state[:, :, p]
    return out


def shrunk(state, length, position, dtype):
    if state.ndim != 4:
        return "Expected 4D state tensor"
    rows, heads, old_length, width = state.shape
    if position > length:
        return "Cannot compact"
    if position > old_length:
        return "cannot exceed"
    if position < 0:
        return "negative"
    out = np.zeros((rows, heads, length, width), dtype or state.dtype)
    for p in range(position):
        out[:, :, p] = state[:, :, p]
    return out
