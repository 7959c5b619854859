// Bad tensor tables: names, shapes, types, offsets, extents.
#include "tests/hostile/hostile_case.h"

namespace kvtide::testing {
namespace {

using Kind = GgufFieldKind;
constexpr auto kBad = ErrorCode::bad_format;
constexpr auto kUnsupported = ErrorCode::unsupported;

// One f32 tensor `t` of four dimensions, all overwritten.
std::function<Bytes()> shaped(std::vector<std::uint64_t> shape, DType dtype = DType::f32) {
  return [=] {
    GgufBuilder builder;
    builder.tensor("t", std::vector<std::uint64_t>(shape.size(), 1), DType::f32);
    GgufImage image = builder.build();
    image.put(image.field(Kind::tensor_type, "t"), static_cast<std::uint32_t>(dtype));
    for (std::size_t i = 0; i < shape.size(); ++i) image.put(image.field(Kind::dimension, "t", i), shape[i]);
    return image.bytes;
  };
}

std::function<Bytes()> built(std::function<void(GgufBuilder&)> change) {
  return [=] {
    GgufBuilder builder;
    change(builder);
    return builder.build().bytes;
  };
}

// The last bytes of the file are missing.
std::function<Bytes()> shortened(std::size_t missing) {
  return [=] {
    GgufImage image = every_type_file();
    return image.cut(image.bytes.size() - missing).bytes;
  };
}

std::vector<HostileCase> name_cases() {
  std::vector<HostileCase> cases = {
      {"NameIsEmpty", built([](auto& b) { b.tensor("", {4}, DType::f32); }), kBad,
       "tensor 1 of 1: the name is empty"},
      {"NameHoldsNul", built([](auto& b) { b.tensor(std::string_view("a\0", 2), {4}, DType::f32); }), kBad,
       "control"},
      {"NameHoldsALineBreak", built([](auto& b) { b.tensor("a\r\n", {4}, DType::f32); }), kBad,
       "control character"},
      {"NameOf65Bytes", built([](auto& b) { b.tensor(std::string(65, 'n'), {4}, DType::f32); }), kBad,
       "the name is 65 bytes long; at most 64 are allowed"},
      {"NameTwice", built([](auto& b) {
         b.tensor("a", {4}, DType::f32).tensor("b", {4}, DType::f32).tensor("a", {4}, DType::f32);
       }),
       kBad, "tensor 'a' appears more than once"},
      {"NameTwiceWithOtherShapes",
       built([](auto& b) { b.tensor("a", {4}, DType::f32).tensor("a", {32}, DType::q8_0); }), kBad,
       "tensor 'a' appears more than once"},
      {"NameLengthPastTheEnd",
       [] {
         GgufImage image = GgufBuilder().tensor("t", {1}, DType::f32).build();
         image.put(image.field(Kind::name_length, "t"), std::uint64_t{64});
         return image.cut(60).bytes;
       },
       kBad, "the name needs 64 bytes"},
  };
  for (const Extreme& extreme : kExtremes)
    cases.push_back({std::string("NameLengthIs") + extreme.name,
                     with(Kind::name_length, "t.f32", extreme.value), kBad,
                     "the name is " + std::to_string(extreme.value) + " bytes long"});
  return cases;
}

std::vector<HostileCase> shape_cases() {
  const std::uint64_t p31 = std::uint64_t{1} << 31, p32 = std::uint64_t{1} << 32,
                      p42 = std::uint64_t{1} << 42, p61 = std::uint64_t{1} << 61,
                      p62 = std::uint64_t{1} << 62, p63 = std::uint64_t{1} << 63;
  return {
      {"NoDimensions", with(Kind::dimensions, "t.f32", 0u), kBad, "tensor 't.f32': has 0 dimensions; 1 to 4"},
      {"FiveDimensions", with(Kind::dimensions, "t.f32", 5u), kBad, "has 5 dimensions; 1 to 4 are allowed"},
      {"2pow31Dimensions", with(Kind::dimensions, "t.f32", 1u << 31), kBad, "has 2147483648 dimensions"},
      {"2pow32Minus1Dimensions", with(Kind::dimensions, "t.f32", ~0u), kBad, "has 4294967295 dimensions"},
      {"OneDimensionTooFew", with(Kind::dimensions, "t.f32", 1u), kBad,
       "tensor 't.f32': has rows of 32 elements; iq3_xxs needs a multiple of 256"},
      {"FirstDimensionIsZero", with(Kind::dimension, "t.f32", std::uint64_t{0}, 0), kBad, "dimension 0 is 0"},
      {"SecondDimensionIsZero", with(Kind::dimension, "t.f32", std::uint64_t{0}, 1), kBad,
       "dimension 1 is 0"},
      {"DimensionIs2pow64Minus1", shaped({~std::uint64_t{0}}), kBad,
       "the number of elements exceeds 2^63 - 1"},
      {"DimensionIs2pow63", shaped({p63}), kBad, "the number of elements exceeds 2^63 - 1"},
      {"BytesExceed2pow63", shaped({p63 - 1}), kBad, "exceed 2^63 - 1 bytes"},
      {"BytesWrapTo4", shaped({p62 + 1}), kBad, "exceed 2^63 - 1 bytes"},
      {"BytesWrapToMinus128", shaped({0x7fffffffffffffc0}, DType::f16), kBad, "exceed 2^63 - 1 bytes"},
      {"BytesJustBelow2pow63", shaped({p61 - 1}), kBad, "needs 9223372036854775804 bytes at offset 0"},
      {"ProductWrapsToZero", shaped({p32, p32}), kBad, "exceeds 2^63 - 1"},
      {"ProductWrapsToZeroInFourSteps", shaped({65536, 65536, 65536, 65536}), kBad, "exceeds 2^63 - 1"},
      {"ProductWrapsToASmallNumber", shaped({p63 + 2, 2}), kBad, "exceeds 2^63 - 1"},
      {"ProductIsNegative", shaped({p31, p32}), kBad, "exceeds 2^63 - 1"},
      {"ProductWrapsAndIsThenZero", shaped({p32, p32, 0}), kBad, "exceeds 2^63 - 1"},
      {"ZeroAfterALargeDimension", shaped({p62, 0}), kBad, "dimension 1 is 0"},
      {"StrideWraps", shaped({p42 + 1, p42}), kBad, "exceeds 2^63 - 1"},
      {"ExabytesOf4BitBlocks", shaped({p62}, DType::q4_0), kBad, "needs 2594073385365405696 bytes"},
      {"RowOf33ForQ8_0", shaped({33}, DType::q8_0), kBad,
       "has rows of 33 elements; q8_0 needs a multiple of 32"},
      {"RowOf31ForQ4_1", shaped({31}, DType::q4_1), kBad, "q4_1 needs a multiple of 32"},
      {"RowOf32ForQ4_K", shaped({32, 8}, DType::q4_k), kBad, "q4_k needs a multiple of 256"},
      {"RowOf255ForQ6_K", shaped({255}, DType::q6_k), kBad, "q6_k needs a multiple of 256"},
      {"RowOf32ForIq4Xs", shaped({32, 8}, DType::iq4_xs), kBad, "iq4_xs needs a multiple of 256"},
      {"RowOf255ForIq1M", shaped({255}, DType::iq1_m), kBad, "iq1_m needs a multiple of 256"},
      {"ExabytesOfTernaryBlocks", shaped({p62}, DType::tq1_0), kBad, "needs 972777519512027136 bytes"},
      {"RowOf1ForIq4Nl", shaped({1, 32}, DType::iq4_nl), kBad, "iq4_nl needs a multiple of 32"},
  };
}

std::vector<HostileCase> type_cases() {
  std::vector<HostileCase> cases;
  const auto unknown = [&](std::string name, std::uint32_t number, std::string says) {
    cases.push_back({"TypeIs" + name, with(Kind::tensor_type, "t.f32", number), kUnsupported,
                     "tensor 't.f32': has type " + says + "; the types that are read: f32 f16 q4_0"});
  };
  unknown("Q4_2", 4, "4 (q4_2, withdrawn)");
  unknown("Q8_1", 9, "9 (q8_1)");
  unknown("Q8_K", 15, "15 (q8_k)");
  unknown("I8", 24, "24 (i8)");
  unknown("F64", 28, "28 (f64)");
  unknown("Q4_0_8_8", 33, "33 (q4_0_8_8, withdrawn)");
  unknown("Nvfp4", 40, "40 (nvfp4)");
  unknown("Q1_0", 41, "41 (q1_0)");
  unknown("ANumberNobodyUses", 99, "99");
  unknown("2pow31", 1u << 31, "2147483648");
  unknown("2pow32Minus1", ~0u, "4294967295");
  return cases;
}

std::vector<HostileCase> extent_cases() {
  std::vector<HostileCase> cases = {
      {"OffsetIs1", with(Kind::tensor_offset, "t.f32", std::uint64_t{1}), kBad,
       "tensor 't.f32': offset 1 is not a multiple of the alignment 64"},
      {"OffsetIsHalfTheAlignment", with(Kind::tensor_offset, "t.f16", std::uint64_t{32}), kBad,
       "alignment 64"},
      {"OffsetAtTheEndOfTheFile", with(Kind::tensor_offset, "t.f32", std::uint64_t{1} << 13), kBad,
       "needs 2304 bytes at offset 8192"},
      {"OffsetIs2pow63", with(Kind::tensor_offset, "t.f32", std::uint64_t{1} << 63), kBad,
       "but the file ends at byte"},
      {"OffsetIsTheLargestMultiple", with(Kind::tensor_offset, "t.f32", ~std::uint64_t{63}), kBad,
       "but the file ends"},
      {"OffsetWrapsToTheStart", with(Kind::tensor_offset, "t.f32", std::uint64_t{0} - 1024), kBad,
       "but the file ends"},
      {"OffsetIs2pow64Minus1", with(Kind::tensor_offset, "t.f32", ~std::uint64_t{0}), kBad, "not a multiple"},
      {"TwoTensorsAtOneOffset", with(Kind::tensor_offset, "t.f16", std::uint64_t{0}), kBad,
       "overlaps tensor"},
      {"TensorInsideAnother", with(Kind::tensor_offset, "t.bf16", std::uint64_t{128}), kBad,
       "tensor 't.bf16': overlaps tensor 't.f32', which takes 2304 bytes from offset 0 on; its own offset is "
       "128"},
      {"TensorOneRowTooLong", with(Kind::dimension, "t.f32", std::uint64_t{19}, 1), kBad,
       "overlaps tensor 't.f32'"},
      {"OneByteMissing", shortened(1), kBad, "tensor 't.iq4_nl': needs 18 bytes"},
      {"LastTensorMissing", shortened(18), kBad, "tensor 't.iq4_nl': needs 18 bytes"},
      {"DataMissing",
       [] {
         GgufImage image = every_type_file();
         return image.cut(image.field(Kind::padding, "t.f32").offset).bytes;
       },
       kBad, "tensor 't.f32': needs 2304 bytes at offset 0 of the data, which starts at byte"},
      {"AlignmentLargerThanTheLayout", with(Kind::value, "general.alignment", 128u), kBad, "alignment 128"},
      {"AlignmentPushesTheDataPastTheEnd",
       [] {
         GgufImage image = GgufBuilder().alignment(32).tensor("t", {4}, DType::f32).build();
         image.put(image.field(Kind::value, "general.alignment"), 65536u);
         return image.bytes;
       },
       kBad, "which starts at byte 65536"},
      {"F32AtAnOddByte",
       [] {
         GgufImage image = GgufBuilder().key("k", "12").alignment(1).tensor("t", {4}, DType::f32).build();
         return image.bytes;
       },
       kBad, "f32 needs a multiple of 4"},
      {"F16AtAnOddByte", built([](auto& b) { b.alignment(1).tensor("tt", {4}, DType::f16); }), kBad,
       "f16 needs a multiple of 2"},
      {"TwoHalvesOf2pow63",
       [] {
         GgufImage image = GgufBuilder().tensor("a", {32}, DType::f16).tensor("b", {32}, DType::f16).build();
         for (const char* name : {"a", "b"})
           image.put(image.field(Kind::dimension, name), std::uint64_t{0x3fffffffffffffe0});
         return image.bytes;
       },
       kBad, "tensor 'a': needs 9223372036854775744 bytes"},
  };
  for (const Kind kind : {Kind::name_length, Kind::name, Kind::dimensions, Kind::dimension, Kind::tensor_type,
                          Kind::tensor_offset})
    cases.push_back({"TableEndsInsideField" + std::to_string(static_cast<int>(kind)),
                     [=] {
                       GgufImage image = every_type_file();
                       const GgufField field = image.field(kind, "t.q6_k");
                       return image.cut(field.offset + field.size - 1).bytes;
                     },
                     kBad, "but the file ends at byte"});
  return cases;
}

HOSTILE_CASES(HostileGgufTensorName, name_cases());
HOSTILE_CASES(HostileGgufTensorShape, shape_cases());
HOSTILE_CASES(HostileGgufTensorType, type_cases());
HOSTILE_CASES(HostileGgufTensorExtent, extent_cases());

}  // namespace
}  // namespace kvtide::testing
