"""Faults planted in NumPy ports of every architecture, and what the validator says of them.

    python tests/python/planted_faults.py [--seeds 1] [--only NAME] [--verbose]

Prints a table: how many faults are found and named right at each level (all that a port can show, its residual stream only,
logits only). Exit status 1 when a correct port fails or a cause in first place is wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Iterator, NamedTuple

import numpy as np
import tiny_checkpoints
from numpy_port import ported

import kvtide

RMS, ROPE = ("llama", "qwen2", "qwen3", "gemma3", "zaya"), ("llama", "qwen2", "qwen3", "gemma3", "zaya")
PLAIN = ("llama", "qwen2", "qwen3")  # neither windows nor experts
ALL = (*ROPE, "gpt2")


class Fault(NamedTuple):
    name: str
    causes: tuple[str, ...]  # that are right in first place
    archs: tuple[str, ...]


FAULTS = [
    # Rotation.
    Fault("rope_theta", ("rope_theta",), ROPE),
    Fault("rope_theta_odd", ("rope_theta",), ("llama", "qwen3")),
    Fault("rope_of_other_layers", ("rope_theta",), ("gemma3", "zaya")),
    Fault("rope_halved", ("rope_scaling",), ROPE),
    Fault("rope_unscaled", ("rope_scaling",), ("gemma3", "llama3")),
    Fault("rope_sign", ("rope_sign",), ROPE),
    Fault("rope_skipped", ("rope_skipped",), ROPE),
    Fault("rope_neighbours", ("rope_pairing",), ROPE),
    Fault("rope_full_width", ("rope_width",), ("zaya",)),
    Fault("angles_f16", ("rope_precision",), ("llama", "qwen2")),
    # Attention.
    Fault("scale_missing", ("attention_scale",), ALL),
    Fault("scale_twice", ("attention_scale",), ("llama", "gpt2")),
    Fault("scale_by_head", ("attention_scale",), ("gemma3",)),
    Fault("groups_tiled", ("group_mapping",), ROPE),
    Fault("queries_mixed", ("heads_permuted",), (*PLAIN, "gpt2")),
    Fault("q_heads_rolled", ("heads_permuted",), ALL),
    Fault("kv_heads_swapped", ("heads_swapped",), ROPE),
    Fault("keys_and_values_swapped", ("keys_and_values_swapped",), (*PLAIN, "gemma3", "gpt2")),
    Fault("qkv_bias_dropped", ("bias_dropped",), ("qwen2", "gpt2")),
    Fault("k_bias_dropped", ("bias_dropped",), ("qwen2",)),
    Fault("v_bias_dropped", ("bias_dropped",), ("qwen2",)),
    Fault("o_bias_dropped", ("bias_dropped",), ("gpt2",)),
    Fault("q_norm_skipped", ("head_norm",), ("qwen3", "gemma3")),
    Fault("k_norm_skipped", ("head_norm",), ("qwen3", "gemma3")),
    Fault("head_norms_late", ("head_norm",), ("qwen3", "gemma3")),
    Fault("softmax_bf16", ("softmax_precision",), ("llama", "gpt2")),
    Fault("rows_int8", ("rows_rounded",), ("llama", "gemma3", "gpt2")),
    Fault("scores_capped", ("attention_softcap",), ("llama", "gpt2")),
    # Masks, positions and the state.
    Fault("mask_of_one", ("mask_too_short",), ALL),
    Fault("mask_of_call", ("mask_too_short", "past_unseen"), ALL),
    Fault("not_causal", ("not_causal",), ALL),
    Fault("own_row_hidden", ("own_row_hidden",), ALL),
    Fault("written_late", ("row_written_late",), ("llama", "gpt2")),
    Fault("first_row_hidden", ("first_row_hidden",), ("llama", "qwen3", "gpt2")),
    Fault("blind_past_20", ("rows_hidden",), ("llama", "qwen3")),
    Fault("rows_reset_at_20", ("rows_hidden", "rows_lost"), ("llama", "gpt2")),
    Fault("stale_rows", ("stale_rows",), ("llama", "gpt2")),
    Fault("window_longer", ("window",), ("gemma3", "zaya")),
    Fault("window_shorter", ("window",), ("gemma3", "zaya")),
    Fault("window_ignored", ("window",), ("gemma3", "zaya")),
    Fault("positions_in_call", ("position_in_call",), ALL),
    Fault("positions_behind", ("position_off_by_one",), ROPE),
    Fault("positions_ahead", ("position_off_by_one",), ("llama", "gpt2")),
    Fault("positions_of_first", ("position",), ROPE),
    Fault("query_ahead", ("query_position",), ROPE),
    Fault("heads_interleaved", ("heads_interleaved",), ALL),
    Fault("rows_interleaved", ("heads_interleaved",), ("llama", "gpt2")),
    Fault("write_slot", ("write_slot",), ("llama", "gpt2")),
    Fault("state_recreated", ("state_recreated", "past_unseen", "position_in_call"), ("llama", "gpt2", "zaya")),
    Fault("shared_state", ("state_shared_between_shards",), ("llama", "qwen2")),
    Fault("fork_shares", ("state_shared_between_sequences",), ("llama", "gpt2")),
    Fault("history_dropped", ("history_dropped",), ("zaya",)),
    # Norms.
    Fault("attention_norm_skipped", ("norm_skipped",), RMS),
    Fault("norm_weight_dropped", ("norm_weight",), RMS),
    Fault("norm_lacks_one", ("norm_weight",), ("gemma3",)),
    Fault("norm_has_one", ("norm_weight",), ("llama", "qwen2")),
    Fault("norms_take_mean", ("norm_kind",), ("llama", "qwen2")),
    Fault("norm_keeps_mean", ("norm_kind",), ("gpt2",)),
    Fault("norm_bias_dropped", ("bias_dropped",), ("gpt2",)),
    Fault("eps_1e-3", ("norm_epsilon",), ALL),
    Fault("post_norm_skipped", ("norm_skipped",), ("gemma3",)),
    # Feed-forward, experts, joins.
    Fault("act_quick_gelu", ("activation",), ("gemma3", "gpt2")),
    Fault("act_erf_gelu", ("activation",), ("gemma3", "gpt2")),
    Fault("act_tanh_gelu", ("activation",), PLAIN),
    Fault("act_silu", ("activation",), ("gemma3", "gpt2")),
    Fault("act_relu", ("activation",), ("llama",)),
    Fault("gate_and_up_swapped", ("gate_and_up_swapped",), (*PLAIN, "gemma3")),
    Fault("mlp_bias_dropped", ("bias_dropped",), ("gpt2",)),
    Fault("parallel", ("residual",), ("llama", "gemma3")),
    Fault("residual_twice_attention", ("residual",), (*PLAIN, "gpt2")),
    Fault("residual_twice_feed_forward", ("residual",), (*PLAIN, "gpt2")),
    Fault("residual_normed_attention", ("residual",), (*PLAIN, "gpt2")),
    Fault("residual_dropped_feed_forward", ("residual",), ("llama", "gpt2")),
    Fault("residual_unscaled", ("residual_scale",), ("zaya",)),
    Fault("second_expert", ("expert_choice",), ("zaya",)),
    Fault("balance_ignored", ("expert_choice",), ("zaya",)),
    Fault("share_ignored", ("expert_share",), ("zaya",)),
    Fault("carry_dropped", ("router_carry",), ("zaya",)),
    Fault("skip_gives_input", ("skip_slot",), ("zaya",)),
    Fault("convolution_skipped", ("convolution",), ("zaya",)),
    Fault("taps_reversed", ("convolution",), ("zaya",)),
    Fault("temperature_ignored", ("key_temperature",), ("zaya",)),
    Fault("values_not_delayed", ("values_delayed",), ("zaya",)),
    Fault("value_halves_swapped", ("value_halves_swapped", "heads_swapped"), ("zaya",)),
    # Around the layers.
    Fault("layers_swapped", ("layers_swapped",), (*PLAIN, "gpt2")),
    Fault("embedding_unscaled", ("embedding_scale",), ("gemma3",)),
    Fault("embedding_scaled", ("embedding_scale",), PLAIN),
    Fault("last_norm_skipped", ("norm_skipped",), RMS),
    Fault("head_transposed", ("head_transposed",), ALL),
    Fault("logits_times_three", ("logit_scale",), ALL),
    Fault("logits_capped", ("logit_softcap",), ("llama", "gpt2")),
]  # fmt: skip

LEVELS = ("full", "hidden", "logits")
STATE_ONLY = ("fork_shares",)  # cannot show where a port cannot fork


class Sample(NamedTuple):
    config: dict
    weights: dict
    model: kvtide.Model
    tokens: list[int]


class World:
    """One checkpoint of every architecture."""

    def __init__(self, folder: Path, seed: int):
        self.folder, self.seed, self.samples = folder, seed, {}

    def __getitem__(self, arch: str) -> Sample:
        if arch not in self.samples:
            layers = 3 if arch in ("gemma3", "zaya") else 2
            more = {}
            if arch == "llama3":
                more["rope_parameters"] = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0,
                                               high_freq_factor=4.0, original_max_position_embeddings=64)  # fmt: skip
            config = tiny_checkpoints.config_of("llama" if arch == "llama3" else arch, layers, **more)
            weights = tiny_checkpoints.weights_of(config, self.seed)
            path = tiny_checkpoints.save(self.folder / f"{arch}-{self.seed}", config, weights)
            tokens = np.random.default_rng(self.seed + 7).integers(3, 64, 31).tolist()
            self.samples[arch] = Sample(config, weights, kvtide.Model.load(path), tokens)
        return self.samples[arch]


class Outcome(NamedTuple):
    fault: str
    arch: str
    level: str
    found: bool
    first: str
    right: bool  # the first cause is right
    report: kvtide.validation.Report


def judged(world: World, fault: Fault, arch: str, level: str) -> Outcome:
    sample = world[arch]
    port = ported(sample.config, sample.weights, fault.name, level)
    report = kvtide.validate(port, sample.model, sample.tokens, free=4)
    first = report.findings[0].cause if report.findings else ""
    return Outcome(fault.name, arch, level, not report, first, first in fault.causes, report)


# Names that claim nothing: they say where, not why.
OPEN = ("", "numbers", "outputs", "embedding", "past_unseen", "refused", "precision")


def wrong(outcome: Outcome) -> bool:
    return outcome.found and not outcome.right and outcome.first not in OPEN


def campaign(folder: Path, seed: int, only: str = "", levels: tuple[str, ...] = LEVELS) -> Iterator[Outcome]:
    world = World(folder, seed)
    for arch in ALL:
        for level in levels:
            yield judged(world, Fault("", ("",), ()), arch, level)
    for fault in FAULTS:
        if only in fault.name:
            for arch in fault.archs:
                for level in levels:
                    if level == "full" or fault.name not in STATE_ONLY:
                        yield judged(world, fault, arch, level)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--level", choices=LEVELS)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="kvtide-faults-") as folder:
        for seed in range(options.seeds):
            for outcome in campaign(Path(folder), 100 + seed, options.only, (options.level,) if options.level else LEVELS):
                outcomes.append(outcome)
                alarm = not outcome.fault and outcome.found
                missed = outcome.fault and not outcome.found
                if alarm or missed or outcome.fault and not outcome.right:
                    what = "FALSE ALARM" if alarm else "missed" if missed else "WRONG" if wrong(outcome) else "unnamed"
                    print(f"{what:12} {outcome.level:7} {outcome.arch:7} {outcome.fault:28} said {outcome.first}", flush=True)
                    if options.verbose:
                        print(outcome.report)
    print("\n| level | ports | faults found | right cause first | wrong cause first |\n|---|---|---|---|---|")
    for level in LEVELS:
        faults = [o for o in outcomes if o.level == level and o.fault]
        if not faults:
            continue
        found, right, bad = (sum(map(f, faults)) for f in (lambda o: o.found, lambda o: o.right and o.found, wrong))
        share = [f"{n} ({100 * n / len(faults):.0f}%)" for n in (found, right)]
        print(f"| {level} | {len(faults)} | {share[0]} | {share[1]} | {bad} |")
    alarms = sum(o.found for o in outcomes if not o.fault)
    print(f"\n{sum(not o.fault for o in outcomes)} correct ports, {alarms} false alarms; "
          f"{len({o.fault for o in outcomes} - {''})} faults")  # fmt: skip
    return 1 if alarms or any(map(wrong, outcomes)) else 0


if __name__ == "__main__":
    sys.exit(main())
