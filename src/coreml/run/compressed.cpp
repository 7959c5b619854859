#include "coreml/run/compressed.h"

#include <algorithm>
#include <cstring>

#include "base/half.h"
#include "base/mapped_file.h"
#include "base/text.h"
#include "coreml/program/data_type.h"
#include "coreml/run/convert.h"
#include "kvtide/error.h"

namespace kvtide::coreml {
namespace {

constexpr std::int64_t kRun = 512;  // elements that a step hands to the next at a time

[[noreturn]] void refuse_compressed(const std::string& why) { throw Error(ErrorCode::bad_format, why); }

// Rounds to the type of the result.
void round_to(const Kernels& kernels, DataType dtype, std::int64_t n, float* x) {
  if (dtype != DataType::fp16) return;
  std::uint16_t halves[kRun];
  kernels.elementwise.to_f16(x, n, halves);
  const std::int64_t lanes = n / 16 * 16;
  if (lanes > 0) kernels.dense.widen(halves, lanes, x);
  for (std::int64_t i = lanes; i < n; ++i) x[i] = f16_to_f32(halves[i]);
}

class StoredNumbers final : public Compressed {
 public:
  StoredNumbers(DataType dtype, Shape shape, const std::byte* bytes, std::shared_ptr<const void> keeps,
                DataType stored, std::shared_ptr<const MappedFile> file = nullptr)
      : Compressed(dtype, std::move(shape)),
        data_(reinterpret_cast<const std::uint8_t*>(bytes)),
        keeps_(std::move(keeps)),
        file_(std::move(file)),
        stored_(stored),
        bits_(bits_of(stored)) {}

  std::int64_t bytes() const override { return (elements() * bits_ + 7) / 8; }
  void release_pages() const noexcept override {
    if (file_)
      file_->release(static_cast<std::size_t>(bytes_at() - file_->bytes().data()),
                     static_cast<std::size_t>(bytes()));
  }
  std::optional<ScaledIntegers> scaled_integers() const override {
    if (stored_ != DataType::int8 && stored_ != DataType::int4) return std::nullopt;
    return ScaledIntegers{this, bits_, 0};
  }

  void decode(const Kernels& kernels, std::int64_t first, std::int64_t count, float* out) const override {
    if (bits_ == 8 || bits_ > 8) {
      const Tensor whole{stored_, {}, std::shared_ptr<std::byte>(std::shared_ptr<void>(), bytes_at())};
      return load(kernels, whole, first, count, out);
    }
    if (bits_ == 4 && first % 2 == 0) return decode_nibbles(first, count, out);
    const std::uint32_t mask = (1u << bits_) - 1;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t bit = (first + i) * bits_;
      std::uint32_t word = data_[bit / 8];
      if (bit % 8 + bits_ > 8) word |= std::uint32_t{data_[bit / 8 + 1]} << 8;
      out[i] = static_cast<float>(signed_of(word >> (bit % 8) & mask));
    }
  }

 private:
  std::byte* bytes_at() const { return reinterpret_cast<std::byte*>(const_cast<std::uint8_t*>(data_)); }
  int signed_of(std::uint32_t q) const {
    return stored_ == DataType::int4 && q > 7 ? static_cast<int>(q) - 16 : static_cast<int>(q);
  }
  void decode_nibbles(std::int64_t first, std::int64_t count, float* out) const {
    const std::uint8_t* from = data_ + first / 2;
    // Two's complement of four bits: the sign bit is turned over and taken off again.
    const int flip = stored_ == DataType::int4 ? 8 : 0;
    std::int64_t i = 0;
    for (; i + 2 <= count; i += 2, ++from) {
      out[i] = static_cast<float>(((*from & 15) ^ flip) - flip);
      out[i + 1] = static_cast<float>(((*from >> 4) ^ flip) - flip);
    }
    if (i < count) out[i] = static_cast<float>(((*from & 15) ^ flip) - flip);
  }

