// What saving and loading a KV state costs, as a share of plainly writing and reading as many bytes.
//
//   bench_state_snapshot [folder] [JSON file] [MiB]
//
// Takes turns: plain write and fsync, save, plain read, load; the latter two once with the file in the page
// cache and once after asking the system to forget it. The plain read goes into memory that was never
// touched, as the rows of a loaded state do.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "base/buffer.h"
#include "base/file.h"
#include "bench/live_state.h"
#include "bench/report.h"
#include "kvtide/error.h"
#include "state/snapshot.h"

namespace {

using namespace kvtide;
using namespace kvtide::bench;

constexpr std::size_t kCall = std::size_t{1} << 20;

void plain_write(const std::string& path, std::span<const std::byte> bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) throw Error(ErrorCode::io, path + ": cannot be written");
  for (std::size_t at = 0; at < bytes.size();) {
    const auto wrote = ::write(fd, bytes.data() + at, std::min(kCall, bytes.size() - at));
    if (wrote <= 0) throw Error(ErrorCode::io, path + ": cannot be written");
    at += static_cast<std::size_t>(wrote);
  }
  if (::fsync(fd) != 0 || ::close(fd) != 0) throw Error(ErrorCode::io, path + ": cannot be written");
}

void plain_read(const std::string& path, std::size_t size) {
  const Buffer memory(size);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  std::size_t at = 0;
  while (at < size) {
    const auto got = ::read(fd, const_cast<std::byte*>(memory.data()) + at, std::min(kCall, size - at));
    if (got <= 0) break;
    at += static_cast<std::size_t>(got);
  }
  ::close(fd);
  if (at < size) throw Error(ErrorCode::io, path + ": cannot be read");
}

void forget(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ::fsync(fd);
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  ::close(fd);
}

double best(const std::vector<double>& times) { return *std::min_element(times.begin(), times.end()); }

int run(const std::string& folder, const char* json, std::int64_t mib) {
  constexpr int kRounds = 6;
  const std::int64_t tokens = (mib << 20) / kTokenBytes;
  KvState state = smollm2_state(tokens);
  fill(state, tokens);
  const std::string path = folder + "/bench-state.kv", plain = folder + "/bench-plain.bin";
  PosixFiles files;
  save_snapshot(files, path, state, {});
  const FileReader sizes(files, path);
  const auto size = static_cast<std::size_t>(sizes.size());
  Buffer bytes(size);
  std::memset(bytes.data(), 5, size);
  plain_write(plain, {bytes.data(), size});

  std::vector<double> writes, saves, overwrites, reads, loads, cold_reads, cold_loads;
  const auto load = [&] { load_snapshot(files, path); };
  const std::string new_path = path + ".new", new_plain = plain + ".new";
  for (int round = 0; round < kRounds; ++round) {
    const auto in_turn = [&](const auto& one, const auto& other) {
      if (round % 2 == 0) one();
      other();
      if (round % 2 == 1) one();
    };
    in_turn(
        [&] {
          writes.push_back(seconds([&] { plain_write(new_plain, {bytes.data(), size}); }));
          ::unlink(new_plain.c_str());
        },
        [&] {
          saves.push_back(seconds([&] { save_snapshot(files, new_path, state, {}); }));
          ::unlink(new_path.c_str());
        });
    overwrites.push_back(seconds([&] { save_snapshot(files, path, state, {}); }));
    in_turn([&] { reads.push_back(seconds([&] { plain_read(plain, size); })); },
            [&] { loads.push_back(seconds(load)); });
    forget(plain);
    forget(path);
    in_turn([&] { cold_reads.push_back(seconds([&] { plain_read(plain, size); })); },
            [&] { cold_loads.push_back(seconds(load)); });
  }
  ::unlink(plain.c_str());
  ::unlink(path.c_str());

  Report report("a snapshot of " + std::to_string(size >> 20) + " MiB");
  const auto mib_per_second = [&](const std::vector<double>& times) {
    return static_cast<double>(size) / (1 << 20) / best(times);
  };
  report.add("plain write and fsync", mib_per_second(writes), "MiB/s");
  report.add("save", mib_per_second(saves), "MiB/s");
  report.at_least("  of the plain write", 100 * best(writes) / best(saves), "%", 80);
  report.add("save over an older snapshot", mib_per_second(overwrites), "MiB/s");
  report.add("plain read, from the disk", mib_per_second(cold_reads), "MiB/s");
  report.add("load, from the disk", mib_per_second(cold_loads), "MiB/s");
  report.at_least("  of the plain read", 100 * best(cold_reads) / best(cold_loads), "%", 80);
  report.add("plain read, from the page cache", mib_per_second(reads), "MiB/s");
  report.add("load, from the page cache", mib_per_second(loads), "MiB/s");
  report.at_least("  of the plain read", 100 * best(reads) / best(loads), "%", 80);
  return report.print(json);
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t mib = argc > 3 ? std::atoll(argv[3]) : 1024;
  try {
    return run(argc > 1 ? argv[1] : ".", argc > 2 ? argv[2] : nullptr, std::max<std::int64_t>(1, mib));
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
