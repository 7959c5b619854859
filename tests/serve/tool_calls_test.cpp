// Calls as models write them, fed in pieces of every length: what is found does not depend on where the text is cut.
#include "serve/tools/tool_calls.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvtide::serve {
namespace {

constexpr const char* kParameters =
    R"({"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "integer"}, "list": {"type":)"
    R"( "array"}, "on": {"type": "boolean"}, "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]}}})";

// "text|find({"a": 1})|text"
std::string shown(const std::vector<ToolEvent>& events) {
  std::string out;
  bool in_text = false;
  for (const ToolEvent& event : events) {
    if (event.kind == ToolEvent::Kind::text) out += (in_text ? "" : "|") + event.text;
    if (event.kind == ToolEvent::Kind::call) out += "|" + event.text + "(";
    if (event.kind == ToolEvent::Kind::arguments) out += event.text;
    if (event.kind == ToolEvent::Kind::end) out += ")";
    in_text = event.kind == ToolEvent::Kind::text;
  }
  return out.empty() ? out : out.substr(1);
}

std::string found(ToolFormat format, const std::string& answer) {
  std::string out;
  for (std::size_t piece = answer.size(); piece > 0; --piece) {
    ToolCallParser parser(format, {{"find", kParameters}, {"add", "{}"}});
    std::vector<ToolEvent> all;
    const auto take = [&](std::vector<ToolEvent> events) {
      for (ToolEvent& event : events) all.push_back(std::move(event));
    };
    for (std::size_t at = 0; at < answer.size(); at += piece) take(parser.feed(answer.substr(at, piece)));
    take(parser.finish());
    if (piece == answer.size())
      out = shown(all);
    else
      EXPECT_EQ(shown(all), out) << "in pieces of " << piece << ": " << answer;
  }
  return out;
}

TEST(ToolCalls, Hermes) {
  const auto f = ToolFormat::hermes;
  EXPECT_EQ(found(f, "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"a\": \"}\\\"\"}}\n</tool_call>"),
            "find({\"a\": \"}\\\"\"})");
  EXPECT_EQ(
      found(f,
            "I look.\n<tool_call>{\"name\":\"find\",\"arguments\":{\"a\":[1,{}]}}</tool_call>\n<tool_call>\n"
            "{\"arguments\": {\"b\": 2}, \"name\": \"add\"}\n</tool_call>\n"),
      "I look.\n|find({\"a\":[1,{}]})|add({\"b\": 2})");
  EXPECT_EQ(found(f, "<tool_call>{\"name\": \"find\"}</tool_call> done"), "find({})| done");
  EXPECT_EQ(found(f, "<tool_call>{\"name\": \"find\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>"),
            "find({\"a\": 1})");
}

TEST(ToolCalls, Tagged) {
  const auto f = ToolFormat::tagged;
  EXPECT_EQ(found(f,
                  "I look.\n<tool_call>\n<function=find>\n<parameter=text>\nif (a < b) {\n  \"x\" </p>\n}\n"
                  "</parameter>\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>"),
            "I look.\n|find({\"text\": \"if (a < b) {\\n  \\\"x\\\" </p>\\n}\", \"n\": 3})");
  // By the schema: a text of digits stays one; Python's words and lists become JSON; what fits nothing is a text.
  EXPECT_EQ(
      found(f,
            "<tool_call><function=find><parameter=text>12</parameter><parameter=on>True</parameter>"
            "<parameter=list>['a', 1]</parameter><parameter=n>three</parameter></function></tool_call>"),
      "find({\"text\": \"12\", \"on\": true, \"list\": [\"a\", 1], \"n\": \"three\"})");
  EXPECT_EQ(found(f,
                  "<tool_call>\n<function=find>\n<parameter=maybe>\nnull\n</parameter>\n<parameter=other>\n"
                  "null\n</parameter>\n<parameter=text>\n\n</parameter>\n</function>\n</tool_call>"),
            "find({\"maybe\": null, \"other\": \"null\", \"text\": \"\"})");
  EXPECT_EQ(found(f, "<function=add>\n</function>\n</tool_call>\n<tool_call>\n<function=find></function>"),
            "add({})|find({})");
  // What is held to a grammar is JSON, in the same markers.
  EXPECT_EQ(found(f, "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"n\": 1}}\n</tool_call>"),
            "find({\"n\": 1})");
  EXPECT_EQ(found(f, "<tool_call><function=find><parameter=text>\nso fa"), "find({\"text\": \"so fa)");
  EXPECT_EQ(found(f, "<tool_call><function=find><parameter=n>1</parameter>oh"), "find({\"n\": 1})|oh");
  EXPECT_EQ(found(f, "<tool_call><function=find><parameter=n>1</parameter>\n</tool_call>."),
            "find({\"n\": 1})|.");
  for (const char* text : {"<tool_call>\n<function=steal>\n</function>", "<function=", "<tool_call><func",
                           "<function=find", "a <function", "<tool_call>none</tool_call>"})
    EXPECT_EQ(found(f, text), text);
}