  const std::uint8_t* data_;
  std::shared_ptr<const void> keeps_;
  std::shared_ptr<const MappedFile> file_;
  DataType stored_;
  int bits_;
};

// Which group of a smaller grid an element falls into: each axis of the grid divides that of the shape.
class Grid {
 public:
  Grid(const Shape& shape, std::span<const std::int64_t> grid, std::string_view what) : shape_(shape) {
    if (shape.empty() || grid.size() != shape.size())
      refuse_compressed(cat(what, " has ", grid.size(), " axes for data of ", text_of(shape)));
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (grid[i] < 1 || shape[i] % grid[i] != 0)
        refuse_compressed(cat(what, " of ", grid[i], " does not divide axis ", i, " of ", text_of(shape)));
      block_.push_back(std::max<std::int64_t>(1, shape[i] / grid[i]));
      size_.push_back(grid[i]);
    }
  }
  std::int64_t run() const { return block_.back(); }  // elements of a row that share a group

  // body(group, first, count) for runs of [first, first + count) that lie in one group, all in one row.
  template <class Body>
  void for_runs(std::int64_t first, std::int64_t count, const Body& body) const {
    const std::int64_t width = shape_.back();
    while (count > 0) {
      const std::int64_t row = first / width, column = first % width;
      const std::int64_t row_group = group_of_row(row) * size_.back();
      const std::int64_t row_end = first - column + width;
      while (count > 0 && first < row_end) {
        const std::int64_t at = first - (row_end - width), group = at / block_.back();
        const std::int64_t run = std::min(count, (group + 1) * block_.back() - at);
        body(row_group + group, first, run);
        first += run;
        count -= run;
      }
    }
  }

 private:
  std::int64_t group_of_row(std::int64_t row) const {
    std::int64_t group = 0, step = 1;
    for (std::size_t axis = shape_.size() - 1; axis-- > 0;) {
      group += row % shape_[axis] / block_[axis] * step;
      step *= size_[axis];
      row /= shape_[axis];
    }
    return group;
  }
  Shape shape_, block_, size_;
};

std::vector<float> floats_of(const Kernels& kernels, const Compressed& compressed) {
  std::vector<float> values(static_cast<std::size_t>(compressed.elements()));
  compressed.decode(kernels, 0, compressed.elements(), values.data());
  return values;
}

std::vector<float> floats_of(const Kernels& kernels, const Tensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  load(kernels, tensor, 0, tensor.elements(), values.data());
  return values;
}

class ScaledBlocks final : public Compressed {
 public:
  ScaledBlocks(CompressedPtr data, const Tensor& scale, const CompressedPtr& offset, const Kernels& kernels)
      : Compressed(scale.dtype, data->shape()),
        data_(std::move(data)),
        grid_(data_->shape(), scale.shape, "scale"),
        scale_(floats_of(kernels, scale)) {
    if (!is_float(scale.dtype)) refuse_compressed(cat("a scale is fp16 or fp32, not ", name_of(scale.dtype)));
    if (!offset) return;
    if (offset->shape() != scale.shape)
      refuse_compressed(
          cat("the offset has shape ", text_of(offset->shape()), ", its scale ", text_of(scale.shape)));
    offset_ = floats_of(kernels, *offset);
  }
  std::int64_t bytes() const override {
    return data_->bytes() + static_cast<std::int64_t>(scale_.size() + offset_.size()) * 4;
  }
  void decode(const Kernels& kernels, std::int64_t first, std::int64_t count, float* out) const override {
    for (; count > 0; first += kRun, out += kRun, count -= kRun)
      decode_run(kernels, first, std::min(count, kRun), out);
  }
  std::optional<ScaledIntegers> scaled_integers() const override {
    auto integers = data_->scaled_integers();
    if (!integers || integers->run != 0 || !offset_.empty() || shape().size() != 2) return std::nullopt;
    integers->run = grid_.run();
    return integers;
  }
  float scale_at(std::int64_t element) const override {
    float scale = 1.0f;
    grid_.for_runs(element, 1, [&](std::int64_t group, std::int64_t, std::int64_t) {
      scale = scale_[static_cast<std::size_t>(group)];
    });
    return scale;
  }

 private:
  void decode_run(const Kernels& kernels, std::int64_t first, std::int64_t count, float* out) const {
    data_->decode(kernels, first, count, out);
    if (!offset_.empty()) {
      grid_.for_runs(first, count, [&](std::int64_t group, std::int64_t at, std::int64_t n) {
        const float offset = offset_[static_cast<std::size_t>(group)];
        float* x = out + (at - first);
        for (std::int64_t i = 0; i < n; ++i) x[i] -= offset;
      });
      round_to(kernels, dtype(), count, out);
    }
    grid_.for_runs(first, count, [&](std::int64_t group, std::int64_t at, std::int64_t n) {
      const float scale = scale_[static_cast<std::size_t>(group)];
      float* x = out + (at - first);
      for (std::int64_t i = 0; i < n; ++i) x[i] *= scale;
    });
    round_to(kernels, dtype(), count, out);
  }

