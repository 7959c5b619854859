// Snapshots of a package's states: a safetensors file with an array for each state, bound to the package by its SHA-256.
#include <cstring>

#include "base/file.h"
#include "base/mapped_file.h"
#include "base/out_of_memory.h"
#include "base/refuse.h"
#include "base/text.h"
#include "coreml/run/tensor.h"
#include "formats/safetensors.h"
#include "formats/safetensors_writer.h"
#include "kvtide/coreml.h"

namespace kvtide {
namespace {
namespace state_file_details {

constexpr const char* kFormat = "kvtide-coreml-state";

struct FileType {
  CoremlType type;
  const char* name;  // in the file
};
constexpr FileType kFileTypes[] = {{CoremlType::f16, "F16"},    {CoremlType::f32, "F32"},
                                   {CoremlType::i32, "I32"},    {CoremlType::i8, "I8"},
                                   {CoremlType::boolean, "U8"}, {CoremlType::u8, "U8"}};

const char* name_in_file(CoremlType type, const std::string& state) {
  for (const FileType& each : kFileTypes)
    if (each.type == type) return each.name;
  throw Error(ErrorCode::unsupported, cat("state ", quoted(state), " is of ", coreml_type_name(type),
                                          ", which safetensors files do not hold"));
}

}  // namespace state_file_details
}  // namespace

void CoremlModel::save_state(const CoremlState& state, const std::string& path) const {
  using namespace state_file_details;
  or_out_of_memory([&] {
    SafeTensorsWriter writer;
    writer.set_metadata("format", kFormat);
    writer.set_metadata("package", identity());
    for (const std::string& name : state.names()) {
      CoremlArray array = state.read(name);
      writer.add(name, name_in_file(array.type, name), array.shape, std::move(array.bytes));
    }
    PosixFiles files;
    writer.save(files, path);
  });
}

CoremlState CoremlModel::load_state(const std::string& path, std::string_view function) const {
  using namespace state_file_details;
  return or_out_of_memory([&] {
    const MappedFile file(path);
    const SafeTensors held = SafeTensors::parse(file.bytes(), path);
    const auto bad = [&](const std::string& why) {
      throw Error(ErrorCode::bad_format, cat(path, ": ", why));
    };
    const auto said = [&](const char* key) {
      const auto found = held.metadata.find(key);
      return found == held.metadata.end() ? std::string() : found->second;
    };
    if (said("format") != kFormat) bad("holds no states of a Core ML package");
    if (said("package") != identity()) refuse(cat(path, ": holds states of another package than this one"));
    CoremlState state = make_state(function);
    for (const std::string& name : state.names()) {
      CoremlArray array = state.read(name);
      const auto found = held.tensors.find(name);
      if (found == held.tensors.end()) bad(cat("lacks the state ", quoted(name)));
      const SafeTensor& tensor = found->second;
      if (tensor.dtype != name_in_file(array.type, name) || tensor.shape != array.shape)
        bad(cat("state ", quoted(name), " is ", tensor.dtype, " ", coreml::text_of(tensor.shape), ", not ",
                coreml_type_name(array.type), " ", coreml::text_of(array.shape)));
      std::memcpy(array.bytes.data(), tensor.bytes.data(), tensor.bytes.size());
      state.write(name, array);
    }
    return state;
  });
}

}  // namespace kvtide
