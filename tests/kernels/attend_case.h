// attend_case.h: a made-up attention problem, its rows laid out as spans in several ways, and its answer in
// double.
//
// Ownership: the case owns every row; spans point into the Rows they were made from, which must outlive them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "base/half.h"
#include "kernels/attend.h"
#include "tests/kernels/samples.h"

namespace kvtide::testing {

// Cached rows of one kind (keys or values) of one KV head: [rows][dim], as numbers and as stored.
struct Rows {
  DType dtype = DType::f32;
  int dim = 0;
  std::vector<float> numbers;  // what the stored bytes stand for, exactly
  std::vector<std::byte> stored;

  Rows() = default;
  Rows(DType type, int d, std::vector<float> wished) : dtype(type), dim(d), numbers(std::move(wished)) {
    store_all();
  }

  std::int64_t stride() const { return dtype_bytes(dtype, dim); }
  const std::byte* row(std::int64_t i) const { return stored.data() + i * stride(); }
  void store_all() {
    stored.resize(static_cast<std::size_t>(dtype_bytes(dtype, static_cast<std::int64_t>(numbers.size()))));
    if (dtype == DType::q8_0) return store_q8();
    if (dtype == DType::q4_0) return store_q4();
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (dtype == DType::f16) {
        const std::uint16_t half = f32_to_f16(numbers[i]);
        std::memcpy(stored.data() + 2 * i, &half, 2);
        numbers[i] = f16_to_f32(half);
      } else {
        std::memcpy(stored.data() + 4 * i, &numbers[i], 4);
      }
    }
  }

 private:
  // Blocks of an f16 step and 16 bytes: elements i and i + 16 in the low and the high half, 8 more than they
  // are.
  void store_q4() {
    for (std::size_t block = 0; block < numbers.size() / 32; ++block) {
      float* values = numbers.data() + 32 * block;
      std::byte* bytes = stored.data() + 18 * block;
      float largest = 0.0f;
      for (int i = 0; i < 32; ++i) largest = std::max(largest, std::abs(values[i]));
      const std::uint16_t half = f32_to_f16(-largest / 8.0f);
      std::memcpy(bytes, &half, 2);
      const float step = f16_to_f32(half);
      int quants[32];
      for (int i = 0; i < 32; ++i) {
        quants[i] =
            step == 0.0f ? 0 : static_cast<int>(std::clamp(std::round(values[i] / step), -8.0f, 7.0f));
        values[i] = step * static_cast<float>(quants[i]);
      }
      for (int i = 0; i < 16; ++i)
        bytes[2 + i] = static_cast<std::byte>((quants[i] + 8) | (quants[i + 16] + 8) << 4);
    }
  }
  // Blocks of an f16 step and 32 signed bytes.
  void store_q8() {
    for (std::size_t block = 0; block < numbers.size() / 32; ++block) {
      float* values = numbers.data() + 32 * block;
      std::byte* bytes = stored.data() + 34 * block;
      float largest = 0.0f;
      for (int i = 0; i < 32; ++i) largest = std::max(largest, std::abs(values[i]));
      const std::uint16_t half = f32_to_f16(largest / 127.0f);
      std::memcpy(bytes, &half, 2);
      const float step = f16_to_f32(half);
      for (int i = 0; i < 32; ++i) {
        const auto quant = static_cast<std::int8_t>(
            step == 0.0f ? 0.0f : std::clamp(std::round(values[i] / step), -127.0f, 127.0f));
        bytes[2 + i] = static_cast<std::byte>(quant);
        values[i] = step * static_cast<float>(quant);
      }
    }
  }
};

struct Head {
  Rows keys, values;                  // of positions 0, 1, 2 ...
  Rows compact_keys, compact_values;  // rows without a position, in front
  std::vector<float> log_mass;        // of the compact rows
};

struct AttendCase {
  AttendShape shape;
  std::vector<float> q;     // [tokens][heads][head_dim], before rotation where there is one
  bool rotary = false;      // queries are rotated to where they are seen from; keys are stored rotated
  std::vector<Head> heads;  // of the KV heads
};

