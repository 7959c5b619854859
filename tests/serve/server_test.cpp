// Every route, without sockets: what is answered, and that what is wrong with a request is a status of 4xx.
#include "serve/server.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "serve/routes/memory_fields.h"
#include "tests/formats/temporary_folder.h"
#include "tests/kernels/samples.h"
#include "tests/serve/asking.h"

namespace kvtide {
namespace {

using serve::Request;
using testing::ask;
using testing::json_of;
using testing::request_of;

class ServerTest : public ::testing::Test {
 protected:
  static const JsonValue& at(const JsonValue& json, const char* name) {
    const JsonValue* found = json.find(name);
    EXPECT_NE(found, nullptr) << name;
    return found == nullptr ? json : *found;
  }

  // Of the procedural memories here.
  static std::string longer_than_a_window() {
    std::string text = "the end of a land in the sea";
    for (int i = 0; i < 4; ++i) text += text;
    return text;
  }

  const testing::TemporaryFile file_ = testing::chat_model_file();
  const Model model_{file_.path()};
  serve::Server server_{{{"tiny", &model_}}, testing::small_service()};
};

TEST_F(ServerTest, SaysWhatItIs) {
  EXPECT_EQ(ask(server_, request_of("GET", "/health"))->body(), R"({"status":"ok"})");
  const auto models = ask(server_, request_of("GET", "/v1/models"));
  EXPECT_EQ(*at((*at(json_of(*models), "data").list())[0], "id").text(), "tiny");
  EXPECT_EQ(ask(server_, request_of("GET", "/v1/models/tiny"))->status(), 200);
  EXPECT_EQ(ask(server_, request_of("GET", "/v1/models/other"))->status(), 404);
  const auto metrics = ask(server_, request_of("GET", "/metrics"));
  EXPECT_NE(metrics->body().find("\nvllm:num_requests_waiting 0\n"), std::string::npos);
  EXPECT_EQ(ask(server_, request_of("GET", "/props"))->status(), 200);
}

TEST_F(ServerTest, ChatsWholeAndInPieces) {
  const std::string common =
      R"("messages":[{"role":"user","content":"the end"}],"temperature":0,"max_tokens":6)";
  const auto whole = ask(server_, "/v1/chat/completions", "{" + common + "}");
  ASSERT_EQ(whole->status(), 200) << whole->body();
  const JsonValue json = json_of(*whole);
  const std::string text = *at(at((*at(json, "choices").list())[0], "message"), "content").text();
  EXPECT_EQ(*at(at(json, "usage"), "completion_tokens").integer(), 6);

  const auto pieces = ask(server_, "/v1/chat/completions",
                          "{" + common + R"(,"stream":true,"stream_options":{"include_usage":true}})");
  EXPECT_TRUE(pieces->opened());
  EXPECT_EQ(pieces->response().type, "text/event-stream");
  std::string joined;
  std::size_t events = 0, last = 0;
  for (std::size_t from = 0; (from = pieces->body().find("data: {", from)) != std::string::npos; ++from) {
    const std::size_t end = pieces->body().find("\n\n", from);
    const JsonValue event = JsonValue::parse(pieces->body().substr(from + 6, end - from - 6), "event");
    ++events;
    last = end;
    if (at(event, "choices").list()->empty()) {
      EXPECT_GT(*at(at(at(event, "usage"), "prompt_tokens_details"), "cached_tokens").integer(), 0);
      continue;
    }
    const JsonValue& delta = at((*at(event, "choices").list())[0], "delta");
    if (const JsonValue* content = delta.find("content")) joined += *content->text();
  }
  EXPECT_EQ(joined, text);
  EXPECT_GE(events, 4u);
  EXPECT_EQ(pieces->body().substr(last), "\n\ndata: [DONE]\n\n");
}

TEST_F(ServerTest, CompletesTextsForTheClientsOfOpenAiAndLlama) {
  const auto openai = ask(server_, "/v1/completions",
                          R"({"prompt":"the end","temperature":0,"max_tokens":5,"logprobs":2,"n":2})");
  ASSERT_EQ(openai->status(), 200) << openai->body();
  const JsonValue json = json_of(*openai);
  ASSERT_EQ(at(json, "choices").list()->size(), 2u);
  const JsonValue& first = (*at(json, "choices").list())[0];
  EXPECT_EQ(at(at(first, "logprobs"), "tokens").list()->size(), 5u);
  const auto llama = ask(server_, "/completion", R"({"prompt":"the end","temperature":0,"n_predict":5})");
  EXPECT_EQ(*at(json_of(*llama), "content").text(), *at(first, "text").text());
  EXPECT_EQ(*at(json_of(*llama), "stop_type").text(), "limit");
  const std::string stop = at(first, "text").text()->substr(0, 1);
  const auto stopped = ask(server_, "/v1/completions",
                           "{\"prompt\":\"the end\",\"temperature\":0,\"max_tokens\":5,\"stop\":[" +
                               JsonValue::text_of(std::string_view(stop)) + "]}");
  EXPECT_EQ(*at((*at(json_of(*stopped), "choices").list())[0], "text").text(), "");
}

TEST_F(ServerTest, AnswersMessages) {
  const std::string body =
      R"("messages":[{"role":"user","content":[{"type":"text","text":"on"}]}],"max_tokens":4)";
  const auto whole = ask(server_, "/v1/messages", "{" + body + R"(,"system":"be","temperature":0})");
  ASSERT_EQ(whole->status(), 200) << whole->body();
  EXPECT_EQ(*at(json_of(*whole), "stop_reason").text(), "max_tokens");
  const auto pieces = ask(server_, "/v1/messages", "{" + body + R"(,"stream":true,"temperature":0})");
  for (const char* name :
       {"message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"})
    EXPECT_NE(pieces->body().find(std::string("event: ") + name + "\n"), std::string::npos) << name;
  EXPECT_LT(pieces->body().find("content_block_start"), pieces->body().find("content_block_delta"));
  EXPECT_LT(pieces->body().find("content_block_delta"), pieces->body().find("content_block_stop"));
  const auto count = ask(server_, "/v1/messages/count_tokens", "{" + body + "}");
  EXPECT_GT(*at(json_of(*count), "input_tokens").integer(), 0);
  EXPECT_EQ(*at(json_of(*ask(server_, "/v1/messages", "{}")), "type").text(), "error");
}

TEST_F(ServerTest, TurnsTextsIntoTokensAndBack) {
  const auto tokens = ask(server_, "/tokenize", R"({"content":"the end","with_pieces":true})");
  EXPECT_EQ(*at((*at(json_of(*tokens), "tokens").list())[0], "piece").text(), "the");
  const auto text = ask(server_, "/detokenize", R"({"tokens":[43,2]})");
  EXPECT_EQ(*at(json_of(*text), "content").text(), "thea") << text->body();
  const auto prompt = ask(server_, "/apply-template", R"({"messages":[{"role":"user","content":"x"}]})");
  EXPECT_NE(at(json_of(*prompt), "prompt").text()->find("<|im_start|>user\nx"), std::string::npos);
}

TEST_F(ServerTest, AResponseIsStoredAndGoneOnFrom) {
  const auto first =
      ask(server_, "/v1/responses", R"({"input":"the end","temperature":0,"max_output_tokens":6})");
  ASSERT_EQ(first->status(), 200) << first->body();
  const JsonValue json = json_of(*first);
  const std::string id = *at(json, "id").text();
  EXPECT_EQ(*at(json, "status").text(), "incomplete");
  const std::string text = *at((*at((*at(json, "output").list())[0], "content").list())[0], "text").text();
  EXPECT_EQ(testing::fetch(server_, "/v1/responses/" + id)->body(), first->body());

  const std::string rest =
      R"("input":[{"role":"user","content":"on"}],"temperature":0,"max_output_tokens":6)";
  const auto second = ask(server_, "/v1/responses", "{\"previous_response_id\":\"" + id + "\"," + rest + "}");
  ASSERT_EQ(second->status(), 200) << second->body();
  EXPECT_GT(*at(at(at(json_of(*second), "usage"), "input_tokens_details"), "cached_tokens").integer(), 0);
  const auto told =
      ask(server_, "/v1/chat/completions",
          R"({"temperature":0,"max_tokens":6,"messages":[{"role":"user","content":"the end"},)"
          R"({"role":"assistant","content":)" +
              JsonValue::text_of(std::string_view(text)) + R"(},{"role":"user","content":"on"}]})");
  EXPECT_EQ(*at((*at((*at(json_of(*second), "output").list())[0], "content").list())[0], "text").text(),
            *at(at((*at(json_of(*told), "choices").list())[0], "message"), "content").text());

  const auto stream = ask(server_, "/v1/responses",
                          R"({"input":"the end","temperature":0,"max_output_tokens":3,"stream":true})");
  for (const char* name : {"created", "in_progress", "output_item.added", "output_text.delta",
                           "output_text.done", "output_item.done", "incomplete"})
    EXPECT_NE(stream->body().find(std::string("event: response.") + name + "\n"), std::string::npos) << name;
  EXPECT_EQ(ask(server_, request_of("DELETE", "/v1/responses/" + id))->status(), 200);
  EXPECT_EQ(testing::fetch(server_, "/v1/responses/" + id)->status(), 404);
  EXPECT_EQ(ask(server_, "/v1/responses", "{\"previous_response_id\":\"" + id + "\"," + rest + "}")->status(),
            404);
}

TEST_F(ServerTest, ASlotIsSavedRestoredAndErased) {
  const testing::TemporaryFolder folder;
  serve::ServiceOptions options = testing::small_service();
  options.states_folder = folder.path("");
  const std::string prompt =
      R"({"prompt":"the end of a land in the sea","n_predict":4,"temperature":0,"id_slot":3})";
  std::string text;
  {
    serve::Server server({{"tiny", &model_}}, options);
    EXPECT_EQ(ask(server, "/slots/3?action=save", R"({"filename":"talk"})")->status(), 404)
        << "nothing is there";
    text = *at(json_of(*ask(server, "/completion", prompt)), "content").text();
    const auto saved = ask(server, "/slots/3?action=save", R"({"filename":"talk"})");
    ASSERT_EQ(saved->status(), 200) << saved->body();
    EXPECT_GT(*at(json_of(*saved), "n_saved").integer(), 5);
    const auto slots = json_of(*testing::fetch(server, "/slots"));
    ASSERT_EQ(slots.list()->size(), static_cast<std::size_t>(options.work.parallel));
    EXPECT_EQ(*at(slots.list()->at(3), "n_tokens").integer(), *at(json_of(*saved), "n_saved").integer());
    EXPECT_EQ(*at(slots.list()->at(2), "n_tokens").integer(), 0);
    EXPECT_EQ(testing::fetch(server, "/slots?model=none")->status(), 404);
  }
  serve::Server server({{"tiny", &model_}}, options);  // after a restart
  ASSERT_EQ(ask(server, "/slots/3?action=restore", R"({"filename":"talk"})")->status(), 200);
  const auto states = testing::fetch(server, "/states");
  ASSERT_EQ(at(json_of(*states), "data").list()->size(), 1u);
  const auto again = ask(server, "/completion", prompt);
  EXPECT_EQ(*at(json_of(*again), "content").text(), text);
  EXPECT_GT(*at(at(json_of(*again), "timings"), "cache_n").integer(), 5);
  for (const char* name : {"../talk", "/etc/passwd", ".talk", "", "a b"})
    EXPECT_EQ(
        ask(server, "/slots/3?action=restore", std::string("{\"filename\":\"") + name + "\"}")->status(), 400)
        << name;
  EXPECT_EQ(ask(server, "/slots/3?action=restore", R"({"filename":"none"})")->status(), 404);
  EXPECT_EQ(ask(server, "/slots/3?action=dance", R"({"filename":"talk"})")->status(), 400);
  EXPECT_EQ(ask(server, "/slots/3?action=erase", "")->status(), 200);
  EXPECT_EQ(json_of(*testing::fetch(server, "/states")).find("data")->list()->size(), 0u);
  EXPECT_EQ(ask(server_, "/slots/3?action=save", R"({"filename":"talk"})")->status(), 400) << "no folder";
}

TEST_F(ServerTest, ASessionIsSavedAndRestoredByItsHeader) {
  const testing::TemporaryFolder folder;
  serve::ServiceOptions options = testing::small_service();
  options.states_folder = folder.path("");
  serve::Server server({{"tiny", &model_}}, options);
  const auto asked_as = [&](const char* session, const char* target, std::string body) {
    serve::Request request = request_of("POST", target, std::move(body));
    if (session != nullptr) request.headers.emplace_back("x-session-id", session);
    return ask(server, request);
  };
  const std::string shorter = R"({"prompt":"the end of a land in the sea","max_tokens":4,"temperature":0})";
  const std::string longer = R"({"prompt":"the end of a land in the sea","max_tokens":9,"temperature":0})";
  // The text of b is the beginning of that of a: one state stands for both, and each is saved as far as it went.
  ASSERT_EQ(asked_as("a", "/v1/completions", longer)->status(), 200);
  ASSERT_EQ(asked_as("b", "/v1/completions", shorter)->status(), 200);
  const auto a = asked_as("a", "/slots/session?action=save", R"({"filename":"a"})");
  const auto b = asked_as("b", "/slots/session?action=save", R"({"filename":"b","durable":false})");
  ASSERT_EQ(a->status(), 200) << a->body();
  ASSERT_EQ(b->status(), 200) << b->body();
  EXPECT_EQ(*at(json_of(*b), "session").text(), "b");
  const std::int64_t a_tokens = *at(json_of(*a), "n_saved").integer();
  EXPECT_EQ(a_tokens, *at(json_of(*b), "n_saved").integer() + 5);

  EXPECT_EQ(asked_as("c", "/slots/session?action=save", R"({"filename":"c"})")->status(), 404);
  EXPECT_EQ(asked_as(nullptr, "/slots/session?action=save", R"({"filename":"c"})")->status(), 400);
  const std::string held = R"({"filename":"a","unless_held":)" + std::to_string(a_tokens) + "}";
  const auto spared = asked_as("a", "/slots/session?action=restore", held);
  EXPECT_EQ(*at(json_of(*spared), "n_restored").integer(), 0) << spared->body();
  EXPECT_EQ(asked_as("a", "/slots/session?action=erase", "")->status(), 200);
  EXPECT_EQ(asked_as("b", "/slots/session?action=erase", "")->status(), 200);
  EXPECT_EQ(json_of(*testing::fetch(server, "/states")).find("data")->list()->size(), 0u);
  const auto restored = asked_as("a", "/slots/session?action=restore", held);
  EXPECT_EQ(*at(json_of(*restored), "n_restored").integer(), a_tokens) << restored->body();
}

TEST_F(ServerTest, ASessionIsSavedAndRestoredInSegments) {
  const testing::TemporaryFolder folder;
  serve::ServiceOptions options = testing::small_service();
  options.states_folder = folder.path("");
  serve::Server server({{"tiny", &model_}}, options);
  const auto act = [&](const char* action, std::string body) {
    serve::Request request =
        request_of("POST", std::string("/slots/session?action=") + action, std::move(body));
    request.headers.emplace_back("x-session-id", "a");
    return ask(server, request);
  };
  const auto complete = [&](const std::string& prompt) {
    serve::Request request = request_of("POST", "/v1/completions",
                                        "{\"prompt\":\"" + prompt + "\",\"max_tokens\":4,\"temperature\":0}");
    request.headers.emplace_back("x-session-id", "a");
    const auto reply = ask(server, request);
    EXPECT_EQ(reply->status(), 200) << reply->body();
  };
  std::string text;
  for (int i = 0; i < 12; ++i)
    text += "the end of a land in the sea ";  // rows are found again by the thirty-two
  complete(text + "and");
  ASSERT_EQ(act("save", R"({"filename":"one","behind":[]})")->status(), 200);
  complete(text + "the end of the sea");
  const auto two = act("save", R"({"filename":"two","behind":["one"],"source":"1"})");
  ASSERT_EQ(two->status(), 200) << two->body();
  const std::int64_t tokens = *at(json_of(*two), "n_saved").integer();
  EXPECT_EQ(act("erase", "")->status(), 200);
  const auto restored = act("restore", R"({"filename":"two","behind":["one"]})");
  ASSERT_EQ(restored->status(), 200) << restored->body();
  EXPECT_EQ(*at(json_of(*restored), "n_restored").integer(), tokens);
  EXPECT_EQ(act("restore", R"({"filename":"two","behind":[]})")->status(), 400);
  EXPECT_EQ(act("restore", R"({"filename":"two","behind":["none"]})")->status(), 404);
  EXPECT_EQ(act("restore", R"({"filename":"two","behind":["../one"]})")->status(), 400);
  EXPECT_EQ(act("restore", R"({"filename":"two"})")->status(), 400);
}

TEST_F(ServerTest, AnAnswerPutIntoTheFolderIsGoneOnFrom) {
  const testing::TemporaryFolder one, other;
  serve::ServiceOptions options = testing::small_service();
  options.cache_folder = one.path("");
  serve::Server first({{"tiny", &model_}}, options);
  options.cache_folder = other.path("");
  serve::Server second({{"tiny", &model_}}, options);
  const auto said =
      ask(first, "/v1/responses", R"({"input":"the end","temperature":0,"max_output_tokens":6})");
  const std::string id = *at(json_of(*said), "id").text();
  EXPECT_EQ(testing::fetch(second, "/v1/responses/" + id)->status(), 404);
  std::filesystem::copy(one.path("responses/" + id + ".json"), other.path("responses/" + id + ".json"));
  EXPECT_EQ(testing::fetch(second, "/v1/responses/" + id)->body(), said->body());
  const std::string more =
      R"({"input":"on","temperature":0,"max_output_tokens":6,"previous_response_id":")" + id + "\"}";
  const auto text_of = [](const testing::HeardReply& reply) {
    const JsonValue answer = json_of(reply);
    return *at((*at((*at(answer, "output").list())[0], "content").list())[0], "text").text();
  };
  EXPECT_EQ(text_of(*ask(second, "/v1/responses", more)), text_of(*ask(first, "/v1/responses", more)));
  EXPECT_EQ(testing::fetch(second, "/v1/responses/resp_../../x")->status(), 404);
  EXPECT_EQ(ask(second, request_of("DELETE", "/v1/responses/" + id))->status(), 200);
  EXPECT_EQ(testing::fetch(second, "/v1/responses/" + id)->status(), 404);
}

TEST_F(ServerTest, StatesAreLookedAtAndDropped) {
  ASSERT_EQ(ask(server_, "/v1/completions", R"({"prompt":"the end","max_tokens":4})")->status(), 200);
  const JsonValue list = json_of(*testing::fetch(server_, "/states"));
  ASSERT_EQ(at(list, "data").list()->size(), 1u);
  const std::string place = "/states/" + std::to_string(*at((*at(list, "data").list())[0], "id").integer());
  EXPECT_NE(at(json_of(*testing::fetch(server_, place)), "text").text()->find("the"), std::string::npos);
  EXPECT_EQ(ask(server_, request_of("DELETE", place))->status(), 200);
  EXPECT_EQ(testing::fetch(server_, place)->status(), 404);
  EXPECT_EQ(testing::fetch(server_, "/states/x")->status(), 404);
}

TEST_F(ServerTest, ARequestChoosesItsMemory) {
  const std::string front =
      R"({"prompt":"the end of a land in the sea","max_tokens":4,"temperature":0,"kv":)";
  for (const char* kv : {R"({"kind":"full"})", R"({"kind":"rolling","window":8,"sinks":2})",
                         R"({"kind":"procedural","budget":"2M"})", R"({"attention_size":4})"})
    EXPECT_EQ(ask(server_, "/v1/completions", front + kv + "}")->status(), 200) << kv;
  std::vector<std::string> kinds;
  const JsonValue memory = json_of(*testing::fetch(server_, "/memory"));
  for (const JsonValue& state : *at(memory, "states").list()) kinds.push_back(*at(state, "kind").text());
  EXPECT_EQ(kinds, (std::vector<std::string>{"full", "rolling", "procedural", "full"}));
  for (const char* kv : {R"({"kind":"roling"})", R"({"window":8})", R"({"kind":"rolling","budget":"2M"})",
                         R"({"kind":"procedural"})", R"({"kind":"procedural","budget":"2X"})",
                         R"({"kind":"full","windows":8})", R"({"kind":"rolling","window":0})", "7",
                         R"({"state":1,"kind":"full"})"})
    EXPECT_EQ(ask(server_, "/v1/completions", front + kv + "}")->status(), 400) << kv;
  EXPECT_EQ(ask(server_, "/v1/completions", front + R"({"state":4711}})")->status(), 404);
}

// Of a chat the system message is pinned: the same positions whatever the user says, so that the prefix serves both.
TEST_F(ServerTest, AProceduralMemoryPinsTheSystemMessage) {
  const std::string text = longer_than_a_window();
  const std::string memory = R"("kv":{"kind":"procedural","budget":"2M","window":64)";
  const auto chat = [&](const std::string& said, const std::string& more) {
    return R"({"messages":[{"role":"system","content":"a sea"},{"role":"user","content":")" + text + said +
           R"("}],"max_tokens":2,"temperature":0,)" + memory + more + "}}";
  };
  const auto last_pinned = [&] {
    const JsonValue states = json_of(*testing::fetch(server_, "/states"));
    return *at(at(at(states, "data").list()->back(), "rows"), "pinned").integer();
  };
  const auto cached = [&](const std::string& body) {
    const auto reply = ask(server_, "/v1/chat/completions", body);
    EXPECT_EQ(reply->status(), 200) << reply->body();
    return *at(at(at(json_of(*reply), "usage"), "prompt_tokens_details"), "cached_tokens").integer();
  };
  EXPECT_EQ(cached(chat(" the end", "")), 0);
  EXPECT_EQ(last_pinned(), 0);
  EXPECT_EQ(cached(chat(" the end", R"(,"pin":"system")")), 0) << "what pins nothing is another memory";
  const std::int64_t pinned = last_pinned();
  EXPECT_GT(pinned, 0);
  EXPECT_GT(cached(chat(" the sea", R"(,"pin":"system")")), 0);
  EXPECT_EQ(last_pinned(), pinned);
  EXPECT_EQ(cached(chat("", R"(,"pin":{"first":0,"last":9})")), 0);
  for (const char* pin : {R"("sistem")", "7", R"({"first":3})", R"({"first":3,"last":3})", R"({"last":-1})"})
    EXPECT_EQ(ask(server_, "/v1/chat/completions", chat("", R"(,"pin":)" + std::string(pin)))->status(), 400)
        << pin;
  const auto completion = ask(server_, "/v1/completions",
                              R"({"prompt":"the sea","max_tokens":2,)" + memory + R"(,"pin":"system"}})");
  EXPECT_EQ(completion->status(), 400) << completion->body();
  const auto full = ask(server_, "/v1/chat/completions",
                        R"({"messages":[{"role":"user","content":"the sea"}],"kv":{"pin":"system"}})");
  EXPECT_EQ(full->status(), 400) << full->body();
}

