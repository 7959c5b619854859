// hostile_units.h: texts whose repetition is one word, a run of white space, of markers' first characters, of
// numbers, or of user-defined tokens, in some vocabulary.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace kvtide {

inline constexpr const char* kHostileUnits[] = {"a",        " ",
                                                "\n",       "\t",
                                                "1",        "!",
                                                "\xd0\xb0", "\xe6\xb2\xb3",
                                                "\xcc\x81", "\xf0\x9f\x98\x80",
                                                "<",        "'",
                                                "er",       "=\n",
                                                " a",       "\xe2\x96\x81",
                                                "the ",     "<|im_start|"};
inline constexpr const char* kHostileVocabularies[] = {"bpe-gpt-2", "bpe-llama-bpe", "bpe-default",
                                                       "spm-runs", "spm-unused"};

inline std::string vocabulary_name(const testing::TestParamInfo<const char*>& parameter) {
  std::string name = parameter.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

inline std::string repeated(std::string_view text, std::size_t times) {
  std::string out;
  for (std::size_t i = 0; i < times; ++i) out += text;
  return out;
}

}  // namespace kvtide
