#include "kernels/codec.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "base/half.h"
#include "tensor/dtype.h"
#include "tests/kernels/samples.h"

namespace kvtide {
namespace {

// One "type" or "encode" section of the golden file (tools/make_codec_goldens.py).
struct Section {
  std::string kind, name;
  std::size_t elements = 0;
  std::vector<std::byte> blocks;
  std::vector<float> floats;
};

std::vector<Section> read_goldens() {
  std::ifstream file(KVTIDE_GOLDENS "/codec/codec.golden", std::ios::binary);
  std::vector<Section> sections;
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line, "kvtide codec goldens");
  std::getline(file, line);
  while (std::getline(file, line) && line != "end") {
    std::istringstream words(line);
    Section section;
    std::size_t bytes = 0;
    words >> section.kind >> section.name >> section.elements >> bytes;
    section.blocks.resize(bytes);
    section.floats.resize(section.elements);
    sections.push_back(std::move(section));
  }
  const auto fill = [&](auto& items) {
    file.read(reinterpret_cast<char*>(items.data()),
              static_cast<std::streamsize>(items.size() * sizeof(items[0])));
  };
  for (auto& section : sections) {
    if (section.kind == "type") fill(section.blocks);
    fill(section.floats);
    if (section.kind == "encode") fill(section.blocks);
  }
  EXPECT_TRUE(file.good() && file.peek() == std::ifstream::traits_type::eof())
      << "the golden file's length is wrong";
  return sections;
}

void expect_same_bits(std::span<const float> got, std::span<const float> wanted, const std::string& name) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(wanted[i]))
        << name << " element " << i << ": " << got[i] << " instead of " << wanted[i];
}

TEST(Codec, DecodesEveryTypeToTheBitsOfTheReference) {
  std::size_t types = 0;
  for (const Section& golden : read_goldens()) {
    if (golden.kind != "type") continue;
    const auto dtype = dtype_from_name(golden.name);
    ASSERT_TRUE(dtype) << golden.name;
    std::vector<float> out(golden.elements);
    decode_row(*dtype, golden.blocks.data(), static_cast<std::int64_t>(golden.elements), out.data());
    expect_same_bits(out, golden.floats, golden.name);
    ++types;
  }
  EXPECT_EQ(types, std::size(kDTypes)) << "a type without a golden";
}

TEST(Codec, EncodesToTheBytesOfTheReference) {
  std::size_t types = 0;
  for (const Section& golden : read_goldens()) {
    if (golden.kind != "encode") continue;
    const auto dtype = dtype_from_name(golden.name);
    ASSERT_TRUE(dtype) << golden.name;
    std::vector<std::byte> out(golden.blocks.size());
    encode_row(*dtype, golden.floats.data(), static_cast<std::int64_t>(golden.elements), out.data());
    for (std::size_t i = 0; i < out.size(); ++i)
      ASSERT_EQ(int(out[i]), int(golden.blocks[i])) << golden.name << " byte " << i;
    ++types;
  }
  EXPECT_EQ(types, 3u);
}

TEST(Codec, NeedsNoAlignmentAndStaysInsideTheRow) {
  for (const Section& golden : read_goldens()) {
    if (golden.kind != "type") continue;
    std::vector<std::byte> shifted(golden.blocks.size() + 1);
    std::memcpy(shifted.data() + 1, golden.blocks.data(), golden.blocks.size());
    std::vector<float> out(golden.elements + 2, -7.5f);
    decode_row(*dtype_from_name(golden.name), shifted.data() + 1, static_cast<std::int64_t>(golden.elements),
               out.data() + 1);
    EXPECT_EQ(out.front(), -7.5f) << golden.name;
    EXPECT_EQ(out.back(), -7.5f) << golden.name;
    expect_same_bits(std::span(out).subspan(1, golden.elements), golden.floats, golden.name);
  }
}

