// Templates come with files: whatever one holds, the outcome is a text or an Error that names the line.
#include <gtest/gtest.h>

#include "tests/text/jinja/rendering.h"

namespace kvtide::jinja {
namespace {

std::string repeated(std::string_view text, std::size_t times) {
  std::string all;
  for (std::size_t i = 0; i < times; ++i) all += text;
  return all;
}

TEST(ChatTemplateErrors, NameTheLineAndWhatIsWrong) {
  EXPECT_EQ(refusal("a\n\n{{ raise_exception('roles must ' ~ 'alternate') }}"),
            "invalid_argument: chat template, line 3: roles must alternate");
  EXPECT_EQ(refusal("{% if true %}\n{{ nobody.name }}{% endif %}"),
            "invalid_argument: chat template, line 2: 'nobody' is undefined");
  EXPECT_EQ(refusal("{{ messages[0].author.name }}", R"({"messages": [{"role": "user"}]})"),
            "invalid_argument: chat template, line 1: 'dict object' has no attribute 'author'");
  EXPECT_EQ(refusal("\n{{ 1 + 'a' }}"),
            "invalid_argument: chat template, line 2: unsupported operand type(s) for +: 'int' and 'str'");
  EXPECT_EQ(
      refusal("{{ [].append(1) }}"),
      "invalid_argument: chat template, line 1: access to attribute 'append' of 'list' object is unsafe.");
}

TEST(ChatTemplateErrors, WhatIsNoTemplateIsRefusedAsABadFormat) {
  EXPECT_EQ(refusal("\n{% for x in %}"),
            "bad_format: chat template, line 2: expected an expression, got '%}'");
  EXPECT_EQ(refusal("{% if true %}\n\n"),
            "bad_format: chat template, line 2: the template ends where 'endif' is missing");
  EXPECT_EQ(refusal("{{ 'abc }}"), "bad_format: chat template, line 1: a text in quotes does not end");
  EXPECT_EQ(refusal("{{ 99999999999999999999 }}").substr(0, 12), "bad_format: ");
  EXPECT_EQ(refusal("\xff").substr(0, 10), "bad_text: ");
}

TEST(ChatTemplateErrors, WhatJinjaHasAndChatsDoNotUseIsUnsupported) {
  for (const char* source :
       {"{% include 'x' %}", "{% import 'x' as y %}", "{% block a %}{% endblock %}", "{{ 1 | nosuch }}",
        "{{ 1 is nosuch }}", "{% for i in [] recursive %}{% endfor %}"})
    EXPECT_EQ(refusal(source).substr(0, 35), "unsupported: chat template, line 1:")
        << source << refusal(source);
  EXPECT_EQ(refusal(repeated("x", kMostTemplateBytes + 1)).substr(0, 12), "unsupported:");
}

TEST(ChatTemplateErrors, WithoutAClockThereIsNoTime) {
  const Template chat("{{ strftime_now('%Y') }}");
  EXPECT_EQ(chat.render({}, test_time()).bytes, "2025");
  EXPECT_THROW(chat.render({}), Error);
}

TEST(ChatTemplateLimits, NestingOfTheSourceIsBounded) {
  for (const std::string_view open :
       {"(", "[", "{1:", "not ", "-", "a[", "f(", "x|f(", "{'a':[", "1 if ", "1 if 1 else ", "a.", "1+",
        "1 ~ (", "1 <", "1 and ", "1 or ", "1**", "x is in "})
    EXPECT_NE(refusal("{{ " + repeated(open, 100000)), "") << open;
  for (const std::string_view open :
       {"{% if a %}", "{% for a in b %}", "{% macro a() %}", "{% set a %}", "{% call a() %}",
        "{% filter upper %}", "{% with %}", "{% generation %}", "{% if a %}{% else %}", "{{ ("})
    EXPECT_NE(refusal(repeated(open, 50000)), "") << open;
  EXPECT_NE(refusal("{{ 1" + repeated("+1", 100000) + " }}"), "");
  EXPECT_NE(refusal("{{ a" + repeated(".a", 100000) + " }}"), "");
  EXPECT_NE(refusal("{{ a" + repeated("|upper", 100000) + " }}"), "");
  EXPECT_EQ(refusal("{{ 1" + repeated("~1", 100000) + " }}"), "");
  EXPECT_EQ(refusal("{{ " + repeated("(", 60) + "1" + repeated(")", 60) + " }}"), "");
}

TEST(ChatTemplateLimits, CallsThatNeverEndAreRefused) {
  EXPECT_NE(refusal("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}").find("deep in each other"),
            std::string::npos);
  EXPECT_NE(refusal("{% macro m(f) %}{{ f(f) }}{% endmacro %}{{ m(m) }}").find("deep in each other"),
            std::string::npos);
  EXPECT_NE(refusal("{% macro m() %}{% call m() %}{% endcall %}{{ caller }}{% endmacro %}{{ m() }}"), "");
}

TEST(ChatTemplateLimits, WorkAndMemoryAreBounded) {
  const RenderLimits small{.steps = 100000, .bytes = 1 << 20};
  const std::string loop =
      "{% for i in range(999) %}{% for j in range(999) %}{{ i }}{% endfor %}{% endfor %}";
  EXPECT_NE(refusal(loop, "{}", {.steps = 100000}).find("more than 100000 steps"), std::string::npos);
  const std::string doubling =
      "{% set ns = namespace(s='abc') %}{% for i in range(90) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}";
  EXPECT_NE(refusal(doubling, "{}", small).find("bytes of values"), std::string::npos);
  const std::string lists =
      "{% set ns = namespace(s=[1]) %}{% for i in range(90) %}{% set ns.s = ns.s + ns.s %}{% endfor %}";
  EXPECT_NE(refusal(lists, "{}", small), "");
  const std::string shared =
      "{% set ns = namespace(s=[1]) %}{% for i in range(90) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}";
  for (const char* use : {"{{ ns.s }}", "{{ ns.s|tojson }}", "{{ ns.s == ns.s }}", "{{ [ns.s] < [[ns.s]] }}"})
    EXPECT_LT(refusal(shared + use, "{}", small).size(), 200u) << use;
  for (const char* one :
       {"{{ 'x' * 99999999999 }}", "{{ [1] * 99999999999 }}", "{{ 'a'.center(99999999999) }}",
        "{{ 'a'.zfill(9999999999) }}", "{{ '%99999999999d' % 1 }}", "{{ '{:99999999999}'.format(1) }}",
        "{{ 'ab'|indent(99999999999) }}{{ 'ab'|center(99999999999) }}",
        "{{ [[1]]|tojson(indent=99999999) * 9999 }}", "{{ 2 ** 64 }}", "{{ 9223372036854775807 + 1 }}",
        "{{ -9223372036854775807 - 2 }}", "{{ range(99999999) }}", "{{ [1]|batch(99999999999, 0)|list }}",
        "{{ [1]|slice(99999999999)|list }}"})
    EXPECT_NE(refusal(one, "{}", small), "") << one;
}

TEST(ChatTemplateLimits, ValuesInValuesAreBounded) {
  const std::string deep =
      "{% set ns = namespace(v=1) %}{% for i in range(5000) %}{% set ns.v = [ns.v] %}{% endfor %}{{ ns.v }}";
  EXPECT_NE(refusal(deep).find("levels of lists"), std::string::npos) << refusal(deep);
  const std::string spaces =
      "{% set ns = namespace(v=1) %}{% for i in range(50000) %}{% set ns.v = namespace(v=ns.v) %}{% endfor "
      "%}";
  EXPECT_EQ(refusal(spaces), "");
  const std::string self = "{% set ns = namespace() %}{% set ns.a = [ns] %}";
  EXPECT_EQ(refusal(self), "");
  EXPECT_NE(refusal(self + "{{ ns }}"), "");
}

TEST(ChatTemplateLimits, WhatDivisionsOfTheSmallestNumberGive) {
  const std::string least = "{% set m = -9223372036854775807 - 1 %}";
  EXPECT_NE(refusal(least + "{{ m // -1 }}"), "");
  EXPECT_EQ(rendered(least + "{{ m % -1 }} {{ m|string }}").bytes, "0 -9223372036854775808");
  EXPECT_NE(refusal(least + "{{ m|abs }}"), "");
  EXPECT_NE(refusal(least + "{{ -m }}"), "");
  EXPECT_EQ(rendered(least + "{{ 'abc'[m:] }}{{ 'abc'[::m] }}{{ [1,2][:m] }}").bytes, "abcc[]");
}

}  // namespace
}  // namespace kvtide::jinja
