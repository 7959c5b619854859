#include "model/config_file.h"

#include <string_view>

#include "formats/text_file.h"

namespace kvtide {
namespace {

// The text with quotes around such words. Only what no JSON could hold changes: they stand outside of strings.
std::string quoted_words(const std::string& text) {
  std::string out;
  out.reserve(text.size());
  bool inside = false;  // a string
  for (std::size_t at = 0; at < text.size();) {
    std::size_t size = 1;
    bool word = false;
    if (inside) {
      if (text[at] == '\\' && at + 1 < text.size()) size = 2;
      if (text[at] == '"') inside = false;
    } else if (text[at] == '"') {
      inside = true;
    } else {
      for (const std::string_view known : {"-Infinity", "Infinity", "NaN"})
        if (!word && text.compare(at, known.size(), known) == 0) {
          word = true;
          size = known.size();
        }
    }
    if (word) out += '"';
    out.append(text, at, size);
    if (word) out += '"';
    at += size;
  }
  return out;
}

}  // namespace

JsonValue read_config_file(const std::string& path) {
  return JsonValue::parse(quoted_words(read_whole_text(path)), path);
}

}  // namespace kvtide
