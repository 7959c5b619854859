// snapshot_load: any bytes as a snapshot. Either a typed error, or a state that can be read, changed, saved
// and loaded again.
//
// An input is a header (JSON, up to the first zero byte) and a payload. It is sealed with sums that fit
// before it is loaded: with random sums nothing behind the first check would ever be reached. It is then
// loaded as it stands, too.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "fuzz/loading.h"
#include "state/snapshot.h"
#include "tests/base/memory_files.h"
#include "tests/state/filled_state.h"
#include "tests/state/procedural/procedural_state.h"
#include "tests/state/snapshot_bytes.h"

namespace {

using namespace kvtide;

std::vector<std::byte> input_of(const KvState& state, const SnapshotExtras& extras) {
  testing::MemoryFiles files;
  save_snapshot(files, "a", state, extras);
  const testing::SnapshotParts parts = testing::take_apart(files.get("a"));
  const auto header = std::as_bytes(std::span(parts.header));
  std::vector<std::byte> input(header.begin(), header.end());
  input.push_back(std::byte{0});
  input.insert(input.end(), parts.payload.begin(), parts.payload.end());
  return input;
}

// A procedural memory after any number of seals, with full heads or without, thinned and seen nearer or not.
std::vector<std::byte> procedural_input(unsigned seed) {
  KvSpec spec = testing::tiny_procedural_spec();
  ProceduralSpec& p = *spec.procedural;
  spec.slack = seed % 2;
  p.levels = static_cast<int>(seed / 2 % 3);
  p.plans[0][1].full = seed / 6 % 2 == 0;
  p.plans[0][1].rows = 5;
  p.full_rows = seed / 12 % 2 == 0 ? 24 : 0;
  p.far_from = seed / 24 % 2 == 0 ? 80 : 0;
  KvState state(spec);
  ThreadPool pool(1);
  testing::feed(state, pool, 20 + seed / 48 % 16 * 16);
  return input_of(state, {});
}

// States of every policy and type, as the fuzzer's first inputs.
std::vector<std::byte> seed_input(unsigned seed) {
  if (seed % 3 == 0) return procedural_input(seed / 3);
  seed /= 3;
  const DType types[] = {DType::f32, DType::f16, DType::q8_0};
  KvSpec spec = testing::small_spec(40, 16);
  spec.key_type = types[seed % 3];
  spec.value_type = types[seed / 3 % 3];
  spec.slack = seed / 9 % 4;
  if (seed / 36 % 2 == 0) spec.layers.push_back({1, 32, 5});
  if (seed / 72 % 3 == 0) spec.rolling = Rolling{2, 9};
  KvState state(spec);
  testing::append(state, 20);
  if (!spec.rolling && seed / 216 % 2 == 0) state.apply(Drop{{3, 6}, true});
  SnapshotExtras extras;
  extras.identity = {{"model", "a"}};
  extras.tokens = {1, 2, 3};
  if (seed / 432 % 2 == 0) extras.logits = {1.0f, 2.0f};
  return input_of(state, extras);
}

void load(const std::vector<std::byte>& file) {
  testing::MemoryFiles files;
  files.put("a", file);
  fuzzing::load_or_refuse([&] { return load_snapshot(files, "a"); });
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  if (size < 64) {
    const std::vector<std::byte> start = seed_input(seed);
    if (start.size() <= max_size) {
      std::memcpy(data, start.data(), start.size());
      return start.size();
    }
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto* first = reinterpret_cast<const std::byte*>(data);
  const std::vector<std::byte> input(first, first + size);
  load(input);
  testing::SnapshotParts parts;
  const auto* zero = size == 0 ? nullptr : static_cast<const std::uint8_t*>(std::memchr(data, 0, size));
  const std::size_t header = zero == nullptr ? size : static_cast<std::size_t>(zero - data);
  parts.header.assign(reinterpret_cast<const char*>(data), header);
  if (header < size)
    parts.payload.assign(input.begin() + static_cast<std::ptrdiff_t>(header) + 1, input.end());
  load(testing::put_together(parts));
  return 0;
}
