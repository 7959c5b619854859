#include "text/pretokenize.h"

#include <algorithm>
#include <string>

#include "base/text.h"
#include "kvtide/error.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace kvtide {
namespace {

using Word = FunctionRef<void(std::string_view)>;

constexpr CharClass kWordClasses = kLetter | kNumber | kSpace;  // \p{L}, \p{N}, \s; anything else is a sign

struct Character {
  std::size_t end;  // offset behind it
  CharClass kind;
};

// A fragment that is cut as if nothing stood around it.
struct Scanner {
  std::string_view text;

  bool done(std::size_t at) const { return at == text.size(); }
  Character at(std::size_t offset) const {
    return {offset + utf8_length(text[offset]), char_class(utf8_at(text, offset))};
  }
  bool is(std::size_t offset, CharClass kind) const { return !done(offset) && (at(offset).kind & kind) != 0; }
  bool is_sign(std::size_t offset) const { return !done(offset) && (at(offset).kind & kWordClasses) == 0; }
  bool is_newline(std::size_t offset) const {
    return !done(offset) && (text[offset] == '\n' || text[offset] == '\r');
  }

  std::size_t run(std::size_t offset, CharClass kind) const {
    while (is(offset, kind)) offset = at(offset).end;
    return offset;
  }
  std::size_t run_of_signs(std::size_t offset) const {
    while (is_sign(offset)) offset = at(offset).end;
    return offset;
  }

  // \s+(?!\S)|\s+ : white space leaves its last character to the word behind it.
  std::size_t white_space(std::size_t offset) const {
    std::size_t last = offset;
    std::size_t end = offset;
    while (is(end, kSpace)) {
      last = end;
      end = at(end).end;
    }
    return done(end) || last == offset ? end : last;
  }

  // 's 't 'm 'd 're 've 'll; in any case when `any_case`, and then the long s U+017F is an s too.
  std::size_t contraction(std::size_t offset, bool any_case) const {
    if (text[offset] != '\'') return offset;
    const std::string_view rest = text.substr(offset + 1, 2);
    const auto letter = [&](std::size_t i) {
      const char c = i < rest.size() ? rest[i] : '\0';
      return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    };
    const char first = letter(0), second = letter(1);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return offset + 2;
    if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
        (first == 'l' && second == 'l')) {
      return offset + 3;
    }
    if (any_case && rest == "\xc5\xbf") return offset + 3;
    return offset;
  }

  std::size_t next_gpt2(std::size_t offset) const {
    const std::size_t short_form = contraction(offset, false);
    if (short_form != offset) return short_form;
    const bool space = text[offset] == ' ' && !done(offset + 1);
    const std::size_t body = offset + (space ? 1 : 0);
    const CharClass kind = at(body).kind;
    if (kind & kLetter) return run(body, kLetter);
    if (kind & kNumber) return run(body, kNumber);
    if (!(kind & kSpace)) return run_of_signs(body);
    return white_space(offset);
  }

  // (?i:'s|...)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,most}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
  std::size_t next_llama3(std::size_t offset, int most) const {
    const std::size_t short_form = contraction(offset, true);
    if (short_form != offset) return short_form;
    const Character first = at(offset);
    if (first.kind & kLetter) return run(offset, kLetter);
    if (!(first.kind & kNumber) && !is_newline(offset) && is(first.end, kLetter))
      return run(first.end, kLetter);
    if (first.kind & kNumber) {
      std::size_t end = first.end;
      for (int count = 1; count < most && is(end, kNumber); ++count) end = at(end).end;
      return end;
    }
    const std::size_t body = offset + (text[offset] == ' ' ? 1 : 0);
    if (is_sign(body)) {
      std::size_t end = run_of_signs(body);
      while (is_newline(end)) ++end;
      return end;
    }
    std::size_t behind_newline = offset;
    for (std::size_t end = offset; is(end, kSpace); end = at(end).end) {
      if (is_newline(end)) behind_newline = end + 1;
    }
    return behind_newline != offset ? behind_newline : white_space(offset);
  }
};

void cut_gpt2(std::string_view text, Word word) {
  const Scanner scanner{text};
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = scanner.next_gpt2(at);
    word(text.substr(at, end - at));
    at = end;
  }
}

void cut_llama3(std::string_view text, int most, Word word) {
  const Scanner scanner{text};
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = scanner.next_llama3(at, most);
    word(text.substr(at, end - at));
    at = end;
  }
}

void cut_smollm(std::string_view text, Word word) {
  const Scanner scanner{text};
  std::size_t start = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Character character = scanner.at(at);
    if (character.kind & kDigit) {
      cut_gpt2(text.substr(start, at - start), word);
      word(text.substr(at, character.end - at));
      start = character.end;
    }
    at = character.end;
  }
  cut_gpt2(text.substr(start), word);
}

