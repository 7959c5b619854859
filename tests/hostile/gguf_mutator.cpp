#include "tests/hostile/gguf_mutator.h"

#include <algorithm>

namespace kvtide::testing {
namespace {

using Kind = GgufFieldKind;

const std::vector<Kind> kHeader = {Kind::magic, Kind::version, Kind::tensor_count, Kind::key_count};
const std::vector<Kind> kMetadata = {Kind::key_length,   Kind::key,          Kind::value_type,
                                     Kind::element_type, Kind::array_length, Kind::string_length,
                                     Kind::string,       Kind::value};
const std::vector<Kind> kTensors = {Kind::name_length, Kind::name,        Kind::dimensions,
                                    Kind::dimension,   Kind::tensor_type, Kind::tensor_offset};

constexpr std::uint64_t kInteresting[] = {0,           1,          2,          3,          4,
                                          7,           8,          9,          12,         13,
                                          16,          31,         32,         33,         63,
                                          64,          65,         255,        256,        4095,
                                          4096,        65535,      65536,      65537,      1u << 24,
                                          0x7fffffff,  0x80000000, 0xffffffff, 1ull << 32, (1ull << 42) + 1,
                                          1ull << 61,  1ull << 62, ~0ull >> 1, 1ull << 63, ~0ull - 63u,
                                          ~0ull - 31u, ~0ull - 7u, ~0ull};

std::uint64_t load(const GgufImage& image, const GgufField& field) {
  std::uint64_t value = 0;
  std::memcpy(&value, image.bytes.data() + field.offset, std::min<std::size_t>(field.size, 8));
  return value;
}

bool is_number(const GgufField& field) {
  return field.kind != Kind::key && field.kind != Kind::string && field.kind != Kind::name &&
         field.kind != Kind::data && field.kind != Kind::padding && field.kind != Kind::magic &&
         (field.size == 1 || field.size == 2 || field.size == 4 || field.size == 8);
}

}  // namespace

// splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014)
std::uint64_t GgufMutator::next() {
  state_ += 0x9e3779b97f4a7c15;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

std::size_t GgufMutator::below(std::size_t count) { return static_cast<std::size_t>(next() % count); }

std::uint64_t GgufMutator::number(std::uint64_t is) {
  switch (below(8)) {
    case 0:
      return is + 1;
    case 1:
      return is - 1;
    case 2:
      return is * 2;
    case 3:
      return is ^ (std::uint64_t{1} << below(64));
    case 4:
      return next() >> below(64);
    default:
      return kInteresting[below(std::size(kInteresting))];
  }
}

void GgufMutator::change_field(GgufImage& image, const GgufField& field) {
  if (field.size == 0) return;
  if (is_number(field)) {
    const std::uint64_t value = number(load(image, field));
    std::memcpy(image.bytes.data() + field.offset, &value, field.size);
    return;
  }
  const std::size_t at = field.offset + below(field.size);
  image.bytes[at] = below(2) == 0 ? image.bytes[at] ^ std::byte{static_cast<std::uint8_t>(1u << below(8))}
                                  : std::byte{static_cast<std::uint8_t>(next())};
}

void GgufMutator::change_one_of(GgufImage& image, const std::vector<GgufFieldKind>& kinds) {
  std::vector<const GgufField*> fields;
  for (const GgufField& field : image.fields)
    if (std::ranges::find(kinds, field.kind) != kinds.end()) fields.push_back(&field);
  change_field(image, *fields[below(fields.size())]);
}

// Two fields that must agree, a field copied over another, a run of bytes doubled or removed.
void GgufMutator::change_across_fields(GgufImage& image) {
  const GgufField& a = image.fields[below(image.fields.size())];
  const GgufField& b = image.fields[below(image.fields.size())];
  const auto at = [&](std::size_t offset) {
    return image.bytes.begin() + static_cast<std::ptrdiff_t>(offset);
  };
  switch (below(4)) {
    case 0: {
      const Bytes copy(at(a.offset), at(a.offset + std::min(a.size, b.size)));
      std::ranges::copy(copy, at(b.offset));
      return;
    }
    case 1: {
      const Bytes copy(at(a.offset), at(a.offset + a.size));
      image.bytes.insert(at(a.offset), copy.begin(), copy.end());
      return;
    }
    case 2:
      image.bytes.erase(at(a.offset), at(a.offset + a.size));
      return;
    default: {
      // A count and a length that lie together: more keys or tensors, and a string to swallow the rest.
      change_one_of(image, {Kind::key_count, Kind::tensor_count});
      change_one_of(image, {Kind::array_length, Kind::string_length, Kind::key_length, Kind::name_length});
      return;
    }
  }
}

void GgufMutator::change_alignment(GgufImage& image) {
  const GgufField& field = image.field(Kind::value, "general.alignment");
  const auto value = static_cast<std::uint32_t>(below(2) == 0 ? std::uint64_t{1} << below(32) : number(64));
  image.put(field, value);
}

void GgufMutator::change_data(GgufImage& image) {
  if (below(2) == 0)
    image.cut(below(image.bytes.size() + 1));
  else
    change_one_of(image, {Kind::data, Kind::padding});
}

Bytes GgufMutator::mutate(const GgufImage& image) {
  GgufImage mutant = image;
  for (std::size_t changes = 1 + below(3); changes > 0; --changes) {
    const std::size_t percent = below(100);
    if (percent < 35) {
      change_one_of(mutant, kMetadata);
    } else if (percent < 70) {
      change_one_of(mutant, kTensors);
    } else if (percent < 80) {
      change_one_of(mutant, kHeader);
    } else if (percent < 85) {
      change_alignment(mutant);
    } else if (percent < 95) {
      change_across_fields(mutant);
      break;  // fields may have moved: what is known about them is no longer true
    } else {
      change_data(mutant);
      break;
    }
  }
  return mutant.bytes;
}

}  // namespace kvtide::testing
