#include "text/sentencepiece.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <unordered_map>

#include "base/text.h"
#include "kvtide/error.h"
#include "text/utf8.h"
#include "text/word_cache.h"

namespace kvtide {
namespace {

// Higher scores to lower ranks; -0 and 0 are the same score.
std::uint32_t rank_of_score(float score) {
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0f);
  const std::uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return ~ascending;
}

std::vector<Marker> user_defined_markers(const TokenTexts& texts, const std::vector<TokenType>& types) {
  std::vector<Marker> markers;
  for (std::size_t i = 0; i < types.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (types[i] == TokenType::user_defined) markers.push_back({texts[id], id, false});
  }
  return markers;
}

}  // namespace

std::string with_space_marks(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 2 * static_cast<std::size_t>(std::count(text.begin(), text.end(), ' ')));
  for (const char c : text) {
    if (c == ' ') {
      out += kSpaceMark;
    } else {
      out += c;
    }
  }
  return out;
}

std::string without_space_marks(std::string_view text) {
  std::string out;
  std::size_t at = 0;
  for (std::size_t mark = 0; (mark = text.find(kSpaceMark, at)) != text.npos; at = mark + kSpaceMark.size()) {
    out.append(text.substr(at, mark - at)) += ' ';
  }
  return out.append(text.substr(at));
}

std::optional<unsigned char> parse_byte_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data() + 3, text.data() + 5, value, 16);
  if (error != std::errc{} || end != text.data() + 5) return std::nullopt;
  return static_cast<unsigned char>(value);
}

std::string byte_token_text(unsigned char byte) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  return std::string("<0x") + kHex[byte >> 4] + kHex[byte & 15] + ">";
}

// What one call of encode carries along.
struct SentencePiece::Work {
  struct Halves {
    std::string_view left, right;
  };
  std::string_view text;  // the fragment with spaces marked
  std::size_t begin = 0;  // of the run within it
  MergeRun run;
  WordCache words;
  std::unordered_map<TokenId, Halves> parts;  // of unused tokens: the pair that last could have become one
  bool after_unknown = false;
};

SentencePiece::SentencePiece(const VocabSpec& spec, const TokenTexts& texts, const TextIndex& pieces,
                             const std::vector<TokenType>& types)
    : texts_(texts),
      pieces_(pieces),
      types_(types),
      user_defined_(user_defined_markers(texts, types)),
      unknown_(spec.unk) {
  byte_tokens_.fill(-1);
  ranks_.reserve(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const auto refuse = [&](std::string_view why) {
      throw Error(ErrorCode::bad_format, cat("vocabulary: token ", i, " ", quoted(texts[id]), " ", why));
    };
    if (std::isnan(spec.scores[i])) refuse("has a score that is not a number");
    ranks_.push_back(rank_of_score(spec.scores[i]));
    if (types[i] == TokenType::byte) {
      const auto byte = parse_byte_token(texts[id]);
      if (!byte) refuse("is marked as a byte token, which has to be written <0x00> to <0xFF>");
      has_bytes_ = true;
      if (byte_tokens_[*byte] < 0) byte_tokens_[*byte] = id;
    } else if (types[i] == TokenType::unknown) {
      if (!unknown_) unknown_ = id;
    } else if (types[i] == TokenType::normal || types[i] == TokenType::unused) {
      has_unused_ |= types[i] == TokenType::unused;
      const std::string_view text = texts[id];
      joined_.add_all(text);
      for (std::size_t at = text.find(kSpaceMark, 1); at != text.npos; at = text.find(kSpaceMark, at + 1)) {
        before_mark_.set(static_cast<unsigned char>(text[at - 1]));
      }
    }
  }
  for (std::size_t byte = 0; has_bytes_ && byte < 256; ++byte) {
    if (byte_tokens_[byte] >= 0) continue;
    throw Error(ErrorCode::bad_format, cat("vocabulary: there are byte tokens, but none for byte ", byte,
                                           "; all 256 or none are needed"));
  }
  if (!has_bytes_ && !unknown_) {
    throw Error(ErrorCode::bad_format,
                "vocabulary: neither byte tokens nor an unknown token, so some text has no ids");
  }
  for (std::size_t c = 0; c < ascii_.size(); ++c) {
    const char text = static_cast<char>(c);
    ascii_[c] = pieces.find(texts, {&text, 1}).value_or(-1);
  }
}

TokenId SentencePiece::token_of(std::string_view piece) const {
  if (piece.size() == 1) return ascii_[static_cast<unsigned char>(piece[0])];
  return pieces_.find(texts_, piece).value_or(-1);
}

