// fuzzing.h: what the fuzz targets share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace kvtide::fuzzing {

inline void require(bool holds) {
  if (!holds) std::abort();
}

// For LLVMFuzzerCustomMutator: while the corpus is empty, a valid input is handed out. It teaches more than noise.
inline std::size_t mutate_or_begin(std::string_view valid, std::uint8_t* data, std::size_t size,
                                   std::size_t max_size) {
  if (size < 24 && valid.size() <= max_size) {
    std::memcpy(data, valid.data(), valid.size());
    return valid.size();
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

}  // namespace kvtide::fuzzing
