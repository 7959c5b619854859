#include "text/jinja/run.h"

#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide::jinja {

Run::~Run() {
  // A value may go away only when nothing can reach what owns it by way of it.
  for (const auto& scope : scopes_) scope->values.clear();
}

void Run::refuse(const std::string& why) const {
  throw Error(ErrorCode::invalid_argument, cat("chat template, line ", line_, ": ", why));
}

void Run::refuse_undefined(const Value& value) const {
  if (const Undefined* missing = value.missing())
    refuse(missing->why.empty() ? "the value is undefined" : missing->why);
}

void Run::step(std::size_t count) {
  steps_ += count;
  if (steps_ > limits_.steps) refuse(cat("the template takes more than ", limits_.steps, " steps"));
}

void Run::charge(std::size_t bytes) {
  if (bytes > limits_.bytes - bytes_)
    refuse(cat("the template makes more than ", limits_.bytes, " bytes of values"));
  bytes_ += bytes;
}

void Run::refuse_depth() const {
  refuse(cat("calls and expressions lie more than ", kMostDepth, " deep in each other"));
}

}  // namespace kvtide::jinja
