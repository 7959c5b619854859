// fitting.h: what fits into a budget: the widest window, the most rows and the most full heads.
//
// A full head keeps every row of the text behind the window; of other heads blocks are compressed. Ownership: refers to
// what it was made from. Thread rules: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>

#include "kvtide/types.h"
#include "state/procedural/budget.h"
#include "state/procedural/choice.h"

namespace kvtide {

class Fitting {
 public:
  Fitting(const KvSpec& shape, const AttentionShape& attention, const ProceduralOptions& wanted);

  void keep_window_within(std::int64_t rows);

  // Each begins with the options of a step, and is nullopt where they do not fit.
  // A window that holds the expected text, if it may be so wide.
  std::optional<ProceduralOptions> whole_window(ProceduralOptions o) const;
  // Every head keeps every row of the expected text, exact ones in as wide a window as fits. Longer texts thin out.
  // Without an end: the widest window, and in every head as many rows as fit.
  std::optional<ProceduralOptions> all_rows(ProceduralOptions o) const;
  // As many full rows as fit; then a wider window, then more rows of each block, then more blocks.
  std::optional<ProceduralOptions> fit(const ProceduralOptions& step);

  // Is so much of the budget taken as should be of every one?
  bool is_used_up(const ProceduralOptions& o) const;
  // Do full heads have as many rows as they get before anything else grows?
  bool rows_enough(const ProceduralOptions& o) const;
  // Do full heads hold so much of the expected text that more is worth no smaller step?
  bool has_enough_text(const ProceduralOptions& o) const;
  // Is a smaller step better, for what its full heads keep of the expected text?
  bool is_worth_more(const ProceduralOptions& smaller, const ProceduralOptions& than) const;

  // Of all that was tried by fit().
  const ProceduralBytes& smallest() const { return *smallest_; }

 private:
  std::optional<ProceduralOptions> fit_larger_blocks(ProceduralOptions step);
  template <class Count>
  void enlarge(ProceduralOptions& o, Count ProceduralOptions::*field, std::int64_t unit,
               std::int64_t most) const;
  double text_held(const ProceduralOptions& o) const;
  double text_wanted() const;
  bool fits(const ProceduralOptions& o) const;
  ProceduralBytes bytes_of(const ProceduralOptions& o) const;

  const KvSpec& shape_;
  const AttentionShape& attention_;
  const ProceduralOptions& wanted_;
  std::int64_t widest_;      // rows that a window may have
  std::int64_t rows_first_;  // tokens of which full heads get the rows before anything else grows
  bool beyond_ = false;      // may the text be longer than what the model was trained for?
  std::optional<ProceduralBytes> smallest_;
};

}  // namespace kvtide
