// Reads a text once and continues it several times: forks share the rows of the past and copy none.
//
//   04_fork MODEL.gguf "Once upon a time"
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "kvtide/error.h"
#include "kvtide/generate.h"

int main(int argc, char** argv) {
  if (argc != 3) return std::puts("usage: 04_fork MODEL.gguf PROMPT"), 2;
  try {
    const kvtide::Model model(argv[1]);
    kvtide::Session parent(model);
    parent.read(model.tokenizer().encode(argv[2]));
    const std::uint64_t before = kvtide::hash_logits(parent.logits());
    const kvtide::Pos position = parent.position();

    std::vector<kvtide::Session> branches;
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      const auto start = std::chrono::steady_clock::now();
      branches.push_back(parent.fork());
      const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;

      const kvtide::MemoryUse memory = branches.back().memory();
      kvtide::GenerateOptions options;
      options.max_tokens = 16;
      options.sampler.temperature = 1.0f;
      options.sampler.seed = seed;
      const kvtide::Generated answer = kvtide::generate(branches.back(), options);
      std::printf("branch %llu, forked in %.0f microseconds, %lld of %lld bytes shared:%s\n",
                  static_cast<unsigned long long>(seed), spent.count(),
                  static_cast<long long>(memory.kv_shared), static_cast<long long>(memory.kv),
                  answer.text.c_str());
    }

    // What the branches wrote never shows in the parent.
    const bool same = parent.position() == position && kvtide::hash_logits(parent.logits()) == before;
    std::printf("the parent is %s\n", same ? "as it was" : "CHANGED");
    return same ? 0 : 1;
  } catch (const kvtide::Error& error) {
    std::fprintf(stderr, "04_fork: %s\n", error.message().c_str());
    return 1;
  }
}