TEST(Codec, OfNoElementsTouchesNothing) {
  for (const auto& info : kDTypes) {
    decode_row(info.dtype, nullptr, 0, nullptr);
    EXPECT_TRUE(scales_finite(info.dtype, nullptr, 0)) << info.name;
    if (codec(info.dtype).encode != nullptr) encode_row(info.dtype, nullptr, 0, nullptr);
  }
}

TEST(Codec, IsFoundUnderItsOwnType) {
  for (const auto& info : kDTypes) EXPECT_EQ(codec(info.dtype).dtype, info.dtype) << info.name;
}

TEST(CodecF16, DecodesAllBitPatternsToTheirDefinition) {
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  std::vector<float> out(halves.size());
  decode_row(DType::f16, reinterpret_cast<const std::byte*>(halves.data()), 65536, out.data());
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const int exponent = static_cast<int>((bits >> 10) & 31);
    const int mantissa = static_cast<int>(bits & 1023);
    ASSERT_EQ(std::signbit(out[bits]), bits >= 32768) << bits;
    const double magnitude = std::fabs(static_cast<double>(out[bits]));
    if (exponent == 31) {
      ASSERT_TRUE(mantissa != 0 ? std::isnan(out[bits]) : std::isinf(out[bits])) << bits;
    } else {
      ASSERT_EQ(magnitude,
                exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25))
          << bits;
    }
  }
}

struct ScaleField {
  DType dtype;
  std::size_t offset;  // of a scale (or of the element of a plain type) in its block
};

constexpr ScaleField kScaleFields[] = {
    {DType::f32, 0},     {DType::f16, 0},    {DType::bf16, 0},    {DType::q4_0, 0},   {DType::q4_1, 0},
    {DType::q4_1, 2},    {DType::q5_0, 0},   {DType::q5_1, 0},    {DType::q5_1, 2},   {DType::q8_0, 0},
    {DType::q2_k, 80},   {DType::q2_k, 82},  {DType::q3_k, 108},  {DType::q4_k, 0},   {DType::q4_k, 2},
    {DType::q5_k, 0},    {DType::q5_k, 2},   {DType::q6_k, 208},  {DType::iq4_nl, 0}, {DType::iq4_xs, 0},
    {DType::iq3_xxs, 0}, {DType::iq3_s, 0},  {DType::iq2_xxs, 0}, {DType::iq2_xs, 0}, {DType::iq2_s, 0},
    {DType::iq1_s, 0},   {DType::iq1_m, 48}, {DType::tq1_0, 52},  {DType::tq2_0, 64},
};

// Writes `value` (NaN, infinity or a plain number) into the scale at `at`, in the scale's own type.
void put_scale(DType dtype, std::byte* at, float value) {
  if (dtype == DType::f32) {
    std::memcpy(at, &value, sizeof(value));
    return;
  }
  const auto upper = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
  const std::uint16_t bits = dtype == DType::bf16 ? upper : f32_to_f16(value);
  if (dtype == DType::iq1_m)
    testing::put_iq1_m_scale(at - 48, bits);
  else
    std::memcpy(at, &bits, sizeof(bits));
}

TEST(ScalesFinite, FindsNanAndInfinityInEveryScaleOfEveryBlock) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const ScaleField& field : kScaleFields) {
    const auto& info = dtype_info(field.dtype);
    const std::int64_t blocks = 37;  // of a plain type: two groups and a rest
    for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{20}, blocks - 1}) {
      std::vector<std::byte> row(static_cast<std::size_t>(blocks * info.block_bytes));
      std::byte* scale = row.data() + bad * info.block_bytes + field.offset;
      for (const float fine : {0.0f, -0.0f, 0.25f, -65504.0f}) {
        put_scale(field.dtype, scale, fine);
        EXPECT_TRUE(scales_finite(field.dtype, row.data(), blocks * info.block_elements))
            << info.name << " " << fine;
      }
      for (const float broken : {kNan, -kNan, kInf, -kInf}) {
        put_scale(field.dtype, scale, broken);
        EXPECT_FALSE(scales_finite(field.dtype, row.data(), blocks * info.block_elements))
            << info.name << " block " << bad << " offset " << field.offset << " " << broken;
      }
    }
  }
}