TEST_F(ServerTest, PinsTheSystemMessageForThoseWhoDoNotAsk) {
  serve::ServiceOptions options = testing::small_service();
  options.memory = serve::memory_from_text("procedural=2M,pin=system");
  EXPECT_TRUE(options.memory.pin_system);
  options.memory.procedural->window = 64;
  serve::Server server({{"tiny", &model_}}, options);
  const std::string text = longer_than_a_window();
  const auto reply = ask(server, "/v1/messages",
                         R"({"system":"a sea","messages":[{"role":"user","content":")" + text +
                             R"("}],"max_tokens":2,"temperature":0})");
  ASSERT_EQ(reply->status(), 200) << reply->body();
  const JsonValue states = json_of(*testing::fetch(server, "/states"));
  EXPECT_GT(*at(at(at(states, "data").list()->back(), "rows"), "pinned").integer(), 0);
  EXPECT_EQ(ask(server, "/v1/completions", R"({"prompt":"the sea","max_tokens":2})")->status(), 200);
  for (const char* wrong : {"procedural=2M,pin=sistem", "rolling=64,pin=system", "procedural=,pin=system"})
    EXPECT_THROW(static_cast<void>(serve::memory_from_text(wrong)), Error) << wrong;
}

// The answer is the same with and without; what was measured stands at the state, live at the answer, and in the metrics.
TEST_F(ServerTest, AProceduralMemoryTellsItsDrift) {
  const std::string text = longer_than_a_window();
  const std::string front = R"({"prompt":")" + text + R"(","max_tokens":6,"temperature":0,"kv":)";
  const std::string memory = R"("kind":"procedural","budget":"2M","window":64)";
  const auto plain = ask(server_, "/v1/completions", front + "{" + memory + "}}");
  const auto asked = std::make_shared<testing::HeardReply>();
  server_.handle(request_of("POST", "/v1/completions", front + "{" + memory + R"(,"drift":4}})"), asked);
  std::int64_t live = 0;
  while (!asked->complete() && server_.scheduler().step()) {
    const JsonValue now = json_of(*testing::fetch(server_, "/memory"));
    for (const JsonValue& running : *at(now, "running").list())
      for (const JsonValue& choice : *at(running, "choices").list())
        live = std::max(live, *at(at(choice, "drift"), "tokens").integer());
  }
  ASSERT_EQ(asked->status(), 200) << asked->body();
  EXPECT_GT(live, 0);
  const auto text_of = [](const testing::HeardReply& reply) {
    return *at(at(json_of(reply), "choices").list()->at(0), "text").text();
  };
  EXPECT_EQ(text_of(*asked), text_of(*plain));
  const JsonValue measured = json_of(*asked);
  EXPECT_EQ(*at(at(at(measured, "usage"), "prompt_tokens_details"), "cached_tokens").integer(), 0);
  const JsonValue states = json_of(*testing::fetch(server_, "/states"));
  const JsonValue& state = at(states, "data").list()->back();
  const JsonValue whole =
      json_of(*testing::fetch(server_, "/states/" + std::to_string(*at(state, "id").integer())));
  const JsonValue& drift = at(whole, "drift");
  EXPECT_EQ(*at(drift, "position").integer(), *at(whole, "tokens").integer());
  EXPECT_GE(*at(drift, "tokens").integer(), live);
  EXPECT_GT(*at(at(drift, "output"), "mean").number(), 0.0);
  EXPECT_FALSE(at(drift, "heads").list()->empty());
  const std::string metrics = testing::fetch(server_, "/metrics")->body();
  EXPECT_NE(
      metrics.find("kvtide_drift_sampled_tokens_total " + std::to_string(*at(drift, "tokens").integer())),
      std::string::npos)
      << metrics;
  for (const char* kv : {R"({"kind":"full","drift":4})", R"({"drift":4})", R"({"state":1,"drift":4})"})
    EXPECT_EQ(ask(server_, "/v1/completions", front + kv + "}")->status(), 400) << kv;
}

