// meta_yaml.h: the meta.yaml of a model that was split into several packages: which files are its embeddings, chunks and head.
//
// What is read is the form that ANEMLL writes: `key: value` lines, indented as they belong together. Keys of whatever depth are
// taken by their own name; lists, quotes over several lines and anchors are not read.
// Errors: not_found; bad_format with the line.
// Thread rules: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvtide::coreml {

struct MetaYaml {
  std::string embeddings, head;
  std::vector<std::string> chunks;  // paths that exist
};

MetaYaml read_meta_yaml(const std::string& path);

}  // namespace kvtide::coreml
