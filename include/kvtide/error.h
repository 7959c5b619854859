// error.h: the one exception type of kvtide.
//
// Every failure that a caller can cause (a bad file, a bad request, a full disk) is thrown as an Error whose
// message names the object, what is wrong and what would be right. Expected outcomes are return values; bugs
// are asserts.
// Thread rules: a plain value.
// Invariant: an operation that throws has changed nothing the caller can see.
#pragma once

#include <exception>
#include <string>
#include <utility>

namespace kvtide {

enum class ErrorCode {
  invalid_argument,  // the request makes no sense: a wrong flag value, a token id out of range
  not_found,         // a file that does not exist or cannot be read
  io,                // the operating system refused a read or a write
  bad_format,        // a file that breaks the rules of its format
  unsupported,       // a valid file or request that asks for what kvtide does not do
  bad_text,          // text that is not valid UTF-8
  context_full,      // no room is left in the KV memory
  out_of_memory,     // the operating system has no memory left
  numeric,           // NaN or infinity where a number belongs
  cancelled,         // the caller asked to stop
};

// "bad_format" and so on: stable names for messages, JSON and tests.
const char* error_code_name(ErrorCode code) noexcept;

class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}
  ErrorCode code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  ErrorCode code_;
  std::string message_;
};

}  // namespace kvtide
