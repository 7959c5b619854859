// model_sketch.h: a model file as a list of keys and tensors that a test can change, drop or add to before it
// is built.
//
//   ModelSketch sketch = sample_model({.layers = 2});
//   sketch.set("llama.block_count", std::uint32_t{0}).drop_tensor("output_norm.weight");
//   const GgufImage image = sketch.build();
//
// Ownership: values all the way.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/hostile/gguf_builder.h"

namespace kvtide::testing {

class ModelSketch {
 public:
  // Sets a number, a bool or a text; replaces the key where it exists.
  template <class T>
  ModelSketch& set(const std::string& key, T value) {
    return put(keys_, key, [key, value](GgufBuilder& b) { b.key(key, value); });
  }
  ModelSketch& set(const std::string& key, const std::string& text) {
    return put(keys_, key, [key, text](GgufBuilder& b) { b.key(key, std::string_view(text)); });
  }
  template <class T>
  ModelSketch& set_array(const std::string& key, std::vector<T> values) {
    return put(keys_, key, [key, values](GgufBuilder& b) { b.array(key, values); });
  }
  ModelSketch& set_strings(const std::string& key, std::vector<std::string> texts) {
    return put(keys_, key, [key, texts](GgufBuilder& b) { b.strings(key, texts); });
  }
  ModelSketch& drop(const std::string& key) { return remove(keys_, key); }

  ModelSketch& set_tensor(const std::string& name, std::vector<std::uint64_t> shape, DType dtype,
                          Bytes data = {}) {
    return put(tensors_, name,
               [name, shape, dtype, data](GgufBuilder& b) { b.tensor(name, shape, dtype, data); });
  }
  ModelSketch& set_floats(const std::string& name, std::vector<std::uint64_t> shape,
                          const std::vector<float>& values) {
    Bytes data(values.size() * sizeof(float));
    std::memcpy(data.data(), values.data(), data.size());
    return set_tensor(name, std::move(shape), DType::f32, std::move(data));
  }
  ModelSketch& drop_tensor(const std::string& name) { return remove(tensors_, name); }

  GgufImage build() const {
    GgufBuilder builder;
    for (const auto& [name, add] : keys_) add(builder);
    for (const auto& [name, add] : tensors_) add(builder);
    return builder.build();
  }

 private:
  using Part = std::pair<std::string, std::function<void(GgufBuilder&)>>;

  ModelSketch& put(std::vector<Part>& parts, const std::string& name, std::function<void(GgufBuilder&)> add) {
    for (Part& part : parts)
      if (part.first == name) {
        part.second = std::move(add);
        return *this;
      }
    parts.emplace_back(name, std::move(add));
    return *this;
  }
  ModelSketch& remove(std::vector<Part>& parts, const std::string& name) {
    if (std::erase_if(parts, [&](const Part& part) { return part.first == name; }) == 0)
      throw std::logic_error("the sketch has no '" + name + "': the test aims beside");
    return *this;
  }

  std::vector<Part> keys_, tensors_;
};

// A file that exists as long as the object does.
class TemporaryFile {
 public:
  TemporaryFile(const std::string& name, const Bytes& bytes) {
    // A folder of its own: test programs run side by side.
    std::string folder = (std::filesystem::temp_directory_path() / "kvtide-test-XXXXXX").string();
    if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error("cannot make " + folder);
    folder_ = folder;
    path_ = folder + "/" + name;
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string folder_, path_;
};

}  // namespace kvtide::testing
