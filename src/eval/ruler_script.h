// ruler_script.h: what is said in a text of ruler.h, and what is asked about it.
#pragma once

#include <random>
#include <vector>

#include "eval/ruler.h"

namespace kvtide {

struct RulerScript {
  using Ids = std::vector<TokenId>;

  std::vector<Ids> needles;
  Ids haystack;  // whole: longer than needed
  // Needles stand at random places; or begin the text in their order; or are all of it, as many as fit.
  enum class Layout { hidden, in_front, fills } layout = Layout::hidden;
  std::vector<std::size_t> must;  // of these needles, those that have to be there
  struct Question {
    Ids cue, answer;
  };
  std::vector<Question> questions;  // in the order in which they are asked
};

// As ruler_sample.
RulerScript ruler_script(const Tokenizer& tokenizer, std::span<const TokenId> prose, RulerTask task,
                         std::int64_t length, std::mt19937_64& random);

}  // namespace kvtide
