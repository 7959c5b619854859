// said_calls.h: calls and results of tools as messages of a conversation.
//
// Pure functions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kvtide/chat.h"

namespace kvtide::serve {

struct ToolCall {
  std::string id, name;
  std::string arguments;  // a JSON object, unless the answer was cut off in it
};

// An answer that called tools, and what one of them gave.
ChatMessage calling(std::string text, std::span<const ToolCall> calls);
ChatMessage result_of(const ToolCall& call, std::string content);
// The calls of an answer that was made by calling().
std::vector<ToolCall> calls_in(const ChatMessage& message);

// For templates that have no place for tools: the functions (a JSON list; empty: none) are described to the model, and calls
// and results become texts.
std::vector<ChatMessage> in_plain_words(const std::vector<ChatMessage>& messages, const std::string& tools);

}  // namespace kvtide::serve
