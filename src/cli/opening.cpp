#include "cli/opening.h"

#include <chrono>

#include "base/text.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "kernels/kernels.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

SessionOptions session_options(const Arguments& arguments, std::int64_t context) {
  SessionOptions options = arguments.session;
  options.context = context;
  return options;
}

}  // namespace

OpenModel::OpenModel(const Arguments& arguments, std::int64_t context)
    : load_seconds(now()),
      model(arguments.model, arguments.loading),
      session(model, session_options(arguments, context)) {
  load_seconds = now() - load_seconds;
  stop_if_interrupted("stopped while loading; nothing was read or written");
}

std::string OpenModel::headline() const {
  const SessionOptions& o = session.options();
  const char* kernels = o.kernels.empty() ? best_kernels().isa : o.kernels.c_str();
  return cat(quoted(model.name()), ": ", model.architecture(), ", ",
             number_text(static_cast<double>(model.parameters()) * 1e-6, 1), " M parameters, ",
             bytes_text(model.weights_bytes()), " of weights, loaded in ", time_text(load_seconds), "; ",
             kernels, ", ", o.threads, o.threads == 1 ? " thread, " : " threads, ", o.exact ? "exact, " : "",
             "context ", count_text(session.context()));
}

void ContextGuard::before_reading(std::int64_t tokens) {
  const std::int64_t end = session_.position() + tokens, trained = session_.model().context_length();
  if (end > session_.context())
    throw Error(ErrorCode::context_full,
                cat("the text does not fit: ", count_text(tokens), " tokens, where the context of ",
                    count_text(session_.context()), " has room for ",
                    count_text(session_.context() - session_.position()), "; use a larger context (-c ", end,
                    " or more) or a shorter text"));
  if (end <= trained || warned_) return;
  warned_ = true;
  say(cat("warning: this goes beyond the ", count_text(trained),
          " tokens that the model was trained for; its answers may get worse"));
}

ChatTemplate choose_template(const Model& model, const Arguments& arguments) {
  if (!arguments.chat_template.empty()) return ChatTemplate::named(arguments.chat_template);
  try {
    return ChatTemplate::recognise(model.chat_template());
  } catch (const Error& error) {
    throw Error(error.code(), cat(model.path(), ": ", error.message()));
  }
}

}  // namespace kvtide
