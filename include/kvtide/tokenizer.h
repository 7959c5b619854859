// tokenizer.h: text to token ids and back.
//
// Ownership: a Tokenizer owns copies of everything it needs. Thread rules: const members from any thread.
// Invariants
//   1. decode(encode(x)) == x for every valid UTF-8 x (SentencePiece: except U+2581, its own space mark).
//   2. encode takes time linear in the length of the text, and a bounded stack, whatever the text is.
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
  bool parse_special = true;    // markers such as <|im_start|> in the text become their token; else plain text
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

  // Bytes of one token as they appear in text; control tokens give "" unless `special` is set.
  std::string piece(TokenId id, bool special = false) const;
  // Bytes of a sequence. May end in the middle of a UTF-8 character when the sequence does.
  std::string decode(std::span<const TokenId> ids, bool special = false) const;

  std::size_t size() const;                         // number of tokens in the vocabulary
  std::optional<TokenId> find(std::string_view token) const;  // id of a token by its stored text, e.g. "<|im_end|>"
  std::optional<TokenId> bos() const;
  std::optional<TokenId> eos() const;
  bool adds_bos() const;
  // True for the tokens that end a text or a turn: eos, eot and the known end-of-turn markers of the vocabulary.
  bool ends_text(TokenId id) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvtide
