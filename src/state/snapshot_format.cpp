#include "state/snapshot_format.h"

#include <algorithm>

#include "base/checksum.h"
#include "base/text.h"

namespace kvtide::snapshot_format {

void ChunkSums::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto take = static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), kChunk - filled_));
    crc_ = crc32c(bytes.first(take), crc_);
    filled_ += take;
    bytes = bytes.subspan(take);
    if (filled_ == kChunk) close();
  }
}

const std::vector<std::uint32_t>& ChunkSums::finish() {
  if (filled_ > 0) close();
  return sums_;
}

void ChunkSums::close() {
  sums_.push_back(crc_);
  crc_ = 0;
  filled_ = 0;
}

namespace {

SnapshotTensor snapshot_tensor(const ProceduralTensor& part) {
  using Type = ProceduralTensor::Type;
  SnapshotTensor tensor{part.name, std::nullopt, part.shape, 0, 0, 4};
  if (part.type != Type::i32) tensor.dtype = part.type == Type::rows ? part.row_type : DType::f32;
  if (tensor.dtype) tensor.bytes = static_cast<std::uint64_t>(dtype_bytes(*tensor.dtype, part.shape.back()));
  for (std::size_t i = 0; i + (tensor.dtype ? 1 : 0) < part.shape.size(); ++i)
    tensor.bytes *= static_cast<std::uint64_t>(part.shape[i]);
  return tensor;
}

}  // namespace

std::vector<SnapshotTensor> state_tensors(const StateImage& image) {
  std::vector<SnapshotTensor> tensors;
  const auto add_rows = [&](std::size_t layer, const PosRange& run, bool key) {
    const LayerSpec& spec = image.spec.layers[layer];
    SnapshotTensor tensor;
    tensor.name = cat("layers.", layer, key ? ".k" : ".v");
    tensor.dtype = key ? image.spec.key_type : image.spec.value_type;
    tensor.shape = {spec.kv_heads, run.size(), spec.head_dim};
    tensor.first = run.first;
    tensor.bytes =
        static_cast<std::uint64_t>(spec.kv_heads * run.size() * dtype_bytes(*tensor.dtype, spec.head_dim));
    tensors.push_back(std::move(tensor));
  };
  const auto add_recurrent = [&](Pos position, std::size_t i) {
    const RecurrentSpec& spec = image.spec.recurrent[i];
    tensors.push_back({"recurrent." + spec.name, spec.dtype, spec.shape, position, 0,
                       static_cast<std::uint64_t>(recurrent_bytes(spec))});
  };
  in_file_order(image, add_rows, add_recurrent, [&] {
    const int head_dim = whole_layer(image.spec.layers).head_dim;
    for (const auto& part : procedural_tensors(memory_spec(image.spec), *image.past, head_dim))
      tensors.push_back(snapshot_tensor(part));
  });
  return tensors;
}

std::uint64_t place(std::vector<SnapshotTensor>& tensors) {
  std::uint64_t offset = 0;
  for (auto& tensor : tensors) {
    tensor.offset = offset;
    offset = aligned(offset + tensor.bytes);
  }
  return offset;
}

}  // namespace kvtide::snapshot_format
