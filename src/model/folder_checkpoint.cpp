// folder_checkpoint.cpp: a Hugging Face folder as a Checkpoint: config.json, safetensors, tokenizer.json.
//
// tokenizer.json is the authority on special tokens: what config.json says of them is looked at only to tell
// that it disagrees.
#include <algorithm>

#include "base/json/json_value.h"
#include "base/text.h"
#include "formats/safetensors_files.h"
#include "formats/text_file.h"
#include "kernels/codec.h"
#include "model/arch/architectures.h"
#include "model/checkpoint.h"
#include "model/config_file.h"
#include "model/folder_vocab.h"
#include "model/read_config.h"

namespace kvtide {
namespace {

constexpr std::string_view kBlocksSuffix = "_blocks";

std::optional<DType> float_type(std::string_view name) {
  if (name == "F32") return DType::f32;
  if (name == "F16") return DType::f16;
  if (name == "BF16") return DType::bf16;
  return std::nullopt;
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

class FolderCheckpoint final : public Checkpoint {
 public:
  FolderCheckpoint(const std::string& path, MappedFile::Mode mode)
      : folder_(without_slash(path)), files_of_weights_(open(folder_, mode)) {
    path_ = path;
    const std::string config_path = folder_ + "/config.json";
    const JsonValue json = read_config_file(config_path);
    const JsonFields config(json, config_path);
    config_ = read_config(config);
    name_ = folder_.substr(folder_.rfind('/') + 1);
    for (const Architecture* architecture : kArchitectures)
      if (architecture->name == config_.architecture) {
        prefixes_ = architecture->folder_prefixes;
        rules_ = architecture->older_folder_tensors;
        const bool older = find(Role::final_norm).has_value();
        rules_ = architecture->folder_tensors;
        if (older && !find(Role::final_norm)) rules_ = architecture->older_folder_tensors;
      }
    // Before memory is taken for a vocabulary of that size.
    if (const auto embedding = find(Role::embedding);
        embedding && (embedding->shape.empty() || embedding->shape[0] != config_.vocab))
      throw Error(ErrorCode::bad_format,
                  cat(config_path, ": 'vocab_size' is ", config_.vocab, ", but tensor '", embedding->name,
                      "' has ", embedding->shape.empty() ? 0 : embedding->shape[0], " rows"));
    else if (!embedding)
      throw Error(ErrorCode::bad_format,
                  cat(path, ": the tensor '", wanted_name(Role::embedding, 0), "' is missing"));
    vocab_ = std::make_unique<FolderVocab>(folder_, config, config_.vocab);
    vocab_->fill_up(config_.vocab);
    notes_ = vocab_->notes();
    chat_template_ = vocab_->chat_template();
    files_ = weight_files_ = files_of_weights_.paths();
    files_.push_back(config_path);
    files_.push_back(folder_ + "/tokenizer.json");
    for (const auto& tensor : files_of_weights_.tensors()) {
      std::int64_t elements = 1;
      for (const std::int64_t extent : tensor.value.shape) elements *= extent;
      parameters_ += elements;
    }
  }

  VocabSpec vocabulary() const override { return vocab_->spec(); }

  void release_all() const noexcept override {
    for (const SafeTensorsFiles::Tensor& tensor : files_of_weights_.tensors())
      files_of_weights_.release(tensor, 0, tensor.value.bytes.size());
  }
  void release(const StoredTensor& tensor, std::size_t offset, std::size_t size) const noexcept override {
    files_of_weights_.release(files_of_weights_.tensors()[tensor.place], offset, size);
  }

 private:
  // A folder without a config.json is told so first.
  static SafeTensorsFiles open(const std::string& folder, MappedFile::Mode mode) {
    constexpr const char* kNeeds = "a folder needs config.json, tokenizer.json and weights as safetensors";
    if (!file_exists(folder + "/config.json"))
      throw Error(ErrorCode::bad_format, cat(folder, ": is a directory without config.json; ", kNeeds));
    if (!file_exists(folder + "/tokenizer.json"))
      throw Error(ErrorCode::not_found, cat(folder, ": there is no tokenizer.json; ", kNeeds));
    return SafeTensorsFiles(folder, mode);
  }

  const SafeTensorsFiles::Tensor* find_file_tensor(const std::string& name) const {
    if (prefixes_.empty() || !name.starts_with(prefixes_[0])) return files_of_weights_.find(name);
    const std::string rest = name.substr(prefixes_[0].size());
    for (const std::string_view prefix : prefixes_)
      if (const auto* tensor = files_of_weights_.find(cat(prefix, rest))) return tensor;
    return nullptr;
  }

  std::optional<StoredTensor> find_named(const std::string& name) const override {
    const SafeTensorsFiles::Tensor* found = find_file_tensor(name);
    if (found == nullptr) return std::nullopt;
    StoredTensor tensor;
    tensor.name = found->name;
    tensor.shape = found->value.shape;
    tensor.bytes = found->value.bytes;
    tensor.place = static_cast<std::size_t>(found - files_of_weights_.tensors().data());
    if (const auto type = float_type(found->value.dtype)) {
      tensor.dtype = *type;
    } else if (found->value.dtype == "I8") {
      tensor.scales = scales_of(*found);
    } else if (found->value.dtype == "U8" && found->name.ends_with(kBlocksSuffix)) {
      read_four_bits(*found, tensor);
    } else {
      throw Error(ErrorCode::unsupported, cat(files_of_weights_.paths()[found->file], ": tensor ",
                                              quoted(found->name), " has type ", found->value.dtype,
                                              "; the types that are read: F32 F16 BF16, I8 "
                                              "beside a tensor of scales, and U8 as MXFP4"));
    }
    return tensor;
  }

  // "X_blocks" [..][rows][blocks][16] comes with "X_scales" [..][rows][blocks], the exponents of the blocks.
  void read_four_bits(const SafeTensorsFiles::Tensor& found, StoredTensor& tensor) const {
    const auto refuse = [&](const std::string& why) {
      throw Error(ErrorCode::bad_format,
                  cat(files_of_weights_.paths()[found.file], ": tensor ", quoted(found.name), " ", why));
    };
    const std::string name = found.name.substr(0, found.name.size() - kBlocksSuffix.size()) + "_scales";
    const SafeTensorsFiles::Tensor* scales = files_of_weights_.find(name);
    if (scales == nullptr || scales->value.dtype != "U8")
      refuse(cat("needs a tensor ", quoted(name), " of type U8"));
    if (tensor.shape.size() < 2 || tensor.shape.back() != 16)
      refuse("must have blocks of 16 bytes as its last extent");
    tensor.shape.pop_back();
    if (scales->value.shape != tensor.shape)
      refuse(cat("has other blocks than ", quoted(name), " has scales"));
    tensor.shape.back() *= 32;
    tensor.dtype = DType::mxfp4;
    tensor.block_scales = scales->value.bytes;
  }

  // "X.weight" as 8-bit integers comes with "X.weight_scale": one number, or one for every output.
  std::vector<float> scales_of(const SafeTensorsFiles::Tensor& integers) const {
    const auto refuse = [&](ErrorCode code, const std::string& why) {
      throw Error(
          code, cat(files_of_weights_.paths()[integers.file], ": tensor ", quoted(integers.name), " ", why));
    };
    const SafeTensorsFiles::Tensor* scales = files_of_weights_.find(integers.name + "_scale");
    if (scales == nullptr)
      refuse(ErrorCode::bad_format,
             cat("holds 8-bit integers, but there is no tensor ", quoted(integers.name + "_scale")));
    if (files_of_weights_.find(integers.name + "_zero_point") != nullptr)
      refuse(ErrorCode::unsupported, "has zero points; only symmetric integers are read");
    const auto type = float_type(scales->value.dtype);
    if (!type)
      refuse(ErrorCode::bad_format,
             cat("has scales of type ", scales->value.dtype, "; they must be F32, F16 or BF16"));
    std::int64_t count = 1;
    for (const std::int64_t extent : scales->value.shape) count *= extent;
    std::vector<float> values(static_cast<std::size_t>(count));
    decode_row(*type, scales->value.bytes.data(), count, values.data());
    for (const float value : values)
      if (!(value > 0.0f && value < 1e30f))
        refuse(ErrorCode::numeric, cat("has a scale of ", value, "; scales must be positive numbers"));
    if (values.empty()) refuse(ErrorCode::bad_format, "has no scales");
    return values;
  }

  std::string folder_;
  SafeTensorsFiles files_of_weights_;
  std::span<const std::string_view> prefixes_;
  std::unique_ptr<FolderVocab> vocab_;
};

}  // namespace

std::unique_ptr<Checkpoint> open_folder(const std::string& path, MappedFile::Mode mode) {
  return std::make_unique<FolderCheckpoint>(path, mode);
}

}  // namespace kvtide
