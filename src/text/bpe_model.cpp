#include "text/bpe_model.h"

#include <algorithm>

#include "base/text.h"
#include "kvtide/error.h"
#include "text/sentencepiece.h"
#include "text/utf8.h"

namespace kvtide {

BpeModel::BpeModel(const PipelineSpec& spec, std::optional<TokenId> unknown, const TokenTexts& texts,
                   const TextIndex& plain, FunctionRef<std::optional<TokenId>(std::string_view)> find)
    : texts_(texts),
      plain_(plain),
      byte_level_(spec.byte_level),
      whole_words_(spec.whole_words),
      fuse_unknown_(spec.fuse_unknown),
      unknown_(unknown),
      merges_(spec.merges.size()) {
  byte_tokens_.fill(-1);
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (byte_level_) {
      const char text = static_cast<char>(static_cast<unsigned char>(byte));
      byte_tokens_[byte] = plain.find(texts, {&text, 1}).value_or(-1);
    } else if (spec.byte_fallback) {
      byte_tokens_[byte] = find(byte_token_text(static_cast<unsigned char>(byte))).value_or(-1);
      has_fallback_ |= byte_tokens_[byte] >= 0;
    }
  }
  if (byte_level_ &&
      std::all_of(byte_tokens_.begin(), byte_tokens_.end(), [](TokenId id) { return id < 0; })) {
    throw Error(ErrorCode::bad_format,
                "vocabulary: no token is a single byte, so byte-level BPE cannot spell any text");
  }
  std::string joined;
  for (std::size_t i = 0; i < spec.merges.size(); ++i) {
    const auto& [left, right] = spec.merges[i];
    joined.assign(left).append(right);
    const auto left_id = find(left), right_id = find(right), id = find(joined);
    if (!left_id || !right_id || !id) {
      const std::string_view absent = !left_id ? left : !right_id ? right : std::string_view(joined);
      throw Error(ErrorCode::bad_format,
                  cat("vocabulary: merge ", i, " ", quoted(cat(left, " ", right)), " needs the token ",
                      quoted(absent), ", which the vocabulary does not have"));
    }
    merges_.insert(*left_id, *right_id, {static_cast<std::uint32_t>(i), *id});
    joined_.add_all(texts[*id]);
  }
}

void BpeModel::encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
  if (!scratch.words.takes(word)) return merge_word(word, scratch.run, out);
  if (const auto ids = scratch.words.find(word)) {
    out.insert(out.end(), ids->begin(), ids->end());
    return;
  }
  const std::size_t before = out.size();
  merge_word(word, scratch.run, out);
  scratch.words.keep(word, std::span(out).subspan(before));
}

void BpeModel::merge_word(std::string_view word, MergeRun& run, std::vector<TokenId>& out) const {
  if (whole_words_) {
    if (const auto id = plain_.find(texts_, word)) {
      out.push_back(*id);
      return;
    }
  }
  bool may_cut = false;  // the symbol before is a plain one: merges are told by the bytes at the seam
  bool after_unknown = false;
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t size = byte_level_ ? 1 : utf8_length(word[at]);
    const std::string_view symbol = word.substr(at, size);
    const TokenId id = byte_level_ ? byte_tokens_[static_cast<unsigned char>(symbol[0])]
                                   : plain_.find(texts_, symbol).value_or(-1);
    if (id >= 0) {
      if (may_cut && !joined_.contains(word[at - 1], word[at])) finish_run(run, out);
      run.add(static_cast<std::uint32_t>(size), id);
      may_cut = true;
      after_unknown = false;
    } else if (has_fallback_ && std::all_of(symbol.begin(), symbol.end(), [&](char byte) {
                 return byte_tokens_[static_cast<unsigned char>(byte)] >= 0;
               })) {
      for (const char byte : symbol) run.add(1, byte_tokens_[static_cast<unsigned char>(byte)]);
      may_cut = after_unknown = false;
    } else if (unknown_) {
      if (!(after_unknown && fuse_unknown_)) run.add(static_cast<std::uint32_t>(size), *unknown_);
      may_cut = false;
      after_unknown = true;
    } else {
      // Left out: its neighbours become each other's.
      may_cut = false;
    }
    at += size;
  }
  finish_run(run, out);
}

void BpeModel::finish_run(MergeRun& run, std::vector<TokenId>& out) const {
  run.merge([&](const SymbolPair& pair) { return merges_.find(pair.left, pair.right); });
  run.visit([&](std::uint32_t, std::uint32_t, TokenId id) { out.push_back(id); });
  run.clear();
}

std::string BpeModel::missing_bytes() const {
  std::string missing;
  for (std::size_t byte = 0; byte_level_ && byte < 256; ++byte) {
    if (byte_tokens_[byte] < 0) missing += static_cast<char>(static_cast<unsigned char>(byte));
  }
  return missing;
}

}  // namespace kvtide
