// identity.h: what a model is, as hashes: snapshots belong to one model and one tokenizer.
#pragma once

#include <map>
#include <string>

#include "kvtide/model.h"
#include "model/checkpoint.h"

namespace kvtide {

// {"architecture", name}, {"model", SHA-256 of the file's bytes, or of the list of several files' hashes},
// {"tokenizer", SHA-256 of its tokens}. The file is read once per process and model; `cache` names a folder
// where the hash is kept under (device, inode, size, mtime), so that later runs need not read it; empty:
// none. A cache that cannot be written is no error. Throws Error: not_found, io.
std::map<std::string, std::string> model_identity(const Model& model, const std::string& cache);

// The same of a model whose weights were not loaded.
std::map<std::string, std::string> model_identity(const Checkpoint& checkpoint, const Tokenizer& tokenizer);

}  // namespace kvtide
