#include "kvtide/chat.h"

#include <algorithm>
#include <optional>

#include "base/out_of_memory.h"
#include "base/text.h"
#include "kvtide/error.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace kvtide {
namespace {

constexpr std::string_view kStyleNames[] = {"chatml", "llama-3", "gemma", "mistral-instruct"};  // by Style

std::string known_names() {
  std::string list;
  for (const std::string_view name : kStyleNames) list += cat(list.empty() ? "" : ", ", name);
  return list;
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

// The characters that the trim filter of templates removes: white space and the four ASCII separators.
bool is_trimmed(char32_t c) { return (char_class(c) & kSpace) != 0 || (c >= 0x1c && c <= 0x1f); }

std::string_view trim(std::string_view text) {
  std::size_t first = 0;
  while (first < text.size() && is_trimmed(utf8_at(text, first))) first += utf8_length(text[first]);
  std::size_t last = text.size();
  while (last > first) {
    std::size_t start = last - 1;
    while (start > first && (text[start] & 0xc0) == 0x80) --start;
    if (!is_trimmed(utf8_at(text, start))) break;
    last = start;
  }
  return text.substr(first, last - first);
}

// The text of a string literal from `at` up to `end`; nullopt when the literal closes before that.
std::optional<std::string> literal_until(std::string_view jinja, std::size_t at, char quote,
                                         std::string_view end) {
  std::string text;
  for (; at < jinja.size(); ++at) {
    if (jinja.substr(at).starts_with(end)) return text;
    if (jinja[at] == quote) return std::nullopt;
    if (jinja[at] != '\\' || at + 1 == jinja.size()) {
      text += jinja[at];
      continue;
    }
    const char escaped = jinja[++at];
    text += escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped;
  }
  return std::nullopt;
}

// A ChatML template that has a default system message writes it as one literal:
// '<|im_start|>system\n...<|im_end|>'.
std::string find_default_system(std::string_view jinja) {
  constexpr std::string_view kStart = "<|im_start|>system";
  for (std::size_t at = jinja.find(kStart, 1); at != jinja.npos; at = jinja.find(kStart, at + 1)) {
    const char quote = jinja[at - 1];
    if (quote != '\'' && quote != '"') continue;
    const auto text = literal_until(jinja, at + kStart.size(), quote, "<|im_end|>");
    if (text && text->starts_with('\n')) return text->substr(1);
  }
  return {};
}

}  // namespace

std::span<const std::string_view> ChatTemplate::names() { return kStyleNames; }
std::string_view ChatTemplate::name() const {
  return or_out_of_memory([&] { return kStyleNames[static_cast<std::size_t>(style_)]; });
}

ChatTemplate ChatTemplate::named(std::string_view name) try {
  const auto* found = std::find(std::begin(kStyleNames), std::end(kStyleNames), name);
  if (found == std::end(kStyleNames)) {
    throw Error(ErrorCode::unsupported, cat("chat template: there is none named ", quoted(name),
                                            "; --chat-template takes ", known_names()));
  }
  return ChatTemplate(static_cast<Style>(found - std::begin(kStyleNames)));
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

ChatTemplate ChatTemplate::recognise(std::string_view jinja) try {
  if (contains(jinja, "<|im_start|>") && contains(jinja, "<|im_end|>") && !contains(jinja, "<|im_sep|>")) {
    ChatTemplate result(Style::chatml);
    result.default_system_ = find_default_system(jinja);
    return result;
  }
  if (contains(jinja, "<|start_header_id|>") && contains(jinja, "<|eot_id|>"))
    return ChatTemplate(Style::llama3);
  if (contains(jinja, "<start_of_turn>") && contains(jinja, "<end_of_turn>"))
    return ChatTemplate(Style::gemma);
  if (contains(jinja, "[INST]") && contains(jinja, "[/INST]") && !contains(jinja, "<<SYS>>") &&
      !contains(jinja, "[SYSTEM_PROMPT]")) {
    ChatTemplate result(Style::mistral);
    result.space_before_user_ = contains(jinja, "[INST] ");
    result.space_after_user_ = contains(jinja, " [/INST]");
    result.space_before_answer_ = contains(jinja, "' ' + message") || contains(jinja, "\" \" + message");
    return result;
  }
  const std::string what =
      jinja.empty() ? "the model has none"
                    : cat("the model's own, ", quoted(jinja, 40), ", is not one that kvtide writes");
  throw Error(ErrorCode::unsupported,
              cat("chat template: ", what, "; choose one with --chat-template: ", known_names()));
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

std::string_view ChatTemplate::end_marker() const {
  switch (style_) {
    case Style::chatml:
      return "<|im_end|>";
    case Style::llama3:
      return "<|eot_id|>";
    case Style::gemma:
      return "<end_of_turn>";
    case Style::mistral:
      return "</s>";
  }
  return {};
}

std::string ChatTemplate::before(std::string_view role) const {
  switch (style_) {
    case Style::chatml:
      return cat("<|im_start|>", role, "\n");
    case Style::llama3:
      return cat("<|start_header_id|>", role, "<|end_header_id|>\n\n");
    case Style::gemma:
      return cat("<start_of_turn>", role == "assistant" ? "model" : role, "\n");
    case Style::mistral:
      return role == "user" ? space_before_user_ ? "[INST] " : "[INST]" : "";
  }
  return {};
}

std::string ChatTemplate::after(std::string_view role) const {
  if (style_ == Style::mistral && role == "user") return space_after_user_ ? " [/INST]" : "[/INST]";
  return cat(end_marker(), style_ == Style::chatml || style_ == Style::gemma ? "\n" : "");
}

void ChatTemplate::check(std::span<const ChatMessage> messages) const {
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    const auto refuse = [&](std::string_view why) {
      throw Error(ErrorCode::invalid_argument,
                  cat("chat: message ", i, " has the role ", quoted(role), "; ", why));
    };
    // A role goes into the markup, so nothing but these may.
    if (role != "system" && role != "user" && role != "assistant")
      refuse("roles are system, user and assistant");
    if (!folds_system()) continue;
    const bool has_system = messages[0].role == "system";
    const std::string_view wanted = i == 0 && has_system        ? "system"
                                    : (i - has_system) % 2 == 0 ? "user"
                                                                : "assistant";
    if (role != wanted) refuse(cat("the ", name(), " template needs ", wanted, " here"));
  }
}

std::vector<TextSegment> ChatTemplate::render(std::span<const ChatMessage> messages,
                                              const RenderOptions& options) const try {
  check(messages);
  if (options.first > messages.size()) {
    throw Error(ErrorCode::invalid_argument,
                cat("chat: asked to go on at message ", options.first, " of ", messages.size()));
  }
  std::vector<TextSegment> out;
  const auto put = [&](std::string_view text, bool is_markup) {
    if (text.empty()) return;
    if (out.empty() || out.back().is_markup != is_markup) out.push_back({"", is_markup});
    out.back().text += text;
  };
  if (options.first > 0 && messages[options.first - 1].role == "assistant") {
    const std::string rest = after("assistant");
    put(std::string_view(rest).substr(options.answer_ended ? end_marker().size() : 0), true);
  }
  const bool has_system = !messages.empty() && messages[0].role == "system";
  std::string folded;  // a system message on its way into the first user message
  if (folds_system()) {
    if (has_system) folded = messages[0].content + "\n\n";
    if (!has_system && !default_system_.empty()) folded = default_system_ + "\n\n";
    if (has_system && options.first == 1) {
      throw Error(ErrorCode::invalid_argument, cat("chat: the ", name(),
                                                   " template writes the system message together with "
                                                   "the first user message; they cannot be rendered apart"));
    }
  } else if (options.first == 0 && !messages.empty() && !has_system && !default_system_.empty()) {
    put(before("system"), true);
    put(default_system_, false);
    put(after("system"), true);
  }
  for (std::size_t i = options.first; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    require_utf8(message.content, cat("chat: message ", i));
    if (folds_system() && message.role == "system") continue;
    put(before(message.role), true);
    const bool answer = message.role == "assistant";
    if (style_ == Style::mistral && answer && space_before_answer_) put(" ", true);
    if (i == (has_system ? 1u : 0u)) put(folded, false);
    put(trims() ? trim(message.content) : std::string_view(message.content), false);
    put(after(message.role), true);
  }
  if (options.open_answer && !(style_ == Style::mistral)) put(before("assistant"), true);
  return out;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide
