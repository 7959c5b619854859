"""Tokenizers that are not ours, built from the same vocabulary: `tokenizers` for byte-level BPE, `sentencepiece` for
the other kind. Used by make_text_goldens.py and compare_text.py.

Neither package splits text at control markers in every way that kvtide does, so the markers of SentencePiece vocabularies
are cut out here, by a plain regular expression, before the package sees what lies between them.
"""

import dataclasses
import random
import re

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # tokenizer.ggml.token_type

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def pre_tokenizer(name):
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    steps = {
        "gpt-2": [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)],
        "smollm": [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ],
        "llama-bpe": [split(LLAMA3), byte_level],
        "qwen2": [split(QWEN2), byte_level],
        "default": [
            split(r"[\p{P}\$\+<=>\^~\|]+"),
            split(GPT2.removesuffix(r"|\s+")),
            split(r"\p{N}+"),
            split(r"[0-9][0-9][0-9]"),
            byte_level,
        ],
    }
    if name not in steps:
        raise ValueError(f"pre-tokenizer {name!r}: the reference knows {sorted(steps)}")
    return pre_tokenizers.Sequence(steps[name])


@dataclasses.dataclass
class Vocabulary:
    """What a GGUF file says about its tokenizer."""

    kind: str  # "bpe" or "sentencepiece"
    tokens: list[str]
    types: list[int]
    pre: str = ""
    merges: list[str] = dataclasses.field(default_factory=list)
    scores: list[float] = dataclasses.field(default_factory=list)
    unknown: int | None = None
    space_prefix: bool = False

    @staticmethod
    def from_gguf(path):
        import gguf

        fields = gguf.GGUFReader(path).fields

        def get(key, default=None):
            field = fields.get("tokenizer.ggml." + key)
            return default if field is None else field.contents()

        model = get("model")
        if model not in ("gpt2", "llama"):
            raise ValueError(f"{path}: tokenizer.ggml.model is {model!r}; the reference knows 'gpt2' and 'llama'")
        tokens = get("tokens")
        return Vocabulary(
            kind="bpe" if model == "gpt2" else "sentencepiece",
            tokens=tokens,
            types=get("token_type") or [NORMAL] * len(tokens),
            pre=get("pre", "default"),
            merges=get("merges", []),
            scores=get("scores", []),
            unknown=get("unknown_token_id"),
            space_prefix=get("add_space_prefix", model == "llama"),
        )

    def control(self):
        return {text: i for i, (text, kind) in enumerate(zip(self.tokens, self.types)) if kind in (CONTROL, UNKNOWN)}


class Reference:
    """encode(text, special) -> ids; `special` says whether control markers in the text become their tokens. No BOS."""

    def __init__(self, vocabulary):
        self.control = vocabulary.control()
        if vocabulary.kind == "bpe":
            self.plain = byte_level(vocabulary, special=False)
            self.special = byte_level(vocabulary, special=True)
            self.encode = lambda text, special: (
                (self.special if special else self.plain).encode(text, add_special_tokens=False).ids
            )
        else:
            self.starts = sentencepiece_of(vocabulary, vocabulary.space_prefix)
            self.continues = sentencepiece_of(vocabulary, False)
            longest_first = sorted(filter(None, self.control), key=len, reverse=True)
            self.markers = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")
            self.encode = self.encode_sentencepiece

    def encode_sentencepiece(self, text, special):
        if not special:
            return self.starts.encode(text)
        ids = []
        for i, part in enumerate(self.markers.split(text)):
            if i % 2 == 1:
                ids.append(self.control[part])
            elif part:
                ids += (self.starts if i == 0 else self.continues).encode(part)
        return ids


