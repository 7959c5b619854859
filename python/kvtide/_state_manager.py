"""Models that differ in the length of their states, and the ways from one to the next."""

from __future__ import annotations

from typing import Any

from kvtide._checks import integer, not_negative
from kvtide._resize import compact_kv_state, transition_kv_state


class StateTransitionManager:
    """Knows models by name and moves array states between them. Holds no state itself.

    ``models`` is a dict, in the order of registration, from the name to a dict of what ``register_model`` was told.
    """

    def __init__(self) -> None:
        self.models: dict[str, dict[str, int | None]] = {}

    def register_model(
        self,
        model_name: str,
        state_seq_length: int,
        num_layers: int | None = None,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
    ) -> None:
        """Adds a model, or replaces the one of that name."""
        state_seq_length = integer(state_seq_length, "state_seq_length")
        not_negative(state_seq_length, "state_seq_length")
        self.models[model_name] = {
            "state_seq_length": state_seq_length,
            "num_layers": num_layers,
            "num_kv_heads": num_kv_heads,
            "head_dim": head_dim,
        }

    def transition(
        self,
        source_state: Any,
        source_model: str,
        target_model: str,
        current_position: int,
        pad_value: float = 0.0,
    ) -> Any:
        """``transition_kv_state`` to the length of the target model."""
        length = self._lengths(source_model, target_model, current_position)
        return transition_kv_state(source_state, length, current_position, pad_value)

    def compact(self, source_state: Any, source_model: str, target_model: str, current_position: int) -> Any:
        """``compact_kv_state`` to the length of the target model."""
        length = self._lengths(source_model, target_model, current_position)
        return compact_kv_state(source_state, length, current_position)

    def get_transition_path(self, start_model: str, end_model: str) -> list[str]:
        """Names of the models on the way up, both ends included, shortest first; equal lengths as registered."""
        start = self._length("Start", start_model)
        end = self._length("End", end_model)
        if start > end:
            raise ValueError(
                f"Can only transition to larger states: '{start_model}' holds {start} positions, "
                f"'{end_model}' holds {end}"
            )
        between = [name for name in self.models if start <= self._length("", name) <= end]
        return sorted(between, key=lambda name: self._length("", name))

    def _length(self, role: str, model_name: str) -> int:
        if model_name not in self.models:
            raise ValueError(f"{role} model '{model_name}' not registered")
        return self.models[model_name]["state_seq_length"]

    def _lengths(self, source_model: str, target_model: str, current_position: int) -> int:
        source = self._length("Source", source_model)
        target = self._length("Target", target_model)
        if integer(current_position, "current_position") > source:
            raise ValueError(
                f"current_position ({current_position}) exceeds source model's state length ({source})"
            )
        return target