// A run of numbers: each three ASCII digits are a word, and so is what lies between such threes.
void cut_numbers(std::string_view text, Word word) {
  const auto digit = [&](std::size_t i) { return text[i] >= '0' && text[i] <= '9'; };
  std::size_t start = 0;
  std::size_t at = 0;
  while (at + 3 <= text.size()) {
    if (!digit(at) || !digit(at + 1) || !digit(at + 2)) {
      ++at;
      continue;
    }
    if (at != start) word(text.substr(start, at - start));
    word(text.substr(at, 3));
    start = at += 3;
  }
  if (start != text.size()) word(text.substr(start));
}

void cut_fallback(std::string_view text, Word word) {
  const Scanner scanner{text};
  const auto separates = [&](std::size_t at) {
    return (scanner.at(at).kind & kPunctuation) || std::string_view("$+<=>^~|").find(text[at]) != text.npos;
  };
  const auto inner = [&](std::string_view piece) {
    const Scanner part{piece};
    for (std::size_t at = 0; at < piece.size();) {
      const bool number = part.is(at, kNumber);
      std::size_t end = at;
      while (!part.done(end) && part.is(end, kNumber) == number) end = part.at(end).end;
      if (number) {
        cut_numbers(piece.substr(at, end - at), word);
      } else {
        word(piece.substr(at, end - at));
      }
      at = end;
    }
  };
  for (std::size_t at = 0; at < text.size();) {
    const bool separating = separates(at);
    std::size_t end = at;
    while (end < text.size() && separates(end) == separating) end = scanner.at(end).end;
    if (separating) {
      word(text.substr(at, end - at));
    } else {
      cut_gpt2(text.substr(at, end - at), inner);
    }
    at = end;
  }
}

struct Name {
  std::string_view name;
  PreTokenizerChoice choice;
};

// The name that this project uses comes first, then others under which files ask for the same rule.
constexpr Name kNames[] = {
    {"default", {PreTokenizer::fallback, false}},
    {"gpt-2", {PreTokenizer::gpt2, false}},
    {"gpt2", {PreTokenizer::gpt2, false}},
    {"phi-2", {PreTokenizer::gpt2, false}},
    {"gpt2-small-japanese-char", {PreTokenizer::gpt2, false}},
    {"mpt", {PreTokenizer::gpt2, false}},
    {"olmo", {PreTokenizer::gpt2, false}},
    {"exaone4", {PreTokenizer::gpt2, false}},
    {"mellum", {PreTokenizer::gpt2, false}},
    {"llama-bpe", {PreTokenizer::llama3, true}},
    {"llama3", {PreTokenizer::llama3, true}},
    {"llama-v3", {PreTokenizer::llama3, true}},
    {"falcon3", {PreTokenizer::llama3, true}},
    {"pixtral", {PreTokenizer::llama3, true}},
    {"lfm2", {PreTokenizer::llama3, true}},
    {"dbrx", {PreTokenizer::llama3, false}},
    {"smaug-bpe", {PreTokenizer::llama3, false}},
    {"qwen2", {PreTokenizer::qwen2, false}},
    {"deepseek-r1-qwen", {PreTokenizer::qwen2, false}},
    {"stablelm2", {PreTokenizer::qwen2, false}},
    {"megrez", {PreTokenizer::qwen2, false}},
    {"hunyuan", {PreTokenizer::qwen2, false}},
    {"smollm", {PreTokenizer::smollm, false}},
    {"starcoder", {PreTokenizer::smollm, false}},
    {"refact", {PreTokenizer::smollm, false}},
    {"command-r", {PreTokenizer::smollm, false}},
    {"codeshell", {PreTokenizer::smollm, false}},
    {"exaone", {PreTokenizer::smollm, false}},
    {"minerva-7b", {PreTokenizer::smollm, false}},
};

}  // namespace

PreTokenizerChoice find_pre_tokenizer(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kNames), std::end(kNames), [&](const Name& n) { return n.name == name; });
  if (found != std::end(kNames)) return found->choice;
  std::string known;
  for (const Name& entry : kNames) known += cat(known.empty() ? "" : ", ", entry.name);
  throw Error(ErrorCode::unsupported,
              cat("vocabulary: unknown pre-tokeniser ", quoted(name), "; kvtide knows ", known));
}

void pre_tokenize(PreTokenizer rule, std::string_view text, Word word) {
  switch (rule) {
    case PreTokenizer::gpt2:
      return cut_gpt2(text, word);
    case PreTokenizer::smollm:
      return cut_smollm(text, word);
    case PreTokenizer::llama3:
      return cut_llama3(text, 3, word);
    case PreTokenizer::qwen2:
      return cut_llama3(text, 1, word);
    case PreTokenizer::fallback:
      return cut_fallback(text, word);
  }
}

}  // namespace kvtide
