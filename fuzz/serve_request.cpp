// serve_request.cpp: libFuzzer target for requests to the server: a route, then a body of any bytes.
//
// Every request is answered exactly once, never by a status of 5xx other than the 501 of what is not there, and by JSON.
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>

#include "fuzz/fuzzing.h"
#include "tests/serve/asking.h"

using kvtide::fuzzing::require;

namespace {

using kvtide::testing::HeardReply;

struct World {
  kvtide::testing::TemporaryFile file = kvtide::testing::chat_model_file();
  kvtide::Model model{file.path()};
  kvtide::serve::Server server{{{"tiny", &model}}, options()};

  static kvtide::serve::ServiceOptions options() {
    kvtide::serve::ServiceOptions out = kvtide::testing::small_service();
    out.work.context = 64;
    return out;
  }
};

constexpr std::string_view kPaths[] = {
    "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/messages/count_tokens",
    "/completion",          "/tokenize",       "/detokenize",  "/apply-template",
    "/v1/embeddings"};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static World world;
  if (size == 0) return 0;
  const std::size_t path = data[0] % (std::size(kPaths) + 1);
  const std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
  const bool any = path == std::size(kPaths);
  const auto reply = kvtide::testing::ask(
      world.server, kvtide::testing::request_of(any ? "GET" : "POST", any ? text : std::string(kPaths[path]),
                                                any ? "" : text));
  require(reply->ends() == 1);
  require(reply->status() < 500 || reply->status() == 501);
  if (reply->response().type == "application/json") kvtide::testing::json_of(*reply);
  return 0;
}
