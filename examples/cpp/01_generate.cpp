// Reads a prompt and goes on writing, token by token.
//
//   01_generate MODEL.gguf "Once upon a time" [tokens]
#include <cstdio>
#include <cstdlib>
#include <string>

#include "kvtide/error.h"
#include "kvtide/generate.h"

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) return std::puts("usage: 01_generate MODEL.gguf PROMPT [TOKENS]"), 2;
  try {
    const kvtide::Model model(argv[1]);
    kvtide::Session session(model);
    session.read(model.tokenizer().encode(argv[2]));

    kvtide::GenerateOptions options;
    options.max_tokens = argc > 3 ? std::atoi(argv[3]) : 64;
    options.sampler.temperature = 0.8f;
    options.sampler.seed = 1;
    options.on_text = [](std::string_view text) {
      std::fwrite(text.data(), 1, text.size(), stdout);
      return std::fflush(stdout) == 0;  // false stops
    };
    const kvtide::Generated answer = kvtide::generate(session, options);

    std::printf("\n%zu tokens, ended by %s; the memory holds %lld tokens in %lld bytes\n",
                answer.tokens.size(), kvtide::stop_reason_name(answer.reason),
                static_cast<long long>(session.rows()), static_cast<long long>(session.memory().kv));
  } catch (const kvtide::Error& error) {
    std::fprintf(stderr, "01_generate: %s\n", error.message().c_str());
    return 1;
  }
}
