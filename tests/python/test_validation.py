"""kvtide.validate: models of the engine, objects and functions of one's own, and what is said when they are wrong."""


import numpy as np
import pytest

import kvtide
from kvtide import _native  # noqa: F401
from kvtide.errors import CancelledError, InvalidArgumentError

TOKENS = [3, 7, 1, 9, 4, 4, 8, 2, 0, 6, 5, 11, 10, 7, 3, 1]
WIDTH, DIM, VOCAB, LAYERS = 12, 6, 13, 2
RNG = np.random.default_rng(5)
EMBEDDING = RNG.normal(size=(VOCAB, WIDTH)).astype(np.float32)
WEIGHTS = [
    {name: (RNG.normal(size=(rows, columns)) / np.sqrt(columns)).astype(np.float32)
     for name, rows, columns in (("q", DIM, WIDTH), ("k", DIM, WIDTH), ("v", DIM, WIDTH), ("o", WIDTH, DIM))}
    for _ in range(LAYERS)
]  # fmt: skip


def softmax(scores):
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def golden(tokens):
    """The right answer, all at once."""
    x = EMBEDDING[list(tokens)]
    hidden, keys, values = [x], [], []
    for w in WEIGHTS:
        q, k, v = x @ w["q"].T, x @ w["k"].T, x @ w["v"].T
        scores = np.where(np.tri(len(x), dtype=bool), q @ k.T, -np.inf)
        x = x + softmax(scores) @ v @ w["o"].T
        hidden.append(x)
        keys.append(k[None])
        values.append(v[None])
    return {"logits": x @ EMBEDDING.T, "hidden": np.stack(hidden), "keys": keys, "values": values}


class Port:
    """The same with a cache, as someone would port it."""

    largest_chunk = 8

    def make_state(self):
        return [{"k": np.zeros((0, DIM), np.float32), "v": np.zeros((0, DIM), np.float32)} for _ in range(LAYERS)]

    def predict(self, tokens, state, inputs=None):
        x = EMBEDDING[tokens]
        hidden = [x]
        for i, (w, rows) in enumerate(zip(WEIGHTS, state)):
            if inputs is not None:
                x = inputs[i]
            past = len(rows["k"])
            rows["k"] = np.concatenate([rows["k"], x @ w["k"].T])
            rows["v"] = np.concatenate([rows["v"], x @ w["v"].T])
            visible = self.visible(past, len(x))
            scores = np.where(visible, x @ w["q"].T @ rows["k"].T, -np.inf)
            x = x + softmax(scores) @ rows["v"] @ w["o"].T
            hidden.append(x)
        return {"logits": x @ EMBEDDING.T, "hidden": np.stack(hidden)}

    def visible(self, past, new):
        return np.arange(past + new)[None] <= past + np.arange(new)[:, None]

    def rows(self, state, layer):
        return state[layer]["k"][None], state[layer]["v"][None]

    def truncate(self, state, length):
        for rows in state:
            rows["k"], rows["v"] = rows["k"][:length], rows["v"][:length]

    def fork(self, state):
        return [dict(rows) for rows in state]

    def snapshot(self, state):
        return [(rows["k"].tobytes(), rows["v"].tobytes()) for rows in state]

    def restore(self, saved):
        return [{"k": np.frombuffer(k, np.float32).reshape(-1, DIM), "v": np.frombuffer(v, np.float32).reshape(-1, DIM)}
                for k, v in saved]  # fmt: skip


class ShortMask(Port):
    def visible(self, past, new):
        return np.arange(past + new)[None] == past if new == 1 else super().visible(past, new)


class Forgetful(Port):
    def predict(self, tokens, state, inputs=None):
        state[:] = self.make_state()
        return super().predict(tokens, state, inputs)


class LogitsOnly:
    """A black box around another model."""

    def __init__(self, model):
        self.inner = model

    def make_state(self):
        return self.inner.make_state()

    def predict(self, tokens, state):
        return self.inner.predict(tokens, state)["logits"]


