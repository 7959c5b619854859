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

}  // namespace
}  // namespace kvtide
