#!/usr/bin/env python3
"""Writes tests/goldens/text/*.golden: small vocabularies, texts, and the ids that `tokenizers` and `sentencepiece` give.

    python tools/make_text_goldens.py            # write
    python tools/make_text_goldens.py --check    # make again in memory; exit with 1 if a stored file differs

The vocabularies are trained here on the texts below. Lines of a vocabulary file:
    kind bpe|sentencepiece      pre NAME      unknown ID      space_prefix 0|1
    token TYPE SCORE TEXT       in the order of the ids; TYPE as in GGUF
    merge LEFT RIGHT
    plain N ID...               ids of text N with control markers read as text
    special N ID...             ids of text N with control markers read as tokens
    hashes H...                 FNV-1a (32 bit, over the ids as little-endian int32) of every text, markers as tokens
texts.golden holds one text per line. In TEXT, LEFT, RIGHT and texts, bytes below 0x21, 0x7f and the backslash are
written \\xHH, so that a line has no other spaces than those between its fields.
"""

import argparse
import importlib.metadata
import io
import json
import pathlib

import numpy
import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from golden_files import store
from text_reference import (
    BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, Reference, Vocabulary, generated_texts, pre_tokenizer,
)

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/goldens/text"
SEED = 20251121
GENERATED = 1500
IN_FULL = 48  # so many texts have their ids stored, not only a hash

PROSE = """
The river was low that summer, and the children walked across it without wetting their knees. Nobody remembered such a
drought; the old ferryman, who remembered everything, said that he didn't. "We'll see rain before the harvest," said
Anna, "or we won't see a harvest." They'd heard it before. I'm sure you've heard it too: it's what everyone says when
there is nothing else to say. On the 14th of August, at 3:45 in the afternoon, 1,250 people stood on the bridge.

def mean(values: list[float]) -> float:
    total = 0.0
    for value in values:
        total += value  # no Kahan here
    return total / len(values) if values else 0.0

static int count(const char *s) {
\tint n = 0;
\twhile (*s) { if (*s++ == ' ') n++; }
\treturn n;
}
<p class="note">Prices: $12.50, €9.99 &amp; more&hellip;</p> {"id": 1234567, "ok": true, "tags": ["a", "b", null]}

Река в то лето обмелела, и дети переходили её, не замочив колен. Никто не помнил такой засухи.
那年夏天河水很浅，孩子们走过去也不会弄湿膝盖。没有人记得这样的干旱。河水很浅，河水很浅。
Der Fluß war in jenem Sommer so flach, daß die Kinder hinübergingen. L'été, la rivière était si basse qu'on la traversait à pied.
"""

HARD = [
    "", " ", "  ", "a", " a", "a ", "   a   ", "\n", "\n\n", "\r\n", " \n ", "\t", "\t\tx", "a\n\n\nb", "a \n\n \n b",
    "Hello world", "hello  world   again", "don't we'll I'M THEY'RE it'S '\u017f x'LL '' 's's 'd", "'", "'x", "''s",
    "0", "12", "123", "1234567", "3.14159, 2,718", "v1.2.3-rc4", "\u0661\u0662\u0663\u0664 \u0967\u0968 \u2167 \u00bd \u00b2\u00b3 x\u2079",
    "\U0001d7d8\U0001d7d9 \uff11\uff12\uff13\uff14\uff15 12\u066334567 \U00011de0\U00016ff4 a\U00011de1b",
    "(((a)))", "a_b-c+d=e", "$5 <b> c^2 ~x|y", "\u2014\u2026\u00ab\u00bb\u201e\u201c \u00bf\u00a1", "http://example.org/a?b=c&d=%20#e",
    "Река мелела, дети переходили.", "河水很浅，孩子们", "日本語のテキスト、한국어 문장",
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 नमस\u094dत\u0947 ภาษาไทย", "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f44d\U0001f3fd \U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7 \u2764\ufe0f",
    "e\u0301 a\u0323\u0302 Z\u0306\u0306 \u0301", "é \u00c5\u212b \ufb01 \u01c5", "\x00\x01\x02\x1f\x7f\x80 \x0b\x0c\x1c\x85",
    "a\u00a0b\u2003c\u3000d\u1680e\u2028f\u2029g\u202fh\u205fi\u200bj\ufeffk", "\u00a0\u00a0x \u2003\u2003 y\u3000\n\u3000z",
    "\u2581", "a\u2581b \u2581\u2581 c", "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|><|im_start|>  <|im_end|> x", "<s>a</s>", " <s> a </s> b", "<|im_start", "<|im_<|im_end|>", "<unk><pad>",
    "<0x0A><0x41>", "<tool>x</tool> <tool", "<b><b>a</b>", "a\n\n\n\n\nb\t\t\tc     d", "x<b>\n\n<|im_end|>\n\n y",
    "\U0010ffff\ufffd\ufffe\ue000", "a" * 70, "ab" * 50, " " * 70 + "x", "\n" * 20 + "x", "=" * 40, "河" * 40, "\u0301" * 30,
    *PROSE.strip().split("\n"),
    PROSE,
]

CONTROLS = ["<|im_start|>", "<|im_end|>", "<s>", "</s>"]


def escape(text):
    return "".join(c if "!" <= c != "\x7f" and c != "\\" else f"\\x{ord(c):02x}" for c in text)


def hash_of(ids):
    value = 2166136261
    for byte in numpy.array(ids, "<i4").tobytes():
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value