class TestObjects:
    def test_a_correct_port_passes_every_check_that_it_can_take(self):
        report = kvtide.validate(Port(), golden, TOKENS, free=4)
        assert report, str(report)
        assert report.passed and report.findings == []
        outcomes = {check.name: check.outcome for check in report.checks}
        assert outcomes.pop("poison") == "skipped"
        assert outcomes.pop("a full state") == "skipped"
        assert set(outcomes.values()) == {"passed"}, outcomes

    def test_a_mask_of_one_is_named_with_layer_and_token(self):
        report = kvtide.validate(ShortMask(), golden, TOKENS)
        assert not report
        first = report.findings[0]
        assert (first.cause, first.layer, first.token) == ("mask_too_short", 0, 1)
        assert "they see themselves only" in first.what
        assert "calls of 2" in first.what and "right" in first.what

    def test_a_state_made_anew_is_named(self):
        report = kvtide.validate(Forgetful(), golden, TOKENS)
        assert report.findings[0].cause == "state_recreated"
        assert "rows of the last call only" in report.findings[0].what

    def test_a_black_box_is_judged_by_its_logits(self):
        assert kvtide.validate(LogitsOnly(Port()), golden, TOKENS, free=4)
        report = kvtide.validate(LogitsOnly(Forgetful()), golden, TOKENS)
        assert report.findings[0].cause == "past_unseen"
        assert report.findings[0].token == 1
        assert "<svg" not in report.html

    def test_a_function_of_the_whole_text_needs_no_state(self):
        assert kvtide.validate(lambda tokens: golden(tokens)["logits"], golden, TOKENS, free=4)
        wrong = kvtide.validate(lambda tokens: golden(tokens)["logits"][:, ::-1], golden, TOKENS, free=0)
        assert not wrong

    def test_what_the_model_raises_is_a_finding_not_an_exception(self):
        class Broken(Port):
            def predict(self, tokens, state, inputs=None):
                if len(tokens) > 2:
                    raise RuntimeError("no kernel for so many tokens")
                return super().predict(tokens, state, inputs)

        report = kvtide.validate(Broken(), golden, TOKENS)
        assert not report
        reading = next(check for check in report.checks if check.name == "reading")
        assert "RuntimeError: no kernel for so many tokens" in reading.detail
        assert "calls of 3" in reading.detail and "calls of 2" not in reading.detail
        assert report.findings[0].cause == "refused"

    def test_what_is_not_finite_is_told_where_it_begins(self):
        class Overflows(Port):
            def predict(self, tokens, state, inputs=None):
                result = super().predict(tokens, state, inputs)
                result["hidden"] = result["hidden"].copy()
                for at, token in enumerate(tokens):
                    if token == 8:
                        result["hidden"][2, at] = np.inf
                return result

        first = kvtide.validate(Overflows(), golden, TOKENS).findings[0]
        assert (first.cause, first.layer, first.token) == ("not_finite", 1, TOKENS.index(8))

    def test_ctrl_c_and_progress_stop_it(self):
        class Interrupted(Port):
            def rows(self, state, layer):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            kvtide.validate(Interrupted(), golden, TOKENS)
        seen = []
        with pytest.raises(CancelledError):
            kvtide.validate(Port(), golden, TOKENS, progress=lambda share, what: seen.append(what) or len(seen) < 3)
        assert len(seen) == 3


class TestModels:
    def test_a_model_passes_against_its_own_plain_forward_pass(self, model):
        report = kvtide.validate(model, count=20, exact=True, threads=1)
        assert report, str(report)
        assert str(report).startswith("PASSED: ")
        assert report.schedules[0].isolated.change_cosine.shape == (2, 20)
        assert report.schedules[0].isolated.change_cosine.min() > 0.9999
        assert all(schedule.same_bits for schedule in report.schedules[1:])

    def test_a_folder_of_golden_arrays_brings_its_text(self, models):
        golden_arrays = models.parent / "validate" / "gemma3-f32"
        with kvtide.Model.load(models.parent / "folders" / "gemma3-f32") as gemma:
            report = kvtide.validate(gemma, golden_arrays, exact=True)
        assert report, str(report)
        assert len(report.tokens) == 20

    def test_a_session_of_ones_own_is_compared_with_the_plain_forward_pass(self, model):
        class Driven:
            def make_state(self, capacity):
                return model.session(context=capacity, exact=True, key_type="f32", value_type="f32", prefill_chunk=4)

            def predict(self, tokens, session):
                return session.read_logits(tokens)

        tokens = [5, 9, 3, 30, 12, 7, 7, 41, 2, 18, 33, 6]
        report = kvtide.validate(Driven(), model, tokens, free=4)
        assert report, str(report)
        assert {c.name: c.outcome for c in report.checks}["a full state"] == "passed"

    def test_a_closed_model_is_refused(self, tiny):
        model = kvtide.Model.load(tiny)
        model.close()
        with pytest.raises(kvtide.Error):
            kvtide.validate(model)


class TestReports:
    def test_pages_and_text_are_saved_by_name(self, tmp_path):
        report = kvtide.validate(ShortMask(), golden, TOKENS, free=0)
        for name, start in (("r.html", b"<!doctype html>"), ("r.txt", b"FAILED: ShortMask")):
            report.save(tmp_path / name)
            assert (tmp_path / name).read_bytes().startswith(start)
        assert repr(report) == "<kvtide.Report: ShortMask failed: mask_too_short>"


class TestArguments:
    @pytest.mark.parametrize(
        ("words", "error", "part"),
        [
            (dict(reference=None), InvalidArgumentError, "a reference is needed"),
            (dict(tokens=None), InvalidArgumentError, "tokens are needed"),
            (dict(tokens=[1, 2]), InvalidArgumentError, "at least 3"),
            (dict(chunks=[]), InvalidArgumentError, "chunks"),
            (dict(gate=2), InvalidArgumentError, "gate"),
            (dict(reference=lambda tokens: np.zeros((3, VOCAB))), InvalidArgumentError, "(3, 13)"),
            (dict(reference=7), TypeError, "int"),
            (dict(model=7), TypeError, "int"),
            (dict(model=lambda tokens, state: None), TypeError, "make_state"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, words, error, part):
        arguments = dict(model=Port(), reference=golden, tokens=TOKENS) | words
        with pytest.raises(error, match=part.replace("(", r"\(").replace(")", r"\)")):
            kvtide.validate(arguments.pop("model"), arguments.pop("reference"), arguments.pop("tokens"), **arguments)