TEST(ToolCalls, WhatIsNoCallIsText) {
  for (const char* text :
       {"plain", "a < b <tool", "<tool_call>",
        "<tool_call>{\"name\": \"steal\", \"arguments\": {}}</tool_call>", "<tool_call>none</tool_call>",
        "<tool_call>{\"name\": 3}</tool_call>", "<tool_call>{\"name\"", "  \n", "<tool_call></tool_call>x"})
    EXPECT_EQ(found(ToolFormat::hermes, text), text);
  for (const char* text :
       {"{\"a\": 1}", "{\"name\": \"steal\"}", "{", "{}", "[1, 2]", "x {\"name\": \"find\"}"})
    EXPECT_EQ(found(ToolFormat::llama, text), text);
  for (const char* text :
       {"```json\n{\"a\": 1}\n```", "```python\nfind()\n```", "```tool_code\nsteal()\n```", "```", "``"})
    EXPECT_EQ(found(ToolFormat::fenced, text), text);
  for (const char* text :
       {"[TOOL_CALLS]steal[ARGS]{}", "[TOOL_CALLS]", "[TOOL_CALLS][]x", "[TOOL_CALLS]find"})
    EXPECT_EQ(found(ToolFormat::mistral, text), text);
}

TEST(ToolCalls, Llama) {
  const auto f = ToolFormat::llama;
  EXPECT_EQ(found(f, "{\"name\": \"find\", \"parameters\": {\"a\": 1}}"), "find({\"a\": 1})");
  EXPECT_EQ(found(f,
                  "<|python_tag|>{\"type\": \"function\", \"name\": \"find\", \"parameters\": {}}; "
                  "{\"name\": \"add\", "
                  "\"parameters\": {\"b\": null}}"),
            "find({})|add({\"b\": null})");
}

TEST(ToolCalls, Mistral) {
  const auto f = ToolFormat::mistral;
  EXPECT_EQ(
      found(
          f,
          "[TOOL_CALLS] [{\"name\": \"find\", \"arguments\": {\"a\": 1}, \"id\": \"123456789\"}, {\"name\": "
          "\"add\", \"arguments\": {}}]"),
      "find({\"a\": 1})|add({})");
  EXPECT_EQ(found(f, "So: [TOOL_CALLS]find[ARGS]{\"a\": \"{\"}[TOOL_CALLS]add[CALL_ID]abc[ARGS]{}"),
            "So: |find({\"a\": \"{\"})|add({})");
}

TEST(ToolCalls, Fenced) {
  const auto f = ToolFormat::fenced;
  EXPECT_EQ(found(f, "```json\n{\"name\": \"find\", \"arguments\": {\"a\": 1}}\n```"), "find({\"a\": 1})");
  EXPECT_EQ(found(f, "Yes.\n```tool_code\nprint(find(a='x', b=[1, True], c={\"d\": None}))\n```"),
            "Yes.\n|find({\"a\": \"x\", \"b\": [1, true], \"c\": {\"d\": null}})");
  EXPECT_EQ(found(f, "{\"name\": \"add\", \"arguments\": {}}"), "add({})");
}

TEST(ToolCalls, ACutAnswerEndsItsCall) {
  EXPECT_EQ(found(ToolFormat::hermes, "<tool_call>{\"name\": \"find\", \"arguments\": {\"a\": \"b"),
            "find({\"a\": \"b)");
}

TEST(ToolCalls, TheFormatIsChosenByTheTemplate) {
  EXPECT_EQ(tool_format_of("... <tool_call> ..."), ToolFormat::hermes);
  EXPECT_EQ(tool_format_of("<tool_call><function=f><parameter=p>"), ToolFormat::tagged);
  EXPECT_EQ(tool_format_of("... [TOOL_CALLS] ..."), ToolFormat::mistral);
  EXPECT_EQ(tool_format_of("... <|python_tag|> ..."), ToolFormat::llama);
  EXPECT_EQ(tool_format_of("plain"), ToolFormat::fenced);
}

}  // namespace
}  // namespace kvtide::serve
