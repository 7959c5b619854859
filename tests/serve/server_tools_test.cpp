// Calls of tools and answers of JSON, by the three interfaces: a model of random weights, held to a grammar.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/serve/asking.h"

namespace kvtide::serve {
namespace {

using testing::ask;
using testing::json_of;

testing::SampleModel with_marks() {
  testing::SampleModel out = testing::small_sample();
  out.marks = true;
  out.context = 2048;
  return out;
}

const JsonValue& at(const JsonValue& json, std::string_view key) {
  const JsonValue* found = json.find(key);
  EXPECT_NE(found, nullptr) << key;
  static const JsonValue kNone;
  return found == nullptr ? kNone : *found;
}
const JsonValue& at(const JsonValue& json, std::size_t i) { return json.list()->at(i); }

// What events say, in their order: the values of one member, put together.
std::string joined(const std::string& body, std::string_view key) {
  std::string out;
  const std::string wanted = "\"" + std::string(key) + "\":\"";
  for (std::size_t from = 0; (from = body.find(wanted, from)) != std::string::npos;) {
    from += wanted.size();
    std::size_t end = from;
    while (body[end] != '"') end += body[end] == '\\' ? 2 : 1;
    out += *JsonValue::parse(body.substr(from - 1, end - from + 2), "event").text();
    from = end;
  }
  return out;
}

// Which of the words come first: "012" in their order.
std::string order_of(const std::string& body, const std::vector<std::string>& words) {
  std::vector<std::pair<std::size_t, std::size_t>> places;
  for (std::size_t i = 0; i < words.size(); ++i) places.emplace_back(body.find(words[i]), i);
  std::sort(places.begin(), places.end());
  std::string out;
  for (const auto& [place, i] : places) out += std::to_string(i);
  return out;
}

class ServerToolsTest : public ::testing::Test {
 protected:
  const testing::TemporaryFile file_ = testing::chat_model_file(with_marks());
  const Model model_{file_.path()};
  Server server_{{{"sample", &model_}}, testing::small_service()};
};

constexpr const char* kSchema =
    R"({"type":"object","properties":{"on":{"type":"boolean"},"n":{"type":"integer",)"
    R"("minimum":1,"maximum":12}},"required":["on","n"],"additionalProperties":false})";

TEST_F(ServerToolsTest, OpenAisClientsGetTheCallThatTheyAskFor) {
  const std::string body =
      R"("messages":[{"role":"user","content":"on"}],"max_tokens":300,"temperature":0,"tools":[)"
      R"({"type":"function","function":{"name":"light","parameters":)" +
      std::string(kSchema) + R"(}}],"tool_choice":{"type":"function","function":{"name":"light"}})";
  const auto whole = ask(server_, "/v1/chat/completions", "{" + body + "}");
  ASSERT_EQ(whole->status(), 200) << whole->body();
  const JsonValue json = json_of(*whole);
  const JsonValue& choice = at(at(json, "choices"), 0);
  EXPECT_EQ(*at(choice, "finish_reason").text(), "tool_calls");
  EXPECT_TRUE(at(at(choice, "message"), "content").is_null());
  const JsonValue& call = at(at(at(choice, "message"), "tool_calls"), 0);
  EXPECT_EQ(at(call, "id").text()->size(), 9u);
  EXPECT_EQ(*at(at(call, "function"), "name").text(), "light");
  const std::string arguments = *at(at(call, "function"), "arguments").text();
  EXPECT_NE(JsonValue::parse(arguments, "arguments").find("on"), nullptr) << arguments;
  const auto pieces = ask(server_, "/v1/chat/completions", "{" + body + R"(,"stream":true})");
  EXPECT_EQ(joined(pieces->body(), "arguments"), arguments);
  EXPECT_NE(pieces->body().find(R"("finish_reason":"tool_calls")"), std::string::npos);
  // The result goes back, and the answer goes on.
  const std::string rest =
      R"({"messages":[{"role":"user","content":"on"},{"role":"assistant","content":null,"tool_calls":[)"
      R"({"id":"abc","type":"function","function":{"name":"light","arguments":"{\"on\": true}"}}]},)"
      R"({"role":"tool","tool_call_id":"abc","content":"done"}],"max_tokens":3})";
  EXPECT_EQ(ask(server_, "/v1/chat/completions", rest)->status(), 200);
  const JsonValue prompt = json_of(*ask(server_, "/apply-template", rest));
  EXPECT_NE(
      at(prompt, "prompt").text()->find("{\"name\": \"light\", \"arguments\": {\"on\":true}}<|im_end|>"),
      std::string::npos);
  EXPECT_NE(at(prompt, "prompt").text()->find("Result of light: done"), std::string::npos);
}

TEST_F(ServerToolsTest, AnthropicsClientsGetBlocks) {
  const std::string body =
      R"("messages":[{"role":"user","content":"on"}],"max_tokens":300,"temperature":0,"tools":[)"
      R"({"name":"light","input_schema":)" +
      std::string(kSchema) + R"(}],"tool_choice":{"type":"any"})";
  const auto whole = ask(server_, "/v1/messages", "{" + body + "}");
  ASSERT_EQ(whole->status(), 200) << whole->body();
  const JsonValue json = json_of(*whole);
  EXPECT_EQ(*at(json, "stop_reason").text(), "tool_use");
  const JsonValue& block = at(at(json, "content"), 0);
  EXPECT_EQ(*at(block, "type").text(), "tool_use");
  EXPECT_NE(at(block, "input").find("n"), nullptr);
  const auto pieces = ask(server_, "/v1/messages", "{" + body + R"(,"stream":true})");
  EXPECT_EQ(order_of(pieces->body(), {"block_start", "input_json_delta", "block_stop"}), "012");
  EXPECT_NE(JsonValue::parse(joined(pieces->body(), "partial_json"), "input").find("n"), nullptr);
  const std::string rest =
      R"({"messages":[{"role":"user","content":"on"},{"role":"assistant","content":[{"type":"tool_use",)"
      R"("id":"abc","name":"light","input":{"on":true}}]},{"role":"user","content":[{"type":"tool_result",)"
      R"("tool_use_id":"abc","content":[{"type":"text","text":"done"}]}]}],"max_tokens":3})";
  EXPECT_EQ(ask(server_, "/v1/messages", rest)->status(), 200);
}

