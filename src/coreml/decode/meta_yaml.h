// meta_yaml.h: the meta.yaml of a model that was split into several packages: which files are its embeddings, chunks and head.
//
// What is read is the form that ANEMLL writes: `key: value` lines, indented as they belong together. Keys of whatever depth are
// taken by their own name; lists and texts over several lines are passed over, anchors are not read.
// Errors: not_found; bad_format with the line.
// Thread rules: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvtide::coreml {

// What a head that chooses tokens has to be told (chosen_tokens.h).
struct VocabularyParts {
  std::int64_t tokens = 0;          // of all parts; 0: not said
  std::vector<std::int64_t> sizes;  // empty: not said
};

struct MetaYaml {
  std::string embeddings, head;
  std::vector<std::string> chunks;  // paths that exist
  VocabularyParts vocabulary;
};

MetaYaml read_meta_yaml(const std::string& path);

}  // namespace kvtide::coreml
