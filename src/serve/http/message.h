// message.h: requests and answers of HTTP as plain values, and where an answer goes. No socket is known here: a
// server, a test and a fuzzer hand over the same values.
//
// Thread rules: Request and Response are plain values. A Reply is called from the thread that handles the request and
// from the scheduler's, one call at a time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

// Whether the two are equal, in time that depends on the length of `given` alone.
bool same_secret(std::string_view given, std::string_view wanted);

}  // namespace kvtide::serve
