// Resizes a live memory: what fits grows and shrinks while a text is being written, and no token changes.
//
//   02_resize MODEL.gguf "Once upon a time"
#include <cstdio>
#include <string>

#include "kvtide/error.h"
#include "kvtide/generate.h"

namespace {

void show(const kvtide::TransitionRecord& r) {
  std::printf("%-9s at %lld: capacity %lld -> %lld, %lld rows kept, %lld dropped, %.1f microseconds\n",
              r.name.c_str(), static_cast<long long>(r.position), static_cast<long long>(r.capacity_before),
              static_cast<long long>(r.capacity_after), static_cast<long long>(r.rows_kept),
              static_cast<long long>(r.rows_dropped), r.milliseconds * 1e3);
}

std::string write(kvtide::Session& session, int tokens) {
  kvtide::GenerateOptions options;
  options.max_tokens = tokens;
  options.make_room = [&] {  // asked when the memory is full
    show(session.apply(kvtide::Expand{session.context() * 2}));
    return true;
  };
  return kvtide::generate(session, options).text;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::puts("usage: 02_resize MODEL.gguf PROMPT"), 2;
  try {
    const kvtide::Model model(argv[1]);
    const auto prompt = model.tokenizer().encode(argv[2]);
    kvtide::SessionOptions options;
    options.context = 1024;
    kvtide::Session large(model, options), small(model, options);
    large.read(prompt);
    small.read(prompt);

    // plan() tells what would happen, or why it cannot.
    std::printf("refused: %s\n", small.plan(kvtide::Compact{1}).refusal().c_str());
    show(small.apply(kvtide::Compact{small.position() + 1}));
    const bool same = write(small, 20) == write(large, 20);
    show(small.apply(kvtide::Truncate{static_cast<kvtide::Pos>(prompt.size())}));
    std::printf("the resized memory wrote %s text as the large one\n", same ? "the same" : "ANOTHER");
    return same ? 0 : 1;
  } catch (const kvtide::Error& error) {
    std::fprintf(stderr, "02_resize: %s\n", error.message().c_str());
    return 1;
  }
}
