// serve_request.h: what the user asks of `kvtide serve`. A plain value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvtide {

struct Arguments;

struct ServeRequest {
  std::vector<std::string> names;  // of every -m, what requests call it
  std::string host = "127.0.0.1";
  std::int64_t port = 8080;  // 0: one that is free
  std::int64_t kv_budget = std::int64_t{2} << 30;
  std::int64_t parallel = 8, queue = 64, max_tokens = 2048;
  std::string api_key;
  std::string states_folder, cache_folder;
  std::int64_t cache_bytes = std::int64_t{4} << 30;
  double idle_spill = 0, idle_unload = 0;  // seconds; 0: never
  std::string session_kv = "full";
  bool no_auth = false, quiet = false;
};

// Takes the names from -m NAME=MODEL; a model without one is called by its file or its own name.
void name_served_models(Arguments& arguments);

}  // namespace kvtide
