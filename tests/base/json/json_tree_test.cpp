#include <gtest/gtest.h>

#include "base/json/json.h"

namespace kvtide {
namespace {

TEST(Json, ANumberThatIsNotThereIsNull) {
  Json object = Json::object();
  object.set("layer", std::optional<std::int64_t>(3))
      .set("token", std::optional<std::int64_t>())
      .set("passed", std::optional(true))
      .set("share", std::optional(0.5));
  EXPECT_EQ(object.text(false), R"({"layer":3,"token":null,"passed":true,"share":0.5})");
}

TEST(Json, ListsInListsAreWrittenAsTheyAre) {
  Json object = Json::object();
  object.set("rows", std::vector<std::vector<std::int64_t>>{{1, 2}, {}})
      .set("losses", std::vector<double>{0.5});
  EXPECT_EQ(object.text(false), R"({"rows":[[1,2],[]],"losses":[0.5]})");
}

}  // namespace
}  // namespace kvtide
