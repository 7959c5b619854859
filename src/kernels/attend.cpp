#include "kernels/attend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/attend_tiles.h"

namespace kvtide {
namespace {

// Running partials of one block of queries, with their memory.
struct Partials {
  alignas(64) float max[kQueryBlock];
  float sum[kQueryBlock];
  std::vector<float> out;

  AttendPartials view() { return {max, sum, out.data()}; }
  void clear(int count, int padded_dim) {
    std::fill_n(max, count, -std::numeric_limits<float>::infinity());
    std::fill_n(sum, count, 0.0f);
    out.assign(static_cast<std::size_t>(count * padded_dim), 0.0f);
  }
};

// Queries [count][padded_dim] as kernels take them.
struct Asked {
  std::vector<float> rows;
  std::vector<std::uint32_t> pairs;  // empty unless they are rounded; kernels may take two words for a pair
  std::vector<std::uint32_t> words;  // empty unless q8_0 keys are met by rounded queries
  std::vector<float> steps;

  void pack(const AttendRow& kernels, bool bf16, bool as_words, int count, int padded_dim) {
    if (!bf16) return;
    pairs.resize(rows.size());
    kernels.pack_queries(count, padded_dim, rows.data(), pairs.data());
    if (!as_words) return;
    words.resize(rows.size() / 2);
    steps.resize(rows.size() / 32);
    kernels.quantize_queries(count, padded_dim, rows.data(), words.data(), steps.data());
  }
};

// Some consecutive tokens of the chunk, all query heads of one KV head: query i is token i / group, head i %
// group.
struct Block {
  const AttendShape& shape;
  const AttendRow& kernels;
  int kv_head, group, padded_dim;
  std::int64_t token, tokens;
  std::vector<Asked> q;  // per view point

  Block(const AttendShape& s, const AttendRow& k, const TilePlan& plan, int head, std::int64_t first,
        std::int64_t count, std::span<const float* const> all_q)
      : shape(s),
        kernels(k),
        kv_head(head),
        group(s.heads / s.kv_heads),
        padded_dim((s.head_dim + 15) / 16 * 16),
        token(first),
        tokens(count) {
    for (const float* source : all_q) {
      Asked& asked = q.emplace_back();
      asked.rows.resize(static_cast<std::size_t>(queries() * padded_dim), 0.0f);
      for (int i = 0; i < queries(); ++i)
        std::memcpy(asked.rows.data() + i * padded_dim, source + row(i),
                    static_cast<std::size_t>(s.head_dim) * sizeof(float));
      asked.pack(kernels, shape.bf16, plan.words, queries(), padded_dim);
    }
  }

  int queries() const { return static_cast<int>(tokens) * group; }
  std::int64_t row(int i) const {  // offset of query i in [tokens][heads * head_dim]
    return ((token + i / group) * shape.heads + kv_head * group + i % group) * shape.head_dim;
  }

  // Which places of a tile each query sees; whether any sees any.
  bool visible(const TileRef& ref, int* lo, int* hi) const {
    bool seen = false;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const Pos position = shape.first + token + t;
      int from = ref.tile.begin, to = ref.tile.end;
      if (ref.base) {
        const Pos oldest = shape.window && !ref.sink ? std::max<Pos>(0, position - *shape.window + 1) : 0;
        from = static_cast<int>(std::clamp<Pos>(oldest - *ref.base, ref.tile.begin, ref.tile.end));
        to = static_cast<int>(std::clamp<Pos>(position + 1 - *ref.base, ref.tile.begin, ref.tile.end));
      }
      if (ref.last_reader && position > *ref.last_reader) to = from;
      seen = seen || from < to;
      std::fill_n(lo + t * group, group, from);
      std::fill_n(hi + t * group, group, to);
    }
    return seen;
  }

  void fold_group(const TilePlan& plan, const TileGroup& tiles, const AttendPartials& into) const {
    Asked spread;
    const TileRef* spread_for = nullptr;
    int lo[kQueryBlock], hi[kQueryBlock];
    for (std::size_t t = tiles.first; t < tiles.last; ++t) {
      const TileRef& ref = plan.tiles[t];
      if (!visible(ref, lo, hi)) continue;
      AttendTile tile = ref.tile;
      const Asked* asked = &q[ref.view];
      if (tiles.spread) {
        // As its keys meet them: turned back by what the keys would be turned by, and transformed as they
        // are.
        if (spread_for == nullptr || spread_for->view != ref.view ||
            spread_for->tile.rotation != ref.tile.rotation) {
          spread.rows = q[ref.view].rows;
          kernels.spread(queries(), padded_dim, shape.head_dim, ref.tile.rotation, ref.tile.rotation_pairs,
                         spread.rows.data());
          spread.pack(kernels, shape.bf16, plan.words, queries(), padded_dim);
        }
        spread_for = &ref;
        asked = &spread;
        tile.rotation = nullptr;
      }
      const auto fold = shape.bf16 ? kernels.fold_tile_bf16 : kernels.fold_tile;
      fold(tile,
           {queries(), shape.head_dim, padded_dim, shape.scale, asked->rows.data(), asked->pairs.data(), lo,
            hi, asked->words.data(), asked->steps.data()},
           into);
    }
    if (spread_for != nullptr && tiles.mean_key != nullptr)
      add_mean_scores(spread.rows, tiles.mean_key, into.max);
    if (tiles.spread) kernels.spread(queries(), padded_dim, shape.head_dim, nullptr, 0, into.out);
  }

