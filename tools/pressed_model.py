"""A transformers model whose caches the presses of kvpress compress, asked as kvtide ruler asks.

The weights come from a GGUF file, dequantised to float32. The context is read once. Every press then chooses from the same keys, values
and hidden states what it keeps at each ratio. The question and the answers are read behind that, so no press knows the question. Each
answer is read behind the right ones before it, all in one pass.

Two things differ from kvpress' own pipeline, and neither changes what a press keeps: ratios share the reading of the context, and rows
may be rounded to q8_0 afterwards. Models of the llama family only: with sliding windows layers hold different numbers of rows, for which
transformers makes no causal mask behind a press (kvpress asks token by token), and KVzip refuses Gemma 3.
"""

import os
from dataclasses import dataclass
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # weights and ids are at hand; nothing is fetched
os.environ["TQDM_DISABLE"] = "1"

import kvpress.presses.kvzip_press as kvzip
import torch
import transformers
from kvpress import AdaKVPress, ExpectedAttentionPress, KVzipPress, SnapKVPress
from kvpress.presses.scorer_press import ScorerPress
from transformers import AutoModelForCausalLM, DynamicCache

SCORERS = {"SnapKV": SnapKVPress, "ExpectedAttention": ExpectedAttentionPress}
Q8_0_SHARE = 34 / 64  # bytes of a q8_0 row of those of an f16 row
Q8_0_BLOCK = 32


@dataclass(frozen=True)
class Way:
    """How a cache is compressed: the press, the type of its rows, and to which part of the bytes of the f16 cache."""

    press: str  # SnapKV, ExpectedAttention, AdaKV(SnapKV), AdaKV(ExpectedAttention), KVzip
    rows: str  # f16, q8_0
    ratio: int


@dataclass
class Kept:
    cache: DynamicCache
    masked: dict  # layer: indices of keys that count as gone, as AdaKV and KVzip leave them


class GivenScores(ScorerPress):
    """What a press scored once, for every ratio."""

    def __init__(self, scores: torch.Tensor, compression_ratio: float):
        super().__init__(compression_ratio)
        self.scores = scores

    def score(self, *_):
        return self.scores.clone()


class KVzipAtRatios(KVzipPress):
    """One scoring for several ratios: calls keep(share) after the indices of each."""

    def __init__(self, dropped: list[float], keep):
        super().__init__(compression_ratio=max(dropped))
        self.dropped, self.keep = dropped, keep

    def compress_post(self, model):
        for self.compression_ratio in self.dropped:
            super().compress_post(model)
            self.keep(self.compression_ratio)


class GivenTokenizer:
    """The few ids that KVzip asks a tokenizer for, of a model without a chat template: text to ids."""

    chat_template = None

    def __init__(self, ids: dict[str, list[int]]):
        self.ids = ids

    def from_pretrained(self, _):
        return self

    def encode(self, text: str, **_) -> torch.Tensor:
        return torch.tensor([self.ids[text]] if text else [[]], dtype=torch.long)


KVZIP_TEXTS = (
    "\n",
    "\n\nRepeat the previous context exactly.",
    "\n\nRepeat the part of the previous context exactly, starting with",
)


def rounded(rows: torch.Tensor) -> torch.Tensor:
    """Rows [..., W] as q8_0 would give them back: 32 whole numbers and an f16 scale a block."""
    blocks = rows.unflatten(-1, (-1, Q8_0_BLOCK))
    scale = blocks.abs().amax(-1, keepdim=True) / 127
    whole = torch.where(scale > 0, blocks / scale, 0).round()
    return (whole * scale.half().float()).flatten(-2)


