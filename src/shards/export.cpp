// export.cpp: a model split into shards, one file after another; docs/shards.md says what is in which.

#include <algorithm>
#include <set>

#include "base/file.h"
#include "base/new_folder.h"
#include "base/out_of_memory.h"
#include "base/text.h"
#include "kernels/kernels.h"
#include "kvtide/error.h"
#include "model/checkpoint.h"
#include "model/rope_table.h"
#include "model/weights.h"
#include "shards/hybrid_names.h"
#include "shards/tensor_export.h"
#include "shards/tokenizer_export.h"

namespace kvtide {
namespace {

constexpr std::int64_t kUsualSlots = 2048;

bool is_exported(const std::string& family) {
  for (const char* known : {"llama", "qwen2", "qwen3", "gemma3", "gpt2", "zaya"})
    if (family == known) return true;
  return false;
}

struct NamedMatrix {
  std::string name;  // without ".weight"
  const WeightMatrix* matrix;
  bool f32 = false;  // whatever is asked for
};
struct NamedVector {
  std::string name;
  const std::vector<float>* values;
  std::int64_t columns = 0;  // 0: a vector
};

void add_residual(const ResidualScale& scale, std::vector<NamedVector>& vectors) {
  const std::vector<float>* values[] = {&scale.output_scale, &scale.output_offset, &scale.residual_scale,
                                        &scale.residual_offset};
  for (std::size_t i = 0; i < std::size(kResidualNames); ++i)
    vectors.push_back({kResidualNames[i], values[i]});
}

// "expert.3.gate" is one of "gate", too.
std::string_view last_part(std::string_view name) {
  const auto dot = name.rfind('.');
  return dot == name.npos ? name : name.substr(dot + 1);
}

std::string matrix_name(Role role) {
  const std::string name = hybrid_name(role);
  return name.substr(0, name.rfind('.'));
}

class Exporter {
 public:
  Exporter(const Checkpoint& checkpoint, const std::string& folder, const ShardExport& options)
      : checkpoint_(checkpoint),
        folder_(folder),
        options_(options),
        kernels_(best_kernels()),
        pool_(ThreadPool::count(options.threads)),
        weights_(checkpoint, pool_) {
    describe();
  }

  void run(const std::string& model) {
    const ModelConfig& c = manifest_.config;
    export_tokenizer(checkpoint_, model, folder_, manifest_);
    describe_tokens();
    embedding();
    for (int layer = 0; layer < static_cast<int>(c.layers.size()); ++layer) {
      attention(layer);
      feed_forward(layer);
    }
    heads();
    check_kept_names();
    check_manifest(manifest_, cat(folder_, "/", kManifestFile));
    const std::string text = manifest_text(manifest_);
    const auto bytes = std::as_bytes(std::span(text));
    PosixFiles files;
    save_file(files, cat(folder_, "/", kManifestFile), {&bytes, 1});
  }

 private:
  void describe() {
    manifest_.config = checkpoint_.config();
    manifest_.config.temperature_is_log = false;  // written as it is used
    manifest_.name = checkpoint_.name();
    manifest_.weights = options_.type == ShardExport::Type::f16
                            ? "f16"
                            : cat("int8, a scale for each ",
                                  options_.scales == ShardExport::Scales::tensor ? "tensor" : "channel");
    manifest_.t_max = kMostColumns;
    const ModelConfig& c = manifest_.config;
    const std::int64_t learned = c.learned_positions ? c.context_length : kMostSlots;
    manifest_.slots = options_.slots.value_or(std::min(kUsualSlots, learned));
    if (manifest_.slots > learned)
      throw Error(ErrorCode::invalid_argument, cat(manifest_.slots, " slots are more than the ", learned,
                                                   " positions that this model has learned"));
    for (const RopeConfig& rope : c.ropes) {
      const RopeTable table(rope, c.rope_dims);
      manifest_.ropes.push_back({rope.base, table.magnitude(), table.frequencies()});
    }
  }

  void describe_tokens() {
    const Tokenizer tokenizer = open_shard_tokenizer(folder_, manifest_);
    manifest_.bos = tokenizer.bos();
    for (TokenId id = 0; id < static_cast<TokenId>(tokenizer.size()); ++id)
      if (tokenizer.ends_text(id)) manifest_.eos.push_back(id);
  }

  void embedding() {
    ShardEntry shard = entry("embedding", ShardKind::embedding);
    std::vector<NamedMatrix> matrices = {{"embedding", &weights_.embedding()}};
    if (manifest_.config.learned_positions) matrices.push_back({"positions", &weights_.positions()});
    const NamedVector vectors[] = {{"input_scale", &weights_.input_scale()},
                                   {"input_offset", &weights_.input_bias()}};
    save(std::move(shard), matrices, vectors);
  }