// What is done to a fork leaves the state that it was forked from as it is; what was cut away is read again.
TEST_F(ServerTest, StatesAreForkedCutAndGoneOnFrom) {
  const std::string prompt = R"({"prompt":"the end of a land in the sea","max_tokens":4,"temperature":0)";
  const auto first = ask(server_, "/v1/completions", prompt + "}");
  ASSERT_EQ(first->status(), 200);
  const auto act = [&](const std::string& place, const std::string& body) {
    return ask(server_, "/states/" + place, body);
  };
  const JsonValue list = json_of(*testing::fetch(server_, "/states"));
  const std::string number = std::to_string(*at((*at(list, "data").list())[0], "id").integer());
  const std::int64_t tokens = *at((*at(list, "data").list())[0], "tokens").integer();
  const auto forked = act(number + "/fork", "");
  ASSERT_EQ(forked->status(), 200) << forked->body();
  const std::string fork = std::to_string(*at(at(json_of(*forked), "state"), "id").integer());
  EXPECT_NE(fork, number);
  const auto planned = act(fork + "/truncate", R"({"length":3,"plan":true})");
  EXPECT_TRUE(*at(json_of(*planned), "possible").boolean()) << planned->body();
  ASSERT_EQ(act(fork + "/truncate", R"({"length":3})")->status(), 200);
  EXPECT_EQ(*at(json_of(*testing::fetch(server_, "/states/" + fork)), "tokens").integer(), 3);
  EXPECT_EQ(*at(json_of(*testing::fetch(server_, "/states/" + number)), "tokens").integer(), tokens);
  const auto behind = ask(server_, "/v1/completions",
                          R"({"prompt":" sea","max_tokens":2,"temperature":0,"kv":{"state":)" + fork + "}}");
  ASSERT_EQ(behind->status(), 200) << behind->body();
  const JsonValue answer = json_of(*behind);
  EXPECT_EQ(*at(at(at(answer, "usage"), "prompt_tokens_details"), "cached_tokens").integer(), 3);
  ASSERT_EQ(act(fork + "/drop", R"({"first":1,"last":2,"close_gap":true})")->status(), 200);
  EXPECT_TRUE(*at(json_of(*testing::fetch(server_, "/states/" + fork)), "by_number").boolean())
      << "no prompt is served by it any more";
  EXPECT_EQ(act(number + "/attention", R"({"size":4})")->status(), 200);
  EXPECT_EQ(act(number + "/keep", "")->status(), 200);
  EXPECT_EQ(act(number + "/expand", R"({"capacity":600})")->status(), 200);
  EXPECT_EQ(act(number + "/compact", R"({"capacity":64})")->status(), 200);
  EXPECT_EQ(act(number + "/pin", R"({"first":0,"last":2})")->status(), 400) << "it is not procedural";
  for (const char* wrong : {"/truncate", "/dance", "/drop", "/compact", "/save"})
    EXPECT_GE(act(number + wrong, "")->status(), 400) << wrong;
  EXPECT_EQ(act("4711/fork", "")->status(), 404);
  const auto again = ask(server_, "/v1/completions", prompt + "}");
  EXPECT_EQ(*at((*at(json_of(*again), "choices").list())[0], "text").text(),
            *at((*at(json_of(*first), "choices").list())[0], "text").text());
}