def byte_level(vocabulary, special):
    result = Tokenizer(
        models.BPE(
            vocab={token: i for i, token in enumerate(vocabulary.tokens)},
            merges=[tuple(merge.split(" ")) for merge in vocabulary.merges],
            ignore_merges=vocabulary.pre == "llama-bpe",
        )
    )
    result.pre_tokenizer = pre_tokenizer(vocabulary.pre)
    added = [t for t, kind in zip(vocabulary.tokens, vocabulary.types) if kind == USER_DEFINED]
    result.add_tokens([AddedToken(text, normalized=False) for text in added])
    if special:
        result.add_special_tokens([AddedToken(text, normalized=False) for text in vocabulary.control()])
    return result


def sentencepiece_of(vocabulary, space_prefix):
    proto = sentencepiece_model_pb2.ModelProto()
    unknown = vocabulary.unknown if vocabulary.unknown is not None else vocabulary.types.index(UNKNOWN)
    for i, (token, kind, score) in enumerate(zip(vocabulary.tokens, vocabulary.types, vocabulary.scores)):
        # The package wants exactly one piece of type "unknown", and spaces marked in user-defined pieces too.
        kind = UNKNOWN if i == unknown else CONTROL if kind == UNKNOWN else kind
        text = token.replace(" ", "\u2581") if kind == USER_DEFINED else token
        proto.pieces.add(piece=text, score=score, type=kind)
    proto.trainer_spec.model_type = sentencepiece_model_pb2.TrainerSpec.BPE
    proto.trainer_spec.byte_fallback = BYTE in vocabulary.types
    proto.trainer_spec.unk_id = unknown
    proto.trainer_spec.unk_piece = vocabulary.tokens[unknown]
    proto.trainer_spec.bos_id = proto.trainer_spec.eos_id = proto.trainer_spec.pad_id = -1
    proto.normalizer_spec.name = "identity"
    proto.normalizer_spec.add_dummy_prefix = space_prefix
    proto.normalizer_spec.remove_extra_whitespaces = False
    proto.normalizer_spec.escape_whitespaces = True
    return sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())


def code_points(first, last):
    return [chr(c) for c in range(first, last)]


ALPHABETS = [
    list("abcdefghijklmnopqrstuvwxyz  "),
    list("etaoin shrdlu"),
    list(" \n\t\r"),
    list("0123456789.,- "),
    list("'\"!?()[]{}<>/\\|_=+*&^%$#@`~ "),
    list("'sStTdDmMlLrReEvV \u017f"),
    code_points(0x400, 0x460) + [" "],
    code_points(0x4E00, 0x4F00) + code_points(0x3040, 0x30A0),
    code_points(0x300, 0x340) + ["a", "e"],
    list("\U0001f469\U0001f468\U0001f467\u200d\ufe0f\U0001f3fd\U0001f1e9\U0001f1ea\U0001f1eb\u2764\U0001f600"),
    code_points(0, 32),
    list("\u00a0\u1680\u2000\u2003\u2028\u2029\u202f\u205f\u3000\u0085\u200b\ufeff \n"),
    list("\u0660\u0661\u0968\u0969\u2167\u00bd\u00b2\u00b3\U0001d7d8\uff10\uff19\u2460\U00011de0\U00016ff4") + list("0123"),
    ["<", "|", ">", "im_start", "<|im_start|>", "<|im_end|>", "<b>", "</s>", "<s>", "<unk>", "<0x0A>", "<tool>", "x"],
    ["\u2581", " ", "a", "\n"],
]


def generated_texts(seed, count):
    """Strings made to find corners: runs out of small alphabets, next to each other, and any code points at all."""
    rng = random.Random(seed)
    texts = []
    for _ in range(count):
        parts = []
        for _ in range(rng.randint(1, 5)):
            if rng.random() < 0.1:
                parts += [chr(c) for c in (rng.randrange(0x110000) for _ in range(4)) if not 0xD800 <= c < 0xE000]
            else:
                alphabet = rng.choice(ALPHABETS)
                parts += [rng.choice(alphabet) for _ in range(rng.randint(1, 10))]
        texts.append("".join(parts))
    return texts
