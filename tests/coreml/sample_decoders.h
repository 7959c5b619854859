// Small random decoders as exporters write them, whole or with one fault planted.
//
//   Package good = llama_sample({});
//   Package bad = zenz_sample({.fault = Fault::past_is_constant});
//
// zenz: GPT-2 with keyCache, valueCache and a counter. llama: ids and a mask, the position from their shapes. anemll: a chunk
// with one state for keys and values, functions infer and prefill. shard: one layer, masks and rotations from outside.
#pragma once

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "base/text.h"
#include "coreml/write/builder.h"
#include "coreml/write/operations.h"

namespace kvtide::coreml::testing {

enum class Fault {
  none,
  past_is_constant,             // zenz: every call starts at row 0
  counter_not_written,          // zenz
  mask_of_one,                  // zenz, anemll: the mask has one element
  values_not_written,           // llama
  length_is_constant,           // llama: reads the same rows in every call
  index_put_lost,               // anemll
  position_is_constant,         // anemll
  mask_is_constant,             // anemll
  no_mask,                      // anemll
  rows_scattered_at_constants,  // anemll
  last_position,                // shard: written from the last token's position on
  one_row,                      // shard: one row whatever T is
  write_mask_is_constant,       // shard
  no_rotation,                  // shard
  half_position,                // shard: the position is an f16
};

struct SampleOptions {
  int layers = 2, width = 32, heads = 2, kv_heads = 2, head_dim = 32, vocabulary = 48, slots = 64;
  int most_tokens = 4;  // of a call; 1: a fixed shape
  bool sdpa = true;     // llama: or the product, the softmax and the other product
  Fault fault = Fault::none;
  unsigned seed = 1;
};

// What all of them have: random weights, a linear layer, an attention.
class SampleBuilder {
 public:
  using Name = std::string;
  SampleBuilder(const SampleOptions& how, std::string function)
      : o(how), f(std::move(function)), op(f), random_(how.seed) {}

  const SampleOptions& o;
  FunctionBuilder f;
  Operations op;

  bool is(Fault fault) const { return o.fault == fault; }

  Name random(std::string name, Shape shape, float scale = 0.25f) {
    std::size_t count = 1;
    for (const auto extent : shape) count *= static_cast<std::size_t>(extent);
    std::normal_distribution<float> normal(0.0f, scale);
    std::vector<float> numbers(count);
    for (float& number : numbers) number = normal(random_);
    return f.constant(std::move(name), halves(std::move(shape), numbers));
  }
  Name filled(std::string name, std::int64_t count, float value) {
    return f.constant(std::move(name),
                      halves({count}, std::vector<float>(static_cast<std::size_t>(count), value)));
  }
  Name project(const Name& x, int outputs) {
    const auto inputs = f.type_of(x).shape.back();
    return op.linear(x, random("weight", {outputs, inputs}), filled("bias", outputs, 0.0f));
  }
  Name normed(const Name& x) { return op.rms_norm(x, filled("gamma", o.width, 1.0f), 1e-5f); }
  Name feed_forward(const Name& x) {
    return op.add(x, project(op.unary("silu", project(normed(x), 2 * o.width)), o.width));
  }
  Name ranged(std::string name, DataType dtype, Shape shape, const std::vector<std::size_t>& axes,
              std::int64_t most) {
    Feature feature;
    feature.name = std::move(name);
    feature.dtype = dtype;
    feature.shape = std::move(shape);
    for (const auto extent : feature.shape) feature.ranges.push_back({extent, extent});
    for (const std::size_t axis : axes) feature.ranges[axis] = {1, most};
    return f.input(std::move(feature));
  }
  // [1, heads, T, head_dim] of [1, T, heads * head_dim].
  Name heads_of(const Name& x, int heads) {
    return op.transpose(op.reshape(x, {1, -1, heads, o.head_dim}), {0, 2, 1, 3});
  }
  Name merged(const Name& x) {
    return op.reshape(op.transpose(x, {0, 2, 1, 3}), {1, -1, o.heads * o.head_dim});
  }
  // Each head of keys for several of queries.
  Name repeated(const Name& x) {
    if (o.heads == o.kv_heads) return x;
    const Name tiled = op.tile(op.expand(x, 2), {1, 1, o.heads / o.kv_heads, 1, 1});
    return op.reshape(tiled, {1, o.heads, -1, o.head_dim});
  }
  Name scores(const Name& query, const Name& keys) {
    return op.mul(op.matmul(query, keys, false, true),
                  half(1.0f / std::sqrt(static_cast<float>(o.head_dim))));
  }
  Name attended(const Name& scores, const Name& values) { return op.matmul(op.softmax(scores), values); }
  // Pairs (i, i + half): x * cos + (-x2, x1) * sin, with tables [.., head_dim].
  Name rotated(const Name& x, const Name& cos, const Name& sin) {
    const auto parts = op.split(x, 2, -1);
    const Name turned = op.concat({op.mul(parts[1], half(-1.0f)), parts[0]}, -1);
    return op.add(op.mul(x, cos), op.mul(turned, sin));
  }
  // A table [slots, head_dim] of both halves.
  Name rope_table(std::string name, bool cosine) {
    std::vector<float> numbers;
    for (int p = 0; p < o.slots; ++p)
      for (int i = 0; i < o.head_dim; ++i) {
        const double angle = p * std::pow(10000.0, -2.0 * (i % (o.head_dim / 2)) / o.head_dim);
        numbers.push_back(static_cast<float>(cosine ? std::cos(angle) : std::sin(angle)));
      }
    return f.constant(std::move(name), halves({o.slots, o.head_dim}, numbers));
  }

