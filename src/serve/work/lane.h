// lane.h: one model at work: the answers that run on it, its batch and its prefix cache.
//
// Ownership: owns sessions, batch and cache; refers to the model. Thread rules: one thread, the scheduler's.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/stopwatch.h"
#include "kvtide/model.h"
#include "kvtide/session.h"
#include "serve/work/answer.h"
#include "serve/work/answer_writer.h"
#include "serve/work/prefix_cache.h"

namespace kvtide::serve {

class DiskCache;

struct WorkOptions {
  std::int64_t kv_budget = std::int64_t{2} << 30;  // bytes of all sessions and caches of all models
  std::int64_t context = 0;                        // tokens of a session at most; 0: as the model was trained
  std::int64_t max_tokens = 2048;                  // of answers whose request does not say
  int parallel = 8;                                // answers that run at once
  int queue = 64;                                  // requests that wait; further ones are refused
  std::int64_t step = 512;                         // tokens that a step reads of prompts when nobody writes
  std::int64_t step_beside = 64;  // likewise while others write, until it is known how long a token takes
  double beside_ms = 85;  // then as many as take so long, for the others wait for them; 0: always step_beside
  int threads = 0;        // 0: as many as the machine has
  bool exact = false;
  ElementType key_type = ElementType::f16, value_type = ElementType::f16;
  DiskCache* disk = nullptr;                 // where prefixes go, too; must outlive the work
  Checkpoints checkpoints = {.every = 512};  // of every memory
};

// One of the answers to a prompt.
struct Choice {
  Session session;
  AnswerWriter writer;
  std::optional<TokenId> next;  // to be read
};

// A request that has been admitted.
struct Running {
  AnswerSpec spec;
  std::shared_ptr<const State> shape;  // Lane::shape_of(spec)
  std::shared_ptr<AnswerListener> listener;
  std::int64_t max_tokens = 0;
  std::size_t read = 0;  // of the prompt
  std::vector<Choice> choices;
  AnswerFigures figures;
  Stopwatch since;  // admission
  std::optional<Error> error;
  int starved = 0;  // steps, one behind another, for which memory ended

  // Does the work; what it throws becomes the error.
  void guard(FunctionRef<void()> work);
  bool reads() const { return read < spec.prompt.size(); }
  bool is_over() const;
};

class Lane {
 public:
  Lane(const Model& model, const WorkOptions& options);

  const Model& model() const { return *model_; }
  PrefixCache& cache() { return cache_; }
  const PrefixCache& cache() const { return cache_; }
  std::list<Running>& running() { return running_; }
  const std::list<Running>& running() const { return running_; }

  std::uint64_t begun() const { return begun_; }  // answers, so far

  // Tokens of a session that keeps everything, at most.
  std::int64_t context() const { return context_; }
  // An empty state with the memory of such answers, for planning. Throws Error(invalid_argument) when the model cannot
  // have it. From any thread.
  std::shared_ptr<const State> shape_of(const AnswerSpec& spec) const;
  // Bytes that an answer may come to hold, beyond what the first `shared` tokens share.
  std::int64_t growth(const AnswerSpec& spec, const State& shape, std::int64_t max_tokens,
                      std::int64_t shared) const;
  // The same for what runs, beyond what it holds now.
  std::int64_t growth_left(const Running& running) const;

  // What the cache knows of its prompt; nothing for one that has to begin elsewhere.
  PrefixCache::Hit known_of(const AnswerSpec& spec, const State& shape) const;
  // Whether a running request is about to read what this prompt begins with, further than the cache knows it.
  bool is_being_read(const AnswerSpec& spec, const State& shape) const;
  // Begins at its starting point, or with what the cache knows. Throws Error: out_of_memory.
  Running& begin(AnswerSpec spec, std::shared_ptr<const State> shape,
                 std::shared_ptr<AnswerListener> listener, std::int64_t max_tokens);

  struct Done {
    std::int64_t read = 0, written = 0;  // tokens
    bool worked = false;
  };
  // One pass for everything that runs, and what follows from it.
  Done step();
  // Takes away what is over and what nobody waits for; their memories go into the cache. The number of the latter.
  std::int64_t finish();

  void add_to(StateBytes& bytes) const;

  // Of all answers that measured it: tokens sampled, and the sum of the relative errors of attention in them.
  struct DriftSums {
    std::int64_t tokens = 0;
    double output_error = 0;
  };
  const DriftSums& drift() const { return drift_; }

 private:
  SessionOptions session_options(const MemoryChoice& memory, std::int64_t tokens) const;
  std::int64_t most_read_beside() const;
  std::vector<Batch::Item> items(std::vector<std::pair<Running*, Choice*>>& whose);
  void prompt_is_read(Running& running);
  void advance(Running& running, Choice& choice);
  void tell(Running& running, Choice& choice);
  static bool starves(Running& running, Batch::Outcome& outcome);
  void keep(Running& running);
  void write_to_disk(const Running& running);
  void note_drift(const Running& running);

  const Model* model_;
  const WorkOptions* options_;
  std::int64_t context_;
  std::int64_t slack_;  // of every memory
  Batch batch_;
  std::shared_ptr<const State> shape_;  // of answers that keep everything
  bool has_windows_;       // only the whole of a prompt can then be gone on from, once they have moved on
  std::size_t most_kept_;  // states in the cache
  PrefixCache cache_;
  std::list<Running> running_;
  double token_ms_ = 0;       // of steps that read prompts, of late; 0: not known yet
  std::int64_t written_ = 0;  // tokens, since the step began
  std::uint64_t begun_ = 0;
  DriftSums drift_;
};

}  // namespace kvtide::serve
