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
#include "serve/work/scheduler.h"
#include "serve/work/worker.h"
#include "text/grammar/token_trie.h"

namespace kvtide::serve {

struct ServedModel {
  std::string name;  // what requests call it
  const Model* model;
  HeadTable heads = {};  // for procedural memories; empty: all heads are treated alike
};

struct ServiceOptions {
  WorkOptions work;
  MemoryChoice memory;             // of answers whose request does not say
  std::string api_key;             // empty: none is asked for
  std::vector<std::string> hosts;  // that the Host header may name, beside loopback's; empty and open: any
  bool any_host = false;
  std::string chat_template;  // a name; empty: the models' own
  std::string states_folder;  // where snapshots of /slots and /states lie; empty: none are written
  std::string version;
};

class Service {
 public:
  Service(std::vector<ServedModel> models, ServiceOptions options);

  const std::vector<ServedModel>& models() const { return models_; }
  const ServiceOptions& options() const { return options_; }
  const ServedChat& chat(std::size_t model) const { return chats_[model]; }
  Scheduler& scheduler() { return scheduler_; }
  ResponseStore& responses() { return responses_; }

  // The model that a request names; the first without a name. Throws Error(not_found).
  std::size_t model_of(const Fields& fields) const;
  // Holds an answer of a model to a grammar. Throws Error: invalid_argument (a grammar that is too large).
  void constrain(std::size_t model, const std::optional<grammar::Grammar>& grammar, AnswerSpec& spec);
  std::string new_id(std::string_view prefix);  // "chatcmpl-0123456789abcdef"
  std::uint64_t new_seed();
  static std::int64_t now();  // seconds since 1970
  std::int64_t started() const { return started_; }

  void start() {
    worker_.start();
    scheduler_.start();
  }
  // No reply is held any more when it returns.
  void stop() {
    worker_.stop();
    scheduler_.stop();
  }
  // Does what would hold up connections, away from them. It must not throw.
  void apart(std::function<void()> work) { worker_.apart(std::move(work)); }

  // Hands an answer to the scheduler; what is wrong with it goes to the client at once.
  void answer(std::size_t model, AnswerSpec spec, std::unique_ptr<AnswerFormat> format, bool stream,
              const std::shared_ptr<Reply>& reply, std::optional<ToolUse> tools = {});

 private:
  std::vector<ServedModel> models_;
  ServiceOptions options_;
  std::vector<ServedChat> chats_;  // by model
  std::vector<std::shared_ptr<const grammar::TokenTrie>>
      tries_;  // under mutex_; by model, made when first needed
  std::int64_t started_;
  std::mutex mutex_;
  std::mt19937_64 random_;  // under mutex_
  ResponseStore responses_{4096, std::size_t{64} << 20};
  Scheduler scheduler_;  // behind what its thread uses, which ends first
  Worker worker_;        // uses the scheduler
};

}  // namespace kvtide::serve
