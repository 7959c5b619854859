// chat_messages.h: the conversation of a request, in the form of each interface, as the messages that templates know.
//
// Pure functions. Throw Error: invalid_argument, unsupported (parts that are no text, items that there are not).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kvtide/chat.h"
#include "serve/http/fields.h"

namespace kvtide::serve {

// The text of a message's content: a string, or a list of parts that are texts.
std::string read_content(const Fields& message, std::string_view key);
// "messages" of /v1/chat/completions: with tool_calls, and with results in messages of the role tool.
std::vector<ChatMessage> read_messages(const Fields& fields, std::string_view key);
// "messages" of /v1/messages: with blocks tool_use and tool_result.
std::vector<ChatMessage> read_blocks(const Fields& fields, std::string_view key);
// "input" of /v1/responses, behind a conversation that there is: with items function_call and function_call_output.
void read_items(const Fields& fields, std::string_view key, std::vector<ChatMessage>& conversation);

}  // namespace kvtide::serve
