// response_store.h: answers of /v1/responses that later requests go on from.
//
// What is kept is the conversation; the KV memory of it is the prefix cache's, and a conversation whose memory was given up
// is read again. The oldest answers go when there are too many, or too many bytes of them.
// Ownership: owns what it keeps. Thread rules: from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvtide/chat.h"

namespace kvtide::serve {

struct StoredResponse {
  std::string id;
  std::string body;                       // the answer as it was given, one line of JSON
  std::vector<ChatMessage> conversation;  // the answer included, without instructions
};

class ResponseStore {
 public:
  ResponseStore(std::size_t most, std::size_t most_bytes) : most_(most), most_bytes_(most_bytes) {}

  void keep(StoredResponse response);
  std::optional<StoredResponse> find(std::string_view id) const;
  bool drop(std::string_view id);

 private:
  static std::size_t bytes_of(const StoredResponse& response);

  std::size_t most_, most_bytes_;
  mutable std::mutex mutex_;
  std::size_t bytes_ = 0;                // under mutex_
  std::list<StoredResponse> responses_;  // under mutex_; the oldest first
};

}  // namespace kvtide::serve
