// response_files.h: stored answers of /v1/responses as files of a folder, one each, which survive the process.
//
// A file takes its name when it is whole: a process that is killed leaves all of it or nothing. It is not forced to the disk;
// one that a loss of power damaged does not match its sum, and is removed.
// Ownership: refers to `files`. Thread rules: from any thread, one call for each id at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "kvtide/chat.h"

namespace kvtide::serve {

struct StoredResponse {
  std::string id;
  std::string body;                       // the answer as it was given, one line of JSON
  std::vector<ChatMessage> conversation;  // the answer included, without instructions
};

class ResponseFiles {
 public:
  // log: hears of what could not be read or written. Throws Error(io) without a folder.
  ResponseFiles(std::string folder, std::function<void(const std::string&)> log);

  // In the order in which they were written. Files that are damaged are removed.
  std::vector<StoredResponse> read_all();
  // nullopt: there is none of this name, or it is damaged, which removes it.
  std::optional<StoredResponse> read(std::string_view id) noexcept;
  void write(const StoredResponse& response) noexcept;
  void remove(std::string_view id) noexcept;

 private:
  std::string path(std::string_view id) const;

  std::string folder_;
  std::function<void(const std::string&)> log_;
  PosixFiles files_;
};

}  // namespace kvtide::serve
