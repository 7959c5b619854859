// pipeline.h: a stretch of text between markers to token ids: normalised, cut into words, merged.
//
// Ownership: owns its steps; refers to the vocabulary through its BpeModel.
// Thread rules: const from any thread.
// Limits: time is linear in the text, times the logarithm of its length within one word. A regular expression
// of a file may cost more, up to the limit of pattern.h.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/bpe_model.h"
#include "text/pattern.h"
#include "text/pipeline_spec.h"

namespace kvtide {

class Pipeline {
 public:
  // Throws Error: bad_format, unsupported (a regular expression that does not compile).
  Pipeline(const PipelineSpec& spec, BpeModel model);

  bool normalizes() const { return !normalizers_.empty(); }
  // `fronted`: text may be given a mark or space in front.
  std::string normalized(std::string_view text, bool fronted) const;
  // Appends the ids of a normalised text. `starts`: it begins the whole text; `fronted` as above.
  void encode(std::string_view text, bool starts, bool fronted, std::vector<TokenId>& out) const;

  std::string missing_bytes() const { return model_.missing_bytes(); }

 private:
  struct Walk;
  void split(std::size_t step, std::string_view piece, Walk& walk) const;

  std::vector<NormalizerStep> normalizers_;
  std::vector<SplitStep> splits_;
  std::vector<std::optional<Pattern>> patterns_;  // one per split
  BpeModel model_;
};

}  // namespace kvtide