TEST_F(ServerTest, AStateGoesToAFileAndBack) {
  const testing::TemporaryFolder folder;
  serve::ServiceOptions options = testing::small_service();
  options.states_folder = folder.path("");
  serve::Server server({{"tiny", &model_}}, options);
  const std::string prompt =
      R"({"prompt":"the end of a land","max_tokens":4,"kv":{"kind":"rolling","window":64}})";
  ASSERT_EQ(ask(server, "/v1/completions", prompt)->status(), 200);
  const JsonValue list = json_of(*testing::fetch(server, "/states"));
  const std::string number = std::to_string(*at((*at(list, "data").list())[0], "id").integer());
  ASSERT_EQ(ask(server, "/states/" + number + "/save", R"({"filename":"land"})")->status(), 200);
  serve::Server later({{"tiny", &model_}}, options);
  const auto loaded = ask(later, "/states", R"({"filename":"land"})");
  ASSERT_EQ(loaded->status(), 200) << loaded->body();
  EXPECT_EQ(*at(json_of(*loaded), "kind").text(), "rolling");
  const std::string its = std::to_string(*at(json_of(*loaded), "id").integer());
  EXPECT_EQ(ask(later, "/v1/completions", R"({"prompt":" sea","max_tokens":2,"kv":{"state":)" + its + "}}")
                ->status(),
            200);
  EXPECT_EQ(ask(later, "/states", R"({"filename":"../land"})")->status(), 400);
  EXPECT_EQ(ask(later, "/states", R"({"filename":"sea"})")->status(), 404);
}