// Tokens [from, from + tokens) of a case.
inline AttendCase part_of(const AttendCase& whole, std::int64_t from, std::int64_t tokens) {
  AttendCase part = whole;
  part.shape.first += from;
  part.shape.tokens = tokens;
  const auto row = static_cast<std::ptrdiff_t>(whole.shape.heads * whole.shape.head_dim);
  part.q.assign(whole.q.begin() + from * row, whole.q.begin() + (from + tokens) * row);
  return part;
}

struct AttendOptions {
  Pos first = 0;
  std::int64_t tokens = 1;
  int heads = 2, kv_heads = 1, head_dim = 16;
  std::optional<std::int64_t> window = std::nullopt;
  std::int64_t compact = 0;
  DType key_type = DType::f32, value_type = DType::f32;
  bool bf16 = false;
  std::uint64_t seed = 1;
};

inline AttendCase make_case(const AttendOptions& o) {
  AttendCase c;
  c.shape = {.first = o.first,
             .tokens = o.tokens,
             .heads = o.heads,
             .kv_heads = o.kv_heads,
             .head_dim = o.head_dim,
             .scale = 1.0f / std::sqrt(static_cast<float>(o.head_dim)),
             .window = o.window,
             .bf16 = o.bf16};
  c.q = normals(static_cast<std::size_t>(o.tokens * o.heads * o.head_dim), o.seed);
  const auto rows = static_cast<std::size_t>(o.first + o.tokens), dim = static_cast<std::size_t>(o.head_dim);
  const auto compact = static_cast<std::size_t>(o.compact);
  for (int h = 0; h < o.kv_heads; ++h) {
    const auto seed = o.seed * 1000 + static_cast<std::uint64_t>(h) * 10;
    Head head;
    head.keys = Rows(o.key_type, o.head_dim, normals(rows * dim, seed + 1, 1.5f));
    head.values = Rows(o.value_type, o.head_dim, normals(rows * dim, seed + 2));
    head.compact_keys = Rows(o.key_type, o.head_dim, normals(compact * dim, seed + 3, 1.5f));
    head.compact_values = Rows(o.value_type, o.head_dim, normals(compact * dim, seed + 4));
    head.log_mass = normals(compact, seed + 5, 2.0f);
    c.heads.push_back(std::move(head));
  }
  return c;
}

inline Span span_of(const Rows& keys, const Rows& values, std::int64_t row, std::int64_t rows) {
  Span span;
  span.keys = keys.row(row);
  span.values = values.row(row);
  span.key_type = keys.dtype;
  span.value_type = values.dtype;
  span.key_stride = keys.stride();
  span.value_stride = values.stride();
  span.rows = rows;
  return span;
}

using SpanLists = std::vector<std::vector<Span>>;

// The compact rows of every head as one span, where there are any.
inline SpanLists compact_spans(const AttendCase& c) {
  SpanLists lists(c.heads.size());
  for (std::size_t h = 0; h < c.heads.size(); ++h) {
    const Head& head = c.heads[h];
    if (head.log_mass.empty()) continue;
    lists[h].push_back(
        span_of(head.compact_keys, head.compact_values, 0, static_cast<std::int64_t>(head.log_mass.size())));
    lists[h].back().log_mass = head.log_mass.data();
  }
  return lists;
}

// All positions as one span, cut at `cuts` (ascending positions), from position `from` on.
inline SpanLists full_spans(const AttendCase& c, Pos from = 0, std::vector<Pos> cuts = {}) {
  SpanLists lists = compact_spans(c);
  const Pos end = c.shape.first + c.shape.tokens;
  std::erase_if(cuts, [end](Pos cut) { return cut >= end; });
  cuts.push_back(end);
  for (std::size_t h = 0; h < c.heads.size(); ++h) {
    Pos begin = from;
    for (const Pos cut : cuts) {
      if (cut <= begin) continue;
      lists[h].push_back(span_of(c.heads[h].keys, c.heads[h].values, begin, cut - begin));
      lists[h].back().first = begin;
      begin = cut;
    }
  }
  return lists;
}

