"""Compares architectures with `transformers` in double precision, live, on tiny random models of several shapes, as folders and as GGUF files.

    python tools/references/compare_architectures.py --answers build/cmake/tests/session_answers [--only phi3] [--greedy 30]

Each reads a prompt at once, one by one, in chunks of 3, of 7 and of 64, then writes the likeliest token step by step.
Compared are the logits of every position (2e-4), what the state holds behind the prompt: keys, values and what
convolutions and recurrences carry (1e-5 of the largest), and the tokens (all equal). All chunks must give the same bits, and so must
the GGUF file, but where such a file has heads in another order.
"""

import argparse
import hashlib
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers

import gguf_export
import mxfp4
import tiny_folders
from in_double import in_double
from tiny_folders import LFM
from tiny_models import COMMON, Case, build, rope

LOGITS, STATES = 2e-4, 1e-5
PROMPT = 75  # tokens: longer than windows and than the contexts that rotations are scaled from
SPLITS = ((str(PROMPT), "at once"), ("1", "one by one"), ("3", "in threes"), ("7", "in sevens"), ("64", "64 and the rest"))

YARN = dict(factor=4.0, original_max_position_embeddings=32)
MINISTRAL = dict(YARN, mscale=1.0, mscale_all_dim=1.0, beta_fast=16.0, beta_slow=1.0, llama_4_scaling_beta=0.1)
FOUR = dict(num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5)
LLAMA3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
OLMO_TYPES = ["sliding_attention", "sliding_attention", "full_attention"]


# Sizes that leave short tails behind sixteen lanes. A quarter of a head rotates.
DELTA = dict(FOUR, head_dim=16, num_hidden_layers=4, linear_num_key_heads=2, linear_num_value_heads=4,
             linear_key_head_dim=12, linear_value_head_dim=20, rope_parameters=rope(theta=1000.0, partial_rotary_factor=0.25))  # fmt: skip
DELTA_MOE = dict(DELTA, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=20)


OSS = dict(FOUR, head_dim=16, num_hidden_layers=3, num_local_experts=5, num_experts_per_tok=2, sliding_window=11,
           tie_word_embeddings=False, rope_parameters=rope("yarn", 1000.0, **YARN, truncate=False))  # fmt: skip


LATENT = dict(num_attention_heads=4, num_key_value_heads=4, rms_norm_eps=1e-6, num_hidden_layers=3, kv_lora_rank=20, q_lora_rank=24,
              qk_nope_head_dim=12, qk_rope_head_dim=6, v_head_dim=10, n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=16,
              n_shared_experts=1)  # fmt: skip
DEEPSEEK = dict(LATENT, n_group=4, topk_group=2, first_k_dense_replace=1)
GLM = dict(LATENT, n_group=1, topk_group=1)


# Granite 4: two of three layers have Mamba-2.
GRANITE = dict(FOUR, attention_multiplier=0.3, embedding_multiplier=3.0, residual_multiplier=0.6, logits_scaling=2.5)
SPACE = dict(mamba_n_heads=4, mamba_d_state=12, mamba_n_groups=2, mamba_d_head=16)
HYBRID = dict(GRANITE, **SPACE, num_hidden_layers=3, num_local_experts=5, num_experts_per_tok=2, intermediate_size=16, shared_intermediate_size=20,
              layer_types=["linear_attention", "full_attention", "linear_attention"])  # fmt: skip
MAMBA = dict(num_heads=4, head_dim=16, state_size=12, n_groups=2)


# Nemotron-H: a layer is one block. transformers holds steps at time_step_min and above where it reads at once, only there: so none.
NEMOTRON = dict(num_attention_heads=4, num_key_value_heads=2, head_dim=12, mamba_num_heads=4, mamba_head_dim=16, ssm_state_size=12, n_groups=2,
                time_step_min=1e-30, tie_word_embeddings=False,
                layers_block_type=["linear_attention", "mlp", "linear_attention", "full_attention", "mlp", "linear_attention"])  # fmt: skip
NEMOTRON_MOE = dict(NEMOTRON, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=20, moe_shared_expert_intermediate_size=28,
                    routed_scaling_factor=2.5, layers_block_type=["linear_attention", "moe", "linear_attention", "full_attention", "moe"])  # fmt: skip


