// Grammars decide over texts, byte by byte, and over the tokens of a vocabulary.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/json/json_value.h"
#include "kvtide/error.h"
#include "tests/text/small_vocabulary.h"
#include "text/grammar/constraint.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/json_schema.h"

namespace kvtide::grammar {
namespace {

std::shared_ptr<const TokenTrie> bytes_and_words() {
  SmallVocabulary vocabulary = SmallVocabulary::byte_level();
  vocabulary.spec.eos = vocabulary.add("</s>", TokenType::control);
  vocabulary.merge("a", "b");
  vocabulary.merge("1", "2");
  return std::make_shared<const TokenTrie>(vocabulary.build());
}

// "yes": a whole text; "begun": it may go on to be one; "no".
std::string fits(const Grammar& grammar, std::string_view text) {
  Constraint constraint(grammar, bytes_and_words());
  const auto state = constraint.behind(constraint.start(), text);
  return state == Constraint::kNowhere ? "no" : constraint.may_end(state) ? "yes" : "begun";
}

Grammar schema(std::string_view text) {
  return grammar_of_schema(JsonValue::parse(text, "schema"), "schema");
}
Grammar gbnf(std::string_view text) { return grammar_of_gbnf(text, "grammar"); }

std::string refusal(const std::function<void()>& call) {
  try {
    call();
    return "";
  } catch (const Error& error) {
    return error.message();
  }
}

TEST(Gbnf, ReadsWhatLlamaCppReads) {
  const Grammar grammar = gbnf(
      "# answers\nroot ::= (\"yes\" | no) \", \" [a-c\\x2d]+ num{1,2} .?\nno ::= \"no\"\nnum ::= [0-9]\n");
  EXPECT_EQ(fits(grammar, "yes, a-b12"), "yes");
  EXPECT_EQ(fits(grammar, "no, c1\xc3\xa9"), "yes");
  EXPECT_EQ(fits(grammar, "no, c"), "begun");
  EXPECT_EQ(fits(grammar, "no, d"), "no");
  const Grammar nested = gbnf("root ::= \"(\" root* \")\"");
  EXPECT_EQ(fits(nested, "((())())"), "yes");
  EXPECT_EQ(fits(nested, "((()"), "begun");
  EXPECT_EQ(fits(nested, "())"), "no");
  EXPECT_EQ(fits(gbnf("root ::= [^x]"), "\xe2\x82\xac"), "yes");
  EXPECT_EQ(fits(gbnf("root ::= [^x]"), "\xed\xa0\x80"), "no");  // half of a surrogate pair
}

TEST(Gbnf, RefusesWhatIsNone) {
  EXPECT_EQ(refusal([] { gbnf("a ::= \"x\""); }), "grammar: there is no rule 'root'");
  EXPECT_EQ(refusal([] { gbnf("root ::= b"); }), "grammar: there is no rule 'b'");
  EXPECT_EQ(refusal([] { gbnf("root ::= \"x"); }), "grammar, line 1: a text or a set does not end");
  EXPECT_EQ(refusal([] { gbnf("root ::= \"x\"\nroot ::= \"y\""); }),
            "grammar, line 2: there are two rules 'root'");
  EXPECT_EQ(refusal([] { fits(gbnf("root ::= a \"x\"\na ::= \"\"? root"), ""); }),
            "the grammar has a rule that calls itself before anything is read");
  EXPECT_NE(refusal([] { fits(gbnf("root ::= (((\"abc\"{4000}){4000}){4000})"), ""); }), "");
}

TEST(JsonSchema, ObjectsHaveTheirMembersInOrder) {
  const Grammar grammar = schema(
      R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}, "c": {"enum": ["x", 2, null]}},
          "required": ["b"], "additionalProperties": false, "title": "T"})");
  for (const char* text : {R"({"b": "x"})", R"({"a":1,"b":"\u00e9\n"})", R"({ "a": -12, "b": "", "c": 2 })",
                           "{\n  \"b\": \"é\"\n}"})
    EXPECT_EQ(fits(grammar, text), "yes") << text;
  for (const char* text : {"{}", R"({"a": 1})", R"({"b": "x", "a": 1})", R"({"b": 1})", R"({"a": 01)",
                           R"({"b": "x",})", R"([)", R"({"b": "\ud800")", R"({"b": "x", "d")"})
    EXPECT_EQ(fits(grammar, text), "no") << text;
}

