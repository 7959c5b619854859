// Looks at less: the memory keeps everything, each query sees only the newest positions. The size can change
// between any two tokens, in both directions.
//
//   03_attention_size MODEL.gguf "a text of some length"
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "kvtide/error.h"
#include "kvtide/generate.h"

int main(int argc, char** argv) {
  if (argc != 3) return std::puts("usage: 03_attention_size MODEL.gguf PROMPT"), 2;
  try {
    const kvtide::Model model(argv[1]);
    kvtide::Session session(model);
    session.read(model.tokenizer().encode(argv[2]));

    kvtide::GenerateOptions options;
    options.max_tokens = 16;
    std::string everything;
    for (const auto size : std::vector<std::optional<std::int64_t>>{std::nullopt, 64, 16, 4}) {
      kvtide::Session branch = session.fork();  // shares the rows of the prompt
      branch.apply(kvtide::SetAttention{size});
      const auto start = std::chrono::steady_clock::now();
      const std::string text = kvtide::generate(branch, options).text;
      const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - start;
      if (!size) everything = text;
      std::printf("%-10s %6.2f ms%s  %s\n", size ? std::to_string(*size).c_str() : "everything",
                  spent.count(), text == everything ? " (same)" : "       ", text.c_str());
    }

    // Back to everything: nothing was lost.
    session.apply(kvtide::SetAttention{4});
    session.apply(kvtide::SetAttention{std::nullopt});
    const bool same = kvtide::generate(session, options).text == everything;
    std::printf("after 4 and back to everything: %s\n", same ? "the same text" : "ANOTHER text");
    return same ? 0 : 1;
  } catch (const kvtide::Error& error) {
    std::fprintf(stderr, "03_attention_size: %s\n", error.message().c_str());
    return 1;
  }
}