# Gemma 4: wider heads, of which a part turns, in layers that see everything.
GEMMA4 = dict(num_attention_heads=4, num_key_value_heads=2, head_dim=8, global_head_dim=16, rms_norm_eps=1e-6, num_hidden_layers=4, sliding_window=11,
              layer_types=["sliding_attention", "full_attention"] * 2, hidden_size_per_layer_input=0, final_logit_softcapping=8.0,
              rope_parameters=dict(sliding_attention=rope(theta=1000.0), full_attention=rope("proportional", 5000.0, partial_rotary_factor=0.25)))  # fmt: skip
INPUTS = dict(hidden_size_per_layer_input=6, vocab_size_per_layer_input=COMMON["vocab_size"])
BESIDE = dict(enable_moe_block=True, num_experts=5, top_k_experts=2, moe_intermediate_size=12)


def longrope(pairs: int, original: int, **more) -> dict:
    """Factors of the size that Phi 3.5 has; whether the short or the long ones hold follows from PROMPT."""
    factors = dict(short_factor=[1.0 + 0.05 * i for i in range(pairs)], long_factor=[1.1 + 3.0 * i for i in range(pairs)])
    # Phi3Config has the original context as a member of its own, too.
    return dict(original_max_position_embeddings=original, rope_parameters=rope("longrope", original_max_position_embeddings=original, **factors, **more))


def olmo_ropes(**full) -> dict:
    return dict(sliding_attention=rope(theta=5000.0), full_attention=rope(theta=5000.0) | full)


