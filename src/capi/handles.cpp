#include "capi/handles.h"

#include <exception>
#include <limits>

#include "base/text.h"

namespace kvtide::capi {

int32_t result_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
      return KVTIDE_INVALID_ARGUMENT;
    case ErrorCode::not_found:
      return KVTIDE_NOT_FOUND;
    case ErrorCode::io:
      return KVTIDE_IO;
    case ErrorCode::bad_format:
      return KVTIDE_BAD_FORMAT;
    case ErrorCode::unsupported:
      return KVTIDE_UNSUPPORTED;
    case ErrorCode::bad_text:
      return KVTIDE_BAD_TEXT;
    case ErrorCode::context_full:
      return KVTIDE_CONTEXT_FULL;
    case ErrorCode::out_of_memory:
      return KVTIDE_OUT_OF_MEMORY;
    case ErrorCode::numeric:
      return KVTIDE_NUMERIC;
    case ErrorCode::cancelled:
      return KVTIDE_CANCELLED;
  }
  return KVTIDE_INTERNAL;
}

int32_t describe(std::string& message) noexcept {
  const auto set = [&](const char* text, int32_t result) noexcept {
    try {
      message = text;
    } catch (...) {
      message.clear();  // the result has to do
    }
    return result;
  };
  try {
    throw;
  } catch (const Error& error) {
    return set(error.what(), result_of(error.code()));
  } catch (const std::bad_alloc&) {
    return set("out of memory", KVTIDE_OUT_OF_MEMORY);
  } catch (const std::exception& error) {
    return set(error.what(), KVTIDE_INTERNAL);
  } catch (...) {
    return set("an exception of an unknown type", KVTIDE_INTERNAL);
  }
}

ElementType element_type(int32_t type) {
  if (type == KVTIDE_F16) return ElementType::f16;
  if (type == KVTIDE_F32) return ElementType::f32;
  if (type == KVTIDE_Q8_0) return ElementType::q8_0;
  if (type == KVTIDE_Q4_0) return ElementType::q4_0;
  throw Error(ErrorCode::invalid_argument, cat("there is no kvtide_kv_type ", type));
}

Transition transition_of(const kvtide_transition& t) {
  switch (t.change) {
    case KVTIDE_EXPAND:
      return Expand{t.first};
    case KVTIDE_COMPACT:
      return Compact{t.first};
    case KVTIDE_TRUNCATE:
      return Truncate{t.first};
    case KVTIDE_TRUNCATE_NEAREST:
      return Truncate{t.first, true};
    case KVTIDE_DROP:
      return Drop{{t.first, t.last}, false};
    case KVTIDE_CLOSE_GAP:
      return Drop{{t.first, t.last}, true};
    case KVTIDE_ATTENTION:
      return SetAttention{t.first == 0 ? std::nullopt : std::optional<std::int64_t>(t.first)};
    default:
      throw Error(ErrorCode::invalid_argument, cat("there is no kvtide_change ", t.change));
  }
}

kvtide_record record_of(const TransitionRecord& r) noexcept {
  return {r.position,       r.rows_kept,    r.rows_dropped, r.capacity_before,
          r.capacity_after, r.bytes_before, r.bytes_after,  r.milliseconds};
}

kvtide_numbers numbers_of(const State& state) {
  return {state.position(),
          state.rows(),
          state.capacity(),
          state.held_bytes(),
          state.shared_bytes(),
          state.capacity_bytes(),
          state.attention_size().value_or(0)};
}

int32_t planned(const TransitionPlan& plan, kvtide_record* record) {
  if (!plan) throw Error(ErrorCode::invalid_argument, plan.refusal());
  if (record != nullptr) *record = record_of(plan.expected());
  return KVTIDE_OK;
}

}  // namespace kvtide::capi

extern "C" {

int32_t kvtide_api_version(void) { return 1000 * KVTIDE_API_MAJOR + KVTIDE_API_MINOR; }

const char* kvtide_error_name(int64_t result) {
  using kvtide::ErrorCode;
  if (result >= 0) return "ok";
  for (int code = 0; code <= static_cast<int>(ErrorCode::cancelled); ++code)
    if (kvtide::capi::result_of(static_cast<ErrorCode>(code)) == result)
      return kvtide::error_code_name(static_cast<ErrorCode>(code));
  return "internal";
}
}
