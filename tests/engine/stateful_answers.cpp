// stateful_answers.cpp: drives a model as an exported one is driven, for tools/references/compare_gpt2.py.
//
//   stateful_answers MODEL IDS OUT CHUNK GREEDY
//
// Reads the int32 ids of the file IDS in calls of CHUNK (0: all in one), then GREEDY tokens one by one, the
// likeliest each time. Writes to OUT the logits that every call gave, f32 [calls][vocabulary]; prints the
// tokens it chose.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <vector>

#include "base/mapped_file.h"
#include "kvtide/error.h"
#include "kvtide/stateful.h"

int main(int count, char** words) {
  using namespace kvtide;
  if (count != 6) return 2;
  try {
    const Model model(words[1]);
    SessionOptions options;
    options.exact = true;
    options.key_type = options.value_type = ElementType::f32;
    StatefulModel stateful(model, options);
    const MappedFile file(words[2]);
    std::vector<TokenId> ids(file.bytes().size() / sizeof(TokenId));
    std::memcpy(ids.data(), file.bytes().data(), ids.size() * sizeof(TokenId));
    std::ofstream out(words[3], std::ios::binary);
    const auto chunk = static_cast<std::size_t>(std::atoi(words[4]));
    std::vector<std::int32_t> mask;
    std::span<const float> logits;
    const auto call = [&](std::span<const TokenId> tokens) {
      mask.resize(mask.size() + tokens.size(), 1);
      logits = stateful.predict(tokens, mask);
      out.write(reinterpret_cast<const char*>(logits.data()),
                static_cast<std::streamsize>(logits.size_bytes()));
    };
    const std::size_t step = chunk == 0 ? ids.size() : chunk;
    for (std::size_t at = 0; at < ids.size(); at += step)
      call(std::span(ids).subspan(at, std::min(step, ids.size() - at)));
    for (int i = 0; i < std::atoi(words[5]); ++i) {
      const auto next = static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      std::printf("%d ", next);
      call({&next, 1});
    }
    std::printf("\n");
    return out.good() ? 0 : 1;
  } catch (const Error& error) {
    std::fprintf(stderr, "stateful_answers: %s\n", error.message().c_str());
    return 1;
  }
}
