#include "serve/routes/service.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/text.h"

namespace kvtide::serve {
namespace service {

std::vector<const Model*> plain(const std::vector<ServedModel>& models) {
  std::vector<const Model*> out;
  for (const ServedModel& served : models) out.push_back(served.model);
  return out;
}

std::vector<ServedChat> chats_of(const std::vector<ServedModel>& models, const std::string& named) {
  std::vector<ServedChat> out;
  for (const ServedModel& served : models) out.emplace_back(*served.model, named);
  return out;
}

std::uint64_t first_seed() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

std::unique_ptr<DiskCache> disk_of(const std::vector<ServedModel>& models, const ServiceOptions& o) {
  if (o.cache_folder.empty()) return nullptr;
  return std::make_unique<DiskCache>(
      plain(models), DiskOptions{o.cache_folder, o.cache_bytes, o.version, o.work.exact, o.log});
}

std::unique_ptr<ResponseFiles> files_of(const ServiceOptions& o) {
  if (o.cache_folder.empty()) return nullptr;
  return std::make_unique<ResponseFiles>(cat(o.cache_folder, "/responses"), o.log);
}

WorkOptions with_disk(WorkOptions work, DiskCache* disk) {
  work.disk = disk;
  return work;
}

// The last used first, for there may not be time for all.
void write_all(const std::vector<Lane>& lanes, DiskCache& disk) {
  for (const Lane& lane : lanes) {
    std::vector<const PrefixCache::Entry*> entries;
    for (const PrefixCache::Entry& entry : lane.cache().entries())
      if (!entry.by_number) entries.push_back(&entry);
    std::sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) { return a->used > b->used; });
    for (const PrefixCache::Entry* entry : entries) disk.write(lane.model(), entry->state, true);
  }
}

constexpr std::size_t kMostResponses = 4096, kMostResponseBytes = std::size_t{64} << 20;

}  // namespace service

Service::Service(std::vector<ServedModel> models, ServiceOptions options)
    : models_(std::move(models)),
      options_(std::move(options)),
      chats_(service::chats_of(models_, options_.chat_template)),
      heads_(models_.size()),
      tries_(models_.size()),
      started_(now()),
      random_(service::first_seed()),
      disk_(service::disk_of(models_, options_)),
      responses_(service::kMostResponses, service::kMostResponseBytes, service::files_of(options_)),
      scheduler_(service::plain(models_), service::with_disk(options_.work, disk_.get())) {
  if ((disk_ && options_.idle.prefixes > 0) || options_.idle.models > 0)
    idle_ = std::make_unique<IdleMemory>(scheduler_, disk_.get(), options_.idle);
}

void Service::start() {
  if (disk_) disk_->start();
  worker_.start();
  scheduler_.start();
  if (idle_) idle_->start();
}

void Service::stop(double saving_seconds) {
  const auto saving = std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(saving_seconds));
  const auto end = std::chrono::steady_clock::now() + saving;
  if (idle_) idle_->stop();
  worker_.stop();
  scheduler_.stop();
  if (!disk_) return;
  disk_->save_until(end);
  // Without its thread, actions are done at once.
  scheduler_.between_steps([&](std::vector<Lane>& lanes) { service::write_all(lanes, *disk_); });
  disk_->stop();
}

std::size_t Service::model_of(const Fields& fields) const {
  return model_named(fields.text("model").value_or(""));
}

std::size_t Service::model_named(const std::string& name) const {
  if (name.empty()) return 0;
  std::string known;
  for (std::size_t i = 0; i < models_.size(); ++i) {
    if (models_[i].name == name) return i;
    known += cat(i == 0 ? "" : ", ", models_[i].name);
  }
  throw Error(ErrorCode::not_found, cat("model: there is no model ", quoted(name), "; there are ", known));
}

void Service::constrain(std::size_t model, const std::optional<grammar::Grammar>& grammar, AnswerSpec& spec) {
  if (!grammar) return;
  std::shared_ptr<const grammar::TokenTrie> trie;
  {
    const std::lock_guard lock(mutex_);
    if (!tries_[model])
      tries_[model] = std::make_shared<const grammar::TokenTrie>(models_[model].model->tokenizer());
    trie = tries_[model];
  }
  spec.constraint = std::make_shared<grammar::Constraint>(*grammar, std::move(trie));
}

const HeadTable& Service::heads(std::size_t model) {
  const std::lock_guard lock(mutex_);
  if (!heads_[model] && !models_[model].heads) heads_[model] = std::make_unique<HeadTable>();
  if (heads_[model]) return *heads_[model];
  throw DoFirst{[this, model] {
    HeadTable table = models_[model].heads();
    const std::lock_guard inner(mutex_);
    if (!heads_[model]) heads_[model] = std::make_unique<HeadTable>(std::move(table));
  }};
}

std::uint64_t Service::new_seed() {
  const std::lock_guard lock(mutex_);
  return random_();
}

std::string Service::new_id(std::string_view prefix) {
  std::uint64_t bits = new_seed();
  std::string out(prefix);
  for (int i = 0; i < 16; ++i, bits >>= 4) out += "0123456789abcdef"[bits & 15];
  return out;
}

std::int64_t Service::now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(since).count();
}

void Service::answer(std::size_t model, AnswerSpec spec, std::unique_ptr<AnswerFormat> format, bool stream,
                     const std::shared_ptr<Reply>& reply, std::optional<ToolUse> tools) {
  // Nine letters and digits: Mistral's templates take no other ids.
  if (tools) tools->new_id = [this] { return new_id("").substr(0, 9); };
  const Dialect dialect = format->dialect();
  const int choices = spec.choices;
  const auto busy = scheduler_.submit(model, std::move(spec),
                                      answer_to(reply, std::move(format), choices, stream, std::move(tools)));
  if (!busy) return;
  Problem problem{429, busy->reason};
  problem.retry_after = busy->retry_after;
  problem.code = "overloaded";
  reply->send(problem_response(problem, dialect));
}

}  // namespace kvtide::serve
