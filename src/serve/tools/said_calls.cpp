#include "serve/tools/said_calls.h"

#include <utility>

#include "base/json/json_text.h"
#include "base/json/json_value.h"
#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide::serve {
namespace said_calls {

bool is_object(const std::string& json) {
  try {
    return JsonValue::parse(json, "arguments").object() != nullptr;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::out_of_memory) throw;
    return false;
  }
}

std::string text_of(const JsonValue* value) {
  return value != nullptr && value->text() != nullptr ? *value->text() : std::string();
}

// One of a member of a message's further ones.
std::string member(const ChatMessage& message, std::string_view key) {
  return message.more.empty() ? "" : text_of(JsonValue::parse(message.more, "message").find(key));
}

void add(std::vector<ChatMessage>& out, std::string role, std::string content) {
  if (!out.empty() && out.back().role == role && role == "user")
    out.back().content += cat("\n\n", content);  // many templates want roles to take turns
  else
    out.push_back({std::move(role), std::move(content)});
}

}  // namespace said_calls

ChatMessage calling(std::string text, std::span<const ToolCall> calls) {
  ChatMessage out{"assistant", std::move(text)};
  if (calls.empty()) return out;
  std::string list;
  for (const ToolCall& call : calls) {
    // Templates write an object as the model was taught; clients send it as a text.
    const std::string arguments =
        said_calls::is_object(call.arguments) ? call.arguments : JsonValue::text_of(call.arguments);
    list += cat(list.empty() ? "" : ", ", R"({"id": )", JsonValue::text_of(call.id),
                R"(, "type": "function", "function": {"name": )", JsonValue::text_of(call.name),
                R"(, "arguments": )", arguments, "}}");
  }
  out.more = cat(R"({"tool_calls": [)", list, "]}");
  return out;
}

ChatMessage result_of(const ToolCall& call, std::string content) {
  return {"tool", std::move(content),
          cat(R"({"tool_call_id": )", JsonValue::text_of(call.id), R"(, "name": )",
              JsonValue::text_of(call.name), "}")};
}

std::vector<ToolCall> calls_in(const ChatMessage& message) {
  std::vector<ToolCall> out;
  if (message.more.empty()) return out;
  const JsonValue more = JsonValue::parse(message.more, "message");
  const JsonValue* calls = more.find("tool_calls");
  if (calls == nullptr || calls->list() == nullptr) return out;
  for (const JsonValue& call : *calls->list()) {
    const JsonValue* function = call.find("function");
    if (function == nullptr) continue;
    const JsonValue* arguments = function->find("arguments");
    out.push_back({said_calls::text_of(call.find("id")), said_calls::text_of(function->find("name")),
                   arguments == nullptr ? "{}" : json_text(*arguments, JsonForm::line)});
  }
  return out;
}

std::vector<ChatMessage> in_plain_words(const std::vector<ChatMessage>& messages, const std::string& tools) {
  std::vector<ChatMessage> out;
  if (!tools.empty()) {
    out.push_back(
        {"system", cat("You can call these functions:\n", tools,
                       "\nTo call one, answer with nothing but a JSON object: {\"name\": its name, "
                       "\"arguments\": an object of its parameters}. Otherwise answer in plain text.")});
  }
  for (const ChatMessage& message : messages) {
    if (message.role == "system" && !out.empty() && out[0].role == "system") {
      out[0].content = cat(message.content, "\n\n", out[0].content);
    } else if (message.role == "tool") {
      said_calls::add(out, "user",
                      cat("Result of ", said_calls::member(message, "name"), ": ", message.content));
    } else {
      std::string content = message.content;
      for (const ToolCall& call : calls_in(message))
        content += cat(content.empty() ? "" : "\n", R"({"name": )", JsonValue::text_of(call.name),
                       R"(, "arguments": )", call.arguments, "}");
      said_calls::add(out, message.role, std::move(content));
    }
  }
  return out;
}

}  // namespace kvtide::serve
