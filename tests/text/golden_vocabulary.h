// golden_vocabulary.h: reads tests/goldens/text/*.golden (the format is told in tools/make_text_goldens.py).
#pragma once

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kvtide/tokenizer.h"
#include "text/vocab.h"

namespace kvtide {

struct GoldenIds {
  std::size_t text;  // index into the texts
  std::vector<TokenId> ids;
};

struct GoldenVocabulary {
  std::vector<std::string> tokens, merges;
  VocabSpec spec;  // without its views; see build()
  std::vector<GoldenIds> plain, special;
  std::vector<std::uint32_t> hashes;  // one per text

  Tokenizer build() {
    spec.tokens.assign(tokens.begin(), tokens.end());
    spec.merges.assign(merges.begin(), merges.end());
    return Tokenizer(spec);
  }
};

inline std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      out += static_cast<char>(std::stoi(std::string(text.substr(i + 2, 2)), nullptr, 16));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

inline std::ifstream open_golden(const std::string& name) {
  std::ifstream file(std::string(KVTIDE_GOLDENS "/text/") + name + ".golden", std::ios::binary);
  if (!file) throw std::runtime_error("no golden file " + name);
  return file;
}

inline std::vector<std::string> read_golden_texts() {
  std::ifstream file = open_golden("texts");
  std::vector<std::string> texts;
  std::string line;
  std::getline(file, line);  // the comment
  while (std::getline(file, line)) texts.push_back(unescaped(line));
  return texts;
}

inline GoldenVocabulary read_golden_vocabulary(const std::string& name) {
  std::ifstream file = open_golden(name);
  GoldenVocabulary golden;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string key, word;
    fields >> key;
    if (key == "kind") {
      fields >> word;
      golden.spec.kind = word == "bpe" ? VocabSpec::Kind::bpe : VocabSpec::Kind::sentencepiece;
    } else if (key == "pre") {
      fields >> golden.spec.pre;
    } else if (key == "unknown") {
      TokenId id = -1;
      fields >> id;
      if (id >= 0) golden.spec.unk = id;
    } else if (key == "space_prefix") {
      fields >> golden.spec.add_space_prefix;
    } else if (key == "token") {
      int type = 0;
      float score = 0;
      fields >> type >> score >> word;
      golden.tokens.push_back(unescaped(word));
      golden.spec.types.push_back(static_cast<TokenType>(type));
      golden.spec.scores.push_back(score);
    } else if (key == "merge") {
      std::string right;
      fields >> word >> right;
      golden.merges.push_back(unescaped(word) + " " + unescaped(right));
    } else if (key == "plain" || key == "special") {
      GoldenIds entry{};
      fields >> entry.text;
      for (TokenId id = 0; fields >> id;) entry.ids.push_back(id);
      (key == "plain" ? golden.plain : golden.special).push_back(std::move(entry));
    } else if (key == "hashes") {
      while (fields >> word)
        golden.hashes.push_back(static_cast<std::uint32_t>(std::stoul(word, nullptr, 16)));
    }
  }
  return golden;
}

// FNV-1a, 32 bit, over the ids as little-endian int32.
inline std::uint32_t hash_of(const std::vector<TokenId>& ids) {
  std::uint32_t value = 2166136261u;
  for (const TokenId id : ids) {
    for (int shift = 0; shift < 32; shift += 8) {
      value = (value ^ (static_cast<std::uint32_t>(id) >> shift & 0xff)) * 16777619u;
    }
  }
  return value;
}

}  // namespace kvtide
