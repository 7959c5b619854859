#include "text/pipeline_spec.h"

#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

std::vector<std::pair<std::string_view, std::string_view>> pairs_of(
    const std::vector<std::string_view>& merges) {
  std::vector<std::pair<std::string_view, std::string_view>> out;
  out.reserve(merges.size());
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const std::string_view merge = merges[i];
    const std::size_t space = merge.find(' ');
    if (space == 0 || space == merge.npos || space + 1 == merge.size() ||
        merge.find(' ', space + 1) != merge.npos)
      throw Error(ErrorCode::bad_format, cat("vocabulary: merge ", i, " ", quoted(merge),
                                             " has to be two tokens with one space between them"));
    out.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  return out;
}

}  // namespace

PipelineSpec byte_level_pipeline(std::string_view pre, const std::vector<std::string_view>& merges) {
  const PreTokenizerChoice choice = find_pre_tokenizer(pre);
  PipelineSpec out;
  SplitStep step;
  step.rule = choice.rule;
  out.splits.push_back(step);
  out.byte_level = true;
  out.whole_words = choice.whole_words;
  out.merges = pairs_of(merges);
  return out;
}

PipelineSpec marked_spaces_pipeline(const std::vector<std::string_view>& merges) {
  PipelineSpec out;
  out.normalizers.push_back({NormalizerStep::Kind::replace, " ", "\u2581"});
  out.byte_fallback = true;
  out.fuse_unknown = true;
  out.merges = pairs_of(merges);
  return out;
}

}  // namespace kvtide
