// decoder.h: a language model in one or several packages, driven as its exporter meant it: ids in, logits of the last one out.
//
//   auto decoder = open_decoder("zenz.mlpackage", {});
//   std::vector<float> logits = decoder->read(prompt);      // as many tokens in a call as the package takes
//
// Errors: unsupported (contract.h), context_full, and those of CoremlModel. After a failure in the middle of read() the sequence
// has to begin again: reset().
// Thread rules: one caller.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "coreml/decode/contract.h"
#include "kvtide/coreml.h"
#include "kvtide/types.h"

namespace kvtide::coreml {

// What the calls of one package have cost.
struct PartTime {
  std::string name;  // of the package
  std::int64_t calls = 0;
  double seconds = 0.0;
};

// Rows of one layer of a sequence: f16, [1, kv_heads, rows, head_dim]. Keys are rotated to their positions.
struct LayerRows {
  int layer = 0;
  CoremlArray keys, values;
};

// What was read of one text. A decoder reads one at a time, and others can be set aside.
struct Sequence {
  std::vector<TokenId> tokens;
  std::vector<CoremlState> states;

  Sequence fork() const;
};

class Decoder {
 public:
  virtual ~Decoder() = default;

  // Logits behind the last id, which are at least one. `chunk`: at most so many in a call; 0: as many as go.
  std::vector<float> read(std::span<const TokenId> ids, std::int64_t chunk = 0);
  void reset();  // a new sequence
  // Reads another sequence from now on, of this decoder: an empty one, or one that was set aside. Gives the one it read.
  Sequence exchange(Sequence next);
  Sequence empty() const { return {{}, empty_states()}; }
  const Sequence& sequence() const { return sequence_; }

  // Whether the head chooses tokens: then the numbers that read() gives are right where they are largest, and nothing is known of the
  // others (chosen_tokens.h).
  virtual bool chooses() const { return false; }

  // Whether every layer has a package of its own, so that on_layer is told what is between them.
  virtual bool shows_layers() const { return false; }
  // Of each call of the packages: [tokens][width] before `layer`, and behind the last. What is put there goes on.
  std::function<void(int layer, std::vector<float>& stream)> on_layer;

  // Of each call that gives them for all its tokens: logits [tokens][vocabulary].
  std::function<void(const CoremlArray& logits, std::int64_t tokens)> on_logits;

  // What the states hold of the tokens read: layer after layer, as many rows as there are tokens. Both throw Error(unsupported)
  // for packages that do not say which state is whose.
  virtual std::vector<LayerRows> rows() const;
  // A sequence that was read elsewhere: the first rows of what is given, one for each token. Throws Error: invalid_argument
  // (shapes, layers), context_full; the states are as they were then.
  void restore(std::vector<TokenId> tokens, const std::vector<LayerRows>& rows);
  // Takes tokens back: the first `count` stay. What lies behind them in the states stays, too, and nothing reads it.
  virtual void truncate(std::int64_t count);
  // Puts a number (f16) into all rows behind those of the tokens read, which no call may look at.
  virtual void fill_unread(std::uint16_t half);
  // Whose rows these are: the identity of the model, as its snapshots have it; empty: not known.
  virtual std::map<std::string, std::string> identity() const { return {}; }

  std::int64_t position() const { return static_cast<std::int64_t>(sequence_.tokens.size()); }
  const std::vector<TokenId>& tokens() const { return sequence_.tokens; }
  std::int64_t calls() const { return calls_; }
  std::int64_t slots() const { return slots_; }  // the longest text
  virtual ContractKind kind() const = 0;
  // How many of `left` tokens the next call takes, at most `most` of them; 0: no number is right.
  virtual std::int64_t size_of_call(std::int64_t left, std::int64_t most) const = 0;
  virtual std::vector<PartTime> parts() const = 0;
  const std::vector<CoremlState>& states() const { return sequence_.states; }
  virtual std::int64_t state_bytes_copied() const = 0;
  virtual std::int64_t weight_bytes() const = 0;
  std::int64_t state_bytes() const;

 protected:
  explicit Decoder(std::int64_t slots) : slots_(slots) {}
  // Reads ids behind position(); empty when `last` is false.
  virtual std::vector<float> call(std::span<const TokenId> ids, bool last) = 0;
  virtual std::vector<CoremlState> empty_states() const = 0;
  // Empty states with `count` rows in them.
  virtual std::vector<CoremlState> states_with(std::int64_t count, const std::vector<LayerRows>& rows) const;
  std::vector<CoremlState>& states() { return sequence_.states; }

 private:
  std::int64_t slots_ = 0, calls_ = 0;
  Sequence sequence_;
};

// A package, a folder with meta.yaml (or that file), or a folder with the manifest.json of an export.
std::unique_ptr<Decoder> open_decoder(const std::string& path, const CoremlOptions& options);

}  // namespace kvtide::coreml
