// recurrent.h: tensors without a sequence axis: what a convolution or a recurrence carries from token to
// token.
//
// Such a tensor is replaced as a whole, cannot be resized, and holds something of every token that was read.
// So taking tokens back needs the values that it had at earlier positions. Kept are the values of the last
// `slack` positions that a step reported (stage), those at the end of every step, and those of checkpoints.
// Ownership: values are shared between copies and never changed in place. The memory of one that is forgotten waits for
// the next: fresh pages at every token would cost more than a recurrence.
// Thread rules: as for the state that owns this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvtide/error.h"
#include "kvtide/types.h"
#include "state/spec/bytes.h"
#include "state/spec/spec.h"

namespace kvtide {

class RecurrentTensors {
 public:
  explicit RecurrentTensors(const std::vector<RecurrentSpec>& specs);

  bool empty() const { return specs_.empty(); }
  std::size_t count() const { return specs_.size(); }
  const RecurrentSpec& spec(std::size_t tensor) const { return specs_[tensor]; }

  // The newest value of a tensor, and putting another in its place. Throws Error(invalid_argument) for a
  // wrong size, NaN and infinity.
  std::span<const std::byte> value(std::size_t tensor) const;
  void write(std::size_t tensor, std::span<const std::byte> bytes);

  // What a tensor holds after `position` tokens of a step that is not over; unstage() drops all of them.
  // Throws Error: invalid_argument (a wrong size), numeric (NaN and infinity).
  void stage(Pos position, std::size_t tensor, std::span<const std::byte> bytes);
  // Memory for that, to be filled whole. Throws std::bad_alloc. check_staged() then looks at it and throws
  // Error(numeric): NaN and infinity.
  std::span<std::byte> stage(Pos position, std::size_t tensor);
  void check_staged(Pos position, std::size_t tensor) const;
  void unstage() noexcept;
  // A step ended at `position`: what was staged until there is what the tensors hold; a tensor of which nothing was
  // stays as it was. Values of positions before position - slack that are no checkpoints are forgotten.
  void advance(Pos position, std::int64_t slack, const std::vector<Pos>& checkpoints);
  // Forgets values of positions before `from` that are no checkpoints.
  void forget(Pos from, const std::vector<Pos>& checkpoints) noexcept;
  // Whether the values after `length` tokens are known.
  bool knows(Pos length) const { return empty() || length == 0 || values_.contains(length); }
  void back_to(Pos length) noexcept;

  std::vector<Pos> positions() const;  // of the values kept, ascending
  std::span<const std::byte> bytes_at(Pos position, std::size_t tensor) const;
  // Values of zeros at these positions instead of what is held, to be filled through bytes_at.
  void restore(const std::vector<Pos>& positions);
  std::span<std::byte> bytes_at(Pos position, std::size_t tensor);

  // Of all values kept, and of memory that waits for the next.
  std::int64_t held_bytes() const;
  std::int64_t bytes_before(Pos position) const;  // likewise, of earlier positions

 private:
  struct alignas(16) Piece {
    std::byte bytes[16];
  };
  using Value = std::shared_ptr<Piece[]>;
  // Memory that nobody else has, of each tensor; a copy has none.
  struct Spare {
    std::vector<Value> of;
    Spare() = default;
    Spare(const Spare& other) : of(other.of.size()) {}
    Spare(Spare&&) noexcept = default;
    Spare& operator=(Spare&&) noexcept = default;
    Spare& operator=(const Spare&) = delete;
  };
  std::vector<Value> zeros() const;
  Value take_memory(std::size_t tensor);
  void keep_memory(std::vector<Value>& values) noexcept;
  Value copied(std::size_t tensor, std::span<const std::byte> bytes, ErrorCode not_finite) const;
  void require_finite(std::size_t tensor, const std::byte* bytes, ErrorCode code) const;
  std::span<std::byte> bytes_of(const Value& value, std::size_t tensor) const {
    return {reinterpret_cast<std::byte*>(value.get()),
            static_cast<std::size_t>(recurrent_bytes(specs_[tensor]))};
  }

  std::vector<RecurrentSpec> specs_;
  std::vector<Value> start_;                  // zeros: what they hold before the first token
  std::map<Pos, std::vector<Value>> values_;  // after so many tokens; the last one is the present
  std::map<Pos, std::vector<Value>> staged_;  // of the step; nullptr: not said
  Spare spare_;
};

}  // namespace kvtide
