"""Grows and shrinks a KV state that lives in a NumPy array, the way a runtime with fixed state shapes needs it.

    python examples/python/02_resize.py
"""

import numpy as np

from kvtide.state_transition import (
    StateTransitionManager,
    compact_kv_state,
    get_transition_info,
    transition_kv_state,
)


def main():
    # Gemma-3-270M: 18 layers, keys then values, one KV head of 256. 200 of 256 positions are in use.
    position = 200
    state = np.random.default_rng(0).standard_normal((36, 1, 256, 256)).astype(np.float16)

    larger = transition_kv_state(state, 512, position)
    print("grown  ", larger.shape, f"{larger.nbytes / 2**20:.1f} MB")
    assert (larger[:, :, :position] == state[:, :, :position]).all()
    assert not larger[:, :, position:].any()

    smaller = compact_kv_state(larger, 256, position)
    print("shrunk ", smaller.shape, f"{smaller.nbytes / 2**20:.1f} MB")
    assert (smaller[:, :, :position] == state[:, :, :position]).all()

    # What does not fit is refused, and says why.
    try:
        compact_kv_state(larger, 128, position)
    except ValueError as error:
        print("refused", error)

    for name, value in get_transition_info(256, 512, position).items():
        print(f"  {name}: {value}")

    # The same, by the names of models that differ in the length of their states.
    manager = StateTransitionManager()
    for length in (256, 512, 1024, 2048):
        manager.register_model(f"ctx{length}", length)
    path = manager.get_transition_path("ctx256", "ctx2048")
    for source, target in zip(path, path[1:]):
        state = manager.transition(state, source, target, position)
        print(f"{source} -> {target}: {state.shape}")


if __name__ == "__main__":
    main()
