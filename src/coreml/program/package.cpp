#include "coreml/program/package.h"

#include <algorithm>

#include "base/checksum.h"
#include "base/mapped_file.h"
#include "base/out_of_memory.h"
#include "base/text.h"
#include "coreml/program/compiled_model.h"
#include "coreml/program/manifest.h"
#include "coreml/program/mil_reader.h"
#include "coreml/program/weight_files.h"
#include "coreml/program/wire_model.h"
#include "formats/text_file.h"
#include "kvtide/error.h"

namespace kvtide::coreml {
namespace {

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == path.npos ? "." : path.substr(0, slash);
}

Package open_mlpackage(const std::string& path) {
  const std::string manifest = path + "/Manifest.json";
  const std::string file = path + "/Data/" + model_path_of(read_whole_text(manifest), manifest);
  const MappedFile model(file);
  WeightFiles weights(folder_of(file));
  Package out = read_model(model.bytes(), path, weights);
  out.files = weights.paths();
  out.files.insert(out.files.begin(), file);
  return out;
}

// A model.mil and, in a folder of a compiled model, what lies beside it.
Package open_mil(const std::string& path, const std::string& file) {
  Package out;
  out.path = path;
  WeightFiles weights(folder_of(file));
  MilText text = read_mil(read_whole_text(file), file, weights);
  out.description = describe(text);
  out.program = std::move(text.program);
  const std::string metadata = path + "/metadata.json";
  if (path != file && file_exists(metadata))
    add_metadata(out.description, read_whole_text(metadata), metadata);
  out.files = weights.paths();
  out.files.insert(out.files.begin(), file);
  return out;
}

}  // namespace

Package open_package(const std::string& given) try {
  std::string path = given;
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  if (is_folder(path) && file_exists(path + "/Manifest.json")) return open_mlpackage(path);
  if (is_folder(path) && file_exists(path + "/model.mil")) return open_mil(path, path + "/model.mil");
  if (file_exists(path) && path.ends_with(".mil")) return open_mil(path, path);
  if (is_folder(path) || file_exists(path))
    throw Error(
        ErrorCode::bad_format,
        cat(path,
            ": is no .mlpackage (which holds a Manifest.json), no .mlmodelc (a model.mil) and no .mil file"));
  throw Error(ErrorCode::not_found, cat(path, ": there is no such file or folder"));
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

std::string identity_of(const Package& package) {
  Sha256 all;
  for (const std::string& path : package.files) {
    const MappedFile file(path);
    Sha256 hash;
    // Slice by slice, so that the pages read do not pile up in the resident set.
    constexpr std::size_t kSlice = std::size_t{4} << 20;
    for (std::size_t at = 0; at < file.bytes().size(); at += kSlice) {
      const std::size_t size = std::min(kSlice, file.bytes().size() - at);
      hash.add(file.bytes().subspan(at, size));
      file.release(at, size);
    }
    all.add(hash.finish());
  }
  return hex(all.finish());
}

}  // namespace kvtide::coreml
