#include "cli/optional/http_server.h"

#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cctype>
#include <chrono>
#include <csignal>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "base/stopwatch.h"
#include "base/text.h"
#include "kvtide/error.h"
#include "serve/http/problem.h"

namespace kvtide {
namespace http_server {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Tcp = net::ip::tcp;
using ErrorInfo = boost::system::error_code;

class Connection;
using Connections = std::list<std::shared_ptr<Connection>>;

// What connections share; used by the thread that serves, but for what is returned.
struct Shared {
  serve::Server& server;
  HttpOptions options;
  std::function<void(const std::string&)> log;
  std::set<Connection*> open;
  bool stopping = false;
  std::mutex mutex{};
  Connections returned{};

  // A connection ends on the thread that serves. Those who held one on another thread give it back: without memory, so always.
  void give_back(Connections& held) {
    const std::lock_guard lock(mutex);
    returned.splice(returned.end(), held);
  }
  void release_returned() {
    Connections taken;  // ends behind the lock
    const std::lock_guard lock(mutex);
    taken.swap(returned);
  }
};

std::string status_line(int status, int version) {
  const auto reason = http::obsolete_reason(http::int_to_status(static_cast<unsigned>(status)));
  return cat("HTTP/1.", version % 10, " ", status, " ", std::string(reason.data(), reason.size()), "\r\n");
}

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Tcp::socket socket, Shared& shared) : stream_(std::move(socket)), shared_(shared) {
    shared_.open.insert(this);
  }
  ~Connection() { shared_.open.erase(this); }

  void start() {
    ErrorInfo ignored;
    stream_.socket().set_option(Tcp::no_delay(true), ignored);
    stream_.socket().non_blocking(true, ignored);
    read_next();
  }
  // Nothing more is read: an answer on its way goes out first.
  void finish() {
    keep_alive_ = false;
    if (!answering_) close();
  }
  bool answers() const { return answering_; }

  // Does the work. When memory ends in it the client hears so, or at least that nothing more comes.
  template <class Work>
  void guard(Work&& work) {
    try {
      work();
    } catch (const std::bad_alloc&) {
      fail();
    }
  }

  // From any thread.
  bool gone() const { return gone_; }
  std::size_t waiting() const { return waiting_; }
  net::any_io_executor executor() { return stream_.get_executor(); }
  void note_waiting(std::size_t bytes) { waiting_ += bytes; }
  void note_taken(std::size_t bytes) { waiting_ -= bytes; }

  // On the thread that serves.
  void send(serve::Response response) {
    status_ = response.status;
    keep_alive_ = keep_alive_ && response.status != 413;
    std::string head = status_line(response.status, version_);
    head += cat("Content-Type: ", response.type, "\r\nContent-Length: ", response.body.size(), "\r\n");
    for (const auto& [name, value] : response.headers) head += cat(name, ": ", value, "\r\n");
    put(head + connection_words() + "\r\n" + (head_only_ ? "" : response.body));
    last();
  }
  void open(const std::string& type) {
    status_ = 200;
    chunked_ = version_ == 11;
    keep_alive_ = keep_alive_ && chunked_;
    put(cat(status_line(200, version_), "Content-Type: ", type, "\r\nCache-Control: no-cache\r\n",
            chunked_ ? "Transfer-Encoding: chunked\r\n" : "", connection_words(), "\r\n"));
  }
  void write(const std::string& piece) {
    if (!chunked_) return put(piece);
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string size;
    for (std::size_t n = piece.size(); n > 0; n /= 16) size.insert(size.begin(), kDigits[n % 16]);
    put(cat(size, "\r\n", piece, "\r\n"));
  }
  void end() {
    if (chunked_) put("0\r\n\r\n");
    last();
  }

 private:
  std::string connection_words() const { return keep_alive_ ? "" : "Connection: close\r\n"; }
  void read_next();
  void read_body();
  void handle();
  void refuse(int status, const std::string& why);
  void fail();
  void refuse_header(ErrorInfo error);
  void refuse_body() { refuse(413, cat("a request's body may have ", shared_.options.most_body, " bytes")); }
  void watch();
  void put(std::string bytes);
  void write_some();
  void last();
  void close();

