"""Named models and the ways between their states."""

import numpy as np
import pytest

from kvtide.state_transition import StateTransitionManager


@pytest.fixture
def manager():
    manager = StateTransitionManager()
    manager.register_model("large", 16)
    manager.register_model("small", 4, num_layers=1, num_kv_heads=1, head_dim=1)
    manager.register_model("middle", state_seq_length=8)
    manager.register_model("also small", 4)
    return manager


def state(length):
    return np.arange(1, length + 1, dtype=np.float32).reshape(1, 1, length, 1)


def test_models_are_kept_in_the_order_of_registration(manager):
    assert list(manager.models) == ["large", "small", "middle", "also small"]
    manager.register_model("large", 32)
    assert list(manager.models) == ["large", "small", "middle", "also small"]
    assert manager.transition(state(4), "small", "large", 4).shape == (1, 1, 32, 1)


def test_a_state_grows_to_the_length_of_the_target_model(manager):
    assert manager.transition(state(4), "small", "middle", 3)[0, 0, :, 0].tolist() == [1, 2, 3, 0, 0, 0, 0, 0]
    assert manager.transition(state(4), "small", "middle", 1, pad_value=9)[0, 0, :, 0].tolist() == [1] + [9] * 7
    whole = state(4)
    assert manager.transition(whole, "small", "also small", 4) is whole


def test_a_state_shrinks_to_the_length_of_the_target_model(manager):
    assert manager.compact(state(8), "middle", "small", 3)[0, 0, :, 0].tolist() == [1, 2, 3, 0]
    with pytest.raises(ValueError, match="Cannot compact to 4 positions: 5 are in use"):
        manager.compact(state(8), "middle", "small", 5)


@pytest.mark.parametrize("move", ["transition", "compact"])
def test_the_first_thing_wrong_decides_the_message(manager, move):
    move = getattr(manager, move)
    with pytest.raises(ValueError, match="Source model 'x' not registered"):
        move(state(4), "x", "y", 99)
    with pytest.raises(ValueError, match="Target model 'y' not registered"):
        move(state(4), "small", "y", 99)
    with pytest.raises(ValueError, match=r"\(99\) exceeds source model's state length \(4\)"):
        move(state(4)[0], "small", "large", 99)
    with pytest.raises(ValueError, match="Expected 4D"):
        move(state(4)[0], "small", "large", 2)
    with pytest.raises(ValueError, match="negative"):
        move(state(4), "small", "large", -1)


def test_shrinking_is_no_transition(manager):
    with pytest.raises(ValueError, match="must be >="):
        manager.transition(state(8), "middle", "small", 2)


def test_a_path_leads_through_every_length_between(manager):
    assert manager.get_transition_path("small", "large") == ["small", "also small", "middle", "large"]
    assert manager.get_transition_path("also small", "middle") == ["small", "also small", "middle"]
    assert manager.get_transition_path("large", "large") == ["large"]
    with pytest.raises(ValueError, match="Can only transition to larger states"):
        manager.get_transition_path("large", "small")
    with pytest.raises(ValueError, match="'x' not registered"):
        manager.get_transition_path("x", "small")
    with pytest.raises(ValueError, match="'x' not registered"):
        manager.get_transition_path("small", "x")


def test_lengths_that_make_no_sense_are_refused(manager):
    with pytest.raises(TypeError):
        manager.register_model("odd", 4.5)
    with pytest.raises(ValueError):
        manager.register_model("odd", -1)
    assert "odd" not in manager.models
