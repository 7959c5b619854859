// exit_status.h: what the program returns to the shell, one number per kind of failure. Documented in
// docs/cli.md.
#pragma once

#include "kvtide/error.h"

namespace kvtide {

inline constexpr int kExitFine = 0;
inline constexpr int kExitDifferent = 11;    // kvtide state diff
inline constexpr int kExitInvalid = 12;      // kvtide validate: the model does not do what it should
inline constexpr int kExitReaderGone = 141;  // as shells report a program that SIGPIPE ended
inline constexpr int kExitBug = 1;           // an exception that should not exist

constexpr int exit_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return 2;
    case ErrorCode::not_found:
      return 3;
    case ErrorCode::bad_format:
      return 4;
    case ErrorCode::unsupported:
      return 5;
    case ErrorCode::bad_text:
      return 6;
    case ErrorCode::context_full:
      return 7;
    case ErrorCode::io:
      return 8;
    case ErrorCode::out_of_memory:
      return 9;
    case ErrorCode::numeric:
      return 10;
    case ErrorCode::cancelled:
      return 130;  // as shells report a program that Ctrl-C ended
  }
  return kExitBug;
}

}  // namespace kvtide
