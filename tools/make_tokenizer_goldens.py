#!/usr/bin/env python3
"""Writes tests/goldens/tokenizers/: small tokenizer.json files of many kinds and the ids that `tokenizers` gives for the
texts of tests/goldens/text/texts.golden.

    python tools/make_tokenizer_goldens.py                                  # write
    python tools/make_tokenizer_goldens.py --check                          # exit with 1 if a stored file differs
    python tools/make_tokenizer_goldens.py --kvtide build/kvtide [--strings 5000]   # compare live, on other strings

Lines of a .golden file, as make_text_goldens.py tells them: special, plain and hashes. The vocabularies are trained here
on a short text; a GPT-2 config.json beside them, made on the spot, is all that a live comparison needs.
"""

import argparse
import importlib.metadata
import json
import pathlib
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import (
    AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers,
)

from golden_files import store
from make_text_goldens import HARD, IN_FULL, PROSE, SEED, escape, hash_of
from text_reference import GPT2, LLAMA3, QWEN2, generated_texts, split

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/goldens/tokenizers"
MARK = "\u2581"
# Words that may mix cases, combining marks inside: the shape of newer expressions, which no scanner of ours knows.
CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MARKERS = ["<|im_start|>", "<|im_end|>", "<s>", "</s>"]


def byte_level(prefix=False, regex=True):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)


def train(normalizer, pre_tokenizer, decoder, size=520, specials=("<unk>",), gaps="", fallback=False, **model):
    """A BPE of `size` tokens and more; of byte-level ones the alphabet is whole but for `gaps`."""
    tokenizer = Tokenizer(models.BPE(**model))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    bytes_used = isinstance(decoder, decoders.ByteLevel)
    alphabet = sorted(set(pre_tokenizers.ByteLevel.alphabet()) - set(gaps)) if bytes_used else []
    lines = [line for line in PROSE.splitlines(keepends=True) for _ in range(2)] + ["  \n\n 12 123 1234  's 'S 'll \r\n\t\t x"]
    first = list(specials) + ([f"<0x{byte:02X}>" for byte in range(256)] if fallback else [])
    tokenizer.train_from_iterator(
        lines, trainers.BpeTrainer(vocab_size=size + len(first), initial_alphabet=alphabet, special_tokens=first, show_progress=False)
    )
    made = json.loads(tokenizer.to_str())
    # Byte tokens are no markers; what is one is added by the cases below.
    made["added_tokens"] = [token for token in made["added_tokens"] if token["content"] in specials]
    made["model"]["byte_fallback"] = fallback
    tokenizer = Tokenizer.from_str(json.dumps(made))
    tokenizer.decoder = decoder
    return tokenizer


def with_template(tokenizer, front=None, behind=None):
    pieces = [*([front] if front else []), "$A", *([behind] if behind else [])]
    ids = [(token, tokenizer.token_to_id(token)) for token in (front, behind) if token]
    tokenizer.post_processor = processors.TemplateProcessing(single=" ".join(pieces), special_tokens=ids)
    return tokenizer


def mark_all(tokenizer, markers=MARKERS, normalized=False):
    tokenizer.add_special_tokens([AddedToken(text, normalized=normalized, special=True) for text in markers])
    return tokenizer


def spaces_as_marks():
    return normalizers.Replace(" ", MARK)


def llama2_decoder():
    return decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])


def cases():
    """(name, tokenizer): what each shows is in its lines."""
    yield "gpt2", mark_all(train(None, byte_level(), decoders.ByteLevel()))
    yield "gpt2-prefix-gaps", mark_all(train(None, byte_level(prefix=True), decoders.ByteLevel(), gaps="ÀÁõÿāĂ"))
    # As zenz: an unknown token, and bytes that have none.
    yield "bytes-unknown", mark_all(
        train(None, byte_level(), decoders.ByteLevel(), specials=("[UNK]", "[PAD]"), gaps="ÀÁõÿāĂ", unk_token="[UNK]")
    )
    yield "llama3", with_template(
        mark_all(train(None, pre_tokenizers.Sequence([split(LLAMA3), byte_level(regex=False)]), decoders.ByteLevel(),
                       ignore_merges=True)), "<s>")
    qwen = mark_all(train(normalizers.NFC(), pre_tokenizers.Sequence([split(QWEN2), byte_level(regex=False)]), decoders.ByteLevel()))
    qwen.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("\n\n\n", normalized=False)])
    yield "qwen2-nfc", qwen
    yield "digits", mark_all(
        train(None, pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level()]), decoders.ByteLevel()))
    yield "digit-runs", mark_all(
        train(None, pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=False), byte_level(regex=False)]),
              decoders.ByteLevel()))
    yield "cased", with_template(
        mark_all(train(None, pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(CASED), "removed", invert=True),
                                                      byte_level(regex=False)]), decoders.ByteLevel())), "<s>", "</s>")
    yield "llama2", with_template(
        mark_all(train(normalizers.Sequence([normalizers.Prepend(MARK), spaces_as_marks()]), None, llama2_decoder(),
                       fallback=True, unk_token="<unk>", fuse_unk=True)), "<s>")
    gemma = mark_all(train(spaces_as_marks(), pre_tokenizers.Split(" ", "merged_with_previous"),
                           decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]),
                           fallback=True, unk_token="<unk>", fuse_unk=True))
    gemma.add_tokens([AddedToken(text, normalized=False) for text in ("\n\n", "\n\n\n", MARK * 2, "<tool>", "<b>")])
    yield "gemma", with_template(gemma, "<s>")
    for scheme in ("first", "always", "never"):
        yield f"metaspace-{scheme}", mark_all(
            train(None, pre_tokenizers.Metaspace(prepend_scheme=scheme, split=scheme != "first"),
                  decoders.Metaspace(prepend_scheme=scheme), fallback=scheme == "first", unk_token="<unk>",
                  fuse_unk=scheme == "always"))
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        yield "split-" + behavior.replace("_", "-"), mark_all(
            train(normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]),
                  pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"\s"), behavior),
                                           pre_tokenizers.Split("e", behavior, invert=behavior == "isolated")]),
                  decoders.Fuse(), unk_token="<unk>"))
    # Markers of every sort, some of them looked for behind the normaliser.
    sorts = train(normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase()]), byte_level(), decoders.ByteLevel())
    sorts.add_special_tokens([
        AddedToken("<|im_start|>", normalized=False), AddedToken("<|im_end|>", lstrip=True, rstrip=True, normalized=False),
        AddedToken("<s>", single_word=True, normalized=False), AddedToken("</S>", normalized=True),
    ])
    sorts.add_tokens([AddedToken("Anna", normalized=True), AddedToken("tool", single_word=True, normalized=False),
                      AddedToken("<b>", lstrip=True, normalized=True), AddedToken("world", rstrip=True, normalized=False)])
    yield "markers", sorts


