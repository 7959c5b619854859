"""Ports in NumPy with planted faults, from outside: a part of what planted_faults.py and random_zaya.py do in full."""

import planted_faults
import pytest
import random_zaya
import tiny_checkpoints
from numpy_port import Port, ported
from planted_faults import ALL, FAULTS, LEVELS, World

import kvtide
from kvtide import _native  # noqa: F401

SOME = {
    ("rope_theta_odd", "llama"), ("rope_unscaled", "llama3"), ("scale_by_head", "gemma3"), ("groups_tiled", "qwen2"),
    ("k_norm_skipped", "qwen3"), ("mask_of_one", "gpt2"), ("window_longer", "gemma3"), ("positions_in_call", "llama"),
    ("eps_1e-3", "gpt2"), ("act_quick_gelu", "gpt2"), ("softmax_bf16", "llama"), ("angles_f16", "qwen2"),
    ("rows_int8", "llama"), ("residual_twice_attention", "qwen2"), ("second_expert", "zaya"), ("taps_reversed", "zaya"),
    ("layers_swapped", "qwen3"), ("head_transposed", "gpt2"), ("logits_times_three", "llama"), ("written_late", "llama"),
}  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("ports"), 100)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("arch", ALL)
def test_a_correct_port_raises_no_alarm(world, arch, level):
    outcome = planted_faults.judged(world, planted_faults.Fault("", ("",), ()), arch, level)
    assert not outcome.found, str(outcome.report)
    assert "positions 0 to 30" in outcome.report.notes["coverage"]


@pytest.mark.parametrize(("name", "arch"), sorted(SOME))
def test_a_planted_fault_is_found_and_named(world, name, arch):
    fault = next(f for f in FAULTS if f.name == name)
    outcome = planted_faults.judged(world, fault, arch, "full")
    assert outcome.found and outcome.right, str(outcome.report)
    for level in ("hidden", "logits"):
        other = planted_faults.judged(world, fault, arch, level)
        assert not planted_faults.wrong(other), str(other.report)


def test_a_finding_says_part_layer_token_and_evidence(world):
    sample = world["llama"]
    port = Port(sample.config, sample.weights, "gate_and_up_swapped", only=1)
    first = kvtide.validate(port, sample.model, sample.tokens, free=0).findings[0]
    assert (first.cause, first.layer, first.token) == ("gate_and_up_swapped", 1, 0)
    assert "feed-forward" in first.what and "100.0% of the difference" in first.what
    assert first.advice


class Half:
    """An honest port in half precision: every product is rounded."""

    def __init__(self, port, rounded):
        self.port, self.rounded, self.name = port, rounded, "half"
        port.w = {name: rounded(array) for name, array in port.w.items()}
        layer, attend = port.layer, port.attend
        port.layer = lambda *arguments: rounded(layer(*arguments))
        port.attend = lambda *arguments: rounded(attend(*arguments))

    def make_state(self):
        return self.port.make_state()

    def predict(self, tokens, state, inputs=None):
        return self.port.predict(tokens, state, inputs)

    def rows(self, state, layer):
        return tuple(self.rounded(rows) for rows in self.port.rows(state, layer))


@pytest.mark.parametrize("arch", ["llama", "qwen3", "gpt2"])
def test_an_honest_port_in_f16_raises_no_alarm(world, arch):
    from numpy_port import as_f16

    sample = world[arch]
    port = Half(Port(sample.config, dict(sample.weights)), as_f16)
    report = kvtide.validate(port, sample.model, sample.tokens, free=0)
    assert report, str(report)
    assert "coarser arithmetic" in next(c.detail for c in report.checks if c.name == "precision")


def test_three_ids_are_enough(world):
    sample = world["llama"]
    assert kvtide.validate(ported(sample.config, sample.weights), sample.model, [42, 10, 20], free=2)


def test_what_differs_from_call_to_call_is_told_as_such(world):
    sample = world["llama"]

    class Restless(Port):
        calls = 0

        def predict(self, tokens, state, inputs=None):
            Restless.calls += 1
            result = super().predict(tokens, state, inputs)
            result["logits"] = result["logits"] * (1 + 1e-3 * (Restless.calls % 7))
            return result

    report = kvtide.validate(Restless(sample.config, sample.weights), sample.model, sample.tokens, free=0)
    assert "not_deterministic" in [finding.cause for finding in report.findings]


def test_deep_random_zayas_pass_whatever_their_routers_do(tmp_path):
    for seed in (0, 1):
        for name, report in random_zaya.reports(tmp_path / str(seed), seed):
            assert report, f"{name}\n{report}"


class TestShardFolders:
    @pytest.fixture(scope="class")
    def model(self, tmp_path_factory):
        return tiny_checkpoints.write(tmp_path_factory.mktemp("shards") / "model", "llama", 3)

    @pytest.fixture
    def shards(self, model, tmp_path):
        kvtide.ShardFolder.export(model, tmp_path / "out", slots=64, min_elements=1)
        return tmp_path / "out"

    def test_without_a_model_the_verdict_says_that_weights_were_not_compared(self, shards):
        report = kvtide.validate(kvtide.ShardFolder(shards), count=12, free=0)
        assert report and "weights_not_compared" in report.notes
        assert str(report).startswith("PASSED (weights not compared): ")

    def test_with_a_model_they_are(self, shards, model):
        report = kvtide.validate(kvtide.ShardFolder(shards), model, count=12, tokens=[5, 9, 30, 12, 7, 3, 8, 40], free=0)
        assert report, str(report)
        outcomes = {check.name: check.outcome for check in report.checks}
        assert outcomes["weights"] == outcomes["manifest"] == outcomes["vocabulary"] == "passed"

    @pytest.mark.parametrize(
        ("before", "after", "words"),
        [
            ('"theta": 10000', '"theta": 20000', None),
            ('"norm_epsilon": 1e-06', '"norm_epsilon": 0.001', "norm epsilon"),
            ('"activation": "silu"', '"activation": "gelu"', "activation gelu for silu"),
        ],
    )
    def test_an_edited_manifest_is_told(self, shards, model, before, after, words):
        path = shards / "manifest.json"
        text = path.read_text()
        if before not in text:
            pytest.skip(f"the manifest writes {before} otherwise")
        path.write_text(text.replace(before, after))
        report = kvtide.validate(kvtide.ShardFolder(shards), model, [5, 9, 30, 12, 7, 3, 8, 40], free=0)
        if words is None:  # the base is for the reader; frequencies say it all
            return
        assert not report
        assert report.findings[0].cause == "manifest_differs" and words in report.findings[0].what, str(report)