  beast::tcp_stream stream_;
  Shared& shared_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::deque<std::string> unsent_;
  std::atomic<std::size_t> waiting_{0};
  std::atomic<bool> gone_{false};
  bool writing_ = false, ended_ = false, answering_ = false, begun_ = false, watching_ = false;
  bool keep_alive_ = true, chunked_ = false, head_only_ = false;
  int version_ = 11, status_ = 0;
  std::string what_;  // for the log: "POST /v1/completions"
  Stopwatch since_;
};

// An answer goes to the thread that serves, whatever thread it comes from.
class SocketReply final : public serve::Reply {
 public:
  SocketReply(std::shared_ptr<Connection> connection, Shared& shared)
      : held_{std::move(connection)}, connection_(*held_.front()), shared_(shared) {}
  ~SocketReply() override {
    const net::any_io_executor executor = connection_.executor();
    shared_.give_back(held_);
    try {
      net::post(executor, [&shared = shared_] { shared.release_returned(); });
    } catch (const std::bad_alloc&) {  // the next answer or connection does it
    }
  }
  SocketReply(const SocketReply&) = delete;
  SocketReply& operator=(const SocketReply&) = delete;

  void send(serve::Response response) override {
    later([response = std::move(response)](Connection& to) mutable { to.send(std::move(response)); }, 0);
  }
  void open(std::string type) override {
    later([type = std::move(type)](Connection& to) { to.open(type); }, 0);
  }
  void write(std::string piece) override {
    const std::size_t bytes = piece.size();
    later(
        [piece = std::move(piece), bytes](Connection& to) {
          to.note_taken(bytes);
          to.write(piece);
        },
        bytes);
  }
  void close() override {
    later([](Connection& to) { to.end(); }, 0);
  }
  bool gone() const override { return connection_.gone(); }
  std::size_t waiting() const override { return connection_.waiting(); }

 private:
  template <class Action>
  void later(Action action, std::size_t bytes) {
    auto guarded = [to = held_.front(), action = std::move(action)]() mutable {
      to->guard([&] { action(*to); });
    };
    connection_.note_waiting(bytes);
    try {
      net::post(connection_.executor(), std::move(guarded));
    } catch (const std::bad_alloc&) {
      connection_.note_taken(bytes);
      throw;
    }
  }
  Connections held_;  // the one
  Connection& connection_;
  Shared& shared_;
};

void Connection::read_next() {
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(shared_.options.most_header));
  parser_->body_limit(shared_.options.most_body);
  stream_.expires_after(std::chrono::seconds(shared_.options.read_seconds));
  http::async_read_header(stream_, buffer_, *parser_,
                          [self = shared_from_this()](ErrorInfo error, std::size_t) {
                            self->guard([&] { error ? self->refuse_header(error) : self->read_body(); });
                          });
}

void Connection::refuse_header(ErrorInfo error) {
  const bool parsed = error.category() == http::make_error_code(http::error::bad_value).category() &&
                      error != http::error::end_of_stream && error != http::error::partial_message;
  if (!parsed) return close();
  if (error == http::error::body_limit) return refuse_body();
  return error == http::error::header_limit || error == http::error::buffer_overflow
             ? refuse(431, "the request's header is too large")
             : refuse(400, cat("the request is not HTTP: ", error.message()));
}

void Connection::read_body() {
  since_ = Stopwatch();
  const auto read = [self = shared_from_this()](ErrorInfo error, std::size_t) {
    self->guard([&] {
      if (error == http::error::body_limit) return self->refuse_body();
      if (error == beast::error::timeout || error == http::error::partial_message) return self->close();
      if (error) return self->refuse(400, cat("the request is not HTTP: ", error.message()));
      self->handle();
    });
  };
  if (!beast::iequals(parser_->get()[http::field::expect], "100-continue"))
    return http::async_read(stream_, buffer_, *parser_, read);
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  net::async_write(
      stream_, net::buffer(kContinue.data(), kContinue.size()),
      [self = shared_from_this(), read](ErrorInfo error, std::size_t) {
        if (error) return self->close();
        self->guard([&] { http::async_read(self->stream_, self->buffer_, *self->parser_, read); });
      });
}

