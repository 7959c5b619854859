#include "state/recurrent.h"

#include <algorithm>

#include "base/text.h"
#include "kernels/codec.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

std::int64_t elements(const RecurrentSpec& spec) {
  std::int64_t count = 1;
  for (const std::int64_t extent : spec.shape) count *= extent;
  return count;
}

}  // namespace

std::int64_t recurrent_bytes(const RecurrentSpec& spec) { return dtype_bytes(spec.dtype, elements(spec)); }

RecurrentTensors::RecurrentTensors(const std::vector<RecurrentSpec>& specs) : specs_(specs) {
  if (empty()) return;
  start_ = zeros();
  values_[0] = start_;
}

std::vector<RecurrentTensors::Value> RecurrentTensors::zeros() const {
  std::vector<Value> values;
  for (const RecurrentSpec& spec : specs_)
    values.push_back(
        std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(recurrent_bytes(spec))));
  return values;
}

std::span<const std::byte> RecurrentTensors::value(std::size_t tensor) const {
  return *values_.rbegin()->second[tensor];
}

RecurrentTensors::Value RecurrentTensors::checked(std::size_t tensor, std::span<const std::byte> bytes,
                                                  ErrorCode not_finite) const {
  const RecurrentSpec& spec = specs_[tensor];
  const auto refuse = [&](ErrorCode code, const std::string& why) {
    throw Error(code, cat("tensor ", quoted(spec.name), why));
  };
  if (static_cast<std::int64_t>(bytes.size()) != recurrent_bytes(spec))
    refuse(ErrorCode::invalid_argument, cat(" has ", recurrent_bytes(spec), " bytes and cannot be resized; ",
                                            bytes.size(), " were given"));
  if (!scales_finite(spec.dtype, bytes.data(), elements(spec)))
    refuse(not_finite, " would hold NaN or infinity");
  return std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
}

void RecurrentTensors::write(std::size_t tensor, std::span<const std::byte> bytes) {
  values_.rbegin()->second[tensor] = checked(tensor, bytes, ErrorCode::invalid_argument);
}

void RecurrentTensors::stage(Pos position, std::size_t tensor, std::span<const std::byte> bytes) {
  Value value = checked(tensor, bytes, ErrorCode::numeric);
  auto& values = staged_[position];
  values.resize(specs_.size());
  values[tensor] = std::move(value);
}

void RecurrentTensors::forget(Pos from, const std::vector<Pos>& checkpoints) noexcept {
  std::erase_if(values_, [&](const auto& value) {
    return value.first < from && !std::binary_search(checkpoints.begin(), checkpoints.end(), value.first);
  });
}

void RecurrentTensors::advance(Pos position, std::int64_t slack, const std::vector<Pos>& checkpoints) {
  if (empty()) return;
  staged_.erase(staged_.upper_bound(position), staged_.end());
  staged_[position].resize(specs_.size());
  std::map<Pos, std::vector<Value>> known;
  std::vector<Value> newest = values_.rbegin()->second;
  for (const auto& [at, values] : staged_) {
    for (std::size_t i = 0; i < newest.size(); ++i)
      if (values[i] != nullptr) newest[i] = values[i];
    known[at] = newest;
  }
  // From here on nothing needs memory.
  known.merge(values_);
  values_ = std::move(known);
  staged_.clear();
  forget(position - slack, checkpoints);
}

void RecurrentTensors::back_to(Pos length) noexcept {
  if (empty()) return;
  if (length > 0) {
    values_.erase(values_.upper_bound(length), values_.end());
    return;
  }
  auto first = values_.extract(values_.begin());
  values_.clear();
  first.key() = 0;
  std::copy(start_.begin(), start_.end(), first.mapped().begin());
  values_.insert(std::move(first));
}

std::vector<Pos> RecurrentTensors::positions() const {
  std::vector<Pos> found;
  for (const auto& [position, values] : values_) found.push_back(position);
  return found;
}

std::span<const std::byte> RecurrentTensors::bytes_at(Pos position, std::size_t tensor) const {
  return *values_.at(position)[tensor];
}

void RecurrentTensors::restore(const std::vector<Pos>& positions) {
  std::map<Pos, std::vector<Value>> values;
  for (const Pos position : positions) values[position] = zeros();
  values_ = std::move(values);
}

std::span<std::byte> RecurrentTensors::bytes_at(Pos position, std::size_t tensor) {
  return *values_.at(position)[tensor];
}

std::int64_t RecurrentTensors::bytes_before(Pos position) const {
  std::int64_t bytes = 0;
  const std::vector<Value>* before = nullptr;
  for (const auto& [at, values] : values_) {
    if (at >= position) break;
    for (std::size_t i = 0; i < specs_.size(); ++i)
      if (before == nullptr || (*before)[i] != values[i]) bytes += recurrent_bytes(specs_[i]);
    before = &values;
  }
  return bytes;
}

}  // namespace kvtide
