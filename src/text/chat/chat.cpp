#include "kvtide/chat.h"

#include <algorithm>
#include <utility>

#include "base/json/json_value.h"
#include "base/out_of_memory.h"
#include "base/text.h"
#include "kvtide/error.h"
#include "text/chat/chat_sources.h"
#include "text/jinja/from_json.h"
#include "text/jinja/template.h"
#include "text/utf8.h"

namespace kvtide {
namespace {

constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
constexpr std::string_view kSpaces = " \t\r\n";
// Stand for messages that were read long ago: only what the template writes around the second counts.
constexpr std::string_view kEarlierQuestion = "An earlier question", kEarlierAnswer = "An earlier answer";

std::string known_names() {
  std::string list;
  for (const std::string_view name : chat_source_names()) list += cat(list.empty() ? "" : ", ", name);
  return list;
}

JsonValue json_of(const ChatMessage& message, std::size_t at) {
  if (std::find(std::begin(kRoles), std::end(kRoles), message.role) == std::end(kRoles))
    throw Error(ErrorCode::invalid_argument, cat("chat: message ", at, " has the role ", quoted(message.role),
                                                 "; roles are system, user, assistant and tool"));
  const std::string place = cat("chat: message ", at);
  require_utf8(message.content, place);
  JsonValue::Object out;
  out.emplace_back("role", JsonValue(message.role));
  out.emplace_back("content", JsonValue(message.content));
  if (message.more.empty()) return JsonValue(std::move(out));
  JsonValue more = JsonValue::parse(message.more, place);
  if (more.object() == nullptr)
    throw Error(ErrorCode::invalid_argument,
                cat(place, ": its further members must be an object, not ", more.kind()));
  for (auto& member : *more.object())
    if (member.first != "role" && member.first != "content") out.push_back(std::move(member));
  return JsonValue(std::move(out));
}

std::vector<TextSegment> segments_of(const jinja::MarkedText& text) {
  std::vector<TextSegment> out;
  std::size_t at = 0;
  const auto put = [&](std::size_t end, bool is_markup) {
    if (end > at) out.push_back({text.bytes.substr(at, end - at), is_markup});
    at = end;
  };
  for (const jinja::ByteRange& range : text.given) {
    put(range.begin, true);
    put(range.end, false);
  }
  put(text.size(), true);
  return out;
}

// What stands behind so many bytes.
std::vector<TextSegment> behind(std::span<const TextSegment> segments, std::size_t bytes) {
  std::vector<TextSegment> out;
  for (const TextSegment& segment : segments) {
    const std::size_t skipped = std::min(bytes, segment.text.size());
    bytes -= skipped;
    if (skipped < segment.text.size()) out.push_back({segment.text.substr(skipped), segment.is_markup});
  }
  return out;
}

std::string text_of(std::span<const TextSegment> segments) {
  std::string out;
  for (const TextSegment& segment : segments) out += segment.text;
  return out;
}

}  // namespace

ChatMarkers ChatMarkers::of(const Tokenizer& tokenizer) {
  const auto text = [&](const std::optional<TokenId>& id) {
    return id ? tokenizer.piece(*id, true) : std::string();
  };
  return or_out_of_memory([&] { return ChatMarkers{text(tokenizer.bos()), text(tokenizer.eos())}; });
}

std::span<const std::string_view> ChatTemplate::names() { return chat_source_names(); }

ChatTemplate ChatTemplate::named(std::string_view name, ChatMarkers markers) try {
  const std::string_view source = chat_source(name);
  if (source.empty()) {
    throw Error(ErrorCode::unsupported, cat("chat template: there is none named ", quoted(name),
                                            "; --chat-template takes ", known_names()));
  }
  return ChatTemplate(source, std::move(markers));
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

ChatTemplate::ChatTemplate(std::string_view source, ChatMarkers markers) try
    : source_(source), markers_(std::move(markers)) {
  if (source.empty())
    throw Error(ErrorCode::unsupported,
                cat("chat template: the model has none; choose one with --chat-template: ", known_names()));
  template_ = std::make_shared<const jinja::Template>(source);
  end_marker_ = find_end_marker();
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

bool ChatTemplate::takes_tools() const { return source_.find("tools") != source_.npos; }

std::string ChatTemplate::find_end_marker() const {
  std::string out;
  try {
    const ChatMessage talk[] = {{"user", std::string(kEarlierQuestion)},
                                {"assistant", std::string(kEarlierAnswer)}};
    ChatRender options{.open_answer = false, .tools = {}, .now = std::tm{}};
    options.now->tm_mday = 1;
    out = text_of(render(talk, options));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::out_of_memory) throw;
    return {};  // the tokenizer's end tokens are left
  }
  const std::size_t at = out.rfind(kEarlierAnswer);
  if (at == out.npos) return {};
  const std::size_t first = out.find_first_not_of(kSpaces, at + kEarlierAnswer.size());
  if (first == out.npos) return {};
  out.erase(0, first);
  return out.substr(0, out.find_first_of(kSpaces));
}

std::vector<TextSegment> ChatTemplate::render(std::span<const ChatMessage> messages,
                                              const ChatRender& options) const try {
  JsonValue::List list;
  for (const ChatMessage& message : messages) list.push_back(json_of(message, list.size()));
  JsonValue::Object variables;
  variables.emplace_back("messages", JsonValue(std::move(list)));
  if (!options.tools.empty())
    variables.emplace_back("tools", JsonValue::parse(options.tools, "chat: the tools"));
  variables.emplace_back("add_generation_prompt", JsonValue(options.open_answer));
  variables.emplace_back("bos_token", JsonValue(markers_.bos));
  variables.emplace_back("eos_token", JsonValue(markers_.eos));
  return segments_of(
      template_->render(*jinja::variables_from_json(JsonValue(std::move(variables))), options.now));
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

std::vector<TextSegment> ChatTemplate::render_behind_answer(std::span<const ChatMessage> messages,
                                                            const ChatRender& options) const try {
  std::vector<ChatMessage> talk = {{"user", std::string(kEarlierQuestion)},
                                   {"assistant", std::string(kEarlierAnswer)}};
  talk.insert(talk.end(), messages.begin(), messages.end());
  const std::vector<TextSegment> whole = render(talk, options);
  std::size_t bytes = 0;
  for (const TextSegment& segment : whole) {
    bytes += segment.text.size();
    if (!segment.is_markup && segment.text == kEarlierAnswer) return behind(whole, bytes);
  }
  throw Error(ErrorCode::unsupported,
              "chat template: it writes no earlier answers, so nothing can go on behind one that was read");
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

std::vector<TokenId> encode_chat(const Tokenizer& tokenizer, std::span<const TextSegment> segments,
                                 const EncodeOptions& options) try {
  const std::string bos = ChatMarkers::of(tokenizer).bos;
  const bool has_bos =
      !bos.empty() && !segments.empty() && segments[0].is_markup && segments[0].text.starts_with(bos);
  if (!has_bos) return tokenizer.encode(segments, options);
  EncodeOptions own = options;
  own.add_bos = false;
  if (options.continues || options.add_bos == std::optional(false))
    return tokenizer.encode(behind(segments, bos.size()), own);
  return tokenizer.encode(segments, own);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

ChatRest rest_of_chat(const Tokenizer& tokenizer, std::span<const TextSegment> segments,
                      std::string_view text, std::span<const TokenId> ids, const EncodeOptions& options) try {
  ChatRest out{0, {}, text_of(segments)};
  if (!text.empty() && out.text.size() > text.size() && out.text.starts_with(text)) {
    EncodeOptions behind_it = options;
    behind_it.continues = true;
    out.keep = ids.size();
    out.read = tokenizer.encode(behind(segments, text.size()), behind_it);
    if (!out.read.empty()) return out;
  }
  out.read = encode_chat(tokenizer, segments, options);
  const auto [end, other] = std::mismatch(out.read.begin(), out.read.end(), ids.begin(), ids.end());
  // The last token is read again when nothing else is: an answer needs its logits.
  out.keep = static_cast<std::size_t>(end - out.read.begin());
  if (out.keep == out.read.size() && out.keep > 0) --out.keep;
  out.read.erase(out.read.begin(), out.read.begin() + static_cast<std::ptrdiff_t>(out.keep));
  return out;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide
