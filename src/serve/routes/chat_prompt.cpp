#include "serve/routes/chat_prompt.h"

#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide::serve {
namespace chat_prompt_of {

ChatTemplate template_of(const Model& model) {
  if (model.chat_template().empty())
    throw Error(ErrorCode::unsupported,
                cat("the model ", quoted(model.name()),
                    " brings no chat template; /v1/completions continues a text with it"));
  return ChatTemplate::recognise(model.chat_template());
}

}  // namespace chat_prompt_of

std::string chat_text(const Model& model, const std::vector<ChatMessage>& messages) {
  std::string out;
  for (const TextSegment& segment : chat_prompt_of::template_of(model).render(messages)) out += segment.text;
  return out;
}

ChatPrompt chat_prompt(const Model& model, const std::vector<ChatMessage>& messages) {
  const ChatTemplate chat = chat_prompt_of::template_of(model);
  ChatPrompt out;
  out.tokens = model.tokenizer().encode(chat.render(messages));
  if (const auto token = model.tokenizer().find(chat.end_marker()))
    out.stop_tokens.push_back(*token);
  else
    out.stop.emplace_back(chat.end_marker());
  return out;
}

}  // namespace kvtide::serve
