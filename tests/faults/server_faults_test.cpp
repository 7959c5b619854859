// Every allocation fails once while a request is answered beside another: each gets its answer or one clear error, at most
// one of them the latter; made again the request is answered, and nothing is left behind.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "kvtide/error.h"
#include "tests/faults/every_allocation.h"
#include "tests/formats/temporary_folder.h"
#include "tests/serve/asking.h"

namespace kvtide::testing {
namespace {

// The strings of these members, whole or in pieces, and what was counted; ids and times are left out.
std::string said(const std::string& body) {
  std::string out;
  for (const std::string key : {"\"text\":\"", "\"content\":\"", "\"delta\":\"", "\"partial_json\":\""}) {
    out += key;
    for (std::size_t at = 0; (at = body.find(key, at)) != std::string::npos;) {
      at += key.size();
      while (at < body.size() && body[at] != '"') {
        if (body[at] == '\\') out += body[at++];
        out += body[at++];
      }
    }
  }
  return out;
}

class ServerFaults : public ::testing::Test {
 protected:
  void make() {
    serve::ServiceOptions options = small_service();
    options.states_folder = folder_.path("");
    server_.emplace(std::vector<serve::ServedModel>{{"sample", &model_}}, options);
    const auto first =
        ask(*server_, "/v1/responses", R"({"input":"the sea","max_output_tokens":4,"temperature":0})");
    response_ = *json_of(*first).find("id")->text();
    const JsonValue list = json_of(*fetch(*server_, "/states"));
    state_ = "/states/" + std::to_string(*list.find("data")->list()->at(0).find("id")->integer());
    other_ = std::make_shared<HeardReply>();
    server_->handle(
        request_of("POST", "/v1/completions",
                   R"({"prompt":"a land in the end","max_tokens":20,"temperature":0,"stream":true})"),
        other_);
    for (int i = 0; i < 5; ++i) server_->scheduler().step();
    reply_ = std::make_shared<HeardReply>();
    was_other_ = false;
  }
  static bool failed(const HeardReply& reply) {
    return reply.status() == 503 || reply.body().find("\"error\":{") != std::string::npos ||
           reply.body().find("event: error\n") != std::string::npos;
  }
  [[noreturn]] static void wrong(const std::string& what) { throw Error(ErrorCode::numeric, what); }
  void run(const serve::Request& request) {
    const bool both = !std::exchange(was_other_, true);
    if (!both) reply_ = std::make_shared<HeardReply>();  // it is made again, and nothing fails any more
    server_->handle(request, reply_);
    while (!(reply_->complete() && other_->complete()) && server_->scheduler().step()) {
    }
    if (reply_->ends() != 1) wrong("the request has " + std::to_string(reply_->ends()) + " answers");
    if (other_->ends() != 1) wrong("the other has " + std::to_string(other_->ends()) + " answers");
    if (both && failed(*other_)) {
      if (failed(*reply_)) wrong("both failed: " + reply_->body() + other_->body());
      throw Error(ErrorCode::out_of_memory, "the other's");
    }
    if (failed(*reply_)) throw Error(ErrorCode::out_of_memory, "its own");
    if (reply_->status() != 200) wrong(reply_->body());
  }
  std::string end() {
    const serve::Counts counts = server_->scheduler().counts();
    EXPECT_LE(counts.kv_bytes, counts.kv_budget);
    if (!failed(*other_)) {
      const std::string told = said(other_->body());
      if (other_text_.empty()) other_text_ = told;
      EXPECT_EQ(told, other_text_);
    }
    return said(reply_->body()) + ", running " + std::to_string(counts.running) + ", waiting " +
           std::to_string(counts.waiting);
  }
  // body: with what make() left in the place of RESPONSE and STATE.
  void suffer(const std::string& name, const std::string& method, const std::string& target,
              const std::string& body) {
    const auto filled = [this](std::string text) {
      for (const auto& [word, value] :
           {std::pair<std::string, std::string>("RESPONSE", response_), {"STATE", state_}})
        if (const std::size_t at = text.find(word); at != text.npos) text.replace(at, word.size(), value);
      return text;
    };
    std::optional<serve::Request> request;
    Trial trial;
    trial.name = name;
    trial.once_only = true;
    trial.make = [&] {
      make();
      request = request_of(method, filled(target), filled(body));
    };
    trial.run = [&] { run(*request); };
    trial.end = [&] { return end(); };
    trial.destroy = [&] {
      request.reset();
      reply_.reset();
      other_.reset();
      server_.reset();
    };
    fail_every_allocation(trial);
  }

  const TemporaryFolder folder_;
  const TemporaryFile file_ = chat_model_file();
  const Model model_{file_.path()};
  std::optional<serve::Server> server_;
  std::string response_ = {}, state_ = {}, other_text_ = {};
  std::shared_ptr<HeardReply> reply_ = {}, other_ = {};
  bool was_other_ = false;
};

constexpr const char* kAsk =
    R"("messages":[{"role":"user","content":"the end of the land"}],"max_tokens":6,"temperature":0)";

TEST_F(ServerFaults, Chats) {
  suffer("chat", "POST", "/v1/chat/completions",
         std::string("{") + kAsk + R"(,"logprobs":true,"top_logprobs":2})");
  suffer("chat in pieces", "POST", "/v1/chat/completions", std::string("{") + kAsk + R"(,"stream":true})");
  suffer("messages in pieces", "POST", "/v1/messages", std::string("{") + kAsk + R"(,"stream":true})");
}

TEST_F(ServerFaults, Completions) {
  suffer("completion", "POST", "/v1/completions",
         R"({"prompt":"in the sea","max_tokens":6,"temperature":0,"n":2})");
  suffer("completion of llama.cpp", "POST", "/completion",
         R"({"prompt":"in the sea","n_predict":6,"temperature":0,"json_schema":{"type":"boolean"}})");
  suffer(
      "completion of a procedural memory", "POST", "/v1/completions",
      R"({"prompt":"in the sea","max_tokens":6,"temperature":0,"kv":{"kind":"procedural","budget":"2M","drift":2}})");
}

TEST_F(ServerFaults, Responses) {
  suffer("response that goes on", "POST", "/v1/responses",
         R"({"input":"the end","previous_response_id":"RESPONSE","max_output_tokens":6,"temperature":0})");
  suffer("response in pieces", "POST", "/v1/responses",
         R"({"input":"the end","stream":true,"max_output_tokens":6,"temperature":0})");
  suffer("stored response", "GET", "/v1/responses/RESPONSE", "");
}

TEST_F(ServerFaults, States) {
  suffer("fork", "POST", "STATE/fork", "");
  suffer("truncate", "POST", "STATE/truncate", R"({"length":3})");
  suffer("attention", "POST", "STATE/attention", R"({"size":4})");
  suffer("save", "POST", "STATE/save", R"({"filename":"one"})");
  suffer("load", "POST", "/states", R"({"filename":"one"})");
  suffer("save a segment", "POST", "STATE/save", R"({"filename":"two","behind":[]})");
  suffer("save another", "POST", "STATE/save", R"({"filename":"three","behind":["two"],"source":"2"})");
  suffer("load segments", "POST", "/states", R"({"filename":"three","behind":["two"]})");
  suffer("list", "GET", "/states", "");
  suffer("look", "GET", "STATE", "");
  suffer("memory", "GET", "/memory", "");
  suffer("metrics", "GET", "/metrics", "");
}

}  // namespace
}  // namespace kvtide::testing
