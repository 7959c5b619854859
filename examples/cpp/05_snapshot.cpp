// Keeps what a model has read in a file and goes on from it, in another session or another week, with the
// same bits.
//
//   05_snapshot MODEL.gguf "a text that takes long to read" memory.kv
#include <cstdio>

#include "kvtide/error.h"
#include "kvtide/generate.h"

int main(int argc, char** argv) {
  if (argc != 4) return std::puts("usage: 05_snapshot MODEL.gguf PROMPT FILE"), 2;
  try {
    const kvtide::Model model(argv[1]);
    kvtide::GenerateOptions options;
    options.max_tokens = 16;

    kvtide::Session first(model);
    first.read(model.tokenizer().encode(argv[2]));
    first.save(argv[3]);  // the old file or the new one, never half of it
    const kvtide::Generated expected = kvtide::generate(first, options);

    kvtide::Session second(model);
    second.load(argv[3]);  // all of it, or an exception and nothing
    std::printf("restored %lld tokens from %s\n", static_cast<long long>(second.position()), argv[3]);
    const kvtide::Generated answer = kvtide::generate(second, options);
    std::printf("%s%s\n", argv[2], answer.text.c_str());

    const bool same = answer.tokens == expected.tokens &&
                      kvtide::hash_logits(first.logits()) == kvtide::hash_logits(second.logits());
    std::printf("%s\n",
                same ? "bit for bit what the first session wrote" : "ANOTHER text than the first session's");
    return same ? 0 : 1;
  } catch (const kvtide::Error& error) {
    std::fprintf(stderr, "05_snapshot: %s\n", error.message().c_str());
    return 1;
  }
}
