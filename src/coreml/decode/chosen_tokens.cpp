#include "coreml/decode/chosen_tokens.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "coreml/decode/call_arrays.h"
#include "coreml/decode/contract.h"
#include "kvtide/error.h"

namespace kvtide::coreml {
namespace chosen_tokens_details {

constexpr const char *kTokens = "argmax_idx", *kLogits = "argmax_val";

std::vector<std::int32_t> integers_in(const CoremlArray& array) {
  std::vector<std::int32_t> numbers(array.type == CoremlType::i32 ? array.bytes.size() / 4 : 0);
  std::memcpy(numbers.data(), array.bytes.data(), numbers.size() * 4);
  return numbers;
}

std::vector<std::int64_t> sizes_for(const VocabularyParts& vocabulary, std::size_t parts,
                                    const std::string& package) {
  if (vocabulary.sizes.size() == parts) return vocabulary.sizes;
  const auto count = static_cast<std::int64_t>(parts);
  if (vocabulary.tokens < count)
    throw Error(ErrorCode::unsupported,
                cat(package, ": the head chooses among ", parts,
                    " parts of the vocabulary; meta.yaml must say how large they are: "
                    "vocab_size, or lm_head_chunk_sizes with ",
                    parts, " numbers"));
  std::vector<std::int64_t> sizes(parts, vocabulary.tokens / count);
  for (std::int64_t i = 0; i < vocabulary.tokens % count; ++i) ++sizes[static_cast<std::size_t>(i)];
  return sizes;
}

}  // namespace chosen_tokens_details

using namespace chosen_tokens_details;

bool chooses_tokens(const CoremlFunction& function) {
  return feature_named(function.outputs, kTokens) != nullptr &&
         feature_named(function.outputs, kLogits) != nullptr;
}

std::vector<float> logits_of_chosen(const std::map<std::string, CoremlArray>& outputs,
                                    const VocabularyParts& vocabulary, const std::string& package) {
  const std::vector<std::int32_t> tokens = integers_in(outputs.at(kTokens));
  const std::vector<float> best = as_floats(outputs.at(kLogits));
  if (tokens.empty() || tokens.size() != best.size())
    throw Error(ErrorCode::unsupported,
                cat(package, ": ", kTokens, " has ", tokens.size(), " whole numbers and ", kLogits, " has ",
                    best.size(), " logits; one of each is right for a part of the vocabulary"));
  const std::vector<std::int64_t> sizes = sizes_for(vocabulary, tokens.size(), package);
  std::int64_t all = 0;
  for (const std::int64_t size : sizes) all += size;
  std::vector<float> logits(static_cast<std::size_t>(all),
                            *std::min_element(best.begin(), best.end()) - 1.0f);
  std::int64_t first = 0;
  for (std::size_t part = 0; part < sizes.size(); ++part) {
    if (tokens[part] < 0 || tokens[part] >= sizes[part])
      throw Error(ErrorCode::bad_format,
                  cat(package, ": ", kTokens, " says token ", tokens[part], " of part ", part,
                      " of the vocabulary, which has ", sizes[part]));
    logits[static_cast<std::size_t>(first + tokens[part])] = best[part];
    first += sizes[part];
  }
  return logits;
}

}  // namespace kvtide::coreml
