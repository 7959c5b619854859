#include "model/packed_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/folder_names.h"
#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr std::string_view kPacked = ".packed", kChecked = ".checked", kUnfinished = ".packed.tmp";
constexpr std::size_t kLongestName = 40;
// Of the disk: a cache must not be what fills it.
constexpr std::int64_t kLeftFree = std::int64_t{1} << 30;

std::string note_text(FileSystem& files, const std::string& path) {
  try {
    FileReader reader(files, path);
    std::string text(std::min<std::uint64_t>(reader.size(), 128), ' ');
    reader.read(std::as_writable_bytes(std::span(text)));
    return text;
  } catch (const Error&) {
    return "";
  }
}

std::string file_name_of(std::string_view name) {
  std::string out;
  for (const char c : name.substr(0, kLongestName))
    out += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' ? c : '-';
  return out;
}

std::string mebibytes(std::int64_t bytes) { return cat((bytes + (1 << 20) - 1) >> 20, " MiB"); }

struct Kept {
  std::string path;
  timespec used;
  std::int64_t bytes;
};

std::vector<Kept> kept_in(const std::string& folder) {
  std::vector<Kept> kept;
  for (const std::string& name : names_in(folder)) {
    struct stat info {};
    const std::string path = cat(folder, "/", name);
    if (name.ends_with(kPacked) && ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode))
      kept.push_back({path, info.st_atim, info.st_size});
  }
  std::sort(kept.begin(), kept.end(), [](const Kept& a, const Kept& b) {
    return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
  });
  return kept;
}

}  // namespace

std::string PackedFolder::place_of(const std::string& model, std::string_view kernels) const {
  std::error_code failure;
  std::filesystem::path whole = std::filesystem::canonical(model, failure);
  if (failure) whole = model;
  Sha256 hash;
  hash.add(std::as_bytes(std::span(whole.native())));
  constexpr std::size_t kDigits = 16;
  return cat(folder_, "/", file_name_of(whole.filename().native()), "-",
             hex(hash.finish()).substr(0, kDigits), "-", kernels, kPacked);
}

std::string PackedFolder::note_of(const std::string& file) const {
  struct stat info {};
  if (folder_.empty() || ::stat(file.c_str(), &info) != 0) return "";
  return cat(folder_, "/", info.st_dev, "-", info.st_ino, "-", info.st_size, "-", info.st_mtim.tv_sec, ".",
             info.st_mtim.tv_nsec, kChecked);
}

bool PackedFolder::was_checked(const std::string& file) const {
  const std::string note = note_of(file);
  return !note.empty() && !boot_.empty() && note_text(files_, note) == boot_;
}

void PackedFolder::set_checked(const std::string& file) const noexcept {
  try {
    const std::string note = note_of(file);
    if (note.empty() || boot_.empty()) return;
    std::error_code ignored;
    std::filesystem::create_directories(folder_, ignored);
    save_file_in_parts(
        files_, note, [&](const FileSink& write) { write(std::as_bytes(std::span(boot_))); }, Flush::later);
  } catch (const std::exception&) {  // then the next start looks again
  }
}

void PackedFolder::touch(const std::string& file) const noexcept {
  const timespec times[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
  ::utimensat(AT_FDCWD, file.c_str(), times, 0);
}

void PackedFolder::remove_old_notes() const {
  for (const std::string& name : names_in(folder_)) {
    const std::string path = cat(folder_, "/", name);
    if (name.ends_with(kChecked) && note_text(files_, path) != boot_) files_.unlink(path.c_str());
    if (const std::size_t end = name.find(kUnfinished); end != name.npos)
      files_.remove_leftovers(cat(folder_, "/", name.substr(0, end), kPacked));
  }
}

std::string PackedFolder::make_room(const std::string& place, std::int64_t bytes, std::int64_t limit) const {
  if (bytes > limit)
    return cat("they take ", mebibytes(bytes), ", and the limit of the cache is ", mebibytes(limit));
  std::error_code failure;
  std::filesystem::create_directories(folder_, failure);
  if (failure) return cat(folder_, ": cannot make the folder: ", failure.message());
  remove_old_notes();
  const std::vector<Kept> kept = kept_in(folder_);
  std::int64_t held = bytes;
  for (const Kept& file : kept)
    if (file.path != place) held += file.bytes;
  for (const Kept& file : kept) {
    if (held <= limit) break;
    if (file.path == place || files_.unlink(file.path.c_str()) != 0) continue;
    held -= file.bytes;
  }
  struct statvfs disk {};
  if (::statvfs(folder_.c_str(), &disk) == 0) {
    const auto free = static_cast<std::int64_t>(disk.f_bavail * disk.f_frsize);
    if (free < bytes + kLeftFree)
      return cat("they take ", mebibytes(bytes), ", and ", folder_, " is on a disk with ", mebibytes(free),
                 " free, of which 1024 MiB are left");
  }
  return "";
}

}  // namespace kvtide
