// tool_calls.h: calls of tools, found in an answer while it is written.
//
//   ToolCallParser parser(tool_format_of(chat), {{"find", schema}});
//   for (const ToolEvent& event : parser.feed(piece)) ...
//
// What looks like a call and is none, or calls a tool that was not offered, is text. Thread rules: one thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/tools/call_scanner.h"
#include "serve/tools/offered_tool.h"
#include "serve/tools/tagged_call.h"

namespace kvtide::serve {

// How a model writes calls.
enum class ToolFormat {
  hermes,   // <tool_call>{"name": ..., "arguments": {...}}</tool_call>, once for each
  tagged,   // <tool_call><function=name><parameter=key>value</parameter></function></tool_call>, or as hermes
  mistral,  // [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...] or [TOOL_CALLS]name[ARGS]{...}
  llama,  // the whole answer is {"name": ..., "parameters": {...}}, maybe behind <|python_tag|>; more behind ;
  fenced  // the same, or name(key="value") in a block of ```json, ```tool_code or ```tool_call
};

// By the text of the chat template.
ToolFormat tool_format_of(std::string_view source);
// Markers of the format that a vocabulary may hold as control tokens, which have to be seen in the text.
std::vector<std::string_view> tool_markers(ToolFormat format);

struct ToolEvent {
  enum class Kind { text, call, arguments, end };
  Kind kind;
  std::string text = {};  // of the answer; the name of the tool; a piece of the arguments as JSON
  friend bool operator==(const ToolEvent&, const ToolEvent&) = default;
};

class ToolCallParser {
 public:
  ToolCallParser(ToolFormat format, std::vector<OfferedTool> tools)
      : format_(format), tools_(std::move(tools)) {}

  std::vector<ToolEvent> feed(std::string_view piece);
  // The end of the answer: what was held back.
  std::vector<ToolEvent> finish();

 private:
  // text: of the answer; between: behind what opens calls, or behind a call; object, tagged: in a call; name: of
  // [TOOL_CALLS]name; bare: in its arguments; code: in a call of Python.
  enum class Place { text, between, object, tagged, name, bare, code };

  void step();
  void read_text();
  void read_between();
  template <class Scanner>
  void read_call(Scanner& scanner);
  void read_name();
  void read_bare();
  void read_code();
  bool starts_here(std::string_view marker) const;
  bool may_start_here(std::string_view marker) const;
  void emit(std::string text);
  void opened(std::string_view marker);
  void open(const std::string& name);
  void close();
  void give_up();                                        // what was held back was no call
  const OfferedTool* tool(std::string_view name) const;  // nullptr: it was not offered

  ToolFormat format_;
  std::vector<OfferedTool> tools_;
  Place place_ = Place::text;
  std::string input_;     // not looked at yet
  std::string held_;      // since what opens calls; a call that turns out to be none is given back as text
  bool at_start_ = true;  // nothing but white space was written
  bool in_call_ = false, ended_ = false, stuck_ = false, in_text_ = false, escaped_ = false;
  bool has_arguments_ = false;
  bool called_ = false;  // since what opened calls
  bool any_call_ = false, in_list_ = false;
  int depth_ = 0;
  CallScanner scanner_;
  TaggedCallScanner tagged_;
  std::string word_;  // a name, or a call of Python
  std::vector<ToolEvent> out_;
};

}  // namespace kvtide::serve
