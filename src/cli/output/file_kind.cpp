#include "cli/output/file_kind.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>

#include "base/text.h"
#include "cli/output/output_file.h"
#include "kvtide/error.h"
#include "state/snapshot_format.h"

namespace kvtide {
namespace {

struct FileKind {
  std::string_view name;     // "a GGUF model", "an HTML page"; empty: nothing is known of it
  std::string_view instead;  // what helps where a model was wanted
};

constexpr std::size_t kLookedAt = 512;
constexpr std::string_view kSnapshotName = "a kvtide snapshot", kGgufName = "a GGUF model";
constexpr std::string_view kOtherVersion = "the GGUF or safetensors version of this model is needed";
constexpr std::string_view kSnapshotStart(snapshot_format::kMagic, 8);

// The beginning of a regular file; empty where there is none to read.
std::string first_bytes(const std::string& path) {
  std::string bytes(kLookedAt, '\0');
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat info {};
  ssize_t got = 0;
  if (file >= 0 && ::fstat(file, &info) == 0 && S_ISREG(info.st_mode))
    got = ::pread(file, bytes.data(), bytes.size(), 0);
  if (file >= 0) ::close(file);
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return bytes;
}

bool is_html(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  text.erase(0, std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  return text.starts_with("<!doctype html") || text.starts_with("<html");
}

// The length of its JSON header comes first.
bool is_safetensors(std::string_view bytes) {
  constexpr std::uint64_t kLongestHeader = std::uint64_t{100} << 20;
  std::uint64_t header = 0;
  if (bytes.size() <= sizeof header) return false;
  std::memcpy(&header, bytes.data(), sizeof header);
  return header > 1 && header <= kLongestHeader && bytes[sizeof header] == '{';
}

bool is_text(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](unsigned char c) {
    return c >= 0x20 || c == '\n' || c == '\r' || c == '\t' || c == '\f';
  });
}

constexpr struct {
  std::string_view start;
  FileKind kind;
} kStarts[] = {
    {kSnapshotStart,
     {kSnapshotName, "--load-state goes on from it, and -m takes the model that it was made with"}},
    {"GGUF", {kGgufName, ""}},
    {"version https://git-lfs.github.com/spec",
     {"a git-lfs pointer, not what it points to", "`git lfs pull` fetches the model itself"}},
    {"PK\3\4", {"a ZIP archive, such as PyTorch writes", kOtherVersion}},
    {"\x80\2", {"a Python pickle, such as PyTorch writes", kOtherVersion}},
    {"\x1f\x8b", {"a gzip archive", "unpack it first"}},
    {"\x93NUMPY", {"a NumPy array", "-m takes a GGUF file or a folder with safetensors"}},
    {"tjgg", {"a model in a format older than GGUF", kOtherVersion}},
    {"lmgg", {"a model in a format older than GGUF", kOtherVersion}},
    {"{", {"a JSON file", "-m takes the folder that config.json lies in"}},
};

FileKind kind_of(const std::string& bytes) {
  for (const auto& [start, kind] : kStarts)
    if (std::string_view(bytes).starts_with(start)) return kind;
  if (is_html(bytes))
    return {"an HTML page", "a download may have failed; fetch the file itself, not the page about it"};
  if (is_safetensors(bytes))
    return {"a safetensors file", "-m takes its folder, with config.json and tokenizer.json in it"};
  if (!bytes.empty() && is_text(bytes))
    return {"a text", "-m takes a GGUF file, or a folder with config.json, tokenizer.json and safetensors"};
  return {};
}

bool has_bytes(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && info.st_size > 0;
}

}  // namespace

void check_snapshot_place(const std::string& path) {
  OutputFile::check_replaceable(path);
  const std::string bytes = first_bytes(path);
  if (bytes.starts_with(kSnapshotStart) || !has_bytes(path)) return;
  const FileKind kind = kind_of(bytes);
  throw Error(
      ErrorCode::bad_format,
      cat(path, ": is ", kind.name.empty() ? "a file of another kind" : kind.name,
          ", which a snapshot would replace; nothing was read: give the snapshot another name, or remove "
          "that file"));
}

void check_is_model(const std::string& path) {
  const FileKind kind = kind_of(first_bytes(path));
  if (!kind.name.empty() && kind.name != kGgufName)
    throw Error(ErrorCode::bad_format, cat(path, ": is ", kind.name, ", not a model; ", kind.instead));
}

void check_is_snapshot(const std::string& path) {
  const FileKind kind = kind_of(first_bytes(path));
  if (!kind.name.empty() && kind.name != kSnapshotName)
    throw Error(ErrorCode::bad_format,
                cat(path, ": is ", kind.name, ", not a snapshot; --save-state makes one"));
}

}  // namespace kvtide