TEST(ScalesFinite, OfMxfp4AreThoseWhoseSixIsAFloat) {
  std::vector<std::byte> row(2 * 17);
  for (int e = 0; e < 256; ++e) {
    row[17] = static_cast<std::byte>(e);
    row[18] = std::byte{0x77};
    float out[64];
    decode_row(DType::mxfp4, row.data(), 64, out);
    EXPECT_EQ(scales_finite(DType::mxfp4, row.data(), 64), e != 255 && std::isfinite(out[32])) << e;
    if (e < 253) {
      EXPECT_EQ(out[32], std::ldexp(6.0f, e - 127)) << e;
    }
  }
}

TEST(ScalesFinite, DoesNotMistakePackedIntegersForScales) {
  for (const auto& info : kDTypes) {
    if (info.block_elements == 1) continue;
    std::vector<std::byte> block(static_cast<std::size_t>(info.block_bytes), std::byte{0xff});
    for (const ScaleField& field : kScaleFields)
      if (field.dtype == info.dtype) put_scale(info.dtype, block.data() + field.offset, 1.0f);
    if (info.dtype == DType::mxfp4) block[0] = std::byte{127};
    EXPECT_TRUE(scales_finite(info.dtype, block.data(), info.block_elements)) << info.name;
  }
}

std::vector<float> round_trip(DType type, const std::vector<float>& row,
                              std::vector<std::byte>* stored = nullptr) {
  const auto elements = static_cast<std::int64_t>(row.size());
  std::vector<std::byte> blocks(static_cast<std::size_t>(dtype_bytes(type, elements)));
  encode_row(type, row.data(), elements, blocks.data());
  std::vector<float> back(row.size());
  decode_row(type, blocks.data(), elements, back.data());
  if (stored != nullptr) *stored = blocks;
  return back;
}
std::vector<float> round_trip_q8_0(const std::vector<float>& row, std::vector<std::byte>* stored = nullptr) {
  return round_trip(DType::q8_0, row, stored);
}

TEST(CodecQ8_0, KeepsEveryElementWithinHalfAStepAndTheRoundingOfTheScale) {
  std::vector<float> row(64 * 32);
  std::uint32_t state = 1;
  for (float& x : row) {
    state = state * 1664525u + 1013904223u;
    x = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-29f;
  }
  const auto back = round_trip_q8_0(row);
  for (std::size_t first = 0; first < row.size(); first += 32) {
    float largest = 0;
    for (std::size_t i = first; i < first + 32; ++i) largest = std::max(largest, std::fabs(row[i]));
    // Half a step of largest / 127, plus 127 steps times the f16 scale's relative error of 2^-11.
    const float bound = largest / 127.0f * 0.5f + largest * 0x1p-11f + 1e-6f;
    for (std::size_t i = first; i < first + 32; ++i) EXPECT_NEAR(back[i], row[i], bound) << i;
  }
}

TEST(CodecQ8_0, RoundsHalvesAwayFromZero) {
  std::vector<float> row(32, 0.0f);
  row[0] = 127.0f;
  row[1] = 0.5f;
  row[2] = -0.5f;
  row[3] = 2.5f;
  row[4] = -3.5f;
  row[5] = 126.4999f;
  const auto back = round_trip_q8_0(row);
  EXPECT_EQ(back[1], 1.0f);
  EXPECT_EQ(back[2], -1.0f);
  EXPECT_EQ(back[3], 3.0f);
  EXPECT_EQ(back[4], -4.0f);
  EXPECT_EQ(back[5], 126.0f);
}

TEST(CodecQ8_0, TurnsABlockTooSmallForItsScaleIntoZeros) {
  for (const float tiny : {0.0f, 1e-45f, 1e-42f, 1e-38f, 1e-9f}) {
    const auto back = round_trip_q8_0(std::vector<float>(32, tiny));
    for (const float x : back) EXPECT_EQ(x, 0.0f) << tiny;
  }
}

