#include "model/vocab_reader.h"

#include <utility>

#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

[[noreturn]] void refuse_vocab(const GgufFile& file, ErrorCode code, const std::string& why) {
  throw Error(code, cat(file.path(), ": ", why));
}

std::optional<TokenId> read_id(const GgufFile& file, std::string_view key, std::size_t vocabulary) {
  const auto value = file.get_uint(key);
  if (!value) return std::nullopt;
  if (*value >= vocabulary)
    refuse_vocab(file, ErrorCode::bad_format,
                 cat("'", key, "' is ", *value, "; it must be below the vocabulary size ", vocabulary));
  return static_cast<TokenId>(*value);
}

}  // namespace

VocabSpec read_vocab(const GgufFile& file) {
  VocabSpec spec;
  const auto model = file.get_string("tokenizer.ggml.model");
  if (!model) refuse_vocab(file, ErrorCode::bad_format, "the key 'tokenizer.ggml.model' is missing");
  if (*model == "gpt2")
    spec.kind = VocabSpec::Kind::bpe;
  else if (*model == "llama")
    spec.kind = VocabSpec::Kind::sentencepiece;
  else if (*model == "gemma4")
    spec.kind = VocabSpec::Kind::pipeline;
  else
    refuse_vocab(
        file, ErrorCode::unsupported,
        cat("tokenizer model ", quoted(*model),
            " is not supported; kvtide knows gpt2 (byte-level BPE), llama (SentencePiece) and gemma4"));
  spec.pre = file.get_string("tokenizer.ggml.pre").value_or("default");

  const auto tokens = file.get_strings("tokenizer.ggml.tokens");
  if (!tokens || tokens->empty())
    refuse_vocab(file, ErrorCode::bad_format, "the key 'tokenizer.ggml.tokens' is missing or empty");
  spec.tokens.assign(tokens->begin(), tokens->end());
  const std::size_t size = spec.tokens.size();

  if (const auto types = file.get_ints("tokenizer.ggml.token_type")) {
    if (types->size() != size)
      refuse_vocab(file, ErrorCode::bad_format,
                   cat("'tokenizer.ggml.token_type' has ", types->size(), " entries for ", size, " tokens"));
    for (const std::int32_t type : *types) {
      if (type < 1 || type > 6)
        refuse_vocab(file, ErrorCode::bad_format,
                     cat("'tokenizer.ggml.token_type' holds ", type, "; types are 1 to 6"));
      spec.types.push_back(static_cast<TokenType>(type));
    }
  }
  if (spec.kind == VocabSpec::Kind::sentencepiece) {
    auto scores = file.get_floats("tokenizer.ggml.scores");
    if (!scores || scores->size() != size)
      refuse_vocab(file, ErrorCode::bad_format,
                   cat("'tokenizer.ggml.scores' must have one entry for each of ", size, " tokens"));
    spec.scores = std::move(*scores);
  } else if (const auto merges = file.get_strings("tokenizer.ggml.merges")) {
    spec.merges.assign(merges->begin(), merges->end());
  }
  const bool marked = spec.kind == VocabSpec::Kind::pipeline;
  if (marked) spec.pipeline = marked_spaces_pipeline(std::exchange(spec.merges, {}));

  spec.bos = read_id(file, "tokenizer.ggml.bos_token_id", size);
  spec.eos = read_id(file, "tokenizer.ggml.eos_token_id", size);
  spec.eot = read_id(file, "tokenizer.ggml.eot_token_id", size);
  spec.unk = read_id(file, "tokenizer.ggml.unknown_token_id", size);
  const bool sentencepiece = spec.kind == VocabSpec::Kind::sentencepiece;
  // Files that say nothing follow their family: SentencePiece models begin with BOS and a space, byte-level
  // BPE models with neither, except Llama 3 and LFM2, which begin with BOS, as Gemma 4 does.
  const bool llama3 =
      spec.pre == "llama-bpe" || spec.pre == "llama3" || spec.pre == "llama-v3" || spec.pre == "lfm2";
  spec.add_bos = file.get_bool("tokenizer.ggml.add_bos_token").value_or(sentencepiece || llama3 || marked);
  spec.add_eos = file.get_bool("tokenizer.ggml.add_eos_token").value_or(false);
  spec.add_space_prefix = file.get_bool("tokenizer.ggml.add_space_prefix").value_or(sentencepiece) && !marked;
  return spec;
}

}  // namespace kvtide
