// chat_template.cpp: libFuzzer target for chat templates: any bytes as the source of one.
//
// The outcome is valid UTF-8, whose marks are in order and within it, or an Error of one line of its own.
#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>

#include "base/json/json_value.h"
#include "fuzz/fuzzing.h"
#include "kvtide/error.h"
#include "text/jinja/from_json.h"
#include "text/jinja/template.h"
#include "text/utf8.h"

using kvtide::fuzzing::require;

namespace {

constexpr std::string_view kVariables = R"({
  "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Grüße <|x|>\n"},
    {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, 2.5, true]}}}]}],
  "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
  "add_generation_prompt": true, "bos_token": "<s>", "n": 7, "l": [3, 1, 2], "d": {"b": 1, "a": "x"}})";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvtide;
  static const auto variables = jinja::variables_from_json(JsonValue::parse(kVariables, "variables"));
  try {
    const jinja::Template chat(std::string_view(reinterpret_cast<const char*>(data), size));
    std::tm now{};
    now.tm_mday = 1;
    const jinja::MarkedText text =
        chat.render(*variables, now, {.steps = 20000, .bytes = std::size_t{4} << 20});
    require(!find_invalid_utf8(text.view()));
    std::size_t end = 0;
    for (const jinja::ByteRange& range : text.given) {
      require(range.begin >= end && range.begin < range.end && range.end <= text.size());
      end = range.end;
    }
  } catch (const Error& error) {
    require(error.message().starts_with("chat template"));
  }
  return 0;
}
