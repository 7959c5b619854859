// columns.h: tables as plain text: the first column to the left, the others to the right.
#pragma once

#include <string>
#include <vector>

namespace kvtide {

// Every row as wide as its column's widest cell, two spaces between columns, a line feed behind each row.
std::string columns_text(const std::vector<std::vector<std::string>>& rows);

// A table of GitHub's Markdown; the first row is the heading.
std::string markdown_text(const std::vector<std::vector<std::string>>& rows);

// 0.0123 as "+1.23%".
std::string percent_text(double share, int digits = 2);

}  // namespace kvtide
