#include "model/heads_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/mapped_file.h"
#include "base/text.h"
#include "kvtide/error.h"
#include "kvtide/heads.h"

namespace kvtide {
namespace {

constexpr std::string_view kTitle = "layer\thead\tinduction\tshare\toutput_norm\tworth\n";
// Older tables do not say what heads are worth.
constexpr std::string_view kOldTitle = "layer\thead\tinduction\tshare\toutput_norm\n";
constexpr int kMostFields = 6;

}  // namespace

std::string heads_text(const HeadTable& table) {
  std::string text(kTitle);
  for (std::size_t i = 0; i < table.needs.size(); ++i) {
    const HeadNeed& need = table.needs[i];
    const auto heads = static_cast<std::size_t>(table.kv_heads);
    text += cat(i / heads, "\t", i % heads, "\t", fixed(need.induction, 4), "\t", fixed(need.share, 3), "\t",
                fixed(need.output_norm, 6), "\t", fixed(need.worth, 3), "\n");
  }
  return text;
}

HeadTable parse_heads(std::string_view text, const std::string& name) {
  std::int64_t line_number = 1;
  const auto refuse = [&](std::string_view why) {
    throw Error(ErrorCode::bad_format, cat(name, ": line ", line_number, ": ", why));
  };
  const bool old = text.starts_with(kOldTitle);
  if (!old && !text.starts_with(kTitle))
    refuse("is not the title of a head table (kvtide heads writes them)");
  text.remove_prefix((old ? kOldTitle : kTitle).size());
  const int count = old ? kMostFields - 1 : kMostFields;
  HeadTable table;
  while (!text.empty()) {
    ++line_number;
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), end + 1));
    double fields[kMostFields];
    for (int f = 0; f < count; ++f) {
      const std::size_t tab = std::min(line.find('\t'), line.size());
      const std::string_view field = line.substr(0, tab);
      const auto [stop, error] = std::from_chars(field.data(), field.data() + field.size(), fields[f]);
      if (error != std::errc() || stop != field.data() + field.size() || !(fields[f] >= 0.0) ||
          fields[f] > 1e9)
        refuse(cat("must hold ", count, " numbers of at least 0, separated by tabs"));
      line.remove_prefix(std::min(line.size(), tab + 1));
    }
    if (!line.empty()) refuse(cat("holds more than ", count, " numbers"));
    if (fields[0] == 0.0) table.kv_heads = static_cast<int>(fields[1]) + 1;
    const auto expected = static_cast<double>(table.needs.size());
    if (table.kv_heads == 0 || fields[0] * table.kv_heads + fields[1] != expected) refuse("is out of order");
    table.needs.push_back(
        {static_cast<float>(fields[2]), static_cast<float>(fields[3]), static_cast<float>(fields[4])});
    if (!old) table.needs.back().worth = static_cast<float>(fields[5]);
  }
  if (table.needs.empty()) refuse("there are no heads");
  return table;
}

HeadTable read_heads(const std::string& path) {
  const MappedFile file(path, MappedFile::Mode::copy);
  const auto bytes = file.bytes();
  if (bytes.size() > (std::size_t{16} << 20))
    throw Error(ErrorCode::bad_format, cat(path, ": too large for a head table"));
  return parse_heads({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

}  // namespace kvtide