def train_bpe(pre, size, alphabet_gaps=""):
    """`alphabet_gaps`: bytes, in the byte-level alphabet, that get no token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer(pre)
    alphabet = sorted(set(pre_tokenizers.ByteLevel.alphabet()) - set(alphabet_gaps))
    lines = [line for line in PROSE.splitlines(keepends=True) for _ in range(2)] + ["  \n\n 12 123 1234  's 'S 'll \r\n\t\t x"]
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    tokens = [token for token, _ in sorted(model["vocab"].items(), key=lambda item: item[1])]
    assert len(tokens) == len(set(tokens)) == max(model["vocab"].values()) + 1
    if alphabet_gaps:
        gaps = set(alphabet_gaps)
        assert not any(set(token) & gaps for token in tokens), "a gap occurs in the training text"
    merges = [" ".join(merge) if isinstance(merge, list) else merge for merge in model["merges"]]
    types = [NORMAL] * len(tokens) + [CONTROL] * len(CONTROLS) + [USER_DEFINED] * 3
    tokens += CONTROLS + ["<tool>", "<tool>x", "\n\n\n"]
    return Vocabulary("bpe", tokens, types, pre=pre, merges=merges)


def train_sentencepiece(size, byte_fallback, user_defined=(), space_prefix=False):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for line in PROSE.splitlines() if line] * 2),
        model_writer=model, model_type="bpe", vocab_size=size, byte_fallback=byte_fallback, character_coverage=0.999,
        normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=space_prefix,
        user_defined_symbols=list(user_defined), control_symbols=["<|im_start|>", "<|im_end|>", "<pad>"],
        hard_vocab_limit=False, minloglevel=2, num_threads=1,
    )
    pieces = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue()).pieces
    # As in GGUF files: spaces in user-defined tokens are spaces.
    tokens = [p.piece.replace("\u2581", " ") if p.type == USER_DEFINED else p.piece for p in pieces]
    types = [p.type for p in pieces]
    return Vocabulary(
        "sentencepiece", tokens, types, scores=[p.score for p in pieces], unknown=types.index(UNKNOWN), space_prefix=space_prefix
    )


def with_unused_and_ties(vocabulary):
    """Every fifth longer piece unused, scores in steps of eight: what comes apart, and what is leftmost, now matters."""
    for i, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.types)):
        if kind == NORMAL and len(token) > 1:
            vocabulary.scores[i] = float(int(vocabulary.scores[i]) // 8 * 8)
            if i % 5 == 0:
                vocabulary.types[i] = UNUSED
    return vocabulary


def vocabularies():
    for pre in ("gpt-2", "llama-bpe", "qwen2", "default"):
        yield "bpe-" + pre, train_bpe(pre, 620)
    # Bytes that UTF-8 does not have and two control characters, as in the vocabulary that the name comes from.
    yield "bpe-smollm", train_bpe("smollm", 600, alphabet_gaps="ÀÁõÿāĂ")
    runs = ["\n\n", "\n\n\n", "\u2581\u2581", "\u2581\u2581\u2581", "\t\t", "<b>", "</b>", "<tool>"]
    yield "spm-prefix", train_sentencepiece(750, True, space_prefix=True)
    yield "spm-runs", train_sentencepiece(750, True, user_defined=runs)
    yield "spm-unused", with_unused_and_ties(train_sentencepiece(520, False, user_defined=["<tool>", "er"], space_prefix=True))


def render(vocabulary, texts):
    reference = Reference(vocabulary)
    lines = [
        "# " + versions(),
        f"kind {vocabulary.kind}",
        f"pre {vocabulary.pre or '-'}",
        f"unknown {-1 if vocabulary.unknown is None else vocabulary.unknown}",
        f"space_prefix {int(vocabulary.space_prefix)}",
    ]
    scores = vocabulary.scores or [0.0] * len(vocabulary.tokens)
    lines += [f"token {t} {s:g} {escape(x)}" for x, t, s in zip(vocabulary.tokens, vocabulary.types, scores)]
    lines += ["merge " + " ".join(map(escape, merge.split(" "))) for merge in vocabulary.merges]
    special = [reference.encode(text, True) for text in texts]
    with_marker = [i for i, text in enumerate(texts[: len(HARD)]) if any(m in text for m in vocabulary.control())]
    in_full = sorted(set(range(len(HARD) - 1)[:: max(1, len(HARD) // IN_FULL)]) | set(with_marker))
    for i in in_full:
        lines.append(f"special {i} " + " ".join(map(str, special[i])))
    for i in with_marker:
        lines.append(f"plain {i} " + " ".join(map(str, reference.encode(texts[i], False))))
    hashes = [f"{hash_of(ids):08x}" for ids in special]
    lines += ["hashes " + " ".join(hashes[i : i + 12]) for i in range(0, len(hashes), 12)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def versions():
    packages = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("tokenizers", "sentencepiece"))
    return f"made by tools/make_text_goldens.py with {packages}, seed {SEED}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    texts = HARD + generated_texts(SEED, GENERATED)
    files = {"texts": "\n".join(["# " + versions(), *map(escape, texts)]) + "\n"}
    for name, vocabulary in vocabularies():
        files[name] = render(vocabulary, texts)
    store(FOLDER, ((f"{name}.golden", content) for name, content in files.items()), args.check)


if __name__ == "__main__":
    main()