TEST_F(ServerTest, ThePageNeedsNothingFromElsewhere) {
  const auto page = testing::fetch(server_, "/");
  ASSERT_EQ(page->status(), 200);
  EXPECT_EQ(page->response().type, "text/html; charset=utf-8");
  EXPECT_TRUE(page->body().starts_with("<!doctype html>"));
  for (const char* outside : {"http://", "https://", "src=", "@import", "url("})
    EXPECT_EQ(page->body().find(outside), std::string::npos) << outside;
  serve::ServiceOptions options = testing::small_service();
  options.api_key = "secret";
  serve::Server locked({{"tiny", &model_}}, options);
  EXPECT_EQ(testing::fetch(locked, "/")->status(), 200) << "it asks for the key itself";
  EXPECT_EQ(testing::fetch(locked, "/memory")->status(), 401);
}

TEST_F(ServerTest, ASlowReaderAndOneWhoLeavesHoldNobodyUp) {
  const auto slow = std::make_shared<testing::HeardReply>(), left = std::make_shared<testing::HeardReply>();
  const std::string body = R"({"prompt":"the end","max_tokens":100,"stream":true,"ignore_eos":true})";
  server_.handle(request_of("POST", "/v1/completions", body), slow);
  server_.handle(request_of("POST", "/v1/completions", body), left);
  for (int i = 0; i < 4; ++i) server_.scheduler().step();
  slow->read_nothing();
  left->leave();
  EXPECT_EQ(ask(server_, "/v1/completions", R"({"prompt":"on","max_tokens":20,"ignore_eos":true})")->status(),
            200);
  EXPECT_FALSE(slow->complete());
  EXPECT_EQ(server_.scheduler().counts().cancelled, 1) << "within a step";
  slow->read_again();
  while (server_.scheduler().step()) {
  }
  EXPECT_TRUE(slow->complete());
  EXPECT_EQ(left->ends(), 0);
}

