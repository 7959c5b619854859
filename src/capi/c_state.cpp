// c_state.cpp: the part of kvtide.h about states.
#include <span>
#include <vector>

#include "base/text.h"
#include "capi/handles.h"

using namespace kvtide;
using namespace kvtide::capi;

namespace {

StateShape shape_of(const kvtide_shape& from) {
  if (from.size != sizeof(kvtide_shape))
    throw Error(ErrorCode::invalid_argument,
                cat("kvtide_shape has ", sizeof(kvtide_shape), " bytes here, not ", from.size));
  check_array(from.layers, from.layer_count, "layers");
  StateShape shape;
  for (const kvtide_layer& layer : std::span(from.layers, from.layer_count))
    shape.layers.push_back({layer.kv_heads, layer.head_dim,
                            layer.window == 0 ? std::nullopt : std::optional<std::int64_t>(layer.window)});
  shape.key_type = element_type(from.key_type);
  shape.value_type = element_type(from.value_type);
  shape.capacity = from.capacity;
  return shape;
}

KvPart part_of(int32_t part) {
  if (part == KVTIDE_KEYS) return KvPart::keys;
  if (part == KVTIDE_VALUES) return KvPart::values;
  throw Error(ErrorCode::invalid_argument, cat("there is no kvtide_part ", part));
}

int layer_of(const State& state, int64_t layer) {
  const auto count = static_cast<int64_t>(state.shape().layers.size());
  if (layer < 0 || layer >= count)
    throw Error(ErrorCode::invalid_argument, cat("there is no layer ", layer, ": the state has ", count));
  return static_cast<int>(layer);
}

}  // namespace

extern "C" {

int32_t kvtide_state_new(const kvtide_shape* shape, int64_t position, const int32_t* tokens,
                         kvtide_state** state) {
  return made(state, [&](kvtide_state& handle) {
    const StateShape wanted = shape_of(given(shape, "shape"));
    if (position < 0 || position > wanted.capacity)
      throw Error(ErrorCode::invalid_argument,
                  cat("a state of ", wanted.capacity, " rows cannot hold ", position, " positions"));
    std::vector<TokenId> ids;
    if (tokens != nullptr) ids.assign(tokens, tokens + position);
    handle.made.emplace(wanted, position, std::move(ids));
  });
}

int32_t kvtide_state_load(const char* path, kvtide_state** state) {
  return made(state, [&](kvtide_state& handle) {
    given(path, "path");
    handle.made.emplace(State::load(path));
  });
}

int32_t kvtide_state_save(kvtide_state* state, const char* path) {
  return guarded(state, [&](State& s) -> int32_t {
    given(path, "path");
    if (state->model) s.set_identity(state->model->identity());
    s.save(path);
    return KVTIDE_OK;
  });
}

int32_t kvtide_state_fork(kvtide_state* state, kvtide_state** forked) {
  return made(forked, [&](kvtide_state& handle) {
    if (!given(state, "state").made) throw Error(ErrorCode::invalid_argument, "the state was never made");
    handle.model = state->model;
    handle.made.emplace(state->made->fork());
  });
}

void kvtide_state_free(kvtide_state* state) { delete state; }

const char* kvtide_state_error(const kvtide_state* state) {
  return state == nullptr ? "there is no handle" : state->message.c_str();
}

int32_t kvtide_state_numbers(kvtide_state* state, kvtide_numbers* numbers) {
  return guarded(state, [&](State& s) -> int32_t {
    given(numbers, "numbers") = numbers_of(s);
    return KVTIDE_OK;
  });
}

int32_t kvtide_state_plan(kvtide_state* state, kvtide_transition transition, kvtide_record* record) {
  return guarded(state, [&](State& s) { return planned(s.plan(transition_of(transition)), record); });
}

int32_t kvtide_state_apply(kvtide_state* state, kvtide_transition transition, kvtide_record* record) {
  return guarded(state, [&](State& s) -> int32_t {
    const TransitionRecord done = s.apply(transition_of(transition));
    if (record != nullptr) *record = record_of(done);
    return KVTIDE_OK;
  });
}

int64_t kvtide_state_layers(kvtide_state* state) {
  return guarded(state, [&](State& s) { return static_cast<int64_t>(s.shape().layers.size()); });
}

int32_t kvtide_state_layer(kvtide_state* state, int64_t index, kvtide_layer* layer) {
  return guarded(state, [&](State& s) -> int32_t {
    const StateLayer found = s.shape().layers[static_cast<std::size_t>(layer_of(s, index))];
    given(layer, "layer") = {found.kv_heads, found.head_dim, found.window.value_or(0)};
    return KVTIDE_OK;
  });
}

int64_t kvtide_state_tokens(kvtide_state* state, int32_t* tokens, size_t capacity) {
  return guarded(state, [&](State& s) { return copied(s.tokens(), tokens, capacity, "tokens"); });
}

int32_t kvtide_state_read(kvtide_state* state, int64_t layer, int32_t part, int64_t first, int64_t last,
                          float* rows, size_t count) {
  return guarded(state, [&](State& s) -> int32_t {
    check_array(rows, count, "rows");
    s.read(layer_of(s, layer), part_of(part), {first, last}, std::span(rows, count));
    return KVTIDE_OK;
  });
}

int32_t kvtide_state_write(kvtide_state* state, int64_t layer, int32_t part, int64_t first, int64_t last,
                           const float* rows, size_t count) {
  return guarded(state, [&](State& s) -> int32_t {
    check_array(rows, count, "rows");
    s.write(layer_of(s, layer), part_of(part), {first, last}, std::span(rows, count));
    return KVTIDE_OK;
  });
}
}
