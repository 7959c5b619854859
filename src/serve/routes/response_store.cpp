#include "serve/routes/response_store.h"

#include <algorithm>
#include <utility>

namespace kvtide::serve {

std::size_t ResponseStore::bytes_of(const StoredResponse& response) {
  std::size_t bytes = response.body.size();
  for (const ChatMessage& message : response.conversation)
    bytes += message.role.size() + message.content.size() + message.more.size();
  return bytes;
}

void ResponseStore::keep(StoredResponse response) {
  const std::lock_guard lock(mutex_);
  bytes_ += bytes_of(response);
  responses_.push_back(std::move(response));
  while (responses_.size() > most_ || (bytes_ > most_bytes_ && responses_.size() > 1)) {
    bytes_ -= bytes_of(responses_.front());
    responses_.pop_front();
  }
}

std::optional<StoredResponse> ResponseStore::find(std::string_view id) const {
  const std::lock_guard lock(mutex_);
  for (const StoredResponse& response : responses_)
    if (response.id == id) return response;
  return std::nullopt;
}

bool ResponseStore::drop(std::string_view id) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(responses_.begin(), responses_.end(),
                                  [&](const StoredResponse& response) { return response.id == id; });
  if (found == responses_.end()) return false;
  bytes_ -= bytes_of(*found);
  responses_.erase(found);
  return true;
}

}  // namespace kvtide::serve
