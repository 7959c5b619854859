// coreml_text.cpp: libFuzzer target for MIL text. A program that is read prints as text that reads back and prints the same.
#include <cstdint>
#include <string>
#include <string_view>

#include "coreml/program/compiled_model.h"
#include "coreml/program/mil_printer.h"
#include "coreml/program/mil_reader.h"
#include "fuzz/fuzzing.h"
#include "kvtide/error.h"
#include "tests/coreml/sample_packages.h"

using kvtide::fuzzing::require;

namespace {

const std::string& seed() {
  static const std::string text = kvtide::coreml::mil_text(kvtide::testing::weightless_package().program);
  return text;
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned) {
  return kvtide::fuzzing::mutate_or_begin(seed(), data, size, max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvtide;
  coreml::WeightFiles weights("/nowhere");
  std::string printed;
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const coreml::MilText read = coreml::read_mil(text, "input", weights);
    require(!coreml::describe(read).functions.empty());
    printed = coreml::mil_text(read.program);
  } catch (const Error& error) {
    require(error.message().starts_with("input: "));
    require(error.message().find('\n') == std::string::npos);
    return 0;
  }
  require(coreml::mil_text(coreml::read_mil(printed, "printed", weights).program) == printed);
  return 0;
}
