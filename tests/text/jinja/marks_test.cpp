// Which bytes of a rendered text a conversation brought in: control markers count only in the others.
#include <gtest/gtest.h>

#include "tests/text/jinja/rendering.h"

namespace kvtide::jinja {
namespace {

// The text with what was given in brackets.
std::string shown(const MarkedText& text) {
  std::string out;
  std::size_t at = 0;
  for (const ByteRange& range : text.given) {
    EXPECT_LT(range.begin, range.end);
    EXPECT_LE(range.end, text.size());
    out += text.bytes.substr(at, range.begin - at) + "[" +
           text.bytes.substr(range.begin, range.end - range.begin) + "]";
    at = range.end;
  }
  return out + text.bytes.substr(at);
}

std::string marked(std::string_view source) {
  return shown(rendered(
      source, R"({"messages": [{"role": "user", "content": " a <e> b "}, {"role": "<r>", "content": "é"}],
    "tools": [{"name": "f", "description": "d"}], "bos_token": "<s>"})"));
}

TEST(Marks, MessagesAreGivenAndMarkupIsNot) {
  EXPECT_EQ(marked("{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"),
            "<s><user>[ a <e> b ]</><[<r>]>[é]</>");
  EXPECT_EQ(marked("{{ '<' + messages[0].role + '>' + messages[0].content|trim + '</>' }}"),
            "<user>[a <e> b]</>");
}

TEST(Marks, TravelWithTheirBytes) {
  EXPECT_EQ(marked("{% set c = messages[0].content %}{{ c.strip()[2:5] }}|{{ c.split('<')[0] }}|{{ "
                   "c.replace('e', 'XY') }}"),
            "[<e>]|[ a ]|[ a <]XY[> b ]");
  EXPECT_EQ(marked("{{ [messages[1].content, 'x', messages[1].content]|join('-') }} {{ '%s|%s' % ('x', "
                   "messages[1].content) }}"),
            "[é]-x-[é] x|[é]");
  EXPECT_EQ(marked("{{ '<{}>'.format(messages[1].content) }}{% set t %}<{{ messages[1].content }}>{% endset "
                   "%}{{ t * 2 }}"),
            "<[é]><[é]><[é]>");
  EXPECT_EQ(marked("{% macro m(x) %}({{ x|upper }}){% endmacro %}{{ m(messages[1].content) }}{{ "
                   "messages[1].content[::-1] }}"),
            "([É])[é]");
}

TEST(Marks, ToolsAreGivenAsAWhole) {
  EXPECT_EQ(marked("{{ tools[0] | tojson }}"), "{\"name\": [\"f\"], \"description\": [\"d\"]}");
}

}  // namespace
}  // namespace kvtide::jinja
