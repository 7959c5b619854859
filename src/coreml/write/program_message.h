// program_message.h: a program and a description as the protobuf messages of a package.
//
// Source: coremltools' Model.proto, FeatureTypes.proto and MIL.proto: the numbers of the fields.
// Errors: unsupported: a constant of a type that no field holds.
// Thread rules: pure functions, but for the weights that are added to `blobs`.
#pragma once

#include <string>

#include "coreml/program/description.h"
#include "coreml/program/program.h"
#include "coreml/write/blob_file.h"
#include "coreml/write/message_writer.h"

namespace kvtide::coreml {

// Where constants go: into `blobs`, which the program names `file`, by the rule of `specification`.
struct WeightPlace {
  BlobFile& blobs;
  std::string file;
  int specification;
};

void write_program(const Program& program, WeightPlace& weights, MessageWriter& out);
void write_description(const Description& description, MessageWriter& out);

}  // namespace kvtide::coreml
