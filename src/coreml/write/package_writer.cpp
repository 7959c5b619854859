#include "coreml/write/package_writer.h"

#include <filesystem>

#include "base/checksum.h"
#include "base/file.h"
#include "base/json/json.h"
#include "base/new_folder.h"
#include "base/out_of_memory.h"
#include "base/text.h"
#include "coreml/write/program_message.h"
#include "kvtide/error.h"

namespace kvtide::coreml {
namespace {

namespace fs = std::filesystem;

constexpr const char* kData = "/Data/com.apple.CoreML";

void save_text(const std::string& path, std::string_view text) {
  PosixFiles files;
  const auto bytes = std::as_bytes(std::span(text));
  save_file(files, path, {&bytes, 1});
}

void make_folder(const std::string& path) {
  std::error_code failure;
  fs::create_directories(path, failure);
  if (failure) throw Error(ErrorCode::io, cat(path, ": cannot make this folder: ", failure.message()));
}

// A UUID of version 8 (bits of one's own) from what an item is called and what it holds.
std::string item_id(std::string_view item, std::string_view contents) {
  Sha256 hash;
  hash.add(std::as_bytes(std::span(item)));
  hash.add(std::as_bytes(std::span(contents)));
  auto bits = hash.finish();
  bits[6] = (bits[6] & std::byte{0x0f}) | std::byte{0x80};
  bits[8] = (bits[8] & std::byte{0x3f}) | std::byte{0x80};
  std::string id = hex(std::span(bits).first(16));
  for (const std::size_t dash : {20, 16, 12, 8}) id.insert(dash, 1, '-');
  for (char& c : id)
    if (c >= 'a' && c <= 'f') c = static_cast<char>(c - 'a' + 'A');
  return id;
}

Json manifest_item(std::string_view path, std::string_view name, std::string_view what) {
  Json item = Json::object();
  item.set("author", "com.apple.CoreML").set("description", what).set("name", name).set("path", path);
  return item;
}

void write_manifest(const std::string& folder, const std::string& model, bool weights) {
  const std::string root = item_id("model", model);
  Json items = Json::object();
  items.set(root,
            manifest_item("com.apple.CoreML/model.mlmodel", "model.mlmodel", "CoreML Model Specification"));
  if (weights)
    items.set(item_id("weights", model),
              manifest_item("com.apple.CoreML/weights", "weights", "CoreML Model Weights"));
  Json manifest = Json::object();
  manifest.set("fileFormatVersion", "1.0.0")
      .set("itemInfoEntries", std::move(items))
      .set("rootModelIdentifier", root);
  save_text(folder + "/Manifest.json", manifest.text());
}

class PackageFolder {
 public:
  explicit PackageFolder(const std::string& folder) : folder_(folder) {}

  // `file`: of its weights; a stage of a pipeline has one of its own.
  void model(const Package& package, const std::string& file, MessageWriter& out) {
    out.integer(1, package.description.specification);
    MessageWriter description, inner;
    write_description(package.description, description);
    out.message(2, description);
    if (!package.stages.empty()) {
      stages(package, inner);
      return out.message(202, inner);
    }
    BlobFile blobs;
    WeightPlace weights{blobs, "@model_path/weights/" + file, package.description.specification};
    write_program(package.program, weights, inner);
    out.message(502, inner);
    if (blobs.empty()) return;
    make_folder(cat(folder_, kData, "/weights"));
    blobs.save(cat(folder_, kData, "/weights/", file));
    has_weights_ = true;
  }

  bool has_weights() const { return has_weights_; }

 private:
  void stages(const Package& package, MessageWriter& out) {
    for (std::size_t i = 0; i < package.stages.size(); ++i) {
      MessageWriter stage;
      model(package.stages[i], cat(i, "-weight.bin"), stage);
      out.message(1, stage);
    }
    for (std::size_t i = 0; i < package.stages.size(); ++i) out.text(2, cat("stage", i));
  }

  const std::string& folder_;
  bool has_weights_ = false;
};

}  // namespace

void write_package(const Package& package, const std::string& path, bool replaces) try {
  NewFolder target(path, "packages", replaces);
  make_folder(target.path() + kData);
  PackageFolder folder(target.path());
  MessageWriter model;
  folder.model(package, "weight.bin", model);
  save_text(cat(target.path(), kData, "/model.mlmodel"), model.bytes());
  write_manifest(target.path(), model.bytes(), folder.has_weights());
  target.put_in_place();
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide::coreml
