// The tensor table of a GGUF file: names, shapes and types first, then, when the table's end is known, where
// each tensor's bytes lie.
#include <algorithm>
#include <numeric>
#include <string>

#include "base/checked.h"
#include "base/text.h"
#include "formats/byte_reader.h"
#include "formats/ggml_type_names.h"
#include "formats/gguf_parse.h"

namespace kvtide {
namespace {

// The least a tensor can take: length, 1 byte, dimensions, 1 dimension, type, offset.
constexpr std::uint64_t kSmallestTensor = 8 + 1 + 4 + 8 + 4 + 8;

class TableReader {
 public:
  TableReader(ByteReader& in, std::span<const std::byte> bytes, std::uint64_t count, std::uint64_t alignment)
      : in_(in), bytes_(bytes), count_(count), alignment_(alignment) {}

  std::vector<GgufTensor> run() {
    read_table();
    place();
    check_overlap();
    return std::move(tensors_);
  }

 private:
  void read_table() {
    in_.subject("header");
    in_.expect_room(count_, kSmallestTensor, "tensors");
    tensors_.reserve(count_);
    offsets_.reserve(count_);
    for (std::uint64_t i = 0; i < count_; ++i) {
      const std::string kind = cat("tensor ", i + 1, " of ", count_);
      in_.subject(kind);
      GgufTensor tensor;
      tensor.name = in_.string(kMaxNameBytes, "the name");
      check_gguf_name(in_, tensor.name, "the name");
      in_.subject("tensor", tensor.name);
      read_shape(tensor);
      read_dtype(tensor);
      offsets_.push_back(in_.read<std::uint64_t>("the offset of its data"));
      tensors_.push_back(std::move(tensor));
    }
  }

  void read_shape(GgufTensor& tensor) {
    const auto dims = in_.read<std::uint32_t>("the number of dimensions");
    if (dims < 1 || dims > kMaxDims)
      in_.fail(cat("has ", dims, " dimensions; 1 to ", kMaxDims, " are allowed"));
    tensor.shape.reserve(dims);
    std::uint64_t elements = 1;
    for (std::uint32_t d = 0; d < dims; ++d) {
      const auto length = in_.read<std::uint64_t>("a dimension");
      if (length == 0) in_.fail(cat("dimension ", d, " is 0; an empty tensor has no use"));
      const auto product = checked_mul(elements, length);
      if (!product)
        in_.fail(cat("dimension ", d, " is ", length, ": the number of elements exceeds 2^63 - 1"));
      elements = *product;
      tensor.shape.push_back(static_cast<std::int64_t>(length));
    }
  }

  void read_dtype(GgufTensor& tensor) {
    const auto number = in_.read<std::uint32_t>("the type");
    const auto dtype = dtype_from_number(number);
    if (dtype) {
      tensor.dtype = *dtype;
      const auto& info = dtype_info(*dtype);
      if (tensor.shape[0] % info.block_elements != 0)
        in_.fail(cat("has rows of ", tensor.shape[0], " elements; ", info.name, " needs a multiple of ",
                     info.block_elements));
      return;
    }
    const std::string_view name = unsupported_type_name(number);
    std::string known;
    for (const auto& info : kDTypes) known += (known.empty() ? "" : " ") + std::string(info.name);
    in_.fail(cat("has type ", number, name.empty() ? "" : " (", name, name.empty() ? "" : ")",
                 "; the types that are read: ", known),
             ErrorCode::unsupported);
  }

  // Turns offsets into views, now that the table's end, and with it the start of the data, is known.
  void place() {
    const auto start = checked_align(in_.offset(), alignment_);
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      GgufTensor& tensor = tensors_[i];
      in_.subject("tensor", tensor.name);
      const auto& info = dtype_info(tensor.dtype);
      std::uint64_t elements = 1;
      for (const auto length : tensor.shape)
        elements *= static_cast<std::uint64_t>(length);  // checked in read_shape
      const auto bytes = checked_mul(elements / static_cast<std::uint64_t>(info.block_elements),
                                     static_cast<std::uint64_t>(info.block_bytes));
      if (!bytes) in_.fail(cat(elements, " elements of type ", info.name, " exceed 2^63 - 1 bytes"));
      if (offsets_[i] % alignment_ != 0)
        in_.fail(cat("offset ", offsets_[i], " is not a multiple of the alignment ", alignment_));
      const auto first = start ? checked_add(*start, offsets_[i]) : std::nullopt;
      const auto last = first ? checked_add(*first, *bytes) : std::nullopt;
      if (!last || *last > bytes_.size())
        in_.fail(cat("needs ", *bytes, " bytes at offset ", offsets_[i],
                     " of the data, which starts at byte ", start.value_or(0), ", but the file ends at byte ",
                     bytes_.size()));
      // A plain float is read through its own type; the quantised blocks are packed structs.
      if (info.block_elements == 1 && *first % static_cast<std::uint64_t>(info.block_bytes) != 0)
        in_.fail(cat("starts at byte ", *first, "; ", info.name, " needs a multiple of ", info.block_bytes));
      tensor.data = bytes_.subspan(*first, *bytes);
    }
  }

  void check_overlap() {
    std::vector<std::uint32_t> order(tensors_.size());
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::sort(order, {}, [&](std::uint32_t i) { return offsets_[i]; });
    for (std::size_t i = 1; i < order.size(); ++i) {
      const GgufTensor& before = tensors_[order[i - 1]];
      const GgufTensor& after = tensors_[order[i]];
      if (offsets_[order[i]] >= offsets_[order[i - 1]] + before.data.size())
        continue;  // both lie in the file
      in_.subject("tensor", after.name);
      in_.fail(cat("overlaps tensor ", quoted(before.name), ", which takes ", before.data.size(),
                   " bytes from offset ", offsets_[order[i - 1]], " on; its own offset is ",
                   offsets_[order[i]]));
    }
  }

  ByteReader& in_;
  std::span<const std::byte> bytes_;
  std::uint64_t count_;
  std::uint64_t alignment_;
  std::vector<GgufTensor> tensors_;
  std::vector<std::uint64_t> offsets_;  // of the tensors' data, from the start of the data section
};

}  // namespace

std::vector<GgufTensor> read_tensor_table(ByteReader& in, std::span<const std::byte> bytes,
                                          std::uint64_t count, std::uint64_t alignment) {
  return TableReader(in, bytes, count, alignment).run();
}

}  // namespace kvtide
