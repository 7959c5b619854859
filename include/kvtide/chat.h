// chat.h: how a model wants a conversation written down.
//
// JinjaTemplate renders any template in the language that models bring. ChatTemplate recognises a model's template by
// the markers it uses, and writes it by a routine of ours, turn by turn. The result is a list of segments, so that what a user typed is never read as markup (see
// Tokenizer::encode). The bos token is not part of it: encode adds it to a text that starts, as the
// vocabulary says.
// Ownership and thread rules: a plain value.
#pragma once

#include <cstddef>
#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvtide/tokenizer.h"

namespace kvtide {

namespace jinja {
class Template;
}

// A chat template in its own language: Jinja, as transformers renders it. It is a program that came with a file, so it
// runs in a sandbox, and the time, memory and stack that it takes are bounded.
// Ownership: copies share one tree. Thread rules: const from any thread.
class JinjaTemplate {
 public:
  // Throws Error(bad_format) for what is no template, Error(unsupported) for filters and tags that there are not; both
  // name the line. Throws Error(bad_text) for what is not UTF-8.
  explicit JinjaTemplate(std::string_view source);
  // `variables`: a JSON object of what the template can read: "messages", "tools", "add_generation_prompt",
  // "bos_token". `now`: what strftime_now tells; without it that function is refused. Throws Error(bad_format) for what
  // is no JSON, and Error(invalid_argument) that names the line: for what the template raises, for values that do not
  // fit, and for too much work.
  std::string render(std::string_view variables, const std::optional<std::tm>& now = std::nullopt) const;

 private:
  std::shared_ptr<const jinja::Template> template_;
};

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};

struct RenderOptions {
  std::size_t first =
      0;  // messages before this one are in the context already, with the text of their answer
  bool answer_ended =
      false;  // that answer ended with the template's own end marker, which is in the context too
  bool open_answer = true;  // end with what starts the assistant's answer
};

class ChatTemplate {
 public:
  // The routine for a model's own template. Throws Error(unsupported), naming --chat-template and its values,
  // for templates that none of them writes.
  static ChatTemplate recognise(std::string_view jinja);
  // By name. Throws Error(unsupported) that lists the names.
  static ChatTemplate named(std::string_view name);
  static std::span<const std::string_view> names();  // chatml, llama-3, gemma, mistral-instruct

  std::string_view name() const;
  // What the template puts in front of a conversation that has no system message; often "".
  const std::string& default_system() const { return default_system_; }
  void set_default_system(std::string text) { default_system_ = std::move(text); }
  // The marker that ends an answer.
  std::string_view end_marker() const;

  // The conversation from message `first` on. Rendering the first k messages, then the answer that the model
  // gave (as message k), then the rest with first = k + 1 writes the same text as rendering everything at
  // once, as far as the answer has no white space at its ends that the template would trim. Throws
  // Error(invalid_argument) for a role or an order of roles that the template does not have.
  std::vector<TextSegment> render(std::span<const ChatMessage> messages,
                                  const RenderOptions& options = {}) const;

 private:
  enum class Style { chatml, llama3, gemma, mistral };
  explicit ChatTemplate(Style style) : style_(style) {}
  void check(std::span<const ChatMessage> messages) const;
  bool folds_system() const { return style_ == Style::gemma || style_ == Style::mistral; }
  bool trims() const { return style_ == Style::gemma || style_ == Style::llama3; }
  std::string before(std::string_view role) const;
  std::string after(std::string_view role) const;  // starts with end_marker() for an answer

  Style style_;
  std::string default_system_;
  // Mistral's templates differ in where they put spaces.
  bool space_before_user_ = true, space_after_user_ = true, space_before_answer_ = false;
};

}  // namespace kvtide
