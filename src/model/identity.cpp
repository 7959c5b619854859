#include "model/identity.h"

#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <span>

#include "base/checksum.h"
#include "base/file.h"
#include "base/mapped_file.h"
#include "base/text.h"
#include "kvtide/error.h"
#include "model/loaded_model.h"

namespace kvtide {
namespace {

constexpr std::size_t kHexDigits = 64;

std::string hash_file(const std::string& path) {
  const MappedFile file(path);
  Sha256 hash;
  // Slice by slice, so that the pages read do not pile up in the resident set.
  constexpr std::size_t kSlice = std::size_t{4} << 20;
  for (std::size_t at = 0; at < file.bytes().size(); at += kSlice) {
    const std::size_t size = std::min(kSlice, file.bytes().size() - at);
    hash.add(file.bytes().subspan(at, size));
    file.release(at, size);
  }
  return hex(hash.finish());
}

std::string cache_name(const std::string& path, const std::string& cache) {
  struct stat info {};
  if (cache.empty() || ::stat(path.c_str(), &info) != 0) return "";
  return cat(cache, "/", info.st_dev, "-", info.st_ino, "-", info.st_size, "-", info.st_mtim.tv_sec, ".",
             info.st_mtim.tv_nsec, ".sha256");
}

std::string cached_hash(const std::string& path, const std::string& cache) {
  const std::string name = cache_name(path, cache);
  PosixFiles files;
  if (!name.empty()) {
    try {
      FileReader reader(files, name);
      std::string text(kHexDigits, ' ');
      if (reader.size() == kHexDigits) {
        reader.read(std::as_writable_bytes(std::span(text)));
        if (text.find_first_not_of("0123456789abcdef") == std::string::npos) return text;
      }
    } catch (const Error&) {  // not there yet
    }
  }
  std::string hash = hash_file(path);
  if (!name.empty()) {
    try {
      const std::span<const std::byte> pieces[] = {std::as_bytes(std::span(hash))};
      save_file(files, name, pieces);
    } catch (const Error&) {  // a cache that cannot be kept only costs time
    }
  }
  return hash;
}

std::string hash_vocabulary(const Tokenizer& tokenizer) {
  Sha256 hash;
  for (std::size_t id = 0; id < tokenizer.size(); ++id) {
    const std::string piece = tokenizer.piece(static_cast<TokenId>(id), true);
    const std::uint64_t length = piece.size();
    hash.add(std::as_bytes(std::span(&length, 1)));
    hash.add(std::as_bytes(std::span(piece)));
  }
  return hex(hash.finish());
}

std::string hash_files(const std::vector<std::string>& files, const std::string& cache) {
  if (files.size() == 1) return cached_hash(files[0], cache);
  // Of several files: the hash of their hashes, each behind its bare name.
  Sha256 hash;
  for (const std::string& file : files) {
    const std::string line = cat(file.substr(file.rfind('/') + 1), " ", cached_hash(file, cache), "\n");
    hash.add(std::as_bytes(std::span(line)));
  }
  return hex(hash.finish());
}

}  // namespace

std::map<std::string, std::string> model_identity(const Model& model, const std::string& cache) {
  const LoadedModel& loaded = model.internals();
  const ModelHashes::Values* hashes = loaded.hashes.get();
  if (hashes == nullptr)
    hashes = &loaded.hashes.set(std::make_unique<ModelHashes::Values>(
        ModelHashes::Values{hash_files(loaded.files, cache), hash_vocabulary(*loaded.tokenizer)}));
  return {{"architecture", loaded.config.architecture},
          {"model", hashes->model},
          {"tokenizer", hashes->vocabulary}};
}

std::map<std::string, std::string> model_identity(const Checkpoint& checkpoint, const Tokenizer& tokenizer) {
  return {{"architecture", checkpoint.config().architecture},
          {"model", hash_files(checkpoint.files(), "")},
          {"tokenizer", hash_vocabulary(tokenizer)}};
}

}  // namespace kvtide
