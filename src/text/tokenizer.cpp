#include "kvtide/tokenizer.h"

#include <algorithm>

#include "base/out_of_memory.h"
#include "base/text.h"
#include "kvtide/error.h"
#include "text/byte_level.h"
#include "text/markers.h"
#include "text/pipeline.h"
#include "text/sentencepiece.h"
#include "text/token_index.h"
#include "text/token_roles.h"
#include "text/utf8.h"
#include "text/vocab.h"

namespace kvtide {
namespace {

// A half-open range of bytes of the text.
struct ByteRange {
  std::size_t first, last;
};

std::vector<TokenType> types_of(const VocabSpec& spec) {
  const std::size_t count = spec.tokens.size();
  if (count == 0) throw Error(ErrorCode::bad_format, "vocabulary: it has no tokens");
  if (count > 0x7fffffff)
    throw Error(ErrorCode::bad_format, cat("vocabulary: ", count, " tokens do not fit 31 bits"));
  const auto require = [&](std::size_t have, const char* what) {
    if (have == count) return;
    throw Error(ErrorCode::bad_format, cat("vocabulary: ", have, " ", what, " for ", count, " tokens"));
  };
  if (!spec.types.empty()) require(spec.types.size(), "types");
  if (spec.kind == VocabSpec::Kind::sentencepiece) require(spec.scores.size(), "scores");
  const auto in_range = [&](const std::optional<TokenId>& id, const char* what) {
    if (!id || (*id >= 0 && static_cast<std::size_t>(*id) < count)) return;
    throw Error(ErrorCode::bad_format,
                cat("vocabulary: the ", what, " token is ", *id, ", but ids go from 0 to ", count - 1));
  };
  in_range(spec.bos, "bos");
  in_range(spec.eos, "eos");
  in_range(spec.eot, "eot");
  in_range(spec.unk, "unknown");
  if (spec.add_bos && !spec.bos)
    throw Error(ErrorCode::bad_format, "vocabulary: asks for a bos token and names none");
  if (spec.add_eos && !spec.eos)
    throw Error(ErrorCode::bad_format, "vocabulary: asks for an eos token and names none");

  std::vector<TokenType> types = spec.types;
  types.resize(count, TokenType::normal);
  for (std::size_t i = 0; i < count; ++i) {
    if (types[i] < TokenType::normal || types[i] > TokenType::byte) {
      throw Error(ErrorCode::bad_format,
                  cat("vocabulary: token ", i, " ", quoted(spec.tokens[i]), " has type ",
                      static_cast<int>(types[i]), "; types go from 1 to 6"));
    }
    if (types[i] == TokenType::user_defined && is_control_like(spec.tokens[i])) types[i] = TokenType::control;
  }
  return types;
}

bool is_hidden(TokenType type) { return type == TokenType::control || type == TokenType::unknown; }

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(const VocabSpec& spec)
      : types(types_of(spec)),
        plain(spec.tokens.size()),
        literal(static_cast<std::size_t>(std::count_if(
            types.begin(), types.end(),
            [](TokenType type) { return type != TokenType::normal && type != TokenType::unused; }))),
        bos(spec.bos),
        eos(spec.eos),
        add_bos(spec.add_bos),
        add_eos(spec.add_eos),
        add_space_prefix(spec.add_space_prefix && spec.kind != VocabSpec::Kind::bpe) {
    std::size_t bytes = 0;
    for (const std::string_view token : spec.tokens) bytes += token.size();
    texts.reserve(spec.tokens.size(), bytes);
    const bool sentencepiece = spec.kind == VocabSpec::Kind::sentencepiece;
    const PipelineSpec steps =
        spec.kind == VocabSpec::Kind::bpe ? byte_level_pipeline(spec.pre, spec.merges) : spec.pipeline;
    byte_level = !sentencepiece && steps.byte_level;
    for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
      if (byte_level)
        add_byte_level(spec.tokens[i], types[i]);
      else if (sentencepiece)
        add_piece(spec.tokens[i], types[i]);
      else
        add_symbol(spec.tokens[i], types[i]);
    }
    ends.resize(types.size());
    for (std::size_t i = 0; i < types.size(); ++i)
      ends[i] = is_hidden(types[i]) && is_end_marker(spec.tokens[i]);
    if (eos) ends[static_cast<std::size_t>(*eos)] = true;
    if (spec.eot) ends[static_cast<std::size_t>(*spec.eot)] = true;

    if (sentencepiece) {
      pieces.emplace(spec, texts, plain, types);
    } else {
      // An unknown byte of a GGUF vocabulary is left out.
      const auto unknown = spec.kind == VocabSpec::Kind::pipeline ? spec.unk : std::nullopt;
      pipeline.emplace(steps, BpeModel(steps, unknown, texts, plain,
                                       [this](std::string_view token) { return find(token); }));
    }
    make_markers(steps);
  }

