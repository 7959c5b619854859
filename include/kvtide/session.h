// session.h: one text being read and continued: tokens in, logits out, the KV memory in between.
//
// Ownership: owns its KV memory, scratch memory and threads; refers to the Model, which must outlive it.
// Thread rules: one caller at a time. Sessions of one model do not influence each other.
// Invariants
//   1. The logits of a token are the same bits for every prefill_chunk, thread count and kernel table.
//   2. After an error the KV memory holds exactly the tokens of the chunks that were completed before it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "kvtide/model.h"
#include "kvtide/types.h"

namespace kvtide {

enum class KvType { f16, f32 };

struct SessionOptions {
  // Change results.
  bool exact = false;  // f32 activations instead of 8-bit ones in quantised matrix products
  KvType key_type = KvType::f16;
  KvType value_type = KvType::f16;
  std::int64_t context = 0;  // tokens the session can hold; 0: what the model was trained for
  // Change only speed or memory.
  int threads = 0;                   // 0: as many as the machine has
  std::int64_t prefill_chunk = 512;  // tokens per forward pass while reading
  std::string kernels;               // "avx512", "avx2", "scalar"; empty: the best the processor has
};

struct ReadOptions {
  // Positions of this text from which on logits are computed and handed out, one row per token, in order; the
  // last token's logits are always kept for logits(). Default: only the last.
  Pos logits_from = -1;
  std::function<void(Pos, std::span<const float>)> on_logits;
  // Called after each chunk with the tokens read so far in this call; false stops: read throws
  // Error(cancelled).
  std::function<bool(std::int64_t)> progress;
  bool need_logits = true;  // false: only fill the memory; logits() is empty afterwards
};

struct MemoryUse {  // bytes
  std::int64_t weights = 0;
  std::int64_t kv = 0;       // pages of the rows held
  std::int64_t scratch = 0;  // activations, logits and vocabulary tables
};

class Session {
 public:
  // Throws Error: invalid_argument, unsupported (kernels), out_of_memory.
  Session(const Model& model, const SessionOptions& options = {});
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  // Appends tokens to the text. Throws Error: context_full (checked before anything is read: it tells both
  // numbers), invalid_argument (a token id), cancelled, numeric (the session is then unusable until clear()).
  void read(std::span<const TokenId> tokens, const ReadOptions& options = {});

  // Logits after the last token read: [vocabulary]; empty before the first.
  std::span<const float> logits() const;

  Pos position() const;          // tokens held
  std::int64_t context() const;  // tokens that fit
  const Model& model() const;
  const SessionOptions& options() const;  // with the defaults filled in
  MemoryUse memory() const;

  void clear();  // forgets the text and gives its memory back

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A 64-bit hash of the bits of `values`, for comparing runs.
std::uint64_t hash_logits(std::span<const float> values, std::uint64_t seed = 0);

}  // namespace kvtide
