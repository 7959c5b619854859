// asking.h: requests to a server without sockets, and what was heard of it.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/json/json_value.h"
#include "kvtide/chat.h"
#include "kvtide/model.h"
#include "serve/server.h"
#include "tests/model/sample_model.h"

namespace kvtide::testing {

class HeardReply final : public serve::Reply {
 public:
  void send(serve::Response response) override {
    response_ = std::move(response);
    ++ends_;
  }
  void open(std::string type) override {
    response_.type = std::move(type);
    opened_ = true;
  }
  void write(std::string piece) override { response_.body += piece; }
  void close() override { ++ends_; }
  bool gone() const override { return gone_; }
  std::size_t waiting() const override { return waiting_; }

  void leave() { gone_ = true; }
  void read_nothing() { waiting_ = std::size_t{1} << 30; }
  void read_again() { waiting_ = 0; }
  bool complete() const { return ends_ == 1; }
  int ends() const { return ends_; }
  bool opened() const { return opened_; }
  const serve::Response& response() const { return response_; }
  int status() const { return response_.status; }
  const std::string& body() const { return response_.body; }

 private:
  serve::Response response_;
  int ends_ = 0;
  bool opened_ = false, gone_ = false;
  std::size_t waiting_ = 0;
};

// For a server with threads: wait() gives the body when the answer is whole.
class WaitedReply final : public serve::Reply {
 public:
  void send(serve::Response response) override { end(std::move(response.body)); }
  void open(std::string) override {}
  void write(std::string piece) override {
    const std::lock_guard lock(mutex_);
    body_ += piece;
  }
  void close() override { end(""); }
  bool gone() const override { return false; }
  std::size_t waiting() const override { return 0; }

  std::string wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_; });
    return body_;
  }

 private:
  void end(const std::string& more) {
    const std::lock_guard lock(mutex_);
    body_ += more;
    ended_ = true;
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string body_;
  bool ended_ = false;
};

inline SampleModel small_sample() {
  SampleModel out;
  out.types = {DType::q8_0, DType::q4_1};
  out.context = 512;
  return out;
}

inline SampleModel sample_with_windows() {
  SampleModel out = small_sample();
  out.architecture = "gemma3";
  out.layers = 6;
  out.window = 24;
  return out;
}

inline TemporaryFile chat_model_file(const SampleModel& sample = small_sample()) {
  ModelSketch sketch = sample_model(sample);
  sketch.set("tokenizer.chat_template", std::string(ChatTemplate::named("chatml").source()));
  return TemporaryFile("chat.gguf", sketch.build().bytes);
}

inline serve::ServiceOptions small_service() {
  serve::ServiceOptions out;
  out.work.threads = 1;
  out.work.kv_budget = std::int64_t{64} << 20;
  out.work.max_tokens = 8;
  out.work.step = 32;
  out.work.step_beside = 8;
  out.work.beside_ms = 0;
  out.version = "test";
  return out;
}

inline serve::Request request_of(std::string method, std::string target, std::string body = "") {
  return {std::move(method), std::move(target), {{"host", "localhost:8080"}}, std::move(body)};
}

// Handles the request and steps until it is answered.
inline std::shared_ptr<HeardReply> ask(serve::Server& server, const serve::Request& request) {
  auto reply = std::make_shared<HeardReply>();
  server.handle(request, reply);
  while (!reply->complete() && server.scheduler().step()) {
  }
  return reply;
}
inline std::shared_ptr<HeardReply> ask(serve::Server& server, const std::string& target,
                                       const std::string& body) {
  return ask(server, request_of("POST", target, body));
}

inline std::shared_ptr<HeardReply> fetch(serve::Server& server, const std::string& target) {
  return ask(server, request_of("GET", target));
}

inline JsonValue json_of(const HeardReply& reply) { return JsonValue::parse(reply.body(), "the answer"); }

}  // namespace kvtide::testing
