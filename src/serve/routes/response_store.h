// response_store.h: answers of /v1/responses that later requests go on from.
//
// What is kept is the conversation; the KV memory of it is the prefix cache's, and a conversation whose memory was given up
// is read again. The oldest answers go when there are too many, or too many bytes of them. With files an answer that was
// kept survives the process.
// Ownership: owns what it keeps. Thread rules: from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "serve/routes/response_files.h"

namespace kvtide::serve {

class ResponseStore {
 public:
  // files: nullptr: none. What they hold is there from the start.
  ResponseStore(std::size_t most, std::size_t most_bytes, std::unique_ptr<ResponseFiles> files = {});

  void keep(StoredResponse response);
  std::optional<StoredResponse> find(std::string_view id) const;
  bool drop(std::string_view id);

 private:
  static std::size_t bytes_of(const StoredResponse& response);

  // With mutex_.
  void add(StoredResponse response);

  std::size_t most_, most_bytes_;
  std::unique_ptr<ResponseFiles> files_;
  mutable std::mutex mutex_;
  std::size_t bytes_ = 0;                // under mutex_
  std::list<StoredResponse> responses_;  // under mutex_; the oldest first
};

}  // namespace kvtide::serve
