// serve.h: kvtide serve's request handling as Python holds it: requests in, answers out, no socket.
#pragma once

#include <nanobind/nanobind.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kvtide/server.h"
#include "model.h"

namespace kvtide::python {

// (kind, status, headers, bytes), the kind one of "head", "body", "end".
using Events =
    nanobind::typed<nanobind::list, nanobind::typed<nanobind::tuple, nanobind::any, nanobind::ellipsis>>;

// What an answer says, piece by piece, and a file descriptor that can be read while there is something to take. Made by the
// caller of handle(), filled from the server's threads, taken by Python under the GIL.
class Answer final : public serve::Reply {
 public:
  Answer();
  ~Answer() override;

  void send(serve::Response response) override;
  void open(std::string type) override;
  void write(std::string piece) override;
  void close() override;
  bool gone() const override { return gone_; }
  std::size_t waiting() const override { return waiting_; }

  int descriptor() const { return pipe_[0]; }
  // As far as they have come.
  Events take();
  void sent(std::size_t bytes) { waiting_ -= bytes; }  // of what was taken, to the client
  void leave() { gone_ = true; }

 private:
  struct Event {
    enum class Kind { head, body, end } kind;
    int status = 0;
    serve::Headers headers = {};
    std::string body = {};
  };
  void tell(std::vector<Event> events);

  std::mutex mutex_;
  std::vector<Event> events_;  // under mutex_
  std::atomic<bool> gone_{false};
  std::atomic<std::size_t> waiting_{0};
  int pipe_[2] = {-1, -1};
};

// What Python holds of an answer; the server may hold it longer.
class PyReply {
 public:
  Answer& operator*() const { return *answer_; }
  const std::shared_ptr<Answer>& shared() const { return answer_; }

 private:
  std::shared_ptr<Answer> answer_ = std::make_shared<Answer>();
};

class PyServer {
 public:
  PyServer(std::vector<serve::RequestServer::NamedModel> models, const serve::RequestServerOptions& options);
  ~PyServer();

  // Without the GIL; the reply's descriptor tells when there is something to take.
  void handle(const serve::Request& request, const PyReply& reply);
  void close(double drain_seconds);  // answers may go on for so long
  bool is_closed() const { return server_ == nullptr; }

 private:
  std::shared_ptr<serve::RequestServer> server_;
  pid_t process_;  // a forked child has none of its threads
};

void bind_serve(nanobind::module_& module);

}  // namespace kvtide::python
