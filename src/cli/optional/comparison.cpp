#include "cli/optional/comparison.h"

#include "base/text.h"
#include "cli/arguments/memory_options.h"
#include "cli/arguments/procedural_options.h"
#include "cli/commands/choose_heads.h"
#include "cli/commands/input_text.h"
#include "eval/filler.h"
#include "kvtide/error.h"

namespace kvtide {

HeadTable heads_for(const Arguments& arguments, const Model& model) {
  return wants_procedural(arguments) ? choose_heads(arguments, model) : HeadTable{};
}

SessionOptions policy_for(const Arguments& arguments, const Model& model, const HeadTable& heads,
                          std::int64_t tokens) {
  const bool rolling = arguments.memory.overflow == Overflow::rolling;
  SessionOptions options = memory_options(arguments, rolling ? 0 : tokens, model.context_length());
  if (!options.procedural) return options;
  options.context = 0;
  options.procedural->heads = heads;
  options.procedural->budget_for = tokens;
  return options;
}

std::vector<TokenId> filler_for(const Arguments& arguments, const Model& model, std::int64_t tokens) {
  if (!arguments.file) return filler_prose(model.tokenizer(), tokens);
  Arguments plain = arguments;
  plain.no_special = true;  // markers in a text that is measured are text
  const InputText input = read_document(*arguments.file, arguments);
  std::vector<TokenId> filler = encode_text(model.tokenizer(), input, plain);
  if (static_cast<std::int64_t>(filler.size()) < tokens)
    throw Error(ErrorCode::invalid_argument, cat(input.name, ": has ", filler.size(), " tokens; ", tokens,
                                                 " are needed: a longer text, or a smaller --ctx"));
  return filler;
}

}  // namespace kvtide
