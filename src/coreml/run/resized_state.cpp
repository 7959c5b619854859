// Live resizing: the states of one sequence for a package of the same model with another length.
#include <algorithm>
#include <cstring>
#include <optional>

#include "base/out_of_memory.h"
#include "base/refuse.h"
#include "base/text.h"
#include "coreml/run/counter.h"
#include "coreml/run/tensor.h"
#include "kvtide/coreml.h"

namespace kvtide {
namespace {
namespace resized_state_details {

// The only axis in which two shapes differ. nullopt: they are equal.
std::optional<std::size_t> axis_of_tokens(std::string_view name, const CoremlArray& from,
                                          const CoremlArray& to) {
  std::optional<std::size_t> axis;
  bool fits = from.type == to.type && from.shape.size() == to.shape.size();
  for (std::size_t i = 0; fits && i < to.shape.size(); ++i)
    if (from.shape[i] != to.shape[i]) {
      fits = !axis;
      axis = i;
    }
  if (!fits)
    refuse(cat("state ", quoted(name), " is ", coreml_type_name(from.type), " ", coreml::text_of(from.shape),
               ", and ", coreml_type_name(to.type), " ", coreml::text_of(to.shape),
               " in this model; only one axis, that of the tokens, may differ"));
  return axis;
}

// The first `position` steps along `axis`; what `to` holds behind them stays.
void copy_beginning(const CoremlArray& from, std::size_t axis, std::int64_t position, CoremlArray& to) {
  std::int64_t outer = 1;
  for (std::size_t i = 0; i < axis; ++i) outer *= to.shape[i];
  const auto stride = [&](const CoremlArray& array) {
    return array.bytes.size() / static_cast<std::size_t>(outer);
  };
  const std::size_t step = stride(to) / static_cast<std::size_t>(to.shape[axis]);
  for (std::size_t i = 0; i < static_cast<std::size_t>(outer); ++i)
    std::memcpy(to.bytes.data() + i * stride(to), from.bytes.data() + i * stride(from),
                step * static_cast<std::size_t>(position));
}

}  // namespace resized_state_details
}  // namespace

CoremlState CoremlModel::make_state_from(const CoremlState& from, std::int64_t position,
                                         std::string_view function) const {
  using namespace resized_state_details;
  return or_out_of_memory([&] {
    if (position < 0) refuse(cat("position is ", position, "; it counts the tokens that were read"));
    CoremlState made = make_state(function);
    for (const std::string& name : made.names()) {
      CoremlArray state = made.read(name), given = from.read(name);
      const auto check_room = [&](std::int64_t room) {
        if (position > room)
          throw Error(ErrorCode::context_full, cat("state ", quoted(name), " has room for ", room,
                                                   " tokens, and ", position, " were read"));
      };
      if (const auto axis = axis_of_tokens(name, given, state)) {
        check_room(std::min(given.shape[*axis], state.shape[*axis]));
        copy_beginning(given, *axis, position, state);
      } else {
        // Which axis is that of the tokens is not known of equal shapes: it is none that is longer than the longest.
        if (state.shape.size() >= 3) check_room(*std::max_element(state.shape.begin(), state.shape.end()));
        state = std::move(given);
        if (coreml::is_counter(state.shape)) coreml::set_counter(state, name, position);
      }
      made.write(name, state);
    }
    if (from.names().size() != made.names().size())
      refuse(cat("there are ", from.names().size(), " states, and this model has ", made.names().size()));
    return made;
  });
}

}  // namespace kvtide
