#include "kvtide/error.h"

namespace kvtide {

const char* error_code_name(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::not_found:
      return "not_found";
    case ErrorCode::io:
      return "io";
    case ErrorCode::bad_format:
      return "bad_format";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::bad_text:
      return "bad_text";
    case ErrorCode::context_full:
      return "context_full";
    case ErrorCode::out_of_memory:
      return "out_of_memory";
    case ErrorCode::numeric:
      return "numeric";
    case ErrorCode::cancelled:
      return "cancelled";
  }
  return "unknown";
}

}  // namespace kvtide
