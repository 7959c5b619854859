"""Ports of every architecture in NumPy, as someone would write them: with a cache, in float32, from the papers.

``Port`` is right; ``Port(..., fault="name")`` is wrong in one way (planted_faults.py has the list). It shares no code with
the engine or the validator. ``level`` says how much it shows: "full" (layers can be fed, rows are shown), "hidden" (the
residual stream only) or "logits".
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

F = np.float32


def silu(x):
    return x / (1 + np.exp(-x))


def gelu_tanh(x):
    return F(0.5) * x * (1 + np.tanh(F(np.sqrt(2 / np.pi)) * (x + F(0.044715) * x * x * x)))


def gelu_erf(x):
    # Abramowitz and Stegun 7.1.26 is too coarse: the error function by its series and its continued fraction.
    from math import erf

    return (0.5 * x * (1 + np.vectorize(erf)(x.astype(np.float64) / np.sqrt(2)))).astype(F)


def quick_gelu(x):
    return x / (1 + np.exp(F(-1.702) * x))


def as_bf16(x):
    bits = np.ascontiguousarray(x, F).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(F)


def as_f16(x):
    return np.asarray(x, F).astype(np.float16).astype(F)


class Port:
    def __init__(self, config: dict, weights: dict[str, np.ndarray], fault: str = "", level: str = "full", only: int = -1):
        self.c, self.w, self.planted, self.level, self.only = config, weights, fault, level, only
        self.arch = config["model_type"].removesuffix("_text")
        self.at = -1  # layer that runs
        self.name = f"{self.arch} in NumPy"
        if self.arch == "gpt2":
            self.layers, self.width = config["n_layer"], config["n_embd"]
            self.heads = self.groups = config["n_head"]
            self.dim, self.eps = self.width // self.heads, config["layer_norm_epsilon"]
        else:
            self.layers, self.width = config["num_hidden_layers"], config["hidden_size"]
            self.heads, self.groups = config["num_attention_heads"], config["num_key_value_heads"]
            self.dim, self.eps = config["head_dim"], config["rms_norm_eps"]
        self.vocab = config["vocab_size"]
        kinds = config.get("layer_types") or ["full_attention"] * self.layers
        window = config.get("sliding_window")
        self.kinds = kinds
        self.windows = [window if "sliding" in kind else None for kind in kinds]

    def f(self, *names: str) -> bool:
        """Whether one of these faults is planted here."""
        return self.planted in names and self.only in (-1, self.at)

    # -- what a validator calls ---------------------------------------------------------------------------------------

    def make_state(self) -> dict[str, Any]:
        empty = [np.zeros((self.groups, 0, self.dim), F) for _ in range(2 * self.layers)]
        return {"n": 0, "k": empty[: self.layers], "v": empty[self.layers :], "u": [None] * self.layers, "late": [None] * self.layers}

    def predict(self, tokens, state, inputs=None):
        n, count = state["n"], len(tokens)
        if self.f("state_recreated"):
            state.update(self.make_state())
            n = 0
        x = self.embed(np.asarray(tokens), n)
        hidden, self.router, entered_parallel = [x], None, None
        for self.at in range(self.layers):
            if inputs is not None:
                x = np.asarray(inputs[self.at], F)
            x = self.layer(self.swapped(self.at), x, state, n)
            hidden.append(x)
        self.at = -1
        state["n"] = n + count
        logits = self.head(x)
        if self.level == "logits":
            return logits
        return {"logits": logits, "hidden": np.stack(hidden)}

    def swapped(self, layer: int) -> int:
        return {0: 1, 1: 0}.get(layer, layer) if self.planted == "layers_swapped" else layer

    def rows(self, state, layer):
        return state["k"][layer], state["v"][layer]

    def truncate(self, state, length):
        state["n"] = length
        for part in ("k", "v"):
            state[part] = [rows[:, :length] for rows in state[part]]
        for part in ("u", "late"):
            state[part] = [None if rows is None else rows[:length] for rows in state[part]]

    def fork(self, state):
        return state if self.planted == "fork_shares" else copy.deepcopy(state)

    def snapshot(self, state):
        return copy.deepcopy(state)

    def restore(self, saved):
        return copy.deepcopy(saved)

    # -- before and behind the layers ---------------------------------------------------------------------------------

    def embed(self, ids, n):
        if self.arch == "gpt2":
            at = n + np.arange(len(ids))
            if self.f("positions_in_call"):
                at = np.arange(len(ids))
            if self.f("positions_ahead"):
                at = at + 1
            return self.w["transformer.wte.weight"][ids] + self.w["transformer.wpe.weight"][at]
        x = self.w["model.embed_tokens.weight"][ids]
        if self.arch == "gemma3" and not self.f("embedding_unscaled"):
            x = x * F(np.sqrt(self.width))
        if self.arch != "gemma3" and self.f("embedding_scaled"):
            x = x * F(np.sqrt(self.width))
        if self.arch == "zaya":
            x = (x + self.w["model.input_hidden_states_bias"]) * self.w["model.input_hidden_states_scale"]
        return x

    def head(self, x):
        if self.arch == "gpt2":
            x = self.layer_norm(x, "transformer.ln_f")
            matrix = self.w["transformer.wte.weight"]
        else:
            if not self.f("last_norm_skipped"):
                x = self.rms(x, self.w["model.norm.weight"], "last")
            matrix = self.w.get("lm_head.weight", self.w["model.embed_tokens.weight"])
        if self.f("head_transposed"):
            matrix = matrix.reshape(self.width, self.vocab).T
        logits = x @ matrix.T
        if self.f("logits_times_three"):
            logits = logits * 3
        if self.f("logits_capped"):
            logits = 30 * np.tanh(logits / 30)
        return logits

    # -- norms --------------------------------------------------------------------------------------------------------

    def rms(self, x, weight, place):
        eps = F(1e-3) if self.f("eps_1e-3") else F(self.eps)
        if place == "attention" and self.f("attention_norm_skipped"):
            return x
        if self.f("norms_take_mean"):
            x = x - x.mean(-1, keepdims=True)
        y = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
        if self.arch == "gemma3":
            weight = weight if self.f("norm_lacks_one") else 1 + weight
        elif self.f("norm_has_one"):
            weight = 1 + weight
        if place == "feed_forward" and self.f("norm_weight_dropped"):
            return y
        return y * weight

    def layer_norm(self, x, name):
        eps = F(1e-3) if self.f("eps_1e-3") else F(self.eps)
        if not self.f("norm_keeps_mean"):
            x = x - x.mean(-1, keepdims=True)
        y = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * self.w[name + ".weight"]
        return y if self.f("norm_bias_dropped") else y + self.w[name + ".bias"]

    # -- one layer ----------------------------------------------------------------------------------------------------

    def layer(self, i, x, state, n):
        entered = x
        if self.arch == "gpt2":
            name = f"transformer.h.{i}."
            normed = self.layer_norm(x, name + "ln_1")
            x = self.join(x, self.attention(i, normed, state, n), normed, "attention")
            normed = self.layer_norm(x, name + "ln_2")
            inner = normed @ self.w[name + "mlp.c_fc.weight"]
            if not self.f("mlp_bias_dropped"):
                inner = inner + self.w[name + "mlp.c_fc.bias"]
            out = self.act(inner) @ self.w[name + "mlp.c_proj.weight"]
            if not self.f("mlp_bias_dropped"):
                out = out + self.w[name + "mlp.c_proj.bias"]
            return self.join(x, out, normed, "feed_forward")
        name = f"model.layers.{i}."
        gemma = self.arch == "gemma3"
        normed = self.rms(x, self.w[name + "input_layernorm.weight"], "attention")
        out = self.attention(i, normed, state, n)
        if gemma and not self.f("post_norm_skipped"):
            out = self.rms(out, self.w[name + "post_attention_layernorm.weight"], "behind")
        x = self.join(x, out, normed, "attention", name + "post_attention_residual_scale.")
        before = "pre_feedforward_layernorm" if gemma else "post_attention_layernorm"
        normed = self.rms(entered if self.f("parallel") else x, self.w[name + before + ".weight"], "feed_forward")
        out = self.experts(i, normed) if self.arch == "zaya" else self.mlp(name + "mlp.", normed)
        if gemma and not self.f("post_norm_skipped"):
            out = self.rms(out, self.w[name + "post_feedforward_layernorm.weight"], "behind")
        return self.join(x, out, normed, "feed_forward", name + "post_mlp_residual_scale.")

    def join(self, x, out, normed, part, scales=""):
        if self.arch == "zaya" and not self.f("residual_unscaled"):
            get = lambda kind: self.w[scales + kind]  # noqa: E731
            out = (out + get("hidden_states_bias")) * get("hidden_states_scale")
            x = (x + get("residual_bias")) * get("residual_scale")
        if self.f("residual_twice_" + part):
            x = x + x
        if self.f("residual_normed_" + part):
            x = normed
        if self.f("residual_dropped_" + part):
            x = 0 * x
        return (x + out).astype(F)

    def act(self, x):
        kind = {"gemma3": gelu_tanh, "gpt2": gelu_tanh}.get(self.arch, silu)
        for fault, other in (("quick_gelu", quick_gelu), ("erf_gelu", gelu_erf), ("silu", silu), ("tanh_gelu", gelu_tanh),
                             ("relu", lambda v: np.maximum(v, 0)), ("no_activation", lambda v: v)):  # fmt: skip
            if self.f("act_" + fault):
                kind = other
        return kind(x)

    def mlp(self, name, x):
        gate, up = x @ self.w[name + "gate_proj.weight"].T, x @ self.w[name + "up_proj.weight"].T
        if self.f("gate_and_up_swapped"):
            gate, up = up, gate
        return (self.act(gate) * up) @ self.w[name + "down_proj.weight"].T

    # -- attention ----------------------------------------------------------------------------------------------------

    def frequencies(self, i):
        rope = self.c["rope_parameters"]
        rope = rope.get(self.kinds[i], rope)
        theta, share = rope["rope_theta"], rope.get("partial_rotary_factor", 1.0)
        if self.f("rope_theta"):
            theta = 500000.0
        if self.f("rope_theta_odd"):
            theta = 77777.0
        if self.f("rope_of_other_layers"):
            theta = next(r["rope_theta"] for r in self.c["rope_parameters"].values() if r["rope_theta"] != theta)
        if self.f("rope_full_width"):
            share = 1.0
        dims = int(self.dim * share)
        f = theta ** (-np.arange(0, dims, 2) / dims)
        if rope["rope_type"] == "linear" and not self.f("rope_unscaled"):
            f = f / rope["factor"]
        if rope["rope_type"] == "llama3" and not self.f("rope_unscaled"):
            wave = 2 * np.pi / f
            low, high = rope["original_max_position_embeddings"] / rope["low_freq_factor"], \
                rope["original_max_position_embeddings"] / rope["high_freq_factor"]
            smooth = (rope["original_max_position_embeddings"] / wave - rope["low_freq_factor"]) / (
                rope["high_freq_factor"] - rope["low_freq_factor"])
            f = np.where(wave > low, f / rope["factor"],
                         np.where(wave < high, f, (1 - smooth) * f / rope["factor"] + smooth * f))
        if self.f("rope_halved"):
            f = f / 2
        if self.f("rope_sign"):
            f = -f
        return f

    def rotate(self, x, positions, i):
        if self.arch == "gpt2" or self.f("rope_skipped"):
            return x
        f = self.frequencies(i)
        half = len(f)
        angles = positions[:, None] * f[None]
        if self.f("angles_f16"):
            angles = as_f16(as_f16(positions.astype(F))[:, None] * as_f16(f.astype(F))[None])
        cos, sin = np.cos(angles)[:, None].astype(F), np.sin(angles)[:, None].astype(F)
        y = x.copy()
        if self.f("rope_neighbours"):
            a, b = x[..., 0 : 2 * half : 2], x[..., 1 : 2 * half : 2]
            y[..., 0 : 2 * half : 2], y[..., 1 : 2 * half : 2] = a * cos - b * sin, a * sin + b * cos
        else:
            a, b = x[..., :half], x[..., half : 2 * half]
            y[..., :half], y[..., half : 2 * half] = a * cos - b * sin, a * sin + b * cos
        return y

    def project(self, i, x):
        if self.arch == "gpt2":
            out = x @ self.w[f"transformer.h.{i}.attn.c_attn.weight"]
            if not self.f("qkv_bias_dropped"):
                out = out + self.w[f"transformer.h.{i}.attn.c_attn.bias"]
            return np.split(out, 3, axis=-1)
        parts = []
        for part in "qkv":
            name = f"model.layers.{i}.self_attn.{part}_proj."
            out = x @ self.w[name + "weight"].T
            bias = self.w.get(name + "bias")
            if bias is not None and not self.f("qkv_bias_dropped", part + "_bias_dropped"):
                out = out + bias
            parts.append(out)
        return parts

    def attention(self, i, x, state, n):
        count, own = len(x), self.at
        if self.arch == "zaya":
            q, k, v = self.compressed(i, x, state, n)
        else:
            q, k, v = self.project(i, x)
            if self.f("keys_and_values_swapped"):
                k, v = v, k
            if self.f("queries_mixed"):
                q = q.reshape(count, self.dim, self.heads).swapaxes(1, 2)
            q, k, v = q.reshape(count, self.heads, -1), k.reshape(count, self.groups, -1), v.reshape(count, self.groups, -1)
        name = f"model.layers.{i}.self_attn."
        positions = n + np.arange(count)
        if self.f("positions_in_call"):
            positions = np.arange(count)
        if self.f("positions_behind") and n:
            positions = positions - 1
        if self.f("positions_of_first"):
            positions = np.full(count, n)
        if self.f("positions_ahead"):
            positions = positions + 1
        behind = self.f("head_norms_late")
        for late in (False, True):
            if late == behind and name + "q_norm.weight" in self.w:
                if not self.f("q_norm_skipped"):
                    q = self.rms(q, self.w[name + "q_norm.weight"], "head")
                if not self.f("k_norm_skipped"):
                    k = self.rms(k, self.w[name + "k_norm.weight"], "head")
            if not late:
                ahead = positions + 1 if self.f("query_ahead") else positions
                q, k = self.rotate(q, ahead, i), self.rotate(k, positions, i)
        if self.f("kv_heads_swapped"):
            k, v = k[:, ::-1], v[:, ::-1]
        if self.f("q_heads_rolled"):
            q = np.roll(q, 1, axis=1)
        k, v = k.swapaxes(0, 1), v.swapaxes(0, 1)
        if self.f("rows_int8"):
            k, v = (np.rint(r * 127 / s) * s / 127 for r, s in ((r, np.abs(r).max(-1, keepdims=True)) for r in (k, v)))
        if self.f("rows_interleaved"):
            k, v = (r.swapaxes(0, 1).reshape(self.groups, count, self.dim) for r in (k, v))
        if self.f("write_slot") and count > 1:
            k, v = (np.concatenate([r[:, -1:], 0 * r[:, 1:]], 1) for r in (k, v))
        store = 0 if self.planted == "shared_state" and own == 1 else own
        if self.f("rows_reset_at_20") and n + count > 20 >= n:
            state["k"][store] = state["k"][store] * 0
        state["k"][store] = np.concatenate([state["k"][store][:, :n], k], 1).astype(F)
        state["v"][store] = np.concatenate([state["v"][store][:, :n], v], 1).astype(F)
        late = self.f("written_late")  # the rows of the call are zeros when attention reads them
        keys, values = (np.concatenate([r[:, :n], 0 * r[:, n:]], 1) if late else r for r in (state["k"][store], state["v"][store]))
        out = self.attend(q, keys, values, n, own)
        if self.f("heads_interleaved"):
            out = out.swapaxes(0, 1).reshape(count, -1)
        out = out.reshape(count, -1)
        if self.arch == "gpt2":
            out = out @ self.w[f"transformer.h.{i}.attn.c_proj.weight"]
            return out if self.f("o_bias_dropped") else out + self.w[f"transformer.h.{i}.attn.c_proj.bias"]
        return out @ self.w[name + "o_proj.weight"].T

    def visible(self, n, count, total, layer):
        t, row = n + np.arange(count)[:, None], np.arange(total)[None]
        seen = row <= t
        window = self.windows[layer]
        if window is not None and not self.f("window_ignored"):
            window += {"window_longer": 1, "window_shorter": -1}.get(self.planted, 0) if self.only in (-1, layer) else 0
            seen &= row > t - window
        if self.f("mask_of_one") and count == 1:
            seen = row == t
        if self.f("mask_of_call"):
            seen &= row >= n
        if self.f("not_causal"):
            seen = seen | (row < n + count) & (row > t)
        if self.f("own_row_hidden"):
            seen &= (row != t) | (t == 0)
        if self.f("first_row_hidden"):
            seen &= (row > 0) | (t == 0)
        if self.f("blind_past_20"):
            seen &= (row < 20) | (row == t)
        return seen

    def attend(self, q, k, v, n, layer):
        scale = 1 / np.sqrt(self.c.get("query_pre_attn_scalar", self.dim) if self.arch == "gemma3" else self.dim)
        if self.f("scale_missing"):
            scale = 1.0
        if self.f("scale_twice"):
            scale = scale * scale
        if self.f("scale_by_head"):
            scale = 1 / np.sqrt(self.dim)
        share = self.heads // self.groups
        of = np.arange(self.heads) % self.groups if self.f("groups_tiled") else np.arange(self.heads) // share
        scores = np.einsum("thd,hsd->hts", q, k[of]) * F(scale)
        if self.f("scores_capped"):
            scores = 50 * np.tanh(scores / 50)
        scores = np.where(self.visible(n, len(q), k.shape[1], layer)[None], scores, F(-1e30))
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        if self.f("stale_rows"):
            weights = weights / (weights.sum(-1, keepdims=True) + 5 * np.exp(-scores.max(-1, keepdims=True)))
        elif self.f("softmax_bf16"):
            weights = as_bf16(weights)
            weights = weights / weights.sum(-1, keepdims=True)
        else:
            weights = weights / weights.sum(-1, keepdims=True)
        return np.einsum("hts,hsd->thd", weights.astype(F), v[of])

    # -- what zaya has of its own -------------------------------------------------------------------------------------

    def compressed(self, i, x, state, n):
        name, own = f"model.layers.{i}.self_attn.", self.at
        qkv = name + "qkv_proj."
        u = np.concatenate([x @ self.w[qkv + "q_proj.weight"].T, x @ self.w[qkv + "k_proj.weight"].T], -1)
        late = x @ self.w[qkv + "v_proj_delayed.weight"].T
        nothing = np.zeros((0, u.shape[1]), F), np.zeros((0, late.shape[1]), F)
        before_u = nothing[0] if state["u"][own] is None else state["u"][own][:n]
        before_late = nothing[1] if state["late"][own] is None else state["late"][own][:n]
        if self.f("history_dropped"):
            before_u, before_late = before_u * 0, before_late * 0
        all_u, all_late = np.concatenate([before_u, u]), np.concatenate([before_late, late])
        state["u"][own], state["late"][own] = all_u, all_late
        older = lambda rows, back: np.concatenate([np.zeros((back, rows.shape[1]), F), rows])[: len(rows)]  # noqa: E731
        taps, grouped = self.w[qkv + "conv_qk_depthwise.weight"][:, 0], self.w[qkv + "conv_qk_grouped.weight"]
        if self.f("taps_reversed"):
            taps, grouped = taps[:, ::-1], grouped[..., ::-1]
        first = older(all_u, 1) * taps[:, 0] + all_u * taps[:, 1] + self.w[qkv + "conv_qk_depthwise.bias"]
        # Before the first token there is nothing but the bias.
        start = np.broadcast_to(self.w[qkv + "conv_qk_depthwise.bias"], (1, u.shape[1]))
        split = lambda rows: rows.reshape(len(rows), -1, self.dim)  # noqa: E731
        g = grouped.reshape(-1, self.dim, self.dim, 2)
        old = np.concatenate([start, first])[: len(first)]
        y = np.einsum("thi,hoi->tho", split(old), g[..., 0]) + np.einsum("thi,hoi->tho", split(first), g[..., 1])
        y = y[n:] + split(self.w[qkv + "conv_qk_grouped.bias"][None])
        plain = split(u)
        if self.f("convolution_skipped"):
            y = plain
        share = self.heads // self.groups
        q0, k0 = plain[:, : self.heads], plain[:, self.heads :]
        q = y[:, : self.heads] + (q0 + np.repeat(k0, share, 1)) / 2
        k = y[:, self.heads :] + (q0.reshape(len(u), self.groups, share, self.dim).mean(2) + k0) / 2
        unit = lambda rows: rows * F(np.sqrt(self.dim)) / np.linalg.norm(rows, axis=-1, keepdims=True)  # noqa: E731
        q, k = unit(q), unit(k)
        if not self.f("temperature_ignored"):
            k = k * self.w[name + "qk_norm.temp"][:, None]
        now = x @ self.w[qkv + "v_proj_current.weight"].T
        delayed = late if self.f("values_not_delayed") else older(all_late, 1)[n:]
        if self.f("value_halves_swapped"):
            now, delayed = delayed, now
        return q.astype(F), k.astype(F), np.concatenate([now, delayed], -1).reshape(len(x), self.groups, self.dim).astype(F)

    def experts(self, i, x):
        name = f"model.layers.{i}.mlp."
        gate = name + "gate."
        z = x @ self.w[gate + "down_proj.weight"].T + self.w[gate + "down_proj.bias"]
        carry = self.w.get(gate + "router_states_scale")
        if carry is not None and self.at > 0 and not self.f("carry_dropped"):
            z = z + self.router * carry
        self.router = z
        z = z / np.sqrt((z * z).mean(-1, keepdims=True) + F(self.eps)) * self.w[gate + "router_mlp.norm.weight"]
        for part in ("fc1", "fc2"):
            z = gelu_erf(z @ self.w[gate + f"router_mlp.{part}.weight"].T + self.w[gate + f"router_mlp.{part}.bias"])
        scores = z @ self.w[gate + "router_mlp.out_proj.weight"].T
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        wanted = shares if self.f("balance_ignored") else shares + self.w[gate + "balancing_biases"]
        chosen = np.argsort(-wanted, axis=-1, kind="stable")[:, 1 if self.f("second_expert") else 0]
        out = np.zeros_like(x)
        for t, e in enumerate(chosen):
            if e == self.c["num_experts"]:
                if self.f("skip_gives_input"):
                    out[t] = x[t] * shares[t, e]
                continue
            gate_up = self.w[name + "experts.gate_up_proj"][e] @ x[t]
            half = len(gate_up) // 2
            out[t] = self.w[name + "experts.down_proj"][e] @ (silu(gate_up[:half]) * gate_up[half:])
            out[t] *= 1 if self.f("share_ignored") else shares[t, e]
        return out


class Hidden:
    """A port that shows its residual stream and nothing else."""

    def __init__(self, port: Port):
        self.port, self.name = port, port.name

    def make_state(self):
        return self.port.make_state()

    def predict(self, tokens, state):
        return self.port.predict(tokens, state)


def ported(config, weights, fault="", level="full", only=-1):
    port = Port(config, weights, fault, level, only)
    return port if level == "full" else Hidden(port)