 private:
  std::mt19937 random_;
};

// Rows [begin, end) of layer `layer` of a state [layers, 1, heads, slots, head_dim].
inline SliceBounds stacked_rows(SampleBuilder& b, int layer, const Given& begin, const Given& end) {
  SliceBounds bounds{b.op.vector({layer, 0, 0, begin, 0}), b.op.vector({layer + 1, 0, 0, end, 0})};
  bounds.begin_mask = {false, true, true, false, true};
  bounds.end_mask = {false, true, true, false, true};
  return bounds;
}

inline Package zenz_sample(const SampleOptions& o) {
  SampleBuilder b(o, "main");
  FunctionBuilder& f = b.f;
  Operations& op = b.op;
  const auto ids = b.ranged("input_ids", DataType::int32, {1, 1}, {1}, o.slots);
  const bool one = b.is(Fault::mask_of_one);
  const auto mask = one ? f.input("attention_mask", DataType::int32, {1, 1})
                        : b.ranged("attention_mask", DataType::int32, {1, 1}, {1}, o.slots);
  const Shape cache = {o.layers, 1, o.heads, o.slots, o.head_dim};
  const auto keys = f.state("keyCache", DataType::fp16, cache),
             values = f.state("valueCache", DataType::fp16, cache);
  const auto counter = f.state("pastLen", DataType::fp16, {1});

  const auto tokens = op.extent(ids, 1);
  const auto counted = f.read_state(counter);
  const auto past_in =
      f.op("squeeze", {{"x", op.cast(counted, DataType::int32)}, {"axes", {0}}}, scalar(DataType::int32));
  const auto past = b.is(Fault::past_is_constant) ? f.constant("past", number(0)) : past_in;
  const auto end = b.is(Fault::past_is_constant) ? tokens : op.add(past, tokens);
  const auto positions =
      f.op("range_1d", {{"start", past}, {"end", end}, {"step", 1}}, tensor(DataType::int32, {kUnknown}));
  const auto columns =
      f.op("range_1d", {{"start", 0}, {"end", end}, {"step", 1}}, tensor(DataType::int32, {kUnknown}));
  const auto seen = f.op("less_equal", {{"x", op.expand(columns, 0)}, {"y", op.expand(positions, 1)}},
                         tensor(DataType::boolean, {kUnknown, kUnknown}));
  const auto hidden = op.mul(
      op.add(op.mul(op.cast(op.expand(op.expand(mask, 1), 1), DataType::fp16), half(-1.0f)), half(1.0f)),
      half(-1e4f));
  auto x = op.add(op.gather(b.random("wte", {o.vocabulary, o.width}), ids),
                  op.gather(b.random("wpe", {o.slots, o.width}), positions));
  for (int layer = 0; layer < o.layers; ++layer) {
    const int inner = o.heads * o.head_dim;
    const auto qkv = op.split(
        b.project(op.layer_norm(x, b.filled("gamma", o.width, 1), b.filled("beta", o.width, 0), 1e-5f),
                  3 * inner),
        3, -1);
    const auto write = [&](const std::string& state, const std::string& rows) {
      const auto updated =
          op.slice_update(f.read_state(state), op.expand(rows, 0), stacked_rows(b, layer, past, end));
      f.write_state(state, updated);
      SliceBounds bounds = stacked_rows(b, layer, 0, end);
      bounds.squeeze = {true, false, false, false, false};
      return op.slice(f.read_state(state), bounds, {1, o.heads, kUnknown, o.head_dim});
    };
    const auto k = write(keys, b.heads_of(qkv[1], o.heads)), v = write(values, b.heads_of(qkv[2], o.heads));
    auto scores = b.scores(b.heads_of(qkv[0], o.heads), k);
    scores = f.op("select", {{"cond", seen}, {"a", scores}, {"b", half(-1e4f)}}, f.type_of(scores));
    scores = op.add(scores, hidden);
    x = op.add(x, b.project(b.merged(b.attended(scores, v)), o.width));
    x = op.add(x, b.project(op.gelu(b.project(b.normed(x), 2 * o.width)), o.width));
  }
  SliceBounds last{{0, -1, 0}, {0, 0, 0}};
  last.begin_mask = {true, false, true};
  last.end_mask = {true, true, true};
  const auto newest = op.slice(x, last, {1, 1, o.width});
  if (b.is(Fault::past_is_constant))
    f.write_state(counter, op.expand(op.cast(tokens, DataType::fp16), 0));
  else if (!b.is(Fault::counter_not_written))
    f.write_state(counter, op.add(counted, op.expand(op.cast(tokens, DataType::fp16), 0)));
  f.output(b.project(b.normed(newest), o.vocabulary), "logits");
  return make_package(std::move(f));
}

inline Package llama_sample(const SampleOptions& o) {
  SampleBuilder b(o, "main");
  FunctionBuilder& f = b.f;
  Operations& op = b.op;
  const auto ids = b.ranged("inputIds", DataType::int32, {1, 1}, {1}, o.slots);
  const auto mask = b.ranged("causalMask", DataType::fp16, {1, 1, 1, 1}, {2, 3}, o.slots);
  const Shape cache = {o.layers, 1, o.kv_heads, o.slots, o.head_dim};
  const auto keys = f.state("keyCache", DataType::fp16, cache),
             values = f.state("valueCache", DataType::fp16, cache);
  const auto end = op.extent(mask, 3);
  const auto past = op.sub(end, op.extent(ids, 1));
  SliceBounds here{op.vector({past, 0}), op.vector({end, 0})};
  here.begin_mask = here.end_mask = {false, true};
  const auto cos = op.slice(b.rope_table("cos", true), here, {kUnknown, o.head_dim});
  const auto sin = op.slice(b.rope_table("sin", false), here, {kUnknown, o.head_dim});
  auto x = op.gather(b.random("embedding", {o.vocabulary, o.width}, 1.0f), ids);
  for (int layer = 0; layer < o.layers; ++layer) {
    const auto normed = b.normed(x);
    const auto query = b.rotated(b.heads_of(b.project(normed, o.heads * o.head_dim), o.heads), cos, sin);
    const auto write = [&](const std::string& state, const std::string& rows) {
      const auto old = f.read_state(state);
      const auto updated = op.slice_update(old, op.expand(rows, 0), stacked_rows(b, layer, past, end));
      const bool lost = b.is(Fault::values_not_written) && state == values;
      if (!lost) f.write_state(state, updated);
      SliceBounds bounds = stacked_rows(b, layer, 0, b.is(Fault::length_is_constant) ? Given(8) : Given(end));
      bounds.squeeze = {true, false, false, false, false};
      return b.repeated(
          op.slice(lost ? old : f.read_state(state), bounds, {1, o.kv_heads, kUnknown, o.head_dim}));
    };
    const auto k =
        write(keys, b.rotated(b.heads_of(b.project(normed, o.kv_heads * o.head_dim), o.kv_heads), cos, sin));
    const auto v = write(values, b.heads_of(b.project(normed, o.kv_heads * o.head_dim), o.kv_heads));
    std::string attended;
    if (o.sdpa) {
      attended = f.op("scaled_dot_product_attention",
                      {{"query", query}, {"key", k}, {"value", v}, {"attn_mask", mask}}, f.type_of(query));
    } else {
      attended = b.attended(op.add(b.scores(query, k), mask), v);
    }
    x = b.feed_forward(op.add(x, b.project(b.merged(attended), o.width)));
  }
  f.output(b.project(b.normed(x), o.vocabulary), "logits");
  return make_package(std::move(f));
}

// One function of a chunk: T tokens, fixed.
inline FunctionBuilder anemll_function(const SampleOptions& o, const std::string& name, int tokens) {
  SampleBuilder b(o, name);
  FunctionBuilder& f = b.f;
  Operations& op = b.op;
  auto x = f.input("hidden_states", DataType::fp16, {1, tokens, o.width});
  const auto ids = f.input("position_ids", DataType::int32, {tokens});
  const int seen = b.is(Fault::mask_of_one) ? 1 : o.slots;
  auto mask = f.input("causal_mask", DataType::fp16, {1, 1, tokens, seen});
  const auto current = f.input("current_pos", DataType::int32, {1});
  const auto state =
      f.state("model_model_kv_cache_0", DataType::fp16, {2 * o.layers, o.kv_heads, o.slots, o.head_dim});
  if (b.is(Fault::mask_is_constant)) mask = b.random("mask", {1, 1, tokens, o.slots});
  const auto first = b.is(Fault::position_is_constant) ? f.constant("five", ints({5})) : current;
  const auto behind = b.is(Fault::position_is_constant) ? f.constant("behind", ints({5 + tokens}))
                                                        : op.add(current, number(tokens));
  // infer rotates by current_pos, prefill by position_ids
  const auto turn = tokens == 1 ? first : ids;
  const auto cos = op.gather(b.rope_table("cos", true), turn),
             sin = op.gather(b.rope_table("sin", false), turn);
  for (int layer = 0; layer < o.layers; ++layer) {
    const auto normed = b.normed(x);
    const auto query = b.rotated(b.heads_of(b.project(normed, o.heads * o.head_dim), o.heads), cos, sin);
    const auto write = [&](int block, const std::string& update) {
      const auto old = f.read_state(state);
      if (b.is(Fault::rows_scattered_at_constants)) {
        const auto index = b.f.constant("rows", packed(DataType::int32, {1, 1}, std::vector<int>{block}));
        const auto same = op.gather(old, f.constant("same", ints({block})));
        f.write_state(state,
                      f.op("scatter_nd",
                           {{"data", old}, {"indices", index}, {"updates", same}, {"mode", text("update")}},
                           f.type_of(old)));
      } else if (!b.is(Fault::index_put_lost)) {
        SliceBounds bounds{op.vector({block, 0, first, 0}), op.vector({block + 1, 0, behind, 0})};
        bounds.begin_mask = bounds.end_mask = {false, true, false, true};
        f.write_state(state, op.slice_update(old, update, bounds));
      }
    };
    const auto seen_rows = [&](int block) {
      SliceBounds whole{{block, 0, 0, 0}, {block + 1, 0, 0, 0}};
      whole.begin_mask = whole.end_mask = {false, true, true, true};
      return b.repeated(op.slice(f.read_state(state), whole, {1, o.kv_heads, o.slots, o.head_dim}));
    };
    // As ANEMLL does: both are written before either is read, so no value of the state outlives a write.
    write(layer, b.rotated(b.heads_of(b.project(normed, o.kv_heads * o.head_dim), o.kv_heads), cos, sin));
    write(o.layers + layer, b.heads_of(b.project(normed, o.kv_heads * o.head_dim), o.kv_heads));
    const auto k = seen_rows(layer), v = seen_rows(o.layers + layer);
    auto scores = b.scores(query, k);
    if (!b.is(Fault::no_mask)) scores = op.add(scores, mask);
    x = b.feed_forward(op.add(x, b.project(b.merged(b.attended(scores, v)), o.width)));
  }
  f.output(x, "output_hidden_states");
  return std::move(f);
}

// infer and prefill, and infer_rotate and prefill_rotate with weights of another seed: so one sees which was called. The cache with a
// window is there for its shape only.
inline Package rotating_sample(const SampleOptions& o, int window, unsigned seed_of_rotate) {
  std::vector<FunctionBuilder> functions;
  for (const char* suffix : {"", "_rotate"})
    for (const int tokens : {1, o.most_tokens}) {
      SampleOptions how = o;
      if (*suffix != '\0') how.seed = seed_of_rotate;
      functions.push_back(anemll_function(how, cat(tokens == 1 ? "infer" : "prefill", suffix), tokens));
      functions.back().state("kv_cache_local", DataType::fp16, {2, o.kv_heads, window, o.head_dim});
    }
  return make_package(std::move(functions));
}

inline Package anemll_sample(const SampleOptions& o) {
  std::vector<FunctionBuilder> functions;
  functions.push_back(anemll_function(o, "infer", 1));
  if (o.most_tokens > 1) functions.push_back(anemll_function(o, "prefill", o.most_tokens));
  return make_package(std::move(functions));
}

// One layer: x [1, D, T, 1], rotations [T, head_dim / 2], masks of the shards.
inline Package shard_sample(const SampleOptions& o) {
  SampleBuilder b(o, "main");
  FunctionBuilder& f = b.f;
  Operations& op = b.op;
  const bool by_mask = b.is(Fault::none) || b.is(Fault::write_mask_is_constant) || b.is(Fault::no_rotation);
  const auto input = [&](const std::string& name, Shape shape, std::size_t axis) {
    return o.most_tokens == 1 ? f.input(name, DataType::fp16, std::move(shape))
                              : b.ranged(name, DataType::fp16, std::move(shape), {axis}, o.most_tokens);
  };
  const auto x = input("x", {1, o.width, 1, 1}, 2);
  const auto rope_cos = input("rope_cos", {1, o.head_dim / 2}, 0),
             rope_sin = input("rope_sin", {1, o.head_dim / 2}, 0);
  const auto mask = input("attention_mask", {1, 1, 1, o.slots}, 2);
  std::string write_mask, first, behind;
  if (b.is(Fault::write_mask_is_constant)) {
    write_mask = b.random("write_mask", {1, 1, o.slots, 1});
  } else if (by_mask) {
    write_mask = input("write_mask", {1, 1, o.slots, 1}, 3);
  } else if (b.is(Fault::last_position)) {
    const auto positions = b.ranged("positions", DataType::int32, {1}, {0}, o.most_tokens);
    first = op.gather(positions, f.constant("newest", ints({-1})));
    behind = op.add(first, op.extent(x, 2));
  } else {
    const bool half_type = b.is(Fault::half_position);
    const auto position = f.input("position", half_type ? DataType::fp16 : DataType::int32, {1});
    first = half_type ? op.cast(position, DataType::int32) : position;
    behind = b.is(Fault::one_row) ? op.add(first, number(1)) : op.add(first, op.extent(x, 2));
  }
  const auto keys = f.state("k_cache", DataType::fp16, {1, o.kv_heads, o.slots, o.head_dim});
  const auto values = f.state("v_cache", DataType::fp16, {1, o.kv_heads, o.slots, o.head_dim});
  const auto rows = op.transpose(op.reshape(x, {1, o.width, -1}), {0, 2, 1});  // [1, T, D]
  const auto cos = op.concat({rope_cos, rope_cos}, -1), sin = op.concat({rope_sin, rope_sin}, -1);
  const auto turned = [&](const std::string& value) {
    return b.is(Fault::no_rotation) ? value : b.rotated(value, cos, sin);
  };
  const auto write = [&](const std::string& state, const std::string& update) {
    const auto old = f.read_state(state);
    if (by_mask) {
      Shape reduced = f.type_of(write_mask).shape;
      reduced.back() = 1;
      const auto taken = f.op("reduce_sum", {{"x", write_mask}, {"axes", {-1}}, {"keep_dims", true}},
                              tensor(DataType::fp16, reduced));
      const auto kept = op.add(op.mul(taken, half(-1.0f)), half(1.0f));
      const auto columns = b.is(Fault::write_mask_is_constant)
                               ? op.slice(update, {{0, 0, 0, 0}, {1, o.kv_heads, 1, o.head_dim}},
                                          {1, o.kv_heads, 1, o.head_dim})
                               : update;
      f.write_state(state, op.add(op.mul(old, kept), op.matmul(write_mask, columns)));
    } else {
      SliceBounds bounds{op.vector({0, 0, first, 0}), op.vector({0, 0, behind, 0})};
      bounds.begin_mask = bounds.end_mask = {true, true, false, true};
      f.write_state(state, op.slice_update(old, update, bounds));
    }
    return b.repeated(f.read_state(state));
  };
  const auto normed = b.normed(rows);
  const auto query = turned(b.heads_of(b.project(normed, o.heads * o.head_dim), o.heads));
  const auto k = write(keys, turned(b.heads_of(b.project(normed, o.kv_heads * o.head_dim), o.kv_heads)));
  const auto v = write(values, b.heads_of(b.project(normed, o.kv_heads * o.head_dim), o.kv_heads));
  const auto attended = b.attended(op.add(b.scores(query, k), mask), v);
  const auto out = op.add(rows, b.project(b.merged(attended), o.width));
  f.output(op.reshape(op.transpose(out, {0, 2, 1}), {1, o.width, -1, 1}), "hidden");
  return make_package(std::move(f));
}

// A decoder without states: the cache comes in and goes out.
inline Package travelling_sample(const SampleOptions& o) {
  SampleBuilder b(o, "main");
  FunctionBuilder& f = b.f;
  Operations& op = b.op;
  const auto x = f.input("x", DataType::fp16, {1, 1, o.width});
  const auto past_k = b.ranged("past_key", DataType::fp16, {1, o.heads, 1, o.head_dim}, {2}, o.slots);
  const auto past_v = b.ranged("past_value", DataType::fp16, {1, o.heads, 1, o.head_dim}, {2}, o.slots);
  const int inner = o.heads * o.head_dim;
  const auto k = op.concat({past_k, b.heads_of(b.project(x, inner), o.heads)}, 2);
  const auto v = op.concat({past_v, b.heads_of(b.project(x, inner), o.heads)}, 2);
  const auto attended = b.attended(b.scores(b.heads_of(b.project(x, inner), o.heads), k), v);
  f.output(op.add(x, b.project(b.merged(attended), o.width)), "hidden");
  f.output(k, "present_key");
  f.output(v, "present_value");
  return make_package(std::move(f));
}

}  // namespace kvtide::coreml::testing
