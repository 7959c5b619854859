// sample_model.h: small runnable models with random weights of any type, of every architecture.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/codec.h"
#include "tests/kernels/samples.h"
#include "tests/model/model_sketch.h"

namespace kvtide::testing {

struct SampleModel {
  std::string architecture = "llama";
  std::uint32_t layers = 2, width = 64, hidden = 128, heads = 4, kv_heads = 2, head_dim = 16, context = 4096;
  std::optional<std::uint32_t> window = std::nullopt;  // gemma3 needs one
  std::vector<DType> types = {DType::f32};             // of the matrices, in turn
  bool decoded = false;                                // the same numbers, stored as f32
  bool own_head = true;                                // an output matrix beside the embedding
  bool add_bos = true;
  float gain = 1.0f;   // of all matrices
  bool marks = false;  // more tokens: what JSON is written with
  int words = 0;       // more tokens: a space and five letters each, which nothing merges into
  std::uint64_t seed = 1;
};

// 64 tokens: <s>, </s>, letters, marks and a few words that only decoding uses.
inline std::vector<std::string> sample_tokens(int words = 0, bool marks = false) {
  std::vector<std::string> tokens = {"<s>", "</s>"};
  for (char c = 'a'; c <= 'z'; ++c) tokens.emplace_back(1, c);
  for (char c = '0'; c <= '9'; ++c) tokens.emplace_back(1, c);
  for (const char* text :
       {"\u0120", "\u010a", ".",  ",",  "th", "the", "\u0120the", "in", "an", "and", "\u0120a", "er", "on",
        "re",     "ed",     "nd", "ha", "at", "en",  "es",        "of", "or", "nt",  "ea",      "ti", "to"})
    tokens.emplace_back(text);
  for (int i = 0; i < words; ++i) {
    std::string word = "\u0120";
    for (int rest = i, letter = 0; letter < 5; ++letter, rest /= 26)
      word += static_cast<char>('a' + rest % 26);
    tokens.push_back(word);
  }
  if (marks)
    for (const char c : std::string_view("{}[]\":\\-_+")) tokens.emplace_back(1, c);
  return tokens;
}

// Root mean square of the weights of random blocks under scales of about one.
inline float spread(DType dtype) {
  switch (dtype) {
    case DType::q4_0:
      return 2.7f;
    case DType::q4_1:
      return 5.1f;
    case DType::q5_0:
      return 5.3f;
    case DType::q5_1:
      return 10.0f;
    case DType::q8_0:
      return 43.0f;
    case DType::q2_k:
      return 10.0f;
    case DType::q3_k:
      return 25.0f;
    case DType::q4_k:
      return 190.0f;
    case DType::q5_k:
      return 380.0f;
    case DType::q6_k:
      return 790.0f;
    case DType::iq4_nl:
      return 40.0f;
    case DType::iq4_xs:
      return 710.0f;
    case DType::iq3_xxs:
      return 85.0f;
    case DType::iq3_s:
      return 80.0f;
    case DType::iq2_xxs:
      return 30.0f;
    case DType::iq2_xs:
    case DType::iq2_s:
      return 32.0f;
    case DType::iq1_s:
    case DType::iq1_m:
      return 4.2f;
    case DType::tq1_0:
      return 0.47f;
    case DType::tq2_0:
      return 0.71f;
    case DType::mxfp4:
      return 0.3f;
    default:
      return 1.0f;
  }
}

class SampleWriter {
 public:
  explicit SampleWriter(const SampleModel& sample) : o_(sample) {}

