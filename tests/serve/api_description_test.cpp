// What /openapi.json says, against the table of routes and what the server answers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "tests/serve/asking.h"

namespace kvtide {
namespace {

using testing::ask;
using testing::json_of;
using testing::request_of;

struct Operation {
  std::string method, path;
  const JsonValue* json;
};

// "/states/{state}/fork" as a request of it might be: "/states/1/fork".
std::string sample_path(const std::string& path) {
  std::string out;
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '{')
      i = path.find('}', i), out += '1';
    else
      out += path[i];
  }
  return out;
}

bool is_of(const Operation& operation, const serve::Server::RouteName& route) {
  if (operation.method != route.method) return false;
  const std::string path = sample_path(operation.path);
  if (!route.path.ends_with('*')) return operation.path == route.path;
  const std::string_view front = route.path.substr(0, route.path.size() - 1);
  return path.starts_with(front) && operation.path.find('{') != std::string::npos;
}

class ApiDescriptionTest : public ::testing::Test {
 protected:
  std::vector<Operation> operations() const {
    std::vector<Operation> out;
    for (const auto& [path, item] : *document_.find("paths")->object())
      for (const auto& [method, operation] : *item.object()) {
        std::string capitals = method;
        std::transform(capitals.begin(), capitals.end(), capitals.begin(),
                       [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
        out.push_back({capitals, path, &operation});
      }
    return out;
  }
  void check_references(const JsonValue& json) const {
    if (const JsonValue::List* list = json.list())
      for (const JsonValue& item : *list) check_references(item);
    const JsonValue::Object* object = json.object();
    if (object == nullptr) return;
    for (const auto& [name, value] : *object) {
      if (name != "$ref" || value.text() == nullptr) {
        check_references(value);
        continue;
      }
      const JsonValue* at = &document_;
      std::string_view rest = *value.text();
      ASSERT_TRUE(rest.starts_with("#/")) << rest;
      for (rest.remove_prefix(2); at != nullptr && !rest.empty();) {
        const std::size_t end = std::min(rest.find('/'), rest.size());
        at = at->find(rest.substr(0, end));
        rest.remove_prefix(std::min(rest.size(), end + 1));
      }
      EXPECT_NE(at, nullptr) << *value.text();
    }
  }

  const testing::TemporaryFile file_ = testing::chat_model_file();
  const Model model_{file_.path()};
  serve::Server server_{{{"tiny", &model_}}, testing::small_service()};
  const JsonValue document_ = json_of(*testing::fetch(server_, "/openapi.json"));
};

TEST_F(ApiDescriptionTest, DescribesEveryRouteAndNoOther) {
  const std::vector<Operation> described = operations();
  const auto routes = serve::Server::routes();
  for (const auto& route : routes)
    EXPECT_TRUE(
        std::any_of(described.begin(), described.end(), [&](const auto& o) { return is_of(o, route); }))
        << route.method << " " << route.path << " is not described";
  for (const Operation& operation : described) {
    EXPECT_EQ(std::count_if(routes.begin(), routes.end(), [&](const auto& r) { return is_of(operation, r); }),
              1)
        << operation.method << " " << operation.path << " is not served";
    EXPECT_NE(operation.json->find("responses"), nullptr);
  }
  check_references(document_);
  EXPECT_EQ(*document_.find("info")->find("version")->text(), "test");
}

TEST_F(ApiDescriptionTest, WhatIsAnsweredHasADescribedStatus) {
  for (const Operation& operation : operations())
    for (const std::string body :
         {"", "{}", "[]", R"({"messages":[{"role":"user","content":"a"}],"max_tokens":2,
         "prompt":"a b","input":"a","content":"a","tokens":[1],"filename":"a"})"}) {
      const auto reply = ask(server_, request_of(operation.method, sample_path(operation.path), body));
      EXPECT_NE(operation.json->find("responses")->find(std::to_string(reply->status())), nullptr)
          << operation.method << " " << operation.path << " answers " << reply->status() << ": "
          << reply->body();
    }
}

// The actions of states are one route with a table of its own: each is described, and known.
TEST_F(ApiDescriptionTest, KnowsEveryActionThatIsDescribed) {
  ask(server_, "/v1/completions", R"({"prompt":"a b c","max_tokens":2})");
  for (const Operation& operation : operations()) {
    if (!operation.path.starts_with("/states/{state}/")) continue;
    const auto reply = ask(server_, request_of("POST", sample_path(operation.path), R"({"plan":true})"));
    EXPECT_EQ(reply->body().find("there is no action"), std::string::npos) << operation.path;
  }
  const auto refused = ask(server_, "/states/1/dance", "{}");
  for (const Operation& operation : operations()) {
    if (!operation.path.starts_with("/states/{state}/")) continue;
    const std::string action = operation.path.substr(operation.path.rfind('/') + 1);
    EXPECT_NE(refused->body().find(action), std::string::npos) << operation.path;
  }
}

}  // namespace
}  // namespace kvtide