CASES = [
    Case("llama3 scaling, three heads of 10", "llama", "Llama", 401, "",
         dict(FOUR, hidden_size=36, num_attention_heads=3, num_key_value_heads=1, head_dim=10, rope_parameters=rope("llama3", 500.0, **LLAMA3))),
    Case("llama, yarn with an attention factor", "llama", "Llama", 402, "",
         dict(FOUR, rope_parameters=rope("yarn", 1000.0, **YARN, attention_factor=1.25, beta_fast=8.0, beta_slow=2.0))),
    Case("qwen2, yarn", "qwen2", "Qwen2", 403, "", dict(FOUR, rope_parameters=rope("yarn", 1000.0, **YARN))),
    Case("qwen3, linear", "qwen3", "Qwen3", 404, "", dict(FOUR, head_dim=12, rope_parameters=rope("linear", factor=4.0))),
    Case("smollm3", "smollm3", "SmolLM3", 411, "", dict(FOUR, num_hidden_layers=5)),
    Case("smollm3, llama3 scaling", "smollm3", "SmolLM3", 412, "",
         dict(FOUR, num_attention_heads=6, num_key_value_heads=2, hidden_size=36, intermediate_size=20, num_hidden_layers=4,
              rope_parameters=rope("llama3", 500.0, **LLAMA3))),
    Case("smollm3, listed layers", "smollm3", "SmolLM3", 413, "no gguf",
         dict(FOUR, num_hidden_layers=3, no_rope_layers=[0, 1, 0])),
    Case("smollm3, windows", "smollm3", "SmolLM3", 414, "no gguf",
         dict(FOUR, num_hidden_layers=4, no_rope_layer_interval=2, use_sliding_window=True, sliding_window=11)),
    Case("ministral3", "mistral3", "Ministral3", 421, "", dict(FOUR, head_dim=12, rope_parameters=rope("yarn", 1000.0, **MINISTRAL))),
    Case("ministral3, one KV head, window", "mistral3", "Ministral3", 422, "",
         dict(FOUR, num_key_value_heads=1, head_dim=8, sliding_window=13, tie_word_embeddings=False,
              rope_parameters=rope("yarn", 5000.0, **MINISTRAL))),
    Case("ministral3, wide heads", "mistral3", "Ministral3", 423, "",
         dict(FOUR, num_attention_heads=3, num_key_value_heads=3, head_dim=20, rope_parameters=rope("yarn", 1000.0, **MINISTRAL))),
    Case("ministral3, other factor", "mistral3", "Ministral3", 424, "",
         dict(FOUR, num_hidden_layers=1, head_dim=16, rope_parameters=rope("yarn", 1000.0, **dict(MINISTRAL, factor=2.5)))),
    Case("phi3", "phi3", "Phi3", 431, "", dict(FOUR)),
    Case("phi3, three quarters of a head", "phi3", "Phi3", 432, "",
         dict(FOUR, rope_parameters=rope(partial_rotary_factor=0.75))),
    Case("phi3, window, a head per KV head", "phi3", "Phi3", 433, "",
         dict(FOUR, num_key_value_heads=4, sliding_window=11, tie_word_embeddings=False)),
    Case("phi3, odd sizes", "phi3", "Phi3", 434, "",
         dict(FOUR, hidden_size=36, num_attention_heads=3, num_key_value_heads=1, intermediate_size=28, num_hidden_layers=3)),
    Case("phi3, longrope, a long text", "phi3", "Phi3", 435, "", dict(FOUR, **longrope(4, 16), max_position_embeddings=512)),
    Case("phi3, longrope, a short text", "phi3", "Phi3", 436, "", dict(FOUR, **longrope(4, 256), max_position_embeddings=512)),
    Case("phi3, longrope, half a head, an attention factor", "phi3", "Phi3", 437, "",
         dict(FOUR, **longrope(2, 32, attention_factor=1.25, partial_rotary_factor=0.5), num_key_value_heads=1,
              max_position_embeddings=4096)),
    Case("llama, longrope, a factor", "llama", "Llama", 438, "no gguf",
         dict(FOUR, **longrope(4, 40, factor=3.0), head_dim=8, max_position_embeddings=2048)),
    Case("olmo2", "olmo2", "Olmo2", 441, "", dict(FOUR)),
    Case("olmo2, three heads", "olmo2", "Olmo2", 442, "",
         dict(FOUR, hidden_size=36, num_attention_heads=3, num_key_value_heads=3, intermediate_size=28, tie_word_embeddings=False)),
    Case("olmo3", "olmo2", "Olmo3", 443, "",
         dict(FOUR, num_hidden_layers=4, sliding_window=11, rope_parameters=olmo_ropes())),
    Case("olmo3, yarn", "olmo2", "Olmo3", 444, "",
         dict(FOUR, num_hidden_layers=3, sliding_window=16, layer_types=OLMO_TYPES,
              rope_parameters=olmo_ropes(rope_type="yarn", **YARN, attention_factor=1.25))),
    Case("qwen3_moe", "qwen3moe", "Qwen3Moe", 451, "",
         dict(FOUR, head_dim=8, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, norm_topk_prob=True)),
    Case("qwen3_moe, all of three experts", "qwen3moe", "Qwen3Moe", 452, "",
         dict(FOUR, head_dim=12, num_experts=3, num_experts_per_tok=3, moe_intermediate_size=20, norm_topk_prob=True,
              hidden_size=36, tie_word_embeddings=False)),
    Case("qwen3_moe, one of 16, shares as they are", "qwen3moe", "Qwen3Moe", 453, "no gguf",
         dict(FOUR, head_dim=8, num_experts=16, num_experts_per_tok=1, moe_intermediate_size=12)),
    Case("qwen3_moe, some layers dense", "qwen3moe", "Qwen3Moe", 454, "no gguf",
         dict(FOUR, head_dim=8, num_hidden_layers=5, num_experts=9, num_experts_per_tok=4, moe_intermediate_size=16,
              norm_topk_prob=True, decoder_sparse_step=2, mlp_only_layers=[3], use_sliding_window=True, sliding_window=11)),
    Case("lfm2", "lfm2", "Lfm2", 461, "", dict(LFM, num_hidden_layers=3, block_auto_adjust_ff_dim=False)),
    Case("lfm2, adjusted width, four taps", "lfm2", "Lfm2", 462, "",
         dict(LFM, num_hidden_layers=3, conv_L_cache=4, intermediate_size=50, block_multiple_of=12, tie_word_embeddings=False)),
    Case("lfm2, biases", "lfm2", "Lfm2", 463, "no gguf",
         dict(LFM, num_hidden_layers=3, conv_bias=True, conv_L_cache=2, block_auto_adjust_ff_dim=False)),
    Case("lfm2, three heads, attention last", "lfm2", "Lfm2", 464, "",
         dict(LFM, hidden_size=36, num_attention_heads=3, num_key_value_heads=1, num_hidden_layers=5,
              layer_types=["conv", "conv", "full_attention", "conv", "full_attention"], block_auto_adjust_ff_dim=False)),
    Case("lfm2, attention in every layer", "lfm2", "Lfm2", 465, "",
         dict(LFM, layer_types=["full_attention"] * 2, block_auto_adjust_ff_dim=False)),
    Case("lfm2_moe", "lfm2moe", "Lfm2Moe", 471, "",
         dict(LFM, num_hidden_layers=3, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, num_dense_layers=1)),
    Case("lfm2_moe, all of three experts", "lfm2moe", "Lfm2Moe", 472, "",
         dict(LFM, hidden_size=40, num_hidden_layers=3, num_experts=3, num_experts_per_tok=3, moe_intermediate_size=20,
              num_dense_layers=0)),
    Case("lfm2_moe, no bias, scaled shares", "lfm2moe", "Lfm2Moe", 473, "no gguf",
         dict(LFM, num_hidden_layers=3, num_experts=9, num_experts_per_tok=4, moe_intermediate_size=12, num_dense_layers=2,
              use_expert_bias=False, norm_topk_prob=False, routed_scaling_factor=1.5)),
    Case("lfm2_moe, one of 16", "lfm2moe", "Lfm2Moe", 474, "",
         dict(LFM, num_hidden_layers=4, layer_types=["conv", "full_attention", "full_attention", "conv"], num_experts=16,
              num_experts_per_tok=1, moe_intermediate_size=12, num_dense_layers=1, conv_L_cache=5)),
    Case("qwen3_5", "qwen35", "Qwen3_5", 481, "", dict(DELTA)),
    Case("qwen3_5, a value head per key head, wide, three taps", "qwen35", "Qwen3_5", 482, "",
         dict(DELTA, linear_num_value_heads=2, linear_key_head_dim=33, linear_value_head_dim=85, linear_conv_kernel_dim=3,
              tie_word_embeddings=False, full_attention_interval=2)),
    Case("qwen3_5, one key head for five, attention first", "qwen35", "Qwen3_5", 483, "no gguf",
         dict(DELTA, hidden_size=36, num_attention_heads=3, num_key_value_heads=1, linear_num_key_heads=1, linear_num_value_heads=5,
              num_hidden_layers=3, layer_types=["full_attention", "linear_attention", "linear_attention"])),
    Case("qwen3_5, three key heads for six, half a head rotates", "qwen35", "Qwen3_5", 484, "",
         dict(DELTA, hidden_size=40, intermediate_size=28, linear_num_key_heads=3, linear_num_value_heads=6, linear_key_head_dim=16,
              linear_value_head_dim=16, num_hidden_layers=6, full_attention_interval=3,
              rope_parameters=rope(theta=1000.0, partial_rotary_factor=0.5))),
    Case("qwen3_5_moe", "qwen35moe", "Qwen3_5Moe", 485, "", dict(DELTA_MOE)),
    Case("qwen3_5_moe, all of three experts", "qwen35moe", "Qwen3_5Moe", 486, "",
         dict(DELTA_MOE, num_experts=3, num_experts_per_tok=3, linear_num_value_heads=2, full_attention_interval=2)),
    Case("qwen3_5_moe, one of 16, odd widths", "qwen35moe", "Qwen3_5Moe", 487, "",
         dict(DELTA_MOE, hidden_size=36, num_attention_heads=3, num_key_value_heads=3, num_experts=16, num_experts_per_tok=1,
              moe_intermediate_size=12, shared_expert_intermediate_size=7, tie_word_embeddings=False)),
    Case("qwen3_5_moe, attention last and first", "qwen35moe", "Qwen3_5Moe", 488, "no gguf",
         dict(DELTA_MOE, num_experts=5, linear_conv_kernel_dim=2,
              layer_types=["full_attention", "linear_attention", "linear_attention", "full_attention"])),
    Case("qwen3_next", "qwen3next", "Qwen3Next", 491, "", dict(DELTA_MOE)),
    Case("qwen3_next, a value head per key head", "qwen3next", "Qwen3Next", 492, "",
         dict(DELTA_MOE, linear_num_value_heads=2, linear_value_head_dim=33, num_experts=3, num_experts_per_tok=3,
              full_attention_interval=2)),
    Case("qwen3_next, shares as they are, some layers dense", "qwen3next", "Qwen3Next", 493, "no gguf",
         dict(DELTA_MOE, norm_topk_prob=False, mlp_only_layers=[1], num_experts=9, num_experts_per_tok=4)),
    Case("qwen3_next, three key heads for six, odd widths", "qwen3next", "Qwen3Next", 494, "",
         dict(DELTA_MOE, hidden_size=36, num_attention_heads=3, num_key_value_heads=1, linear_num_key_heads=3,
              linear_num_value_heads=6, linear_key_head_dim=7, linear_value_head_dim=9, moe_intermediate_size=12,
              shared_expert_intermediate_size=5, tie_word_embeddings=False)),
    Case("gpt_oss", "gpt-oss", "GptOss", 501, "", dict(OSS)),
    Case("gpt_oss, odd widths, three heads, all of three experts", "gpt-oss", "GptOss", 502, "",
         dict(OSS, hidden_size=36, intermediate_size=20, num_attention_heads=3, num_key_value_heads=1, head_dim=10, num_hidden_layers=2,
              num_local_experts=3, num_experts_per_tok=3)),
    Case("gpt_oss, listed layers, a low limit", "gpt-oss", "GptOss", 503, "no gguf",
         dict(OSS, layer_types=["full_attention", "full_attention", "sliding_attention"], num_local_experts=16, num_experts_per_tok=1,
              swiglu_limit=1.5, swiglu_alpha=1.2)),
    Case("gpt_oss, no biases around attention", "gpt-oss", "GptOss", 504, "",
         dict(OSS, attention_bias=False, num_hidden_layers=2, sliding_window=16, num_key_value_heads=4)),
    Case("gpt_oss, MXFP4", "gpt-oss", "GptOss", 505, "mxfp4", dict(OSS)),
    Case("gpt_oss, MXFP4, wide", "gpt-oss", "GptOss", 506, "mxfp4",
         dict(OSS, hidden_size=96, intermediate_size=64, num_hidden_layers=2, num_local_experts=7, num_experts_per_tok=4)),
    Case("deepseek_v3", "deepseek2", "DeepseekV3", 511, "", dict(DEEPSEEK)),
    Case("deepseek_v3, yarn, no latent of queries", "deepseek2", "DeepseekV3", 512, "",
         dict(DEEPSEEK, q_lora_rank=None, n_group=2, topk_group=1, n_shared_experts=2, num_experts_per_tok=2, tie_word_embeddings=False,
              rope_parameters=rope("yarn", 1000.0, **YARN, mscale=1.0, mscale_all_dim=1.0))),
    Case("deepseek_v3, odd widths, no experts in two layers", "deepseek2", "DeepseekV3", 513, "",
         dict(DEEPSEEK, hidden_size=36, num_attention_heads=3, num_key_value_heads=3, kv_lora_rank=17, q_lora_rank=11, qk_nope_head_dim=7,
              qk_rope_head_dim=10, v_head_dim=5, first_k_dense_replace=2, norm_topk_prob=False, moe_intermediate_size=12)),
    Case("deepseek_v3, halves rotate, five heads", "deepseek2", "DeepseekV3", 514, "no gguf",
         dict(DEEPSEEK, hidden_size=40, num_attention_heads=5, num_key_value_heads=5, rope_interleave=False, kv_lora_rank=32)),
    Case("glm4_moe_lite", "deepseek2", "Glm4MoeLite", 515, "", dict(GLM)),
    Case("glm4_moe_lite, another epsilon, all of three experts", "deepseek2", "Glm4MoeLite", 516, "no gguf",
         dict(GLM, rms_norm_eps=1e-3, n_routed_experts=3, mlp_layer_types=["sparse", "dense", "sparse"])),
    Case("gemma4, keys are values, fewer KV heads", "gemma4", "Gemma4", 551, "", dict(GEMMA4, attention_k_eq_v=True, num_global_key_value_heads=1)),
    Case("gemma4, shared rows, numbers for every layer", "gemma4", "Gemma4", 552, "",
         dict(GEMMA4 | INPUTS, num_hidden_layers=6, layer_types=["sliding_attention", "full_attention"] * 3, num_kv_shared_layers=2,
              use_double_wide_mlp=True)),
    Case("gemma4, experts beside", "gemma4", "Gemma4", 553, "", dict(GEMMA4 | BESIDE, attention_k_eq_v=True, num_global_key_value_heads=1)),
    Case("gemma4, odd widths, three heads, no cap", "gemma4", "Gemma4", 554, "",
         dict(GEMMA4 | INPUTS, hidden_size=36, intermediate_size=20, num_attention_heads=3, num_key_value_heads=1, head_dim=10, global_head_dim=20,
              final_logit_softcapping=None, num_hidden_layers=7, num_kv_shared_layers=4,
              layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "sliding_attention",
                           "sliding_attention", "full_attention"])),
    Case("gemma4, all of it", "gemma4", "Gemma4", 555, "",
         dict(GEMMA4 | INPUTS | BESIDE, num_hidden_layers=6, layer_types=["sliding_attention", "full_attention"] * 3, num_kv_shared_layers=3,
              use_double_wide_mlp=True, attention_k_eq_v=True, num_global_key_value_heads=1, top_k_experts=5)),
    Case("gemma4, its own head, a scaled rotation", "gemma4", "Gemma4", 556, "no gguf",
         dict(GEMMA4, global_head_dim=12, tie_word_embeddings=False,
              rope_parameters=dict(sliding_attention=rope(theta=1000.0), full_attention=rope("proportional", 5000.0, partial_rotary_factor=0.5, factor=4.0)))),
    Case("mamba2", "mamba2", "Mamba2", 521, "", dict(MAMBA)),
    Case("mamba2, a group for all, wide, three taps", "mamba2", "Mamba2", 522, "",
         dict(MAMBA, num_heads=3, head_dim=24, expand=2, hidden_size=36, state_size=33, n_groups=1, conv_kernel=3, num_hidden_layers=3,
              tie_word_embeddings=False)),
    Case("mamba2, a group a head, biases", "mamba2", "Mamba2", 523, "no gguf",
         dict(MAMBA, num_heads=8, head_dim=8, n_groups=8, use_bias=True, state_size=7)),
    Case("mamba2, no bias of the convolution, two taps", "mamba2", "Mamba2", 524, "no gguf",
         dict(MAMBA, num_heads=1, head_dim=85, expand=5, hidden_size=17, n_groups=1, use_conv_bias=False, conv_kernel=2, state_size=16)),
    Case("granitemoehybrid", "granitehybrid", "GraniteMoeHybrid", 531, "", dict(HYBRID)),
    Case("granitemoehybrid, dense, odd widths, one group", "granitehybrid", "GraniteMoeHybrid", 532, "",
         dict(HYBRID, num_local_experts=0, hidden_size=36, num_attention_heads=3, num_key_value_heads=1, mamba_n_heads=6, mamba_d_head=12,
              mamba_n_groups=1, mamba_d_state=33, mamba_d_conv=3, shared_intermediate_size=28, tie_word_embeddings=False)),
    Case("granitemoehybrid, rotated, attention first and last", "granitehybrid", "GraniteMoeHybrid", 533, "",
         dict(HYBRID, num_hidden_layers=4, position_embedding_type="rope", rope_parameters=rope(theta=1000.0), num_local_experts=16,
              num_experts_per_tok=1, layer_types=["full_attention", "linear_attention", "linear_attention", "full_attention"])),
    Case("granitemoehybrid, biases, all of three experts", "granitehybrid", "GraniteMoeHybrid", 534, "no gguf",
         dict(HYBRID, mamba_proj_bias=True, attention_bias=True, mamba_n_groups=4, num_local_experts=3, num_experts_per_tok=3)),
    Case("granitemoehybrid, attention alone", "granite", "GraniteMoeHybrid", 535, "",
         dict(HYBRID, num_local_experts=0, position_embedding_type="rope", layer_types=["full_attention"] * 3)),
    Case("nemotron_h", "nemotron_h", "NemotronH", 561, "", dict(NEMOTRON)),
    Case("nemotron_h, odd widths, a group for all, attention first and twice", "nemotron_h", "NemotronH", 562, "",
         dict(NEMOTRON, hidden_size=36, intermediate_size=50, num_attention_heads=3, num_key_value_heads=1, head_dim=10, mamba_num_heads=3,
              mamba_head_dim=10, ssm_state_size=33, n_groups=1, conv_kernel=3,
              layers_block_type=["full_attention", "full_attention", "mlp", "linear_attention", "mlp", "mlp"])),
    Case("nemotron_h, biases, a group a head, recurrence last", "nemotron_h", "NemotronH", 563, "no gguf",
         dict(NEMOTRON, use_bias=True, attention_bias=True, mlp_bias=True, n_groups=4, use_conv_bias=False)),
    Case("nemotron_h, experts", "nemotron_h_moe", "NemotronH", 564, "", dict(NEMOTRON_MOE)),
    Case("nemotron_h, all of three experts, shares as they are, odd widths", "nemotron_h_moe", "NemotronH", 565, "",
         dict(NEMOTRON_MOE, hidden_size=36, moe_intermediate_size=12, moe_shared_expert_intermediate_size=20, n_routed_experts=3, num_experts_per_tok=3,
              norm_topk_prob=False, mamba_num_heads=6, mamba_head_dim=6, n_groups=3, layers_block_type=["moe", "linear_attention", "full_attention"])),
    Case("nemotron_h, experts in groups, beside a feed-forward in another layer", "nemotron_h_moe", "NemotronH", 566, "no gguf",
         dict(NEMOTRON_MOE, n_routed_experts=8, n_group=4, topk_group=2, num_experts_per_tok=3,
              layers_block_type=["mlp", "linear_attention", "moe", "full_attention"])),
    Case("granite", "granite", "Granite", 541, "", dict(GRANITE)),
    Case("granite, biases, three heads", "granite", "Granite", 542, "no gguf",
         dict(GRANITE, hidden_size=36, num_attention_heads=3, num_key_value_heads=3, attention_bias=True)),
    Case("granitemoe", "granitemoe", "GraniteMoe", 543, "", dict(GRANITE, num_local_experts=5, num_experts_per_tok=2)),
    Case("granitemoeshared", "granitemoe", "GraniteMoeShared", 544, "",
         dict(GRANITE, num_local_experts=3, num_experts_per_tok=2, shared_intermediate_size=20)),
]  # fmt: skip


