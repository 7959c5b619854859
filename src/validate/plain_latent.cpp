// plain_latent.cpp: latent attention with sums in double. latent.h has the formulas and the source; nothing here is its.
// What is compared with a state is what a state keeps: the rotated part and the latent, as one KV head.
#include <algorithm>
#include <cmath>

#include "validate/plain_carried.h"
#include "validate/plain_decoder.h"

namespace kvtide {
namespace {

void norm_in_place(float* row, const std::vector<float>& weight, double epsilon) {
  double square = 0.0;
  for (std::size_t i = 0; i < weight.size(); ++i) square += in_double(row[i]) * in_double(row[i]);
  const double scale = 1.0 / std::sqrt(square / static_cast<double>(weight.size()) + epsilon);
  for (std::size_t i = 0; i < weight.size(); ++i)
    row[i] = static_cast<float>(in_double(row[i]) * scale * in_double(weight[i]));
}

// Pairs of neighbours as halves, unless they are halves already.
void copy_pairs(const float* from, const LatentConfig& latent, float* to) {
  const std::int64_t pairs = latent.rope / 2;
  for (std::int64_t i = 0; i < pairs; ++i) {
    to[i] = from[latent.interleaved ? 2 * i : i];
    to[i + pairs] = from[latent.interleaved ? 2 * i + 1 : i + pairs];
  }
}

}  // namespace

// The matrices of one head: keys [nope][rank] and values [value][rank] from latents.
PlainDecoder::LatentHead PlainDecoder::latent_head(int layer, std::int64_t head) const {
  const LatentConfig& l = *config_.latent;
  LatentHead out{Rows(as_index(l.nope * l.rank)), Rows(as_index(l.value * l.rank))};
  if (weights_->has(Role::latent_up, layer)) {
    const std::int64_t both = l.nope + l.value;
    const PlainMatrix all = matrix(Role::latent_up, layer, config_.heads * both, l.rank);
    for (std::int64_t i = 0; i < l.nope; ++i) all.row(head * both + i, out.keys.data() + i * l.rank);
    for (std::int64_t i = 0; i < l.value; ++i)
      all.row(head * both + l.nope + i, out.values.data() + i * l.rank);
    return out;
  }
  const PlainMatrix keys = matrix(Role::latent_key_up, layer, config_.heads * l.rank, l.nope),
                    values = matrix(Role::latent_value_up, layer, config_.heads * l.value, l.rank);
  std::vector<float> turned(as_index(l.nope));
  for (std::int64_t r = 0; r < l.rank; ++r) {
    keys.row(head * l.rank + r, turned.data());
    for (std::int64_t i = 0; i < l.nope; ++i) out.keys[as_index(i * l.rank + r)] = turned[as_index(i)];
  }
  for (std::int64_t i = 0; i < l.value; ++i) values.row(head * l.value + i, out.values.data() + i * l.rank);
  return out;
}

// Queries and rows of the layer's one KV head, not yet rotated.
void PlainDecoder::latents(const Rows& input, int layer, Rows& q, Rows& k, Rows& v) {
  const LatentConfig& l = *config_.latent;
  const std::int64_t heads = config_.heads, dim = config_.head_dim, inside = l.nope + l.rope,
                     tokens = std::ssize(input) / config_.width;
  const double epsilon = in_double(l.norm_epsilon);
  Rows queries = input;
  if (l.query_rank > 0) {
    queries = product(input, matrix(Role::latent_query_down, layer, l.query_rank, config_.width));
    const auto norm = vector(Role::latent_query_norm, layer, l.query_rank);
    for (std::int64_t t = 0; t < tokens; ++t) norm_in_place(queries.data() + t * l.query_rank, norm, epsilon);
  }
  const Role up = l.query_rank > 0 ? Role::latent_query_up : Role::query;
  queries =
      product(queries, matrix(up, layer, heads * inside, l.query_rank > 0 ? l.query_rank : config_.width));
  const Rows down = product(input, matrix(Role::latent_down, layer, l.rank + l.rope, config_.width));
  const auto norm = vector(Role::latent_norm, layer, l.rank);
  k.assign(as_index(tokens * dim), 0.0f);
  v.assign(as_index(tokens * dim), 0.0f);
  q.assign(as_index(tokens * heads * dim), 0.0f);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const float* row = down.data() + t * (l.rank + l.rope);
    float *key = k.data() + t * dim, *value = v.data() + t * dim;
    copy_pairs(row + l.rank, l, key);
    std::copy_n(row, l.rank, key + l.rope);
    if (!slips(Slip::latent_norm_skipped)) norm_in_place(key + l.rope, norm, epsilon);
    std::copy_n(key + l.rope, l.rank, value + l.rope);
  }
  pool_.run(heads, [&](std::int64_t h) {
    const LatentHead head = latent_head(layer, h);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const float* from = queries.data() + (t * heads + h) * inside;
      float* query = q.data() + (t * heads + h) * dim;
      copy_pairs(from + l.nope, l, query);
      for (std::int64_t r = 0; r < l.rank; ++r) {
        double sum = 0.0;
        for (std::int64_t i = 0; i < l.nope; ++i)
          sum += in_double(from[i]) * in_double(head.keys[as_index(i * l.rank + r)]);
        query[l.rope + r] = static_cast<float>(sum);
      }
    }
  });
}

// What the heads make of the means of latents: [tokens][heads * value].
PlainDecoder::Rows PlainDecoder::expanded(const Rows& mixed, int layer) {
  const LatentConfig& l = *config_.latent;
  const std::int64_t heads = config_.heads, dim = config_.head_dim,
                     tokens = std::ssize(mixed) / (heads * dim);
  Rows out(as_index(tokens * heads * l.value));
  pool_.run(heads, [&](std::int64_t h) {
    const LatentHead head = latent_head(layer, h);
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t j = 0; j < l.value; ++j) {
        double sum = 0.0;
        for (std::int64_t r = 0; r < l.rank; ++r)
          sum += in_double(head.values[as_index(j * l.rank + r)]) *
                 in_double(mixed[as_index((t * heads + h) * dim + l.rope + r)]);
        out[as_index((t * heads + h) * l.value + j)] = static_cast<float>(sum);
      }
  });
  return out;
}

}  // namespace kvtide
