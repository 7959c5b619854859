// coreml_blob.cpp: libFuzzer target for weight files. The first bytes say which record, type and number of elements are asked for.
#include <cstdint>
#include <cstring>
#include <string>

#include "coreml/program/data_type.h"
#include "coreml/program/weight_files.h"
#include "coreml/write/package_writer.h"
#include "fuzz/fuzzing.h"
#include "kvtide/error.h"
#include "tests/coreml/sample_packages.h"
#include "tests/formats/temporary_folder.h"

using kvtide::fuzzing::require;

namespace {

struct Question {
  std::uint32_t record, elements;
  std::uint8_t dtype;
};
constexpr std::size_t kQuestion = 9;

// The question for the first weight, and the file.
const std::string& seed() {
  static const std::string input = [] {
    const kvtide::testing::TemporaryFolder folder;
    kvtide::coreml::write_package(kvtide::testing::small_package(), folder / "a.mlpackage");
    const Question question{64, 256, 10};
    return std::string(reinterpret_cast<const char*>(&question), kQuestion) +
           kvtide::testing::contents_of(folder / "a.mlpackage/Data/com.apple.CoreML/weights/weight.bin");
  }();
  return input;
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned) {
  return kvtide::fuzzing::mutate_or_begin(seed(), data, size, max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvtide;
  if (size < kQuestion) return 0;
  Question question{};
  std::memcpy(&question, data, kQuestion);
  const auto dtype = static_cast<coreml::DataType>(question.dtype);
  const std::span blob(reinterpret_cast<const std::byte*>(data) + kQuestion, size - kQuestion);
  try {
    const auto found = coreml::weight_at(blob, question.record, dtype, question.elements, "input");
    require(found.size() == coreml::bytes_for(dtype, question.elements));
    require(found.empty() ||
            (found.data() >= blob.data() && found.data() + found.size() <= blob.data() + blob.size()));
  } catch (const Error& error) {
    require(error.message().starts_with("input: "));
  }
  return 0;
}
