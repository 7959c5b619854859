"""Kana to kanji with a zenz model, driven as exported stateful models are: the prompt once, then a token a call.

    python examples/python/06_kana_kanji.py MODEL カンジヘンカン [LEFT_CONTEXT]

zenz reads katakana between U+EE00 and U+EE01 and writes the conversion behind it; what stands to the left goes in front,
behind U+EE02. MODEL is a GGUF file or a Hugging Face folder of a model whose layers all keep the same rows.
"""

import sys

import numpy as np

import kvtide

INPUT, OUTPUT, CONTEXT = "\uee00", "\uee01", "\uee02"
MOST = 64  # tokens of a conversion


def katakana(text):
    """Hiragana become katakana, as the model was trained."""
    return "".join(chr(ord(c) + 0x60) if "ぁ" <= c <= "ゖ" else c for c in text)


def convert(model, text, left=""):
    prompt = (CONTEXT + left if left else "") + INPUT + katakana(text) + OUTPUT
    ids = model.tokenizer.encode(prompt)
    stateful = kvtide.StatefulModel(model, context=len(ids) + MOST)
    logits = stateful.predict(ids, np.ones(len(ids)))
    written = []
    while len(written) < MOST and (token := int(logits.argmax())) != model.tokenizer.eos:
        written.append(token)
        if len(written) < MOST:
            logits = stateful.predict([token], np.ones(stateful.past_length + 1))
    return model.tokenizer.decode(written)


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(f"usage: {__doc__.splitlines()[2].strip()}")
    try:
        with kvtide.Model.load(sys.argv[1]) as model:
            print(convert(model, *sys.argv[2:]))
    except kvtide.Error as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
