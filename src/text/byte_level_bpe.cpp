#include "text/byte_level_bpe.h"

#include <algorithm>

#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

[[noreturn]] void refuse_merge(std::size_t number, std::string_view merge, std::string_view why) {
  throw Error(ErrorCode::bad_format, cat("vocabulary: merge ", number, " ", quoted(merge), " ", why));
}

}  // namespace

ByteLevelBpe::ByteLevelBpe(const VocabSpec& spec, const TokenTexts& texts, const TextIndex& plain,
                           FunctionRef<std::optional<TokenId>(std::string_view)> find)
    : texts_(texts), plain_(plain), pre_(find_pre_tokenizer(spec.pre)), merges_(spec.merges.size()) {
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(static_cast<unsigned char>(byte));
    byte_tokens_[byte] = plain.find(texts, {&text, 1}).value_or(-1);
  }
  if (std::all_of(byte_tokens_.begin(), byte_tokens_.end(), [](TokenId id) { return id < 0; })) {
    throw Error(ErrorCode::bad_format,
                "vocabulary: no token is a single byte, so byte-level BPE cannot spell any text");
  }
  std::string joined;
  for (std::size_t i = 0; i < spec.merges.size(); ++i) {
    const std::string_view merge = spec.merges[i];
    const std::size_t space = merge.find(' ');
    if (space == 0 || space == merge.npos || space + 1 == merge.size() ||
        merge.find(' ', space + 1) != merge.npos) {
      refuse_merge(i, merge, "has to be two tokens with one space between them");
    }
    const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
    joined.assign(left).append(right);
    const auto left_id = find(left), right_id = find(right), id = find(joined);
    if (!left_id || !right_id || !id) {
      const std::string_view absent = !left_id ? left : !right_id ? right : std::string_view(joined);
      refuse_merge(i, merge, cat("needs the token ", quoted(absent), ", which the vocabulary does not have"));
    }
    merges_.insert(*left_id, *right_id, {static_cast<std::uint32_t>(i), *id});
    joined_.add_all(texts[*id]);
  }
}

void ByteLevelBpe::encode(std::string_view fragment, std::vector<TokenId>& out) const {
  MergeRun run;
  pre_tokenize(pre_.rule, fragment, [&](std::string_view word) { encode_word(word, run, out); });
}

void ByteLevelBpe::encode_word(std::string_view word, MergeRun& run, std::vector<TokenId>& out) const {
  if (pre_.whole_words) {
    if (const auto id = plain_.find(texts_, word)) {
      out.push_back(*id);
      return;
    }
  }
  char before = 0;
  for (const char byte : word) {
    const TokenId id = byte_tokens_[static_cast<unsigned char>(byte)];
    if (id < 0) continue;
    if (!run.empty() && !joined_.contains(before, byte)) finish_run(run, out);
    run.add(1, id);
    before = byte;
  }
  finish_run(run, out);
}

void ByteLevelBpe::finish_run(MergeRun& run, std::vector<TokenId>& out) const {
  run.merge([&](const SymbolPair& pair) { return merges_.find(pair.left, pair.right); });
  run.visit([&](std::uint32_t, std::uint32_t, TokenId id) { out.push_back(id); });
  run.clear();
}

std::string ByteLevelBpe::missing_bytes() const {
  std::string missing;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (byte_tokens_[byte] < 0) missing += static_cast<char>(static_cast<unsigned char>(byte));
  }
  return missing;
}

}  // namespace kvtide
