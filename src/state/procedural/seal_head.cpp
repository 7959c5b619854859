#include "state/procedural/seal_head.h"

#include <algorithm>

#include "state/procedural/budget.h"
#include "state/procedural/key_rounding.h"
#include "state/procedural/reference_rows.h"
#include "state/procedural/stored_row.h"
#include "state/procedural/summarise.h"

namespace kvtide {
namespace {

constexpr std::int64_t kRetainedUsed = 48;

BlockRows block_of(const SealRequest& request, const Kernels& kernels, const LayerRows& rows, int head,
                   int head_dim) {
  BlockRows block = padded_block(request.last - request.first, head_dim);
  // A fork shares its first rows: they lie in several pieces.
  for (const LayerRows::Run& run : rows.runs(request.first, request.last))
    for (Pos p = run.first; p < run.last; ++p) {
      const std::int64_t at = (p - request.first) * block.padded_dim;
      floats_of_row(kernels, request.key_type, run.extent->key(head, p), head_dim, block.keys.data() + at);
      floats_of_row(kernels, request.value_type, run.extent->value(head, p), head_dim,
                    block.values.data() + at);
      if (!request.spread) continue;
      for (std::vector<float>* rows_of : {&block.keys, &block.values})
        kernels.attend.spread(1, head_dim, head_dim, nullptr, 0, rows_of->data() + at);
    }
  return block;
}

// As keys of the head lie: transformed.
std::vector<float> mean_key_of(const BlockRows& block, const Kernels& kernels, int head_dim) {
  std::vector<float> mean(static_cast<std::size_t>(head_dim));
  for (int d = 0; d < head_dim; ++d) {
    double sum = 0.0;
    for (std::int64_t row = 0; row < block.rows; ++row)
      sum += static_cast<double>(block.keys[static_cast<std::size_t>(row * block.padded_dim + d)]);
    mean[static_cast<std::size_t>(d)] = static_cast<float>(sum / static_cast<double>(block.rows));
  }
  kernels.attend.spread(1, head_dim, head_dim, nullptr, 0, mean.data());
  return mean;
}

// Adds rows to a sealed head, in the type in which the head keeps them, keys less `mean_key` if there is one.
class RowWriter {
 public:
  RowWriter(const ProceduralSpec& spec, const HeadPlan& plan, const Kernels& kernels, int head_dim,
            std::span<const float> mean_key, SealedHead& sealed)
      : kernels_(kernels),
        type_(type_of_rows(spec, plan)),
        bytes_(static_cast<std::size_t>(dtype_bytes(type_, head_dim))),
        row_(static_cast<std::size_t>(head_dim)),
        mean_key_(mean_key),
        sealed_(sealed) {}

  void add(const float* key, const float* value, const RowNote& note) {
    const std::size_t size = sealed_.keys.size();
    sealed_.keys.resize(size + bytes_);
    sealed_.values.resize(size + bytes_);
    store(value, {}, sealed_.values.data() + size);
    store(key, mean_key_, sealed_.keys.data() + size);  // the last of the two, which row_ then is
    sealed_.notes.push_back(note);
    if (type_ == DType::q4_0) keys_.insert(keys_.end(), row_.begin(), row_.end());
  }
  // Keys that were added in four bits, as they were before they were rounded.
  const std::vector<float>& keys() const { return keys_; }

 private:
  void store(const float* row, std::span<const float> less, std::byte* out) {
    std::copy_n(row, row_.size(), row_.begin());
    store_row(kernels_, type_, row_, less, out);
  }