  // What the mean key adds to all scores of a query moves their maximum and nothing else. Sixteen chains, summed one
  // after the other: compiled once, so that every kernel table has the same bits.
  void add_mean_scores(const std::vector<float>& rows, const float* mean_key, float* max) const {
    constexpr int kChains = 16;
    for (int i = 0; i < queries(); ++i) {
      const float* query = rows.data() + i * padded_dim;
      float chains[kChains] = {};
      for (int d = 0; d < shape.head_dim; ++d) chains[d % kChains] += query[d] * mean_key[d];
      float sum = 0.0f;
      for (const float chain : chains) sum += chain;
      max[i] += sum * shape.scale;
    }
  }

  void write(const AttendPartials& result, float* out, float* log_mass) const {
    for (int i = 0; i < queries(); ++i)
      for (int d = 0; d < shape.head_dim; ++d)
        out[row(i) + d] = result.out[i * padded_dim + d] / result.sum[i];
    if (log_mass == nullptr) return;
    for (int i = 0; i < queries(); ++i)
      log_mass[row(i) / shape.head_dim] = result.max[i] + std::log(result.sum[i]);
  }
};

}  // namespace

void attend(ThreadPool& pool, const AttendRow& kernels, const AttendInput& input, float* out,
            float* log_mass) {
  const AttendShape& shape = input.shape;
  const Pos lowest = shape.window ? std::max<Pos>(0, shape.first - *shape.window + 1) : 0;
  std::vector<TilePlan> plans;
  std::size_t most_groups = 0;
  for (const auto& list : input.spans) {
    plans.push_back(plan_tiles(list, input.views, lowest));
    most_groups = std::max(most_groups, plans.back().groups.size());
  }
  const int group = shape.heads / shape.kv_heads;
  const std::int64_t per_block = std::max(1, kQueryBlock / group);
  const std::int64_t blocks = (shape.tokens + per_block - 1) / per_block;
  const std::int64_t items = blocks * shape.kv_heads;
  const auto block_of = [&](std::int64_t item) {
    const std::int64_t first = item / shape.kv_heads * per_block;
    const auto head = static_cast<std::size_t>(item % shape.kv_heads);
    return Block(shape, kernels, plans[head], static_cast<int>(head), first,
                 std::min(per_block, shape.tokens - first), input.q);
  };

  if (items >= 2 * pool.threads() || most_groups < 2 || pool.threads() == 1) {
    // Late blocks of a chunk see more rows than early ones; the pool hands out high indices first, which
    // evens out the threads.
    pool.run(items, [&](std::int64_t item) {
      const Block block = block_of(item);
      const TilePlan& plan = plans[static_cast<std::size_t>(block.kv_head)];
      Partials total, part;
      total.clear(block.queries(), block.padded_dim);
      for (const TileGroup& tiles : plan.groups) {
        part.clear(block.queries(), block.padded_dim);
        block.fold_group(plan, tiles, part.view());
        kernels.merge(block.queries(), block.padded_dim, part.view(), total.view());
      }
      block.write(total.view(), out, log_mass);
    });
    return;
  }

  // Few queries over many rows (decoding): threads share the groups, which then join in the same order as
  // above.
  std::vector<Partials> parts(static_cast<std::size_t>(items) * most_groups);
  pool.run(static_cast<std::int64_t>(parts.size()), [&](std::int64_t i) {
    const Block block = block_of(i / static_cast<std::int64_t>(most_groups));
    const TilePlan& plan = plans[static_cast<std::size_t>(block.kv_head)];
    const auto g = static_cast<std::size_t>(i) % most_groups;
    if (g >= plan.groups.size()) return;
    Partials& part = parts[static_cast<std::size_t>(i)];
    part.clear(block.queries(), block.padded_dim);
    block.fold_group(plan, plan.groups[g], part.view());
  });
  for (std::int64_t item = 0; item < items; ++item) {
    const Block block = block_of(item);
    Partials total;
    total.clear(block.queries(), block.padded_dim);
    for (std::size_t g = 0; g < plans[static_cast<std::size_t>(block.kv_head)].groups.size(); ++g)
      kernels.merge(block.queries(), block.padded_dim,
                    parts[static_cast<std::size_t>(item) * most_groups + g].view(), total.view());
    block.write(total.view(), out, log_mass);
  }
}

}  // namespace kvtide
