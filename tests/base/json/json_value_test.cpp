#include "base/json/json_value.h"

#include <gtest/gtest.h>

#include "kvtide/error.h"

namespace kvtide {
namespace {

TEST(JsonValue, KeepsEveryKindOfValueAndTheOrderOfMembers) {
  const JsonValue json = JsonValue::parse(
      R"({"z": null, "flag": true, "whole": -7, "real": 0.5, "large": 18446744073709551615, "text": "a\u00e9",)"
      R"( "list": [1, [2], {}]})",
      "x.json");
  ASSERT_NE(json.object(), nullptr);
  EXPECT_EQ(json.object()->front().first, "z");
  EXPECT_TRUE(json.find("z")->is_null());
  EXPECT_TRUE(*json.find("flag")->boolean());
  EXPECT_EQ(*json.find("whole")->integer(), -7);
  EXPECT_EQ(json.find("real")->integer(), nullptr);
  EXPECT_EQ(json.find("real")->number(), 0.5);
  EXPECT_EQ(json.find("large")->integer(), nullptr);
  EXPECT_EQ(json.find("large")->number(), 18446744073709551616.0);
  EXPECT_EQ(*json.find("text")->text(), "a\xc3\xa9");
  EXPECT_EQ(json.find("list")->list()->size(), 3u);
  EXPECT_EQ(json.find("absent"), nullptr);
  EXPECT_EQ(json.find("list")->find("0"), nullptr);
  EXPECT_EQ(json.find("whole")->kind(), "a whole number");
}

TEST(JsonValue, RefusesWhatIsNoJsonOrAmbiguous_AndSaysWhere) {
  const struct {
    std::string text, says;
  } cases[] = {
      {"", "not valid JSON at byte"},
      {"{\"a\":1", "not valid JSON at byte"},
      {"{\"a\":1} x", "not valid JSON at byte"},
      {"{\"\xff\":1}", "not valid JSON at byte"},
      {std::string("{}\0", 3), "not valid JSON at byte 2"},
      {"[1e999]", "not valid JSON"},
      {R"({"a":1,"b":{"c":1,"c":2}})", "the name 'c' stands twice"},
      {std::string(65, '[') + std::string(65, ']'), "more than 64 levels deep"},
      {std::string(1000000, '{'), "not valid JSON"},
      {std::string(1000000, '['), "more than 64 levels deep"},
  };
  for (const auto& bad : cases) {
    try {
      JsonValue::parse(bad.text, "x.json");
      ADD_FAILURE() << "accepted " << bad.text.substr(0, 40);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_format);
      EXPECT_EQ(error.message().find("x.json: "), 0u) << error.message();
      EXPECT_NE(error.message().find(bad.says), std::string::npos) << error.message();
    }
  }
  EXPECT_NO_THROW(JsonValue::parse(std::string(64, '[') + std::string(64, ']'), "x.json"));
}

}  // namespace
}  // namespace kvtide