class PressedModel:
    def __init__(self, path: str, threads: int, text_ids: dict[str, list[int]]):
        torch.set_num_threads(threads)
        transformers.utils.logging.disable_progress_bar()
        transformers.utils.logging.set_verbosity_error()
        kvzip.logger.disabled = True
        kvzip.AutoTokenizer = GivenTokenizer(text_ids)
        file = Path(path)
        self.model = AutoModelForCausalLM.from_pretrained(str(file.parent), gguf_file=file.name, dtype=torch.float32).eval()
        if self.model.config.model_type != "llama":
            raise SystemExit(f"{path}: a model of type {self.model.config.model_type!r}; presses are compared on llama models")
        self.attentions = [layer.self_attn for layer in self.model.model.layers]
        for attention in self.attentions:
            attention.rotary_emb = self.model.model.rotary_emb

    @staticmethod
    def presses() -> list[str]:
        return [*SCORERS, *(f"AdaKV({name})" for name in SCORERS), "KVzip"]

    @staticmethod
    def dropped(way: Way) -> float:
        """The share of rows that goes where those that stay may take 1/ratio of the bytes of the f16 cache."""
        return 1 - 1 / (way.ratio * (Q8_0_SHARE if way.rows == "q8_0" else 1.0))

    @torch.no_grad()
    def read(self, context: list[int], ways: list[Way]) -> dict[Way | None, Kept]:
        """The cache as each way keeps it; None: all of it."""
        shares = {way: self.dropped(way) for way in ways}
        shares = {way: share for way, share in shares.items() if share > 0}
        cache = DynamicCache(config=self.model.config)
        kept = {way: Kept(DynamicCache(config=self.model.config), {}) for way in shares if way.press != "KVzip"}
        zipped = {share: [w for w in shares if w.press == "KVzip" and shares[w] == share] for share in set(shares.values())}
        zipped = {share: alike for share, alike in zipped.items() if alike}

        def choose(attention, _, arguments, output):
            layer = cache.layers[attention.layer_idx]
            given = (attention, arguments["hidden_states"], layer.keys, layer.values, output[1], arguments)
            scores = {name: press().score(*given) for name, press in SCORERS.items()}
            for way, one in kept.items():
                name = way.press.removeprefix("AdaKV(").removesuffix(")")
                press = GivenScores(scores[name], shares[way])
                if name != way.press:
                    press = AdaKVPress(press)
                attention.masked_key_indices = None
                keys, values = press.compress(*given)
                one.masked[attention.layer_idx] = attention.masked_key_indices
                fill(one.cache, attention.layer_idx, keys, values, way.rows)
            attention.masked_key_indices = None

        def keep_zipped(share):
            for way in zipped[share]:
                one = kept[way] = Kept(DynamicCache(config=self.model.config), {})
                for attention, layer in zip(self.attentions, cache.layers, strict=True):
                    one.masked[attention.layer_idx] = attention.masked_key_indices
                    fill(one.cache, attention.layer_idx, layer.keys, layer.values, way.rows)

        hooks = [attention.register_forward_hook(choose, with_kwargs=True) for attention in self.attentions]
        try:
            ids = torch.tensor([context])
            if zipped:
                with KVzipAtRatios(sorted(zipped), keep_zipped)(self.model):
                    self.model.model(input_ids=ids, past_key_values=cache)
                    for hook in hooks:
                        hook.remove()
            else:
                self.model.model(input_ids=ids, past_key_values=cache)
        finally:
            for hook in hooks:
                hook.remove()
        return {None: Kept(cache, {})} | kept

    @torch.no_grad()
    def ask(self, kept: Kept, context: int, asked: list[int], answers: list[tuple[int, int]]) -> dict:
        """Nats per token of the answers, which lie at these places of `asked`, and the share that greedy decoding writes."""
        for attention in self.attentions:
            attention.masked_key_indices = kept.masked.get(attention.layer_idx)
        logits = self._logits(kept.cache, context, asked)
        for attention in self.attentions:
            attention.masked_key_indices = None
        nats, tokens, right = 0.0, 0, 0
        for first, last in answers:
            targets = torch.tensor(asked[first:last])
            scores = logits[first - 1 : last - 1].double()
            nats -= scores.log_softmax(-1).gather(1, targets[:, None]).sum().item()
            tokens += last - first
            right += bool((scores.argmax(-1) == targets).all())
        return {"nll": nats / tokens, "right": right / len(answers)}

    def _logits(self, cache: DynamicCache, start: int, ids: list[int]) -> torch.Tensor:
        """[N][V]. Keys that are masked get a key that no query of the pass looks at. Where there is none for so many
        queries, the pass is halved: kvpress looks for it anew in every pass."""
        before = [(layer.keys, layer.values) for layer in cache.layers]
        try:
            positions = torch.arange(start, start + len(ids))[None]
            return self.model(input_ids=torch.tensor([ids]), past_key_values=cache, position_ids=positions).logits[0]
        except ValueError as error:
            if "fake keys" not in str(error) or len(ids) == 1:
                raise
            for layer, rows in zip(cache.layers, before, strict=True):
                layer.keys, layer.values = rows
            half = len(ids) // 2
            return torch.cat([self._logits(cache, start, ids[:half]), self._logits(cache, start + half, ids[half:])])


def fill(cache: DynamicCache, layer: int, keys: torch.Tensor, values: torch.Tensor, rows: str) -> None:
    if rows == "q8_0":
        keys, values = rounded(keys), rounded(values)
    else:
        keys, values = keys.clone(), values.clone()  # masked keys are written over
    cache.update(keys, values, layer)
