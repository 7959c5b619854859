// Bad keys, values, strings and arrays.
#include "tests/hostile/hostile_case.h"

namespace kvtide::testing {
namespace {

using Kind = GgufFieldKind;
constexpr auto kBad = ErrorCode::bad_format;
constexpr auto kUnsupported = ErrorCode::unsupported;

struct TypeName {
  const char* name;
  std::uint32_t number;
};
constexpr TypeName kNumericTypes[] = {{"u8", 0},   {"i8", 1},   {"u16", 2}, {"i16", 3},
                                      {"u32", 4},  {"i32", 5},  {"f32", 6}, {"bool", 7},
                                      {"u64", 10}, {"i64", 11}, {"f64", 12}};

std::function<Bytes()> built(std::function<void(GgufBuilder&)> change) {
  return [=] {
    GgufBuilder builder;
    builder.key("general.architecture", "test");
    change(builder);
    return builder.build().bytes;
  };
}

// The file ends in the middle of the given field, in the last of its keys.
std::function<Bytes()> cut_inside(Kind kind, std::string of) {
  return [=] {
    GgufImage image = every_type_file();
    const GgufField field = image.field(kind, of);
    std::uint64_t keys = 0;
    for (const GgufField& other : image.fields)
      if (other.kind == Kind::key && other.offset <= image.field(Kind::key, of).offset) ++keys;
    image.put(image.field(Kind::key_count), keys);
    return image.cut(field.offset + field.size - 1).bytes;
  };
}

std::vector<HostileCase> key_cases() {
  std::vector<HostileCase> cases = {
      {"KeyIsEmpty", built([](auto& b) { b.key("", 1u); }), kBad, "metadata key 2 of 2: the key is empty"},
      {"KeyHoldsNul", built([](auto& b) { b.key(std::string_view("a\0b", 3), 1u); }), kBad,
       "control character"},
      {"KeyHoldsALineBreak", built([](auto& b) { b.key("a\nb", 1u); }), kBad,
       "the key 'a\\x0ab' contains a control"},
      {"KeyHoldsAnEscapeSequence", built([](auto& b) { b.key("\x1b[31m", 1u); }), kBad, "control character"},
      {"KeyHoldsDelete", built([](auto& b) { b.key("a\x7f", 1u); }), kBad, "control character"},
      {"KeyTwiceInARow", built([](auto& b) { b.key("a", 1u).key("a", 1u); }), kBad,
       "key 'a': appears more than once"},
      {"KeyTwiceFarApart", built([](auto& b) { b.key("z", 1u).key("b", 2u).key("c", 3u).key("z", "text"); }),
       kBad, "key 'z': appears more than once"},
      {"ArchitectureTwice", built([](auto& b) { b.key("general.architecture", "llama"); }), kBad,
       "key 'general.architecture': appears more than once"},
      {"KeyLengthOneShort", with(Kind::key_length, "a.u8", std::uint64_t{3}), kBad, "key 'a.u'"},
      {"KeyLengthOneLong", with(Kind::key_length, "a.u8", std::uint64_t{5}), kBad, "control character"},
      {"KeyLengthAboveTheLimit", with(Kind::key_length, "a.u8", std::uint64_t{65536}), kBad,
       "the key is 65536 bytes long; at most 65535 are allowed"},
      {"KeyLengthPastTheEnd", with(Kind::key_length, "a.u8", std::uint64_t{65535}), kBad,
       "the key needs 65535 bytes"},
      {"KeyCutShort", cut_inside(Kind::key, "a.u8"), kBad, "but the file ends at byte"},
      {"KeyLengthCutShort", cut_inside(Kind::key_length, "b.strings"), kBad, "the file ends"},
      {"TypeCutShort", cut_inside(Kind::value_type, "b.strings"), kBad,
       "the type of the value needs 4 bytes"},
      {"TypeIs13", with(Kind::value_type, "a.u8", 13u), kBad,
       "key 'a.u8': the type of the value is 13; 0 to 12 are known"},
      {"TypeIsTheLargest", with(Kind::value_type, "a.u8", ~0u), kBad, "the type of the value is 4294967295"},
      {"TypeIs2pow31", with(Kind::value_type, "a.u8", 1u << 31), kBad, "the type of the value is 2147483648"},
      {"TypeIsArrayButTheValueIsNot", with(Kind::value_type, "a.u32", 9u), kBad,
       "the type of the array's elements"},
      {"TypeIsStringButTheValueIsNot", with(Kind::value_type, "a.u64", 8u), kBad,
       "the string is 1152921504606846976 bytes"},
  };
  for (const Extreme& extreme : kExtremes)
    cases.push_back(
        {std::string("KeyLengthIs") + extreme.name, with(Kind::key_length, "a.u8", extreme.value), kBad,
         "the key is " + std::to_string(extreme.value) + " bytes long; at most 65535 are allowed"});
  for (const TypeName& type : kNumericTypes)
    cases.push_back({std::string("FileEndsInsideA_") + type.name,
                     cut_inside(Kind::value, std::string("a.") + type.name), kBad,
                     std::string("key 'a.") + type.name + "': the value needs"});
  return cases;
}

std::vector<HostileCase> value_cases() {
  std::vector<HostileCase> cases = {
      {"BoolIs2", with(Kind::value, "a.bool", std::uint8_t{2}), kBad,
       "key 'a.bool': the bool is 2; it must be 0 or 1"},
      {"BoolIs255", with(Kind::value, "a.bool", std::uint8_t{255}), kBad, "the bool is 255"},
      {"BoolOfAnArrayIs2", with(Kind::value, "b.bool", std::uint8_t{2}), kBad, "a bool of the array is 2"},
      {"StringCutShort", cut_inside(Kind::string, "a.string"), kBad, "the string needs 4 bytes"},
      {"StringLengthCutShort", cut_inside(Kind::string_length, "a.string"), kBad, "the string needs 8 bytes"},
      {"StringLengthPastTheEnd", with(Kind::string_length, "a.string", std::uint64_t{100000}), kBad,
       "key 'a.string': the string needs 100000 bytes"},
      {"StringLengthAtTheLimitPastTheEnd", with(Kind::string_length, "a.string", std::uint64_t{16777216}),
       kBad, "the string needs 16777216 bytes"},
      {"StringLengthAboveTheLimit", with(Kind::string_length, "a.string", std::uint64_t{16777217}), kBad,
       "the string is 16777217 bytes long; at most 16777216 are allowed"},
      {"LaterStringOfAnArrayPastTheEnd", with(Kind::string_length, "b.strings", std::uint64_t{1} << 20, 2),
       kBad, "key 'b.strings': a string of the array needs 1048576 bytes"},
      {"ElementTypeIs13", with(Kind::element_type, "b.u8", 13u), kBad,
       "the type of the array's elements is 13; 0 to 12 are known"},
      {"ElementTypeIsTheLargest", with(Kind::element_type, "b.u8", ~0u), kBad, "elements is 4294967295"},
      {"ArrayOfArrays", with(Kind::element_type, "b.u8", 9u), kUnsupported, "key 'b.u8': an array of arrays"},
      {"ElementTypeCutShort", cut_inside(Kind::element_type, "b.u8"), kBad,
       "the type of the array's elements needs 4"},
      {"ArrayLengthCutShort", cut_inside(Kind::array_length, "b.u8"), kBad,
       "the length of the array needs 8 bytes"},
      {"StringArrayLengthPastTheEnd", with(Kind::array_length, "b.strings", std::uint64_t{100000}), kBad,
       "declares 100000 strings of at least 8 bytes each"},
      {"StringArrayOneTooLong", with(Kind::array_length, "b.strings", std::uint64_t{4}), kBad,
       "tensor 1 of 14"},
      {"DeepNesting", built([](auto& b) {
         Bytes nested;
         for (int depth = 0; depth < 60000; ++depth) {
           append(nested, std::uint32_t{9});
           append(nested, std::uint64_t{1});
         }
         b.raw_key("deep", 9, {{Kind::value, nested}});
       }),
       kUnsupported, "key 'deep': an array of arrays"},
  };
  for (const Extreme& extreme : kExtremes) {
    cases.push_back({std::string("StringLengthIs") + extreme.name,
                     with(Kind::string_length, "a.string", extreme.value), kBad,
                     "the string is " + std::to_string(extreme.value) + " bytes long"});
    cases.push_back({std::string("StringArrayLengthIs") + extreme.name,
                     with(Kind::array_length, "b.strings", extreme.value), kBad,
                     "declares " + std::to_string(extreme.value) + " strings"});
    for (const TypeName& type : kNumericTypes)
      cases.push_back({std::string("ArrayOf_") + type.name + "_LengthIs" + extreme.name,
                       with(Kind::array_length, std::string("b.") + type.name, extreme.value), kBad,
                       std::string("key 'b.") + type.name + "': declares " + std::to_string(extreme.value) +
                           " array elements"});
  }
  return cases;
}

std::vector<HostileCase> alignment_cases() {
  std::vector<HostileCase> cases;
  for (const std::uint32_t value : {0u, 3u, 31u, 48u, 65535u, 65537u, 131072u, 1u << 31, ~0u})
    cases.push_back({"AlignmentIs" + std::to_string(value), with(Kind::value, "general.alignment", value),
                     kBad,
                     "key 'general.alignment': is " + std::to_string(value) +
                         "; it must be a power of two from 1 to 65536"});
  const auto typed = [&](std::string name, std::function<void(GgufBuilder&)> change, const char* type) {
    cases.push_back({"AlignmentIsA_" + name, built(change), kBad,
                     std::string("is of type ") + type + "; it must be u32"});
  };
  typed(
      "i32", [](auto& b) { b.key("general.alignment", std::int32_t{32}); }, "i32");
  typed(
      "u64", [](auto& b) { b.key("general.alignment", std::uint64_t{32}); }, "u64");
  typed(
      "f32", [](auto& b) { b.key("general.alignment", 32.0f); }, "f32");
  typed(
      "bool", [](auto& b) { b.key("general.alignment", true); }, "bool");
  typed(
      "string", [](auto& b) { b.key("general.alignment", "32"); }, "string");
  typed(
      "array", [](auto& b) { b.array("general.alignment", std::vector<std::uint32_t>{32}); }, "array");
  return cases;
}

HOSTILE_CASES(HostileGgufKey, key_cases());
HOSTILE_CASES(HostileGgufValue, value_cases());
HOSTILE_CASES(HostileGgufAlignment, alignment_cases());

}  // namespace
}  // namespace kvtide::testing
