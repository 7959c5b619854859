// chat.h: how a model wants a conversation written down.
//
// A chat template is a program in Jinja that comes with a model. JinjaTemplate renders any; ChatTemplate renders
// conversations, as a list of segments that tell what was given by people from what the template wrote: what a user typed
// is never read as markup (see Tokenizer::encode).
// Ownership and thread rules: plain values; const from any thread.
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
  std::string role;  // "system", "developer", "user", "assistant" or "tool"
  std::string content;
  std::string more =
      {};  // a JSON object of further members: "tool_calls", "tool_call_id", "name"; empty: none
  friend bool operator==(const ChatMessage&, const ChatMessage&) = default;
};

struct ChatRender {
  bool open_answer = true;       // end with what starts the assistant's answer
  std::string tools = {};        // a JSON list of functions; empty: none
  std::optional<std::tm> now{};  // what strftime_now tells; without it that function is refused
};

// What templates read of a vocabulary.
struct ChatMarkers {
  std::string bos, eos;
  static ChatMarkers of(const Tokenizer& tokenizer);
};

class ChatTemplate {
 public:
  // `source`: Jinja, as a model brings it. Throws as JinjaTemplate does, and Error(unsupported) that lists the names for
  // an empty one.
  explicit ChatTemplate(std::string_view source, ChatMarkers markers = {});
  // By name, for models that bring none. Throws Error(unsupported) that lists the names.
  static ChatTemplate named(std::string_view name, ChatMarkers markers = {});
  static std::span<const std::string_view> names();  // chatml, llama-3, gemma, mistral-instruct

  const std::string& source() const { return source_; }
  // Whether it has a place for tools.
  bool takes_tools() const;
  // What the template writes behind an answer to end it; "" when it writes nothing.
  const std::string& end_marker() const { return end_marker_; }

  // Throws Error(invalid_argument) for a role that there is not, and with the line for what the template itself raises.
  std::vector<TextSegment> render(std::span<const ChatMessage> messages,
                                  const ChatRender& options = {}) const;
  // The end of a conversation, behind an answer that a memory holds: what closes the answer, then the messages. Throws
  // Error(unsupported) where the template writes no earlier answers.
  std::vector<TextSegment> render_behind_answer(std::span<const ChatMessage> messages,
                                                const ChatRender& options = {}) const;

 private:
  std::string find_end_marker() const;

  std::shared_ptr<const jinja::Template> template_;
  std::string source_;
  ChatMarkers markers_;
  std::string end_marker_;
};

// The ids of a conversation. A bos marker that the template wrote stands for the tokenizer's own.
std::vector<TokenId> encode_chat(const Tokenizer& tokenizer, std::span<const TextSegment> segments,
                                 const EncodeOptions& options = {});

// What is to be read of a conversation, part of which a memory holds.
struct ChatRest {
  std::size_t keep = 0;  // ids of the memory that stay; fewer than it holds: the rest is to be taken back
  std::vector<TokenId> read;  // what follows them; never empty
  std::string text;           // of the whole conversation
};
// `text`: what the memory holds, answers as they were written; `ids`: the same as it was read. A conversation that goes on
// from the text is read from there, and one that does not from the first token that differs.
ChatRest rest_of_chat(const Tokenizer& tokenizer, std::span<const TextSegment> segments,
                      std::string_view text, std::span<const TokenId> ids, const EncodeOptions& options = {});

}  // namespace kvtide