// Turns a vector of the head dimension by `position` steps: its two halves are the coordinates of planes that
// turn at different speeds.
inline std::vector<double> turned(std::span<const float> vector, double position) {
  const std::size_t pairs = vector.size() / 2;
  std::vector<double> out(vector.begin(), vector.end());
  for (std::size_t i = 0; i < pairs; ++i) {
    const double angle = position * std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(pairs));
    const auto a = static_cast<double>(vector[i]), b = static_cast<double>(vector[i + pairs]);
    out[i] = a * std::cos(angle) - b * std::sin(angle);
    out[i + pairs] = a * std::sin(angle) + b * std::cos(angle);
  }
  return out;
}

// The queries as `view` needs them.
inline std::vector<float> seen_queries(const AttendCase& c, const ViewPoint& view) {
  if (!c.rotary) return c.q;
  std::vector<float> out;
  const auto dim = static_cast<std::size_t>(c.shape.head_dim);
  const std::size_t row = dim * static_cast<std::size_t>(c.shape.heads);
  for (std::size_t at = 0; at < c.q.size(); at += dim) {
    const Pos position = c.shape.first + static_cast<Pos>(at / row);
    for (const double x :
         turned(std::span(c.q).subspan(at, dim), static_cast<double>(view.seen_from(position))))
      out.push_back(static_cast<float>(x));
  }
  return out;
}

// The answer by the definition of attention, in double.
inline std::vector<double> direct_attention(const AttendCase& c) {
  const AttendShape& s = c.shape;
  const auto dim = static_cast<std::size_t>(s.head_dim);
  std::vector<double> out(c.q.size(), 0.0);
  for (std::int64_t t = 0; t < s.tokens; ++t)
    for (int h = 0; h < s.heads; ++h) {
      const Head& head = c.heads[static_cast<std::size_t>(h / (s.heads / s.kv_heads))];
      const std::size_t at = static_cast<std::size_t>(t * s.heads + h) * dim;
      std::vector<double> score;
      std::vector<const float*> value;
      const auto see = [&](const Rows& keys, const Rows& values, std::size_t row, double mass) {
        double sum = 0.0;
        for (std::size_t d = 0; d < dim; ++d)
          sum += static_cast<double>(c.q[at + d]) * static_cast<double>(keys.numbers[row * dim + d]);
        score.push_back(sum * static_cast<double>(s.scale) + mass);
        value.push_back(values.numbers.data() + row * dim);
      };
      for (std::size_t i = 0; i < head.log_mass.size(); ++i)
        see(head.compact_keys, head.compact_values, i, static_cast<double>(head.log_mass[i]));
      const Pos position = s.first + t;
      for (Pos p = s.window ? std::max<Pos>(0, position - *s.window + 1) : 0; p <= position; ++p)
        see(head.keys, head.values, static_cast<std::size_t>(p), 0.0);
      const double highest = *std::max_element(score.begin(), score.end());
      double total = 0.0;
      for (std::size_t i = 0; i < score.size(); ++i) {
        const double weight = std::exp(score[i] - highest);
        total += weight;
        for (std::size_t d = 0; d < dim; ++d) out[at + d] += weight * static_cast<double>(value[i][d]);
      }
      for (std::size_t d = 0; d < dim; ++d) out[at + d] /= total;
    }
  return out;
}

inline std::vector<float> run_attend(const AttendCase& c, const AttendRow& kernels, int threads,
                                     const SpanLists& spans) {
  ThreadPool pool(threads);
  std::vector<float> out(c.q.size(), std::numeric_limits<float>::quiet_NaN());
  const std::vector<ViewPoint> views = view_points(spans);
  std::vector<std::vector<float>> queries;
  std::vector<const float*> q;
  for (const ViewPoint& view : views) queries.push_back(seen_queries(c, view));
  for (const auto& rows : queries) q.push_back(rows.data());
  attend(pool, kernels, {c.shape, views, q, spans}, out.data());
  return out;
}

}  // namespace kvtide::testing
