// sample_files.h: the valid files that hostile tests damage and fuzzing starts from.
#pragma once

#include <string>
#include <vector>

#include "tests/hostile/gguf_builder.h"

namespace kvtide::testing {

// A value of every type, an array of every type, a tensor of every block size: about 5 KiB.
inline GgufBuilder every_type_builder() {
  GgufBuilder builder;
  builder.key("general.architecture", "test")
      .key("a.u8", std::uint8_t{200})
      .key("a.i8", std::int8_t{-100})
      .key("a.u16", std::uint16_t{60000})
      .key("a.i16", std::int16_t{-30000})
      .key("a.u32", std::uint32_t{4000000000})
      .key("a.i32", std::int32_t{-2000000000})
      .key("a.f32", 0.5f)
      .key("a.bool", true)
      .key("a.string", "text")
      .key("a.u64", std::uint64_t{1} << 60)
      .key("a.i64", -(std::int64_t{1} << 60))
      .key("a.f64", 1e-300)
      .alignment(64)
      .array("b.u8", std::vector<std::uint8_t>{1, 2, 3})
      .array("b.i8", std::vector<std::int8_t>{-1, 2})
      .array("b.u16", std::vector<std::uint16_t>{7, 8})
      .array("b.i16", std::vector<std::int16_t>{-7, 8})
      .array("b.u32", std::vector<std::uint32_t>{1, 4000000000})
      .array("b.i32", std::vector<std::int32_t>{-1, 0, 1})
      .array("b.f32", std::vector<float>{0.5f, -1.5f})
      .array("b.bool", std::vector<bool>{true, false})
      .array("b.u64", std::vector<std::uint64_t>{1})
      .array("b.i64", std::vector<std::int64_t>{-1})
      .array("b.f64", std::vector<double>{0.25})
      .array("b.none", std::vector<std::int32_t>{})
      .strings("b.strings", {"", "one", "two words"})
      .tensor("t.f32", {32, 18}, DType::f32)
      .tensor("t.f16", {6}, DType::f16)
      .tensor("t.bf16", {5}, DType::bf16)
      .tensor("t.q4_1", {32, 2}, DType::q4_1)
      .tensor("t.q5_0", {32, 2, 1}, DType::q5_0)
      .tensor("t.q8_0", {64}, DType::q8_0)
      .tensor("t.q4_k", {256}, DType::q4_k)
      .tensor("t.q6_k", {256, 2, 1, 1}, DType::q6_k)
      .tensor("t.iq4_xs", {256}, DType::iq4_xs)
      .tensor("t.iq3_xxs", {256}, DType::iq3_xxs)
      .tensor("t.iq2_s", {256, 2}, DType::iq2_s)
      .tensor("t.iq1_m", {256}, DType::iq1_m)
      .tensor("t.tq1_0", {256, 3}, DType::tq1_0)
      .tensor("t.iq4_nl", {32}, DType::iq4_nl);
  return builder;
}

inline GgufImage every_type_file() { return every_type_builder().build(); }

// What a test may change in the model below before it is built.
struct TinyLlama {
  std::uint32_t layers = 1, width = 32, heads = 2, kv_heads = 1, hidden = 32, context = 64;
  std::vector<std::string> tokens = {"<s>", "</s>",   "a",  "b",  "c",       "d",
                                     "e",   "\u0120", "ab", "cd", "\u0120a", "\u010a"};
  std::vector<std::string> merges = {"a b", "c d", "\u0120 a"};
};

// A whole model of the llama architecture that can be run: a byte-level vocabulary and one layer, about 9
// KiB.
inline GgufBuilder tiny_llama_builder(const TinyLlama& shape = {}) {
  GgufBuilder builder;
  std::vector<std::int32_t> types(shape.tokens.size(), 1);
  types[0] = types[1] = 3;
  builder.key("general.architecture", "llama")
      .key("general.name", "tiny")
      .key("llama.context_length", shape.context)
      .key("llama.embedding_length", shape.width)
      .key("llama.block_count", shape.layers)
      .key("llama.feed_forward_length", shape.hidden)
      .key("llama.attention.head_count", shape.heads)
      .key("llama.attention.head_count_kv", shape.kv_heads)
      .key("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .key("llama.rope.dimension_count", shape.width / shape.heads)
      .key("llama.rope.freq_base", 10000.0f)
      .key("tokenizer.ggml.model", "gpt2")
      .key("tokenizer.ggml.pre", "gpt-2")
      .strings("tokenizer.ggml.tokens", shape.tokens)
      .array("tokenizer.ggml.token_type", types)
      .strings("tokenizer.ggml.merges", shape.merges)
      .key("tokenizer.ggml.bos_token_id", std::uint32_t{0})
      .key("tokenizer.ggml.eos_token_id", std::uint32_t{1})
      .key("tokenizer.ggml.add_bos_token", true);
  const std::uint64_t width = shape.width;
  const std::uint64_t kv_width = width / shape.heads * shape.kv_heads;
  const std::uint64_t hidden = shape.hidden;
  builder.tensor("token_embd.weight", {width, shape.tokens.size()}, DType::q8_0);
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    const std::string block = "blk." + std::to_string(layer) + ".";
    builder.tensor(block + "attn_norm.weight", {width}, DType::f32)
        .tensor(block + "attn_q.weight", {width, width}, DType::q8_0)
        .tensor(block + "attn_k.weight", {width, kv_width}, DType::q8_0)
        .tensor(block + "attn_v.weight", {width, kv_width}, DType::q8_0)
        .tensor(block + "attn_output.weight", {width, width}, DType::q8_0)
        .tensor(block + "ffn_norm.weight", {width}, DType::f32)
        .tensor(block + "ffn_gate.weight", {width, hidden}, DType::q8_0)
        .tensor(block + "ffn_up.weight", {width, hidden}, DType::q8_0)
        .tensor(block + "ffn_down.weight", {hidden, width}, DType::q8_0);
  }
  builder.tensor("output_norm.weight", {width}, DType::f32);
  return builder;
}

}  // namespace kvtide::testing
