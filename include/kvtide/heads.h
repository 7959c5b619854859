// heads.h: head tables: which (layer, KV head) pairs copy from the past, and how much of a budget each of them earns.
//
//   const Model model("model.gguf");
//   SessionOptions options;
//   options.procedural = ProceduralOptions{.budget = std::int64_t{64} << 20};
//   if (auto heads = known_heads(model)) options.procedural->heads = *heads;
//
// A procedural memory keeps every row of the heads that copy: what they will be asked for cannot be seen before. Thread
// rules: pure functions of their arguments and of files; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "kvtide/model.h"
#include "kvtide/procedural.h"

namespace kvtide {

// The table that came with the library for files of these bytes, or the one that remember_heads() left in the folder
// `cache` (empty: none); nullopt: neither is there, or what is there is damaged. Reads the model's file once, for its hash.
// Throws Error: not_found, io.
std::optional<HeadTable> known_heads(const Model& model, const std::string& cache = "");

struct MeasureHeads {
  int threads = 0;                             // as in SessionOptions
  std::int64_t prose = 3072;                   // tokens that the model writes
  std::function<bool(double share)> progress;  // false stops with Error(cancelled)
};
// Induction: a text with the same random words twice, far apart: the attention that a head sends from the second copy back
// to the first (to the same word or to the one behind it). Worth: of heads that do so, what the second copy costs more
// when their rows of the first go, one head after the other. Share: over blocks of prose, how often a head's rows are among
// the most telling of all heads. The prose is the model's own writing, so that no text has to be shipped. Throws Error:
// unsupported (layers that differ in their heads), cancelled, out_of_memory.
HeadTable measure_heads(const Model& model, const MeasureHeads& options = {});

// Keeps a table in `cache` for known_heads(), also of other processes. A folder that cannot be written is no error.
void remember_heads(const Model& model, const std::string& cache, const HeadTable& table);

// Where nearly all heads copy, keeping every row of all of them would compress nothing: at most two thirds of the heads
// without a window of their own do, those that copy most. known_heads() gives such tables.
HeadTable within_two_thirds(HeadTable table, const Model& model);

// A table as text, as `kvtide heads` writes it: a title, and a line per (layer, KV head), columns separated by tabs.
std::string heads_text(const HeadTable& table);
// From such a file. Throws Error: not_found, io, bad_format with the line.
HeadTable read_heads(const std::string& path);

}  // namespace kvtide
