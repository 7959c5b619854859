#include "serve/routes/chat_messages.h"

#include <algorithm>
#include <utility>

#include "base/json/json_text.h"
#include "base/text.h"
#include "serve/routes/request_fields.h"
#include "serve/tools/said_calls.h"
#include "text/utf8.h"

namespace kvtide::serve {
namespace chat_messages {

constexpr std::size_t kMostMessages = 4096, kMostParts = 4096;

// The call that a result belongs to; its name is empty when it was never made.
ToolCall call_of(const std::vector<ChatMessage>& messages, const std::string& id) {
  for (auto message = messages.rbegin(); message != messages.rend(); ++message)
    if (message->more.find(JsonValue::text_of(id)) != std::string::npos)
      for (ToolCall& call : calls_in(*message))
        if (call.id == id) return std::move(call);
  return {id, "", ""};
}

std::string role_of(const Fields& message) {
  std::string role = message.required_text("role");
  if (role == "developer") role = "system";
  if (role != "system" && role != "user" && role != "assistant" && role != "tool")
    message.refuse("role", cat("must be system, user, assistant or tool, not ", quoted(role)));
  return role;
}

const JsonValue::List& list_of(const Fields& fields, std::string_view key) {
  const JsonValue::List& list = fields.required_list(key);
  if (list.empty()) fields.refuse(key, "holds no message");
  if (list.size() > kMostMessages) fields.refuse(key, "has too many messages");
  return list;
}

// "arguments" of a call, which clients send as a text.
std::string arguments_of(const Fields& function) {
  const JsonValue* arguments = function.find("arguments");
  if (arguments == nullptr) return "{}";
  return arguments->text() != nullptr ? *arguments->text() : json_text(*arguments, JsonForm::line);
}

std::vector<ToolCall> calls_of(const Fields& message) {
  std::vector<ToolCall> out;
  const JsonValue::List* list = message.list("tool_calls");
  if (list == nullptr) return out;
  for (const JsonValue& item : *list) {
    const Fields call(item, cat(message.place("tool_calls"), "[", out.size(), "]"));
    const auto function = call.child("function");
    if (!function) call.refuse("function", "is missing; it must be an object");
    out.push_back({call.text("id").value_or(""), function->required_text("name"), arguments_of(*function)});
  }
  return out;
}

// A message of blocks: results first, each a message of its own, then texts, with the calls of an answer.
void add_blocks(const Fields& message, const JsonValue::List& blocks, std::vector<ChatMessage>& out) {
  const std::string role = role_of(message);
  if (blocks.size() > kMostParts) message.refuse("content", "has too many parts");
  std::string text;
  bool has_text = blocks.empty();
  std::vector<ToolCall> calls;
  std::size_t at = 0;
  for (const JsonValue& item : blocks) {
    const Fields block(item, cat(message.place("content"), "[", at++, "]"));
    const std::string type = block.required_text("type");
    if (type == "tool_use" && role == "assistant") {
      const JsonValue* input = block.find("input");
      calls.push_back({block.required_text("id"), block.required_text("name"),
                       input == nullptr ? "{}" : json_text(*input, JsonForm::line)});
    } else if (type == "tool_result" && role == "user") {
      const ToolCall call = call_of(out, block.required_text("tool_use_id"));
      out.push_back(result_of(call, block.has("content") ? read_content(block, "content") : std::string()));
    } else if (type == "text") {
      text += block.required_text("text");
      has_text = true;
    } else if (type != "thinking" && type != "redacted_thinking") {
      refuse_unsupported(block, "type",
                         cat("blocks of type ", quoted(type), " are not supported here; text is"));
    }
  }
  if (find_invalid_utf8(text)) message.refuse("content", "is not valid UTF-8");
  if (!calls.empty())
    out.push_back(calling(std::move(text), calls));
  else if (has_text)
    out.push_back({role, std::move(text)});
}

// Calls that stand side by side are one answer's.
void add_call(const Fields& item, std::vector<ChatMessage>& out) {
  const ToolCall call{item.required_text("call_id"), item.required_text("name"), arguments_of(item)};
  if (out.empty() || out.back().role != "assistant") {
    out.push_back(calling("", {&call, 1}));
    return;
  }
  std::vector<ToolCall> calls = calls_in(out.back());
  calls.push_back(call);
  out.back() = calling(out.back().content, calls);
}

}  // namespace chat_messages

std::string read_content(const Fields& message, std::string_view key) {
  const JsonValue* content = message.find(key);
  if (content == nullptr) message.refuse(key, "is missing; it must be a string or a list of parts");
  std::string out;
  if (content->text() != nullptr) {
    out = *content->text();
  } else if (content->list() != nullptr) {
    if (content->list()->size() > chat_messages::kMostParts) message.refuse(key, "has too many parts");
    std::size_t at = 0;
    for (const JsonValue& item : *content->list()) {
      const Fields part(item, cat(message.place(key), "[", at++, "]"));
      const std::string type = part.required_text("type");
      if (type != "text" && type != "input_text" && type != "output_text")
        refuse_unsupported(part, "type", cat("parts of type ", quoted(type), " are not supported; text is"));
      out += part.required_text("text");
    }
  } else {
    message.refuse(key, cat("must be a string or a list of parts, not ", content->kind()));
  }
  if (find_invalid_utf8(out)) message.refuse(key, "is not valid UTF-8");
  return out;
}

std::vector<ChatMessage> read_messages(const Fields& fields, std::string_view key) {
  std::vector<ChatMessage> out;
  for (const JsonValue& item : chat_messages::list_of(fields, key)) {
    const Fields message(item, cat(fields.place(key), "[", out.size(), "]"));
    std::string role = chat_messages::role_of(message);
    const std::vector<ToolCall> calls = chat_messages::calls_of(message);
    if (!calls.empty() && role != "assistant")
      message.refuse("tool_calls", "belong into messages of the assistant");
    std::string content;
    if (calls.empty() || message.has("content")) content = read_content(message, "content");
    if (!calls.empty())
      out.push_back(calling(std::move(content), calls));
    else if (role == "tool")
      out.push_back(
          result_of(chat_messages::call_of(out, message.required_text("tool_call_id")), std::move(content)));
    else
      out.push_back({std::move(role), std::move(content)});
  }
  return out;
}

std::vector<ChatMessage> read_blocks(const Fields& fields, std::string_view key) {
  std::vector<ChatMessage> out;
  std::size_t at = 0;
  for (const JsonValue& item : chat_messages::list_of(fields, key)) {
    const Fields message(item, cat(fields.place(key), "[", at++, "]"));
    const JsonValue* content = message.find("content");
    if (content != nullptr && content->list() != nullptr)
      chat_messages::add_blocks(message, *content->list(), out);
    else
      out.push_back({chat_messages::role_of(message), read_content(message, "content")});
  }
  if (out.empty()) fields.refuse(key, "holds no message");
  return out;
}

void read_items(const Fields& fields, std::string_view key, std::vector<ChatMessage>& conversation) {
  const JsonValue* input = fields.find(key);
  if (input == nullptr) fields.refuse(key, "is missing; it must be a string or a list of messages");
  if (input->list() == nullptr) {
    conversation.push_back({"user", read_content(fields, key)});
    return;
  }
  std::size_t at = 0;
  for (const JsonValue& item : chat_messages::list_of(fields, key)) {
    const Fields one(item, cat(fields.place(key), "[", at++, "]"));
    const std::string type = one.text("type").value_or("message");
    if (type == "message") {
      conversation.push_back({chat_messages::role_of(one), read_content(one, "content")});
    } else if (type == "function_call") {
      chat_messages::add_call(one, conversation);
    } else if (type == "function_call_output") {
      const ToolCall call = chat_messages::call_of(conversation, one.required_text("call_id"));
      conversation.push_back(result_of(call, read_content(one, "output")));
    } else if (type != "reasoning") {
      refuse_unsupported(one, "type",
                         cat("items of type ", quoted(type), " are not supported; messages are"));
    }
  }
}

}  // namespace kvtide::serve