void Connection::handle() {
  auto message = parser_->release();
  serve::Request request;
  const auto text = [](auto view) { return std::string(view.data(), view.size()); };
  request.method = text(message.method_string());
  request.target = text(message.target());
  for (const auto& field : message) {
    std::string name = text(field.name_string());
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    request.headers.emplace_back(std::move(name), text(field.value()));
  }
  request.body = std::move(message.body());
  keep_alive_ = message.keep_alive() && !shared_.stopping;
  version_ = message.version() == 10 ? 10 : 11;
  head_only_ = request.method == "HEAD";
  chunked_ = ended_ = false;
  answering_ = true;
  what_ = cat(request.method, " ", quoted(request.path()));
  stream_.expires_never();
  watch();
  shared_.server.handle(request, std::make_shared<SocketReply>(shared_from_this(), shared_));
}

void Connection::refuse(int status, const std::string& why) {
  keep_alive_ = false;
  answering_ = true;
  what_ = "?";
  send(serve::problem_response({status, why}, serve::Dialect::openai));
}

// An answer that has begun is cut off: the client sees that its end is missing.
void Connection::fail() {
  try {
    if (!begun_) return refuse(503, "out of memory");
  } catch (const std::bad_alloc&) {
  }
  close();
}

// A socket that can be read but holds nothing was closed by the client.
void Connection::watch() {
  if (watching_) return;
  watching_ = true;
  stream_.socket().async_wait(Tcp::socket::wait_read, [self = shared_from_this()](ErrorInfo error) {
    self->watching_ = false;
    if (error || !self->answering_) return;
    char byte = 0;
    const ssize_t got = ::recv(self->stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK)) self->gone_ = true;
  });
}

void Connection::put(std::string bytes) {
  if (gone_) return;
  waiting_ += bytes.size();
  unsent_.push_back(std::move(bytes));
  begun_ = true;
  if (!writing_) write_some();
}

void Connection::write_some() {
  writing_ = true;
  stream_.expires_after(std::chrono::seconds(shared_.options.write_seconds));
  net::async_write(stream_, net::buffer(unsent_.front()),
                   [self = shared_from_this()](ErrorInfo error, std::size_t) {
                     self->stream_.expires_never();
                     self->waiting_ -= self->unsent_.front().size();
                     self->unsent_.pop_front();
                     self->writing_ = false;
                     if (error) {
                       self->gone_ = true;
                       self->unsent_.clear();
                       return self->close();
                     }
                     self->guard([&] {
                       if (!self->unsent_.empty()) return self->write_some();
                       if (self->ended_) self->last();
                     });
                   });
}

// Behind the last byte of an answer: the next request, or the end.
void Connection::last() {
  ended_ = true;
  if (writing_ || !answering_) return;
  answering_ = begun_ = false;
  shared_.log(
      cat(what_, " ", status_, " ", fixed(since_.ms(), 1), " ms", gone_ ? ", the client has left" : ""));
  if (gone_ || !keep_alive_ || shared_.stopping) return close();
  read_next();
}

void Connection::close() {
  gone_ = true;
  ErrorInfo ignored;
  stream_.socket().shutdown(Tcp::socket::shutdown_both, ignored);
  stream_.close();
}

}  // namespace http_server

struct HttpServer::Impl {
  Impl(serve::Server& server, const HttpOptions& options)
      : shared{server, options, [](const std::string&) {}, {}, false} {}
  ~Impl() { shared.release_returned(); }  // sockets end before io

  http_server::Shared shared;  // before io, which holds the last connections
  boost::asio::io_context io{1};
  boost::asio::ip::tcp::acceptor acceptor{io};
  boost::asio::signal_set signals{io};
  boost::asio::steady_timer pause{io};
  std::thread drainer;
  std::atomic<bool> ended{true};      // all answers
  std::optional<Stopwatch> ending{};  // since the signal

