// Every kernel on memory that ends at a page that is not there, in every size of its tail: nothing is read or
// written past the end, and what comes out is what comes out elsewhere.
#include "tests/kernels/guarded.h"
#include "tests/kernels/quant_memory.h"

#include <gtest/gtest.h>

#include <list>

#include "kernels/codec.h"
#include "kernels/kernels.h"
#include "kernels/matmul.h"
#include "kernels/pack.h"
#include "tests/kernels/attend_case.h"
#include "tests/kernels/same_bits.h"

namespace kvtide {
namespace {

using testing::Guarded;
using testing::normals;
using testing::random_blocks;
using testing::same_bits;

// Spans on guarded copies of a case's rows.
class GuardedSpans {
 public:
  explicit GuardedSpans(const testing::AttendCase& c) : lists(c.heads.size()) {
    const std::int64_t rows = c.shape.first + c.shape.tokens;
    for (std::size_t h = 0; h < c.heads.size(); ++h) {
      const auto& head = c.heads[h];
      if (!head.log_mass.empty()) {
        Span span = testing::span_of(head.compact_keys, head.compact_values, 0,
                                     static_cast<std::int64_t>(head.log_mass.size()));
        masses_.emplace_back(head.log_mass);
        span.log_mass = masses_.back().data();
        add(span, head.compact_keys, head.compact_values, h);
      }
      Span span = testing::span_of(head.keys, head.values, 0, rows);
      span.first = 0;
      add(span, head.keys, head.values, h);
    }
  }
  testing::SpanLists lists;

