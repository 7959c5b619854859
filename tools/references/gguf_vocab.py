"""The tokenizer of a GGUF file, built from its metadata with `tokenizers` (byte-level BPE) or `sentencepiece`.

Text is plain: the spellings of control tokens in it are not recognised, as in llama-perplexity. BOS is not added here.
"""

import gguf
import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # tokenizer.ggml.token_type


class Vocabulary:
    """Text to ids of one GGUF file, with what the file says about BOS."""

    def __init__(self, path: str):
        fields = gguf.GGUFReader(path).fields

        def get(key, default=None):
            field = fields.get("tokenizer.ggml." + key)
            return default if field is None else field.contents()

        self.path = path
        self.tokens: list[str] = get("tokens")
        self.types: list[int] = get("token_type") or [NORMAL] * len(self.tokens)
        self.bos: int | None = get("bos_token_id")
        kind = get("model")
        # Absent keys mean what they mean to llama.cpp: SentencePiece files add BOS and a space, BPE files neither.
        self.add_bos: bool = get("add_bos_token", kind == "llama")
        if get("add_eos_token", False):
            raise ValueError(f"{path}: adds an end token; the references expect none")
        if kind == "gpt2":
            encoder = _byte_level(path, self.tokens, self.types, get("merges"), get("pre", "default"))
            self._encode = lambda text: encoder.encode(text, add_special_tokens=False).ids
        elif kind == "llama":
            encoder = _sentencepiece(
                self.tokens, self.types, get("scores"), get("unknown_token_id", 0), get("add_space_prefix", True)
            )
            self._encode = encoder.encode
        else:
            raise ValueError(f"{path}: tokenizer.ggml.model is {kind!r}; the references know 'gpt2' and 'llama'")

    def encode(self, text: str) -> list[int]:
        return list(self._encode(text))

    def encode_document(self, text: str) -> list[int]:
        """With BOS in front when the vocabulary adds one."""
        return ([self.bos] if self.add_bos else []) + self.encode(text)


def _byte_level(path: str, tokens: list[str], types: list[int], merges: list[str], pre: str) -> Tokenizer:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    digits_first = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    known = {"gpt-2": byte_level, "smollm": digits_first}
    if pre not in known:
        raise ValueError(f"{path}: tokenizer.ggml.pre is {pre!r}; the references know {sorted(known)}")
    pairs = [tuple(merge.split(" ")) for merge in merges]
    result = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=pairs))
    result.pre_tokenizer = known[pre]
    result.decoder = decoders.ByteLevel()
    result.add_tokens([token for token, kind in zip(tokens, types) if kind == USER_DEFINED])
    return result


def _sentencepiece(
    tokens: list[str], types: list[int], scores: list[float], unknown: int, space_prefix: bool
) -> sentencepiece.SentencePieceProcessor:
    proto = sentencepiece_model_pb2.ModelProto()
    for i, (token, kind, score) in enumerate(zip(tokens, types, scores)):
        # The format wants exactly one piece of type "unknown"; files mark it as control.
        kind = UNKNOWN if i == unknown else CONTROL if kind == UNKNOWN else kind
        proto.pieces.add(piece=token, score=score, type=kind)
    proto.trainer_spec.model_type = sentencepiece_model_pb2.TrainerSpec.BPE
    proto.trainer_spec.byte_fallback = BYTE in types
    proto.trainer_spec.unk_id = unknown
    proto.trainer_spec.unk_piece = tokens[unknown]
    # Only names of special ids; the pieces themselves are never looked up in text.
    proto.trainer_spec.bos_id = proto.trainer_spec.eos_id = proto.trainer_spec.pad_id = -1
    proto.normalizer_spec.name = "identity"
    proto.normalizer_spec.add_dummy_prefix = space_prefix
    proto.normalizer_spec.remove_extra_whitespaces = False
    proto.normalizer_spec.escape_whitespaces = True
    return sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