def carried_matrix(model, matrix: np.ndarray) -> np.ndarray:
    """[heads][keys][values], flat: Mamba-2 of transformers has the last two the other way round."""
    mamba = model.config.model_type in ("mamba2", "granitemoehybrid", "nemotron_h")
    return (matrix.swapaxes(1, 2) if mamba else matrix).reshape(len(matrix), -1).copy()


def reference(model, ids: np.ndarray, greedy: int) -> tuple[np.ndarray, list[np.ndarray], list[int]]:
    """Logits behind every token, what the layers hold behind the prompt (a window: its newest rows), tokens chosen."""
    rows, chosen = [], []
    with torch.no_grad():
        out = model(torch.from_numpy(ids.astype(np.int64))[None], use_cache=True)
        rows.append(out.logits[0].numpy())
        parts, name = [], "cache_params" if "cache_params" in out else "past_key_values"
        cache = out[name]
        for layer in cache.layers:
            if getattr(layer, "keys", None) is not None and getattr(model.config, "kv_lora_rank", None):
                latent, rotated = layer.keys[0].numpy(), layer.values[0].numpy()
                parts += [np.concatenate([rotated, latent], axis=-1)] * 2  # a row is kept once
            elif getattr(layer, "keys", None) is not None:
                parts += [layer.keys[0].numpy().copy(), layer.values[0].numpy().copy()]
        for layer in cache.layers:
            if getattr(layer, "conv_states", None):
                taps = layer.conv_states[0].shape[-1]  # as many columns as taps are kept; the oldest is never looked at again
                parts.append(layer.conv_states[0][0][:, -(taps - 1) :].numpy().copy())
                if layer.recurrent_states.get(0) is not None:
                    parts.append(carried_matrix(model, layer.recurrent_states[0][0].numpy()))
        for _ in range(greedy):
            chosen.append(int(rows[-1][-1].argmax()))
            out = model(torch.tensor([[chosen[-1]]]), use_cache=True, **{name: cache})
            rows.append(out.logits[0].numpy())
    return np.concatenate(rows), parts, chosen


