// segment_load: any bytes as a segment: as the first of a chain, as the second, and as what a new segment goes on from.
// Either a typed error, or a state that can be read, changed, saved and loaded again.
//
// An input is a head (JSON, up to the first zero byte) and data. Magic and length are put before it.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "fuzz/loading.h"
#include "state/segment.h"
#include "tests/base/memory_files.h"
#include "tests/state/filled_state.h"

namespace {

using namespace kvtide;
using Bytes = std::vector<std::byte>;

KvState state_of(std::int64_t tokens) {
  KvSpec spec = testing::small_spec(40, 16);
  spec.layers.push_back({1, 32, 5});
  KvState state(spec);
  testing::append(state, tokens);
  return state;
}

// A chain of two: files "a" and "b".
testing::MemoryFiles chain() {
  testing::MemoryFiles files;
  save_segment(files, "a", state_of(34), {}, std::nullopt);
  save_segment(files, "b", state_of(36), {}, SegmentBefore{"a", "a"});
  return files;
}

Bytes input_of(const Bytes& segment) {
  std::uint64_t length = 0;
  std::memcpy(&length, segment.data() + 8, 8);
  const auto data = segment.begin() + 16 + static_cast<std::ptrdiff_t>(length);
  Bytes input(segment.begin() + 16, data);
  input.push_back(std::byte{0});
  input.insert(input.end(), data, segment.end());
  return input;
}

Bytes segment_of(const std::uint8_t* data, std::size_t size) {
  const void* zero = size == 0 ? nullptr : std::memchr(data, 0, size);
  const std::uint64_t head =
      zero == nullptr ? size : static_cast<std::uint64_t>(static_cast<const std::uint8_t*>(zero) - data);
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  Bytes segment(16);
  std::memcpy(segment.data(), "KVTSEG2\n", 8);
  std::memcpy(segment.data() + 8, &head, 8);
  segment.insert(segment.end(), bytes, bytes + head);
  if (head < size) segment.insert(segment.end(), bytes + head + 1, bytes + size);
  return segment;
}

void load(testing::MemoryFiles& files, const std::vector<std::string>& paths) {
  fuzzing::load_or_refuse([&] { return load_segments(files, paths); });
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  const Bytes start = input_of(chain().get(seed % 2 == 0 ? "a" : "b"));
  return fuzzing::mutate_or_begin({reinterpret_cast<const char*>(start.data()), start.size()}, data, size,
                                  max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  testing::MemoryFiles files = chain();
  files.put("x", segment_of(data, size));
  load(files, {"x"});
  load(files, {"a", "x"});
  // Behind whatever it is, a new segment makes its own snapshot, or names what it went on from and is refused.
  save_segment(files, "y", state_of(37), {}, SegmentBefore{"x", "x"});
  load(files, {"y"});
  load(files, {"a", "x", "y"});
  return 0;
}
