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

ResponseStore::ResponseStore(std::size_t most, std::size_t most_bytes, std::unique_ptr<ResponseFiles> files)
    : most_(most), most_bytes_(most_bytes), files_(std::move(files)) {
  if (!files_) return;
  for (StoredResponse& response : files_->read_all()) add(std::move(response));
}

void ResponseStore::add(StoredResponse response) {
  bytes_ += bytes_of(response);
  responses_.push_back(std::move(response));
  while (responses_.size() > most_ || (bytes_ > most_bytes_ && responses_.size() > 1)) {
    if (files_) files_->remove(responses_.front().id);
    bytes_ -= bytes_of(responses_.front());
    responses_.pop_front();
  }
}

void ResponseStore::keep(StoredResponse response) {
  if (files_) files_->write(response);
  const std::lock_guard lock(mutex_);
  add(std::move(response));
}

std::optional<StoredResponse> ResponseStore::find(std::string_view id) const {
  const std::lock_guard lock(mutex_);
  for (const StoredResponse& response : responses_)
    if (response.id == id) return response;
  // It may have been put into the folder since: an answer that another server gave.
  return files_ ? files_->read(id) : std::nullopt;
}

bool ResponseStore::drop(std::string_view id) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(responses_.begin(), responses_.end(),
                                  [&](const StoredResponse& response) { return response.id == id; });
  if (found == responses_.end()) {
    const bool is_file = files_ && files_->read(id);
    if (is_file) files_->remove(id);
    return is_file;
  }
  if (files_) files_->remove(id);
  bytes_ -= bytes_of(*found);
  responses_.erase(found);
  return true;
}

}  // namespace kvtide::serve