  void make_markers(const PipelineSpec& steps) {
    std::vector<AddedToken> added(types.size());
    for (const AddedToken& token : steps.added) added[checked(token.id)] = token;
    std::vector<Marker> found, found_normalized;
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < types.size(); ++i)
      if (added[i].normalized) bytes += texts[static_cast<TokenId>(i)].size() + 64;
    normalized_texts.reserve(types.size(), bytes);
    for (std::size_t i = 0; i < types.size(); ++i) {
      const auto id = static_cast<TokenId>(i);
      const bool control = is_hidden(types[i]);
      // SentencePiece matches its user-defined tokens itself, behind the marking of spaces.
      if (!control && (pieces || types[i] != TokenType::user_defined)) continue;
      const AddedToken& token = added[i];
      const Marker marker{texts[id],       id, control, token.takes_space_before, token.takes_space_behind,
                          token.whole_word};
      if (token.normalized && pipeline->normalizes()) {
        normalized_of.emplace_back(static_cast<TokenId>(normalized_texts.size()), marker);
        normalized_texts.add(pipeline->normalized(texts[id], true));
      } else {
        found.push_back(marker);
      }
    }
    markers.emplace(std::move(found));
    for (auto& [index, marker] : normalized_of) {
      marker.text = normalized_texts[index];
      found_normalized.push_back(marker);
    }
    normalized_markers.emplace(std::move(found_normalized));
  }
  Impl(const Impl&) = delete;  // the parts refer to each other
  Impl& operator=(const Impl&) = delete;

  void add_byte_level(std::string_view stored, TokenType type) {
    const auto id = static_cast<TokenId>(texts.size());
    const bool as_stored = is_hidden(type) || type == TokenType::user_defined;
    const auto bytes = as_stored ? std::nullopt : from_byte_level(stored);
    texts.add(bytes ? std::string_view(*bytes) : stored);
    if (texts[id].empty()) return;
    (bytes ? plain : literal).insert(texts, id);
  }

  void add_piece(std::string_view stored, TokenType type) {
    const auto id = static_cast<TokenId>(texts.size());
    if (type == TokenType::user_defined) {
      texts.add(with_space_marks(stored));
    } else {
      texts.add(stored);
    }
    if (stored.empty()) return;
    (is_hidden(type) || type == TokenType::byte ? literal : plain).insert(texts, id);
  }

  // Of a pipeline whose symbols are characters: as stored; an added token is no result of merging.
  void add_symbol(std::string_view stored, TokenType type) {
    const auto id = static_cast<TokenId>(texts.size());
    texts.add(stored);
    if (stored.empty()) return;
    (is_hidden(type) || type == TokenType::user_defined ? literal : plain).insert(texts, id);
  }

  std::optional<TokenId> find_byte_level(std::string_view stored) const {
    if (const auto bytes = from_byte_level(stored)) {
      if (const auto id = plain.find(texts, *bytes)) return id;
    }
    return literal.find(texts, stored);
  }

  std::optional<TokenId> find(std::string_view stored) const {
    if (byte_level) return find_byte_level(stored);
    if (const auto id = literal.find(texts, stored)) return id;
    if (!pieces) return plain.find(texts, stored);
    return plain.find(texts, with_space_marks(stored));
  }

  std::size_t checked(TokenId id) const {
    if (id >= 0 && static_cast<std::size_t>(id) < types.size()) return static_cast<std::size_t>(id);
    throw Error(ErrorCode::invalid_argument,
                cat("token ", id, " is outside the vocabulary: ids go from 0 to ", types.size() - 1));
  }

  // `markup` holds the ranges in which control markers count, ascending and apart from each other.
  std::vector<TokenId> encode(std::string_view text, std::span<const ByteRange> markup,
                              const EncodeOptions& options) const;
  // starts: it begins the text. continues: the text goes on behind other text, and this begins it. markup:
  // all of it is markup.
  void encode_fragment(std::string_view fragment, bool starts, bool continues, bool markup,
                       std::vector<TokenId>& out) const {
    if (fragment.empty()) return;
    if (pieces) return pieces->encode(fragment, starts && !continues && add_space_prefix, out);
    const bool fronted = !(starts && continues);
    if (!pipeline->normalizes()) return pipeline->encode(fragment, starts && !continues, fronted, out);
    const std::string text = pipeline->normalized(fragment, fronted);
    std::size_t start = 0;
    for (std::size_t at = 0; at < text.size();) {
      const auto match = normalized_markers->match_at(text, at, start, markup ? text.size() : 0);
      if (!match) {
        ++at;
        continue;
      }
      pipeline->encode(std::string_view(text).substr(start, match->first - start),
                       starts && !continues && start == 0, fronted, out);
      out.push_back(match->id);
      start = at = match->last;
    }
    pipeline->encode(std::string_view(text).substr(start), starts && !continues && start == 0, fronted, out);
  }

  void append_piece(TokenId id, bool special, std::string& out) const;

  std::vector<TokenType> types;
  TokenTexts texts;   // by token: bytes of byte-level tokens, else the stored text with spaces marked
  TextIndex plain;    // tokens that merging may produce
  TextIndex literal;  // the others, by stored text
  std::optional<MarkerSet> markers, normalized_markers;
  TokenTexts normalized_texts;  // of the markers that are looked for in normalised text
  std::vector<std::pair<TokenId, Marker>> normalized_of;
  bool byte_level = false;
  std::optional<Pipeline> pipeline;  // exactly one of the two
  std::optional<SentencePiece> pieces;
  std::vector<bool> ends;
  std::optional<TokenId> bos, eos;
  bool add_bos, add_eos, add_space_prefix;
};

