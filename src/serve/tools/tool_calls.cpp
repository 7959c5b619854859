#include "serve/tools/tool_calls.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "serve/tools/python_call.h"

namespace kvtide::serve {
namespace tool_calls {

constexpr std::string_view kSpaces = " \t\r\n";
constexpr std::string_view kNameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
constexpr std::size_t kMostHeld = std::size_t{1} << 20;  // of a call that has no name yet
constexpr std::string_view kArgs = "[ARGS]", kCallId = "[CALL_ID]";
constexpr std::string_view kFunction = "<function=";

struct Markers {
  std::vector<std::string_view> open;  // the longest first where one begins another
  std::string_view close;              // "": none
  bool bare = false;                   // an answer that begins with { may be a call
};

Markers markers(ToolFormat format) {
  switch (format) {
    case ToolFormat::hermes:
      return {{"<tool_call>"}, "</tool_call>", false};
    case ToolFormat::tagged:  // models forget the outer marker at times
      return {{"<tool_call>", kFunction}, "</tool_call>", false};
    case ToolFormat::mistral:
      return {{"[TOOL_CALLS]"}, "", false};
    case ToolFormat::llama:
      return {{"<|python_tag|>"}, "", true};
    case ToolFormat::fenced:
      return {{"```json", "```tool_call", "```tool_code"}, "```", true};
  }
  return {};
}

}  // namespace tool_calls

ToolFormat tool_format_of(std::string_view source) {
  const auto has = [&](std::string_view part) { return source.find(part) != source.npos; };
  if (has("[TOOL_CALLS]")) return ToolFormat::mistral;
  if (has("<tool_call>")) return has("<parameter=") ? ToolFormat::tagged : ToolFormat::hermes;
  if (has("<|python_tag|>") || (has("<|eot_id|>") && has("\"parameters\""))) return ToolFormat::llama;
  return ToolFormat::fenced;
}

std::vector<std::string_view> tool_markers(ToolFormat format) {
  switch (format) {
    case ToolFormat::hermes:
    case ToolFormat::tagged:
      return {"<tool_call>", "</tool_call>"};
    case ToolFormat::mistral:
      return {"[TOOL_CALLS]", tool_calls::kArgs, tool_calls::kCallId};
    case ToolFormat::llama:
      return {"<|python_tag|>"};
    case ToolFormat::fenced:
      break;
  }
  return {};
}

std::vector<ToolEvent> ToolCallParser::feed(std::string_view piece) {
  input_ += piece;
  stuck_ = false;
  while (!input_.empty() && !stuck_) step();
  return std::exchange(out_, {});
}

std::vector<ToolEvent> ToolCallParser::finish() {
  ended_ = true;
  stuck_ = false;
  while (!input_.empty() && !stuck_) step();
  if (place_ == Place::code) read_code();
  if (in_call_) close();
  const bool is_rest = place_ == Place::between
                           ? called_
                           : any_call_ && held_.find_first_not_of(tool_calls::kSpaces) == held_.npos;
  if (!held_.empty() && !is_rest) give_up();
  while (!input_.empty() && !stuck_) step();
  return std::exchange(out_, {});
}

void ToolCallParser::step() {
  switch (place_) {
    case Place::text:
      return read_text();
    case Place::between:
      return read_between();
    case Place::object:
      return read_call(scanner_);
    case Place::tagged:
      return read_call(tagged_);
    case Place::name:
      return read_name();
    case Place::bare:
      return read_bare();
    case Place::code:
      return read_code();
  }
}

bool ToolCallParser::starts_here(std::string_view marker) const { return input_.starts_with(marker); }
bool ToolCallParser::may_start_here(std::string_view marker) const {
  return !ended_ && input_.size() < marker.size() && marker.starts_with(input_);
}

const OfferedTool* ToolCallParser::tool(std::string_view name) const {
  const auto found =
      std::find_if(tools_.begin(), tools_.end(), [&](const OfferedTool& tool) { return tool.name == name; });
  return found == tools_.end() ? nullptr : &*found;
}

void ToolCallParser::emit(std::string text) {
  if (text.empty()) return;
  if (!out_.empty() && out_.back().kind == ToolEvent::Kind::text)
    out_.back().text += text;
  else
    out_.push_back({ToolEvent::Kind::text, std::move(text)});
}

// Behind a marker that opens calls, or one call.
void ToolCallParser::opened(std::string_view marker) {
  held_ += marker;
  input_.erase(0, marker.size());
  called_ = in_list_ = false;
  place_ = Place::between;
  if (marker != tool_calls::kFunction) return;
  tagged_ = {};
  place_ = Place::tagged;
}

void ToolCallParser::open(const std::string& name) {
  out_.push_back({ToolEvent::Kind::call, name});
  held_.clear();
  in_call_ = true;
}

void ToolCallParser::close() {
  out_.push_back({ToolEvent::Kind::end});
  held_.clear();
  in_call_ = false;
  called_ = any_call_ = true;
  place_ = Place::between;
}

void ToolCallParser::give_up() {
  at_start_ = false;
  place_ = Place::text;
  emit(std::exchange(held_, {}));
}

// Up to what opens a call. White space in front of everything else waits for what follows it.
void ToolCallParser::read_text() {
  const tool_calls::Markers markers = tool_calls::markers(format_);
  if (at_start_) {
    const std::size_t first = input_.find_first_not_of(tool_calls::kSpaces);
    held_ += input_.substr(0, first);
    input_.erase(0, first);
    if (input_.empty()) return;
    if (markers.bare && input_[0] == '{') {
      called_ = in_list_ = false;
      place_ = Place::between;
      return;
    }
    for (const std::string_view marker : markers.open)
      if (may_start_here(marker)) {
        stuck_ = true;
        return;
      }
    if (std::none_of(markers.open.begin(), markers.open.end(), [&](auto m) { return starts_here(m); }))
      give_up();
  }
  std::size_t at = input_.npos, keep = 0;
  std::string_view next;
  for (const std::string_view marker : markers.open) {
    if (const std::size_t found = input_.find(marker); found < at) {
      at = found;
      next = marker;
    }
    for (std::size_t n = std::min(marker.size() - 1, input_.size()); n > keep && !ended_; --n)
      if (input_.ends_with(marker.substr(0, n))) keep = n;
  }
  if (at == input_.npos) {
    emit(input_.substr(0, input_.size() - keep));
    input_.erase(0, input_.size() - keep);
    stuck_ = true;
    return;
  }
  emit(input_.substr(0, at));
  input_.erase(0, at);
  at_start_ = false;
  opened(next);
}

void ToolCallParser::read_between() {
  for (const std::string_view marker : tool_calls::markers(format_).open) {
    if (!called_ && marker != tool_calls::kFunction) continue;
    if (may_start_here(marker)) stuck_ = true;
    if (!starts_here(marker)) continue;
    if (called_) held_.clear();
    return opened(marker);
  }
  if (stuck_) return;
  const std::string_view close = tool_calls::markers(format_).close;
  const char c = input_[0];
  const bool opens_list = c == '[' && !in_list_;
  const bool separates = std::string_view(" \t\r\n,;]").find(c) != std::string_view::npos || opens_list;
  if (!close.empty() && starts_here(close)) {
    held_ += close;
    input_.erase(0, close.size());
    if (called_)
      held_.clear();
    else
      give_up();
    at_start_ = called_;  // white space behind a call is no text
    place_ = Place::text;
  } else if (!close.empty() && may_start_here(close)) {
    stuck_ = true;
  } else if (c == '{') {
    scanner_ = {};
    place_ = Place::object;
  } else if (separates) {
    in_list_ = in_list_ || opens_list;
    held_ += c;
    input_.erase(0, 1);
  } else if (format_ == ToolFormat::mistral && tool_calls::kNameLetters.find(c) != std::string_view::npos) {
    word_.clear();
    place_ = Place::name;
  } else if (format_ == ToolFormat::fenced && held_.find("```") != held_.npos &&
             tool_calls::kNameLetters.find(c) != std::string_view::npos) {
    word_.clear();
    place_ = Place::code;
  } else {
    if (called_) held_.clear();
    give_up();
  }
}

template <class Scanner>
void ToolCallParser::read_call(Scanner& scanner) {
  std::size_t at = 0;
  CallScanner::Found found = CallScanner::Found::nothing;
  while (at < input_.size() && found != CallScanner::Found::ended && found != CallScanner::Found::broken) {
    if (!in_call_) held_ += input_[at];
    found = scanner.push(input_[at++]);
    if (found != CallScanner::Found::named) continue;
    const OfferedTool* const called = tool(scanner.name());
    if (called == nullptr) {
      found = CallScanner::Found::broken;
      continue;
    }
    if constexpr (std::is_same_v<Scanner, TaggedCallScanner>) scanner.takes(called->parameters);
    open(called->name);
  }
  input_.erase(0, at);
  if (in_call_) {
    std::string arguments = scanner.take_arguments();
    if (found == CallScanner::Found::ended && !has_arguments_ && arguments.empty()) arguments = "{}";
    has_arguments_ = has_arguments_ || !arguments.empty();
    if (!arguments.empty()) out_.push_back({ToolEvent::Kind::arguments, std::move(arguments)});
  }
  if constexpr (std::is_same_v<Scanner, TaggedCallScanner>)
    if (found == CallScanner::Found::broken && in_call_) input_.insert(0, scanner.rest());
  if (found == CallScanner::Found::ended || (found == CallScanner::Found::broken && in_call_)) {
    close();
    has_arguments_ = false;
  } else if (found == CallScanner::Found::broken || held_.size() > tool_calls::kMostHeld) {
    give_up();
  }
}

// name[ARGS]{...}, name[CALL_ID]id[ARGS]{...}.
void ToolCallParser::read_name() {
  const std::size_t end = input_.find('{');
  const std::size_t most = 256;
  if (end == input_.npos && held_.size() + input_.size() < most && !ended_) {
    stuck_ = true;
    return;
  }
  std::string text = input_.substr(0, end);
  std::string name = text.substr(0, text.find_first_not_of(tool_calls::kNameLetters));
  const std::string_view rest = std::string_view(text).substr(name.size());
  const bool fits = rest.empty() || rest.starts_with(tool_calls::kArgs) ||
                    rest.starts_with(tool_calls::kCallId) ||
                    rest.find_first_not_of(tool_calls::kSpaces) == rest.npos;
  held_ += text;
  input_.erase(0, text.size());
  if (end == input_.npos || !fits || tool(name) == nullptr) return give_up();
  open(name);
  depth_ = 0;
  in_text_ = escaped_ = false;
  place_ = Place::bare;
}

void ToolCallParser::read_bare() {
  std::size_t at = 0;
  bool done = false;
  while (at < input_.size() && !done) {
    const char c = input_[at++];
    if (in_text_) {
      if (!escaped_ && c == '"') in_text_ = false;
      escaped_ = !escaped_ && c == '\\';
      continue;
    }
    if (c == '"') in_text_ = true;
    if (c == '{' || c == '[') ++depth_;
    if (c == '}' || c == ']') done = --depth_ == 0;
  }
  out_.push_back({ToolEvent::Kind::arguments, input_.substr(0, at)});
  input_.erase(0, at);
  if (done) close();
}

void ToolCallParser::read_code() {
  const std::string_view fence = tool_calls::markers(format_).close;
  const std::size_t end = input_.find(fence);
  if (end == input_.npos && !ended_ && input_.size() < tool_calls::kMostHeld) {
    stuck_ = true;
    return;
  }
  const std::string code = input_.substr(0, end);
  held_ += code;
  input_.erase(0, code.size());
  const auto call = read_python_call(code);
  if (!call || tool(call->name) == nullptr) return give_up();
  open(call->name);
  out_.push_back({ToolEvent::Kind::arguments, call->arguments});
  close();
}

}  // namespace kvtide::serve
