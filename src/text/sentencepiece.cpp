#include "text/sentencepiece.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <unordered_map>

#include "base/text.h"
#include "kvtide/error.h"
#include "text/utf8.h"

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

// What one call of encode carries along.
struct SentencePiece::Work {
  struct Halves {
    std::uint32_t begin, middle, end;
  };
  MergeRun run;
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

TokenId SentencePiece::token_of(std::string_view text, std::uint32_t begin, std::uint32_t end) const {
  if (end - begin == 1) return ascii_[static_cast<unsigned char>(text[begin])];
  return pieces_.find(texts_, text.substr(begin, end - begin)).value_or(-1);
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
  if (fragment.size() > (Symbol::kNone - kSpaceMark.size()) / kSpaceMark.size()) {
    throw Error(ErrorCode::bad_text, "text: longer than 1.4 GB without a marker");
  }
  const std::string text = (prefix ? std::string(kSpaceMark) : std::string()) + with_space_marks(fragment);
  Work work;
  for (std::uint32_t at = 0; at < text.size();) {
    if (user_defined_.may_start(text[at])) {
      if (const Marker* marker = user_defined_.longest_at(text, at, text.size())) {
        const auto end = static_cast<std::uint32_t>(at + marker->text.size());
        if (!has_unused_) finish_run(text, work, out);
        work.run.add(at, end, marker->id, true);
        at = end;
        continue;
      }
    }
    if (may_cut(text, at)) finish_run(text, work, out);
    const auto end = static_cast<std::uint32_t>(at + utf8_length(text[at]));
    work.run.add(at, end, token_of(text, at, end));
    at = end;
  }
  finish_run(text, work, out);
}

void SentencePiece::finish_run(std::string_view text, Work& work, std::vector<TokenId>& out) const {
  work.run.merge([&](const Symbol& left, const Symbol& right) -> Merge {
    const auto id = pieces_.find(texts_, text.substr(left.begin, right.end - left.begin));
    if (!id) return {};
    if (has_unused_ && types_[static_cast<std::size_t>(*id)] == TokenType::unused) {
      work.parts[*id] = {left.begin, left.end, right.end};
    }
    return {ranks_[static_cast<std::size_t>(*id)], *id};
  });
  work.run.visit([&](const Symbol& symbol) { emit(text, symbol, work, out); });
  work.run.clear();
}

void SentencePiece::emit(std::string_view text, const Symbol& symbol, Work& work,
                         std::vector<TokenId>& out) const {
  if (symbol.id >= 0) {
    if (has_unused_ && types_[static_cast<std::size_t>(symbol.id)] == TokenType::unused) {
      take_apart(text, symbol, work, out);
      return;
    }
    out.push_back(symbol.id);
  } else if (has_bytes_) {
    for (std::uint32_t i = symbol.begin; i < symbol.end; ++i) {
      out.push_back(byte_tokens_[static_cast<unsigned char>(text[i])]);
    }
  } else if (!work.after_unknown) {
    out.push_back(*unknown_);
  }
  work.after_unknown = symbol.id < 0 && !has_bytes_;
}

void SentencePiece::take_apart(std::string_view text, const Symbol& symbol, Work& work,
                               std::vector<TokenId>& out) const {
  std::vector<Symbol> pending = {
      symbol};  // an explicit stack, because how deep this goes is up to the vocabulary
  while (!pending.empty()) {
    const Symbol part = pending.back();
    pending.pop_back();
    const auto found = part.id < 0 ? work.parts.end() : work.parts.find(part.id);
    if (found == work.parts.end()) {
      // An unused token of one character has nothing to come apart into.
      if (part.id >= 0) {
        out.push_back(part.id);
        work.after_unknown = false;
      } else {
        emit(text, part, work, out);
      }
      continue;
    }
    const auto [begin, middle, end] = found->second;
    Symbol left, right;
    left.begin = begin;
    left.end = right.begin = middle;
    right.end = end;
    left.id = token_of(text, begin, middle);
    right.id = token_of(text, middle, end);
    pending.push_back(right);
    pending.push_back(left);
  }
}

}  // namespace kvtide
