"""The 64-token byte-level BPE vocabulary that every tiny model carries, and the text they all read.

It covers lower-case English only: a vocabulary with all 256 bytes would make the logits, not the weights, the
largest part of the goldens. The text is ours.
"""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

SPECIALS = ["<unk>", "<s>", "</s>", "<pad>"]
UNK, BOS, EOS, PAD = range(4)
# GPT-2's printable stand-ins: U+0120 for a space, U+010A for a line feed.
CHARACTERS = list("abcdefghijklmnopqrstuvwxyz0123456789") + ["\u0120", "\u010a"] + list(",.;:'-?!")
MERGES = [
    ("\u0120", "t"), ("h", "e"), ("\u0120", "a"), ("i", "n"), ("\u0120t", "he"), ("a", "n"), ("e", "r"),
    ("\u0120", "s"), ("\u0120", "w"), ("n", "d"), ("r", "e"), ("\u0120", "o"), ("o", "u"), ("i", "s"),
]  # fmt: skip
TOKENS = SPECIALS + CHARACTERS + [left + right for left, right in MERGES]

N_IDS = 80  # longer than every sliding window of the tiny models, several times over

TEXT = """the tide came in at 4 and again at 16; nobody on the shore had kept the count.
"is it not the same water?" asked the youngest - and the others, who were older, said: no, never.
""".replace('"', "'")


def tokenizer() -> Tokenizer:
    result = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(TOKENS)}, merges=MERGES))
    result.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    result.decoder = decoders.ByteLevel()
    return result


def text_and_ids() -> tuple[str, list[int]]:
    """The longest prefix of TEXT that is exactly N_IDS tokens, and those tokens."""
    tok = tokenizer()
    ids = tok.encode(TEXT).ids[:N_IDS]
    text = tok.decode(ids)
    if len(ids) != N_IDS or tok.encode(text).ids != ids:
        raise ValueError(f"the text does not cut cleanly into {N_IDS} tokens")
    return text, ids
