#include "procedural.h"

#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <iterator>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "arguments.h"
#include "kvtide/error.h"

namespace nb = nanobind;

namespace kvtide::python {
namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorCode::invalid_argument, "procedural: " + why);
}

template <class T>
T value_of(const std::string& key, const nb::handle& value) {
  T result{};
  if (!nb::try_cast(value, result)) refuse("'" + key + "' has a value of another kind");
  return result;
}

// How a value becomes that of a field, by the field's type.
template <class T>
void assign(T& field, const std::string& key, const nb::handle& value) {
  field = value_of<T>(key, value);
}
void assign(std::string& field, const std::string& key, const nb::handle& value) {
  field = text_of(value_of<nb::str>(key, value));
}
template <class Choice>
requires std::is_enum_v<Choice>
void assign(Choice& field, const std::string& key, const nb::handle& value) {
  const std::string name = text_of(value_of<nb::str>(key, value));
  std::string list;
  for (std::size_t i = 0; i < names_of(field).size(); ++i) {
    if (name == names_of(field)[i]) {
      field = static_cast<Choice>(i);
      return;
    }
    list += (i == 0 ? "" : ", ") + std::string(names_of(field)[i]);
  }
  refuse("'" + key + "' must be one of " + list + ", not '" + name + "'");
}
void assign(std::vector<PosRange>& field, const std::string& key, const nb::handle& value) {
  for (const nb::handle range : value_of<nb::sequence>(key, value)) {
    const auto [first, last] = value_of<std::tuple<Pos, Pos>>(key, range);
    field.push_back({first, last});
  }
}
void assign(HeadTable& field, const std::string& key, const nb::handle& value) {
  for (const nb::handle head : value_of<nb::sequence>(key, value)) {
    HeadNeed need;
    float* const numbers[] = {&need.induction, &need.share, &need.output_norm, &need.worth};
    std::size_t count = 0;
    for (const nb::handle item : value_of<nb::sequence>(key, head)) {
      const auto number = value_of<double>(key, item);
      if (!std::isfinite(number)) refuse("'heads' must be finite numbers");
      if (count < std::size(numbers)) *numbers[count] = static_cast<float>(number);
      ++count;
    }
    if (count != 3 && count != 4)
      refuse("'heads' must be (induction, share, output_norm, worth) of every head; worth may be left out");
    field.needs.push_back(need);
  }
}

}  // namespace

ProceduralOptions procedural_options(const nb::dict& wanted) {
  ProceduralOptions options;
  for (const auto& [handle, value] : wanted) {
    const std::string key = text_of(value_of<nb::str>("a key", handle));
    if (key == "kv_heads") {
      options.heads.kv_heads = value_of<int>(key, value);
      continue;
    }
    bool found = false;
    visit(options, [&, &given = value](const ProceduralField& known, auto& field) {
      if (known.name != key) return;
      assign(field, key, given);
      found = true;
    });
    if (!found) refuse("there is no option '" + key + "'");
  }
  return options;
}

std::vector<std::string> procedural_option_names() {
  std::vector<std::string> names = {"kv_heads"};
  ProceduralOptions options;
  visit(options, [&](const ProceduralField& known, auto&) { names.emplace_back(known.name); });
  return names;
}

nb::object procedural_dict(const std::optional<ProceduralCounts>& counts) {
  if (!counts) return nb::none();
  nb::dict rows, all;
  rows["sinks"] = counts->sink_rows;
  rows["window"] = counts->window_rows;
  rows["full"] = counts->full_rows;
  rows["outliers"] = counts->outlier_rows;
  rows["summaries"] = counts->summary_rows;
  all["rows"] = rows;
  all["seals"] = counts->blocks_sealed;
  all["consolidations"] = counts->consolidations;
  all["shed"] = counts->shed_mass;
  all["fits_rejected"] = counts->fits_rejected;
  all["log_mass_error"] = counts->log_mass_error;
  all["seal_ms"] = counts->seal_seconds * 1e3;
  all["kv_bytes_peak"] = counts->bytes_peak;
  return all;
}

}  // namespace kvtide::python
