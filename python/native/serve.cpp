#include "serve.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "arguments.h"
#include "kvtide/error.h"
#include "misuse.h"
#include "running.h"

namespace nb = nanobind;

namespace kvtide::python {

Answer::Answer() {
  if (::pipe(pipe_) != 0)
    throw Error(ErrorCode::io, std::string("no pipe for an answer: ") + std::strerror(errno));
  for (const int end : pipe_) {
    ::fcntl(end, F_SETFD, FD_CLOEXEC);
    ::fcntl(end, F_SETFL, O_NONBLOCK);
  }
}

Answer::~Answer() {
  for (const int end : pipe_) ::close(end);
}

void Answer::tell(std::vector<Event> events) {
  const std::lock_guard lock(mutex_);
  const bool wake = events_.empty();
  for (Event& event : events) {
    waiting_ += event.body.size();
    events_.push_back(std::move(event));
  }
  const char byte = 0;
  if (wake) static_cast<void>(::write(pipe_[1], &byte, 1) == 1);  // a full pipe wakes, too
}

void Answer::send(serve::Response response) {
  serve::Headers headers = std::move(response.headers);
  headers.emplace_back("Content-Type", std::move(response.type));
  headers.emplace_back("Content-Length", std::to_string(response.body.size()));
  tell({{Event::Kind::head, response.status, std::move(headers), {}},
        {Event::Kind::body, 0, {}, std::move(response.body)},
        {Event::Kind::end}});
}

void Answer::open(std::string type) {
  tell({{Event::Kind::head, 200, {{"Content-Type", std::move(type)}, {"Cache-Control", "no-cache"}}, {}}});
}

void Answer::write(std::string piece) { tell({{Event::Kind::body, 0, {}, std::move(piece)}}); }

void Answer::close() { tell({{Event::Kind::end}}); }

Events Answer::take() {
  std::vector<Event> events;
  {
    const std::lock_guard lock(mutex_);
    char byte = 0;
    while (::read(pipe_[0], &byte, 1) == 1) {
    }
    events.swap(events_);
  }
  const auto text = [](const std::string& of) { return nb::bytes(of.data(), of.size()); };
  Events out;
  for (const Event& event : events) {
    if (event.kind == Event::Kind::end) {
      out.append(nb::make_tuple("end", 0, nb::list(), text("")));
    } else if (event.kind == Event::Kind::body) {
      out.append(nb::make_tuple("body", 0, nb::list(), text(event.body)));
    } else {
      nb::list headers;
      for (const auto& [name, value] : event.headers) headers.append(nb::make_tuple(text(name), text(value)));
      out.append(nb::make_tuple("head", event.status, headers, text("")));
    }
  }
  return out;
}

PyServer::PyServer(std::vector<serve::RequestServer::NamedModel> models,
                   const serve::RequestServerOptions& options)
    : process_(::getpid()) {
  const Running running;
  const WithoutGil others_run;
  server_ = std::make_shared<serve::RequestServer>(std::move(models), options);
}

PyServer::~PyServer() {
  if (!server_) return;
  if (process_ == ::getpid()) {
    close(0);
    return;
  }
  // Its threads stayed in the parent, and what they were changing can be neither used nor destroyed.
  static_cast<void>(new std::shared_ptr<serve::RequestServer>(std::move(server_)));
}

void PyServer::handle(const serve::Request& request, const PyReply& reply) {
  const std::shared_ptr<serve::RequestServer> server = server_;
  if (!server) throw Misuse("closed", "this app was closed");
  if (process_ != ::getpid())
    throw Misuse("closed", "this app was made before the process forked; make one in the child");
  const std::shared_ptr<Answer> answer = reply.shared();
  const Running running;
  const WithoutGil others_run;
  server->handle(request, answer);
}

void PyServer::close(double drain_seconds) {
  std::shared_ptr<serve::RequestServer> server = std::move(server_);
  if (!server || process_ != ::getpid()) return;
  const WithoutGil others_run;
  server->stop(drain_seconds);
  server.reset();
}

namespace {

using Headers = nb::typed<nb::list, nb::typed<nb::tuple, nb::bytes, nb::bytes>>;

serve::RequestServerOptions options_of(std::int64_t kv_budget, std::int64_t context, std::int64_t max_tokens,
                                       int parallel, int queue, int threads, bool exact,
                                       const nb::str& session_kv, const nb::str& api_key,
                                       const Sequence<nb::str>& hosts, bool any_host,
                                       const nb::str& chat_template, const nb::bytes& states_folder,
                                       const nb::bytes& cache_folder, std::int64_t cache_bytes,
                                       double idle_spill, double idle_unload) {
  serve::RequestServerOptions out;
  out.kv_budget = kv_budget;
  out.context = context;
  out.max_tokens = max_tokens;
  out.parallel = parallel;
  out.queue = queue;
  out.threads = threads;
  out.exact = exact;
  out.session_kv = text_of(session_kv);
  out.api_key = text_of(api_key);
  out.hosts = texts_of(hosts, "hosts");
  out.any_host = any_host;
  out.chat_template = text_of(chat_template);
  out.states_folder = text_of(states_folder);
  out.cache_folder = text_of(cache_folder);
  out.cache_bytes = cache_bytes;
  out.idle_spill = idle_spill;
  out.idle_unload = idle_unload;
  out.version = KVTIDE_VERSION;
  return out;
}

serve::Request request_of(const nb::str& method, const nb::bytes& target, const Headers& headers,
                          const nb::bytes& body) {
  serve::Request out{text_of(method), text_of(target), {}, text_of(body)};
  for (const nb::handle header : headers) {
    const auto pair = nb::cast<nb::tuple>(header);
    out.headers.emplace_back(text_of(nb::cast<nb::bytes>(pair[0])), text_of(nb::cast<nb::bytes>(pair[1])));
  }
  return out;
}

}  // namespace

void bind_serve(nb::module_& module) {
  nb::class_<PyReply>(module, "Reply", "An answer that comes in pieces; kvtide.serve sends them.")
      .def(nb::init<>())
      .def("descriptor", [](const PyReply& self) { return (*self).descriptor(); })
      .def("take", [](const PyReply& self) { return (*self).take(); })
      .def(
          "sent", [](const PyReply& self, std::size_t bytes) { (*self).sent(bytes); }, nb::arg("bytes"))
      .def("leave", [](const PyReply& self) { (*self).leave(); });
  nb::class_<PyServer>(module, "Server", "Answers requests; kvtide.serve.App wraps it.")
      .def(
          "__init__",
          [](PyServer* self, const Sequence<nb::str>& names, const Sequence<PyModel>& models,
             std::int64_t kv_budget, std::int64_t context, std::int64_t max_tokens, int parallel, int queue,
             int threads, bool exact, const nb::str& session_kv, const nb::str& api_key,
             const Sequence<nb::str>& hosts, bool any_host, const nb::str& chat_template,
             const nb::bytes& states_folder, const nb::bytes& cache_folder, std::int64_t cache_bytes,
             double idle_spill, double idle_unload) {
            std::vector<serve::RequestServer::NamedModel> served;
            const std::vector<std::string> called = texts_of(names, "names");
            std::size_t next = 0;
            for (const nb::handle model : models)
              served.emplace_back(called.at(next++), nb::cast<PyModel&>(model).open());
            new (self) PyServer(std::move(served),
                                options_of(kv_budget, context, max_tokens, parallel, queue, threads, exact,
                                           session_kv, api_key, hosts, any_host, chat_template, states_folder,
                                           cache_folder, cache_bytes, idle_spill, idle_unload));
          },
          nb::arg("names"), nb::arg("models"), nb::kw_only(), nb::arg("kv_budget"), nb::arg("context"),
          nb::arg("max_tokens"), nb::arg("parallel"), nb::arg("queue"), nb::arg("threads"), nb::arg("exact"),
          nb::arg("session_kv"), nb::arg("api_key"), nb::arg("hosts"), nb::arg("any_host"),
          nb::arg("chat_template"), nb::arg("states_folder"), nb::arg("cache_folder"), nb::arg("cache_bytes"),
          nb::arg("idle_spill"), nb::arg("idle_unload"))
      .def(
          "handle",
          [](PyServer& self, const nb::str& method, const nb::bytes& target, const Headers& headers,
             const nb::bytes& body,
             const PyReply& reply) { self.handle(request_of(method, target, headers, body), reply); },
          nb::arg("method"), nb::arg("target"), nb::arg("headers"), nb::arg("body"), nb::arg("reply"))
      .def("close", &PyServer::close, nb::arg("drain_seconds"))
      .def_prop_ro("closed", &PyServer::is_closed);
}

}  // namespace kvtide::python