  ModelSketch sketch() {
    const std::string a = o_.architecture + ".";
    out_.set("general.architecture", o_.architecture)
        .set("general.name", std::string("sample"))
        .set(a + "context_length", o_.context)
        .set(a + "embedding_length", o_.width)
        .set(a + "block_count", o_.layers)
        .set(a + "feed_forward_length", o_.hidden)
        .set(a + "attention.head_count", o_.heads)
        .set(a + "attention.head_count_kv", o_.kv_heads)
        .set(a + "attention.key_length", o_.head_dim)
        .set(a + "attention.value_length", o_.head_dim)
        .set(a + "attention.layer_norm_rms_epsilon", 1e-5f)
        .set(a + "rope.freq_base", 10000.0f);
    if (o_.window) out_.set(a + "attention.sliding_window", *o_.window);
    vocabulary();
    const std::uint64_t width = o_.width, hidden = o_.hidden;
    const std::uint64_t q = std::uint64_t{o_.heads} * o_.head_dim,
                        kv = std::uint64_t{o_.kv_heads} * o_.head_dim;
    matrix("token_embd.weight", width, sample_tokens(o_.words, o_.marks).size(), 1.0f);
    for (std::uint32_t layer = 0; layer < o_.layers; ++layer) {
      const std::string b = "blk." + std::to_string(layer) + ".";
      norm(b + "attn_norm.weight", width);
      norm(b + "ffn_norm.weight", width);
      if (o_.architecture == "gemma3") {
        norm(b + "post_attention_norm.weight", width);
        norm(b + "post_ffw_norm.weight", width);
      }
      if (o_.architecture == "gemma3" || o_.architecture == "qwen3") {
        norm(b + "attn_q_norm.weight", o_.head_dim);
        norm(b + "attn_k_norm.weight", o_.head_dim);
      }
      if (o_.architecture == "qwen2") {
        vector(b + "attn_q.bias", q, 0.0f, 0.5f);
        vector(b + "attn_k.bias", kv, 0.0f, 0.5f);
        vector(b + "attn_v.bias", kv, 0.0f, 0.5f);
      }
      matrix(b + "attn_q.weight", width, q);
      matrix(b + "attn_k.weight", width, kv);
      matrix(b + "attn_v.weight", width, kv);
      matrix(b + "attn_output.weight", q, width);
      matrix(b + "ffn_gate.weight", width, hidden);
      matrix(b + "ffn_up.weight", width, hidden);
      matrix(b + "ffn_down.weight", hidden, width);
    }
    norm("output_norm.weight", width);
    if (o_.own_head) matrix("output.weight", width, sample_tokens(o_.words, o_.marks).size());
    return out_;
  }

 private:
  void vocabulary() {
    const auto tokens = sample_tokens(o_.words, o_.marks);
    std::vector<std::int32_t> types(tokens.size(), 1);
    types[0] = types[1] = 3;
    out_.set("tokenizer.ggml.model", std::string("gpt2"))
        .set("tokenizer.ggml.pre", std::string("gpt-2"))
        .set_strings("tokenizer.ggml.tokens", tokens)
        .set_array("tokenizer.ggml.token_type", types)
        .set_strings("tokenizer.ggml.merges", {"t h", "th e", "\u0120 the"})
        .set("tokenizer.ggml.bos_token_id", std::uint32_t{0})
        .set("tokenizer.ggml.eos_token_id", std::uint32_t{1})
        .set("tokenizer.ggml.add_bos_token", o_.add_bos);
  }
  // Weights of about gain / sqrt(columns), or of `size` where given.
  void matrix(const std::string& name, std::uint64_t columns, std::uint64_t rows, float size = 0.0f) {
    const DType dtype = o_.types[next_++ % o_.types.size()];
    if (size == 0.0f) size = o_.gain / std::sqrt(static_cast<float>(columns));
    const auto n = static_cast<std::int64_t>(columns * rows);
    const auto blocks = random_blocks(dtype, n, o_.seed * 1000 + next_, size / spread(dtype));
    if (!o_.decoded) {
      out_.set_tensor(name, {columns, rows}, dtype, blocks);
      return;
    }
    std::vector<float> values(static_cast<std::size_t>(n));
    decode_row(dtype, blocks.data(), n, values.data());
    out_.set_floats(name, {columns, rows}, values);
  }
  void norm(const std::string& name, std::uint64_t n) { vector(name, n, 1.0f, 0.2f); }
  void vector(const std::string& name, std::uint64_t n, float mean, float deviation) {
    auto values = normals(n, o_.seed * 1000 + 500 + ++next_vector_, deviation);
    for (float& v : values) v += mean;
    out_.set_floats(name, {n}, values);
  }

  SampleModel o_;
  ModelSketch out_;
  std::size_t next_ = 0, next_vector_ = 0;
};

inline ModelSketch sample_model(const SampleModel& sample = {}) { return SampleWriter(sample).sketch(); }

inline TemporaryFile sample_file(const SampleModel& sample = {}) {
  return TemporaryFile("sample.gguf", sample_model(sample).build().bytes);
}

}  // namespace kvtide::testing
