// table_cell.h: what kvtide table measured of one memory on one text, as a file that a later run finds again.
//
// A cell is known by a hash over everything that its figures depend on. Figures that could not be measured
// are NaN, and `note` says why. Ownership: values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json/json.h"

namespace kvtide {

struct TableCell {
  std::string model, policy;
  std::int64_t context = 0;
  bool bounded = false;  // the memory stops growing: a budget or a window
  std::string note;      // why there are no figures; empty: there are
  std::map<std::string, double> figures;

  double at(const std::string& name) const;  // NaN when it is not there
};

// The cell in `path`; nullopt when there is none or it is damaged: it is measured again.
std::optional<TableCell> read_cell(const std::string& path);
void write_cell(const std::string& path, const TableCell& cell);
Json cell_json(const TableCell& cell);

// A yes or no with what it was asked of; nullopt where the question has no meaning.
struct Gates {
  std::optional<bool> collapse, loss, resident, drift;  // A, B, C, D
};
// control: the full cache of the same model and context.
Gates gates_of(const TableCell& cell, const TableCell& control);
std::string gates_text(const Gates& gates);  // "A B D; fails C"
std::string gate_limits();                   // the four questions with their limits

// Columns of the table, first row the heading, in the order of the cells. Each cell is read beside the first
// one of its model and context.
std::vector<std::vector<std::string>> table_rows(const std::vector<TableCell>& cells);

}  // namespace kvtide