TEST(JsonSchema, KnowsListsNumbersChoicesAndReferences) {
  const Grammar list =
      schema(R"({"type": "array", "items": {"type": ["number", "null"]}, "minItems": 1, "maxItems": 3})");
  EXPECT_EQ(fits(list, "[1.5e3, null, -0.1]"), "yes");
  EXPECT_EQ(fits(list, "[]"), "no");
  EXPECT_EQ(fits(list, "[1, 2, 3, 4"), "no");
  const Grammar tree = schema(
      R"({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"},
          {"type": "null"}]}}, "required": ["next"]}}})");
  EXPECT_EQ(fits(tree, R"({"next": {"next": null}})"), "yes");
  EXPECT_EQ(fits(tree, R"({"next": {}})"), "no");
  EXPECT_EQ(fits(schema("true"), R"({"any": [1, {"x": false}]})"), "yes");
  EXPECT_EQ(fits(schema(R"({"type": "object", "additionalProperties": {"type": "boolean"}})"),
                 R"({"x": true, "y": 1})"),
            "no");
  EXPECT_EQ(fits(schema(R"({"type": "string", "minLength": 2, "maxLength": 3})"), "\"\xc3\xa9\\n\""), "yes");
  EXPECT_EQ(fits(grammar_of_any_object(), R"({"a": [{}]})"), "yes");
  EXPECT_EQ(fits(grammar_of_any_object(), "["), "no");
}

TEST(JsonSchema, WholeNumbersHaveTheirBounds) {
  for (const auto& [low, high] :
       std::vector<std::pair<int, int>>{{0, 9}, {-15, 120}, {7, 7}, {98, 1234}, {-300, -7}}) {
    const Grammar grammar = schema("{\"type\": \"integer\", \"minimum\": " + std::to_string(low) +
                                   ", \"exclusiveMaximum\": " + std::to_string(high + 1) + "}");
    Constraint constraint(grammar, bytes_and_words());
    for (int number = -1300; number <= 1300; ++number) {
      const auto state = constraint.behind(constraint.start(), std::to_string(number));
      EXPECT_EQ(state != Constraint::kNowhere && constraint.may_end(state), low <= number && number <= high)
          << number << " in " << low << " to " << high;
    }
  }
}

TEST(JsonSchema, BoundsOfManyDigitsTakeFewStates) {
  for (const char* bounds :
       {"\"minimum\": 1", "\"maximum\": -17", "\"minimum\": -123456789012345, \"maximum\": 98765432101234"})
    EXPECT_LT(schema(std::string("{\"type\": \"integer\", ") + bounds + "}").compile().states.size(), 2500u)
        << bounds;
}

