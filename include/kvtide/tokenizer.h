// tokenizer.h: text to token ids and back.
//
// Ownership: a Tokenizer owns copies of everything it needs.
// Thread rules: const members from any thread.
// Invariants
//   1. decode(encode(x)) == x for every valid UTF-8 x without markers, with two exceptions that the
//      vocabularies make: SentencePiece's own space mark U+2581 comes back as a space, and what a vocabulary
//      cannot spell is lost (bytes that a byte-level vocabulary lacks, see missing_bytes; unknown characters
//      where there are no byte tokens).
//   2. encode takes time linear in the length of the text (times its logarithm within one word) and a bounded
//      stack, whatever the text is.
//   3. Where a vocabulary holds a text twice, encode uses the lower id; both decode.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvtide/types.h"

namespace kvtide {

struct VocabSpec;

struct EncodeOptions {
  std::optional<bool> add_bos;  // nullopt: as the vocabulary says
  bool parse_special = true;  // markers such as <|im_start|> in the text become their token; else plain text
  bool continues = false;     // the text goes on behind other text: no bos, no space in front, even if the
                              // vocabulary adds them
};

// A stretch of text. Control markers such as <|im_end|> mean something only in markup; in the rest, which a
// user wrote, they are plain text.
struct TextSegment {
  std::string text;
  bool is_markup = false;
  friend bool operator==(const TextSegment&, const TextSegment&) = default;
};

class Tokenizer {
 public:
  // Throws Error(bad_format) naming the token or merge that breaks a rule, Error(unsupported) for an unknown
  // pre-tokeniser (the message lists the known ones).
  explicit Tokenizer(const VocabSpec& spec);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // Throws Error(bad_text) with the byte offset of the first invalid UTF-8 sequence.
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options = {}) const;
  // The same for the segments of a chat, read as one text: words may cross from one segment into the next,
  // control markers are seen only within one markup segment. Offsets in errors count from the start of the
  // first segment.
  std::vector<TokenId> encode(std::span<const TextSegment> segments, const EncodeOptions& options = {}) const;

  // Bytes of one token as they appear in text; control tokens give "" unless `special` is set.
  // Throws Error(invalid_argument) for an id outside the vocabulary.
  std::string piece(TokenId id, bool special = false) const;
  // Bytes of a sequence that starts a text: the space that a vocabulary puts in front is taken off again. May
  // end in the middle of a UTF-8 character when the sequence does.
  std::string decode(std::span<const TokenId> ids, bool special = false) const;

  std::size_t size() const;  // number of tokens in the vocabulary
  // Id of a token by its stored text, e.g. "<|im_end|>"
  std::optional<TokenId> find(std::string_view token) const;
  std::optional<TokenId> bos() const;
  std::optional<TokenId> eos() const;
  bool adds_bos() const;
  // True for the tokens that end a text or a turn: eos, eot and the known end-of-turn markers of the
  // vocabulary.
  bool ends_text(TokenId id) const;
  // The bytes that no token spells and that encode therefore leaves out, in ascending order. Empty for most
  // vocabularies.
  std::string missing_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvtide
