#include "base/json/json_text.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/json/json.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

TEST(JsonText, ATreeIsReadBackAsItWas) {
  const std::string text =
      "{\n  \"a\": [1, 2.5, true, null],\n  \"b \\\"q\\\"\": {\n    \"c\": -9007199254740993\n  },\n"
      "  \"d\": [\n    {},\n    []\n  ],\n  \"e\": 1e-05\n}\n";
  EXPECT_EQ(json_text(JsonValue::parse(text, "x"), JsonForm::file), text);
}

TEST(JsonText, DoublesKeepEveryBit) {
  for (const double value : {0.1, 1.0 / 3.0, 5e-324, 1.7976931348623157e308, 0.6978305848598664}) {
    const JsonValue read = JsonValue::parse(json_text(JsonValue(value), JsonForm::file), "x");
    EXPECT_EQ(*read.number(), value);
  }
}

TEST(JsonText, AShortNumberIsTheSameFloat) {
  EXPECT_EQ(short_number(1e-5f), 1e-5);
  for (const float value : {0.1f, 1e-6f, 0.088388346f, 16777216.0f})
    EXPECT_EQ(static_cast<float>(short_number(value)), value);
}

Json built() {
  Json json = Json::object();
  json.set("none", Json()).set("flag", true).set("whole", -7).set("real", 0.5).set("float", 1.0);
  json.set("large", std::numeric_limits<std::uint64_t>::max()).set("text", "a\"\n\xc3\xa9");
  json.set("items", Json::array(std::vector{1, 2}))
      .set("nothing", Json::array())
      .set("empty", Json::object());
  return json;
}

TEST(Json, IsWrittenOnOneLineOrIndented) {
  EXPECT_EQ(
      built().text(false),
      "{\"none\":null,\"flag\":true,\"whole\":-7,\"real\":0.5,\"float\":1.0,\"large\":18446744073709551615,"
      "\"text\":\"a\\\"\\n\xc3\xa9\",\"items\":[1,2],\"nothing\":[],\"empty\":{}}");
  EXPECT_EQ(
      built().text(),
      "{\n  \"none\": null,\n  \"flag\": true,\n  \"whole\": -7,\n  \"real\": 0.5,\n  \"float\": 1.0,\n"
      "  \"large\": 18446744073709551615,\n  \"text\": \"a\\\"\\n\xc3\xa9\",\n  \"items\": [\n    1,\n    2\n"
      "  ],\n  \"nothing\": [],\n  \"empty\": {}\n}");
}

TEST(Json, BytesThatAreNotUtf8BecomeTheSignForThat) {
  EXPECT_EQ(Json("a\xff").text(false), "\"a\xef\xbf\xbd\"");
}

TEST(Json, ANumberThatIsNotFiniteIsNull_AndRefusedInAFile) {
  EXPECT_EQ(Json(kInfinite).text(false), "null");
  try {
    Json(kInfinite).text(JsonForm::file);
    ADD_FAILURE() << "written";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(error.message().find("not finite"), std::string::npos) << error.message();
  }
}

}  // namespace
}  // namespace kvtide
