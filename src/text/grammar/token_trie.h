// token_trie.h: the texts of a vocabulary's tokens as a tree of bytes, laid out so that one scan walks it.
//
// Ownership: owns what it keeps. Thread rules: const from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvtide/tokenizer.h"

namespace kvtide::grammar {

class TokenTrie {
 public:
  // In the order in which a walk meets them: a node's children behind it, one deeper.
  struct Node {
    std::uint8_t byte;
    std::uint16_t depth;        // 1: the first byte of a token
    std::uint16_t height;       // bytes below it, at most
    bool is_plain;              // all of these are is_plain()
    std::uint32_t next;         // the node behind all that lies below it
    std::uint32_t first, last;  // of tokens(): those that end here
    std::uint32_t end;          // of tokens(): behind those that end here or below
  };
  // Bytes that grammars often treat alike: those of plain English in a text of JSON.
  static bool is_plain(std::uint8_t byte) {
    return byte >= 0x20 && byte < 0x7f && byte != '"' && byte != '\\';
  }

  // Tokens without text, which are control tokens, are left out.
  explicit TokenTrie(const Tokenizer& tokenizer);

  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<TokenId>& tokens() const { return tokens_; }  // in the order of their texts
  const std::vector<TokenId>& ends() const { return ends_; }      // that end a text
  std::size_t size() const { return size_; }                      // of the vocabulary

 private:
  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_, ends_;
  std::size_t size_;
};

}  // namespace kvtide::grammar
