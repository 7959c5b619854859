#include "serve/routes/chat_prompt.h"

#include "base/local_time.h"
#include "base/text.h"

namespace kvtide::serve {

ServedChat::ServedChat(const Model& model, const std::string& named) : tokenizer_(&model.tokenizer()) {
  try {
    const ChatMarkers markers = ChatMarkers::of(*tokenizer_);
    if (!named.empty())
      template_ = ChatTemplate::named(named, markers);
    else if (!model.chat_template().empty())
      template_.emplace(model.chat_template(), markers);
    else
      error_ =
          Error(ErrorCode::unsupported,
                cat("the model ", quoted(model.name()),
                    " brings no chat template; /v1/completions continues a text with it, and kvtide serve "
                    "--chat-template chooses one"));
  } catch (const Error& error) {
    if (!named.empty() || error.code() == ErrorCode::out_of_memory) throw;
    error_ = Error(ErrorCode::unsupported, cat("the model ", quoted(model.name()), ": ", error.message()));
  }
}

std::vector<TextSegment> ServedChat::render(const std::vector<ChatMessage>& messages) const {
  if (error_) throw *error_;
  return template_->render(messages, {.now = local_time()});
}

std::string ServedChat::text(const std::vector<ChatMessage>& messages) const {
  std::string out;
  for (const TextSegment& segment : render(messages)) out += segment.text;
  return out;
}

ChatPrompt ServedChat::prompt(const std::vector<ChatMessage>& messages) const {
  ChatPrompt out;
  out.tokens = encode_chat(*tokenizer_, render(messages));
  const std::string& end = template_->end_marker();
  if (end.empty()) return out;
  if (const auto token = tokenizer_->find(end))
    out.stop_tokens.push_back(*token);
  else
    out.stop.push_back(end);
  return out;
}

}  // namespace kvtide::serve
