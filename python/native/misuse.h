// misuse.h: refusals that only exist in Python: an object used after close(), by two threads, in a forked
// process.
//
// They become kvtide.ClosedError and kvtide.BusyError; kvtide::Error becomes the subclass of its code.
#pragma once

#include <nanobind/nanobind.h>

#include <exception>
#include <string>
#include <utility>

namespace kvtide::python {

class Misuse : public std::exception {
 public:
  Misuse(const char* code, std::string message) : code_(code), message_(std::move(message)) {}
  const char* code() const noexcept { return code_; }  // of kvtide.errors.BY_CODE
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  const char* code_;
  std::string message_;
};

// Imports kvtide.errors and translates both exception types into its classes.
void bind_errors(nanobind::module_& module);

}  // namespace kvtide::python
