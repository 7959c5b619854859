#include "text/grammar/token_trie.h"

#include <algorithm>
#include <string>
#include <utility>

namespace kvtide::grammar {
namespace {

constexpr std::size_t kLongest = 1024;  // a token that is longer is never taken

}  // namespace

TokenTrie::TokenTrie(const Tokenizer& tokenizer) : size_(tokenizer.size()) {
  std::vector<std::pair<std::string, TokenId>> all;
  all.reserve(size_);
  for (std::size_t i = 0; i < size_; ++i) {
    const auto id = static_cast<TokenId>(i);
    if (tokenizer.ends_text(id)) {
      ends_.push_back(id);
      continue;
    }
    std::string text = tokenizer.piece(id);
    if (!text.empty() && text.size() <= kLongest) all.emplace_back(std::move(text), id);
  }
  std::sort(all.begin(), all.end());
  std::vector<std::uint32_t> path;  // the nodes of the text before
  const auto close = [&](std::size_t depth) {
    for (; path.size() > depth; path.pop_back()) {
      Node& node = nodes_[path.back()];
      node.next = static_cast<std::uint32_t>(nodes_.size());
      node.end = static_cast<std::uint32_t>(tokens_.size());
      if (path.size() < 2) continue;
      Node& above = nodes_[path[path.size() - 2]];
      above.height = std::max<std::uint16_t>(above.height, static_cast<std::uint16_t>(node.height + 1));
      above.is_plain = above.is_plain && node.is_plain && is_plain(node.byte);
    }
  };
  const std::string* before = nullptr;
  for (const auto& [text, id] : all) {
    std::size_t same = 0;
    if (before != nullptr)
      while (same < before->size() && same < text.size() && (*before)[same] == text[same]) ++same;
    close(same);
    for (std::size_t i = same; i < text.size(); ++i) {
      const auto at = static_cast<std::uint32_t>(tokens_.size());
      path.push_back(static_cast<std::uint32_t>(nodes_.size()));
      nodes_.push_back(
          {static_cast<std::uint8_t>(text[i]), static_cast<std::uint16_t>(i + 1), 0, true, 0, at, at, at});
    }
    tokens_.push_back(id);
    nodes_[path.back()].last = static_cast<std::uint32_t>(tokens_.size());
    before = &text;
  }
  close(0);
}

}  // namespace kvtide::grammar
