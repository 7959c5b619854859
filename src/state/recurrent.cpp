#include "state/recurrent.h"

#include <algorithm>

#include "base/sole_owner.h"
#include "base/text.h"
#include "kernels/codec.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr std::int64_t kWorthKeeping = std::int64_t{1} << 16;

// Of sixteen bytes each.
std::size_t pieces(const RecurrentSpec& spec) {
  return static_cast<std::size_t>((recurrent_bytes(spec) + 15) / 16);
}

}  // namespace

RecurrentTensors::RecurrentTensors(const std::vector<RecurrentSpec>& specs) : specs_(specs) {
  if (empty()) return;
  start_ = zeros();
  values_[0] = start_;
  spare_.of.resize(specs.size());
}

std::vector<RecurrentTensors::Value> RecurrentTensors::zeros() const {
  std::vector<Value> values;
  for (const RecurrentSpec& spec : specs_) values.push_back(std::make_shared<Piece[]>(pieces(spec)));
  return values;
}

RecurrentTensors::Value RecurrentTensors::take_memory(std::size_t tensor) {
  if (Value& spare = spare_.of[tensor]; spare != nullptr) return std::move(spare);
  return std::make_shared_for_overwrite<Piece[]>(pieces(specs_[tensor]));
}

// Of values that go: what nobody else holds. Small ones cost nothing to make.
void RecurrentTensors::keep_memory(std::vector<Value>& values) noexcept {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (recurrent_bytes(specs_[i]) >= kWorthKeeping && spare_.of[i] == nullptr && values[i] != nullptr &&
        sole_owner(values[i]))
      spare_.of[i] = std::move(values[i]);
}

std::span<const std::byte> RecurrentTensors::value(std::size_t tensor) const {
  return bytes_of(values_.rbegin()->second[tensor], tensor);
}

void RecurrentTensors::require_finite(std::size_t tensor, const std::byte* bytes, ErrorCode code) const {
  const RecurrentSpec& spec = specs_[tensor];
  if (!scales_finite(spec.dtype, bytes, recurrent_elements(spec)))
    throw Error(code, cat("tensor ", quoted(spec.name), " would hold NaN or infinity"));
}

RecurrentTensors::Value RecurrentTensors::copied(std::size_t tensor, std::span<const std::byte> bytes,
                                                 ErrorCode not_finite) const {
  const RecurrentSpec& spec = specs_[tensor];
  if (static_cast<std::int64_t>(bytes.size()) != recurrent_bytes(spec))
    throw Error(ErrorCode::invalid_argument,
                cat("tensor ", quoted(spec.name), " has ", recurrent_bytes(spec),
                    " bytes and cannot be resized; ", bytes.size(), " were given"));
  require_finite(tensor, bytes.data(), not_finite);
  Value value = std::make_shared_for_overwrite<Piece[]>(pieces(spec));
  std::copy(bytes.begin(), bytes.end(), bytes_of(value, tensor).begin());
  return value;
}

void RecurrentTensors::write(std::size_t tensor, std::span<const std::byte> bytes) {
  values_.rbegin()->second[tensor] = copied(tensor, bytes, ErrorCode::invalid_argument);
}

void RecurrentTensors::stage(Pos position, std::size_t tensor, std::span<const std::byte> bytes) {
  Value value = copied(tensor, bytes, ErrorCode::numeric);
  auto& values = staged_[position];
  values.resize(specs_.size());
  values[tensor] = std::move(value);
}

std::span<std::byte> RecurrentTensors::stage(Pos position, std::size_t tensor) {
  auto& values = staged_[position];
  values.resize(specs_.size());
  values[tensor] = take_memory(tensor);
  return bytes_of(values[tensor], tensor);
}

void RecurrentTensors::check_staged(Pos position, std::size_t tensor) const {
  require_finite(tensor, bytes_of(staged_.at(position)[tensor], tensor).data(), ErrorCode::numeric);
}

void RecurrentTensors::unstage() noexcept {
  for (auto& [position, values] : staged_) keep_memory(values);
  staged_.clear();
}

void RecurrentTensors::forget(Pos from, const std::vector<Pos>& checkpoints) noexcept {
  for (auto at = values_.begin(); at != values_.end();) {
    if (at->first >= from || std::binary_search(checkpoints.begin(), checkpoints.end(), at->first)) {
      ++at;
      continue;
    }
    keep_memory(at->second);
    at = values_.erase(at);
  }
}

std::int64_t RecurrentTensors::held_bytes() const {
  std::int64_t bytes = bytes_before(std::numeric_limits<Pos>::max());
  for (std::size_t i = 0; i < specs_.size(); ++i)
    if (spare_.of[i] != nullptr) bytes += recurrent_bytes(specs_[i]);
  return bytes;
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
  return bytes_of(values_.at(position)[tensor], tensor);
}

void RecurrentTensors::restore(const std::vector<Pos>& positions) {
  std::map<Pos, std::vector<Value>> values;
  for (const Pos position : positions) values[position] = zeros();
  values_ = std::move(values);
}

std::span<std::byte> RecurrentTensors::bytes_at(Pos position, std::size_t tensor) {
  return bytes_of(values_.at(position)[tensor], tensor);
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
