"""A float32 forward pass in PyTorch of a GGUF file with dequantised weights. Own code: no `transformers` in sight.

Reads llama (interleaved rotation pairs), qwen2, qwen3 and gemma3. One sequence at a time, no cache, every position.
Shapes: T positions, D hidden, H query heads, K KV heads, W head width, V vocabulary.
"""

import math

import gguf
import torch

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3")
GEMMA_LOCAL_BASE = 10000.0
GEMMA_PATTERN = 6  # every sixth layer sees the whole text
VOCAB_SLICE = 32768  # rows of the output matrix multiplied at a time: bounds the memory of the logits


class TorchModel:
    def __init__(self, path: str, dtype: torch.dtype = torch.float32):
        reader = gguf.GGUFReader(path)
        self.path, self.dtype = path, dtype
        self.arch: str = reader.fields["general.architecture"].contents()
        if self.arch not in ARCHITECTURES:
            raise ValueError(f"{path}: architecture {self.arch!r}; this reference knows {', '.join(ARCHITECTURES)}")

        def get(key, default=None):
            field = reader.fields.get(f"{self.arch}.{key}")
            if field is None and default is None:
                raise ValueError(f"{path}: {self.arch}.{key} is missing")
            return default if field is None else field.contents()

        if f"{self.arch}.attention.sliding_window_pattern" in reader.fields:
            raise ValueError(f"{path}: states its own layer pattern; this reference knows only one in {GEMMA_PATTERN}")
        self.layers: int = get("block_count")
        self.hidden: int = get("embedding_length")
        self.heads: int = get("attention.head_count")
        self.kv_heads: int = get("attention.head_count_kv", self.heads)
        self.width: int = get("attention.key_length", self.hidden // self.heads)
        self.eps: float = get("attention.layer_norm_rms_epsilon")
        self.window: int = get("attention.sliding_window") if self.arch == "gemma3" else 0
        if any(get(key, self.width) != self.width for key in ("attention.value_length", "rope.dimension_count")):
            raise ValueError(f"{path}: keys, values and rotation of different widths; this reference wants one width")

        self.weights = {t.name: self._dequantised(t) for t in reader.tensors}
        self.output = self.weights.get("output.weight", self.weights["token_embd.weight"])
        self.vocab: int = self.output.shape[0]
        divisors = self.weights.get("rope_freqs.weight")
        self.global_rope = _frequencies(get("rope.freq_base", 10000.0), self.width, _scaling(get), divisors)
        local_base = get("rope.freq_base_swa", GEMMA_LOCAL_BASE) if self.arch == "gemma3" else GEMMA_LOCAL_BASE
        self.local_rope = _frequencies(local_base, self.width, None, None)

    def _dequantised(self, tensor) -> torch.Tensor:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        return torch.from_numpy(values.copy()).to(self.dtype)

    @torch.no_grad()
    def hidden_states(self, ids) -> torch.Tensor:
        """[T][D]: what the output matrix multiplies."""
        ids = torch.as_tensor(ids, dtype=torch.long)
        x = self.weights["token_embd.weight"][ids]
        if self.arch == "gemma3":
            x = x * math.sqrt(self.hidden)
        whole = self._rotation(len(ids), self.global_rope), _mask(len(ids), len(ids), self.dtype)
        near = self._rotation(len(ids), self.local_rope), _mask(len(ids), self.window, self.dtype)  # gemma3 only
        for layer in range(self.layers):
            is_local = self.window and (layer + 1) % GEMMA_PATTERN != 0
            x = self._block(layer, x, *(near if is_local else whole))
        return self._norm("output_norm", x)

    @torch.no_grad()
    def logits(self, ids) -> torch.Tensor:
        """[T][V] of every position."""
        return self.hidden_states(ids) @ self.output.T

    @torch.no_grad()
    def negative_log_likelihood(self, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """[N], float64: of each target after its row of hidden [N][D]. The vocabulary is taken in slices."""
        parts = [
            torch.logsumexp((hidden @ self.output[start : start + VOCAB_SLICE].T).double(), dim=1)
            for start in range(0, self.vocab, VOCAB_SLICE)
        ]
        chosen = (hidden * self.output[targets]).sum(dim=1).double()
        return torch.logsumexp(torch.stack(parts), dim=0) - chosen

    def _block(self, layer: int, x: torch.Tensor, rotation, mask: torch.Tensor) -> torch.Tensor:
        blk = f"blk.{layer}."
        y = self._attention(blk, self._norm(blk + "attn_norm", x), rotation, mask)
        if self.arch == "gemma3":
            y = self._norm(blk + "post_attention_norm", y)
        x = x + y
        y = self._feed_forward(blk, self._norm(blk + "ffn_norm", x))
        if self.arch == "gemma3":
            y = self._norm(blk + "post_ffw_norm", y)
        return x + y

    def _attention(self, blk: str, x: torch.Tensor, rotation, mask: torch.Tensor) -> torch.Tensor:
        count = x.shape[0]
        q = self._linear(blk + "attn_q", x).view(count, self.heads, self.width)
        k = self._linear(blk + "attn_k", x).view(count, self.kv_heads, self.width)
        v = self._linear(blk + "attn_v", x).view(count, self.kv_heads, self.width)
        if blk + "attn_q_norm.weight" in self.weights:
            q, k = self._norm(blk + "attn_q_norm", q), self._norm(blk + "attn_k_norm", k)
        q, k = self._rotate(q, *rotation), self._rotate(k, *rotation)
        group = self.heads // self.kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)  # [T][H][W]
        scores = torch.einsum("qhw,khw->hqk", q, k) / math.sqrt(self.width) + mask
        out = torch.einsum("hqk,khw->qhw", torch.softmax(scores, dim=-1), v)
        return self._linear(blk + "attn_output", out.reshape(count, self.heads * self.width))

    def _feed_forward(self, blk: str, x: torch.Tensor) -> torch.Tensor:
        gate, up = self._linear(blk + "ffn_gate", x), self._linear(blk + "ffn_up", x)
        if self.arch == "gemma3":
            gate = torch.nn.functional.gelu(gate, approximate="tanh")
        else:
            gate = torch.nn.functional.silu(gate)
        return self._linear(blk + "ffn_down", gate * up)

    def _linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        y = x @ self.weights[name + ".weight"].T
        bias = self.weights.get(name + ".bias")
        return y if bias is None else y + bias

    def _norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + self.eps) * self.weights[name + ".weight"]

    def _rotation(self, count: int, rope) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin, [T][1][W/2]; angles in double."""
        frequencies, magnitude = rope
        angles = torch.arange(count, dtype=torch.float64)[:, None, None] * frequencies
        return (angles.cos() * magnitude).to(self.dtype), (angles.sin() * magnitude).to(self.dtype)

    def _rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        if self.arch == "llama":  # neighbours are a pair
            a, b = x[..., 0::2], x[..., 1::2]
            return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


def _mask(count: int, window: int, dtype: torch.dtype) -> torch.Tensor:
    """[T][T]: 0 where row q may see column k, q - window < k <= q; minus infinity elsewhere."""
    back = torch.arange(count)[:, None] - torch.arange(count)[None, :]
    seen = (back >= 0) & (back < window)
    return torch.zeros(count, count, dtype=dtype).masked_fill(~seen, -math.inf)


def _scaling(get) -> tuple[str, float, int] | None:
    kind = get("rope.scaling.type", "none")
    if kind == "none":
        return None
    if kind not in ("linear", "yarn"):
        raise ValueError(f"rope.scaling.type is {kind!r}; this reference knows none, linear and yarn")
    return kind, get("rope.scaling.factor"), get("rope.scaling.original_context_length", get("context_length"))


def _frequencies(base: float, width: int, scaling, divisors) -> tuple[torch.Tensor, float]:
    """Radians per position of each pair, float64 [W/2], and the factor on cos and sin."""
    pair = torch.arange(width // 2, dtype=torch.float64)
    frequencies = base ** (-2 * pair / width)
    if divisors is not None:
        frequencies = frequencies / divisors.double()
    if scaling is None:
        return frequencies, 1.0
    kind, factor, original = scaling
    if kind == "linear":
        return frequencies / factor, 1.0

    def pair_of(turns: float) -> float:  # the pair that makes this many turns over the original context
        return width * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = max(math.floor(pair_of(32.0)), 0), min(math.ceil(pair_of(1.0)), width - 1)
    stretched = ((pair - low) / max(high - low, 0.001)).clamp(0, 1)
    return frequencies * (1 - stretched) + frequencies / factor * stretched, 1.0 + 0.1 * math.log(factor)