TEST(CodecQ8_0, MarksABlockThatHoldsNanOrInfinityOrOverflows_SoThatScalesFiniteFindsIt) {
  for (const float broken : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                             -std::numeric_limits<float>::infinity(), 1e30f}) {
    std::vector<float> row(96, 0.5f);
    row[40] = broken;
    std::vector<std::byte> stored;
    const auto back = round_trip_q8_0(row, &stored);
    EXPECT_FALSE(scales_finite(DType::q8_0, stored.data(), 96)) << broken;
    EXPECT_TRUE(scales_finite(DType::q8_0, stored.data(), 32)) << broken;       // the block before
    EXPECT_TRUE(scales_finite(DType::q8_0, stored.data() + 68, 32)) << broken;  // and the one after are whole
    EXPECT_FALSE(std::isfinite(back[40]));
  }
}

TEST(CodecQ4_0, KeepsSixteenLevelsOfAScaleOfEitherSignExactly) {
  for (const float step : {0.25f, -0.25f, 3.0f, -0x1p-10f}) {
    std::vector<float> row(64);
    for (std::size_t i = 0; i < 64; ++i) row[i] = step * static_cast<float>(static_cast<int>(i * 5 % 16) - 8);
    EXPECT_EQ(round_trip(DType::q4_0, row), row) << step;
  }
}

TEST(CodecQ4_0, TurnsABlockTooSmallForItsScaleIntoZeros) {
  for (const float tiny : {0.0f, 1e-45f, 1e-42f, 1e-38f, -1e-20f, 1e-8f})
    for (const float x : round_trip(DType::q4_0, std::vector<float>(32, tiny))) EXPECT_EQ(x, 0.0f) << tiny;
}

TEST(CodecQ4_0, MarksABlockThatHoldsNanOrInfinityOrOverflows_SoThatScalesFiniteFindsIt) {
  for (const float broken : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                             -std::numeric_limits<float>::infinity(), 1e30f, -6e5f}) {
    std::vector<float> row(96, 0.5f);
    row[40] = broken;
    std::vector<std::byte> stored;
    round_trip(DType::q4_0, row, &stored);
    EXPECT_FALSE(scales_finite(DType::q4_0, stored.data(), 96)) << broken;
    EXPECT_TRUE(scales_finite(DType::q4_0, stored.data(), 32)) << broken;       // the block before
    EXPECT_TRUE(scales_finite(DType::q4_0, stored.data() + 36, 32)) << broken;  // and the one after are whole
  }
  std::vector<float> large(32, 4e5f);
  large[0] = -4.5e5f;
  for (const float x : round_trip(DType::q4_0, large)) EXPECT_NEAR(std::fabs(x), 4.25e5f, 1e5f);
}

TEST(CodecF16, EncodesOverflowAsInfinityAndKeepsNan) {
  const float row[] = {65504.0f, 65519.996f, 65520.0f, -1e9f, std::numeric_limits<float>::quiet_NaN()};
  std::byte stored[sizeof(row) / 2];
  encode_row(DType::f16, row, 5, stored);
  float back[5];
  decode_row(DType::f16, stored, 5, back);
  EXPECT_EQ(back[0], 65504.0f);
  EXPECT_EQ(back[1], 65504.0f);
  EXPECT_EQ(back[2], std::numeric_limits<float>::infinity());
  EXPECT_EQ(back[3], -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(back[4]));
}

TEST(Codec, OffersEncodersForTheTypesOfTheKvMemoryOnly) {
  for (const auto& info : kDTypes) {
    const bool kv = info.dtype == DType::f32 || info.dtype == DType::f16 || info.dtype == DType::q8_0 ||
                    info.dtype == DType::q4_0;
    EXPECT_EQ(codec(info.dtype).encode != nullptr, kv) << info.name;
  }
}

}  // namespace
}  // namespace kvtide