TEST_F(ServerToolsTest, ResponsesHoldTheirCallsAndGoOn) {
  const std::string tools =
      R"("tools":[{"type":"function","name":"light","parameters":)" + std::string(kSchema) + "}]";
  const auto first = ask(
      server_, "/v1/responses",
      R"({"input":"on","max_output_tokens":300,"temperature":0,)" + tools + R"(,"tool_choice":"required"})");
  ASSERT_EQ(first->status(), 200) << first->body();
  const JsonValue json = json_of(*first);
  const JsonValue& call = at(at(json, "output"), 0);
  EXPECT_EQ(*at(call, "type").text(), "function_call");
  const std::string rest = R"({"previous_response_id":")" + *at(json, "id").text() +
                           R"(","input":[{"type":"function_call_output","output":"done","call_id":")" +
                           *at(call, "call_id").text() + R"("}],"max_output_tokens":3,)" + tools + "}";
  EXPECT_EQ(ask(server_, "/v1/responses", rest)->status(), 200);
  const auto pieces =
      ask(server_, "/v1/responses",
          R"({"input":"on","stream":true,"max_output_tokens":300,"tool_choice":"required",)" + tools + "}");
  EXPECT_EQ(order_of(pieces->body(),
                     {"output_item.added", "arguments.delta", "arguments.done", "output_item.done"}),
            "0123");
  for (const char* name : {"output_item.added", "function_call_arguments.delta",
                           "function_call_arguments.done", "output_item.done", "completed"})
    EXPECT_NE(pieces->body().find(std::string("event: response.") + name + "\n"), std::string::npos) << name;
}

TEST_F(ServerToolsTest, AnswersAreTheJsonThatASchemaAsksFor) {
  for (const char* sampling : {R"("temperature":0)", R"("temperature":1.5,"seed":3,"top_k":0)"}) {
    const auto chat =
        ask(server_, "/v1/chat/completions",
            R"({"messages":[{"role":"user","content":"on"}],"max_tokens":300,)" + std::string(sampling) +
                R"(,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":)" + kSchema +
                "}}}");
    ASSERT_EQ(chat->status(), 200) << chat->body();
    const JsonValue json = json_of(*chat);
    const JsonValue& choice = at(at(json, "choices"), 0);
    EXPECT_EQ(*at(choice, "finish_reason").text(), "stop");
    const JsonValue answer = JsonValue::parse(*at(at(choice, "message"), "content").text(), "answer");
    EXPECT_NE(at(answer, "on").boolean(), nullptr);
    EXPECT_GE(*at(answer, "n").integer(), 1);
  }
  const auto llama =
      ask(server_, "/completion", R"({"prompt":"on","n_predict":50,"grammar":"root ::= \"the \" [ab]{3}"})");
  const JsonValue json = json_of(*llama);
  EXPECT_EQ(at(json, "content").text()->substr(0, 4), "the ");
  EXPECT_EQ(at(json, "content").text()->size(), 7u);
  EXPECT_EQ(*at(json, "stop_type").text(), "eos");
  const auto none = ask(server_, "/completion", R"({"prompt":"on","grammar":"root ::= \"%\""})");
  EXPECT_EQ(none->status(), 400) << none->body();
  EXPECT_NE(none->body().find("no token of this model's vocabulary"), std::string::npos);
}

// A grammar that can be read in very many ways ends its own answer, whole or in pieces, and no other.
TEST_F(ServerToolsTest, AHostileGrammarIsRefusedAndOthersGoOn) {
  const std::string question = R"({"prompt":"on","n_predict":60,"temperature":0,"ignore_eos":true)";
  const std::string wanted = ask(server_, "/completion", question + "}")->body();
  const std::string hot =
      R"({"prompt":"on","n_predict":200,"temperature":9,"top_k":0,"seed":1,"ignore_eos":true)";
  const std::string grammar =
      R"(,"grammar":"root ::= x x x x x\nx ::= [a-z ]* \"a\" [a-z ]{700} | [a-z ] x | [a-z ] x x")";
  for (const bool stream : {false, true}) {
    auto beside = std::make_shared<testing::HeardReply>(), hostile = std::make_shared<testing::HeardReply>();
    server_.handle(testing::request_of("POST", "/completion", question + "}"), beside);
    server_.handle(
        testing::request_of("POST", "/completion", hot + grammar + (stream ? R"(,"stream":true})" : "}")),
        hostile);
    while (server_.scheduler().step()) {
    }
    EXPECT_EQ(hostile->ends(), 1);
    EXPECT_NE(hostile->body().find("the grammar"), std::string::npos) << hostile->body();
    if (stream)
      EXPECT_NE(hostile->body().find("error"), std::string::npos) << hostile->body();
    else
      EXPECT_EQ(hostile->status(), 400);
    const auto text = [](const std::string& body) {
      return *at(JsonValue::parse(body, "answer"), "content").text();
    };
    EXPECT_EQ(text(beside->body()), text(wanted));
  }
}

}  // namespace
}  // namespace kvtide::serve
