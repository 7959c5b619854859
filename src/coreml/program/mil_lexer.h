// mil_lexer.h: MIL text in words: names, numbers, texts in quotes and signs, each with its line.
//
// Comments (// to the end of the line) and white space are skipped. Numbers keep their spelling: which type they have is known later.
// Ownership: refers to the text, which must outlive it.
// Errors: bad_format: "FILE: line N, column M: WHY".
// Thread rules: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "kvtide/error.h"

namespace kvtide::coreml {

struct MilToken {
  enum class Kind : std::uint8_t { name, number, text, sign, end };
  Kind kind = Kind::end;
  std::string_view spelling;  // of a text: between the quotes, escapes included
  std::size_t at = 0;         // its first byte
  std::size_t line = 1;
};

class MilLexer {
 public:
  MilLexer(std::string_view text, std::string file);

  const MilToken& now() const { return now_; }
  MilToken take();  // and goes to the next
  bool is(std::string_view sign) const { return now_.kind == MilToken::Kind::sign && now_.spelling == sign; }
  bool is_word(std::string_view word) const {
    return now_.kind == MilToken::Kind::name && now_.spelling == word;
  }
  bool skip(std::string_view sign);    // takes it when it is there
  void expect(std::string_view sign);  // throws when it is not
  char behind() const;                 // the first byte behind the token and white space; 0: there is none
  std::string_view name(std::string_view what);
  std::string text(std::string_view what);  // of a token in quotes, escapes resolved, UTF-8
  std::int64_t whole(std::string_view what, std::int64_t least, std::int64_t most);

  // What is being read, for messages: "linear".
  void subject(std::string_view what) { subject_ = what; }
  [[noreturn]] void fail(const std::string& why, ErrorCode code = ErrorCode::bad_format) const;  // at now()
  [[noreturn]] void fail_expected(std::string_view what) const;

 private:
  void scan();
  void skip_space();
  void scan_text();

  const std::string_view text_;
  const std::string file_;
  std::string_view subject_;
  std::size_t at_ = 0, line_ = 1;
  MilToken now_;
};

}  // namespace kvtide::coreml
