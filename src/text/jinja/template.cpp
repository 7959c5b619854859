#include "text/jinja/template.h"

#include "base/text.h"
#include "kvtide/error.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/lexer.h"
#include "text/jinja/parser.h"

namespace kvtide::jinja {

Template::Template(std::string_view source) {
  if (source.size() > kMostTemplateBytes)
    throw Error(ErrorCode::unsupported, cat("chat template: it has ", source.size(), " bytes; ",
                                            kMostTemplateBytes, " are the most that are read"));
  body_ = Parser(read_tokens(source)).parse();
}

MarkedText Template::render(const Mapping& variables, const std::optional<std::tm>& now,
                            const RenderLimits& limits) const {
  Run run(limits, now);
  try {
    return Interpreter(run, variables).render(body_);
  } catch (const Error& error) {
    // What values refuse by themselves does not know its line.
    constexpr std::string_view kWithoutLine = "chat template: ";
    if (!error.message().starts_with(kWithoutLine)) throw;
    run.refuse(error.message().substr(kWithoutLine.size()));
  }
}

}  // namespace kvtide::jinja
