"""Uses of the package that type checkers must accept, and, marked, those that they must refuse; see test_types.py."""

from __future__ import annotations

import numpy as np
from typing_extensions import assert_type

import kvtide
import kvtide.coreml as ct


def fine(model: kvtide.Model, session: kvtide.Session) -> None:
    with kvtide.Model.load("model.gguf", threads=1) as loaded, loaded.session(kv_budget="64M", context=None) as made:
        assert_type(loaded, kvtide.Model)
        assert_type(made, kvtide.Session)
    assert_type(session.generate("a", max_new_tokens=3, stop=["a"]), kvtide.Generation)
    assert_type(session.generate([1, 2], logits_processor=lambda logits: logits), kvtide.Generation)
    assert_type(session.complete("a", on_text=print), kvtide.Completion)
    assert_type(session.complete(["a", "b"], progress=True), list[kvtide.Completion])
    assert_type(model.generate(["a", "b"], kv_budget=5, temperature=1.0), list[kvtide.Completion])
    assert_type(model.chat([{"role": "user", "content": "a"}], stream=True, max_new_tokens=9), kvtide.Generation)
    assert_type(model.chat([("user", "a")], threads=2, on_text=print), kvtide.Completion)
    assert_type(session.chat("a"), kvtide.Completion)
    assert_type(session.fork(), kvtide.Session)
    assert_type(session.memory.kv, int)
    model.session(procedural={"budget": "64M", "window": 512}, rolling=(4, 60))
    session.generate(np.array([1, 2]), stopping_criteria=lambda generation: len(generation.tokens) > 3)
    print(session.model.tokenizer.encode("a"), kvtide.validate(session.model), kvtide.StatefulModel(session.model))


def core_ml(ids: np.ndarray) -> None:
    model = ct.models.MLModel("model.mlpackage", compute_units=ct.ComputeUnit.ALL)
    state = model.make_state()
    assert_type(model.predict({"ids": ids}, state=state), dict[str, np.ndarray])
    assert_type(model.predict([{"ids": ids}]), list[dict[str, np.ndarray]])
    assert_type(state.fork(), ct.State)
    assert_type(ct.lint("model.mlpackage")[0].line, int)
    print(model.get_spec().description.input[0].type.multiArrayType.shape, model.input_description["ids"].nbytes)
    model.predict([{"ids": ids}], state=state)  # refused
    model.predict({"ids": ids}, stat=state)  # refused


def wrong(model: kvtide.Model, session: kvtide.Session) -> None:
    model.session(contxt=5)  # refused
    model.session(context="4k")  # refused
    model.session(kv_budget=1.5)  # refused
    model.session(procedural={"windows": 3})  # refused
    session.generate("a", max_token=3)  # refused
    session.complete("a", max_tokens="3")  # refused
    session.chat("a", temprature=0.7)  # refused
    model.chat([], stream=True, kv_buget="64M")  # refused
    model.generate("a", logits_processor=3)  # refused
