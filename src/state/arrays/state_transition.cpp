#include "kvtide/state_transition.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>

#include "base/checked.h"
#include "base/out_of_memory.h"
#include "base/refuse.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "kvtide/error.h"
#include "state/arrays/dense.h"

namespace kvtide {
namespace {

using Shape = std::span<const std::int64_t>;

constexpr std::size_t kLargestElement = 64;
// A thread is worth starting for this many bytes read and written: it costs what moving about 1 MiB does.
constexpr std::int64_t kBytesPerThread = std::int64_t{8} << 20;

std::string text_of(Shape shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += cat(i == 0 ? "" : ", ", shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

void check_four(Shape shape) {
  if (shape.size() != 4)
    refuse(cat("Expected 4D state tensor [rows, kv_heads, seq, head_dim], got shape ", text_of(shape)));
}

void check_position(Pos position, std::int64_t length) {
  if (position > length)
    refuse(cat("current_position (", position, ") cannot exceed the source sequence length (", length, ")"));
  if (position < 0) refuse(cat("current_position (", position, ") must not be negative"));
}

void check_same(const char* what, std::int64_t source, std::int64_t target) {
  if (source != target) refuse(cat(what, " mismatch: source has ", source, ", target has ", target));
}

void check_alike(Shape source, Shape target) {
  check_same("Layer count", source[0], target[0]);
  check_same("KV head count", source[1], target[1]);
  check_same("Head dimension", source[3], target[3]);
}

void check_bytes(const char* which, std::size_t bytes, Shape shape, std::size_t element) {
  std::optional<std::uint64_t> expected = element;
  for (const std::int64_t extent : shape) {
    if (extent < 0) refuse(cat("the ", which, "'s shape ", text_of(shape), " has a negative extent"));
    if (expected) expected = checked_mul(*expected, static_cast<std::uint64_t>(extent));
  }
  if (expected != bytes)
    refuse(cat("the ", which, " has ", bytes, " bytes, but its shape ", text_of(shape), " with elements of ",
               element, expected ? cat(" bytes needs ", *expected) : " bytes needs more than 2^63"));
}

bool overlap(const DenseSource& source, const DenseTarget& target) {
  const std::less<const std::byte*> before;
  return before(source.bytes.data(), target.bytes.data() + target.bytes.size()) &&
         before(target.bytes.data(), source.bytes.data() + source.bytes.size());
}

int threads_for(const DenseMove& move, int asked) {
  if (asked != 0) return asked;
  const std::int64_t wanted = bytes_moved(move) / kBytesPerThread;
  return static_cast<int>(std::clamp<std::int64_t>(wanted, 1, ThreadPool::count(0)));
}

// The checks that both transitions end with, and the move.
DenseTransitionRecord apply(const DenseSource& source, const DenseTarget& target, Pos position,
                            std::span<const std::byte> pad, const TransitionOptions& options) {
  const Stopwatch watch;
  check_alike(source.shape, target.shape);
  if (pad.empty() || pad.size() > kLargestElement)
    refuse(cat("an element of padding has 1 to ", kLargestElement, " bytes, not ", pad.size()));
  check_bytes("source", source.bytes.size(), source.shape, pad.size());
  check_bytes("target", target.bytes.size(), target.shape, pad.size());

  const std::int64_t length = source.shape[2], new_length = target.shape[2];
  const bool nothing_to_do =
      length == new_length && position == length && source.bytes.data() == target.bytes.data();
  if (!nothing_to_do) {
    if (overlap(source, target))
      refuse("source and target overlap in memory; give the target memory of its own");
    const std::int64_t row = source.shape[3] * static_cast<std::int64_t>(pad.size());
    const DenseMove move{.source = source.bytes.data(),
                         .target = target.bytes.data(),
                         .blocks = source.shape[0] * source.shape[1],
                         .source_block = length * row,
                         .target_block = new_length * row,
                         .kept = position * row,
                         .pad = pad,
                         .target_is_padded = options.target_is_padded,
                         .target_is_fresh = options.target_is_fresh};
    ThreadPool pool(threads_for(move, options.threads));
    run(move, pool);
  }
  return {.kept = position,
          .dropped = length - position,
          .bytes_before = static_cast<std::int64_t>(source.bytes.size()),
          .bytes_after = static_cast<std::int64_t>(target.bytes.size()),
          .milliseconds = watch.ms()};
}

}  // namespace

DenseTransitionRecord transition(const DenseSource& source, const DenseTarget& target,
                                 std::optional<Pos> position, const TransitionOptions& options) try {
  check_four(source.shape);
  check_four(target.shape);
  const std::int64_t length = source.shape[2], new_length = target.shape[2];
  if (new_length < length)
    refuse(cat("target_seq_length (", new_length, ") must be >= the source sequence length (", length, ")"));
  check_position(position.value_or(length), length);
  return apply(source, target, position.value_or(length), options.pad, options);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

DenseTransitionRecord compact(const DenseSource& source, const DenseTarget& target, Pos position,
                              const TransitionOptions& options) try {
  check_four(source.shape);
  check_four(target.shape);
  if (position > target.shape[2])
    refuse(cat("Cannot compact to ", target.shape[2], ": ", position, " positions are in use"));
  check_position(position, source.shape[2]);
  const std::vector<std::byte> zeros(options.pad.size());
  return apply(source, target, position, zeros, options);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

TransitionInfo transition_info(std::int64_t source_seq_length, std::int64_t target_seq_length, Pos position) {
  return {.source_seq_length = source_seq_length,
          .target_seq_length = target_seq_length,
          .current_position = position,
          .valid_tokens = position,
          .padded_positions_source = source_seq_length - position,
          .padded_positions_target = target_seq_length - position,
          .expansion_factor = static_cast<double>(target_seq_length) / static_cast<double>(source_seq_length),
          .additional_capacity = target_seq_length - source_seq_length};
}

void validate_state_shapes(Shape source, Shape target) try {
  if (source.size() != 4) refuse(cat("Source state must be 4D, got ", source.size(), "D"));
  if (target.size() != 4) refuse(cat("Target state must be 4D, got ", target.size(), "D"));
  check_alike(source, target);
  if (target[2] < source[2])
    refuse(
        cat("Target sequence length (", target[2], ") must be >= source sequence length (", source[2], ")"));
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide
