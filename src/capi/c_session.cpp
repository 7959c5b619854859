// c_session.cpp: the part of kvtide.h about sessions.
#include <algorithm>
#include <span>

#include "base/text.h"
#include "capi/handles.h"
#include "kvtide/generate.h"

using namespace kvtide;
using namespace kvtide::capi;

namespace {

SessionOptions options_of(const kvtide_session_options& o) {
  if (o.size != sizeof(kvtide_session_options))
    throw Error(ErrorCode::invalid_argument,
                cat("kvtide_session_options has ", sizeof(kvtide_session_options), " bytes here, not ",
                    o.size, "; begin with kvtide_session_defaults()"));
  SessionOptions options;
  options.exact = o.exact;
  options.key_type = element_type(o.key_type);
  options.value_type = element_type(o.value_type);
  options.context = o.context;
  if (o.window != 0 || o.sinks != 0) options.rolling = Rolling{o.sinks, o.window};
  if (o.attention_size != 0) options.attention_size = o.attention_size;
  options.slack = o.slack;
  options.checkpoints.every = o.checkpoint_every;
  if (o.checkpoint_budget != 0) options.checkpoints.budget = o.checkpoint_budget;
  options.threads = o.threads;
  return options;
}

}  // namespace

extern "C" {

kvtide_session_options kvtide_session_defaults(void) {
  kvtide_session_options options = {};
  options.size = sizeof options;
  options.checkpoint_budget = Checkpoints{}.budget;
  return options;
}

int32_t kvtide_session_new(kvtide_model* model, const kvtide_session_options* options,
                           kvtide_session** session) {
  return made(session, [&](kvtide_session& handle) {
    if (!given(model, "model").made) throw Error(ErrorCode::invalid_argument, "the model was never loaded");
    handle.model = model->made;
    handle.made.emplace(*handle.model, options == nullptr ? SessionOptions{} : options_of(*options));
  });
}

void kvtide_session_free(kvtide_session* session) { delete session; }

const char* kvtide_session_error(const kvtide_session* session) {
  return session == nullptr ? "there is no handle" : session->message.c_str();
}

int32_t kvtide_session_read(kvtide_session* session, const int32_t* tokens, size_t count,
                            bool (*progress)(void* context, int64_t done, int64_t of), void* context) {
  return guarded(session, [&](Session& s) -> int32_t {
    check_array(tokens, count, "tokens");
    ReadOptions options;
    if (progress != nullptr)
      options.progress = [&](std::int64_t done) {
        return progress(context, done, static_cast<int64_t>(count));
      };
    s.read(std::span(tokens, count), options);
    return KVTIDE_OK;
  });
}

int64_t kvtide_session_logits(kvtide_session* session, const float** logits) {
  return guarded(session, [&](Session& s) {
    const auto held = s.logits();
    given(logits, "logits") = held.empty() ? nullptr : held.data();
    return static_cast<int64_t>(held.size());
  });
}

int32_t kvtide_session_greedy(kvtide_session* session, int32_t* token) {
  return guarded(session, [&](Session& s) -> int32_t {
    given(token, "token");
    if (s.logits().empty())
      throw Error(ErrorCode::invalid_argument, "there are no logits: read a token first");
    *token = Sampler(SamplerOptions{}).pick(s.logits(), {});
    return KVTIDE_OK;
  });
}

int32_t kvtide_session_clear(kvtide_session* session) {
  return guarded(session, [&](Session& s) -> int32_t {
    s.clear();
    return KVTIDE_OK;
  });
}

int32_t kvtide_session_truncate(kvtide_session* session, int64_t length, int64_t* read_again) {
  return guarded(session, [&](Session& s) -> int32_t {
    const TransitionRecord record = s.truncate(length);
    if (read_again != nullptr) *read_again = record.read_again;
    return KVTIDE_OK;
  });
}

int32_t kvtide_session_checkpoint(kvtide_session* session) {
  return guarded(session, [&](Session& s) -> int32_t { return s.checkpoint() ? 1 : 0; });
}

int64_t kvtide_session_checkpoints(kvtide_session* session, int64_t* positions, size_t capacity) {
  return guarded(session, [&](Session& s) {
    if (capacity > 0) given(positions, "positions");
    const std::vector<Pos>& all = s.checkpoints();
    std::copy_n(all.begin(), std::min(capacity, all.size()), positions);
    return static_cast<int64_t>(all.size());
  });
}

int32_t kvtide_session_fork(kvtide_session* session, kvtide_session** forked) {
  return made(forked, [&](kvtide_session& handle) {
    if (!given(session, "session").made)
      throw Error(ErrorCode::invalid_argument, "the session was never made");
    handle.model = session->model;
    handle.made.emplace(session->made->fork());
  });
}

int32_t kvtide_session_save(kvtide_session* session, const char* path) {
  return guarded(session, [&](Session& s) -> int32_t {
    given(path, "path");
    s.save(path);
    return KVTIDE_OK;
  });
}

int32_t kvtide_session_load(kvtide_session* session, const char* path) {
  return guarded(session, [&](Session& s) -> int32_t {
    given(path, "path");
    s.load(path);
    return KVTIDE_OK;
  });
}

int32_t kvtide_session_state(kvtide_session* session, kvtide_state** state) {
  return made(state, [&](kvtide_state& handle) {
    if (!given(session, "session").made)
      throw Error(ErrorCode::invalid_argument, "the session was never made");
    handle.model = session->model;
    handle.made.emplace(session->made->state().fork());
  });
}

int32_t kvtide_session_restore(kvtide_session* session, kvtide_state* state) {
  return guarded(session, [&](Session& s) -> int32_t {
    if (!given(state, "state").made) throw Error(ErrorCode::invalid_argument, "the state was never made");
    if (state->model && state->model != session->model)
      throw Error(ErrorCode::invalid_argument, "the state belongs to another model than the session");
    s.restore(*state->made);
    return KVTIDE_OK;
  });
}

int32_t kvtide_session_numbers(kvtide_session* session, kvtide_numbers* numbers) {
  return guarded(session, [&](Session& s) -> int32_t {
    given(numbers, "numbers") = numbers_of(s.state());
    return KVTIDE_OK;
  });
}

int32_t kvtide_session_plan(kvtide_session* session, kvtide_transition transition, kvtide_record* record) {
  return guarded(session, [&](Session& s) { return planned(s.plan(transition_of(transition)), record); });
}

int32_t kvtide_session_apply(kvtide_session* session, kvtide_transition transition, kvtide_record* record) {
  return guarded(session, [&](Session& s) -> int32_t {
    const TransitionRecord done = s.apply(transition_of(transition));
    if (record != nullptr) *record = record_of(done);
    return KVTIDE_OK;
  });
}
}
