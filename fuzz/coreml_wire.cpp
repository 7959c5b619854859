// coreml_wire.cpp: libFuzzer target for the model file of a Core ML package.
//
// What is accepted prints as text and is counted; anything else is refused in one line that names the file. Constants of weight files
// are refused here: there are none.
#include <cstdint>
#include <string>

#include "coreml/program/census.h"
#include "coreml/program/mil_printer.h"
#include "coreml/program/pipeline.h"
#include "coreml/program/wire_model.h"
#include "coreml/write/package_writer.h"
#include "fuzz/fuzzing.h"
#include "kvtide/error.h"
#include "tests/coreml/sample_packages.h"
#include "tests/formats/temporary_folder.h"

using kvtide::fuzzing::require;

namespace {

const std::string& seed() {
  static const std::string model = [] {
    const kvtide::testing::TemporaryFolder folder;
    kvtide::coreml::write_package(kvtide::testing::weightless_package(), folder / "a.mlpackage");
    return kvtide::testing::contents_of(folder / "a.mlpackage/Data/com.apple.CoreML/model.mlmodel");
  }();
  return model;
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned) {
  return kvtide::fuzzing::mutate_or_begin(seed(), data, size, max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvtide;
  try {
    coreml::WeightFiles weights("/nowhere");
    const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
    const coreml::Package read = coreml::read_model(bytes, "input", weights);
    require(coreml::weights_by_type(read).empty());
    require(!read.description.functions.empty());
    const coreml::Package program = read.stages.empty() ? read : coreml::as_one_program(read);
    require(!coreml::mil_text(program.program, &program.description).empty());
  } catch (const Error& error) {
    require(error.message().starts_with("input: ") || error.code() == ErrorCode::unsupported);
    require(error.message().find('\n') == std::string::npos);
  }
  return 0;
}
