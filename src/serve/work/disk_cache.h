// disk_cache.h: prefixes on the disk: snapshots of states, which survive the process.
//
// What an answer left is written behind its end, by a thread of its own; what a prompt begins with is read by another. A
// file that is damaged, foreign or stale is removed, told in one line, and spares nothing: it is never an error.
// The folder belongs to one process at a time. Its files together never exceed a number of bytes.
// Ownership: owns its threads; refers to the models. Thread rules: from any thread; `state` and `like` belong to the caller
// while a call lasts. Without start() everything is done at once.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "kvtide/model.h"
#include "kvtide/state.h"
#include "serve/work/deadline_files.h"
#include "serve/work/disk_index.h"
#include "serve/work/state_bytes.h"
#include "serve/work/worker.h"

namespace kvtide::serve {

struct DiskOptions {
  std::string folder;
  std::int64_t most_bytes = std::int64_t{4} << 30;
  std::string version;  // of the program; what another one wrote is stale
  bool exact = false;   // as WorkOptions::exact
  std::function<void(const std::string&)> log;
};

// A state on its way from the disk.
struct DiskRead {
  explicit DiskRead(DiskEntry of) : entry(std::move(of)) {}

  const DiskEntry entry;
  bool begun = false;
  std::atomic<bool> done{false};
  std::optional<State> state;  // when done; nullopt: there was nothing of use
};

struct DiskFigures {
  std::int64_t states = 0, bytes = 0;
  std::int64_t hits = 0, written = 0, broken = 0;  // since the start
};

class DiskCache {
 public:
  // Takes the folder and looks at what is there, without reading rows. Throws Error: io (no folder, or another process has
  // it), not_found (a model's file).
  DiskCache(const std::vector<const Model*>& models, DiskOptions options,
            std::unique_ptr<FileSystem> files = {});
  ~DiskCache();
  DiskCache(const DiskCache&) = delete;
  DiskCache& operator=(const DiskCache&) = delete;

  void start();
  void stop();  // when all that is queued is done, or the time of save_until has come
  // Writing ends then, whatever is left.
  void save_until(std::chrono::steady_clock::time_point end);

  // Whether files spare all of the state but a few tokens.
  bool holds(const Model& model, const State& state) const;
  // Writes a fork of the state, unless a file spares nearly as much. whole: unless it spares all but a few tokens.
  void write(const Model& model, const State& state, bool whole = false);
  // What spares clearly more of the prompt than `known` tokens; nullptr: nothing does. fetch reads it.
  std::shared_ptr<DiskRead> find(const Model& model, std::span<const TokenId> prompt, const State& like,
                                 std::int64_t known);
  void fetch(const std::shared_ptr<DiskRead>& read);
  // States that are still to be written hold memory.
  void add_to(StateBytes& bytes) const;
  bool writes() const;

  DiskFigures figures() const;

 private:
  struct Pending {
    DiskEntry entry;
    State state;
    bool begun = false;
  };

  void take_folder();
  void scan();
  std::string why_not(DiskEntry& entry);
  void write_one();
  void make_room(std::int64_t bytes);
  std::optional<State> load(const DiskEntry& entry);
  void discard(const std::string& file, const std::string& why);
  void say(const std::string& line) const;
  std::string path(const std::string& file) const;
  std::int64_t spared(const std::string& model, std::span<const TokenId> text, const MemoryKind& kind) const;

  DiskOptions options_;
  DeadlineFiles files_;
  struct Served {
    std::map<std::string, std::string> identity;
    std::string key;  // DiskEntry::model
  };
  std::map<const Model*, Served> served_;
  int lock_ = -1;  // file descriptor
  mutable std::mutex mutex_;
  DiskIndex index_;             // under mutex_
  std::list<Pending> pending_;  // under mutex_, the list; the first that has begun is the writer's
  DiskFigures figures_;         // under mutex_
  std::uint64_t next_ = 1;      // under mutex_; numbers of files
  Worker writer_, reader_;
};

}  // namespace kvtide::serve