  bool accepting = false;

  void accept();
  void stop();
  void leave_when_sent(int looks);
};

void HttpServer::Impl::accept() {
  acceptor.async_accept([this](http_server::ErrorInfo error, http_server::Tcp::socket socket) {
    accepting = false;
    shared.release_returned();
    if (!acceptor.is_open()) return;
    // Out of file descriptors, for instance: a later one may be accepted.
    if (error) {
      pause.expires_after(std::chrono::milliseconds(50));
      pause.async_wait([this](http_server::ErrorInfo) { accept(); });
      accepting = true;
      return;
    }
    if (shared.open.size() < static_cast<std::size_t>(shared.options.most_connections))
      std::make_shared<http_server::Connection>(std::move(socket), shared)->start();
    accept();
  });
  accepting = true;
}

void HttpServer::Impl::stop() {
  if (shared.stopping) return shared.server.scheduler().cancel();  // the second time
  shared.stopping = true;
  ending.emplace();
  http_server::ErrorInfo ignored;
  acceptor.close(ignored);
  const std::set<http_server::Connection*> open = shared.open;
  for (http_server::Connection* connection : open) connection->finish();
  signals.async_wait([this](http_server::ErrorInfo error, int) {
    if (!error) stop();
  });
  drainer = std::thread([this] {
    ended = shared.server.drain(shared.options.drain_seconds);
    boost::asio::post(io, [this] { leave_when_sent(50); });
  });
}

// What was written last is still on its way to the clients; a second is enough for those that read.
void HttpServer::Impl::leave_when_sent(int looks) {
  const bool sent = std::none_of(shared.open.begin(), shared.open.end(),
                                 [](const http_server::Connection* c) { return c->answers(); });
  if (sent || looks == 0) return io.stop();
  pause.expires_after(std::chrono::milliseconds(20));
  pause.async_wait([this, looks](http_server::ErrorInfo) { leave_when_sent(looks - 1); });
}

HttpServer::HttpServer(serve::Server& server, const HttpOptions& options)
    : impl_(std::make_unique<Impl>(server, options)) {
  const auto check = [&](const http_server::ErrorInfo& error) {
    if (error)
      throw Error(ErrorCode::io, cat("cannot listen at ", options.host, ", port ", options.port, ": ",
                                     error.message(), "; --host and --port choose another place"));
  };
  http_server::ErrorInfo error;
  const std::string& name = options.host == "localhost" ? std::string("127.0.0.1") : options.host;
  const auto address = boost::asio::ip::make_address(name, error);
  check(error);
  const http_server::Tcp::endpoint place(address, options.port);
  impl_->acceptor.open(place.protocol(), error);
  check(error);
  impl_->acceptor.set_option(http_server::Tcp::acceptor::reuse_address(true), error);
  impl_->acceptor.bind(place, error);
  check(error);
  impl_->acceptor.listen(boost::asio::socket_base::max_listen_connections, error);
  check(error);
  // From here on: one that comes before run() ends it in order, too.
  impl_->signals.add(SIGTERM);
  impl_->signals.add(SIGINT);
}

HttpServer::~HttpServer() {
  if (impl_->drainer.joinable()) impl_->drainer.join();
}

std::uint16_t HttpServer::port() const { return impl_->acceptor.local_endpoint().port(); }

double HttpServer::ending_seconds() const { return impl_->ending ? impl_->ending->seconds() : 0; }

bool HttpServer::run(const std::function<void(const std::string&)>& log) {
  impl_->shared.log = log;
  impl_->signals.async_wait([this](http_server::ErrorInfo error, int) {
    if (!error) impl_->stop();
  });
  // Whatever memory ended for is gone by then: a connection, or one that would have come.
  for (bool done = false; !done;) try {
      if (!impl_->accepting && !impl_->shared.stopping) impl_->accept();
      impl_->io.run();
      done = true;
    } catch (const std::bad_alloc&) {
    }
  if (impl_->drainer.joinable()) impl_->drainer.join();
  return impl_->ended;
}

}  // namespace kvtide
