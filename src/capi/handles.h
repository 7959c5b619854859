// handles.h: what the handles of kvtide.h hold, and how an exception becomes a result and a message.
//
// Ownership: a handle owns what it stands for and shares its model.
// Thread rules: one call at a time per handle.
// Invariant: no exception leaves a guarded call.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "kvtide/error.h"
#include "kvtide/kvtide.h"
#include "kvtide/model.h"
#include "kvtide/session.h"
#include "kvtide/state.h"

struct kvtide_model {
  std::string message;
  std::shared_ptr<const kvtide::Model> made;
};

struct kvtide_session {
  std::string message;
  std::shared_ptr<const kvtide::Model> model;  // outlives the session
  std::optional<kvtide::Session> made;
};

struct kvtide_state {
  std::string message;
  std::shared_ptr<const kvtide::Model> model;  // what the rows were computed with; nullptr: not known
  std::optional<kvtide::State> made;
};

namespace kvtide::capi {

int32_t result_of(ErrorCode code) noexcept;

// The result and message of the exception that is being handled.
int32_t describe(std::string& message) noexcept;

// Runs a call on a handle that was made.
template <class Handle, class Call>
auto guarded(Handle* handle, Call call) noexcept -> decltype(call(*handle->made)) {
  if (handle == nullptr) return KVTIDE_INVALID_ARGUMENT;
  try {
    if (!handle->made) {
      if (handle->message.empty()) handle->message = "this handle was never made";
      return KVTIDE_INVALID_ARGUMENT;  // the message of why stays
    }
    handle->message.clear();
    return call(*handle->made);
  } catch (...) {
    return describe(handle->message);
  }
}

// Makes a handle, and fills it with `make`; what fails leaves its message there.
template <class Handle, class Make>
int32_t made(Handle** out, Make make) noexcept {
  if (out == nullptr) return KVTIDE_INVALID_ARGUMENT;
  *out = new (std::nothrow) Handle;
  if (*out == nullptr) return KVTIDE_OUT_OF_MEMORY;
  try {
    make(**out);
    return KVTIDE_OK;
  } catch (...) {
    return describe((*out)->message);
  }
}

// For pointers that a caller must give.
template <class T>
T& given(T* pointer, const char* what) {
  if (pointer == nullptr) throw Error(ErrorCode::invalid_argument, std::string(what) + " is NULL");
  return *pointer;
}

// For arrays of a caller that may be NULL only when they are empty.
template <class T>
void check_array(T* array, std::size_t count, const char* what) {
  if (array == nullptr && count > 0) given(array, what);
}

// As many of `values` as fit, and how many there are.
template <class Values, class T>
int64_t copied(const Values& values, T* out, std::size_t capacity, const char* what) {
  check_array(out, capacity, what);
  for (std::size_t i = 0; i < values.size() && i < capacity; ++i) out[i] = values[i];
  return static_cast<int64_t>(values.size());
}

ElementType element_type(int32_t type);
Transition transition_of(const kvtide_transition& transition);
kvtide_record record_of(const TransitionRecord& record) noexcept;
kvtide_numbers numbers_of(const State& state);

// The plan or the refusal, as an Error.
int32_t planned(const TransitionPlan& plan, kvtide_record* record);

}  // namespace kvtide::capi
