// input_text.h: the texts that a user hands over: on the command line, in a file, on stdin.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/arguments/arguments.h"
#include "kvtide/tokenizer.h"

namespace kvtide {

struct InputText {
  std::string name;  // for messages: the path, "stdin" or "the prompt (-p)"
  std::string text;  // valid UTF-8, as it was given
};

// A whole file; "-" is stdin. Throws Error: not_found, bad_format (a directory, empty), bad_text with the
// byte offset, io, cancelled (Ctrl-C while waiting).
InputText read_text_file(const std::string& path);

// A text for a model to read: says what an editor or another system left in it (a byte order mark, lines that end in
// CR LF), and takes it out with --text-newlines.
InputText read_document(const std::string& path, const Arguments& arguments);

// The text of -p or -f, or stdin without either: a prompt then, which loses its last line feed.
InputText given_text(const Arguments& arguments);

// What the user gave on the command line; throws Error(bad_text).
InputText prompt_text(const std::string& text);

// Ids as the flags ask (--no-bos, --no-special) and `options` say. Says so when the vocabulary cannot spell
// parts of the text, throws Error(invalid_argument) when nothing is left.
std::vector<TokenId> encode_text(const Tokenizer& tokenizer, const InputText& input,
                                 const Arguments& arguments, EncodeOptions options = {});

}  // namespace kvtide