def ids_of(tokenizer, text, special):
    tokenizer.encode_special_tokens = not special
    return tokenizer.encode(text, add_special_tokens=False).ids


def render(tokenizer, texts):
    special = [ids_of(tokenizer, text, True) for text in texts]
    lines = ["# made by tools/make_tokenizer_goldens.py with tokenizers " + importlib.metadata.version("tokenizers")]
    with_marker = [i for i, text in enumerate(texts[: len(HARD)]) if any(marker in text for marker in MARKERS)]
    in_full = sorted(set(range(len(HARD) - 1)[:: max(1, len(HARD) // IN_FULL)]) | set(with_marker))
    lines += [f"special {i} " + " ".join(map(str, special[i])) for i in in_full]
    lines += [f"plain {i} " + " ".join(map(str, ids_of(tokenizer, texts[i], False))) for i in with_marker]
    lines.append(f"whole {len(HARD) - 2} " + " ".join(map(str, tokenizer.encode(texts[len(HARD) - 2]).ids)))
    hashes = [f"{hash_of(ids):08x}" for ids in special]
    lines += ["hashes " + " ".join(hashes[i : i + 12]) for i in range(0, len(hashes), 12)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def files():
    texts = HARD + generated_texts(SEED, 600)
    for name, tokenizer in cases():
        yield f"{name}.json", json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=True, separators=(",", ":")) + "\n"
        yield f"{name}.golden", render(tokenizer, texts)


def write_config(folder, tokenizer):
    """The least that says how many tokens the model has."""
    config = dict(model_type="gpt2", n_positions=8, n_embd=8, n_head=1, n_layer=1, vocab_size=tokenizer.get_vocab_size())
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def compare_live(program, count, only):
    texts = generated_texts(SEED + 1, count)
    for name, tokenizer in cases():
        if only and name not in only:
            continue
        # Normalisers of two Unicode versions differ in characters that one of them does not have yet.
        known = [only_known(text) for text in texts] if tokenizer.normalizer else texts
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            write_config(folder, tokenizer)
            tokenizer.save(str(folder / "tokenizer.json"))
            total = 0
            for special in (True, False):
                # Joined by what no normaliser and no split changes in meaning; then one by one where they differ.
                for i in range(0, len(known), 500):
                    part = known[i : i + 500]
                    total += check(program, folder, tokenizer, name, part, special)
        print(f"{name:24} {count} strings, markers as tokens and as text: all {total} ids are those of tokenizers")


def only_known(text):
    return "".join(c for c in text if unicodedata.category(c) != "Cn")


def run(program, folder, text, special):
    (folder / "text").write_bytes(text.encode())
    command = [program, "tokenize", "-m", str(folder), "--json", "--no-bos", "-f", str(folder / "text")]
    done = subprocess.run(command + ([] if special else ["--no-special"]), capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr.decode(errors='replace')}")
    return json.loads(done.stdout)["ids"]


def check(program, folder, tokenizer, name, texts, special):
    behind = tokenizer.encode("").ids[1:]  # what a template puts behind a text, which --no-bos leaves there

    def theirs_of(text):
        return ids_of(tokenizer, text, special) + behind

    text = "\n".join(texts)
    if run(program, folder, text, special) == (ids := theirs_of(text)):
        return len(ids)
    while len(texts) > 1:
        half = len(texts) // 2
        broken = [p for p in (texts[:half], texts[half:])
                  if run(program, folder, "\n".join(p), special) != theirs_of("\n".join(p))]
        if not broken:
            break
        texts = broken[0]
    text = "\n".join(texts)
    ours, theirs = run(program, folder, text, special), theirs_of(text)
    sys.exit(f"{name}, markers as {'tokens' if special else 'text'}: {text[:300]!r}\n  kvtide     {ours[:40]}\n  tokenizers {theirs[:40]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--kvtide", help="the program: compare live")
    parser.add_argument("--strings", type=int, default=5000)
    parser.add_argument("--only", nargs="*", help="these cases only")
    args = parser.parse_args()
    if args.kvtide:
        return compare_live(args.kvtide, args.strings, args.only)
    store(FOLDER, files(), args.check)


if __name__ == "__main__":
    main()