  void attention(int layer) {
    const LayerWeights& w = weights_.layer(layer);
    ShardEntry shard = entry(cat("attention.", layer), ShardKind::attention);
    shard.info.layer = layer;
    const LayerConfig& how = manifest_.config.layers[static_cast<std::size_t>(layer)];
    shard.info.rope = how.rope;
    shard.info.window = how.window;
    std::vector<NamedVector> vectors = {{"norm.weight", &w.attention_norm},
                                        {"norm.bias", &w.attention_norm_bias},
                                        {"query.bias", &w.query_bias},
                                        {"key.bias", &w.key_bias},
                                        {"value.bias", &w.value_bias},
                                        {"output.bias", &w.output_bias},
                                        {"query_norm.weight", &w.query_norm},
                                        {"key_norm.weight", &w.key_norm},
                                        {"post_norm.weight", &w.attention_post_norm}};
    std::vector<NamedMatrix> matrices = {
        {"query", &w.query}, {"key", &w.key}, {"value", &w.value}, {"output", &w.output}};
    std::vector<float> depthwise, grouped, temperature;  // of convolutions
    if (w.cca) {
      shard.attention = "cca";
      const CcaSizes sizes(manifest_.config);
      for (std::size_t c = 0; c < w.cca->older.size(); ++c)
        depthwise.insert(depthwise.end(), {w.cca->older[c], w.cca->newer[c]});
      grouped = grouped_taps(*w.cca, sizes);
      for (std::size_t i = 0; i < w.cca->key_gain.size(); i += static_cast<std::size_t>(sizes.head_dim))
        temperature.push_back(w.cca->key_gain[i]);
      matrices.push_back({matrix_name(Role::value_delayed), &w.cca->value_delayed});
      vectors.push_back({hybrid_name(Role::conv_depthwise), &depthwise, 2});
      vectors.push_back({hybrid_name(Role::conv_depthwise_bias), &w.cca->depthwise_bias});
      vectors.push_back({hybrid_name(Role::conv_grouped), &grouped, 2 * sizes.head_dim});
      vectors.push_back({hybrid_name(Role::conv_grouped_bias), &w.cca->grouped_bias});
      vectors.push_back({hybrid_name(Role::key_temperature), &temperature});
    }
    add_residual(w.attention_scale, vectors);
    save(std::move(shard), matrices, vectors);
  }

  void feed_forward(int layer) {
    if (weights_.layer(layer).experts)
      moe(layer);
    else
      mlp(layer);
  }

  // The router stays f32: another choice of expert is another result, and it is a hundredth of the shard.
  void moe(int layer) {
    const LayerWeights& w = weights_.layer(layer);
    const ExpertsWeights& x = *w.experts;
    ShardEntry shard = entry(cat("moe.", layer), ShardKind::moe);
    shard.info.layer = layer;
    shard.experts = static_cast<std::int64_t>(x.experts.size());
    std::vector<NamedVector> vectors = {{"norm.weight", &w.feed_forward_norm},
                                        {"norm.bias", &w.feed_forward_norm_bias},
                                        {hybrid_name(Role::router_down_bias), &x.down_bias},
                                        {hybrid_name(Role::router_carry), &x.carry},
                                        {hybrid_name(Role::router_norm), &x.norm},
                                        {hybrid_name(Role::router_first_bias), &x.first_bias},
                                        {hybrid_name(Role::router_second_bias), &x.second_bias},
                                        {hybrid_name(Role::router_balance), &x.balance}};
    add_residual(w.feed_forward_scale, vectors);
    std::vector<NamedMatrix> matrices = {{matrix_name(Role::router_down), &x.router_down, true},
                                         {matrix_name(Role::router_first), &x.router_first, true},
                                         {matrix_name(Role::router_second), &x.router_second, true},
                                         {matrix_name(Role::router_out), &x.router_out, true}};
    for (std::size_t e = 0; e < x.experts.size(); ++e) {
      const Expert& expert = x.experts[e];
      for (const auto& [part, matrix] :
           {std::pair("gate", &expert.gate), std::pair("up", &expert.up), std::pair("down", &expert.down)})
        matrices.push_back({cat("expert.", e, ".", part), matrix});
    }
    save(std::move(shard), matrices, vectors);
  }

  void mlp(int layer) {
    const LayerWeights& w = weights_.layer(layer);
    ShardEntry shard = entry(cat("mlp.", layer), ShardKind::mlp);
    shard.info.layer = layer;
    std::vector<NamedVector> vectors = {{"norm.weight", &w.feed_forward_norm},
                                        {"norm.bias", &w.feed_forward_norm_bias},
                                        {"up.bias", &w.up_bias},
                                        {"down.bias", &w.down_bias},
                                        {"post_norm.weight", &w.feed_forward_post_norm}};
    add_residual(w.feed_forward_scale, vectors);
    std::vector<NamedMatrix> matrices = {{"up", &w.up}, {"down", &w.down}};
    if (manifest_.config.gated) matrices.push_back({"gate", &w.gate});
    save(std::move(shard), matrices, vectors);
  }

