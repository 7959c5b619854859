// server.h: the routes of `kvtide serve` inside a program of yours, with no socket in sight: requests in, answers out.
//
//   serve::RequestServer server({{"smollm2", model}}, {.kv_budget = std::int64_t{2} << 30});
//   server.handle(request, reply);   // answers at once, or later from a thread of the server
//
// Ownership: a server holds its models. Replies are held until they were answered.
// Errors: invalid_argument, out_of_memory, when it is made. Whatever is wrong with a request is an answer of 4xx.
// Thread rules: Request and Response are plain values. handle() from any thread. A Reply is called from the thread that
// handles the request and from the server's, one call at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvtide/model.h"

namespace kvtide::serve {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method;  // "GET", in capitals
  std::string target;  // "/slots/0?action=save"
  Headers headers;     // names in small letters
  std::string body;

  std::string_view path() const;                                 // without what follows the question mark
  std::string query(std::string_view name) const;                // percent-decoded; empty: absent
  const std::string* header(std::string_view small_name) const;  // nullptr: absent
};

struct Response {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  Headers headers = {};  // beside Content-Type and Content-Length
};

// Exactly one of the two: send(), or open() followed by write() any number of times and close().
class Reply {
 public:
  virtual ~Reply() = default;
  virtual void send(Response response) = 0;
  // Begins an answer in pieces, status 200.
  virtual void open(std::string type) = 0;
  virtual void write(std::string piece) = 0;
  virtual void close() = 0;
  // The client has left: nothing that is written will be read.
  virtual bool gone() const = 0;
  // Bytes that the client has not taken yet.
  virtual std::size_t waiting() const = 0;
};

struct RequestServerOptions {
  std::int64_t kv_budget = std::int64_t{2} << 30;  // bytes for all sessions and prefixes
  std::int64_t context = 0;                        // tokens of a session; 0: what the model was trained for
  std::int64_t max_tokens = 2048;                  // of an answer whose request does not say
  int parallel = 8, queue = 64;                    // answers at once, and requests that wait
  int threads = 0;                                 // 0: all
  bool exact = false;
  std::string session_kv =
      "full";           // the memory of requests that do not say: "full", "rolling=1024", "procedural=64M"
  std::string api_key;  // empty: none is asked for
  std::vector<std::string> hosts;  // that the Host header may name, beside loopback's
  bool any_host = false;
  std::string chat_template;  // a name; empty: the models' own
  std::string states_folder;  // of snapshots; empty: none are written
  std::string cache_folder;   // of prefixes and stored answers that outlive the process; empty: none
  std::int64_t cache_bytes = std::int64_t{4} << 30;
  double idle_spill = 0;   // seconds until unused prefixes leave the memory for the disk; 0: they stay
  double idle_unload = 0;  // seconds until weights of unused models leave it for their files; 0: they stay
  std::string version;     // that /props tells
};

class Server;

class RequestServer {
 public:
  using NamedModel = std::pair<std::string, std::shared_ptr<const Model>>;

  RequestServer(std::vector<NamedModel> models, const RequestServerOptions& options);
  ~RequestServer();  // as stop(0)
  RequestServer(const RequestServer&) = delete;
  RequestServer& operator=(const RequestServer&) = delete;

  void handle(const Request& request, const std::shared_ptr<Reply>& reply);
  // Nothing new begins; answers may go on for so many seconds, then they are cancelled. Nothing is handled after it.
  void stop(double drain_seconds);

 private:
  std::vector<NamedModel> models_;
  std::unique_ptr<Server> server_;
};

}  // namespace kvtide::serve
