// opening.h: a model and a session on it, opened as the flags ask.
//
// Ownership: owns both; stays where it is, because the session refers to the model. Thread rules: those of
// Session.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/stopwatch.h"
#include "cli/arguments/arguments.h"
#include "kvtide/chat.h"
#include "kvtide/session.h"

namespace kvtide {

struct OpenModel {
  Stopwatch watch;  // first, so that it starts before the model
  double load_seconds = 0.0;
  Model model;
  Session session;

  // Tokens that will be read and written; 0: nobody knows.
  using Expected = std::function<std::int64_t(const Model&)>;
  // `context`: 0 for the model's own. A budget is planned for the tokens `expected`, unless -c says how many.
  OpenModel(const Arguments& arguments, std::int64_t context, const Expected& expected = {});
  OpenModel(const OpenModel&) = delete;
  OpenModel& operator=(const OpenModel&) = delete;

  // "SmolLM2 135M: llama, 134.5 M parameters, ...": what runs, and how; with everything that was chosen for a
  // procedural memory.
  std::string headline(bool everything = true) const;
};

// Throws Error(context_full) unless `tokens` more fit, and says once, when the model was not trained to look
// back that far.
class ContextGuard {
 public:
  explicit ContextGuard(const Session& session) : session_(session) {}
  // A text that does not fit is not refused: something makes room.
  void let_overflow() { makes_room_ = true; }
  void before_reading(std::int64_t tokens);  // tokens that are about to be added

 private:
  const Session& session_;
  bool makes_room_ = false, warned_ = false;
};

// The template of --chat-template, or the model's own. Throws Error(unsupported) naming the known ones, and what is wrong
// with a template of the model's own.
ChatTemplate choose_template(const Model& model, const Arguments& arguments);

// Says so of a model that only continues texts: it brings no chat template, or its name calls it a base model.
void say_if_it_cannot_chat(const Model& model);

}  // namespace kvtide
