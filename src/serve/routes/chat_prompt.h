// chat_prompt.h: a conversation as the tokens that a model reads: the one place that knows how templates are rendered.
//
// Thread rules: const from any thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kvtide/chat.h"
#include "kvtide/error.h"
#include "kvtide/model.h"
#include "serve/routes/answer_format.h"
#include "serve/tools/tool_request.h"
#include "text/grammar/pattern.h"

namespace kvtide::serve {

struct ChatPrompt {
  std::vector<TokenId> tokens;
  std::vector<TokenId> stop_tokens;  // what ends the answer, beside the tokenizer's end tokens
  std::vector<std::string> stop;
  std::vector<TokenId> shown;               // markers of calls
  std::optional<ToolUse> tools;             // how calls are found; without new_id
  std::optional<grammar::Grammar> grammar;  // of the call that must be made
  // The ids that conversations with these system messages and tools begin with.
  std::function<std::vector<TokenId>()> before_user;

  // Hands what the answer needs to its spec.
  void move_into(AnswerSpec& spec);
};

// The chat template of one model. What is wrong with it is told to those who chat: texts can be completed all the same.
class ServedChat {
 public:
  // `named`: the template of that name instead of the model's own; empty: the model's own.
  ServedChat(const Model& model, const std::string& named);

  // Throws Error: unsupported (a model without a template), whatever is wrong with the template, invalid_argument (what it
  // raises), bad_text.
  std::string text(const std::vector<ChatMessage>& messages, const ToolRequest& tools = {}) const;
  // With what opens the answer. Its before_user refers to this object.
  ChatPrompt prompt(const std::vector<ChatMessage>& messages, const ToolRequest& tools = {}) const;

 private:
  std::vector<TextSegment> render(const std::vector<ChatMessage>& messages, const ToolRequest& tools) const;

  const Tokenizer* tokenizer_;
  std::optional<ChatTemplate> template_;
  std::optional<Error> error_;
};

}  // namespace kvtide::serve