TEST_F(ServerTest, LetsInWhoMayAsk) {
  serve::ServiceOptions options = testing::small_service();
  options.api_key = "secret";
  serve::Server server({{"tiny", &model_}}, options);
  const auto status = [&](serve::Headers headers, const char* path = "/v1/models") {
    return ask(server, Request{"GET", path, std::move(headers), ""})->status();
  };
  EXPECT_EQ(status({}), 400) << "no host";
  EXPECT_EQ(status({{"host", "localhost"}}), 401);
  EXPECT_EQ(status({{"host", "localhost"}}, "/health"), 200);
  EXPECT_EQ(status({{"host", "localhost"}, {"authorization", "Bearer secret"}}), 200);
  EXPECT_EQ(status({{"host", "[::1]:8080"}, {"x-api-key", "secret"}}), 200);
  for (const char* wrong : {"", "s", "secre", "secret ", "secretsecret", "Secret"})
    EXPECT_EQ(status({{"host", "localhost"}, {"x-api-key", wrong}}), 401) << wrong;
  EXPECT_EQ(status({{"host", "rebound.example"}, {"x-api-key", "secret"}}), 403);
  EXPECT_EQ(status({{"host", "127.0.0.1.example"}, {"x-api-key", "secret"}}), 403);
  EXPECT_EQ(status({{"host", "localhost"}, {"origin", "https://page.example"}, {"x-api-key", "secret"}}),
            403);
  EXPECT_EQ(status({{"host", "localhost"}, {"origin", "http://localhost"}, {"x-api-key", "secret"}}), 200);
}

