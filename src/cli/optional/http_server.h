// http_server.h: sockets for a serve::Server: the one file that knows Boost (http_server.cpp).
//
// One thread reads and writes for all connections; answers come from the scheduler's. Connections are kept alive.
// A client that leaves, or reads nothing, holds no other up.
// Ownership: refers to the server, which must outlive it. Thread rules: run() by one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "serve/server.h"

namespace kvtide {

struct HttpOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8080;           // 0: one that is free
  std::size_t most_header = 16 << 10;  // bytes
  std::size_t most_body = 16 << 20;    // bytes
  int most_connections = 256;
  int read_seconds = 30;   // for a request to arrive once it has begun, and between requests of a connection
  int write_seconds = 60;  // for a client to take what was written
  int drain_seconds = 6;   // after SIGTERM; up to two more until all is cancelled and sent
};

class HttpServer {
 public:
  // Listens. Throws Error(io): the address is taken, or is none; the message names it.
  HttpServer(serve::Server& server, const HttpOptions& options);
  ~HttpServer();

  std::uint16_t port() const;
  // Serves until SIGTERM or SIGINT, then lets answers end. log: a line for every request, without what it says. Returns
  // false when answers had to be cancelled.
  bool run(const std::function<void(const std::string&)>& log);
  // Since the signal that ended it; 0: none has come.
  double ending_seconds() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvtide
