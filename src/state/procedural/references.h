// references.h: queries that attention met lately, kept to judge which rows of a block will be needed.
//
// Of every stride-th token, every layer keeps the queries of all heads before RoPE and the log mass of their
// softmax. Queries have the type of the rows that they judge, and need not be more exact.
// Slots are a ring by position, large enough for the window and one block. A few
// tokens of every sealed block stay longer, thinned as they grow old: consolidation asks them, too.
// Ownership: owns its memory; copies are deep. Thread rules: different (layer, token) from different threads.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernels.h"
#include "kvtide/types.h"
#include "tensor/dtype.h"

namespace kvtide {

class References {
 public:
  struct Shape {
    std::vector<bool> layers;  // which layers keep any
    int heads = 0, head_dim = 0;
    std::int64_t stride = 8;  // positions from one reference to the next
    std::int64_t span = 0;    // positions that must stay available
    Pos from = 0;             // positions below have none
    DType type = DType::f16;  // of queries: f16, q8_0 or q4_0
    friend bool operator==(const Shape&, const Shape&) = default;
  };
  explicit References(const Shape& shape);
  // Takes the memory of all slots, once; nothing is kept before. Throws std::bad_alloc, and has then changed nothing.
  void begin();
  bool begun() const { return begun_; }

  const Shape& shape() const { return shape_; }
  bool wants(int layer, Pos position) const {
    return shape_.layers[static_cast<std::size_t>(layer)] && position >= shape_.from &&
           position % shape_.stride == shape_.stride / 2;
  }
  // Of the positions of one step, which threads take in any order, a slot holds the last. end: of the step.
  bool stays(Pos position, Pos end) const { return position + ring_ * shape_.stride >= end; }
  // query: [head_dim] of one head, before RoPE; in four bits its Hadamard transform is kept. log_mass: [heads].
  void put_query(const Kernels& kernels, int layer, Pos position, int head, const float* query);
  void put_log_mass(int layer, Pos position, const float* log_mass);

  // The first position whose references the ring still has when `position` tokens were read.
  Pos oldest(Pos position) const { return position - shape_.span; }
  // Positions of [first, last) that have references, ascending, where they are in the ring.
  std::vector<Pos> available(Pos first, Pos last) const;
  // `count` of these, evenly spaced; all of them when there are fewer.
  static std::vector<Pos> spread(const std::vector<Pos>& positions, std::int64_t count);

  // Keeps the references of some tokens of a block [first, last) when the ring gives up their slots; where that was
  // so before `position`, the oldest that are left stand in. Throws std::bad_alloc, and has then changed nothing.
  void retain(Pos first, Pos last, Pos position);
  const std::vector<Pos>& retained() const { return old_positions_; }

  // Where the layer's queries at a position lie.
  std::size_t place(int layer, Pos position) const { return at(layer, slot(position)); }
  // One reference of a place. out: [head_dim], the query as it was rounded to be kept.
  void query(const Kernels& kernels, std::size_t place, int head, float* out) const;
  float log_mass(std::size_t place, int head) const;

  void clear() noexcept;
  std::int64_t held_bytes() const;
  static std::int64_t bytes_for(const Shape& shape);

  static constexpr std::int64_t kMostRetained = 48;
  static std::int64_t slots(const Shape& shape) { return shape.span / shape.stride + 1 + kMostRetained; }

  // What a snapshot holds: [layers that keep any][slots][heads][head_dim] and [...][heads], and the rest.
  std::vector<std::byte>& queries() { return queries_; }
  const std::vector<std::byte>& queries() const { return queries_; }
  std::vector<float>& masses() { return masses_; }
  const std::vector<float>& masses() const { return masses_; }
  std::vector<Pos>& retained() { return old_positions_; }
  std::int64_t& retain_stride() { return retain_stride_; }
  std::int64_t& blocks_seen() { return blocks_seen_; }

 private:
  // Bytes of one query, and of all heads' queries of one slot.
  std::size_t query_bytes() const {
    return static_cast<std::size_t>(dtype_bytes(shape_.type, shape_.head_dim));
  }
  std::size_t slot_bytes() const { return static_cast<std::size_t>(shape_.heads) * query_bytes(); }
  void copy_slot(std::int64_t from, std::int64_t to);
  std::int64_t slot(Pos position) const;
  std::size_t at(int layer, std::int64_t slot) const;

  Shape shape_;
  std::int64_t ring_;                      // slots of the ring; retained ones follow
  std::vector<std::int64_t> layer_index_;  // among the layers that keep any
  std::vector<std::byte> queries_;         // [layer][slot][heads] rows of head_dim
  std::vector<float> masses_;              // [layer][slot][heads]
  std::vector<Pos> old_positions_;         // of the retained slots, ascending
  std::int64_t retain_stride_ = 1;         // every so many-th block leaves some tokens behind
  std::int64_t blocks_seen_ = 0;
  bool begun_ = false;
};

}  // namespace kvtide