def state_difference(got: np.ndarray, parts: list[np.ndarray], paired: bool) -> float:
    """Of values and what is carried; of keys where their elements lie as in the folder."""
    worst, at = 0.0, 0
    for i, want in enumerate(parts):
        if want.ndim == 3:
            heads, held, dim = want.shape
            ours = got[at : at + heads * PROMPT * dim].reshape(heads, PROMPT, dim)[:, PROMPT - held :]
            at += heads * PROMPT * dim
        else:
            ours = got[at : at + want.size].reshape(want.shape)
            at += want.size
        if want.size and not (paired and i % 2 == 0):
            worst = max(worst, float(np.abs(ours - want).max() / max(1.0, np.abs(want).max())))
    return worst if at == got.size else float("nan")


class Comparison:
    def __init__(self, program: str, greedy: int):
        self.program, self.greedy, self.fine = program, greedy, True

    def answer(self, path: pathlib.Path, scratch: pathlib.Path, split: str) -> tuple[np.ndarray, np.ndarray, list[int]]:
        command = [self.program, str(path), str(scratch / "ids"), str(scratch / "out"), split, str(self.greedy)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise ValueError(done.stderr.strip())
        state = np.fromfile(scratch / "out.state", dtype="<f4")
        return np.fromfile(scratch / "out", dtype="<f4"), state, [int(word) for word in done.stdout.split()]

    def check(self, name: str, path: pathlib.Path, scratch: pathlib.Path, model, splits) -> set[str]:
        wanted, parts, chosen = self.reference
        worst, states, same, bits = 0.0, 0.0, True, set()
        for split, _ in splits:
            got, state, tokens = self.answer(path, scratch, split)
            bits.add(hashlib.sha256(got.tobytes()).hexdigest())
            got = got.reshape(-1, model.config.vocab_size)
            worst = max(worst, float(np.abs(got - wanted).max())) if got.shape == wanted.shape else float("nan")
            states = max(states, state_difference(state, parts, False))
            same = same and tokens == chosen
        ok = worst <= LOGITS and states <= STATES and same and len(bits) == 1
        self.fine = self.fine and ok
        print(f"{'ok  ' if ok else 'FAIL'}  {name:44} logits {worst:.1e} of {wanted.min():.1f} .. {wanted.max():.1f}, states {states:.1e}, "
              f"{self.greedy} greedy tokens {'equal' if same else 'differ'}, {len(bits)} bits of {len(splits)} ways", flush=True)  # fmt: skip
        return bits

    def run(self, case: Case, scratch: pathlib.Path) -> None:
        model = build(case)
        scratch.mkdir()
        if case.shows == "mxfp4":
            mxfp4.round_experts(model)
        tiny_folders.save_published(model, scratch / "folder")
        if case.shows == "mxfp4":
            mxfp4.pack_folder(scratch / "folder")
        tiny_folders.write_tokenizer(scratch / "folder")
        ids = np.random.RandomState(5).randint(0, model.config.vocab_size, PROMPT).astype(np.int32)
        (scratch / "ids").write_bytes(ids.astype("<i4").tobytes())
        with in_double(model):
            self.reference = reference(model, ids, self.greedy)
        bits = self.check(case.name, scratch / "folder", scratch, model, SPLITS)
        if case.shows == "no gguf":
            return
        gguf_export.export(model, case.arch, case.name, str(scratch / "model.gguf"), case.shows == "mxfp4")
        tiled = gguf_export.tiled_states(self.reference[1], model.config, case.arch)
        if tiled is not None:  # the same heads in another order: other sums, and so other bits
            self.reference = (self.reference[0], tiled, self.reference[2])
            self.check(f"{case.name}, GGUF", scratch / "model.gguf", scratch, model, SPLITS)
        elif self.check(f"{case.name}, GGUF", scratch / "model.gguf", scratch, model, SPLITS[:1]) != bits:
            print(f"FAIL  {case.name}: the GGUF file gives other bits than the folder")
            self.fine = False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--answers", required=True, help="the program session_answers")
    parser.add_argument("--only", default="", help="cases whose names begin so")
    parser.add_argument("--greedy", type=int, default=30)
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    comparison = Comparison(args.answers, args.greedy)
    with tempfile.TemporaryDirectory(prefix="kvtide-architectures-") as scratch:
        for number, case in enumerate(case for case in CASES if case.name.startswith(args.only)):
            try:
                comparison.run(case, pathlib.Path(scratch) / f"{number}")
            except (ValueError, TypeError, RuntimeError) as error:
                print(f"FAIL  {case.name}: {error}")
                comparison.fine = False
    return 0 if comparison.fine else 1


if __name__ == "__main__":
    sys.exit(main())
