#include "base/json/json_fields.h"

#include <gtest/gtest.h>

namespace kvtide {
namespace {

const JsonValue& tree() {
  static const JsonValue kTree = JsonValue::parse(
      R"({"word": "b", "absent": null, "number": 2.5, "count": 3, "list": [1], "part": {"word": "c"}})",
      "x.json");
  return kTree;
}

template <class Call>
void refused(ErrorCode code, const std::string& says, Call call) {
  try {
    call();
    ADD_FAILURE() << "accepted instead of: " << says;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    EXPECT_EQ(error.message(), "x.json: " + says);
  }
}

TEST(JsonFields, WordsNumbersAndLists) {
  const JsonFields json(tree(), "x.json");
  EXPECT_EQ(json.required_text("word"), "b");
  EXPECT_EQ(json.one_of("word", {"a", "b"}), "b");
  EXPECT_EQ(json.list("list").size(), 1u);
  EXPECT_EQ(json.count("count", 0, 3), 3);
  EXPECT_EQ(json.count("absent", 0, 3, 1), 1);
  EXPECT_EQ(json.real("number", 0.0, 3.0), 2.5);
}

TEST(JsonFields, WhatIsMissingOrWrongIsNamedWithItsPlace) {
  const JsonFields json(tree(), "x.json");
  const JsonFields part = *json.child("part");
  refused(ErrorCode::bad_format, "the key 'absent' is missing", [&] { json.required_text("absent"); });
  refused(ErrorCode::bad_format, "the key 'part.none' is missing", [&] { part.one_of("none", {"a"}); });
  refused(ErrorCode::bad_format, "'number' is 2.5; it must be a string",
          [&] { json.required_text("number"); });
  refused(ErrorCode::unsupported, "'part.word' is 'c'; known: a, b", [&] {
    part.one_of("word", {"a", "b"});
  });
  refused(ErrorCode::bad_format, "'part.word' must be a list", [&] { part.list("word"); });
  refused(ErrorCode::bad_format, "'count' is 3; it must be a whole number between 4 and 5",
          [&] { json.count("count", 4, 5); });
}

TEST(JsonFields, NumbersInLists_AsDeepAsAsked) {
  const JsonValue value =
      JsonValue::parse(R"({"flat": [1, 2], "deep": [[1], [], [2.5, 3]], "wild": [1, "a"]})", "x.json");
  const JsonFields json(value, "x.json");
  using Whole = std::vector<std::int64_t>;
  using Deep = std::vector<std::vector<double>>;
  EXPECT_EQ(json.numbers<Whole>("flat"), (Whole{1, 2}));
  EXPECT_EQ(json.numbers<Deep>("deep"), (Deep{{1.0}, {}, {2.5, 3.0}}));
  refused(ErrorCode::bad_format, "'flat' is 2; it must be whole numbers between 0 and 1",
          [&] { json.numbers<Whole>("flat", 0, 1); });
  refused(ErrorCode::bad_format, "'flat' is 1; it must be a list", [&] { json.numbers<Deep>("flat"); });
  refused(ErrorCode::bad_format, "'wild' is 'a'; it must be numbers",
          [&] { json.numbers<std::vector<double>>("wild"); });
  refused(ErrorCode::bad_format, "the key 'none' is missing", [&] { json.numbers<Whole>("none"); });
}

TEST(JsonFields, NullIsNotAbsence_WhereItIsAnAnswer) {
  const JsonFields json(tree(), "x.json");
  EXPECT_TRUE(json.contains("absent"));
  EXPECT_TRUE(json.is_null("absent"));
  EXPECT_FALSE(json.is_null("word"));
  EXPECT_FALSE(json.contains("none"));
  refused(ErrorCode::bad_format, "the key 'none' is missing", [&] { json.is_null("none"); });
}

TEST(JsonFields, ObjectsAndFlagsThatMustBeThere) {
  const JsonValue value = JsonValue::parse(R"({"items": [{"on": true}, {"on": 1}], "part": {}})", "x.json");
  const JsonFields json(value, "x.json");
  const std::vector<JsonFields> items = json.objects("items");
  ASSERT_EQ(items.size(), 2u);
  EXPECT_TRUE(items[0].flag("on"));
  refused(ErrorCode::bad_format, "'items.on' is 1; it must be true or false", [&] { items[1].flag("on"); });
  refused(ErrorCode::bad_format, "the key 'part.on' is missing",
          [&] { json.required_child("part").flag("on"); });
  refused(ErrorCode::bad_format, "the key 'none' is missing", [&] { json.required_child("none"); });
  refused(ErrorCode::bad_format, "'list' is 1; it must be a list of objects",
          [&] { JsonFields(tree(), "x.json").objects("list"); });
}

}  // namespace
}  // namespace kvtide