  CompressedPtr data_;
  Grid grid_;
  std::vector<float> scale_, offset_;
};

Shape palette_shape(const Compressed& indices, const Tensor& table, std::int64_t axis) {
  Shape shape = indices.shape();
  if (table.shape.size() != shape.size() + 2)
    refuse_compressed(cat("a table of shape ", text_of(table.shape), " for indices of ", text_of(shape),
                          ": two axes more are right"));
  if (table.shape.back() > 1) shape[static_cast<std::size_t>(axis)] *= table.shape.back();
  return shape;
}

class Palette final : public Compressed {
 public:
  Palette(CompressedPtr indices, const Tensor& table, std::int64_t axis, const Kernels& kernels)
      : Compressed(table.dtype, palette_shape(*indices, table, axis)),
        indices_(std::move(indices)),
        grid_(indices_->shape(), std::span(table.shape).first(table.shape.size() - 2), "a table"),
        table_(floats_of(kernels, table)),
        entries_(table.shape[table.shape.size() - 2]),
        components_(table.shape.back()),
        inner_(1) {
    const Shape& from = indices_->shape();
    for (std::size_t i = static_cast<std::size_t>(axis) + 1; i < from.size(); ++i) inner_ *= from[i];
    check_indices(kernels);
  }
  std::int64_t bytes() const override {
    return indices_->bytes() + static_cast<std::int64_t>(table_.size()) * 4;
  }
  void decode(const Kernels& kernels, std::int64_t first, std::int64_t count, float* out) const override {
    float codes[kRun];
    while (count > 0) {
      // Output [.., axis * components, inner]: runs that have one component and consecutive indices. With inner = 1 that is
      // a single element.
      std::int64_t at = first, component = 0, run = std::min(count, kRun);
      if (components_ > 1) {
        const std::int64_t line = first / inner_, within = first % inner_;
        component = line % components_;
        at = line / components_ * inner_ + within;
        run = std::min(run, inner_ - within);
      }
      indices_->decode(kernels, at, run, codes);
      grid_.for_runs(at, run, [&](std::int64_t group, std::int64_t begin, std::int64_t n) {
        const float* entries = table_.data() + group * entries_ * components_ + component;
        for (std::int64_t i = begin - at; i < begin - at + n; ++i)
          out[i] = entries[static_cast<std::int32_t>(codes[i]) * components_];
      });
      first += run;
      out += run;
      count -= run;
    }
  }

 private:
  // Once, so that no index of a file reads outside of the table.
  void check_indices(const Kernels& kernels) const {
    float codes[kRun];
    for (std::int64_t at = 0; at < indices_->elements(); at += kRun) {
      const std::int64_t n = std::min(kRun, indices_->elements() - at);
      indices_->decode(kernels, at, n, codes);
      for (std::int64_t i = 0; i < n; ++i)
        if (!(codes[i] >= 0.0f && codes[i] < static_cast<float>(entries_)))
          refuse_compressed(cat("index ", codes[i], " in a table of ", entries_, " entries"));
    }
  }

  CompressedPtr indices_;
  Grid grid_;
  std::vector<float> table_;
  std::int64_t entries_, components_, inner_;
};

class Spread final : public Compressed {
 public:
  Spread(CompressedPtr values, CompressedPtr mask, const Kernels& kernels)
      : Compressed(values->dtype(), mask->shape()), values_(std::move(values)), mask_(std::move(mask)) {
    float ones[kRun];
    std::int64_t total = 0;
    for (std::int64_t at = 0; at < mask_->elements(); at += kRun) {
      before_.push_back(total);
      const std::int64_t n = std::min(kRun, mask_->elements() - at);
      mask_->decode(kernels, at, n, ones);
      for (std::int64_t i = 0; i < n; ++i) total += ones[i] != 0.0f;
    }
    if (total != values_->elements())
      refuse_compressed(cat("a mask with ", total, " ones for ", values_->elements(), " values"));
  }
  std::int64_t bytes() const override {
    return values_->bytes() + mask_->bytes() + static_cast<std::int64_t>(before_.size()) * 8;
  }
  void decode(const Kernels& kernels, std::int64_t first, std::int64_t count, float* out) const override {
    while (count > 0) {  // by the pieces that before_ counts
      const std::int64_t piece = first / kRun, begin = piece * kRun;
      const std::int64_t end = std::min(begin + kRun, first + count), n = end - begin;
      float ones[kRun], values[kRun];
      mask_->decode(kernels, begin, n, ones);
      std::int64_t number = 0;
      for (std::int64_t i = 0; i < n; ++i) number += ones[i] != 0.0f;
      values_->decode(kernels, before_[static_cast<std::size_t>(piece)], number, values);
      std::int64_t next = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        const float value = ones[i] != 0.0f ? values[next++] : 0.0f;
        if (begin + i >= first) *out++ = value;
      }
      count -= end - first;
      first = end;
    }
  }

 private:
  CompressedPtr values_, mask_;
  std::vector<std::int64_t> before_;  // ones before each piece
};