  void heads() {
    const std::int64_t vocab = manifest_.config.vocab, count = options_.head_shards;
    if (count < 1 || count > vocab)
      throw Error(ErrorCode::invalid_argument,
                  cat("a vocabulary of ", vocab, " cannot be split into ", count, " head shards"));
    const NamedVector vectors[] = {{"norm.weight", &weights_.output_norm()},
                                   {"norm.bias", &weights_.output_norm_bias()}};
    for (std::int64_t i = 0; i < count; ++i) {
      ShardEntry shard = entry(cat("head.", i), ShardKind::head);
      shard.info.vocab_first = static_cast<TokenId>(vocab * i / count);
      shard.info.vocab_last = static_cast<TokenId>(vocab * (i + 1) / count);
      const NamedMatrix matrices[] = {{"head", &weights_.head()}};
      save(std::move(shard), matrices, vectors);
    }
  }

  static ShardEntry entry(const std::string& name, ShardKind kind) {
    ShardEntry shard;
    shard.info.name = name;
    shard.info.kind = kind;
    shard.info.file = shard.file.file = name + ".safetensors";
    return shard;
  }

  bool is_kept(const std::string& shard, const std::string& matrix) {
    known_.insert(std::string(last_part(matrix)));
    bool kept = false;
    for (const std::string& name : options_.keep_f16)
      if (name == matrix || name == last_part(matrix) || name == cat(shard, "/", matrix)) {
        matched_.insert(name);
        kept = true;
      }
    return kept;
  }

  // Before anything is put in place: a name that was misspelt would have been quantised.
  void check_kept_names() const {
    for (const std::string& name : options_.keep_f16) {
      if (matched_.contains(name)) continue;
      std::string list;
      for (const std::string& matrix : known_) list += cat(list.empty() ? "" : ", ", matrix);
      throw Error(ErrorCode::invalid_argument,
                  cat("there is no matrix ", quoted(name), " to be kept in f16; this model has ", list,
                      ", and of one shard for example attention.0/query"));
    }
  }

  void save(ShardEntry shard, std::span<const NamedMatrix> matrices, std::span<const NamedVector> vectors) {
    SafeTensorsWriter writer;
    for (const auto& [name, values, columns] : vectors)
      if (!values->empty()) export_vector(name, *values, writer, shard, columns);
    for (const auto& [name, matrix, f32] : matrices) {
      const bool head = shard.info.kind == ShardKind::head;
      MatrixExport what{cat(name, ".weight"),
                        matrix,
                        head ? shard.info.vocab_first : 0,
                        head ? shard.info.vocab_last : matrix->rows,
                        false,
                        options_.scales,
                        f32};
      const bool kept = is_kept(shard.info.name, name);
      what.int8 = options_.type == ShardExport::Type::int8 && !kept && !f32 &&
                  (what.last - what.first) * matrix->columns >= options_.min_elements;
      export_matrix(kernels_, pool_, what, writer, shard);
    }
    writer.set_metadata("format", "kvtide-shard");
    writer.set_metadata("shard", shard.info.name);
    PosixFiles files;
    const auto written = writer.save(files, cat(folder_, "/", shard.file.file));
    shard.file.bytes = written.bytes;
    shard.file.crc32c = written.crc32c;
    shard.info.bytes = static_cast<std::int64_t>(written.bytes);
    manifest_.shards.push_back(std::move(shard));
    if (options_.on_shard) options_.on_shard(manifest_.shards.back().info);
  }

  const Checkpoint& checkpoint_;
  const std::string& folder_;
  const ShardExport& options_;
  const Kernels& kernels_;
  ThreadPool pool_;
  Weights weights_;
  ShardManifest manifest_;
  std::set<std::string> known_, matched_;  // names of matrices; names of keep_f16 that are one
};

}  // namespace

void export_shards(const std::string& model, const std::string& folder, const ShardExport& options) try {
  if (options.slots && (*options.slots < 1 || *options.slots > kMostSlots))
    throw Error(ErrorCode::invalid_argument,
                cat("a state has 1 to ", kMostSlots, " slots, not ", *options.slots));
  const auto checkpoint = open_checkpoint(model);
  if (const std::string& family = checkpoint->config().architecture; !is_exported(family))
    throw Error(
        ErrorCode::unsupported,
        cat(model, ": models of the family ", family,
            " are not split into shards; the families that are: llama, qwen2, qwen3, gemma3, gpt2, zaya"));
  NewFolder target(folder, "shards");
  Exporter(*checkpoint, target.path(), options).run(model);
  target.put_in_place();
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide
