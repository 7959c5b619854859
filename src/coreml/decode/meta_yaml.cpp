#include "coreml/decode/meta_yaml.h"

#include <charconv>
#include <filesystem>
#include <map>
#include <optional>

#include "base/text.h"
#include "formats/text_file.h"
#include "kvtide/error.h"

namespace kvtide::coreml {
namespace meta_yaml_details {

namespace fs = std::filesystem;
using Fields = std::map<std::string, std::string>;

std::string trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const auto first = text.find_first_not_of(kBlanks);
  if (first == text.npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(kBlanks) - first + 1));
}

std::string unquoted(std::string text) {
  const bool quoted =
      text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front();
  return quoted ? text.substr(1, text.size() - 2) : text;
}

// A text over several lines follows: "description: |".
bool opens_text(const std::string& value) {
  return !value.empty() && (value[0] == '|' || value[0] == '>') &&
         value.find_first_not_of("|>+-0123456789") == value.npos;
}

Fields fields_of(const std::string& text, const std::string& path) {
  Fields fields;
  std::size_t number = 0;
  constexpr std::size_t kNone = std::string::npos;
  std::size_t text_of =
      kNone;  // how far the key of a text over several lines is indented; the text is further
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view whole = std::string_view(text).substr(at, end - at);
    const std::string line = trimmed(whole);
    const std::size_t indent = std::min(whole.find_first_not_of(' '), whole.size());
    at = end + 1;
    ++number;
    if (text_of != kNone && (line.empty() || indent > text_of)) continue;
    text_of = kNone;
    if (line.empty() || line[0] == '#' || line == "---" || line[0] == '-') continue;
    const std::size_t colon = line.find(':');
    if (colon == 0 || colon == line.npos)
      throw Error(ErrorCode::bad_format, cat(path, ": line ", number, " is not `key: value`"));
    std::string value = trimmed(std::string_view(line).substr(colon + 1));
    if (value.empty() || value[0] != '"')
      if (const auto comment = value.find(" #"); comment != value.npos)
        value = trimmed(value.substr(0, comment));
    if (opens_text(value)) text_of = indent;
    fields.emplace(trimmed(line.substr(0, colon)), unquoted(std::move(value)));
  }
  return fields;
}

constexpr std::int64_t kMostChunks = 4096, kMostTokens = std::int64_t{1} << 24;

std::int64_t count_in(const std::string& text, const std::string& key, std::int64_t most,
                      const std::string& path) {
  std::int64_t count = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), count);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size() || count < 1 || count > most)
    throw Error(ErrorCode::bad_format,
                cat(path, ": ", key, " must be a whole number from 1 to ", most, ", not ", quoted(text)));
  return count;
}

std::int64_t count_of(const Fields& fields, const std::string& key, std::int64_t otherwise, std::int64_t most,
                      const std::string& path) {
  const auto found = fields.find(key);
  return found == fields.end() ? otherwise : count_in(found->second, key, most, path);
}

// "[9496, 9496]" or "9496,9496"; empty: not said, or a list over several lines.
std::vector<std::int64_t> counts_of(const Fields& fields, const std::string& key, const std::string& path) {
  std::vector<std::int64_t> counts;
  std::int64_t sum = 0;
  const auto found = fields.find(key);
  std::string text = found == fields.end() ? "" : found->second;
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    counts.push_back(count_in(trimmed(std::string_view(text).substr(at, end - at)), key, kMostTokens, path));
    sum += counts.back();
    if (sum > kMostTokens)
      throw Error(ErrorCode::bad_format, cat(path, ": ", key, " are ", kMostTokens, " together at most"));
    if (std::ssize(counts) > kMostChunks)
      throw Error(ErrorCode::bad_format, cat(path, ": ", key, " has more than ", kMostChunks, " numbers"));
    at = end + 1;
  }
  return counts;
}

std::string two_digits(std::int64_t number) { return cat(number < 10 ? "0" : "", number); }

std::string chunk_mark(std::int64_t chunk, std::int64_t chunks) {
  return cat("_chunk_", two_digits(chunk), "of", two_digits(chunks));
}

fs::path numbered(const fs::path& file, std::int64_t chunk, std::int64_t chunks) {
  return file.parent_path() / (file.stem().string() + chunk_mark(chunk, chunks) + file.extension().string());
}

// The file itself, or the package that it was compiled from, or the other way round; empty: none of them is there.
std::string package_at(const fs::path& file) {
  for (const char* suffix : {"", ".mlmodelc", ".mlpackage"}) {
    fs::path candidate = file;
    if (*suffix != '\0') candidate.replace_extension(suffix);
    if (fs::exists(candidate)) return candidate.string();
  }
  return "";
}

std::string package_beside(const std::string& meta, const std::string& name) {
  const fs::path inner = fs::path(name).lexically_normal();
  if (inner.is_absolute() || inner.empty() || *inner.begin() == "..")
    throw Error(ErrorCode::bad_format, cat(meta, ": ", quoted(name), " leaves the folder"));
  const fs::path file = fs::path(meta).parent_path() / inner;
  if (std::string found = package_at(file); !found.empty()) return found;
  // Of a single chunk some versions leave its number out.
  if (std::string found = package_at(numbered(file, 1, 1)); !found.empty()) return found;
  throw Error(ErrorCode::not_found, cat(meta, " names ", quoted(name), ", which is not beside it"));
}

std::string required(const Fields& fields, const std::string& key, const std::string& path) {
  const auto found = fields.find(key);
  if (found == fields.end() || found->second.empty())
    throw Error(ErrorCode::bad_format, cat(path, ": the key ", quoted(key), " is missing"));
  return found->second;
}

// "x_chunk_01of03.mlmodelc" names the first; the others differ in their number.
std::vector<std::string> chunk_names(const std::string& first, std::int64_t count) {
  const std::string mark = chunk_mark(1, count);
  const std::size_t at = first.find(mark);
  if (count == 1) return {first};
  std::vector<std::string> names;
  for (std::int64_t i = 1; i <= count; ++i)
    names.push_back(at == first.npos
                        ? numbered(first, i, count).string()
                        : first.substr(0, at) + chunk_mark(i, count) + first.substr(at + mark.size()));
  return names;
}

}  // namespace meta_yaml_details

MetaYaml read_meta_yaml(const std::string& path) {
  using namespace meta_yaml_details;
  const Fields fields = fields_of(read_whole_text(path), path);
  if (const auto one = fields.find("monolithic_model"); one != fields.end())
    throw Error(ErrorCode::unsupported,
                cat(path, ": the model is one package: give ", quoted(one->second), " itself"));
  MetaYaml meta;
  meta.embeddings = package_beside(path, required(fields, "embeddings", path));
  meta.head = package_beside(path, required(fields, "lm_head", path));
  const std::int64_t count = count_of(fields, "num_chunks", 1, kMostChunks, path);
  meta.vocabulary = {count_of(fields, "vocab_size", 0, kMostTokens, path),
                     counts_of(fields, "lm_head_chunk_sizes", path)};
  for (const std::string& name : chunk_names(required(fields, "ffn", path), count))
    meta.chunks.push_back(package_beside(path, name));
  return meta;
}

}  // namespace kvtide::coreml
