// Bad first bytes and bad counts.
#include "tests/hostile/hostile_case.h"

namespace kvtide::testing {
namespace {

using Kind = GgufFieldKind;

std::function<Bytes()> text(std::string start) {
  return [=] {
    Bytes bytes;
    append(bytes, start);
    bytes.resize(64, std::byte{' '});
    return bytes;
  };
}

std::function<Bytes()> first_bytes(std::size_t count) {
  return [=] { return every_type_file().cut(count).bytes; };
}

std::vector<HostileCase> header_cases() {
  constexpr auto kBad = ErrorCode::bad_format;
  constexpr auto kUnsupported = ErrorCode::unsupported;
  std::vector<HostileCase> cases = {
      {"NoBytes", [] { return Bytes(); }, kBad,
       "the magic word 'GGUF' needs 4 bytes at byte 0, but the file ends at byte 0"},
      {"OneByte", first_bytes(1), kBad, "the file ends at byte 1"},
      {"HalfTheMagic", first_bytes(3), kBad, "the file ends at byte 3"},
      {"MagicOnly", first_bytes(4), kBad, "the version needs 4 bytes at byte 4, but the file ends at byte 4"},
      {"HalfTheVersion", first_bytes(6), kBad, "the version needs 4 bytes"},
      {"EndsAfterTheVersion", first_bytes(8), kBad, "the number of tensors needs 8 bytes"},
      {"EndsAfterTheTensorCount", first_bytes(16), kBad, "the number of metadata keys needs 8 bytes"},
      {"EndsAfterTheHeader", first_bytes(24), kBad, "declares 27 metadata keys"},
      {"AllZeros", [] { return Bytes(64); }, kBad, "instead of 'GGUF'"},
      {"AllOnes", [] { return Bytes(64, std::byte{0xff}); }, kBad, "instead of 'GGUF'"},
      {"MagicInLowerCase", text("gguf"), kBad, "starts with 'gguf' instead of 'GGUF'"},
      {"MagicReversed", text("FUGG"), kBad, "starts with 'FUGG'"},
      {"MagicAfterABlank", text(" GGUF"), kBad, "instead of 'GGUF'"},
      {"OldGgml", text("lmgg"), kBad, "older GGML file, which must be converted to GGUF"},
      {"OldGgjt", text("tjgg"), kBad, "older GGML file"},
      {"OldGgmf", text("fmgg"), kBad, "older GGML file"},
      {"OldGgla", text("algg"), kBad, "older GGML file"},
      {"ZipArchive", text("PK\x03\x04"), kBad, "a zip archive"},
      {"GitLfsPointer", text("version https://git-lfs.github.com/spec/v1"), kBad, "git lfs pull"},
      {"WebPage", text("<!DOCTYPE html>"), kBad, "a web page"},
      {"Safetensors", text(std::string("\x40\0\0\0\0\0\0\0{\"a\":", 13)), kBad, "a safetensors file"},
      {"ControlCharactersForMagic", text("\x1b[2J"), kBad, "starts with '\\x1b[2J'"},
      {"VersionIsZero", with(Kind::version, "", 0u), kUnsupported,
       "GGUF version 0; versions 2 and 3 are read"},
      {"VersionIsOne", with(Kind::version, "", 1u), kUnsupported, "GGUF version 1"},
      {"VersionIsFour", with(Kind::version, "", 4u), kUnsupported, "GGUF version 4"},
      {"VersionIsTheLargest", with(Kind::version, "", ~0u), kUnsupported, "GGUF version 4294967295"},
      {"BigEndianVersion3", with(Kind::version, "", 3u << 24), kUnsupported,
       "a big-endian GGUF file (version 3)"},
      {"BigEndianVersion2", with(Kind::version, "", 2u << 24), kUnsupported,
       "a big-endian GGUF file (version 2)"},
      {"OneTensorTooMany", with(Kind::tensor_count, "", std::uint64_t{15}), kBad,
       "tensor 15 of 15: the name is empty"},
      {"OneKeyTooMany", with(Kind::key_count, "", std::uint64_t{28}), kBad, "tensor 1 of 14: the name is "},
      {"OneKeyTooFew", with(Kind::key_count, "", std::uint64_t{26}), kBad, "tensor 'b.strings'"},
      {"NoKeysDeclared", with(Kind::key_count, "", std::uint64_t{0}), kBad, "tensor 'general.architecture'"},
      {"TensorsAtTheLimitInASmallFile", with(Kind::tensor_count, "", std::uint64_t{65536}), kBad,
       "declares 65536 tensors of at least 33 bytes each"},
      {"KeysAtTheLimitInASmallFile", with(Kind::key_count, "", std::uint64_t{65536}), kBad,
       "declares 65536 metadata keys of at least 14 bytes each"},
      {"TensorsAboveTheLimit", with(Kind::tensor_count, "", std::uint64_t{65537}), kBad,
       "declares 65537 tensors; at most 65536 are allowed"},
      {"KeysAboveTheLimit", with(Kind::key_count, "", std::uint64_t{65537}), kBad,
       "declares 65537 metadata keys; at most 65536 are allowed"},
  };
  for (const Extreme& extreme : kExtremes) {
    cases.push_back({std::string("TensorCountIs") + extreme.name, with(Kind::tensor_count, "", extreme.value),
                     kBad,
                     "declares " + std::to_string(extreme.value) + " tensors; at most 65536 are allowed"});
    cases.push_back(
        {std::string("KeyCountIs") + extreme.name, with(Kind::key_count, "", extreme.value), kBad,
         "declares " + std::to_string(extreme.value) + " metadata keys; at most 65536 are allowed"});
  }
  return cases;
}

HOSTILE_CASES(HostileGgufHeader, header_cases());

}  // namespace
}  // namespace kvtide::testing
