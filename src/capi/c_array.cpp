// c_array.cpp: the part of kvtide.h about dense arrays that belong to the caller.
#include <algorithm>
#include <cstring>
#include <limits>

#include "base/checked.h"
#include "base/text.h"
#include "capi/handles.h"
#include "kvtide/state_transition.h"

using namespace kvtide;
using namespace kvtide::capi;

namespace {

std::size_t bytes_of(const kvtide_array& array, std::size_t element_size, const char* what) {
  std::uint64_t bytes = element_size;
  for (const int64_t extent : array.shape) {
    if (extent < 0) throw Error(ErrorCode::invalid_argument, cat(what, ": an extent of ", extent));
    const auto more = checked_mul(bytes, static_cast<std::uint64_t>(extent));
    if (!more || *more > std::numeric_limits<std::int64_t>::max())
      throw Error(ErrorCode::invalid_argument, cat(what, " is larger than memory can be"));
    bytes = *more;
  }
  check_array(static_cast<const std::byte*>(array.data), bytes, what);
  return bytes;
}

template <class Move>
int32_t moved(const kvtide_array* source, const kvtide_array* target, std::size_t element_size,
              const void* pad, kvtide_record* record, char* message, std::size_t message_size,
              Move move) noexcept {
  std::string why;
  int32_t result = KVTIDE_OK;
  try {
    if (element_size < 1 || element_size > 64)
      throw Error(ErrorCode::invalid_argument, cat("elements have 1 to 64 bytes, not ", element_size));
    const kvtide_array &from = given(source, "source"), &to = given(target, "target");
    const DenseSource dense_source{
        {static_cast<const std::byte*>(from.data), bytes_of(from, element_size, "source")},
        {from.shape, from.shape + 4}};
    const DenseTarget dense_target{{static_cast<std::byte*>(to.data), bytes_of(to, element_size, "target")},
                                   {to.shape, to.shape + 4}};
    TransitionOptions options;
    options.pad.assign(element_size, std::byte{0});
    if (pad != nullptr) std::memcpy(options.pad.data(), pad, element_size);
    const DenseTransitionRecord done = move(dense_source, dense_target, options);
    if (record != nullptr)
      *record = {done.kept,   done.kept,         done.dropped,     from.shape[2],
                 to.shape[2], done.bytes_before, done.bytes_after, done.milliseconds};
  } catch (...) {
    result = describe(why);
  }
  if (message != nullptr && message_size > 0) {
    const std::size_t length = std::min(why.size(), message_size - 1);
    std::memcpy(message, why.data(), length);
    message[length] = '\0';
  }
  return result;
}

}  // namespace

extern "C" {

int32_t kvtide_array_expand(const kvtide_array* source, const kvtide_array* target, size_t element_size,
                            int64_t position, const void* pad, kvtide_record* record, char* message,
                            size_t message_size) {
  return moved(source, target, element_size, pad, record, message, message_size,
               [&](const DenseSource& from, const DenseTarget& to, const TransitionOptions& options) {
                 return transition(from, to, position == -1 ? std::nullopt : std::optional<Pos>(position),
                                   options);
               });
}

int32_t kvtide_array_compact(const kvtide_array* source, const kvtide_array* target, size_t element_size,
                             int64_t position, kvtide_record* record, char* message, size_t message_size) {
  return moved(source, target, element_size, nullptr, record, message, message_size,
               [&](const DenseSource& from, const DenseTarget& to, const TransitionOptions& options) {
                 return compact(from, to, position == -1 ? from.shape[2] : position, options);
               });
}
}
