#include "coreml/decode/packages_at.h"

#include <algorithm>
#include <filesystem>

#include "coreml/decode/meta_yaml.h"
#include "coreml/decode/packages_manifest.h"
#include "coreml/program/census.h"
#include "coreml/program/data_type.h"
#include "coreml/program/package.h"

namespace kvtide::coreml {

std::string meta_yaml_at(const std::string& path) {
  const std::filesystem::path given(path);
  if (given.filename() == "meta.yaml") return path;
  const std::filesystem::path inside = given / "meta.yaml";
  return std::filesystem::exists(inside) ? inside.string() : "";
}

bool holds_packages(const std::string& path) {
  const std::string extension = std::filesystem::path(path).lexically_normal().extension().string();
  return extension == ".mlpackage" || extension == ".mlmodelc" || extension == ".mil" ||
         !meta_yaml_at(path).empty() ||
         std::filesystem::exists(std::filesystem::path(path) / "Manifest.json") || is_packages_folder(path);
}

std::vector<std::string> packages_at(const std::string& path) {
  if (const std::string meta = meta_yaml_at(path); !meta.empty()) {
    MetaYaml named = read_meta_yaml(meta);
    std::vector<std::string> all = {std::move(named.embeddings)};
    all.insert(all.end(), named.chunks.begin(), named.chunks.end());
    all.push_back(std::move(named.head));
    return all;
  }
  return is_packages_folder(path) ? read_packages(path) : std::vector<std::string>{path};
}

bool has_compressed_weights(const std::string& path) {
  const std::vector<std::string> packages = packages_at(path);
  return std::any_of(packages.begin(), packages.end(), [](const std::string& package) {
    const auto weights = weights_by_type(open_package(package));
    return std::any_of(weights.begin(), weights.end(), [](const auto& each) {
      constexpr std::int64_t kMatrix = 1024;  // elements; fewer are indices and the like
      return bits_of(each.first) <= 8 && each.second.elements > kMatrix;
    });
  });
}

}  // namespace kvtide::coreml
