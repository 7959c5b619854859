// answer_forms.cpp: libFuzzer target for what shapes an answer: calls of tools in it, and the grammars that it is held to.
//
// The first byte chooses. Calls that are found do not depend on where the answer is cut into pieces; grammars are read or
// refused by an Error.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json_value.h"
#include "fuzz/fuzzing.h"
#include "kvtide/error.h"
#include "serve/tools/tool_calls.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/json_schema.h"

using kvtide::fuzzing::require;
using namespace kvtide;

namespace {

// What was found, with pieces that belong together put together.
std::vector<serve::ToolEvent> found(serve::ToolFormat format, std::string_view answer, std::size_t piece) {
  serve::ToolCallParser parser(format, {{"find", R"({"properties":{"n":{"type":"integer"}}})"}, {"a", "{}"}});
  std::vector<serve::ToolEvent> out;
  const auto take = [&](const std::vector<serve::ToolEvent>& events) {
    using Kind = serve::ToolEvent::Kind;
    for (const serve::ToolEvent& event : events) {
      const bool grows = event.kind == Kind::text || event.kind == Kind::arguments;
      if (grows && !out.empty() && out.back().kind == event.kind)
        out.back().text += event.text;
      else
        out.push_back(event);
    }
  };
  for (std::size_t at = 0; at < answer.size(); at += piece) take(parser.feed(answer.substr(at, piece)));
  take(parser.finish());
  return out;
}

void read_grammar(std::string_view text, bool is_schema) {
  try {
    const grammar::Grammar grammar =
        is_schema ? grammar::grammar_of_schema(JsonValue::parse(text, "schema"), "schema")
                  : grammar::grammar_of_gbnf(text, "grammar");
    static_cast<void>(grammar.compile());
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 2), size - 2);
  constexpr unsigned formats = static_cast<unsigned>(serve::ToolFormat::fenced) + 1;
  const unsigned choice = data[0] % (formats + 2);
  if (choice >= formats) {
    read_grammar(text, choice == formats);
    return 0;
  }
  const auto format = static_cast<serve::ToolFormat>(choice);
  require(found(format, text, std::max<std::size_t>(text.size(), 1)) ==
          found(format, text, 1u + data[1] % 7));
  return 0;
}