TEST(JsonSchema, WhatIsNotSupportedIsNamed) {
  const auto refused = [](const char* text) { return refusal([&] { schema(text); }); };
  EXPECT_EQ(refused(R"({"type": "string", "pattern": "a+"})"),
            "schema: the keyword 'pattern' is not supported here");
  EXPECT_EQ(refused(R"({"properties": {"a": {"not": {}}}})"),
            "schema.properties.a: the keyword 'not' is not supported here");
  EXPECT_EQ(refused(R"({"$ref": "http://x"})"),
            "schema.$ref: only parts of this schema can be referred to: #/...");
  EXPECT_EQ(refused(R"({"$ref": "#/$defs/x"})"), "schema.$ref: there is no '#/$defs/x'");
  EXPECT_EQ(refused(R"({"type": "text"})"), "schema.type: there is no type 'text'");
  EXPECT_EQ(refused("3"), "schema: must be a schema, an object, not a whole number");
}

TEST(Constraint, OnlyTokensThatGoOnAreAllowed) {
  const auto trie = bytes_and_words();
  Constraint constraint(gbnf("root ::= \"ab\" [0-9]*"), trie);
  const auto allowed = [&](Constraint::State state) {
    std::vector<float> logits(trie->size() + 3,
                              1.0f);  // models may have more rows than their vocabulary has tokens
    EXPECT_TRUE(constraint.allow(state, logits));
    std::vector<int> out;
    for (std::size_t i = 0; i < logits.size(); ++i)
      if (std::isfinite(logits[i])) out.push_back(static_cast<int>(i));
    return out;
  };
  EXPECT_EQ(allowed(constraint.start()), (std::vector<int>{'a', 257}));  // 257: ab
  EXPECT_EQ(allowed(constraint.behind(constraint.start(), "a")), (std::vector<int>{'b'}));
  const auto end = constraint.behind(constraint.start(), "ab");
  EXPECT_EQ(allowed(end),
            (std::vector<int>{'0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 256, 258}));  // 256: </s>
  EXPECT_EQ(constraint.behind(end, "12"), end);  // the same place has the same number
  EXPECT_TRUE(constraint.may_go_on(end));
}

// Writes what is allowed first until the grammar is refused; the most work that a token took.
std::pair<std::int64_t, std::string> most_work(const Grammar& grammar, int tokens) {
  const auto trie = bytes_and_words();
  std::int64_t most = 0;
  std::string why;
  try {
    Constraint constraint(grammar, trie);
    Constraint::State at = constraint.start();
    for (int i = 0; i < tokens && at != Constraint::kNowhere && why.empty(); ++i) {
      const std::int64_t before = constraint.work();
      why = refusal([&] {
        std::vector<float> logits(trie->size(), 1.0f);
        constraint.allow(at, logits);
        at = constraint.behind(at, i % 3 == 0 ? "a" : "b");
      });
      most = std::max(most, constraint.work() - before);
    }
  } catch (const Error& error) {
    why = error.message();
  }
  return {most, why};
}

TEST(Constraint, AGrammarOfTooManyWaysIsRefusedWithinBoundedWork) {
  // What was read may be any of so many places, and other ones behind every byte.
  for (const char* text : {"root ::= [ab]* \"a\" [ab]{3000}",
                           "root ::= x x x x x\nx ::= [ab]* \"a\" [ab]{700} | \"a\" x | \"b\" x x"}) {
    const auto [most, why] = most_work(gbnf(text), 20'000);
    EXPECT_EQ(why.substr(0, 11), "the grammar") << text << ": " << why;
    EXPECT_LE(most, Constraint::kMostWork + (1 << 20)) << text;
  }
  const auto [most, why] = most_work(gbnf("root ::= [ab]{1,2000}"), 1'900);
  EXPECT_EQ(why, "");
  EXPECT_LE(most, Constraint::kWorkPerToken) << "a plain repetition never eats into what is spare";
}

TEST(Gbnf, ManyRulesAndManyEmptyPartsAreReadAtOnce) {
  std::string rules = "root ::= r0\n", parts = "root ::= ";
  for (int i = 0; i < 20'000; ++i)  // each may be empty since the next one may
    rules += "r" + std::to_string(i) + " ::= " + (i < 19'999 ? "r" + std::to_string(i + 1) : "\"x\"?") + "\n";
  for (int i = 0; i < 80'000; ++i) parts += "\"a\"? ";
  EXPECT_EQ(gbnf(rules).compile().starts.size(), 20'001u);
  EXPECT_GT(gbnf(parts).compile().states.size(), 80'000u);
  std::string choice = "root ::= (\"a\"";
  for (int i = 0; i < 500; ++i) choice += " | \"a\"";
  EXPECT_NE(refusal([&] { gbnf(choice + "){100000}").compile(); }), "");
}

}  // namespace
}  // namespace kvtide::grammar
