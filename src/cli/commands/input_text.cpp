#include "cli/commands/input_text.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "cli/commands/interrupt.h"
#include "cli/output/terminal.h"
#include "kvtide/error.h"
#include "text/utf8.h"

namespace kvtide {
namespace {

constexpr std::size_t kPiece = 1 << 16;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

struct Descriptor {
  int fd;
  bool ours;
  ~Descriptor() {
    if (ours && fd >= 0) ::close(fd);
  }
};

}  // namespace

InputText read_text_file(const std::string& path) {
  const bool is_stdin = path == "-";
  InputText input{is_stdin ? "stdin" : path, {}};
  const auto refuse = [&](ErrorCode code, const std::string& why) {
    throw Error(code, cat(input.name, ": ", why));
  };
  const Descriptor file{is_stdin ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC), !is_stdin};
  if (file.fd < 0) refuse(ErrorCode::not_found, cat("cannot open: ", std::strerror(errno)));
  struct stat info {};
  if (::fstat(file.fd, &info) == 0 && S_ISDIR(info.st_mode))
    refuse(ErrorCode::bad_format, "is a directory, not a text file");
  if (is_stdin && stdin_is_terminal()) say("reading the text from the keyboard; end it with Ctrl-D");

  for (;;) {
    const std::size_t size = input.text.size();
    input.text.resize(size + kPiece);
    const ssize_t got = ::read(file.fd, input.text.data() + size, kPiece);
    input.text.resize(size + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) break;
    if (got < 0 && errno != EINTR) refuse(ErrorCode::io, cat("read failed: ", std::strerror(errno)));
    stop_if_interrupted("stopped before the text was complete; nothing was read by the model");
  }
  if (input.text.empty()) refuse(ErrorCode::bad_format, "the text is empty");
  require_utf8(input.text, input.name);
  return input;
}

InputText read_document(const std::string& path, const Arguments& arguments) {
  InputText input = read_text_file(path);
  const bool marked = input.text.starts_with(kByteOrderMark);
  std::int64_t returns = 0;
  for (std::size_t at = 0; (at = input.text.find("\r\n", at)) != input.text.npos; at += 2) ++returns;
  if (!marked && returns == 0) return input;
  const std::string found =
      cat(marked ? "a byte order mark" : "", marked && returns > 0 ? " and " : "",
          returns > 0
              ? cat(count_text(returns), returns == 1 ? " line that ends" : " lines that end", " in CR LF")
              : "");
  if (!arguments.text_newlines) {
    say(cat("note: ", input.name, ": holds ", found,
            ", which the model reads as they are; --text-newlines makes it plain"));
    return input;
  }
  say(cat("note: ", input.name, ": held ", found, "; it is read without"));
  if (marked) input.text.erase(0, kByteOrderMark.size());
  std::string plain;
  plain.reserve(input.text.size());
  for (std::size_t i = 0; i < input.text.size(); ++i)
    if (input.text[i] != '\r' || i + 1 == input.text.size() || input.text[i + 1] != '\n')
      plain += input.text[i];
  input.text = std::move(plain);
  return input;
}

InputText prompt_text(const std::string& text) {
  InputText input{"the prompt (-p)", text};
  require_utf8(text, input.name);
  return input;
}

InputText given_text(const Arguments& arguments) {
  if (arguments.prompt) return prompt_text(*arguments.prompt);
  InputText input = read_document(arguments.file.value_or("-"), arguments);
  if (arguments.file || !input.text.ends_with('\n')) return input;
  // A prompt that was piped in: `echo` ends it with a line feed that nobody meant.
  input.text.pop_back();
  if (input.text.ends_with('\r')) input.text.pop_back();
  if (input.text.empty()) throw Error(ErrorCode::bad_format, "stdin: the text is empty");
  return input;
}

std::vector<TokenId> encode_text(const Tokenizer& tokenizer, const InputText& input,
                                 const Arguments& arguments, EncodeOptions options) {
  if (arguments.no_bos) options.add_bos = false;
  options.parse_special = !arguments.no_special;
  std::vector<TokenId> ids = tokenizer.encode(input.text, options);
  const std::string missing = tokenizer.missing_bytes();
  const auto lost = missing.empty() ? 0 : std::count_if(input.text.begin(), input.text.end(), [&](char byte) {
    return missing.find(byte) != missing.npos;
  });
  if (lost > 0)
    say(cat("note: ", input.name, ": the model's vocabulary has no token for ", lost, " of ",
            input.text.size(), " bytes; they are left out"));
  if (ids.empty())
    throw Error(ErrorCode::invalid_argument,
                cat(input.name, ": holds no tokens; the model needs at least one"));
  return ids;
}

}  // namespace kvtide