// Whether no token reaches across text[at], the start of a character. With unused tokens a run stays whole,
// because how they come apart depends on the order of all merges.
bool SentencePiece::may_cut(std::string_view text, std::size_t at) const {
  if (has_unused_ || at == 0) return false;
  if (!joined_.contains(text[at - 1], text[at])) return true;
  return text.compare(at, kSpaceMark.size(), kSpaceMark) == 0 &&
         !before_mark_.test(static_cast<unsigned char>(text[at - 1]));
}

void SentencePiece::encode(std::string_view fragment, bool prefix, std::vector<TokenId>& out) const {
  if (fragment.empty()) return;
  const std::string text = (prefix ? std::string(kSpaceMark) : std::string()) + with_space_marks(fragment);
  Work work;
  work.text = text;
  // A run of unknown characters becomes one token with the one before it.
  if (!has_unused_ && has_bytes_) work.words.open(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Marker* marker =
        user_defined_.may_start(text[at]) ? user_defined_.longest_at(text, at, text.size()) : nullptr;
    const std::size_t size = marker ? marker->text.size() : utf8_length(text[at]);
    if (has_unused_) {
      const TokenId id = marker ? marker->id : token_of(work.text.substr(at, size));
      work.run.add(static_cast<std::uint32_t>(size), id, marker != nullptr);
    } else if (marker || may_cut(text, at)) {
      finish_run(at, work, out);
      if (marker) {
        emit(marker->text, marker->id, work, out);
        work.begin = at + size;
      }
    }
    at += size;
  }
  finish_run(text.size(), work, out);
}

void SentencePiece::finish_run(std::size_t end, Work& work, std::vector<TokenId>& out) const {
  const std::string_view run = work.text.substr(work.begin, end - work.begin);
  work.begin = end;
  if (run.empty()) return;
  if (!work.words.takes(run)) return merge_run(run, work, out);
  if (const auto ids = work.words.find(run)) {
    out.insert(out.end(), ids->begin(), ids->end());
    return;
  }
  const std::size_t before = out.size();
  merge_run(run, work, out);
  work.words.keep(run, std::span(out).subspan(before));
}

void SentencePiece::merge_run(std::string_view run, Work& work, std::vector<TokenId>& out) const {
  // With unused tokens the run has been filled: there may be user-defined ones in it.
  for (std::size_t at = 0; !has_unused_ && at < run.size();) {
    const std::size_t size = utf8_length(run[at]);
    work.run.add(static_cast<std::uint32_t>(size), token_of(run.substr(at, size)));
    at += size;
  }
  work.run.merge([&](const SymbolPair& pair) -> Merge {
    const auto id = pieces_.find(texts_, run.substr(pair.begin, pair.end - pair.begin));
    if (!id) return {};
    const auto index = static_cast<std::size_t>(*id);
    if (types_[index] == TokenType::unused) {
      work.parts[*id] = {run.substr(pair.begin, pair.middle - pair.begin),
                         run.substr(pair.middle, pair.end - pair.middle)};
    }
    return {ranks_[index], *id};
  });
  work.run.visit([&](std::uint32_t from, std::uint32_t to, TokenId id) {
    emit(run.substr(from, to - from), id, work, out);
  });
  work.run.clear();
}

void SentencePiece::emit(std::string_view piece, TokenId id, Work& work, std::vector<TokenId>& out) const {
  if (id >= 0) {
    if (has_unused_ && work.parts.contains(id)) {
      take_apart(id, work, out);
      return;
    }
    out.push_back(id);
  } else if (has_bytes_) {
    for (const char byte : piece) out.push_back(byte_tokens_[static_cast<unsigned char>(byte)]);
  } else if (!work.after_unknown) {
    out.push_back(*unknown_);
  }
  work.after_unknown = id < 0 && !has_bytes_;
}

void SentencePiece::take_apart(TokenId unused, Work& work, std::vector<TokenId>& out) const {
  std::vector<Work::Halves> pending = {
      work.parts.at(unused)};  // a stack of ours: how deep this goes is up to the file
  while (!pending.empty()) {
    Work::Halves& halves = pending.back();
    const std::string_view piece = halves.left;
    halves.left = halves.right;
    halves.right = {};
    if (halves.left.empty()) pending.pop_back();
    const TokenId id = token_of(piece);
    if (const auto found = work.parts.find(id); found != work.parts.end()) {
      pending.push_back(found->second);
    } else {
      emit(piece, id, work, out);
    }
  }
}

}  // namespace kvtide
