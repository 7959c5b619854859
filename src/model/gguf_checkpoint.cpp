// gguf_checkpoint.cpp: a GGUF file as a Checkpoint.
#include "formats/gguf.h"
#include "model/arch/architectures.h"
#include "model/checkpoint.h"
#include "model/read_config.h"
#include "model/vocab_reader.h"

namespace kvtide {
namespace {

class GgufCheckpoint final : public Checkpoint {
 public:
  GgufCheckpoint(const std::string& path, MappedFile::Mode mode) : file_(path, mode) {
    path_ = path;
    fastest_first_ = true;
    config_ = read_config(file_);
    name_ = file_.get_string("general.name").value_or(std::string_view(path).substr(path.rfind('/') + 1));
    chat_template_ = file_.get_string("tokenizer.chat_template").value_or("");
    files_ = {path};
    weight_files_ = file_.paths();
    for (const GgufTensor& tensor : file_.tensors()) {
      std::int64_t elements = 1;
      for (const std::int64_t extent : tensor.shape) elements *= extent;
      parameters_ += elements;
    }
    for (const Architecture* architecture : kArchitectures)
      if (architecture->name == config_.architecture) rules_ = architecture->gguf_tensors;
  }

  VocabSpec vocabulary() const override { return read_vocab(file_); }

  void release_all() const noexcept override {
    for (const GgufTensor& tensor : file_.tensors()) file_.release(tensor);
  }
  void release(const StoredTensor& tensor, std::size_t offset, std::size_t size) const noexcept override {
    file_.release(file_.tensors()[tensor.place], offset, size);
  }

 private:
  std::optional<StoredTensor> find_named(const std::string& name) const override {
    const GgufTensor* found = file_.find_tensor(name);
    if (found == nullptr) return std::nullopt;
    StoredTensor tensor;
    tensor.name = name;
    tensor.dtype = found->dtype;
    tensor.shape.assign(found->shape.rbegin(), found->shape.rend());
    tensor.bytes = found->data;
    tensor.place = static_cast<std::size_t>(found - file_.tensors().data());
    return tensor;
  }

  GgufFile file_;
};

}  // namespace

std::unique_ptr<Checkpoint> open_gguf(const std::string& path, MappedFile::Mode mode) {
  return std::make_unique<GgufCheckpoint>(path, mode);
}

}  // namespace kvtide
