// service.h: what the routes share: the models by name, the scheduler, ids and the time.
//
// Ownership: owns the scheduler; refers to the models, which must outlive it. Thread rules: from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "serve/http/fields.h"
#include "serve/http/problem.h"
#include "serve/routes/answer_format.h"
#include "serve/routes/chat_prompt.h"
#include "serve/routes/response_store.h"
#include "serve/work/disk_cache.h"
#include "serve/work/idle_memory.h"
#include "serve/work/scheduler.h"
#include "serve/work/worker.h"
#include "text/grammar/token_trie.h"

namespace kvtide::serve {

struct ServedModel {
  std::string name;  // what requests call it
  const Model* model;
  // For procedural memories; empty: all heads are treated alike. Asked for once, when one is wanted first.
  std::function<HeadTable()> heads = {};
};

// Thrown by what handles a request when something has to be done first that takes long: the request is handled again
// behind it, and nobody waits meanwhile but who asked.
struct DoFirst {
  std::function<void()> work;  // may throw Error
};

struct ServiceOptions {
  WorkOptions work;
  MemoryChoice memory;             // of answers whose request does not say
  std::string api_key;             // empty: none is asked for
  std::vector<std::string> hosts;  // that the Host header may name, beside loopback's; empty and open: any
  bool any_host = false;
  std::string chat_template;  // a name; empty: the models' own
  std::string states_folder;  // where snapshots of /slots and /states lie; empty: none are written
  std::string cache_folder;   // where prefixes and stored answers outlive the process; empty: nowhere
  std::int64_t cache_bytes = std::int64_t{4} << 30;  // of the files of prefixes
  IdleTimes idle;  // until prefixes leave the memory for the disk, and weights for their files
  std::string version;
  std::function<void(const std::string&)>
      log;  // what went wrong behind the answers, a line each; from any thread
};

class Service {
 public:
  Service(std::vector<ServedModel> models, ServiceOptions options);

  const std::vector<ServedModel>& models() const { return models_; }
  const ServiceOptions& options() const { return options_; }
  const ServedChat& chat(std::size_t model) const { return chats_[model]; }
  Scheduler& scheduler() { return scheduler_; }
  ResponseStore& responses() { return responses_; }
  const DiskCache* disk() const { return disk_.get(); }   // nullptr: there is none
  const IdleMemory* idle() const { return idle_.get(); }  // likewise

  // The model that a request names; the first without a name. Throws Error(not_found).
  std::size_t model_of(const Fields& fields) const;
  std::size_t model_named(const std::string& name) const;  // empty: the first. Throws Error(not_found).
  // Holds an answer of a model to a grammar. Throws Error: invalid_argument (a grammar that is too large).
  void constrain(std::size_t model, const std::optional<grammar::Grammar>& grammar, AnswerSpec& spec);
  // The head table of a model. Throws DoFirst when it is not known yet.
  const HeadTable& heads(std::size_t model);
  std::string new_id(std::string_view prefix);  // "chatcmpl-0123456789abcdef"
  std::uint64_t new_seed();
  static std::int64_t now();  // seconds since 1970
  std::int64_t started() const { return started_; }

  void start();
  // No reply is held any more when it returns. What the prefix caches hold is on the disk then, as far as that took no more
  // than so many seconds.
  void stop(double saving_seconds = 0);
  // Does what would hold up connections, away from them. It must not throw.
  void apart(std::function<void()> work) { worker_.apart(std::move(work)); }

  // Hands an answer to the scheduler; what is wrong with it goes to the client at once.
  void answer(std::size_t model, AnswerSpec spec, std::unique_ptr<AnswerFormat> format, bool stream,
              const std::shared_ptr<Reply>& reply, std::optional<ToolUse> tools = {});

 private:
  std::vector<ServedModel> models_;
  ServiceOptions options_;
  std::vector<ServedChat> chats_;                  // by model
  std::vector<std::unique_ptr<HeadTable>> heads_;  // under mutex_; by model, made when first needed
  std::vector<std::shared_ptr<const grammar::TokenTrie>>
      tries_;  // under mutex_; by model, made when first needed
  std::int64_t started_;
  std::mutex mutex_;
  std::mt19937_64 random_;  // under mutex_
  std::unique_ptr<DiskCache> disk_;
  ResponseStore responses_;
  Scheduler scheduler_;  // behind what its thread uses, which ends first
  std::unique_ptr<IdleMemory> idle_;
  Worker worker_;  // uses the scheduler
};

}  // namespace kvtide::serve