std::vector<TokenId> Tokenizer::Impl::encode(std::string_view text, std::span<const ByteRange> markup,
                                             const EncodeOptions& options) const {
  require_utf8(text, "text");
  std::vector<TokenId> out;
  const bool with_bos = options.add_bos.value_or(add_bos && !options.continues);
  if (with_bos) {
    if (!bos)
      throw Error(ErrorCode::invalid_argument,
                  "encode: add_bos is set, but the vocabulary names no bos token");
    out.push_back(*bos);
  }
  const auto is_markup = [&](std::size_t first, std::size_t last) {
    return std::any_of(markup.begin(), markup.end(),
                       [&](const ByteRange& range) { return range.first <= first && last <= range.last; });
  };
  std::size_t start = 0;  // of the fragment that is not encoded yet
  std::size_t range = 0;  // of markup: the first that does not end at or before `at`
  for (std::size_t at = 0; at < text.size();) {
    if (!markers->may_start(text[at])) {
      ++at;
      continue;
    }
    while (range < markup.size() && markup[range].last <= at) ++range;
    const bool inside = range < markup.size() && markup[range].first <= at;
    const auto match = markers->match_at(text, at, start, inside ? markup[range].last : 0);
    if (!match) {
      ++at;
      continue;
    }
    encode_fragment(text.substr(start, match->first - start), start == 0, options.continues,
                    is_markup(start, match->first), out);
    out.push_back(match->id);
    start = at = match->last;
  }
  encode_fragment(text.substr(start), start == 0, options.continues, is_markup(start, text.size()), out);
  if (add_eos && !options.continues) out.push_back(*eos);
  return out;
}

void Tokenizer::Impl::append_piece(TokenId id, bool special, std::string& out) const {
  const TokenType type = types[checked(id)];
  if (is_hidden(type)) {
    if (special) out += texts[id];
  } else if (byte_level || type == TokenType::user_defined) {
    out += pieces ? without_space_marks(texts[id]) : std::string(texts[id]);
  } else if (type == TokenType::byte) {
    out += static_cast<char>(*parse_byte_token(texts[id]));
  } else {
    out += without_space_marks(texts[id]);
  }
}

Tokenizer::Tokenizer(const VocabSpec& spec) try : impl_(std::make_unique<Impl>(spec)) {
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

std::vector<TokenId> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const try {
  const ByteRange whole{0, text.size()};
  return impl_->encode(text, std::span(&whole, options.parse_special ? 1 : 0), options);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

std::vector<TokenId> Tokenizer::encode(std::span<const TextSegment> segments,
                                       const EncodeOptions& options) const try {
  std::string text;
  std::vector<ByteRange> markup;
  for (const TextSegment& segment : segments) {
    if (segment.is_markup && options.parse_special)
      markup.push_back({text.size(), text.size() + segment.text.size()});
    text += segment.text;
  }
  return impl_->encode(text, markup, options);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

std::string Tokenizer::piece(TokenId id, bool special) const try {
  std::string out;
  impl_->append_piece(id, special, out);
  return out;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool special) const try {
  std::string out;
  const bool skips_bos = !special && !ids.empty() && impl_->bos && ids[0] == *impl_->bos;
  const std::size_t first = skips_bos ? 1 : 0;
  for (std::size_t i = first; i < ids.size(); ++i) {
    impl_->append_piece(ids[i], special, out);
    // Only text that starts the sequence was given a space; text behind another marker was not.
    const bool prefixed = i == first && impl_->add_space_prefix && !is_hidden(impl_->types[ids[i]]);
    if (prefixed && out.starts_with(' ')) out.erase(0, 1);
  }
  return out;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

std::size_t Tokenizer::size() const { return impl_->types.size(); }
std::optional<TokenId> Tokenizer::find(std::string_view token) const {
  return or_out_of_memory([&] { return impl_->find(token); });
}
std::optional<TokenId> Tokenizer::bos() const { return impl_->bos; }
std::optional<TokenId> Tokenizer::eos() const { return impl_->eos; }
bool Tokenizer::adds_bos() const { return impl_->add_bos; }
bool Tokenizer::ends_text(TokenId id) const { return impl_->ends[impl_->checked(id)]; }
std::string Tokenizer::missing_bytes() const try {
  return impl_->pipeline ? impl_->pipeline->missing_bytes() : std::string();
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide
