// sentencepiece.h: SentencePiece's BPE, the tokenizers of Llama 2, Mistral and Gemma.
//
// A space is written U+2581. User-defined tokens are matched first and stay whole; between them the
// neighbours whose joined text is the token of the highest score merge first. What is left without a token is
// spelled in byte tokens, or becomes the unknown token (one for a run of such characters).
// Ownership: refers to the texts of the vocabulary, which the caller keeps alive.
// Thread rules: const from any thread.
#pragma once

#include <array>
#include <bitset>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/markers.h"
#include "text/merging.h"
#include "text/token_index.h"
#include "text/vocab.h"

namespace kvtide {

inline constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // U+2581

std::string with_space_marks(std::string_view text);
std::string without_space_marks(std::string_view text);
// The byte of a token written <0x00> to <0xFF>.
std::optional<unsigned char> parse_byte_token(std::string_view text);
std::string byte_token_text(unsigned char byte);

class SentencePiece {
 public:
  // `texts` holds the stored texts with spaces marked, `pieces` indexes the tokens that text may become (all
  // but control, unknown and byte tokens), `types` says what each token is. Throws Error(bad_format) for
  // scores that are not numbers, malformed or incomplete byte tokens, or no way to spell unknown characters.
  SentencePiece(const VocabSpec& spec, const TokenTexts& texts, const TextIndex& pieces,
                const std::vector<TokenType>& types);

  // Appends the ids of a fragment of valid UTF-8 without control markers. `prefix`: put a space before it.
  void encode(std::string_view fragment, bool prefix, std::vector<TokenId>& out) const;

 private:
  struct Work;
  TokenId token_of(std::string_view piece) const;  // -1: none has this text
  bool may_cut(std::string_view text, std::size_t at) const;
  void finish_run(std::size_t end, Work& work, std::vector<TokenId>& out) const;
  void merge_run(std::string_view run, Work& work, std::vector<TokenId>& out) const;
  void emit(std::string_view piece, TokenId id, Work& work, std::vector<TokenId>& out) const;
  void take_apart(TokenId unused, Work& work, std::vector<TokenId>& out) const;

  const TokenTexts& texts_;
  const TextIndex& pieces_;
  const std::vector<TokenType>& types_;
  MarkerSet user_defined_;
  std::vector<std::uint32_t> ranks_;      // by token: lower for a higher score
  std::array<TokenId, 256> byte_tokens_;  // -1 throughout: no byte fallback
  std::array<TokenId, 128> ascii_;        // token of a single ASCII character, or -1
  std::optional<TokenId> unknown_;
  bool has_bytes_ = false;
  bool has_unused_ = false;
  BytePairs joined_;  // of the tokens that merging may produce
  // Bytes behind which such a token has a U+2581, which shares its first byte with dashes
  std::bitset<256> before_mark_;
};

}  // namespace kvtide
