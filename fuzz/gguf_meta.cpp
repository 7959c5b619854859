// gguf_meta: any bytes as a GGUF file. Either a typed error, or a file of which every view can be walked,
// every tensor decoded and every scale checked.
//
// Starts from valid files that the test's own builder makes, so that no seeds need to be stored: while the
// corpus is empty, the mutator hands one out. An input that begins with "GGUF" and is half broken teaches
// more than noise.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "formats/gguf.h"
#include "kernels/codec.h"
#include "kvtide/error.h"
#include "tests/hostile/sample_files.h"
#include "tests/hostile/walk.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

using kvtide::testing::Bytes;

Bytes seed_file(unsigned seed) {
  switch (seed % 4) {
    case 0:
      return kvtide::testing::every_type_file().bytes;
    case 1:
      return kvtide::testing::tiny_llama_builder().build().bytes;
    case 2:
      return kvtide::testing::GgufBuilder()
          .key("k", "v")
          .tensor("t", {32}, kvtide::DType::q8_0)
          .build()
          .bytes;
    default:
      return kvtide::testing::GgufBuilder().version(2).strings("s", {"a", "b"}).build().bytes;
  }
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  if (size < 24) {
    const Bytes start = seed_file(seed);
    if (start.size() <= max_size) {
      std::memcpy(data, start.data(), start.size());
      return start.size();
    }
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A copy of the exact size: the sanitizer then sees the first byte that is read behind it.
  const auto* first = reinterpret_cast<const std::byte*>(data);
  const Bytes bytes(first, first + size);
  try {
    const kvtide::GgufFile file = kvtide::GgufFile::from_bytes(bytes);
    kvtide::testing::walk(file);
    for (const kvtide::GgufTensor& tensor : file.tensors()) {
      const std::int64_t columns = tensor.shape[0];
      std::vector<float> row(static_cast<std::size_t>(columns));
      kvtide::decode_row(tensor.dtype, tensor.data.data(), columns, row.data());
      kvtide::scales_finite(tensor.dtype, tensor.data.data(), columns);
    }
  } catch (const kvtide::Error& error) {
    const bool expected =
        error.code() == kvtide::ErrorCode::bad_format || error.code() == kvtide::ErrorCode::unsupported;
    if (!expected || error.message().empty()) std::abort();
  }
  return 0;
}
