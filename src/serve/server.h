// server.h: requests in, answers out: every route of `kvtide serve`, with no socket in sight.
//
//   Server server({{"smollm2", &model}}, options);
//   server.start();
//   server.handle(request, reply);   // at once, or later from the scheduler's thread
//
// Ownership: refers to the models, which must outlive it. Thread rules: handle from any thread; start once.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "serve/routes/service.h"

namespace kvtide::serve {

class Server {
 public:
  // Throws Error: invalid_argument, out_of_memory.
  Server(std::vector<ServedModel> models, ServiceOptions options)
      : service_(std::move(models), std::move(options)) {}

  // Answers every request, whatever it holds: what is wrong with it is a status of 4xx.
  void handle(const Request& request, const std::shared_ptr<Reply>& reply);

  // What is answered; a path that ends with * stands for all that begin so.
  struct RouteName {
    std::string_view method, path;
  };
  static std::vector<RouteName> routes();

  Scheduler& scheduler() { return service_.scheduler(); }
  void start() { service_.start(); }
  // Every request has been answered, or given up, when it returns, and prefixes are saved as far as there was time.
  void stop(double saving_seconds = 0) { service_.stop(saving_seconds); }
  // Answers end, nothing new begins. False: some did not within so many seconds and were cancelled.
  bool drain(double seconds) { return service_.scheduler().drain(seconds); }

 private:
  Service service_;
};

}  // namespace kvtide::serve
