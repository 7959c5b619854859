#include "serve/routes/chat_prompt.h"

#include <algorithm>

#include "base/local_time.h"
#include "base/text.h"
#include "serve/tools/forced_call.h"
#include "text/chat/before_user.h"

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

std::vector<TextSegment> ServedChat::render(const std::vector<ChatMessage>& messages,
                                            const ToolRequest& tools) const {
  if (error_) throw *error_;
  if (template_->takes_tools())
    return template_->render(messages, {.tools = tools.json, .now = local_time()});
  return template_->render(in_plain_words(messages, tools.json), {.now = local_time()});
}

void ChatPrompt::move_into(AnswerSpec& spec) {
  spec.prompt = std::move(tokens);
  spec.stop_tokens = std::move(stop_tokens);
  for (std::string& text : stop) spec.stop.push_back(std::move(text));
  spec.shown = std::move(shown);
}

std::string ServedChat::text(const std::vector<ChatMessage>& messages, const ToolRequest& tools) const {
  std::string out;
  for (const TextSegment& segment : render(messages, tools)) out += segment.text;
  return out;
}

ChatPrompt ServedChat::prompt(const std::vector<ChatMessage>& messages, const ToolRequest& tools) const {
  ChatPrompt out;
  out.tokens = encode_chat(*tokenizer_, render(messages, tools));
  const auto said = std::find_if(messages.begin(), messages.end(), [](const ChatMessage& message) {
    return message.role != "system" && message.role != "developer";
  });
  out.before_user = [this, system = std::vector(messages.begin(), said), tools] {
    return ids_before_user([&](std::string_view user) {
      std::vector<ChatMessage> conversation = system;
      conversation.push_back({"user", std::string(user)});
      return encode_chat(*tokenizer_, render(conversation, tools));
    });
  };
  if (tools.is_on()) {
    const ToolFormat format =
        template_->takes_tools() ? tool_format_of(template_->source()) : ToolFormat::fenced;
    out.tools.emplace();
    out.tools->format = format;
    out.tools->tools = tools.tools;
    out.tools->parallel = tools.parallel;
    for (const std::string_view marker : tool_markers(format))
      if (const auto token = tokenizer_->find(marker)) out.shown.push_back(*token);
    if (tools.choice == ToolRequest::Choice::required) {
      ForcedCall forced = force_call(tools, format);
      out.tools->begun = forced.begun;
      out.grammar = std::move(forced.grammar);
      const TextSegment begun{std::move(forced.begun), true};
      const std::vector<TokenId> more =
          encode_chat(*tokenizer_, {&begun, 1}, {.add_bos = {}, .parse_special = true, .continues = true});
      out.tokens.insert(out.tokens.end(), more.begin(), more.end());
    }
  }
  const std::string& end = template_->end_marker();
  if (end.empty()) return out;
  if (const auto token = tokenizer_->find(end))
    out.stop_tokens.push_back(*token);
  else
    out.stop.push_back(end);
  return out;
}

}  // namespace kvtide::serve