TEST_F(ServerTest, WholeNumbersEndWhereTheirTypeDoes) {
  const auto status = [&](const std::string& seed) {
    return ask(server_, "/v1/completions", "{\"prompt\":\"on\",\"max_tokens\":1,\"seed\":" + seed + "}")
        ->status();
  };
  for (const char* fits : {"0", "-1", "9223372036854775807", "-9223372036854775808", "16.0"})
    EXPECT_EQ(status(fits), 200) << fits;
  for (const char* not_one : {"9223372036854775808", "18446744073709551616", "-1e19", "1e19", "0.5"})
    EXPECT_EQ(status(not_one), 400) << not_one;
}

TEST_F(ServerTest, SaysWhatItDoesNotDo) {
  EXPECT_EQ(ask(server_, request_of("GET", "/nowhere"))->status(), 404);
  const auto wrong = ask(server_, request_of("GET", "/v1/completions"));
  EXPECT_EQ(wrong->status(), 405);
  EXPECT_EQ(wrong->response().headers.at(0).second, "POST");
  const auto embeddings = ask(server_, "/v1/embeddings", "{}");
  EXPECT_EQ(embeddings->status(), 501);
  EXPECT_NE(embeddings->body().find("not implemented"), std::string::npos);
  for (
      const auto& [more, param] : std::vector<std::pair<std::string, std::string>>{
          {R"("tools":[{"type":"web_search"}])", "tools[0].type"},
          {R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"string","pattern":"a"}}}],
               "tool_choice":"required")",
           ""},
          {R"("response_format":{"type":"xml"})", "response_format.type"},
          {R"("response_format":{"type":"json_schema","json_schema":{"schema":{"uniqueItems":true}}})",
           "response_format.json_schema.schema"}}) {
    const auto reply =
        ask(server_, "/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],)" + more + "}");
    EXPECT_EQ(reply->status(), 400) << more;
    EXPECT_NE(reply->body().find("\"code\":\"unsupported\""), std::string::npos) << reply->body();
    EXPECT_NE(reply->body().find("not supported"), std::string::npos) << reply->body();
    if (param.empty()) continue;
    EXPECT_NE(reply->body().find("\"param\":\"" + param + "\""), std::string::npos) << reply->body();
  }
}

