#include "cli/output/columns.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "cli/output/terminal.h"

namespace kvtide {

std::string columns_text(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string gap(widths[i] - row[i].size(), ' ');
      line += i == 0 ? row[i] + gap : cat("  ", gap, row[i]);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string markdown_text(const std::vector<std::vector<std::string>>& rows) {
  std::string text;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (const std::string& cell : rows[r]) {
      text += "| ";
      for (const char c : cell) text += c == '|' ? std::string("\\|") : std::string(1, c);
      text += " ";
    }
    text += "|\n";
    if (r > 0) continue;
    for (std::size_t i = 0; i < rows[r].size(); ++i) text += i == 0 ? "|---" : "|---:";
    text += "|\n";
  }
  return text;
}

std::string percent_text(double share, int digits) {
  if (std::isnan(share)) return "-";
  return cat(share < 0.0 ? "" : "+", number_text(100.0 * share, digits), "%");
}

}  // namespace kvtide
