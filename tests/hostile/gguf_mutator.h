// gguf_mutator.h: damages valid GGUF files field by field, reproducibly.
//
// Shares of the damage: metadata 35, tensor table 35, header 10, across fields 10, alignment 5, data 5
// percent. Thread rules: one thread. The same seed gives the same mutants on every machine.
#pragma once

#include <cstdint>

#include "tests/hostile/gguf_builder.h"

namespace kvtide::testing {

class GgufMutator {
 public:
  explicit GgufMutator(std::uint64_t seed) : state_(seed) {}

  // A damaged copy of `image`: one to three changes.
  Bytes mutate(const GgufImage& image);

 private:
  std::uint64_t next();                  // 64 random bits
  std::size_t below(std::size_t count);  // [0, count)
  std::uint64_t number(
      std::uint64_t is);  // an extreme, a neighbour or a random relative of the number that is there

  void change_field(GgufImage& image, const GgufField& field);
  void change_one_of(GgufImage& image, const std::vector<GgufFieldKind>& kinds);
  void change_across_fields(GgufImage& image);
  void change_alignment(GgufImage& image);
  void change_data(GgufImage& image);

  std::uint64_t state_;
};

}  // namespace kvtide::testing