  const Kernels& kernels_;
  DType type_;
  std::size_t bytes_;       // of a key, and of a value
  std::vector<float> row_;  // the one that is stored, as it is transformed
  std::span<const float> mean_key_;
  SealedHead& sealed_;
  std::vector<float> keys_;  // [rows][head_dim]
};

// Rows of blocks that become one, as all of them will be seen; the tokens that each stands for; its number in the head.
struct RowsOfBlocks {
  BlockRows rows;
  std::vector<float> counts;
  std::vector<std::int64_t> numbers;
};
RowsOfBlocks rows_of(const MergeRequest& request, const Kernels& kernels, const HeadRows& rows,
                     const std::vector<MergeBlock>& blocks, int layer, int head_dim,
                     std::span<const float> mean_key) {
  const ProceduralSpec& spec = request.spec;
  const auto pairs = static_cast<std::int64_t>(spec.frequencies[static_cast<std::size_t>(layer)].size());
  std::int64_t count = 0;
  for (const MergeBlock& block : blocks) count += block.rows;
  RowsOfBlocks all{padded_block(count, head_dim), {}, {}};
  for (const MergeBlock& block : blocks)
    for (std::int64_t row = block.first_row; row < block.first_row + block.rows; ++row) {
      const auto to = std::ssize(all.numbers);
      float* key = all.rows.keys.data() + to * all.rows.padded_dim;
      float* value = all.rows.values.data() + to * all.rows.padded_dim;
      const auto dim = static_cast<std::size_t>(head_dim);
      read_row(kernels, spec.plain_type, rows.key(row), mean_key, {key, dim});
      read_row(kernels, spec.plain_type, rows.value(row), {}, {value, dim});
      if (block.turn != nullptr) kernels.elementwise.rope(key, block.turn, block.turn + pairs, pairs);
      const RowNote note = rows.note(row);
      all.rows.bias[static_cast<std::size_t>(to)] = note.bias;
      all.counts.push_back(note.count);
      all.numbers.push_back(row);
    }
  return all;
}

}  // namespace

std::vector<Pos> judges_of_seal(const References& references, Pos first, Pos last, Pos position) {
  // A block that is sealed late has left the ring: the oldest there is stands in for its own queries.
  const Pos late = std::max<Pos>(0, references.oldest(position) - first);
  const Pos from = first + late, to = last + late;
  std::vector<Pos> asked = References::spread(references.available(from, to), kBlockReferences);
  const std::vector<Pos> newer = References::spread(references.available(to, position), kWindowReferences);
  asked.insert(asked.end(), newer.begin(), newer.end());
  return asked;
}

std::vector<Pos> judges_of_merge(const References& references, Pos first, Pos position) {
  std::vector<Pos> asked = References::spread(
      references.available(std::max(first, references.oldest(position)), position), kWindowReferences);
  const std::vector<Pos> old = References::spread(references.retained(), kRetainedUsed);
  asked.insert(asked.end(), old.begin(), old.end());
  return asked;
}

SealedHead seal_head(const SealRequest& request, const Kernels& kernels, Summariser& summariser,
                     const LayerRows& rows, int layer, int head, int head_dim, std::int64_t keep,
                     std::span<const float> mean_key) {
  const ProceduralSpec& spec = request.spec;
  const auto& heads = spec.plans[static_cast<std::size_t>(layer)];
  const HeadPlan& plan = heads[static_cast<std::size_t>(head)];
  const BlockRows block = block_of(request, kernels, rows, head, head_dim);
  SealedHead sealed;
  if (request.first == spec.sinks && is_spread(spec, plan))
    mean_key = sealed.mean_key = mean_key_of(block, kernels, head_dim);
  RowWriter writer(spec, plan, kernels, head_dim, mean_key, sealed);
  const auto add = [&](std::int64_t row, const float* value, float bias, float count, float score) {
    writer.add(block.keys.data() + row * block.padded_dim, value,
               {static_cast<std::int32_t>(request.first + row), bias, count, score});
  };
  ReferenceRows references;  // full heads have them in layers where others ask
  if (!plan.full ||
      (is_spread(spec, plan) && request.references.shape().layers[static_cast<std::size_t>(layer)]))
    references = ask(kernels, spec, request.references, *request.asked[static_cast<std::size_t>(layer)],
                     layer, head, block.padded_dim);
  const auto improve_keys = [&] {
    if (references.count > 0 && !writer.keys().empty())
      KeyRounding(kernels, references, block, mean_key).improve(writer.keys(), sealed.keys.data());
  };
  if (plan.full) {
    for (std::int64_t j = 0; j < block.rows; ++j)
      add(j, block.values.data() + j * block.padded_dim, 0.0f, 1.0f, 0.0f);
    improve_keys();
    return sealed;
  }

  std::span<const float> repeated;
  if (request.repetition != nullptr) repeated = request.repetition->shares(layer, head);
  const std::int64_t summaries = std::min(spec.summaries, keep);
  std::vector<bool> pinned;
  if (pinned_within(spec, request.first, request.last) > 0)
    for (std::int64_t j = 0; j < block.rows; ++j) pinned.push_back(is_pinned(spec, request.first + j));
  const Summarised kept =
      summariser.summarise(block, std::vector<float>(static_cast<std::size_t>(block.rows), 1.0f), references,
                           {.exact = keep - summaries,
                            .summaries = summaries,
                            .summary = spec.summary,
                            .score = spec.score,
                            .scale = spec.scale,
                            .weight = plan.weight,
                            .scored = spec.keeps_scores,
                            .pinned = pinned.empty() ? nullptr : &pinned,
                            .repeated = repeated});
  for (const KeptRow& row : kept.kept)
    add(row.row,
        row.value < 0 ? block.values.data() + row.row * block.padded_dim
                      : kept.values.data() + row.value * block.padded_dim,
        row.bias, row.count, row.score);
  sealed.log_mass_error = kept.log_mass_error;
  sealed.rejected = kept.rejected;
  sealed.spread = kept.spread;
  if (summaries == 0) sealed.lost = block.rows - static_cast<std::int64_t>(kept.kept.size());
  improve_keys();
  return sealed;
}

MergedHead merge_head(const MergeRequest& request, const Kernels& kernels, Summariser& summariser,
                      const HeadRows& rows, const std::vector<MergeBlock>& blocks, int layer, int head,
                      int head_dim, std::int64_t keep, std::span<const float> mean_key) {
  const ProceduralSpec& spec = request.spec;
  const HeadPlan& plan = spec.plans[static_cast<std::size_t>(layer)][static_cast<std::size_t>(head)];
  const auto [all, counts, numbers] = rows_of(request, kernels, rows, blocks, layer, head_dim, mean_key);
  if (numbers.empty()) return {};  // the head keeps no rows, or lost them
  const ReferenceRows references =
      ask(kernels, spec, request.references, *request.asked[static_cast<std::size_t>(layer)], layer, head,
          all.padded_dim);
  std::vector<bool> pinned;
  if (!spec.pins.empty())
    for (const std::int64_t row : numbers) pinned.push_back(is_pinned(spec, rows.position(row)));
  const std::int64_t summaries = std::min(spec.summaries, keep);
  const Summarised made = summariser.summarise(all, counts, references,
                                               {.exact = keep - summaries,
                                                .summaries = summaries,
                                                .summary = spec.summary,
                                                .score = RowScore::attention,
                                                .scale = spec.scale,
                                                .weight = plan.weight,
                                                .scored = spec.keeps_scores,
                                                .pinned = pinned.empty() ? nullptr : &pinned});
  MergedHead merged;
  std::vector<float> value(static_cast<std::size_t>(head_dim));
  for (const KeptRow& row : made.kept) {
    const std::int64_t number = numbers[static_cast<std::size_t>(row.row)];
    merged.kept.push_back(number);
    if (row.value < 0) continue;
    merged.summaries.push_back(number);
    merged.notes.push_back({rows.position(number), row.bias, row.count, row.score});
    const std::size_t size = merged.values.size();
    merged.values.resize(size + static_cast<std::size_t>(rows.value_bytes()));
    std::copy_n(made.values.begin() + row.value * all.padded_dim, head_dim, value.begin());
    store_row(kernels, spec.plain_type, value, {}, merged.values.data() + size);
  }
  return merged;
}

}  // namespace kvtide