 private:
  void add(Span span, const testing::Rows& keys, const testing::Rows& values, std::size_t h) {
    rows_.emplace_back(keys.stored);
    span.keys = rows_.back().data();
    rows_.emplace_back(values.stored);
    span.values = rows_.back().data();
    lists[h].push_back(span);
  }
  std::list<Guarded<std::byte>> rows_;
  std::list<Guarded<float>> masses_;
};

void expect_attention_within(const testing::AttendOptions& options) {
  const testing::AttendCase c = testing::make_case(options);
  const GuardedSpans guarded(c);
  const auto usual = testing::full_spans(c);
  ThreadPool pool(1);
  const Guarded<float> q(c.q);
  const ViewPoint plain;
  const float* views[] = {q.data()};
  for (const Kernels* kernels : available_kernels()) {
    Guarded<float> out(c.q.size());
    attend(pool, kernels->attend, {c.shape, {&plain, 1}, views, guarded.lists}, out.data());
    EXPECT_TRUE(same_bits(out.view(), testing::run_attend(c, kernels->attend, 1, usual)))
        << kernels->isa << ", heads of " << options.head_dim << ", group of " << options.heads << ", "
        << options.first + options.tokens << " rows";
  }
}

TEST(Guarded, Attention_OfEveryTypeHeadSizeAndNumberOfRows) {
  for (const bool bf16 : {false, true})
    for (const DType type : {DType::f32, DType::f16, DType::q8_0, DType::q4_0})
      for (const int dim : {32, 40, 64, 72, 80, 96, 128, 200, 256, 512}) {
        const bool blocks = type == DType::q8_0 || type == DType::q4_0;
        if (blocks && dim % 32 != 0) continue;
        for (const Pos rows : {1, 2, 15, 17, 33, 64, 65})
          expect_attention_within({.first = rows - 1,
                                   .heads = 3,
                                   .head_dim = dim,
                                   .compact = rows % 7,
                                   .key_type = type,
                                   .value_type = type,
                                   .bf16 = bf16});
      }
}

TEST(Guarded, Attention_OfEveryGroupAndNumberOfTokens) {
  for (const auto& [type, bf16] : {std::pair{DType::f16, false}, {DType::f16, true}, {DType::q8_0, true}})
    for (int group = 1; group <= 8; ++group)
      for (const std::int64_t tokens : {1, 2, 5, 19})
        expect_attention_within({.first = 30,
                                 .tokens = tokens,
                                 .heads = 2 * group,
                                 .kv_heads = 2,
                                 .head_dim = 64,
                                 .key_type = type,
                                 .value_type = type,
                                 .bf16 = bf16});
}

TEST(Guarded, MatrixProducts_OfEveryTypeAndTail) {
  ThreadPool pool(1);
  for (const DType type : {DType::f32, DType::f16, DType::bf16, DType::q4_0, DType::q4_1, DType::q5_0,
                           DType::q8_0, DType::q4_k, DType::q6_k, DType::q5_1, DType::q2_k})
    for (const std::int64_t n : {1, 15, 16, 17, 33})
      for (const std::int64_t m : {1, 2, 3, 5, 8, 9, 13, 16, 37}) {
        const std::int64_t k = 256;
        const std::vector<std::byte> blocks =
            random_blocks(type, n * k, static_cast<std::uint64_t>(n * 100 + m), 0.05f);
        Guarded<std::byte> file(blocks);
        WeightMatrix weights{.dtype = type, .rows = n, .columns = k, .blocks = file.data()};
        const std::int64_t panels = (n + kPanelRows - 1) / kPanelRows;
        Guarded<std::byte> packed(panel_shape(type) ? static_cast<std::size_t>(panels * panel_bytes(type, k))
                                                    : 0);
        if (panel_shape(type)) {
          for (std::int64_t p = 0; p < panels; ++p) {
            const std::byte* rows[kPanelRows] = {};
            for (std::int64_t r = 0; r < kPanelRows && p * kPanelRows + r < n; ++r)
              rows[r] = file.data() + (p * kPanelRows + r) * dtype_bytes(type, k);
            pack_panel(type, rows, k, packed.data() + p * panel_bytes(type, k));
          }
          weights.panels = packed.data();
          weights.blocks = nullptr;
        }
        const Guarded<float> x(normals(static_cast<std::size_t>(m * k), 5));
        std::vector<std::vector<float>> results;
        for (const Kernels* kernels : available_kernels())
          for (const bool quantised : {false, true}) {
            Guarded<float> y(static_cast<std::size_t>(m * n));
            const testing::QuantMemory<Guarded> quants(kernels->elementwise, x.data(), m, k);
            Activations input{m, k, x.data()};
            if (quantised) input.quants = quants.rows;
            const MatmulJob job{&weights, y.data(), n};
            matmul(pool, kernels->matmul, input, {&job, 1});
            results.emplace_back(y.view().begin(), y.view().end());
            // Every table gives the bits of the first.
            if (results.size() > 2) {
              EXPECT_TRUE(same_bits(results.back(), results[quantised ? 1 : 0]))
                  << kernels->isa << " " << static_cast<int>(type) << " " << m << " x " << n;
            }
          }
      }
}

TEST(Guarded, ElementwiseFunctions_OfEveryLength) {
  for (const Kernels* kernels : available_kernels())
    for (std::size_t n = 1; n <= 67; ++n) {
      const ElementwiseRow& e = kernels->elementwise;
      const auto count = static_cast<std::int64_t>(n);
      const Guarded<float> x(normals(n, n)), weight(normals(n, n + 100)), bias(normals(n, n + 200));
      Guarded<float> y(normals(n, n + 300));
      Guarded<std::uint16_t> half(n);
      e.rms_norm(x.data(), weight.data(), count, 1e-5f, y.data());
      e.layer_norm(x.data(), weight.data(), bias.data(), count, 1e-5f, y.data());
      e.silu_mul(y.data(), x.data(), count);
      e.gelu_mul(y.data(), x.data(), count);
      e.gelu(y.data(), count);
      e.soft_cap(y.data(), 3.0f, count);
      e.add(y.data(), x.data(), count);
      e.scale(y.data(), 0.5f, count);
      e.to_f16(y.data(), count, half.data());
      Guarded<float> turned(normals(2 * n, n + 400));
      e.rope(turned.data(), x.data(), weight.data(), count);
      for (const float value : y.view()) EXPECT_TRUE(std::isfinite(value)) << kernels->isa << " " << n;
    }
}

TEST(Guarded, MatricesOfSealing_OfEveryShape) {
  for (const Kernels* kernels : available_kernels())
    for (const std::size_t n : {16, 32, 48, 80})
      for (const std::size_t dim : {16, 32, 48, 64, 80, 128, 256})
        for (const std::size_t m : {1, 2, 3, 5, 9}) {
          const DenseRow& d = kernels->dense;
          const auto rows = static_cast<std::int64_t>(n), width = static_cast<std::int64_t>(dim),
                     asked = static_cast<std::int64_t>(m);
          const Guarded<float> q(normals(m * dim, 1)), k(normals(n * dim, 2)), v(normals(n * dim, 3));
          Guarded<float> p(m * n), out(m * dim), sum(n);
          d.dots(q.data(), asked, k.data(), rows, width, 0.1f, p.data());
          for (std::size_t i = 0; i < m; ++i) d.soften(p.data() + i * n, rows);
          d.mix(p.data(), asked, rows, v.data(), width, out.data());
          d.add_squares(p.data(), 0.5f, rows, sum.data());
          d.weigh(p.data(), p.data(), rows, sum.data());
          d.add_losses(p.data(), 0.5f, p.data(), 1.0f, p.data(), rows, sum.data());
          const Guarded<std::uint16_t> halves(std::vector<std::uint16_t>(dim, 0x3c00));
          Guarded<float> wide(dim);
          d.widen(halves.data(), width, wide.data());
          for (const float value : wide.view()) EXPECT_EQ(value, 1.0f) << kernels->isa;
          for (const float value : out.view()) EXPECT_TRUE(std::isfinite(value)) << kernels->isa;
        }
}

TEST(Guarded, StoredRows_OfOneBlockAndMore) {
  for (const Kernels* kernels : available_kernels())
    for (const std::size_t n : {32, 64, 160}) {
      const auto count = static_cast<std::int64_t>(n);
      const Guarded<float> row(normals(n, n));
      Guarded<float> wide(n);
      Guarded<std::byte> four(static_cast<std::size_t>(dtype_bytes(DType::q4_0, count)));
      Guarded<std::byte> eight(static_cast<std::size_t>(dtype_bytes(DType::q8_0, count)));
      kernels->dense.round_to_q4_0(row.data(), count, four.data());
      encode_row(DType::q8_0, row.data(), count, eight.data());
      kernels->dense.numbers_of_q4_0(four.data(), count, wide.data());
      kernels->dense.numbers_of_q8_0(eight.data(), count, wide.data());
      for (const float value : wide.view()) EXPECT_TRUE(std::isfinite(value)) << kernels->isa << " " << n;
    }
}

TEST(Guarded, RowsThatAreRoundedInTurn) {
  for (const Kernels* kernels : available_kernels())
    for (const std::size_t n : {32, 64, 160}) {
      std::vector<float> unit(n * n);
      for (std::size_t k = 0; k < n; ++k) unit[k * n + k] = 1.0f;
      const auto count = static_cast<std::int64_t>(n);
      Guarded<float> h(unit), minus_u(n * n), codes(n * 16);
      const Guarded<float> x(normals(n * 16, n)), scales(std::vector<float>(n / 2, 0.25f)),
          inverses(std::vector<float>(n / 2, 4.0f));
      kernels->dense.factor(h.data(), count, minus_u.data());
      kernels->dense.round_in_turn(x.data(), count, scales.data(), inverses.data(), minus_u.data(),
                                   codes.data());
      for (const float code : codes.view())
        EXPECT_TRUE(code >= -8.0f && code <= 7.0f) << kernels->isa << " " << n;
    }
}

}  // namespace
}  // namespace kvtide
