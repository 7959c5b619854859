#include "serve/work/disk_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/folder_names.h"
#include "base/text.h"
#include "serve/work/disk_names.h"
#include "serve/work/prefix_cache.h"
#include "state/snapshot.h"
#include "state/state_object.h"

namespace kvtide::serve {
namespace disk_cache {

constexpr std::int64_t kWorthReading = 32;  // tokens; a file takes about as long to open as they to read
constexpr std::int64_t kWorthWriting =
    32;  // and an eighth of the text, so that a growing text is not written anew
         // with every turn
constexpr std::int64_t kWorthKeeping = 8;  // tokens, when a state is about to go for good
constexpr std::size_t kMostPending = 16;
constexpr std::size_t kMostFiles = 4096;
constexpr std::string_view kLock = "in_use", kProgram = "kvtide";

// Models that compute exactly write other rows.
std::string key_of(const std::string& model, bool exact) { return exact ? cat(model, " exact") : model; }

// At most; the header says every token in JSON.
std::int64_t file_bytes(const State& state) {
  return state.held_bytes() + static_cast<std::int64_t>(state.tokens().size()) * 12 + (std::int64_t{1} << 18);
}

}  // namespace disk_cache

DiskCache::DiskCache(const std::vector<const Model*>& models, DiskOptions options,
                     std::unique_ptr<FileSystem> files)
    : options_(std::move(options)), files_(files ? std::move(files) : std::make_unique<PosixFiles>()) {
  take_folder();
  try {
    for (const Model* model : models) {
      Served& served = served_[model] = {model->identity(options_.folder), ""};
      served.key = disk_cache::key_of(served.identity.at("model"), options_.exact);
      served.identity.emplace(disk_cache::kProgram, options_.version);
    }
    scan();
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

DiskCache::~DiskCache() {
  stop();
  ::close(lock_);
}

void DiskCache::start() {
  writer_.start();
  reader_.start();
}

void DiskCache::stop() {
  reader_.stop();
  writer_.stop();
}

void DiskCache::save_until(std::chrono::steady_clock::time_point end) { files_.set(end); }

std::string DiskCache::path(const std::string& file) const { return cat(options_.folder, "/", file); }

void DiskCache::say(const std::string& line) const {
  if (options_.log) options_.log(line);
}

void DiskCache::take_folder() {
  const auto refuse = [&](std::string_view why) {
    throw Error(ErrorCode::io, cat(options_.folder, ": ", why));
  };
  std::error_code error;
  std::filesystem::create_directories(options_.folder, error);
  if (error) refuse(cat("cannot make the folder: ", error.message()));
  // Goes with the process, however it ends.
  lock_ =
      ::open(path(std::string(disk_cache::kLock)).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock_ < 0) refuse(cat("cannot write into the folder: ", std::strerror(errno)));
  if (::flock(lock_, LOCK_EX | LOCK_NB) == 0) return;
  ::close(lock_);
  refuse("another server keeps its prefixes in this folder; each needs one of its own");
}

void DiskCache::scan() {
  for (const std::string& name : names_in(options_.folder)) {
    if (is_half_written(name)) files_.unlink(path(name).c_str());
    if (!is_prefix_file(name)) continue;
    DiskEntry entry{name, "", MemoryKind({}, {}, false), {}, 0, last_used(path(name))};
    if (const std::string why = why_not(entry); !why.empty())
      discard(name, why);
    else
      index_.add(std::move(entry));
    next_ = std::max(next_, prefix_file_number(name) + 1);
  }
  make_room(0);
}

// Fills the entry from the file's header; what it says must be what a server like this one would have written.
std::string DiskCache::why_not(DiskEntry& entry) {
  try {
    SnapshotFront front = read_snapshot_front(files_, path(entry.file));
    const auto& identity = front.extras.identity;
    const auto model = identity.find("model");
    if (model == identity.end() || !model->second.starts_with(entry.file.substr(0, kModelDigits)))
      return "it belongs to another model than its name says";
    for (const auto& [ignored, served] : served_)
      if (served.identity.at("model") == model->second && served.identity != identity)
        return "another version of the program wrote it, or it belongs to another tokenizer";
    if (static_cast<Pos>(front.extras.tokens.size()) != front.image.position || front.extras.tokens.empty())
      return "it does not say its text";
    entry.model = disk_cache::key_of(model->second, front.extras.exact);
    entry.kind =
        MemoryKind(std::move(front.image.spec), front.image.attention_size, front.image.adapting.has_value());
    entry.tokens = std::move(front.extras.tokens);
    entry.checkpoints = std::move(front.image.checkpoints);
    entry.bytes = static_cast<std::int64_t>(front.file_bytes);
    return "";
  } catch (const Error& error) {
    return error.message();
  }
}

void DiskCache::discard(const std::string& file, const std::string& why) {
  files_.unlink(path(file).c_str());
  {
    const std::lock_guard lock(mutex_);
    index_.remove(file);
    ++figures_.broken;
  }
  say(cat("removed the cached prefix ", file, ": ", why));
}

// Removes files until so many bytes fit beside the others.
void DiskCache::make_room(std::int64_t bytes) {
  for (;;) {
    std::string file;
    {
      const std::lock_guard lock(mutex_);
      if (index_.bytes() + bytes <= options_.most_bytes && index_.size() < disk_cache::kMostFiles) return;
      const DiskEntry* first = index_.first_to_go(seconds_now());
      if (first == nullptr) return;
      file = first->file;
      index_.remove(file);
    }
    files_.unlink(path(file).c_str());
  }
}

// With mutex_.
std::int64_t DiskCache::spared(const std::string& model, std::span<const TokenId> text,
                               const MemoryKind& kind) const {
  std::int64_t most = index_.find(model, text, kind).length;
  for (const Pending& pending : pending_) {
    if (pending.entry.model != model || !keep_alike(pending.entry.kind, kind)) continue;
    most = std::max(most, pending.entry.left_of(common_prefix(pending.entry.tokens, text)));
  }
  return most;
}

bool DiskCache::holds(const Model& model, const State& state) const {
  const std::lock_guard lock(mutex_);
  const std::int64_t known = index_.find(served_.at(&model).key, state.tokens(), MemoryKind(state)).length;
  return state.position() - known < disk_cache::kWorthKeeping;
}

void DiskCache::write(const Model& model, const State& state, bool whole) {
  const Served& served = served_.at(&model);
  DiskEntry entry{"", served.key, MemoryKind(state), state.tokens(), 0, seconds_now(), state.checkpoints()};
  const auto length = static_cast<std::int64_t>(entry.tokens.size());
  const std::int64_t bytes = disk_cache::file_bytes(state);
  if (length != state.position() || entry.kind.adapting || bytes > options_.most_bytes) return;
  {
    const std::lock_guard lock(mutex_);
    const std::int64_t known = spared(entry.model, entry.tokens, entry.kind);
    const std::int64_t least =
        whole ? disk_cache::kWorthKeeping : std::max(disk_cache::kWorthWriting, known / 8);
    if (length - known < least) return;
    // A longer text stands for those of its beginnings that still wait.
    pending_.remove_if([&](const Pending& other) {
      const auto other_length = static_cast<std::int64_t>(other.entry.tokens.size());
      return !other.begun && other.entry.model == entry.model && keep_alike(other.entry.kind, entry.kind) &&
             other_length >= entry.least_length() &&
             common_prefix(other.entry.tokens, entry.tokens) == other_length;
    });
    if (!whole && pending_.size() >= disk_cache::kMostPending) return;
    entry.bytes = bytes;
    State fork = state.fork();
    fork.set_identity(served.identity);
    std::vector<float>().swap(fork.internals().extras.logits);
    pending_.push_back({std::move(entry), std::move(fork)});
  }
  writer_.apart([this] { write_one(); });
}

void DiskCache::write_one() {
  std::list<Pending>::iterator mine;
  {
    const std::lock_guard lock(mutex_);
    mine = std::find_if(pending_.begin(), pending_.end(), [](const Pending& p) { return !p.begun; });
    if (mine == pending_.end()) return;  // a longer one took its place
    mine->begun = true;
    mine->entry.file = prefix_file_name(mine->entry.model, next_++);
  }
  DiskEntry& entry = mine->entry;
  std::string why;
  try {
    make_room(entry.bytes);
    const State::Impl& state = mine->state.internals();
    save_snapshot(files_, path(entry.file), state.kv, state.extras);
    std::error_code error;
    entry.bytes = static_cast<std::int64_t>(std::filesystem::file_size(path(entry.file), error));
    if (error) why = error.message();
  } catch (const Error& error) {
    why = error.message();
  } catch (const std::bad_alloc&) {
    why = "out of memory";
  }
  std::vector<std::string> covered;
  std::list<Pending> done;
  {
    const std::lock_guard lock(mutex_);
    if (why.empty()) {
      covered = index_.covered_by(entry);
      for (const std::string& file : covered) index_.remove(file);
      index_.add(entry);
      ++figures_.written;
    }
    done.splice(done.begin(), pending_, mine);
  }
  for (const std::string& file : covered) files_.unlink(path(file).c_str());
  if (!why.empty()) files_.unlink(path(done.front().entry.file).c_str());  // its name may stand already
  if (!why.empty() && !files_.has_come()) say(cat("a prefix was not written to the disk: ", why));
}

std::shared_ptr<DiskRead> DiskCache::find(const Model& model, std::span<const TokenId> prompt,
                                          const State& like, std::int64_t known) {
  if (prompt.empty()) return nullptr;
  const std::lock_guard lock(mutex_);
  // The last token's logits are wanted.
  const DiskIndex::Hit hit =
      index_.find(served_.at(&model).key, prompt.first(prompt.size() - 1), MemoryKind(like));
  if (hit.entry == nullptr || hit.length - known < disk_cache::kWorthReading) return nullptr;
  return std::make_shared<DiskRead>(*hit.entry);
}

void DiskCache::fetch(const std::shared_ptr<DiskRead>& read) {
  read->begun = true;
  reader_.apart([this, read] {
    read->state = load(read->entry);
    read->done = true;
  });
}

std::optional<State> DiskCache::load(const DiskEntry& entry) {
  try {
    Snapshot snapshot = load_snapshot(files_, path(entry.file));
    if (snapshot.extras.tokens != entry.tokens) {
      discard(entry.file, "it holds another text than it did");
      return std::nullopt;
    }
    snapshot.extras.identity.clear();  // of a model that is served, from here on
    use_now(path(entry.file));
    const std::lock_guard lock(mutex_);
    index_.touch(entry.file, seconds_now());
    ++figures_.hits;
    return State(
        std::make_unique<State::Impl>(State::Impl{std::move(snapshot.state), std::move(snapshot.extras)}));
  } catch (const Error& error) {
    // One that is not there made room for another in the meantime.
    if (error.code() == ErrorCode::not_found) {
      const std::lock_guard lock(mutex_);
      index_.remove(entry.file);
    } else if (error.code() != ErrorCode::out_of_memory) {
      discard(entry.file, error.message());
    }
  } catch (const std::bad_alloc&) {
    // Later there may be more.
  }
  return std::nullopt;
}

void DiskCache::add_to(StateBytes& bytes) const {
  const std::lock_guard lock(mutex_);
  for (const Pending& pending : pending_) bytes.add(pending.state);
}

bool DiskCache::writes() const {
  const std::lock_guard lock(mutex_);
  return !pending_.empty();
}

DiskFigures DiskCache::figures() const {
  const std::lock_guard lock(mutex_);
  DiskFigures out = figures_;
  out.states = static_cast<std::int64_t>(index_.size());
  out.bytes = index_.bytes();
  return out;
}

}  // namespace kvtide::serve