// One field of a request that is fine is replaced by values of every kind; a value that the field may have is answered.
TEST_F(ServerTest, ANamedFieldIsWrongWhateverItsKind) {
  const std::vector<std::string> values = {"true",   "-1",           "3.5",        "1e300",      "\"x\"",
                                           "[]",     "{}",           "[[1]]",      "\"\"",       "-5e9",
                                           "[true]", "{\"a\":null}", "[\"x\",17]", "99999999999"};
  const std::vector<std::pair<std::string, std::vector<std::string>>> routes = {
      {"/v1/chat/completions",
       {"messages", "model", "temperature", "top_p", "n", "max_tokens", "stream", "stop", "seed",
        "logit_bias", "stream_options", "logprobs", "top_logprobs", "frequency_penalty", "response_format",
        "tools", "tool_choice", "parallel_tool_calls", "user"}},
      {"/v1/completions", {"prompt", "max_tokens", "logprobs", "echo", "top_k", "min_p", "repeat_penalty"}},
      {"/v1/messages",
       {"messages", "system", "max_tokens", "stop_sequences", "metadata", "thinking", "tools", "tool_choice",
        "output_format"}},
      {"/v1/responses",
       {"input", "instructions", "previous_response_id", "max_output_tokens", "store", "text", "tools",
        "tool_choice"}},
      {"/completion", {"prompt", "n_predict", "ignore_eos", "grammar", "json_schema", "n_probs", "id_slot"}}};
  int refused = 0;
  for (const auto& [path, fields] : routes)
    for (const std::string& field : fields)
      for (const std::string& value : values) {
        std::string body = "{\"" + field + "\":" + value;
        if (field != "messages") body += R"(,"messages":[{"role":"user","content":"on"}])";
        if (field != "prompt") body += R"(,"prompt":"on")";
        if (field != "input") body += R"(,"input":"on")";
        if (field != "max_tokens") body += R"(,"max_tokens":1)";
        if (field != "n_predict") body += R"(,"n_predict":1)";
        const auto reply = ask(server_, path, body + "}");
        ASSERT_EQ(reply->ends(), 1) << body;
        ASSERT_LT(reply->status(), 500) << path << " " << body << " " << reply->body();
        if (reply->status() == 200) continue;
        ++refused;
        EXPECT_NE(reply->body().find(field), std::string::npos) << body << " " << reply->body();
      }
  EXPECT_GE(refused, 300);
}

TEST_F(ServerTest, BytesOfAnyKindAreAnAnswerOf4xx) {
  testing::Rng rng(3);
  const std::string fine =
      R"({"messages":[{"role":"user","content":"on"}],"max_tokens":1,"temperature":0.5})";
  int refused = 0;  // with those of the test above more than 2,000
  for (int i = 0; refused < 1700; ++i) {
    ASSERT_LT(i, 20'000);
    std::string body = fine;
    for (std::size_t edits = 1 + rng.below(3); edits > 0; --edits) {
      const std::size_t place = rng.below(body.size());
      switch (rng.below(4)) {
        case 0:
          body[place] = static_cast<char>(rng.below(256));
          break;
        case 1:
          body.erase(place, 1 + rng.below(5));
          break;
        case 2:
          body.insert(place, 1, "{}[]\",:0\\\n"[rng.below(10)]);
          break;
        default:
          body.resize(place);
      }
      if (body.empty()) body = "0";
    }
    const auto reply = ask(server_, i % 2 == 0 ? "/v1/chat/completions" : "/v1/messages", body);
    ASSERT_EQ(reply->ends(), 1) << body;
    ASSERT_LT(reply->status(), 500) << body << " " << reply->body();
    EXPECT_NO_THROW(json_of(*reply)) << reply->body();
    refused += reply->status() == 200 ? 0 : 1;
  }
  for (const char* target : {"", "//", "?", "/v1/models/", "/v1/models/%00", "/..", "/v1/../health", "*"}) {
    const int status = ask(server_, request_of("GET", target))->status();
    EXPECT_TRUE(status == 404 || status == 405) << target << " " << status;
  }
  EXPECT_EQ(ask(server_, "/v1/completions", std::string(200, '['))->status(), 400);
}

}  // namespace
}  // namespace kvtide