class Masked final : public Compressed {
 public:
  Masked(CompressedPtr values, CompressedPtr mask)
      : Compressed(values->dtype(), values->shape()), values_(std::move(values)), mask_(std::move(mask)) {
    if (mask_->shape() != shape())
      refuse_compressed(cat("a mask of ", text_of(mask_->shape()), " for values of ", text_of(shape())));
  }
  std::int64_t bytes() const override { return values_->bytes(); }
  void decode(const Kernels& kernels, std::int64_t first, std::int64_t count, float* out) const override {
    float ones[kRun];
    for (; count > 0; first += kRun, out += kRun, count -= kRun) {
      const std::int64_t n = std::min(count, kRun);
      values_->decode(kernels, first, n, out);
      mask_->decode(kernels, first, n, ones);
      for (std::int64_t i = 0; i < n; ++i)
        if (ones[i] == 0.0f) out[i] = 0.0f;
    }
  }

 private:
  CompressedPtr values_, mask_;
};

}  // namespace

CompressedPtr stored_numbers(const Value& value, DataType dtype, Shape shape) {
  const DataType stored = value.type.dtype;
  const bool readable = (bits_of(stored) > 0 && bits_of(stored) <= 8 && stored != DataType::fp8e4m3fn &&
                         stored != DataType::fp8e5m2) ||
                        runs(stored);
  if (!readable)
    throw Error(ErrorCode::unsupported, cat("constants of ", name_of(stored), " are not decoded"));
  const auto needed = bytes_for(stored, static_cast<std::size_t>(elements_in(shape)));
  if (value.bytes.size() < needed)
    refuse_compressed(cat(value.bytes.size(), " bytes for ", text_of(shape), " of ", name_of(stored),
                          ", which are ", needed));
  return std::make_shared<StoredNumbers>(dtype, std::move(shape), value.bytes.data(), value.keeps, stored,
                                         value.file);
}

CompressedPtr stored_numbers(const Tensor& tensor) {
  return std::make_shared<StoredNumbers>(tensor.dtype, tensor.shape, tensor.data.get(), tensor.data,
                                         tensor.dtype);
}

CompressedPtr scaled_blocks(CompressedPtr data, const Tensor& scale, CompressedPtr offset,
                            const Kernels& kernels) {
  return std::make_shared<ScaledBlocks>(std::move(data), scale, offset, kernels);
}

CompressedPtr palette(CompressedPtr indices, const Tensor& table, std::int64_t vector_axis,
                      const Kernels& kernels) {
  return std::make_shared<Palette>(std::move(indices), table, vector_axis, kernels);
}

CompressedPtr spread_over(CompressedPtr values, CompressedPtr mask, const Kernels& kernels) {
  return std::make_shared<Spread>(std::move(values), std::move(mask), kernels);
}

CompressedPtr masked(CompressedPtr values, CompressedPtr mask) {
  return std::make_shared<Masked>(std::move(values), std::move(mask));
}

Tensor dense_tensor(const Kernels& kernels, const Compressed& compressed) {
  Tensor result =
      zeroed_tensor(runs(compressed.dtype()) ? compressed.dtype() : DataType::int8, compressed.shape());
  float piece[kRun];
  for (std::int64_t at = 0; at < compressed.elements(); at += kRun) {
    const std::int64_t n = std::min(kRun, compressed.elements() - at);
    compressed.decode(kernels, at, n, piece);
    store(kernels, piece, n, result, at);
  }
  return result;
}

}  // namespace kvtide::coreml
