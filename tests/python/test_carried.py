"""What the layers of a model with convolutions carry from token to token."""

import kvtide
import numpy as np
import pytest
from kvtide import _native  # noqa: F401


@pytest.fixture
def session(models):
    with kvtide.Model.load(models.parent / "folders" / "zaya-f16") as model, model.session(context=64) as session:
        yield session


def test_it_has_names_and_shapes_and_is_zero_at_first(session):
    carried = session.state.carried()
    assert {name: array.shape for name, array in carried.items()} == {
        "layers.0.conv_state": (48, 2),
        "layers.0.prev_value": (8,),
        "layers.1.conv_state": (48, 2),
        "layers.1.prev_value": (8,),
    }
    assert all(array.dtype == np.float32 and not array.any() for array in carried.values())


def test_the_older_column_is_the_newer_one_of_the_token_before(session):
    session.read([5, 6, 7])
    before = session.state.carried()["layers.1.conv_state"]
    session.read([8])
    after = session.state.carried()["layers.1.conv_state"]
    assert np.array_equal(after[:, 0], before[:, 1])
    assert not np.array_equal(after[:, 1], before[:, 1])


def test_tokens_that_are_taken_back_leave_nothing(session):
    session.read([5, 6, 7])
    before = session.state.carried()
    session.read([9, 10, 11, 12])
    session.state.truncate(3)
    after = session.state.carried()
    assert all(np.array_equal(after[name], before[name]) for name in before)
    with pytest.raises(ValueError, match="of that position was not kept"):
        session.read([9, 10, 11, 12, 13])
        session.state.truncate(3)


def test_a_model_without_convolutions_carries_nothing(model):
    with model.session() as session:
        assert session.state.carried() == {}
