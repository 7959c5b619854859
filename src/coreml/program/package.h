// package.h: opens a Core ML model of any form: .mlpackage, .mlmodelc, a bare model.mil.
//
// Ownership: a Package owns what it read; weight files are mapped and stay so while one of its values lives.
// Errors: not_found, bad_format (file, message, field), unsupported (a model that is no ML program).
// Thread rules: open from one thread; the result is read-only.
// Source: coremltools' Model.proto, MIL.proto and the layout of packages; blob storage version 2.
#pragma once

#include <string>
#include <vector>

#include "coreml/program/description.h"
#include "coreml/program/program.h"

namespace kvtide::coreml {

// One model. A pipeline has a stage for each of its models, run one after another.
struct Package {
  std::string path;
  std::vector<std::string> files;  // what it lies in: the program, then the weights
  Description description;
  Program program;
  std::vector<Package> stages;  // of a pipeline; its program is empty then
};

Package open_package(const std::string& path);

// SHA-256 of the program and its weights, in hex: a package that was copied elsewhere has the same. Reads every byte of
// the files. Throws Error: not_found, io.
std::string identity_of(const Package& package);

}  // namespace kvtide::coreml
